//! What a device could not finish, and does again by itself: a way back or a confirm, and a stage beside it.

use groundswell_core::node::effect::Step;

/// At most one of each.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    way: Option<Again>,
    stage: Option<Again>,
}

/// A step that could not be finished, and is done again: after so many looks more, in the end.
#[derive(Debug)]
struct Again {
    step: Step,
    tries: u32,
    looks_left: u32,
}

impl Again {
    /// Most looks between two tries: a minute.
    const MOST_LOOKS: u32 = 12;

    /// After what `before` says of the same step. What only waits for space is done again at the next look; a way back stops
    /// and starts things, and is done again after twice the time of before.
    fn of(step: Step, before: Option<Self>) -> Self {
        let tries = before.filter(|before| before.step == step).map_or(0, |before| before.tries.saturating_add(1));
        let looks = if matches!(step, Step::Revert { .. }) { 1_u32 << tries.min(8) } else { 1 };
        Self { step, tries, looks_left: looks.min(Self::MOST_LOOKS) }
    }

    /// Whether it is time, at one more look.
    fn is_due(&mut self) -> bool {
        self.looks_left = self.looks_left.saturating_sub(1);
        self.looks_left == 0
    }
}

impl Unfinished {
    /// A step is ordered. It is being done where it is one of these once more, and takes the place of another of its kind: neither
    /// a way back nor a stage loses the other. A switch leaves nothing to be gone on with.
    pub(super) fn order(&mut self, step: &Step) {
        if matches!(step, Step::Activate { .. }) {
            *self = Self::default();
        }
        let of_its_kind = self.of_its_kind(step);
        *of_its_kind = of_its_kind.take().filter(|again| again.step == *step).map(|again| Again { looks_left: 0, ..again });
    }

    /// A step could not be finished.
    pub(super) fn keep(&mut self, step: Step) {
        let of_its_kind = self.of_its_kind(&step);
        *of_its_kind = Some(Again::of(step, of_its_kind.take()));
    }

    /// A step has come to its end.
    pub(super) fn end(&mut self, step: &Step) {
        *self.of_its_kind(step) = None;
    }

    /// What is to be done again at this look.
    pub(super) fn due(&mut self) -> Option<Step> {
        let due = |again: &mut Option<Again>| again.as_mut().and_then(|it| it.is_due().then(|| it.step.clone()));
        // One at a time: a stage does not miss this look, but has it after the way back.
        due(&mut self.way).or_else(|| due(&mut self.stage))
    }

    fn of_its_kind(&mut self, step: &Step) -> &mut Option<Again> {
        if stages(step) { &mut self.stage } else { &mut self.way }
    }
}

/// What fills the idle slot alone: a way back that is under way stays so.
pub(super) fn stages(step: &Step) -> bool {
    matches!(step, Step::Stage { .. })
}

#[cfg(test)]
mod tests {
    use groundswell_core::digest::{Digest, Hex32};
    use groundswell_core::documents::release::Artifact;
    use groundswell_core::node::effect::Install;
    use groundswell_core::number::Sequence;
    use groundswell_core::record::{ClaimName, Stamp};
    use groundswell_core::text::{ArtifactName, Reason, Version};

    use super::*;

    fn install(release: u8) -> Install {
        Install {
            release: Digest([release; 32]),
            version: Version::new("1.0").unwrap(),
            sequence: Sequence::new(1).unwrap(),
            artifact: Artifact {
                name: ArtifactName::new("bcd").unwrap(),
                platform: None,
                sha256: Hex32([1; 32]),
                size: 1,
                blake3: Hex32([1; 32]),
            },
        }
    }

    fn stage(release: u8) -> Step {
        Step::Stage { install: install(release) }
    }

    fn revert(release: u8) -> Step {
        Step::Revert { release: Digest([release; 32]), reason: Reason::none(), at_fault: true }
    }

    #[test]
    fn neither_a_way_back_nor_the_stage_that_is_to_end_it_loses_the_other() {
        let mut unfinished = Unfinished::default();
        unfinished.keep(revert(2));
        unfinished.order(&stage(3));
        unfinished.keep(stage(3));
        // The core asks for the way back once more.
        unfinished.order(&revert(2));
        unfinished.keep(revert(2));
        assert_eq!(unfinished.due(), Some(stage(3)), "the way back is done after twice the time");
        unfinished.keep(stage(3));
        assert_eq!(unfinished.due(), Some(revert(2)));
        unfinished.end(&revert(2));
        assert_eq!(unfinished.due(), Some(stage(3)), "it goes on once the way back is over");
        unfinished.end(&stage(3));
        assert_eq!(unfinished.due(), None);
        // Both at once: one after the other.
        let mut unfinished = Unfinished::default();
        unfinished.keep(stage(3));
        unfinished.keep(revert(2));
        assert_eq!(unfinished.due(), Some(revert(2)));
        unfinished.end(&revert(2));
        assert_eq!(unfinished.due(), Some(stage(3)));
    }

    #[test]
    fn another_order_of_its_kind_takes_its_place_and_a_switch_that_of_both() {
        let mut unfinished = Unfinished::default();
        unfinished.keep(stage(3));
        unfinished.keep(revert(2));
        unfinished.order(&stage(4));
        unfinished.order(&revert(3));
        assert_eq!(unfinished.due(), None);
        unfinished.keep(stage(4));
        unfinished.keep(revert(3));
        let claim = ClaimName(Stamp { incarnation: 1, counter: 1 });
        unfinished.order(&Step::Activate { install: install(4), claim, within_ms: 1 });
        assert_eq!(unfinished.due(), None);
    }
}

//! What a member's status record says of one rollout: the facts that gates and halt count.

use alloc::vec::Vec;

use super::applies::Skip;
use crate::documents::rollout::Rollout;
use crate::record::ClaimName;
use crate::record::status::{Claim, HoldNotice, Outcome, Phase, Purpose, Section, Status};

/// The facts about one rollout in one member's record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberReport {
    /// The generation of this rollout that it obeys; `None` when it names none.
    pub generation: Option<u64>,
    /// Its phase in this rollout; `Idle` when its section tells of another one.
    pub phase: Phase,
    /// Its standing claim for this rollout.
    pub claim: Option<ClaimName>,
    /// Why it does not move.
    pub hold: Option<HoldNotice>,
    /// Its verdicts on this rollout: claim and outcome.
    pub verdicts: Vec<(Option<ClaimName>, Outcome)>,
    /// The rollout does not apply to it, by its own word or by the fleet's documents.
    pub skip: Option<Skip>,
    /// It signed two records under one stamp: its verdicts and claims count for nothing.
    pub convicted: bool,
}

impl MemberReport {
    /// What `status` says of `rollout`. A status without a section of the product says `NotConfigured` (case D46).
    ///
    /// While an upgrade is under way, a section must name the rollout that it is for (case I4).
    #[must_use]
    pub fn of(status: &Status, rollout: &Rollout) -> Self {
        match status.products.get(&rollout.release.product) {
            Some(section) => Self::of_section(section, rollout),
            None => Self { skip: Some(Skip::NotConfigured), ..Self::default() },
        }
    }

    /// What `section`, of the rollout's product, says of `rollout`.
    #[must_use]
    pub fn of_section(section: &Section, rollout: &Rollout) -> Self {
        let verdicts = section
            .verdicts
            .iter()
            .filter(|verdict| verdict.rollout == rollout.id)
            .map(|verdict| (verdict.claim, verdict.outcome))
            .collect();
        let Some(seen) = section.rollout.as_ref().filter(|seen| seen.id == rollout.id) else {
            return Self { verdicts, ..Self::default() };
        };
        Self {
            generation: Some(seen.generation),
            phase: section.phase,
            claim: section.claim.as_ref().and_then(for_a_rollout),
            hold: section.hold,
            verdicts,
            skip: (section.phase == Phase::Skipped).then_some(Skip::Said),
            convicted: false,
        }
    }

    /// What remains of a convict: the claim of either record of the pair, if one carries any, and nothing else.
    #[must_use]
    pub fn of_convict(pair: [&Status; 2], rollout: &Rollout) -> Self {
        let claim = pair.iter().filter_map(|status| Self::of(status, rollout).claim).max();
        Self { claim, convicted: true, ..Self::default() }
    }

    /// The same facts of a node that the fleet's documents took out: retired, revoked or removed.
    #[must_use]
    pub fn gone(mut self, why: Skip) -> Self {
        if why == Skip::Revoked {
            // Whoever has its key may sign anything: nothing it says has an effect (guarantee S7).
            self = Self::default();
        }
        self.skip = Some(why);
        self
    }
}

/// The name of a claim that is for a rollout; a reboot is none of its business.
fn for_a_rollout(claim: &Claim) -> Option<ClaimName> {
    matches!(claim.purpose, Purpose::Rollout(_)).then_some(claim.name)
}

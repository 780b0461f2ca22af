//! What a core asks for, done: the disk keeps it, the network carries it, the device does it, and power fails in between.

use groundswell_core::node::effect::{Effect, Step};
use groundswell_core::node::input::{Fault, Input, Report};
use groundswell_core::record::status::Phase;
use groundswell_core::text::Reason;

use super::machine::Disruption;
use super::measure::signed;
use super::world::{Due, World};

impl World {
    pub(super) fn run_effects(&mut self, index: u32) {
        let Some(node) = &mut self.machine_mut(index).node else { return };
        let mut effects = node.take_effects();
        self.steps += 1;
        if !self.quiet {
            self.trace.update(&self.now_ms.to_le_bytes());
            self.trace.update(&index.to_le_bytes());
        }
        let power_fails = self.loses_power(index) && !effects.is_empty();
        if power_fails {
            let kept = self.random(effects.len() as u64);
            effects.truncate(usize::try_from(kept).unwrap_or(0));
            self.forget_grants(index);
        }
        let kept = effects.iter().any(|effect| matches!(effect, Effect::Persist { .. }));
        let sent = effects.iter().any(|effect| matches!(effect, Effect::Send { .. }));
        for effect in effects {
            self.run_effect(index, effect);
        }
        let says = self.machine(index).says_while_disrupted();
        if self.power_fails.remove(&index) || power_fails {
            // What it sent is heard: that it is done, others may go by.
            if sent {
                self.note_words(index, says);
            }
            return self.stop(index);
        }
        let machine = self.machine(index);
        if machine.node.is_none() {
            return;
        }
        if let Some(at) = machine.wakes_at_ms(self.now_ms)
            && self.wakes.get(&index).is_none_or(|known| at < *known)
        {
            self.wakes.insert(index, at);
            self.schedule(at, index, Due::Wake);
        }
        self.note_words(index, says);
        if !self.quiet {
            let claimed = self.machine(index).claimed;
            self.check(index, kept);
            let machine = self.machine(index);
            let claims = machine.claimed != claimed && machine.phase() == Some(Phase::Claiming);
            if claims && self.chance(self.faults.power_in_claims) {
                self.stop(index);
            }
        }
    }

    /// Whether the power fails between the effects of what a machine has just handled.
    fn loses_power(&mut self, index: u32) -> bool {
        let signed = signed(self.machine(index));
        let signs = signed > std::mem::replace(&mut self.machine_mut(index).signed, signed);
        self.chance(self.faults.power_in_effects) || signs && self.chance(self.faults.power_in_words)
    }

    pub(super) fn run_effect(&mut self, index: u32, effect: Effect) {
        match effect {
            Effect::Persist { .. } | Effect::Event(_) if self.quiet => {}
            Effect::Persist { key, value } => {
                self.trace.update(&key);
                self.trace.update(value.as_deref().unwrap_or_default());
                let disk = &mut self.machine_mut(index).disk;
                match value {
                    Some(value) => disk.insert(key, value),
                    None => disk.remove(&key),
                };
            }
            Effect::Gossip { bytes } => self.gossip(index, &bytes),
            Effect::Answer { ticket, outcome } => match self.tickets.remove(&ticket) {
                Some(bytes) if outcome.is_ok() => self.gossip(index, &bytes),
                Some(_) => {}
                None => self.answers.push(outcome),
            },
            Effect::Send { peer, bytes } => {
                if !self.quiet {
                    self.trace.update(&bytes);
                }
                self.frames += 1;
                self.frame_bytes += bytes.len() as u64;
                let kind = bytes.get(1).and_then(|kind| self.frames_by_kind.get_mut(usize::from(*kind)));
                kind.into_iter().for_each(|count| *count += 1);
                let Some(other) = self.linked_to(index, &peer) else { return };
                let me = self.machine(index).id;
                self.send(index, other, Input::Frame { peer: me, bytes });
            }
            Effect::Dial { peer, addresses } => {
                self.dials += 1;
                self.dial(index, peer, &addresses);
            }
            // The virtual world has no outer doors: nobody is there, and the node gives such a visit up by itself.
            Effect::Visit { .. } => {}
            Effect::Hangup { peer, .. } => {
                if let Some(other) = self.linked_to(index, &peer) {
                    self.unlink(index, other);
                }
            }
            Effect::FetchRoster { digest, .. } => self.soon(index, 50, Due::Roster(digest)),
            Effect::Device { step, .. } => self.device_step(index, &step),
            Effect::Event(event) => {
                let at = self.now_ms;
                self.learn(index, &event);
                self.events.push((at, index, event));
            }
        }
    }

    fn device_step(&mut self, index: u32, step: &Step) {
        if self.power_fails.contains(&index) {
            return;
        }
        if let Step::Fetch { artifact, .. } = step {
            self.soon(index, 200, Due::Blob(artifact.sha256.into()));
            return;
        }
        if let Step::Stage { install } = step
            && self.chance(self.faults.staging)
        {
            let fault = if self.random(2) == 0 { Fault::DiskFull } else { Fault::Broken };
            let report = Report::StageFailed { release: install.release, fault, reason: Reason::lossy("cannot be written") };
            return self.later(index, vec![(500, report)]);
        }
        let power_fails = self.chance(self.faults.power_in_steps);
        if power_fails {
            self.power_fails.insert(index);
            if self.random(2) == 0 {
                return;
            }
        }
        match step {
            Step::Activate { install, .. } => {
                if !self.quiet {
                    self.check_start(index, install);
                }
                self.begin(index);
            }
            Step::Confirm { release } if !self.quiet => self.check_confirm(index, *release),
            Step::Revert { release, .. } if !self.quiet => self.check_revert(index, *release),
            _ => {}
        }
        let behaviours = self.behaviours.clone();
        let reports = self.machine_mut(index).device.run(step, &behaviours);
        self.check_all_devices();
        if matches!(step, Step::Activate { .. }) {
            self.crash_later(index);
        }
        self.later(index, reports);
    }

    /// A machine may touch its running version from now on.
    fn begin(&mut self, index: u32) {
        let now_ms = self.now_ms;
        let machine = self.machine_mut(index);
        let claim = machine.claim();
        let repair = claim.as_ref().is_some_and(|claim| claim.slot.is_none()) && machine.health.down;
        let roster = claim.as_ref().map(|claim| claim.roster);
        let claim = claim.map(|claim| claim.name);
        // What is told of its health until the new version is started is of the old one.
        (machine.health.started, machine.health.unclear, machine.health.ordered_back) = (false, false, false);
        machine.disruption = Disruption { since_ms: Some(now_ms), repair, written_off: false, claim, roster };
        self.starts += 1;
    }

    /// Whether a machine has signed by now that it is done.
    pub(super) fn note_words(&mut self, index: u32, says: Option<Phase>) {
        let machine = self.machine_mut(index);
        if machine.disruption.since_ms.is_none() || machine.device.disrupted() {
            return;
        }
        if says.is_some_and(|phase| phase != Phase::Activating) {
            machine.disruption = Disruption::default();
        }
    }
}

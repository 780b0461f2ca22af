//! What comes in place of a version whose way back does not end, because the version that ran before does not start.
//!
//! The node is disrupted meanwhile, so its claim stands: nothing gives its slot back before a version runs.

use alloc::format;
use alloc::vec::Vec;

use super::{Act, Life, Mission, Reverting};
use crate::limits::OVERTAKE_AFTER_MS;
use crate::record::status::{HoldCode, Outcome, Phase, Verdict};
use crate::text::Reason;
use crate::time::Now;

impl Life {
    /// Whether the device has been asked to go back for so long that there may be no end to it.
    pub(super) fn is_held_up(&self, now: Now) -> bool {
        self.now.going_back.is_some_and(|since| since.after_ms(OVERTAKE_AFTER_MS) <= now.boot)
    }

    /// Puts what counts now in place of a version whose way back does not end: the node is disrupted, and stays so under the claim
    /// that it has until one of them runs (S1). `true`: it is started. The gate and all local blocks hold, but the device's
    /// own trouble, which this is to end.
    pub(super) fn overtake(&mut self, now: Now, mission: &Mission, acts: &mut Vec<Act>) -> bool {
        let Some(install) = mission.install.as_ref().filter(|_| mission.skip.is_none() && mission.aborted.is_none()) else {
            return false;
        };
        let verdict = self.verdict(&mission.seen.id);
        let is_over = verdict.is_some_and(|verdict| mission.retry.is_none_or(|upto| verdict.claim > upto));
        if is_over || self.denies(mission) || mission.unsupported.is_some() || mission.gate.is_err() {
            return false;
        }
        if self.now.staged != Some(mission.release) {
            self.bring(now, mission, install, acts);
            return false;
        }
        let blocked = self.now.blocked.iter().any(|hold| hold.code != HoldCode::DeviceFault);
        let Some(claim) = self.kept.claim.as_ref().map(|claim| claim.name).filter(|_| !blocked) else { return false };
        let left = self.kept.attempt.take();
        if left.is_none() && self.now.orphan.is_none() {
            return false;
        }
        // Of an orphan nothing is known that could be told.
        if let Some(left) = left.filter(|_| self.now.untried.is_none() && self.now.orphan.is_none())
            && let Some(Reverting { reason, at_fault, .. }) = left.reverting
        {
            if at_fault {
                self.deny(left.release);
                if let Some(build) = self.now.build.take() {
                    self.deny(build);
                }
            }
            // Under no claim: a verdict ends its claim, and this one stands.
            let reason = Reason::lossy(&format!("left, and what ran before does not start: {reason}"));
            let (rollout, outcome) = (left.rollout, Outcome::Failed);
            let verdict = Verdict { rollout, claim: None, outcome, reason, confirmed_at: None, soaked_at: None };
            acts.extend(self.conclude(verdict));
        }
        self.now.untried = None;
        self.kept.rollout = Some(mission.seen.clone());
        self.begin(now, mission, install, claim, acts);
        true
    }

    /// The same for the way back of a trial that this store knows nothing of, once peers have told under which claim that is: without
    /// one this node says nothing, for that would give its slot back.
    pub(super) fn overtake_the_orphan(&mut self, now: Now, mission: Option<&Mission>, acts: &mut Vec<Act>) {
        // A claim of before the store was set back has its verdict, and stands no more.
        let is_known = self.kept.claim.is_some() && self.kept.phase == Phase::Activating;
        let Some(orphan) = self.now.orphan.filter(|_| is_known && self.is_held_up(now)) else { return };
        let Some(mission) = mission.filter(|mission| mission.release != orphan) else { return };
        if self.overtake(now, mission, acts) {
            self.now.orphan = None;
            self.now.recovered = true;
        }
    }
}

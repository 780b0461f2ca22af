//! The moves of a life that follow from what the device reports.

use alloc::format;
use alloc::vec::Vec;

use super::super::input::{Fault, Health, Recovered, Report, WentBack};
use super::ends::Ends;
use super::stopwatch::Stopwatch;
use super::{Act, Life, Reverting, Tries};
use crate::digest::Digest;
use crate::limits::{RETRIES, RETRY_FIRST_MS, RETRY_LONGEST_MS};
use crate::record::ClaimName;
use crate::record::status::{Outcome, Phase, Running, Verdict};
use crate::text::{Reason, RolloutId};
use crate::time::Now;

impl Life {
    /// Takes in a fact. Reports about anything but what is asked for now are late and change nothing.
    pub(crate) fn report(&mut self, now: Now, report: Report) -> Vec<Act> {
        self.woken(now);
        let mut acts = Vec::new();
        match report {
            Report::Recovered(recovered) => self.recovered(now, recovered, &mut acts),
            Report::Fetched { sha256 } if self.now.fetching == Some(sha256) => {
                self.now.fetching = None;
                self.now.no_source = false;
                self.now.fetched = Some(sha256);
            }
            Report::NoSource { sha256 } if self.now.fetching == Some(sha256) => self.now.no_source = true,
            Report::FetchFailed { sha256, fault, reason } if self.now.fetching == Some(sha256) => {
                self.now.fetching = None;
                self.failed_before_activation(now, fault, reason, &mut acts);
            }
            Report::Staged { release } => {
                self.now.staged = Some(release);
                self.now.staging = None;
                self.kept.tries = None;
            }
            Report::StageFailed { release, fault, reason } if self.now.staging == Some(release) => {
                self.now.staging = None;
                self.now.fetched = None;
                self.now.staged = None;
                self.failed_before_activation(now, fault, reason, &mut acts);
            }
            Report::Activated { release } if self.activating(release) => {
                self.now.activated = Some(now.boot);
                self.now.staged = None;
                self.kept.running = self.kept.attempt.as_ref().map(|attempt| attempt.running.clone());
                // Health of the old version says nothing about the new one.
                self.now.health = None;
            }
            Report::ActivateFailed { release, reason, at_fault } if self.activating(release) => {
                self.failed(now, reason, at_fault, &mut acts);
            }
            Report::Health(health) => self.health(now, health),
            Report::Confirmed { release } if self.activating(release) => self.confirmed(now),
            Report::ConfirmFailed { release, reason, at_fault } if self.activating(release) && self.now.confirming => {
                self.now.confirming = false;
                self.failed(now, reason, at_fault, &mut acts);
            }
            Report::Reverted { release, running, .. } if self.activating(release) && self.now.untried.is_some() => {
                self.kept.running = running;
                self.now.untried = None;
                self.now.asked = None;
                self.now.going_back = None;
                self.now.health = None;
                self.now.staged = None;
                self.inconclusive(now);
            }
            // Where nothing was asked for, it answers an ask of an earlier upgrade for the second time.
            Report::Reverted { release, running, output } if self.reverting(release) => {
                self.reverted(now, running, output, &mut acts);
            }
            Report::Reverted { release, running, .. } if self.now.orphan == Some(release) => {
                self.now.orphan = None;
                self.now.asked = None;
                self.now.going_back = None;
                let (floor, denied) = (self.kept.floor, Vec::new());
                let recovered = Recovered { denied, ..Recovered::at_rest(running, floor) };
                self.recovered(now, recovered, &mut acts);
            }
            Report::Blocked(blocked) => self.now.blocked = blocked,
            Report::Policy(policy) => self.now.policy = policy,
            // Late answers to what is no longer asked.
            Report::Fetched { .. }
            | Report::NoSource { .. }
            | Report::FetchFailed { .. }
            | Report::StageFailed { .. }
            | Report::Activated { .. }
            | Report::ActivateFailed { .. }
            | Report::Confirmed { .. }
            | Report::ConfirmFailed { .. }
            | Report::Reverted { .. } => {}
        }
        acts
    }

    fn activating(&self, release: Digest) -> bool {
        self.kept.phase == Phase::Activating && self.kept.attempt.as_ref().is_some_and(|attempt| attempt.release == release)
    }

    fn reverting(&self, release: Digest) -> bool {
        self.activating(release) && self.kept.attempt.as_ref().is_some_and(|attempt| attempt.reverting.is_some())
    }

    /// The first word of the device after a start decides how an upgrade under way goes on.
    fn recovered(&mut self, now: Now, recovered: Recovered, acts: &mut Vec<Act>) {
        self.now.staged = recovered.staged;
        self.kept.floor = self.kept.floor.max(recovered.floor);
        self.kept.running = recovered.running.clone();
        for named in recovered.denied {
            self.deny(named);
        }
        let attempt = self.kept.attempt.clone().filter(|_| self.kept.phase == Phase::Activating);
        if let Some(release) = recovered.trial.filter(|trial| attempt.as_ref().is_none_or(|attempt| attempt.release != *trial)) {
            // A trial that this store knows nothing of: it was set back. Nobody watches it, so it ends first; until
            // then this node cannot say what runs.
            self.now.orphan = Some(release);
            self.kept.running = None;
            acts.extend(self.insist_on_the_orphan(now));
            return;
        }
        if let Some(going_back) = recovered.going_back {
            return self.goes_back(now, *going_back, acts);
        }
        self.now.recovered = true;
        let Some(attempt) = attempt else {
            // Taken back from peers by a store that was set back: now the device has said that it is over.
            if self.kept.phase == Phase::Activating {
                self.withdraw_to(Phase::Waiting, None);
            }
            return;
        };
        let release = attempt.release;
        // What a helper remembers of the same release under an earlier claim says nothing of this one.
        let standing = self.kept.claim.as_ref().map(|claim| claim.name);
        let mine = |claim: Option<ClaimName>| claim.is_none() || claim == standing;
        let is_of_it = |reverted: &(Digest, Reason)| reverted.0 == release && mine(recovered.claim);
        if attempt.proof.is_some() {
            // The old build runs again already, and is still looking for a peer.
        } else if let Some((_, reason)) = recovered.reverted.filter(is_of_it) {
            if !recovered.at_fault && attempt.reverting.is_none() {
                self.inconclusive(now);
                return;
            }
            // Asked for already, or the new version did not come up again and again.
            self.kept.attempt.as_mut().map(|attempt| {
                attempt.reverting.get_or_insert(Reverting { reason: Reason::none(), at_fault: true, unproven: false })
            });
            self.reverted(now, recovered.running, reason, acts);
        } else if recovered.trial == Some(release) {
            self.now.activated = Some(now.boot);
            self.now.resumed = Some(now.boot);
            self.kept.ends.start();
            if let Some(reverting) = attempt.reverting {
                acts.push(self.go_back(now, reverting));
            }
        } else if recovered.running.as_ref().is_some_and(|running| running.release == release) {
            // Confirmed on the device just before the restart: the point of no return is passed.
            self.confirmed(now);
        } else if attempt.reverting.is_some() {
            self.reverted(now, recovered.running, Reason::none(), acts);
        } else if let Some(failed) = recovered.failed.filter(|it| it.release == release && mine(Some(it.claim))) {
            // The device had come to that by itself, and this node ended before it could write it down.
            let WentBack { reason, .. } = *failed;
            let reverting = Reverting { reason, at_fault: true, unproven: false };
            self.kept.attempt.as_mut().map(|attempt| attempt.reverting.insert(reverting));
            self.reverted(now, recovered.running, Reason::none(), acts);
        } else {
            // It restarted before the switch, or after the device went back from what could not be tried.
            self.inconclusive(now);
        }
    }

    /// The device is on a way back that does not end. What is left is not always what this node last asked for: it may have been
    /// about to put something else in its place.
    fn goes_back(&mut self, now: Now, (release, reason, at_fault): (Digest, Reason, bool), acts: &mut Vec<Act>) {
        let attempt = self.kept.attempt.as_mut().filter(|_| self.kept.phase == Phase::Activating);
        let Some(attempt) = attempt else {
            self.now.orphan = Some(release);
            self.kept.running = None;
            acts.extend(self.insist_on_the_orphan(now));
            return;
        };
        self.now.recovered = true;
        if attempt.release == release && (at_fault || attempt.reverting.is_some()) {
            let reverting = Reverting { reason, at_fault, unproven: false };
            let reverting = attempt.reverting.get_or_insert(reverting).clone();
            acts.push(self.go_back(now, reverting));
        } else {
            // Nothing is known of what it wanted to start, nor of what is left through no fault and without an order; any other that is
            // left has its verdict already. The device goes back from that whichever of the two it is asked to leave.
            let wanted = attempt.release;
            attempt.reverting = None;
            self.now.untried = Some(reason);
            acts.extend(self.insist_on_the_untried(now, wanted));
        }
    }

    fn health(&mut self, now: Now, health: Health) {
        self.now.unclear |= self.now.activated.is_some() && matches!(health, Health::Unknown(_));
        let since = match &self.now.health {
            Some((known, since)) if core::mem::discriminant(known) == core::mem::discriminant(&health) => *since,
            _ => now.boot,
        };
        self.now.health = Some((health, since));
    }

    /// What is to blame goes back for that; what could not be tried goes back, and nobody is.
    fn failed(&mut self, now: Now, reason: Reason, at_fault: bool, acts: &mut Vec<Act>) {
        let Some(attempt) = self.kept.attempt.as_ref().filter(|attempt| attempt.reverting.is_none()) else { return };
        if at_fault {
            acts.push(self.revert(now, reason, true));
        } else {
            let release = attempt.release;
            self.now.untried = Some(reason);
            // The switch may have used it up: it is staged anew before it is tried again, in place of this way back too.
            self.now.staged = None;
            acts.extend(self.insist_on_the_untried(now, release));
        }
    }

    /// Past the point of no return: the floor rises, the slot is given back, the soak begins.
    fn confirmed(&mut self, now: Now) {
        let Some(attempt) = &mut self.kept.attempt else { return };
        attempt.soak = Some(Stopwatch::start(now));
        attempt.reverting = None;
        self.kept.ends = Ends::default();
        self.kept.floor = self.kept.floor.max(attempt.running.sequence);
        self.kept.running = Some(attempt.running.clone());
        self.kept.phase = Phase::Confirmed;
        self.now.confirming = false;
        self.now.asked = None;
        self.now.hold = None;
    }

    fn reverted(&mut self, now: Now, running: Option<Running>, output: Reason, acts: &mut Vec<Act>) {
        let Some(mut attempt) = self.kept.attempt.take() else { return };
        let at_fault = attempt.reverting.as_ref().is_some_and(|reverting| reverting.at_fault);
        let unproven = attempt.reverting.as_ref().is_some_and(|reverting| reverting.unproven);
        let reason = match attempt.reverting.clone().map(|reverting| reverting.reason).filter(|reason| !reason.is_empty()) {
            Some(reason) if output.is_empty() => reason,
            Some(reason) => Reason::lossy(&format!("{reason}: {output}")),
            None => output,
        };
        self.kept.running = running;
        self.now.hold = None;
        self.now.confirming = false;
        self.now.asked = None;
        self.now.going_back = None;
        self.now.activated = None;
        self.now.health = None;
        // The switch may have used up what was staged, whether or not it said so before it failed.
        self.now.staged = None;
        if unproven {
            attempt.proof = Some(Stopwatch::start(now));
            self.kept.attempt = Some(attempt);
            return;
        }
        acts.extend(self.rolled_back(attempt.rollout, attempt.release, at_fault, reason));
    }

    /// The verdict on an upgrade that went back; a release that is to blame is not tried again here, nor is its build in another.
    pub(super) fn rolled_back(&mut self, rollout: RolloutId, release: Digest, at_fault: bool, reason: Reason) -> Option<Act> {
        self.kept.phase = Phase::RolledBack;
        self.kept.ends = Ends::default();
        if at_fault {
            self.deny(release);
            if let Some(build) = self.now.build.take() {
                self.deny(build);
            }
        }
        let claim = self.kept.claim.as_ref().map(|claim| claim.name);
        let outcome = Outcome::RolledBack;
        self.conclude(Verdict { rollout, claim, outcome, reason, confirmed_at: None, soaked_at: None })
    }

    /// Tried again with a growing pause; a full disk for as long as it takes, anything else a few times.
    fn failed_before_activation(&mut self, now: Now, fault: Fault, reason: Reason, acts: &mut Vec<Act>) {
        let Some(seen) = self.kept.rollout.clone() else {
            // What is to end the way back of a trial that this store knows nothing of is no rollout of this node yet.
            self.now.retry_at = Some(now.boot.after_ms(RETRY_LONGEST_MS));
            return;
        };
        let failures = match fault {
            Fault::DiskFull => {
                self.kept.tries = None;
                0
            }
            Fault::Broken => {
                let before = self.kept.tries.filter(|tries| tries.release == seen.digest).map_or(0, |tries| tries.failures);
                self.kept.tries = Some(Tries { release: seen.digest, failures: before.saturating_add(1) });
                before.saturating_add(1)
            }
        };
        // In the middle of a way back its claim stands whatever becomes of what is to end that.
        if failures > RETRIES && self.kept.phase != Phase::Activating {
            acts.extend(self.fail_rollout(seen.id, reason));
            return;
        }
        let pause_ms = RETRY_FIRST_MS.saturating_mul(1 << failures.min(16)).min(RETRY_LONGEST_MS);
        self.now.retry_at = Some(now.boot.after_ms(pause_ms));
    }
}

//! The moves of a life that follow from what the mesh orders and from time passing.

use alloc::format;
use alloc::vec::Vec;

use super::super::effect::{Install, Step};
use super::super::hold::Hold;
use super::stopwatch::{Absence, Stopwatch};
use super::{Act, Attempt, Life, Mission, Reverting, Tries, Turn};
use crate::digest::Digest;
use crate::install::Contents;
use crate::limits::{ASK_AGAIN_MS, HEALTH_AFTER_START_MS, LOOK_AFTER_WAKING_MS, OVERTAKE_AFTER_MS};
use crate::record::ClaimName;
use crate::record::status::{HoldCode, HoldNotice, Outcome, Phase, Running, Verdict};
use crate::text::Reason;
use crate::time::{Now, Time, Timestamp};

/// What a life asks of the lease protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    /// May I claim, and which slot?
    Claim,
    /// May I start on my claim?
    Start,
}

impl Life {
    /// Moves as far as orders and time allow. `ask` answers for the lease protocol.
    pub(crate) fn advance(
        &mut self,
        now: Now,
        mission: Option<&Mission>,
        ask: &mut dyn FnMut(&Self, Asking) -> Turn,
    ) -> Vec<Act> {
        self.woken(now);
        let mut acts = Vec::new();
        if !self.now.recovered {
            acts.extend(self.insist_on_the_orphan(now));
            self.overtake_the_orphan(now, mission, &mut acts);
            return acts;
        }
        match (self.kept.phase, mission) {
            (Phase::Activating, _) => self.watch(now, mission, &mut acts),
            (Phase::Confirmed, None) => self.soak(now, &mut acts),
            (Phase::Confirmed, Some(mission)) if self.attempts(mission) => {
                self.kept.rollout = Some(mission.seen.clone());
                self.soak(now, &mut acts);
            }
            (_, None) => self.rest(&mut acts),
            (_, Some(mission)) => self.pursue(now, mission, ask, &mut acts),
        }
        acts
    }

    /// The next instant at which time alone may move it.
    pub(crate) fn deadline(&self, now: Now) -> Option<Time> {
        let mut due: Option<Time> = None;
        let mut at = |time: Time| {
            if time > now.boot {
                due = Some(due.map_or(time, |earlier| earlier.min(time)));
            }
        };
        if let Some(attempt) = &self.kept.attempt {
            let healthy_since = match &self.now.health {
                Some((super::Health::Healthy, since)) => Some(*since),
                _ => None,
            };
            match self.kept.phase {
                Phase::Activating if attempt.proof.is_some() => {
                    at(attempt.proof.as_ref().map_or(now.boot, |proof| proof.due(attempt.upgrade_timeout_ms)));
                }
                Phase::Activating => {
                    self.looked_at(attempt.confirm_after_ms).into_iter().for_each(&mut at);
                    if let Some(resumed) = self.now.resumed.filter(|_| self.now.company.is_some()) {
                        at(resumed.after_ms(LOOK_AFTER_WAKING_MS.min(attempt.upgrade_timeout_ms)));
                    }
                    at(attempt.upgrade.due(self.trial_ms(attempt)));
                    if let Some(resumed) = self.now.resumed {
                        at(resumed.after_ms(HEALTH_AFTER_START_MS));
                    }
                    if let (Some(activated), Some(since)) = (self.now.activated, healthy_since) {
                        at(activated.max(since).after_ms(attempt.confirm_after_ms));
                    }
                    if let Some(asked) = self.now.asked {
                        at(asked.after_ms(ASK_AGAIN_MS));
                    }
                    if let Some(since) = self.now.going_back {
                        at(since.after_ms(OVERTAKE_AFTER_MS));
                    }
                }
                Phase::Confirmed => {
                    self.looked_at(attempt.confirm_after_ms).into_iter().for_each(&mut at);
                    if let Some(soak) = &attempt.soak {
                        at(soak.due(attempt.soak_ms));
                    }
                    if let Some(since) = healthy_since {
                        at(since.after_ms(attempt.confirm_after_ms));
                    }
                }
                _ => {}
            }
        }
        if let (Some(_), Some(asked)) = (self.now.orphan, self.now.asked) {
            at(asked.after_ms(ASK_AGAIN_MS));
            at(self.now.going_back.unwrap_or(asked).after_ms(OVERTAKE_AFTER_MS));
        }
        if let Some(retry_at) = self.now.retry_at {
            at(retry_at);
        }
        due
    }

    fn attempts(&self, mission: &Mission) -> bool {
        self.kept.attempt.as_ref().is_some_and(|attempt| attempt.rollout == mission.seen.id)
    }

    /// Nothing counts here: withdraw, stop transfers, be idle.
    fn rest(&mut self, acts: &mut Vec<Act>) {
        self.stop_fetching(acts);
        self.kept.claim = None;
        self.kept.attempt = None;
        self.kept.rollout = None;
        self.now.hold = None;
        self.now.skip = None;
        self.kept.phase = Phase::Idle;
    }

    fn pursue(&mut self, now: Now, mission: &Mission, ask: &mut dyn FnMut(&Self, Asking) -> Turn, acts: &mut Vec<Act>) {
        self.adopt(mission);
        self.now.skip = None;
        if self.settled_by_verdict(mission, acts) {
            return;
        }
        if let Some(skip) = mission.skip.clone() {
            self.withdraw_to(Phase::Skipped, None);
            self.now.skip = Some(skip);
            self.stop_fetching(acts);
            return;
        }
        if self.kept.running.as_ref().is_some_and(|running| running.release == mission.release) {
            self.vouch_for_running(now, mission, acts);
            return;
        }
        if self.denies(mission) {
            let reason = Reason::lossy("this build failed here before");
            acts.extend(self.fail(mission, reason));
            self.stop_fetching(acts);
            return;
        }
        if let Some(hold) = mission.unsupported.clone() {
            return self.withdraw_to(Phase::Waiting, Some(hold));
        }
        let Some(install) = &mission.install else {
            return self.withdraw_to(Phase::Waiting, Some(Hold::ReleaseMissing));
        };
        if self.now.staged != Some(mission.release) {
            return self.prepare(now, mission, install, acts);
        }
        self.claim_or_start(now, mission, install, ask, acts);
    }

    /// Whether the release failed here, or its build did in another release (design, section 8: version and digest).
    pub(super) fn denies(&self, mission: &Mission) -> bool {
        let build = mission.install.as_ref().map(|install| Contents::of(install).build());
        self.kept.denied.iter().any(|named| *named == mission.release || Some(*named) == build)
    }

    /// Takes up the generation that counts; another rollout starts a new story.
    fn adopt(&mut self, mission: &Mission) {
        let same = self.kept.rollout.as_ref().is_some_and(|seen| seen.id == mission.seen.id);
        if !same {
            self.kept.claim = None;
            self.kept.attempt = None;
            self.kept.phase = Phase::Waiting;
            self.kept.tries = None;
            self.now.retry_at = None;
            self.now.claimed = None;
        }
        if self.kept.rollout.as_ref() != Some(&mission.seen) {
            // People have looked at it.
            self.now.retry_at = None;
            self.kept.rollout = Some(mission.seen.clone());
        }
    }

    /// A verdict stands until a generation forgives it; a soaked node may still regress.
    fn settled_by_verdict(&mut self, mission: &Mission, acts: &mut Vec<Act>) -> bool {
        let Some(verdict) = self.verdict(&mission.seen.id).cloned() else { return false };
        let forgiven = mission.retry.is_some_and(|upto| verdict.claim <= upto);
        match verdict.outcome {
            Outcome::Soaked => {
                self.kept.phase = Phase::Soaked;
                self.now.hold = None;
                let runs_it = self.kept.running.as_ref().is_some_and(|running| running.release == mission.release);
                if runs_it && mission.aborted.is_none() && self.healthy() == Some(false) {
                    acts.extend(self.regress(&verdict));
                }
                true
            }
            Outcome::RolledBack | Outcome::Failed if forgiven => {
                let build = mission.install.as_ref().map(|install| Contents::of(install).build());
                self.kept.denied.retain(|named| *named != mission.release && Some(*named) != build);
                if matches!(self.kept.phase, Phase::RolledBack | Phase::Failed) {
                    self.kept.phase = Phase::Waiting;
                    self.kept.claim = None;
                    self.kept.attempt = None;
                    self.kept.tries = None;
                }
                false
            }
            outcome => {
                self.kept.phase = if outcome == Outcome::Failed { Phase::Failed } else { Phase::RolledBack };
                self.now.hold = None;
                self.stop_fetching(acts);
                true
            }
        }
    }

    /// Already on the version: `soaked` without a claim, unless its own health says otherwise.
    fn vouch_for_running(&mut self, now: Now, mission: &Mission, acts: &mut Vec<Act>) {
        self.stop_fetching(acts);
        if self.healthy() != Some(true) {
            // Silence is never evidence: not known yet is not healthy.
            let failing = self.healthy() == Some(false);
            let notice = HoldNotice { code: HoldCode::Unhealthy, until: None };
            return self.withdraw_to(Phase::Waiting, failing.then_some(Hold::Local(notice)));
        }
        self.kept.claim = None;
        self.kept.attempt = None;
        self.kept.phase = Phase::Soaked;
        self.now.hold = None;
        let verdict = Verdict {
            rollout: mission.seen.id.clone(),
            claim: None,
            outcome: Outcome::Soaked,
            reason: Reason::lossy("already on this version"),
            confirmed_at: None,
            soaked_at: Some(now.wall),
        };
        acts.extend(self.conclude(verdict));
    }

    /// Fetches and stages, ahead of the gate where the rollout says so.
    fn prepare(&mut self, now: Now, mission: &Mission, install: &Install, acts: &mut Vec<Act>) {
        let shut = mission.gate.as_ref().err().cloned();
        if shut.is_some() && !mission.prefetch {
            self.stop_fetching(acts);
            return self.withdraw_to(Phase::Waiting, shut);
        }
        let (phase, own) = self.bring(now, mission, install, acts);
        let hold = if phase == Phase::Fetching { shut.unwrap_or(own) } else { own };
        self.withdraw_to(phase, Some(hold));
    }

    /// Has the device fetch and stage it: how far that is, and what it waits for.
    pub(super) fn bring(&mut self, now: Now, mission: &Mission, install: &Install, acts: &mut Vec<Act>) -> (Phase, Hold) {
        if let Some(retry_at) = self.now.retry_at {
            if retry_at > now.boot {
                let full = self.kept.tries.is_none();
                let left_seconds = retry_at.since_ms(now.boot).div_ceil(1000);
                let full_disk = Hold::Local(HoldNotice { code: HoldCode::DiskFull, until: None });
                return (Phase::Waiting, if full { full_disk } else { Hold::Retry { left_seconds } });
            }
            self.now.retry_at = None;
        }
        let sha256 = install.artifact.sha256.into();
        if self.now.fetched == Some(sha256) {
            if self.now.staging != Some(mission.release) {
                self.now.staging = Some(mission.release);
                acts.push(Act::Device(Step::Stage { install: install.clone() }));
            }
        } else if self.now.fetching != Some(sha256) {
            self.stop_fetching(acts);
            self.now.fetching = Some(sha256);
            acts.push(Act::Device(Step::Fetch { release: mission.release, artifact: install.artifact.clone() }));
        }
        (Phase::Fetching, if self.now.no_source { Hold::NoSource } else { Hold::Fetching })
    }

    fn claim_or_start(
        &mut self,
        now: Now,
        mission: &Mission,
        install: &Install,
        ask: &mut dyn FnMut(&Self, Asking) -> Turn,
        acts: &mut Vec<Act>,
    ) {
        // Everything local is checked before a claim, and again until the start (cases L3 and D12).
        let held = mission.gate.as_ref().err().cloned().or_else(|| self.now.blocked.first().copied().map(Hold::Local));
        if let Some(hold) = held {
            return self.withdraw_to(Phase::Staged, Some(hold));
        }
        let asking = match self.kept.phase {
            Phase::Claiming => Asking::Start,
            _ => Asking::Claim,
        };
        match ask(self, asking) {
            Turn::Claim(slot) => {
                self.withdraw_to(Phase::Staged, None);
                acts.push(Act::Claim(slot));
            }
            Turn::Wait(hold) => {
                if self.kept.phase == Phase::Claiming {
                    self.now.hold = Some(hold);
                } else {
                    self.withdraw_to(Phase::Staged, Some(hold));
                }
            }
            Turn::Withdraw(hold) => self.withdraw_to(Phase::Staged, Some(hold)),
            Turn::Start => self.start(now, mission, install, acts),
        }
    }

    /// `activating`: from here on this node counts as disrupted.
    fn start(&mut self, now: Now, mission: &Mission, install: &Install, acts: &mut Vec<Act>) {
        let Some(claim) = &self.kept.claim else {
            return self.withdraw_to(Phase::Staged, None);
        };
        let name = claim.name;
        self.kept.from = self.kept.running.clone();
        self.begin(now, mission, install, name, acts);
    }

    /// Has the device switch, under this claim.
    pub(super) fn begin(&mut self, now: Now, mission: &Mission, install: &Install, name: ClaimName, acts: &mut Vec<Act>) {
        self.kept.attempt = Some(Attempt {
            rollout: mission.seen.id.clone(),
            release: mission.release,
            running: Running { version: install.version.clone(), sequence: install.sequence, release: install.release },
            confirm_after_ms: mission.confirm_after_ms,
            upgrade_timeout_ms: mission.upgrade_timeout_ms,
            soak_ms: mission.soak_ms,
            upgrade: Stopwatch::start(now),
            soak: None,
            reverting: None,
            proof: None,
        });
        self.kept.absence = Absence::start(now);
        self.kept.ends.begin(mission.release);
        self.kept.phase = Phase::Activating;
        self.now.hold = None;
        self.now.staging = None;
        self.now.activated = None;
        self.now.build = Some(Contents::of(install).build());
        self.now.resumed = None;
        self.now.unclear = false;
        self.now.confirming = false;
        self.now.asked = None;
        self.now.going_back = None;
        let within_ms = mission.upgrade_timeout_ms;
        acts.push(Act::Device(Step::Activate { install: install.clone(), claim: name, within_ms }));
    }

    /// The watchdog of an upgrade under way. Its time alone sends nothing back that no check could judge (case I6). Abort does not stop it, abort with rollback reverts it (rule 3).
    fn watch(&mut self, now: Now, mission: Option<&Mission>, acts: &mut Vec<Act>) {
        let Some(attempt) = &self.kept.attempt else { return };
        let mine = mission.filter(|mission| mission.seen.id == attempt.rollout);
        // A restart forgets it.
        let install = mine.and_then(|mission| mission.install.as_ref()).filter(|install| install.release == attempt.release);
        self.now.build = self.now.build.or_else(|| Some(Contents::of(install?).build()));
        if attempt.proof.is_some() {
            return self.prove(now, acts);
        }
        self.now.hold = None;
        let healthy = self.healthy();
        let confirmed_for =
            self.now.activated.and_then(|activated| Some(now.boot.since_ms(activated).min(self.healthy_ms(now)?)));
        let unanswered = self.unanswered(now);
        // What could not be tried is tried once more, as without a way back.
        let another = |mission: &&Mission| mission.release != attempt.release || self.now.untried.is_some();
        if let Some(mission) = mission.filter(another).filter(|_| self.is_held_up(now))
            && self.overtake(now, mission, acts)
        {
            return;
        }
        let Some(attempt) = &self.kept.attempt else { return };
        if self.now.untried.is_some() {
            if unanswered {
                let release = attempt.release;
                acts.extend(self.insist_on_the_untried(now, release));
            }
            return;
        }
        // What the agent itself is: it has to hear from a peer, on top of its health.
        let alone = self.now.company == Some(false);
        if let Some(reverting) = attempt.reverting.clone() {
            if unanswered {
                acts.push(self.go_back(now, reverting));
            }
        } else if self.now.confirming {
            // The device is making it final: past the point of no return, for an abort with rollback too.
            if unanswered {
                acts.push(self.confirm(now, attempt.release));
            }
        } else if mine.is_some_and(|mission| mission.aborted == Some(true)) {
            acts.push(self.revert(now, Reason::lossy("aborted with rollback"), false));
        } else if self.now.activated.is_some() && healthy == Some(false) {
            acts.push(self.revert(now, self.health_reason("unhealthy"), true));
        } else if !alone
            && confirmed_for.is_some_and(|held_ms| held_ms >= attempt.confirm_after_ms)
            && self.is_looked_at(now, attempt.confirm_after_ms)
        {
            acts.push(self.confirm(now, attempt.release));
        } else if attempt.upgrade.elapsed_ms(now) >= self.trial_ms(attempt) {
            let seconds = attempt.upgrade_timeout_ms / 1000;
            let undecided = self.undecided(now);
            let reason = self.health_reason(&format!("not confirmed within {seconds} s"));
            if let Some(resumed) = self.has_just_begun(now, attempt) {
                if now.boot < resumed.after_ms(LOOK_AFTER_WAKING_MS.min(attempt.upgrade_timeout_ms)) {
                    self.now.hold = Some(Hold::Undecided(Reason::lossy("it has just been started again, or woke")));
                } else {
                    acts.extend(self.leave_undecided(now, reason));
                }
                return;
            }
            if alone
                && self.kept.ends.spent().is_none()
                && self.now.activated.is_some()
                && (healthy == Some(true) || undecided.is_some())
            {
                let reason = Reason::lossy(&format!("no peer answered within {seconds} s"));
                acts.push(self.go_back(now, Reverting { reason, at_fault: false, unproven: true }));
                return;
            }
            match undecided {
                // Its supervisor does not let an agent wait: it goes back, and nothing is known of the new build.
                Some(_) if self.now.company.is_some() => acts.extend(self.leave_undecided(now, reason)),
                // Network loss alone never rolls a product back (case I6): it waits on, and is silent to others.
                Some(why) => self.now.hold = Some(Hold::Undecided(why)),
                // A switch that the device has not come to the end of tells nothing of what is switched to.
                None => acts.push(self.revert(now, reason, self.now.activated.is_some())),
            }
        } else if attempt.upgrade.elapsed_ms(now) >= attempt.upgrade_timeout_ms {
            let reason = Reason::lossy("its machine was off or asleep for a while, and it has the rest of its time");
            self.now.hold = Some(Hold::Undecided(reason));
        }
        if let Some(mission) = mine {
            self.kept.rollout = Some(mission.seen.clone());
        }
    }

    /// The time of the agent itself is over, and nothing is known of it: it goes back, and is tried again later. One that has ended
    /// by itself, or took its machine down, in as many trials in a row as may be is to blame.
    fn leave_undecided(&mut self, now: Now, reason: Reason) -> Option<Act> {
        let release = self.kept.attempt.as_ref()?.release;
        if let Some(times) = self.kept.ends.spent() {
            let reason = Reason::lossy(&format!("it ended in each of {times} trials without being confirmed; {reason}"));
            return Some(self.revert(now, reason, true));
        }
        self.now.untried = Some(reason);
        self.insist_on_the_untried(now, release)
    }

    /// Soak: vouch at its end when health has held, fail when it does not.
    fn soak(&mut self, now: Now, acts: &mut Vec<Act>) {
        let Some(attempt) = &self.kept.attempt else { return };
        let elapsed_ms = attempt.soak.as_ref().map_or(0, |soak| soak.elapsed_ms(now));
        let held = self.healthy_ms(now).is_some_and(|held_ms| held_ms >= attempt.confirm_after_ms);
        let verdict = Verdict {
            rollout: attempt.rollout.clone(),
            claim: self.kept.claim.as_ref().map(|claim| claim.name),
            outcome: Outcome::Soaked,
            reason: Reason::none(),
            confirmed_at: attempt.soak.as_ref().map(Stopwatch::started_at),
            soaked_at: Some(now.wall),
        };
        self.now.hold = None;
        if self.healthy() == Some(false) {
            acts.extend(self.regress(&verdict));
        } else if elapsed_ms >= attempt.soak_ms && held && self.is_looked_at(now, attempt.confirm_after_ms) {
            self.kept.phase = Phase::Soaked;
            acts.extend(self.conclude(verdict));
        }
    }

    /// Confirmed or soaked, and unhealthy now: a failure, but never a way back (design, section 8).
    fn regress(&mut self, verdict: &Verdict) -> Option<Act> {
        self.kept.phase = Phase::Failed;
        let reason = self.health_reason("regressed");
        let soaked_at: Option<Timestamp> = verdict.soaked_at.filter(|_| verdict.outcome == Outcome::Soaked);
        self.conclude(Verdict { outcome: Outcome::Failed, reason, soaked_at, ..verdict.clone() })
    }

    fn health_reason(&self, what: &str) -> Reason {
        match &self.now.health {
            Some((super::Health::Failing(reason) | super::Health::Unknown(reason), _)) if !reason.is_empty() => {
                Reason::lossy(&format!("{what}: {reason}"))
            }
            _ => Reason::lossy(what),
        }
    }

    /// A trial that this store knows nothing of ends before anything else begins: it is asked for until it has.
    pub(super) fn insist_on_the_orphan(&mut self, now: Now) -> Option<Act> {
        let release = self.now.orphan.filter(|_| self.unanswered(now))?;
        self.now.asked = Some(now.boot);
        self.now.going_back.get_or_insert(now.boot);
        let reason = Reason::lossy("this node's store does not know the trial");
        Some(Act::Device(Step::Revert { release, reason, at_fault: false }))
    }

    /// What could not be tried goes back, and nobody is to blame for that.
    pub(super) fn insist_on_the_untried(&mut self, now: Now, release: Digest) -> Option<Act> {
        let reason = self.now.untried.clone()?;
        self.now.asked = Some(now.boot);
        self.now.going_back.get_or_insert(now.boot);
        Some(Act::Device(Step::Revert { release, reason, at_fault: false }))
    }

    /// Nothing is known of the release: the claim ends without a verdict, and the upgrade is tried again later.
    pub(super) fn inconclusive(&mut self, now: Now) {
        self.kept.attempt = None;
        if let Some(seen) = &self.kept.rollout {
            // What was staged in vain beside a way back is no failure of the next try.
            self.kept.tries = Some(Tries { release: seen.digest, failures: 0 });
        }
        self.now.retry_at = Some(now.boot.after_ms(self.kept.ends.pause_ms()));
        self.withdraw_to(Phase::Waiting, None);
    }

    /// Whether the device was asked for nothing that is final, or has not answered for long.
    fn unanswered(&self, now: Now) -> bool {
        self.now.asked.is_none_or(|asked| asked.after_ms(ASK_AGAIN_MS) <= now.boot)
    }

    /// The old build of the agent itself runs again, for the new one had not reached a peer. If the old one does within the
    /// same time, the new one was at fault, which the device does not know yet. If it does not either, nothing is known: the claim
    /// ends without a verdict, and the upgrade is tried again later.
    fn prove(&mut self, now: Now, acts: &mut Vec<Act>) {
        let Some(attempt) = &self.kept.attempt else { return };
        let elapsed_ms = attempt.proof.as_ref().map_or(0, |proof| proof.elapsed_ms(now));
        if self.now.company == Some(true) {
            let reason = attempt.reverting.as_ref().map_or_else(Reason::none, |reverting| reverting.reason.clone());
            let (rollout, release) = (attempt.rollout.clone(), attempt.release);
            self.kept.attempt = None;
            acts.push(Act::Device(Step::Revert { release, reason: reason.clone(), at_fault: true }));
            acts.extend(self.rolled_back(rollout, release, true, reason));
        } else if elapsed_ms >= attempt.upgrade_timeout_ms {
            self.inconclusive(now);
        }
    }

    /// Goes back to what was confirmed last. `at_fault`: the release is to blame.
    pub(super) fn revert(&mut self, now: Now, reason: Reason, at_fault: bool) -> Act {
        self.go_back(now, Reverting { reason, at_fault, unproven: false })
    }

    /// Goes back, or asks for that again.
    pub(super) fn go_back(&mut self, now: Now, reverting: Reverting) -> Act {
        let attempt = self.kept.attempt.as_mut().expect("only an upgrade under way is reverted");
        let Reverting { reason, at_fault, .. } = reverting.clone();
        attempt.reverting = Some(reverting);
        self.now.asked = Some(now.boot);
        self.now.going_back.get_or_insert(now.boot);
        Act::Device(Step::Revert { release: attempt.release, reason, at_fault })
    }

    fn confirm(&mut self, now: Now, release: Digest) -> Act {
        self.now.confirming = true;
        self.now.asked = Some(now.boot);
        Act::Device(Step::Confirm { release })
    }

    /// A failure before activation, under no claim.
    pub(super) fn fail(&mut self, mission_rollout: &Mission, reason: Reason) -> Option<Act> {
        self.fail_rollout(mission_rollout.seen.id.clone(), reason)
    }

    /// The first failure before any claim has no claim. What fails after something was forgiven needs a name of its own,
    /// or what was forgiven would cover it (case D1: never what comes): that of the next record.
    pub(super) fn fail_rollout(&mut self, rollout: crate::text::RolloutId, reason: Reason) -> Option<Act> {
        self.withdraw_to(Phase::Failed, None);
        let claim = self.verdict(&rollout).map(|_| self.now.next_name);
        self.conclude(Verdict { rollout, claim, outcome: Outcome::Failed, reason, confirmed_at: None, soaked_at: None })
    }

    /// Leaves no claim standing: its absence in the next record is the release of the slot (rule 4).
    pub(in super::super) fn withdraw_to(&mut self, phase: Phase, hold: Option<Hold>) {
        self.kept.claim = None;
        self.now.claimed = None;
        self.kept.phase = phase;
        self.now.hold = hold;
    }

    fn stop_fetching(&mut self, acts: &mut Vec<Act>) {
        if let Some(sha256) = self.now.fetching.take() {
            acts.push(Act::Device(Step::CancelFetch { sha256 }));
        }
        self.now.no_source = false;
    }
}

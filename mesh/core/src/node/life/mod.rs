//! A node's life with one product (design, section 8), as a state machine without IO.
//!
//! ```text
//! seen → waiting(hold) → fetching → staged → claiming → activating → confirmed → soaked
//!                           │          │         │           └→ rolled-back(reason)      │
//!                           └──────────┴─────────┴→ failed(reason) │ skipped(reason)     └→ failed(regressed)
//! ```
//!
//! [`advance`] moves it by what the mesh orders ([`Mission`]), [`report`] by what the device says.
//! Both return [`Act`]s: the node turns them into effects, always *after* it made the new state durable.

pub(crate) mod advance;
mod ends;
mod overtake;
pub(crate) mod report;
pub(crate) mod stopwatch;
#[cfg(test)]
mod tests;
mod trial_time;

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use self::ends::Ends;
use self::stopwatch::{Absence, Stopwatch};
use super::effect::{Install, Step};
use super::hold::Hold;
use super::input::{Health, LocalPolicy};
use super::keys::{decode_with, encode_with};
use crate::digest::Digest;
use crate::limits::{DENIED, HEALTH_AFTER_START_MS, LOOK_AFTER_WAKING_MS, LOOK_EACH_WAKING_MS, SLEPT_MS, VERDICTS};
use crate::number::Sequence;
use crate::record::ClaimName;
use crate::record::status::{Claim, HoldNotice, Outcome, Phase, RolloutSeen, Running, Section, Verdict};
use crate::rollout::applies::Skip;
use crate::text::{Reason, RolloutId};
use crate::time::{Now, Time, Timestamp};

/// A node's standing with one product.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) kept: Kept,
    pub(crate) now: Volatile,
}

/// What survives a restart. Written before any effect of the transition that changed it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) running: Option<Running>,
    pub(crate) from: Option<Running>,
    pub(crate) floor: Sequence,
    pub(crate) rollout: Option<RolloutSeen>,
    pub(crate) phase: Phase,
    pub(crate) claim: Option<Claim>,
    /// The upgrade that this node is in, from `activating` to the verdict.
    pub(crate) attempt: Option<Attempt>,
    pub(crate) verdicts: Vec<Verdict>,
    /// What failed here after it was activated, newest last: releases, and the builds that they brought
    /// ([`Contents::build`](crate::install::Contents::build)).
    pub(crate) denied: Vec<Digest>,
    /// Failures before activation of one release.
    pub(crate) tries: Option<Tries>,
    /// How long the machine was off or asleep in the upgrade under way. Kept behind all else: older builds know nothing of it.
    #[serde(skip)]
    pub(crate) absence: Absence,
    /// How often the release that is tried has ended. Kept behind that.
    #[serde(skip)]
    pub(crate) ends: Ends,
}

/// What came later still: builds that know of the absence know nothing of it.
#[derive(Default, Serialize, Deserialize)]
struct Later {
    put_down_awake_ms: Option<u64>,
    ends: Ends,
}

impl Kept {
    /// The form that is stored.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let later = Later { put_down_awake_ms: self.absence.put_down_awake_ms(), ends: self.ends };
        encode_with(self, &(self.absence, later))
    }

    /// Reads it; `None` when it is damaged or of another version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kept, absence, Later { put_down_awake_ms, ends }): (Self, Absence, Later) = decode_with(bytes)?;
        Some(Self { absence: absence.put_down_at(put_down_awake_ms), ends, ..kept })
    }
}

/// The terms of an upgrade, frozen when it starts: a later generation does not change the rules under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) rollout: RolloutId,
    pub(crate) release: Digest,
    pub(crate) running: Running,
    pub(crate) confirm_after_ms: u64,
    pub(crate) upgrade_timeout_ms: u64,
    pub(crate) soak_ms: u64,
    /// Since `activating`.
    pub(crate) upgrade: Stopwatch,
    /// Since `confirmed`.
    pub(crate) soak: Option<Stopwatch>,
    /// Set once a revert was asked for.
    pub(crate) reverting: Option<Reverting>,
    /// Since the old build of the agent itself runs again, where the new one had not reached a peer: whether the old one does.
    pub(crate) proof: Option<Stopwatch>,
}

/// Why an upgrade goes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reverting {
    /// In words.
    pub(crate) reason: Reason,
    /// The release is at fault, so that its bytes are not tried again here; an order or a loss of power is not its fault.
    pub(crate) at_fault: bool,
    /// The new build of the agent itself had not reached a peer. It is at fault only if the old one does.
    pub(crate) unproven: bool,
}

/// Failures before activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tries {
    pub(crate) release: Digest,
    pub(crate) failures: u32,
}

/// What a restart forgets.
#[derive(Debug, Default)]
pub(crate) struct Volatile {
    /// The device has said what the slots hold.
    pub(crate) recovered: bool,
    /// A trial that is being reverted because this store knows nothing of it: body digest of its release.
    pub(crate) orphan: Option<Digest>,
    /// The transfer under way: SHA-256 of the artifact.
    pub(crate) fetching: Option<Digest>,
    /// SHA-256 of the artifact that is whole in the blob store.
    pub(crate) fetched: Option<Digest>,
    pub(crate) no_source: bool,
    /// Release asked to be staged.
    pub(crate) staging: Option<Digest>,
    /// Release in the idle slot, verified.
    pub(crate) staged: Option<Digest>,
    pub(crate) health: Option<(Health, Time)>,
    /// How far the awake clock lagged behind the boot clock when the machine was last known to be awake.
    pub(crate) slept_ms: Option<u64>,
    /// When it woke last.
    pub(crate) woke: Option<Time>,
    /// When it woke for the first time since it was last looked at for long enough; time asleep is moved out of it.
    pub(crate) looking_since: Option<Time>,
    pub(crate) blocked: Vec<HoldNotice>,
    pub(crate) policy: LocalPolicy,
    /// When the standing claim was made.
    pub(crate) claimed: Option<(Time, Timestamp)>,
    /// When the new version was started in this run.
    pub(crate) activated: Option<Time>,
    /// When this run took up a trial that an earlier run began, or the machine woke in it; a trial of the agent itself always is.
    pub(crate) resumed: Option<Time>,
    /// The build of the upgrade under way.
    pub(crate) build: Option<Digest>,
    /// A check had no judgement of the version on trial in this run.
    pub(crate) unclear: bool,
    pub(crate) confirming: bool,
    /// Why the device could not try the new version, while it is asked to go back for that: no verdict follows.
    pub(crate) untried: Option<Reason>,
    /// When the device was last asked to confirm or revert: it is asked again when it does not answer.
    pub(crate) asked: Option<Time>,
    /// Since when it is asked to go back, in this run.
    pub(crate) going_back: Option<Time>,
    /// How a claim that is made now would be named: names a failure that comes after what was forgiven.
    pub(crate) next_name: ClaimName,
    pub(crate) retry_at: Option<Time>,
    pub(crate) hold: Option<Hold>,
    pub(crate) skip: Option<Skip>,
    /// Only for the agent itself: whether a peer has answered in this run. Network loss alone reverts no other product.
    pub(crate) company: Option<bool>,
}

/// What the mesh orders for a product now, computed by the node from documents and records.
#[derive(Clone, Debug)]
pub(crate) struct Mission {
    /// The generation that counts.
    pub(crate) seen: RolloutSeen,
    /// What to install; `None` until the release has arrived.
    pub(crate) install: Option<Install>,
    /// The release's digest.
    pub(crate) release: Digest,
    /// Why it does not apply here.
    pub(crate) skip: Option<Skip>,
    /// It was aborted; and whether what has not confirmed goes back.
    pub(crate) aborted: Option<bool>,
    /// A generation lets this node try again after that claim, or after any failure before a claim.
    pub(crate) retry: Option<Option<ClaimName>>,
    /// Whether fetching and staging may go ahead of the gate.
    pub(crate) prefetch: bool,
    /// Nothing in documents and records keeps this node from claiming.
    pub(crate) gate: Result<(), Hold>,
    /// Rehearsals and other forms that this version or this node does not carry out.
    pub(crate) unsupported: Option<Hold>,
    pub(crate) soak_ms: u64,
    pub(crate) confirm_after_ms: u64,
    pub(crate) upgrade_timeout_ms: u64,
}

/// What the lease protocol says to a node that could claim or has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Claim this slot now; `None`: repair without a slot.
    Claim(Option<u16>),
    /// Not now.
    Wait(Hold),
    /// The claim has its quorum and may start.
    Start,
    /// Withdraw the claim.
    Withdraw(Hold),
}

/// What follows from a transition, beyond keeping and publishing the new state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Ask the device.
    Device(Step),
    /// Make a claim on this slot: only the node can name it.
    Claim(Option<u16>),
    /// Tell of a verdict.
    Verdict(RolloutId, Outcome, Reason),
}

impl Life {
    /// Opened from what was kept; stopwatches go on, a mere claim is withdrawn (rule 3, cases D5 and D11).
    pub(crate) fn open(mut kept: Kept, now: Now) -> Self {
        if let Some(attempt) = &mut kept.attempt {
            let gap_ms = attempt.upgrade.resume(now);
            kept.absence.resume(gap_ms, now);
            for watch in attempt.soak.iter_mut().chain(&mut attempt.proof) {
                watch.resume(now);
            }
        }
        if kept.phase == Phase::Claiming {
            kept.phase = Phase::Waiting;
            kept.claim = None;
        }
        Self { kept, now: Volatile::default() }
    }

    /// The store was set back, and a peer has a newer record of this node in which `claim` stands. If the device may be in
    /// that upgrade the claim stands on, until the device is back on the old version: nobody watches what is forgotten.
    pub(crate) fn take_back(&mut self, claim: &Claim) {
        if self.kept.phase == Phase::Activating || self.now.orphan.is_some() || !self.now.recovered {
            self.kept.claim = Some(claim.clone());
            self.kept.phase = Phase::Activating;
        }
    }

    /// Takes down how long upgrade and soak have run, where they do. Whether there is anything to keep.
    pub(crate) fn put_down(&mut self, now: Now) -> bool {
        let phase = self.kept.phase;
        let Some(attempt) = self.kept.attempt.as_mut().filter(|_| matches!(phase, Phase::Activating | Phase::Confirmed)) else {
            return false;
        };
        attempt.upgrade.put_down(now);
        self.kept.absence.put_down(now);
        for watch in attempt.soak.iter_mut().chain(&mut attempt.proof) {
            watch.put_down(now);
        }
        true
    }

    /// The agent ends as it was told to: of a version on trial that is no end. Whether there is anything to keep.
    pub(crate) fn stop(&mut self, now: Now) -> bool {
        let goes_on = self.now.recovered && self.now.untried.is_none() && !self.now.confirming;
        let on_trial = self.kept.attempt.as_ref().is_some_and(|attempt| attempt.reverting.is_none() && attempt.soak.is_none());
        if !goes_on || !on_trial || self.kept.phase != Phase::Activating {
            return false;
        }
        self.kept.ends.stop();
        self.put_down(now)
    }

    /// The section of the status record that tells of this product.
    pub(crate) fn section(&self) -> Section {
        let attempt = self.kept.attempt.as_ref();
        Section {
            running: self.kept.running.clone(),
            from: self.kept.from.clone(),
            floor: self.kept.floor,
            rollout: self.kept.rollout.clone(),
            phase: self.kept.phase,
            hold: self.now.hold.as_ref().and_then(Hold::notice),
            claim: self.kept.claim.clone(),
            started_at: attempt.map(|attempt| attempt.upgrade.started_at()),
            verdicts: self.kept.verdicts.clone(),
        }
    }

    /// The strongest verdict on `rollout`, whatever its claim; the newest of equal ones.
    pub(crate) fn verdict(&self, rollout: &RolloutId) -> Option<&Verdict> {
        self.kept
            .verdicts
            .iter()
            .filter(|verdict| verdict.rollout == *rollout)
            .max_by_key(|verdict| (verdict.claim, verdict.outcome))
    }

    /// Signs a verdict: monotone per rollout and claim, at most eight kept, the oldest of another rollout going first.
    /// `None` when it changes nothing.
    fn conclude(&mut self, verdict: Verdict) -> Option<Act> {
        let act = Act::Verdict(verdict.rollout.clone(), verdict.outcome, verdict.reason.clone());
        let same = |known: &Verdict| known.rollout == verdict.rollout && known.claim == verdict.claim;
        match self.kept.verdicts.iter_mut().find(|known| same(known)) {
            Some(known) if known.outcome < verdict.outcome => *known = verdict,
            Some(_) => return None,
            None => {
                if self.kept.verdicts.len() >= VERDICTS {
                    let other = self.kept.verdicts.iter().position(|known| known.rollout != verdict.rollout).unwrap_or(0);
                    self.kept.verdicts.remove(other);
                }
                self.kept.verdicts.push(verdict);
            }
        }
        Some(act)
    }

    fn deny(&mut self, named: Digest) {
        if self.kept.denied.contains(&named) {
            return;
        }
        // Each by its release and by its build.
        if self.kept.denied.len() >= 2 * DENIED {
            self.kept.denied.remove(0);
        }
        self.kept.denied.push(named);
    }

    /// Health as a plain answer: `Some(true)` healthy, `Some(false)` failing, `None` not known.
    pub(crate) fn healthy(&self) -> Option<bool> {
        match &self.now.health {
            Some((Health::Healthy, _)) => Some(true),
            Some((Health::Failing(_), _)) => Some(false),
            Some((Health::Unknown(_), _)) | None => None,
        }
    }

    /// Time asleep is none in which health held, for nobody looked: what is told of health is told when it changes. With every
    /// input, before anything is decided.
    fn woken(&mut self, now: Now) {
        let slept_ms = now.boot.0.saturating_sub(now.awake_ms);
        let Some(before_ms) = self.now.slept_ms.filter(|before_ms| *before_ms <= slept_ms) else {
            self.now.slept_ms = Some(slept_ms);
            return;
        };
        // Less is the clocks being read one after the other.
        if slept_ms < before_ms.saturating_add(SLEPT_MS) {
            return;
        }
        self.now.slept_ms = Some(slept_ms);
        let asleep_ms = slept_ms - before_ms;
        // A machine that is awake for a moment at a time is looked at in all of these together.
        let goes_on = |since: Option<Time>, look_ms: u64| match since {
            Some(since) if now.boot.since_ms(since.after_ms(asleep_ms)) < look_ms => Some(since.after_ms(asleep_ms)),
            _ => Some(now.boot),
        };
        self.now.looking_since = goes_on(self.now.looking_since, LOOK_AFTER_WAKING_MS + LOOK_EACH_WAKING_MS);
        self.now.woke = Some(now.boot);
        if let Some((Health::Healthy, since)) = &mut self.now.health {
            *since = since.after_ms(asleep_ms).min(now.boot);
        }
        if self.kept.phase == Phase::Activating {
            self.now.resumed = goes_on(self.now.resumed, HEALTH_AFTER_START_MS);
            self.kept.absence.sleep(asleep_ms);
            self.put_down(now);
        }
    }

    /// From when on a look at the version counts that was taken since the machine woke; `None`: it did not sleep.
    fn looked_at(&self, confirm_after_ms: u64) -> Option<Time> {
        let look_ms = confirm_after_ms.min(LOOK_AFTER_WAKING_MS);
        let (since, woke) = self.now.looking_since.zip(self.now.woke)?;
        Some(since.after_ms(look_ms).max(woke.after_ms(look_ms.min(LOOK_EACH_WAKING_MS))))
    }

    /// Whether somebody has looked at it since (design, section 6: health holds at the end of a soak).
    fn is_looked_at(&self, now: Now, confirm_after_ms: u64) -> bool {
        self.looked_at(confirm_after_ms).is_none_or(|at| at <= now.boot)
    }

    /// For how long health has held without a break.
    fn healthy_ms(&self, now: Now) -> Option<u64> {
        match &self.now.health {
            Some((Health::Healthy, since)) => Some(now.boot.since_ms(*since)),
            _ => None,
        }
    }
}

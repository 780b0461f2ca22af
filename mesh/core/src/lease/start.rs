//! Whether a holder may disrupt itself (rule 3): a pure function of its claim, the grants it sees, and three clocks' facts.
//!
//! The gate, pauses, halts and local blocks come in as one typed word; this file adds quorum, time and restart.

use alloc::vec::Vec;
use core::fmt;

use crate::lease::claim::{SeenClaim, end_of};
use crate::lease::sight::Sight;
use crate::lease::synced::Syncing;
use crate::lease::wardens::Wardens;
use crate::node_id::NodeId;
use crate::record::grants::Promise;
use crate::time::{Now, Time, Timestamp};

/// When a claim was made, by the two clocks that count sleep. In memory only: after a restart a mere claim is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadeAt {
    boot: Time,
    wall: Timestamp,
}

/// Whether a holder may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Make `activating` durable, publish it, then go.
    Yes,
    /// Not yet: a quorum is still possible.
    Wait {
        /// Grants seen.
        have: usize,
        /// Grants needed.
        need: usize,
        /// Wardens that have not answered.
        missing: Vec<NodeId>,
    },
    /// Publish a record without the claim.
    Withdraw(Withdraw),
}

/// Why a claim is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdraw {
    /// This process did not make the claim: the node restarted, or came back from a snapshot (cases D5, D11).
    Restarted,
    /// Longer ago than `startWithin`.
    TooLate {
        /// How long ago, by the larger of the two clocks.
        elapsed_ms: u64,
    },
    /// Paused, halted, aborted, shut or blocked since (cases L3, D12); the caller's hold says which.
    Stopped,
    /// A newer generation runs, and wardens that know it grant no older one: claim anew.
    OlderGeneration,
    /// The claim was forgiven or written off.
    WrittenOff,
    /// Too many wardens have granted the slot to others: try another after a pause (rule 6).
    LostVote,
    /// The wardens have declared a newer roster and grant nothing more under the claim's: claim anew under that one.
    RosterMoved,
    /// The slot has no wardens under the claim's roster.
    NoWardens,
}

impl fmt::Display for Withdraw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restarted => f.write_str("the claim is from before a restart"),
            Self::TooLate { elapsed_ms } => write!(f, "no quorum within the start time: claimed {} s ago", elapsed_ms / 1_000),
            Self::Stopped => f.write_str("stopped between claim and start"),
            Self::OlderGeneration => f.write_str("a newer generation runs: claims again under it"),
            Self::WrittenOff => f.write_str("the claim was written off"),
            Self::LostVote => f.write_str("the wardens chose others: tries another slot"),
            Self::RosterMoved => f.write_str("the wardens have declared a newer roster: claims again under it"),
            Self::NoWardens => f.write_str("the slot has no wardens under the roster that governs"),
        }
    }
}

impl Withdraw {
    /// Whether the next claim waits for a random pause: [`super::queue::Queue::lost`] (rule 6).
    #[must_use]
    pub fn pauses(self) -> bool {
        matches!(self, Self::LostVote | Self::TooLate { .. })
    }
}

/// What the caller knows beside records.
#[derive(Clone, Copy, Debug)]
pub struct StartFacts<'a> {
    /// When this process made the claim; `None`: it did not, the claim is from a former run.
    pub made: Option<MadeAt>,
    /// The clocks now.
    pub now: Now,
    /// `startWithin` of the pool, in milliseconds.
    pub start_within_ms: u64,
    /// Whether something stops it: gate shut, paused, halted, aborted, expired, locally blocked, convicted, or amnesia.
    pub stopped: bool,
    /// Whether a newer generation of the claim's rollout is running.
    pub older_generation: bool,
    /// Whether this node would claim under another roster by now.
    pub roster_moved: bool,
    /// The slot's wardens under the claim's roster; `None` when there is no such slot.
    pub wardens: Option<&'a Wardens>,
    /// Whether this node has synced with enough of them since its start.
    pub synced: Result<(), Syncing>,
}

/// How the wardens of a claim's slot stand to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Votes {
    /// Wardens that granted this very claim.
    pub granted: Vec<NodeId>,
    /// Wardens with a live promise to somebody else on the slot, and those whose grant cannot count.
    pub against: Vec<NodeId>,
    /// Wardens that have promised the slot to nobody, as far as is seen here.
    pub missing: Vec<NodeId>,
}

impl MadeAt {
    /// At these readings.
    #[must_use]
    pub fn new(boot: Time, wall: Timestamp) -> Self {
        Self { boot, wall }
    }

    /// Now.
    #[must_use]
    pub fn now(now: &Now) -> Self {
        Self { boot: now.boot, wall: now.wall }
    }

    /// Milliseconds since, by the larger of the suspend-counting and the wall clock.
    #[must_use]
    pub fn elapsed_ms(&self, now: &Now) -> u64 {
        let wall = now.wall.since_seconds(self.wall).saturating_mul(1_000);
        now.boot.since_ms(self.boot).max(wall)
    }
}

impl Votes {
    /// Counts the promises that the slot's wardens list.
    ///
    /// The grant of a convicted or departed warden counts for nothing, but what it listed for others stands in the way.
    /// A warden that lists a second live promise on the slot has granted none of them: after amnesia it is bound by all.
    #[must_use]
    pub fn count(claim: &SeenClaim, wardens: &Wardens, sight: &impl Sight) -> Self {
        let mine = claim.promise();
        let mut votes = Self::default();
        for warden in &wardens.nodes {
            let promises = sight.grants(warden).map(|grants| grants.promises.as_slice()).unwrap_or_default();
            let on_slot = |promise: &&Promise| promise.pool == mine.pool && promise.slot == mine.slot;
            let granted = promises.contains(&mine);
            let others = promises.iter().filter(on_slot).any(|promise| *promise != mine && end_of(promise, sight).is_none());
            if others || sight.is_convicted(warden) || sight.gone(warden).is_some() {
                votes.against.push(*warden);
            } else if granted {
                votes.granted.push(*warden);
            } else {
                votes.missing.push(*warden);
            }
        }
        votes
    }
}

/// Whether the holder of `claim` may start now.
#[must_use]
pub fn may_start(claim: &SeenClaim, facts: &StartFacts<'_>, sight: &impl Sight) -> Start {
    let Some(made) = facts.made else { return Start::Withdraw(Withdraw::Restarted) };
    let elapsed_ms = made.elapsed_ms(&facts.now);
    if elapsed_ms > facts.start_within_ms {
        return Start::Withdraw(Withdraw::TooLate { elapsed_ms });
    }
    if facts.stopped {
        return Start::Withdraw(Withdraw::Stopped);
    }
    if sight.written_off(&claim.holder).is_some_and(|named| named >= claim.name) {
        return Start::Withdraw(Withdraw::WrittenOff);
    }
    let Some(wardens) = facts.wardens.filter(|wardens| !wardens.nodes.is_empty()) else {
        return Start::Withdraw(Withdraw::NoWardens);
    };
    let votes = Votes::count(claim, wardens, sight);
    let (have, need) = (votes.granted.len(), wardens.quorum);
    if have >= need && facts.synced.is_ok() {
        return Start::Yes;
    }
    if have < need && facts.roster_moved {
        return Start::Withdraw(Withdraw::RosterMoved);
    }
    if have + votes.missing.len() < need {
        return Start::Withdraw(Withdraw::LostVote);
    }
    if have < need && facts.older_generation {
        return Start::Withdraw(Withdraw::OlderGeneration);
    }
    Start::Wait { have, need, missing: votes.missing }
}

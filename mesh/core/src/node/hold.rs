//! Every "not yet", with its facts: what `explain` prints and what events carry.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::lease::handover::Waiting;
use crate::limits::STATUS_BYTES;
use crate::node_id::NodeId;
use crate::record::status::{HoldCode, HoldNotice};
use crate::text::{NodeName, Pool, Reason};
use crate::time::Timestamp;

/// Why a node does not move, with the facts that `explain` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// No valid fleet document.
    NoFleet,
    /// No valid certificate of this node.
    NoCertificate,
    /// The roster that the rollout names has not arrived.
    RosterMissing,
    /// The release that the rollout names has not arrived.
    ReleaseMissing,
    /// Two bodies of one identity: of a release, a generation, a roster version, a fleet version.
    Conflict(&'static str),
    /// Paused by its operators.
    Paused(String),
    /// Aborted by its operators.
    Aborted(String),
    /// Too many failures in a wave.
    Halted {
        /// The wave, from 0.
        wave: u32,
        /// Its failures.
        failures: u32,
        /// Its applicable members.
        applicable: u32,
    },
    /// A document has expired; which, and since when.
    Expired(&'static str, Timestamp),
    /// An earlier wave has not passed.
    WaveShut {
        /// This node's wave, from 0.
        mine: u32,
        /// The wave that has not passed.
        waits_for: u32,
        /// Its members that are not done, at most 5.
        who: Vec<NodeName>,
        /// How many are not done.
        open: u32,
        /// How many members it has.
        members: u32,
    },
    /// An earlier wave has given no evidence at all.
    NoEvidence {
        /// The wave.
        wave: u32,
    },
    /// Everybody of an earlier wave is done, and too few of it soaked.
    TooFewSoaked {
        /// The wave.
        wave: u32,
        /// How many soaked.
        soaked: u32,
        /// How many the rollout asks for.
        needed: u32,
    },
    /// No wave of the rollout takes this node in.
    NoWave,
    /// The wave's start time has not come.
    NotBefore(Timestamp),
    /// The wave waits for a signed advance.
    Approval {
        /// The wave.
        wave: u32,
    },
    /// A local block: window, inhibit file, disk.
    Local(HoldNotice),
    /// Downloading.
    Fetching,
    /// No peer can give the artifact now.
    NoSource,
    /// Has not synced with enough wardens since its start.
    Syncing {
        /// Synced so far.
        have: u32,
        /// Needed.
        need: u32,
    },
    /// Its store was set back; seconds of up time left.
    Amnesia {
        /// Seconds left.
        left_seconds: u64,
    },
    /// Leases are on their way to a newer roster. What the first free slot waits for; `None`: for its wardens to declare it.
    RosterChange(Option<Waiting>),
    /// Every slot of the pool is taken.
    SlotsTaken {
        /// The pool.
        pool: Pool,
        /// Who holds them, at most 5.
        holders: Vec<NodeName>,
        /// How many slots the pool has.
        slots: u32,
    },
    /// Waits for its turn.
    Queued {
        /// Nodes ahead of it.
        ahead: u32,
    },
    /// Has claimed; collects grants.
    Granting {
        /// Grants seen.
        have: u32,
        /// Grants needed.
        need: u32,
        /// Wardens that have not answered, at most 5.
        missing: Vec<NodeId>,
    },
    /// This node's own configuration asks for more signatures.
    LocalTrust(String),
    /// The rollout's first wave is larger than root allows.
    FirstWaveTooLarge {
        /// How many nodes it holds.
        holds: u32,
        /// How many it may.
        most: u32,
    },
    /// The upgrade takes too long for how soon the newest roster presumes a holder lost.
    OutlastsPresumedLoss(Pool),
    /// A newer release says that this one must not be started any more; why.
    Blocked(String),
    /// What runs here is a dead end: nobody upgrades past it but by a visit; why.
    DeadEnd(String),
    /// Backs off after a failure before activation.
    Retry {
        /// Seconds left.
        left_seconds: u64,
    },
    /// On trial beyond its time: what its check finds decides neither way. Why.
    Undecided(Reason),
    /// This node is convicted of equivocation; only a new identity helps.
    Convicted,
    /// The rollout asks for something that this version does not do.
    Unsupported(&'static str),
    /// The product is the agent itself, and no supervisor runs it.
    NoSupervisor,
    /// This node lives through outer doors, where only the agent upgrades itself.
    OuterDoor,
    /// What this node would have to say of its upgrade does not fit its record, and what it cannot say it does not do.
    StatusTooLarge {
        /// How large the record would be, in bytes.
        size_bytes: usize,
    },
}

impl Hold {
    /// Its code.
    #[must_use]
    pub fn code(&self) -> HoldCode {
        match self {
            Self::NoFleet => HoldCode::NoFleet,
            Self::NoCertificate => HoldCode::NoCertificate,
            Self::RosterMissing => HoldCode::RosterMissing,
            Self::ReleaseMissing => HoldCode::ReleaseMissing,
            Self::Conflict(_) => HoldCode::Conflict,
            Self::Paused(_) => HoldCode::Paused,
            Self::Aborted(_) => HoldCode::Aborted,
            Self::Halted { .. } => HoldCode::Halted,
            Self::Expired(..) => HoldCode::Expired,
            Self::WaveShut { .. } | Self::TooFewSoaked { .. } | Self::NoWave => HoldCode::WaveShut,
            Self::NoEvidence { .. } => HoldCode::NoEvidence,
            Self::NotBefore(_) => HoldCode::NotBefore,
            Self::Approval { .. } => HoldCode::Approval,
            Self::Local(notice) => notice.code,
            Self::Fetching => HoldCode::Fetching,
            Self::NoSource => HoldCode::NoSource,
            // Not a code of its own: records are read by builds that would not know it.
            Self::Syncing { .. } | Self::OuterDoor => HoldCode::Syncing,
            Self::Undecided(_) => HoldCode::Unhealthy,
            Self::Amnesia { .. } => HoldCode::Amnesia,
            Self::RosterChange(_) => HoldCode::RosterChange,
            Self::SlotsTaken { .. } => HoldCode::SlotsTaken,
            Self::Queued { .. } => HoldCode::Queued,
            Self::Granting { .. } => HoldCode::Granting,
            Self::LocalTrust(_) => HoldCode::LocalTrust,
            Self::FirstWaveTooLarge { .. } | Self::OutlastsPresumedLoss(_) => HoldCode::Limits,
            Self::Blocked(_) => HoldCode::Blocked,
            Self::DeadEnd(_) => HoldCode::DeadEnd,
            Self::Retry { .. } => HoldCode::Retry,
            Self::Convicted => HoldCode::Convicted,
            Self::Unsupported(_) => HoldCode::Unsupported,
            Self::NoSupervisor => HoldCode::NoSupervisor,
            Self::StatusTooLarge { .. } => HoldCode::StatusTooLarge,
        }
    }

    /// The short form that records carry. What changes from second to second in the queue for a slot is one code there,
    /// and collecting grants is none: a record is published when its hold changes, and others need to know no more.
    #[must_use]
    pub fn notice(&self) -> Option<HoldNotice> {
        let code = match self {
            Self::Granting { .. } => return None,
            Self::SlotsTaken { .. } | Self::Syncing { .. } => HoldCode::Queued,
            other => other.code(),
        };
        let until = match self {
            Self::NotBefore(until) => Some(*until),
            Self::Local(notice) => notice.until,
            _ => None,
        };
        Some(HoldNotice { code, until })
    }
}

/// Waves are counted from 1 for people, from 0 in documents.
fn nth(wave: u32) -> u32 {
    wave.saturating_add(1)
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFleet => write!(f, "no valid fleet document is known here"),
            Self::NoCertificate => write!(f, "this node has no valid certificate: admit it, or renew its certificate"),
            Self::RosterMissing => write!(f, "the rollout's roster has not arrived yet"),
            Self::ReleaseMissing => write!(f, "the rollout's release manifest has not arrived yet"),
            Self::Conflict(what) => write!(f, "two different bodies of one {what} are signed: sign a higher one to settle it"),
            Self::Paused(reason) if reason.is_empty() => write!(f, "the rollout is paused"),
            Self::Paused(reason) => write!(f, "the rollout is paused: {reason}"),
            Self::Aborted(reason) if reason.is_empty() => write!(f, "the rollout is aborted"),
            Self::Aborted(reason) => write!(f, "the rollout is aborted: {reason}"),
            Self::Halted { wave, failures, applicable } => {
                write!(f, "halted: {failures} of {applicable} in wave {} failed; forgive them or roll forward", nth(*wave))
            }
            Self::Expired(what, since) => write!(f, "the {what} expired at {since}: nothing starts under it"),
            Self::WaveShut { mine, waits_for, who, open, members } => {
                write!(f, "wave {} waits for wave {}: {open} of {members} not done", nth(*mine), nth(*waits_for))?;
                names(f, who.iter().map(ToString::to_string), *open)
            }
            Self::NoEvidence { wave } => write!(f, "wave {} has given no evidence yet", nth(*wave)),
            Self::TooFewSoaked { wave, soaked, needed } => {
                write!(f, "only {soaked} of wave {} soaked, {needed} needed: lower minSoakedPpm or roll forward", nth(*wave))
            }
            Self::NoWave => write!(f, "no wave of the rollout takes this node in"),
            Self::NotBefore(until) => write!(f, "the wave does not open before {until}"),
            Self::Approval { wave } => write!(f, "wave {} waits for a signed advance", nth(*wave)),
            Self::Local(HoldNotice { code, until: Some(until) }) => write!(f, "held on this node: {code}, until {until}"),
            Self::Local(HoldNotice { code, until: None }) => write!(f, "held on this node: {code}"),
            Self::Fetching => write!(f, "downloading the artifact"),
            Self::NoSource => write!(f, "no connected peer has the artifact yet"),
            Self::Syncing { have, need } => write!(f, "in touch with {have} of {need} other wardens since its start"),
            Self::Amnesia { left_seconds } => write!(f, "its store was set back: takes part in leases again in {left_seconds} s"),
            Self::RosterChange(None) => write!(f, "a newer roster waits for its wardens to declare it"),
            Self::RosterChange(Some(waiting)) => write!(f, "leases move to a newer roster: {waiting}"),
            Self::SlotsTaken { pool, holders, slots } => {
                write!(f, "all {slots} slots of pool {pool} are taken")?;
                names(f, holders.iter().map(ToString::to_string), *slots)
            }
            Self::Queued { ahead } => write!(f, "waits for its turn: {ahead} ahead of it"),
            Self::Granting { have, need, missing } => {
                write!(f, "has {have} of {need} grants")?;
                names(f, missing.iter().map(|node| node.short()), u32::try_from(missing.len()).unwrap_or(u32::MAX))
            }
            Self::LocalTrust(why) => write!(f, "this node's own configuration asks for more: {why}"),
            Self::FirstWaveTooLarge { holds, most } => {
                write!(
                    f,
                    "the first wave holds {holds} nodes, the fleet document allows {most}: sign a rollout with a smaller one"
                )
            }
            Self::OutlastsPresumedLoss(pool) => write!(
                f,
                "start, upgrade and revert take more than half of the time after which pool {pool} presumes a holder lost: \
                 cut a roster with a longer presumeLostAfter"
            ),
            Self::Blocked(why) => write!(f, "a newer release blocks this one: {why}"),
            Self::DeadEnd(why) => write!(f, "the version that runs here is a dead end: {why}"),
            Self::Retry { left_seconds } => write!(f, "tries again in {left_seconds} s"),
            Self::Undecided(why) => {
                write!(f, "its time is over and its health is not decided, so it waits on in its trial: {why}")
            }
            Self::Convicted => {
                write!(f, "this identity signed two different records under one number: give the node a new identity")
            }
            Self::NoSupervisor => write!(f, "this agent is not run by `swell supervise`, which alone can replace it"),
            Self::Unsupported(what) => write!(f, "this version does not know {what}"),
            Self::OuterDoor => {
                write!(f, "this node reaches members only through their outer doors, where it upgrades nothing but its own agent")
            }
            Self::StatusTooLarge { size_bytes } => {
                write!(
                    f,
                    "its record would have {size_bytes} bytes, at most {STATUS_BYTES} are allowed: configure fewer products"
                )
            }
        }
    }
}

fn names(f: &mut fmt::Formatter<'_>, names: impl Iterator<Item = String>, all: u32) -> fmt::Result {
    let names: Vec<String> = names.take(5).collect();
    if names.is_empty() {
        return Ok(());
    }
    write!(f, " ({}", names.join(", "))?;
    let shown = u32::try_from(names.len()).unwrap_or(u32::MAX);
    if all > shown {
        write!(f, " and {} more", all - shown)?;
    }
    write!(f, ")")
}

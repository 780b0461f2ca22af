//! Whether a rollout applies to a node, and why not (design, sections 4 and 6).
//!
//! A node decides it for itself from its own facts, and says `skipped`; an observer reads that.
//! A skip may end: a version lock is lifted, a barrier is passed (case D44).

use alloc::string::String;

use crate::documents::release::Release;
use crate::documents::rollout::Rollout;
use crate::number::Sequence;
use crate::record::status::Running;
use crate::text::{Platform, Version};

/// Why a rollout does not apply to a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Skip {
    /// Its configuration does not have the product (case D46).
    #[error("the product is not configured on this node")]
    NotConfigured,
    /// Something else delivers the product here.
    #[error("this node only observes the product: something else delivers it")]
    ObserveOnly,
    /// The release has no bare binary for its platform.
    #[error("the release has no artifact for platform {0}")]
    NoArtifact(Platform),
    /// Its operator locked the version.
    #[error("the version is locked to {0} on this node")]
    VersionLock(String),
    /// It has confirmed something newer.
    #[error("sequence {release} lies below the floor {floor} of this node")]
    Floor {
        /// The node's floor.
        floor: Sequence,
        /// The release's sequence.
        release: Sequence,
    },
    /// What runs is too old to upgrade directly.
    #[error("an upgrade needs at least sequence {lowest} to run: upgrade to that first")]
    Barrier {
        /// The lowest sequence that may upgrade directly.
        lowest: Sequence,
    },
    /// The rollout moves only nodes that run another version.
    #[error("the rollout moves only nodes that run {0}")]
    From(Version),
    /// Its certificate says that it is retired.
    #[error("the node is retired")]
    Retired,
    /// The fleet document revokes it.
    #[error("the node is revoked")]
    Revoked,
    /// A newer roster removed it.
    #[error("the node was removed from the fleet")]
    Removed,
    /// The node says `skipped` in its record, with reasons of its own.
    #[error("the node says that the rollout does not apply to it")]
    Said,
}

/// What a node knows of itself when a rollout counts for it.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Whether the product is configured here.
    pub configured: bool,
    /// Whether something else delivers it.
    pub observe_only: bool,
    /// The version that the operator locked, if any.
    pub version_lock: Option<&'a str>,
    /// This node's platform.
    pub platform: &'a Platform,
    /// What runs.
    pub running: Option<&'a Running>,
    /// The floor.
    pub floor: Sequence,
}

/// What a rollout asks of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applies {
    /// Upgrade when the gate opens.
    Upgrade,
    /// It is on the version already: it vouches without a claim.
    AlreadyThere,
    /// Nothing, for now.
    Skip(Skip),
}

/// Whether `rollout` to `release` applies to a node with these `facts`.
#[must_use]
pub fn applies(rollout: &Rollout, release: &Release, facts: &Facts<'_>) -> Applies {
    if !facts.configured {
        return Applies::Skip(Skip::NotConfigured);
    }
    if facts.observe_only {
        return Applies::Skip(Skip::ObserveOnly);
    }
    if facts.running.is_some_and(|running| running.release == rollout.release.digest) {
        return Applies::AlreadyThere;
    }
    if release.binary(facts.platform).is_none() {
        return Applies::Skip(Skip::NoArtifact(facts.platform.clone()));
    }
    if let Some(lock) = facts.version_lock
        && lock != rollout.release.version.as_str()
    {
        return Applies::Skip(Skip::VersionLock(lock.into()));
    }
    if facts.floor > rollout.release.sequence {
        return Applies::Skip(Skip::Floor { floor: facts.floor, release: rollout.release.sequence });
    }
    if let (Some(lowest), Some(running)) = (release.upgrade_from, facts.running)
        && running.sequence < lowest
    {
        return Applies::Skip(Skip::Barrier { lowest });
    }
    if let Some(from) = &rollout.from
        && facts.running.is_none_or(|running| running.version != *from)
    {
        return Applies::Skip(Skip::From(from.clone()));
    }
    Applies::Upgrade
}

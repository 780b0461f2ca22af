//! What documents alone say about starting an upgrade here: the half of the gate that needs no record and no other node.
//!
//! [`documents_allow`] is asked by the node itself, before it looks at what others have done; [`warrant`] is all of it for
//! who keeps nothing but documents: the helper beside an unprivileged agent. Evidence, leases, windows and health are not
//! judged here. Nothing here verifies a signature: the shelf holds only what was verified.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::effect::Install;
use super::hold::Hold;
use crate::digest::Digest;
use crate::documents::certificate::Certificate;
use crate::documents::rejection::Rejection;
use crate::documents::release::Release;
use crate::documents::rollout::{Mode, Rollout, State};
use crate::node_id::NodeId;
use crate::number::Sequence;
use crate::record::ClaimName;
use crate::record::status::Running;
use crate::rollout::applies::{Applies, Facts, Skip, applies};
use crate::rollout::counts::{Candidate, Counting, which};
use crate::text::{Platform, Product, RolloutId};
use crate::time::Timestamp;
use crate::trust::shelf::{RolloutInForce, Shelf};

/// Who asks for a warrant, and what is true on that machine.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// The node.
    pub node: &'a NodeId,
    /// The product.
    pub product: &'a Product,
    /// Body digest of the release that is to be installed.
    pub release: &'a Digest,
    /// The machine's platform.
    pub platform: &'a Platform,
    /// The version that the machine's operator locked, if any.
    pub version_lock: Option<&'a str>,
    /// What runs.
    pub running: Option<&'a Running>,
    /// The machine's floor.
    pub floor: Sequence,
    /// The machine's wall clock.
    pub wall: Timestamp,
}

/// What documents allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warrant {
    /// What to install.
    pub install: Install,
    /// Under which rollout.
    pub rollout: RolloutId,
    /// The generation lets this node try again what failed here under this claim, or an earlier one; `Some(None)`: only
    /// what failed before any claim.
    pub retry: Option<Option<ClaimName>>,
}

impl Warrant {
    /// Whether what failed here under `claim` (`None`: before any, or it is not known) may be tried again.
    #[must_use]
    pub fn forgives(&self, claim: Option<ClaimName>) -> bool {
        self.retry.is_some_and(|upto| claim <= upto)
    }

    /// Whether a further try under `claim` is a new one: later than all that is forgiven. Otherwise its failure would be
    /// forgiven before it happened.
    #[must_use]
    pub fn is_after_forgiveness(&self, claim: ClaimName) -> bool {
        self.retry.is_none_or(|upto| Some(claim) > upto)
    }
}

/// Why documents do not allow it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwarranted {
    /// No fleet document.
    #[error("no fleet document is known here")]
    NoFleet,
    /// A fleet document that was in force here is not here any more.
    #[error(
        "version {version} of the fleet document, {digest}, was in force here and is lost: show it again, and what leads to it"
    )]
    FleetLost {
        /// Its version.
        version: u64,
        /// Its body digest.
        digest: Digest,
    },
    /// The node is no member, or none any more.
    #[error("{0}")]
    NotAMember(Rejection),
    /// The newest roster says that it left.
    #[error("the newest roster says that this node was removed")]
    Removed,
    /// The fleet's own raise for certificates is not met.
    #[error("this node's certificate: {0}")]
    Certificate(Rejection),
    /// A rollout names a roster that is not here.
    #[error("the roster {0} that the rollout names is not here")]
    RosterMissing(Digest),
    /// A roster names a certificate of this node that is not here.
    #[error("the certificate {0} of this node that the roster names is not here")]
    CertificateMissing(Digest),
    /// No rollout of the product in force has the node in its scope.
    #[error("no rollout of {0} that is in force has this node in its scope")]
    NoRollout(Product),
    /// A newer rollout took over.
    #[error("the rollout {0} is over: {1} took over")]
    Over(RolloutId, RolloutId),
    /// Two live rollouts of one sequence overlap.
    #[error("the rollouts {0} and {1} are of one sequence and overlap: both count as paused")]
    Rivals(RolloutId, RolloutId),
    /// What counts moves the node to another release.
    #[error("the rollout {rollout} that counts here moves to release {counts}, not to {asked}")]
    OtherRelease {
        /// What counts.
        rollout: RolloutId,
        /// Its release.
        counts: Digest,
        /// What was asked for.
        asked: Digest,
    },
    /// It asks for something that this version does not carry out.
    #[error("the rollout asks for what this version does not carry out: {0}")]
    Unsupported(&'static str),
    /// The rollout does not apply to the node.
    #[error("{0}")]
    Skip(Skip),
    /// The release runs here already.
    #[error("this release runs here already")]
    AlreadyThere,
    /// It applies, and nothing may start.
    #[error("{}", .0.to_string())]
    Held(Hold),
}

/// Whether documents alone let a node start under `in_force`, which applies to it; most telling reason first.
/// `running`: what runs there. `conflict`: another live rollout of the same sequence overlaps its scope.
///
/// # Errors
/// Why not.
pub fn documents_allow(
    shelf: &Shelf,
    in_force: &RolloutInForce,
    running: Option<&Running>,
    conflict: bool,
    wall: Timestamp,
) -> Result<(), Hold> {
    let rollout = &in_force.rollout;
    match in_force.state() {
        State::Aborted => return Err(Hold::Aborted(rollout.reason.to_string())),
        State::Paused if in_force.conflicted => return Err(Hold::Conflict("rollout generation")),
        State::Paused => return Err(Hold::Paused(rollout.reason.to_string())),
        State::Running if conflict => return Err(Hold::Conflict("release sequence by two rollouts")),
        State::Running => {}
    }
    if shelf.fleet_conflicted() {
        return Err(Hold::Conflict("fleet version"));
    }
    let time = shelf.time(wall);
    let fleet = shelf.fleet().map(|fleet| fleet.expires_at);
    let release = shelf.release(&rollout.release.digest);
    let ends = [("fleet document", fleet), ("rollout", Some(rollout.expires_at)), ("release", release.map(|it| it.expires_at))];
    for (what, end) in ends {
        if let Some(end) = end.filter(|end| *end <= time) {
            return Err(Hold::Expired(what, end));
        }
    }
    if release.is_none() {
        return Err(Hold::ReleaseMissing);
    }
    if let Some(hold) = forbidden(shelf, rollout, running) {
        return Err(hold);
    }
    if shelf.release_conflicted(&rollout.release.digest) {
        return Err(Hold::Conflict("release"));
    }
    for digest in [&in_force.digest, &rollout.release.digest] {
        if let Err(rejection) = shelf.locally_trusted(digest) {
            return Err(Hold::LocalTrust(rejection.to_string()));
        }
    }
    Ok(())
}

/// What other releases say of this upgrade: a newer one blocks its target, or what runs is a dead end (capability B16).
fn forbidden(shelf: &Shelf, rollout: &Rollout, running: Option<&Running>) -> Option<Hold> {
    let product = |release: &&Release| release.product == rollout.release.product;
    let mut blocks = shelf.releases().map(|(_, release)| release).filter(product).flat_map(|release| &release.blocks);
    if let Some(block) = blocks.find(|block| block.digest == rollout.release.digest) {
        return Some(Hold::Blocked(block.reason.to_string()));
    }
    let runs = running.and_then(|running| shelf.release(&running.release));
    runs.and_then(|release| release.dead_end.as_ref()).map(|why| Hold::DeadEnd(why.to_string()))
}

/// What a rollout may ask for that this version does not carry out yet: held, never half done.
#[must_use]
pub fn unsupported(rollout: &Rollout) -> Option<&'static str> {
    if rollout.mode == Mode::Rehearse {
        Some("rehearsals")
    } else if !rollout.windows.is_empty() {
        Some("maintenance windows in rollouts")
    } else if rollout.promotion.is_some() {
        Some("promotion between environments")
    } else {
        None
    }
}

/// What to install of a release on a machine of `platform`; `None` where it has no bare binary for that.
#[must_use]
pub fn install(rollout: &Rollout, release: &Release, platform: &Platform) -> Option<Install> {
    let artifact = release.binary(platform)?.clone();
    let digest = rollout.release.digest;
    Some(Install { release: digest, version: release.version.clone(), sequence: release.sequence, artifact })
}

/// Whether documents warrant that this very release is installed on this very node now.
///
/// A rollout that is in force must have the node in its scope, by the certificate that its roster names, or by the newest
/// one where the roster does not list the node. Whether waves have passed is evidence, of which documents say nothing:
/// here all of them are taken to have.
///
/// # Errors
/// Why not.
pub fn warrant(shelf: &Shelf, asking: &Asking<'_>) -> Result<Warrant, Unwarranted> {
    if shelf.fleet().is_none() {
        return Err(Unwarranted::NoFleet);
    }
    let certificate = shelf.member(asking.node, asking.wall).map_err(Unwarranted::NotAMember)?;
    if shelf.is_removed(asking.node) {
        return Err(Unwarranted::Removed);
    }
    let newest = shelf.certificates().find(|(_, newest)| newest.node == *asking.node);
    if let Some((digest, _)) = newest {
        shelf.locally_trusted(&digest).map_err(Unwarranted::Certificate)?;
    }
    let release = shelf.release(asking.release).ok_or(Unwarranted::Held(Hold::ReleaseMissing))?;
    let candidates = candidates(shelf, asking, release.sequence)?;
    let rollout = match which(asking.product, certificate, &candidates) {
        Counting::None => return Err(Unwarranted::NoRollout(asking.product.clone())),
        Counting::Over { rollout, by } => return Err(Unwarranted::Over(rollout.id.clone(), by.id.clone())),
        Counting::Conflict(one, other) => return Err(Unwarranted::Rivals(one.clone(), other.clone())),
        Counting::Listed(rollout) | Counting::Late(rollout) => rollout,
    };
    let counts = rollout.release.digest;
    if counts != *asking.release {
        return Err(Unwarranted::OtherRelease { rollout: rollout.id.clone(), counts, asked: *asking.release });
    }
    if let Some(what) = unsupported(rollout) {
        return Err(Unwarranted::Unsupported(what));
    }
    let Some(in_force) = shelf.rollout(&rollout.id) else { return Err(Unwarranted::NoRollout(asking.product.clone())) };
    documents_allow(shelf, in_force, asking.running, false, asking.wall).map_err(Unwarranted::Held)?;
    let facts = Facts {
        configured: true,
        observe_only: false,
        version_lock: asking.version_lock,
        platform: asking.platform,
        running: asking.running,
        floor: asking.floor,
    };
    match applies(rollout, release, &facts) {
        Applies::Skip(skip) => return Err(Unwarranted::Skip(skip)),
        Applies::AlreadyThere => return Err(Unwarranted::AlreadyThere),
        Applies::Upgrade => {}
    }
    let no_artifact = || Unwarranted::Skip(Skip::NoArtifact(asking.platform.clone()));
    let install = install(rollout, release, asking.platform).ok_or_else(no_artifact)?;
    let retry = lets_retry(rollout, asking.node);
    Ok(Warrant { install, rollout: rollout.id.clone(), retry })
}

/// Up to which claim a generation lets `node` try again what failed there: the latest that an entry with `retry` names.
#[must_use]
pub fn lets_retry(rollout: &Rollout, node: &NodeId) -> Option<Option<ClaimName>> {
    rollout.forgiven.iter().filter(|entry| entry.node == *node && entry.retry).map(|entry| entry.claim).max()
}

/// The rollouts of the product from `least` on, each with this node's certificate by its roster. What is older takes
/// nothing over from what is asked for.
fn candidates<'a>(shelf: &'a Shelf, asking: &Asking<'_>, least: Sequence) -> Result<Vec<Candidate<'a>>, Unwarranted> {
    let of_product = |rollout: &Rollout| rollout.release.product == *asking.product && rollout.release.sequence >= least;
    let mine = shelf.rollouts().filter(|in_force| of_product(&in_force.rollout));
    mine.map(|in_force| {
        let rollout = &in_force.rollout;
        let listed = listed(shelf, asking.node, rollout)?;
        Ok(Candidate { rollout, listed, complete: true })
    })
    .collect()
}

/// The node's certificate by the rollout's roster.
fn listed<'a>(shelf: &'a Shelf, node: &NodeId, rollout: &Rollout) -> Result<Option<&'a Certificate>, Unwarranted> {
    let digest = rollout.roster.digest;
    let roster = shelf.roster(&digest).ok_or(Unwarranted::RosterMissing(digest))?;
    let Some(listed) = roster.listed(node) else { return Ok(None) };
    let certificate = shelf.certificate_by_digest(&listed.certificate);
    certificate.map(Some).ok_or(Unwarranted::CertificateMissing(listed.certificate))
}

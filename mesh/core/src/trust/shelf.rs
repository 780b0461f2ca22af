//! The documents in force. Skeleton: bodies follow.
#![allow(unused_variables, clippy::todo, missing_docs)]

use alloc::vec::Vec;

use super::local::LocalTrust;
use crate::crypto::Crypto;
use crate::digest::Digest;
use crate::documents::Kind;
use crate::documents::certificate::Certificate;
use crate::documents::fleet::Fleet;
use crate::documents::rejection::Rejection;
use crate::documents::release::Release;
use crate::documents::rollout::{Rollout, RosterRef, State};
use crate::documents::roster::{Listed, Roster};
use crate::node_id::NodeId;
use crate::text::RolloutId;
use crate::time::Timestamp;

/// The documents in force.
#[derive(Clone, Debug)]
pub struct Shelf {}

/// What became of an offered document that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Its kind.
    pub kind: Kind,
    /// Its body digest.
    pub digest: Digest,
    /// It was not here before.
    pub fresh: bool,
    /// It was here, and signatures were added to it.
    pub changed: bool,
    /// What is stored and passed on: stripped of signatures that were not verified.
    pub envelope: Vec<u8>,
    /// Documents that left the shelf because of it: remove them from the store.
    pub dropped: Vec<Digest>,
    /// It and another body share their identity fields.
    pub conflict: Option<[Digest; 2]>,
}

/// A rollout as it stands: its highest valid generation.
#[derive(Clone, Debug)]
pub struct RolloutInForce {
    /// The highest valid generation; of a conflicting pair the one with the lower digest.
    pub rollout: Rollout,
    /// Its body digest.
    pub digest: Digest,
    /// Two bodies of that generation are known.
    pub conflicted: bool,
    /// The other body of a conflicting pair.
    pub rival: Option<(Digest, Rollout)>,
}

impl RolloutInForce {
    /// What it tells its nodes: a conflicting pair is paused; two aborts are an abort.
    pub fn state(&self) -> State {
        todo!()
    }
}

impl Shelf {
    /// An empty shelf of the fleet `fleet_id`, which came out of band.
    pub fn new(fleet_id: Digest, local: LocalTrust) -> Self {
        todo!()
    }
    /// The fleet's id.
    pub fn fleet_id(&self) -> Digest {
        todo!()
    }
    /// Takes a document's published form from anywhere. Rosters go to `offer_roster`.
    pub fn offer(
        &mut self,
        bytes: &[u8],
        source_is_store: bool,
        wall: Timestamp,
        crypto: &dyn Crypto,
    ) -> Result<Offered, Rejection> {
        todo!()
    }
    /// Takes a roster's published form.
    pub fn offer_roster(&mut self, bytes: &[u8], crypto: &dyn Crypto) -> Result<Offered, Rejection> {
        todo!()
    }
    /// Everything from the store at start, in any order (rosters included): verified again, not time-rejected.
    /// Returns what was refused. Afterwards set the kept floor time by `restore_floor_time`.
    pub fn restore(&mut self, envelopes: Vec<Vec<u8>>, crypto: &dyn Crypto) -> Vec<(Vec<u8>, Rejection)> {
        todo!()
    }
    /// Sets the floor time kept on disk.
    pub fn restore_floor_time(&mut self, floor: Timestamp) {
        todo!()
    }
    /// The published form of a document here (rosters included).
    pub fn envelope(&self, digest: &Digest) -> Option<&[u8]> {
        todo!()
    }
    /// Everything that sync carries, in order of digests; rosters are fetched instead.
    pub fn inventory(&self) -> impl Iterator<Item = (Digest, Kind)> + '_ {
        todo!();
        #[expect(unreachable_code, reason = "skeleton")]
        core::iter::empty()
    }
    /// The fleet document in force: the newest without a rival.
    pub fn fleet(&self) -> Option<&Fleet> {
        todo!()
    }
    /// Two bodies of the newest fleet version are known: nothing starts.
    pub fn fleet_conflicted(&self) -> bool {
        todo!()
    }
    /// A node's certificate of the highest serial; `None` when two bodies share that serial.
    pub fn certificate(&self, node: &NodeId) -> Option<&Certificate> {
        todo!()
    }
    /// A certificate by its body digest, in force or not.
    pub fn certificate_by_digest(&self, digest: &Digest) -> Option<&Certificate> {
        todo!()
    }
    /// A node's certificate if it counts now: not retired, revoked, expired, in conflict.
    pub fn member(&self, node: &NodeId, wall: Timestamp) -> Result<&Certificate, Rejection> {
        todo!()
    }
    /// The certificate of the highest serial of each node, with its digest, in order of node ids.
    pub fn certificates(&self) -> impl Iterator<Item = (Digest, &Certificate)> + '_ {
        todo!();
        #[expect(unreachable_code, reason = "skeleton")]
        core::iter::empty()
    }
    /// A release by its body digest.
    pub fn release(&self, digest: &Digest) -> Option<&Release> {
        todo!()
    }
    /// All releases, in order of digests.
    pub fn releases(&self) -> impl Iterator<Item = (Digest, &Release)> + '_ {
        todo!();
        #[expect(unreachable_code, reason = "skeleton")]
        core::iter::empty()
    }
    /// Another body with its (product, version) or (product, sequence) is known: it is not started.
    pub fn release_conflicted(&self, digest: &Digest) -> bool {
        todo!()
    }
    /// A roster by its body digest.
    pub fn roster(&self, digest: &Digest) -> Option<&Roster> {
        todo!()
    }
    /// The listed nodes with their certificates, in order of ids; `None` until the roster and every certificate are here.
    pub fn roster_members(&self, digest: &Digest) -> Option<Vec<(&Listed, &Certificate)>> {
        todo!()
    }
    /// All rosters here, by version.
    pub fn rosters(&self) -> impl Iterator<Item = (Digest, &Roster)> + '_ {
        todo!();
        #[expect(unreachable_code, reason = "skeleton")]
        core::iter::empty()
    }
    /// Another body of this roster's version is known and no later version settles it: it is not newly declared.
    pub fn roster_conflicted(&self, digest: &Digest) -> bool {
        todo!()
    }
    /// All rollouts as they stand, by id.
    pub fn rollouts(&self) -> impl Iterator<Item = &RolloutInForce> + '_ {
        todo!();
        #[expect(unreachable_code, reason = "skeleton")]
        core::iter::empty()
    }
    /// One rollout as it stands.
    pub fn rollout(&self, id: &RolloutId) -> Option<&RolloutInForce> {
        todo!()
    }
    /// A generation here by its body digest.
    pub fn rollout_by_digest(&self, digest: &Digest) -> Option<&Rollout> {
        todo!()
    }
    /// Rosters that a document in force names and that are not here.
    pub fn wanted_rosters(&self) -> Vec<RosterRef> {
        todo!()
    }
    /// The newest `issuedAt` verified (a new fleet version sets it anew). Keep it on disk.
    pub fn floor_time(&self) -> Timestamp {
        todo!()
    }
    /// The time that expiry is judged by: the later of the wall clock and the floor time.
    pub fn time(&self, wall: Timestamp) -> Timestamp {
        todo!()
    }
    /// Whether the release or rollout satisfies this node's own raised thresholds: asked before *this* node starts,
    /// never before it grants or passes on.
    pub fn locally_trusted(&self, digest: &Digest) -> Result<(), Rejection> {
        todo!()
    }
}

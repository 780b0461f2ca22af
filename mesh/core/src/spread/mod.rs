//! How records and documents reach everybody: push to neighbours, announcements, and sync, without any IO.
//!
//! [`push`] sends new records on (Plumtree: a tree of eager links, the others only announce), [`sync`] compares what two
//! peers have and moves the difference, [`frame`] is what they say to each other, [`neighbours`] whom to connect to.
//! Push is a hint, sync is the truth (design, section 5): every loss here is repaired by the next sync.
//! Nothing here verifies signatures or membership: that is for the caller, before it merges and calls [`Spread::note_new`].

pub mod frame;
pub mod neighbours;
pub mod push;
pub mod sync;

use alloc::vec::Vec;

pub use frame::FrameError;

use crate::digest::Digest;
use crate::node_id::NodeId;
use crate::record::RecordKey;
use crate::record::ledger::Ledger;
use crate::time::Time;

/// The documents that sync carries, as the trust room keeps them.
pub trait Documents {
    /// Everything that peers should have, with a fingerprint of its verified signatures, in the order in which a
    /// stranger can accept it: fleet documents first, then certificates, then what they sign for.
    fn inventory(&self) -> Vec<(Digest, u64)>;
    /// The published form of one of them.
    fn envelope(&self, digest: &Digest) -> Option<&[u8]>;
}

/// What a frame brought, in the order in which to take it in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A document's envelope. Not verified.
    Document(Vec<u8>),
    /// Two records that are said to stand under one stamp. Not verified; for [`Ledger::convict`].
    Proof(Vec<u8>, Vec<u8>),
    /// A record that is newer than the one here, or contradicts it. Not verified; for [`Ledger::merge`].
    Record(Vec<u8>),
    /// Everything that this peer had when the session began has been handed over before this, and the other way round.
    Synced(NodeId),
}

/// The dissemination of one node. Feed it with links, frames and time; send what it leaves in [`Spread::take_frames`].
#[derive(Debug)]
pub struct Spread {}

impl Spread {
    /// `seed` seeds all of its randomness.
    #[must_use]
    pub fn new(me: NodeId, seed: [u8; 32]) -> Self {
        let _ = (me, seed);
        todo!()
    }

    /// A link to an admitted member is up. At most [`crate::limits::PEERS`]; the driver refuses more.
    pub fn peer_up(&mut self, now: Time, peer: NodeId) {
        let _ = (now, peer);
        todo!()
    }

    /// The link is gone; its queue and sessions go with it.
    pub fn peer_down(&mut self, now: Time, peer: &NodeId) {
        let _ = (now, peer);
        todo!()
    }

    /// The ledger's entry under `key` changed: by this node itself (`from` is `None`), or heard from a peer, verified and
    /// merged. It goes to the neighbours in the next batch. Call it after every [`Ledger::merge`] that said `New` or `Convicted`.
    pub fn note_new(&mut self, now: Time, key: RecordKey, from: Option<NodeId>) {
        let _ = (now, key, from);
        todo!()
    }

    /// Sends the entry under `key` to these connected peers at the next wake-up, whatever the links are and whatever the
    /// limits: holders and wardens of a slot tell each other directly (design, section 5).
    pub fn push_to(&mut self, now: Time, key: RecordKey, peers: &[NodeId]) {
        let _ = (now, key, peers);
        todo!()
    }

    /// Starts a sync with a connected peer as soon as no other runs, e.g. with a warden.
    pub fn sync_with(&mut self, now: Time, peer: &NodeId) {
        let _ = (now, peer);
        todo!()
    }

    /// Takes one frame from a connected peer. Answers to it are in [`Spread::take_frames`] afterwards.
    ///
    /// # Errors
    /// When it is no frame or breaks the protocol. Links and queues are as before, then.
    pub fn handle(
        &mut self,
        now: Time,
        peer: NodeId,
        frame: &[u8],
        ledger: &Ledger,
        documents: &dyn Documents,
    ) -> Result<Vec<Heard>, FrameError> {
        let _ = (now, peer, frame, ledger, documents);
        todo!()
    }

    /// Does what is due.
    pub fn wake(&mut self, now: Time, ledger: &Ledger, documents: &dyn Documents) {
        let _ = (now, ledger, documents);
        todo!()
    }

    /// Frames to send, in order, since the last call.
    pub fn take_frames(&mut self) -> Vec<(NodeId, Vec<u8>)> {
        todo!()
    }

    /// When [`Spread::wake`] has something to do next.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Time> {
        todo!()
    }
}

//! How records and documents reach everybody: push to neighbours, announcements, and sync, without any IO.
//!
//! [`push`] sends new records on (Plumtree: a tree of eager links, the others only announce), [`sync`] compares what two
//! peers have and moves the difference, [`frame`] is what they say to each other, [`neighbours`] whom to connect to.
//! Push is a hint, sync is the truth (design, section 5): every loss here is repaired by the next sync.
//! Nothing here verifies signatures or membership: that is for the caller, before it merges and calls [`Spread::note_new`].

pub mod frame;
mod inventory;
pub mod neighbours;
mod origin;
pub(crate) mod packed;
mod push;
mod sync;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

pub use frame::FrameError;
use frame::{Frame, Items};
use inventory::Inventory;
pub use inventory::Paper;
use push::{Outbox, Push, Sifted, pick, sift};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use sync::{Session, Turn};

use crate::digest::Digest;
use crate::node_id::NodeId;
use crate::record::RecordKey;
use crate::record::ledger::Ledger;
use crate::record::signed::SignedRecord;
use crate::record::sync_set::SyncSet;
use crate::time::Time;

/// A node syncs with a random neighbour this often, more or less a fifth …
pub const SYNC_EVERY_MS: u64 = 60_000;
/// … but not while news came within this time: what is on its way would be moved twice …
const SYNC_QUIET_MS: u64 = 3_000;
/// … and at the latest so long after that.
const SYNC_LATEST_MS: u64 = 240_000;
/// A lean node, which pays for its bytes, does so this often, and nobody but another lean one begins it with one (design, section 5).
pub const LEAN_SYNC_EVERY_MS: u64 = 900_000;
/// A session in which nothing came for this long is given up: the time a full frame takes on a very slow link.
const SYNC_PATIENCE_MS: u64 = 30_000;
/// A session in which nothing came for this long does not keep the next one waiting.
const SYNC_STALLED_MS: u64 = 2_000;
/// Most sessions that a node has begun and that run at once. Normally one: two would bring the same things twice.
const SYNC_BEGUN: usize = 4;
/// After a connect the lower id begins. The higher one does when nothing has come of it after this long.
const SYNC_SECOND_MS: u64 = 2_000;
/// After a session that was given up.
const SYNC_AGAIN_MS: u64 = 5_000;
/// Gossip may not go over a link that is younger than this: both sides must have joined its topic and let each other in …
const YOUNG_MS: u64 = 10_000;
/// … so what came meanwhile, or by gossip in the wrong order, goes over that link by a sync of its own, so long after it.
const SYNC_MISSED_MS: u64 = 3_000;

/// The documents that sync carries, as the trust room keeps them.
pub trait Documents {
    /// Everything that peers should have, each under [`Paper::sync_id`].
    fn inventory(&self) -> &SyncSet<Paper>;
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

/// How many records and proofs a node has received since it started, for metrics: `records` per new one is the copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// In all, by push and by sync.
    pub records: u64,
    /// Of these, how many were here already.
    pub duplicates: u64,
}

/// The dissemination of one node. Feed it with links, frames and time; send what it leaves in [`Spread::take_frames`].
#[derive(Debug)]
pub struct Spread {
    me: NodeId,
    rng: ChaCha8Rng,
    push: Push,
    out: Outbox,
    /// Sessions that this node began, one per peer.
    begun: BTreeMap<NodeId, Session>,
    /// Sessions that peers began, one per peer.
    accepted: BTreeMap<NodeId, Session>,
    /// With whom to begin a session, and from when on.
    due: BTreeMap<NodeId, Time>,
    /// Links that gossip may not go over yet, and until when.
    young: BTreeMap<NodeId, Time>,
    /// With whom to sync, beside the first and the periodic ones, because gossip may have brought too little.
    missed: BTreeMap<NodeId, Time>,
    /// It pays for its bytes.
    lean: bool,
    periodic_at: Option<Time>,
    periodic_latest: Time,
    /// When a new entry came last.
    news_at: Option<Time>,
    /// Keys that the last frame brought by the side of the tree: passed on as announcements only.
    quiet: BTreeSet<RecordKey>,
    received: Received,
}

impl Received {
    fn add(&mut self, sifted: &Sifted) {
        self.records += sifted.records;
        self.duplicates += sifted.known.len() as u64;
    }
}

impl Spread {
    /// `seed` seeds all of its randomness.
    #[must_use]
    pub fn new(me: NodeId, seed: [u8; 32]) -> Self {
        Self {
            me,
            rng: ChaCha8Rng::from_seed(seed),
            push: Push::default(),
            out: Outbox::new(),
            begun: BTreeMap::new(),
            accepted: BTreeMap::new(),
            due: BTreeMap::new(),
            young: BTreeMap::new(),
            missed: BTreeMap::new(),
            lean: false,
            periodic_at: None,
            periodic_latest: Time(0),
            news_at: None,
            quiet: BTreeSet::new(),
            received: Received::default(),
        }
    }

    /// The same for a lean node.
    #[must_use]
    pub fn lean(me: NodeId, seed: [u8; 32]) -> Self {
        Self { lean: true, ..Self::new(me, seed) }
    }

    /// A link to an admitted member is up. At most [`crate::limits::PEERS`]; the driver refuses more.
    pub fn peer_up(&mut self, now: Time, peer: NodeId) {
        self.forget_sessions(&peer);
        self.push.peer_up(peer);
        let wait_ms = if self.me < peer { 0 } else { SYNC_SECOND_MS + self.rng.next_u64() % SYNC_SECOND_MS };
        self.due.insert(peer, now.after_ms(wait_ms));
        self.young.insert(peer, now.after_ms(YOUNG_MS));
        if self.periodic_at.is_none() {
            self.schedule_periodic(now);
        }
    }

    /// The link to this peer is only for what two nodes tell each other directly (a holder and its wardens): what goes to
    /// everybody goes by other links, if there is one.
    pub fn keep_lazy(&mut self, peer: &NodeId) {
        self.push.keep_lazy(*peer, &mut self.out);
    }

    /// The link is gone; its queue and sessions go with it.
    pub fn peer_down(&mut self, peer: &NodeId) {
        self.push.peer_down(peer, &mut self.rng, &mut self.out);
        self.forget_sessions(peer);
        self.out.retain(|(to, _)| to != peer);
    }

    fn forget_sessions(&mut self, peer: &NodeId) {
        self.begun.remove(peer);
        self.accepted.remove(peer);
        self.due.remove(peer);
        self.young.remove(peer);
        self.missed.remove(peer);
    }

    /// The ledger's entry under `key` changed: by this node itself (`from` is `None`), or heard from a peer, verified and
    /// merged. It goes to the neighbours in the next batch. Call it after every [`Ledger::merge`] that said `New` or
    /// `Convicted`, before the next frame is handled.
    pub fn note_new(&mut self, now: Time, key: RecordKey, from: Option<NodeId>) {
        let quietly = from.is_some() && self.quiet.remove(&key);
        if from.is_some() {
            self.news_at = Some(now);
        }
        self.push.note_new(now, key, from, quietly, &mut self.rng);
    }

    /// A document is new or changed here, published here (`from` is `None`) or heard from a peer. Gossip and sync carry it: over
    /// the links that are too young for gossip it goes by a sync, also where the first one of such a link was under way already.
    pub fn note_document(&mut self, now: Time, from: Option<NodeId>) {
        self.young.retain(|_, until| *until > now);
        let over = self.young.keys().filter(|peer| Some(**peer) != from);
        self.missed.extend(over.map(|peer| (*peer, now.after_ms(SYNC_MISSED_MS))));
    }

    /// Gossip brought a document from this peer before what it needs, e.g. a certificate before the fleet document that names
    /// its signer: it brings neither again, and a sync brings both.
    pub fn note_early(&mut self, now: Time, from: NodeId) {
        if self.push.is_up(&from) {
            self.missed.entry(from).or_insert(now.after_ms(SYNC_MISSED_MS));
        }
    }

    /// Sends the entry under `key` to these connected peers at the next wake-up, whatever the links are and whatever the
    /// limits: holders and wardens of a slot tell each other directly (design, section 5).
    pub fn push_to(&mut self, now: Time, key: RecordKey, peers: &[NodeId]) {
        self.push.push_to(now, key, peers);
    }

    /// Starts a sync with a connected peer as soon as no other runs, e.g. with a warden.
    pub fn sync_with(&mut self, now: Time, peer: &NodeId) {
        if self.push.is_up(peer) {
            self.due.entry(*peer).and_modify(|at| *at = now.min(*at)).or_insert(now);
        }
    }

    /// Connected peers, in order.
    pub fn peers(&self) -> impl ExactSizeIterator<Item = &NodeId> {
        self.push.peers()
    }

    /// What has been received so far.
    #[must_use]
    pub fn received(&self) -> Received {
        self.received
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
        self.quiet.clear();
        if !self.push.is_up(&peer) {
            return Err(FrameError::NotConnected);
        }
        match Frame::decode(frame)? {
            Frame::Records(items) => self.pushed(now, peer, items, false, ledger),
            Frame::Direct(items) => self.pushed(now, peer, items, true, ledger),
            Frame::Announce(held) => self.push.announced(now, peer, held, ledger, &mut self.rng).map(|()| Vec::new()),
            Frame::Graft(keys) => self.push.graft(now, &peer, keys).map(|()| Vec::new()),
            Frame::Prune => self.push.pruned(peer, &mut self.rng, &mut self.out).map(|()| Vec::new()),
            Frame::Sync(turn) => self.sync_turn(now, peer, turn, ledger, documents),
        }
    }

    fn pushed(
        &mut self,
        now: Time,
        peer: NodeId,
        items: Items,
        directly: bool,
        ledger: &Ledger,
    ) -> Result<Vec<Heard>, FrameError> {
        let sifted = sift(items, ledger)?;
        self.received.add(&sifted);
        self.push.note_held(&peer, &sifted, ledger);
        self.push.received(now, peer, &sifted, directly, &mut self.rng, &mut self.out)?;
        if directly && !self.push.is_eager(&peer) {
            self.quieten(&sifted.heard);
        }
        Ok(sifted.heard)
    }

    fn quieten(&mut self, heard: &[Heard]) {
        let keys = heard.iter().filter_map(|heard| if let Heard::Record(bytes) = heard { Some(bytes) } else { None });
        self.quiet.extend(keys.filter_map(|bytes| SignedRecord::peek(bytes).ok()).map(|(key, _)| key));
    }

    fn sync_turn(
        &mut self,
        now: Time,
        peer: NodeId,
        turn: Turn,
        ledger: &Ledger,
        documents: &dyn Documents,
    ) -> Result<Vec<Heard>, FrameError> {
        let sessions = if turn.by_initiator { &mut self.accepted } else { &mut self.begun };
        if turn.by_initiator && turn.number == 0 {
            sessions.insert(peer, Session::accept(now, turn.session));
        }
        // A turn of a session that was given up here is stale, not wrong.
        let Some(session) = sessions.get_mut(&peer).filter(|session| session.id == turn.session) else { return Ok(Vec::new()) };
        let taken = session.take(now, turn, ledger, documents);
        let Ok(Some(taken)) = taken else {
            sessions.remove(&peer);
            self.due.insert(peer, now.after_ms(SYNC_AGAIN_MS));
            return taken.map(|_| Vec::new());
        };
        self.out.extend(taken.answer.map(|frame| (peer, frame.encode())));
        self.received.add(&taken.sifted);
        let mut heard = taken.sifted.heard;
        if taken.done {
            sessions.remove(&peer);
            self.due.remove(&peer);
            heard.push(Heard::Synced(peer));
        }
        self.quieten(&heard);
        Ok(heard)
    }

    /// Does what is due.
    pub fn wake(&mut self, now: Time, ledger: &Ledger, documents: &dyn Documents) {
        self.push.wake(now, ledger, &mut self.rng, &mut self.out);
        self.give_up_stalled(now);
        let quiet_at = self.news_at.map_or(now, |at| at.after_ms(SYNC_QUIET_MS)).min(self.periodic_latest);
        if self.periodic_at.is_some_and(|at| at <= now) && quiet_at > now {
            self.periodic_at = Some(quiet_at);
        } else if self.periodic_at.is_some_and(|at| at <= now) {
            self.schedule_periodic(now);
            if let Some(peer) = self.periodic_peer(ledger) {
                self.sync_with(now, &peer);
            }
        }
        self.sync_missed(now);
        while self.may_begin(now)
            && let Some(peer) = self.next_due(now)
        {
            self.due.remove(&peer);
            let (session, frame) = Session::begin(now, self.rng.next_u64(), &Inventory::of(ledger, documents));
            self.begun.insert(peer, session);
            self.out.push((peer, frame.encode()));
        }
    }

    /// Begins the sync for what gossip may not have brought, once no session that may have begun before it runs there.
    fn sync_missed(&mut self, now: Time) {
        let due: Vec<NodeId> = self.missed.iter().filter(|(_, at)| **at <= now).map(|(peer, _)| *peer).collect();
        for peer in due {
            if self.begun.contains_key(&peer) || self.accepted.contains_key(&peer) {
                self.missed.insert(peer, now.after_ms(SYNC_MISSED_MS));
            } else {
                self.missed.remove(&peer);
                self.sync_with(now, &peer);
            }
        }
    }

    /// With whom to sync when it is time to: a lean node decides itself when it does. Lean nodes among themselves may.
    fn periodic_peer(&mut self, ledger: &Ledger) -> Option<NodeId> {
        let is_lean = |peer: &&NodeId| ledger.status(peer).is_some_and(|status| status.lean);
        let (lean, others): (Vec<NodeId>, Vec<NodeId>) = self.push.peers().partition(is_lean);
        pick(if self.lean && others.is_empty() { &lean } else { &others }, &mut self.rng)
    }

    fn give_up_stalled(&mut self, now: Time) {
        let stalled = |session: &Session| now.since_ms(session.active_at) >= SYNC_PATIENCE_MS;
        self.accepted.retain(|_, session| !stalled(session));
        let given_up: Vec<NodeId> = self.begun.iter().filter(|(_, session)| stalled(session)).map(|(peer, _)| *peer).collect();
        for peer in given_up {
            self.begun.remove(&peer);
            self.due.insert(peer, now.after_ms(SYNC_AGAIN_MS));
        }
    }

    fn may_begin(&self, now: Time) -> bool {
        let stalled = self.begun.values().all(|session| now.since_ms(session.active_at) >= SYNC_STALLED_MS);
        self.begun.len() < SYNC_BEGUN && stalled
    }

    fn next_due(&self, now: Time) -> Option<NodeId> {
        let due = self.due.iter().filter(|(peer, at)| **at <= now && !self.begun.contains_key(*peer));
        due.min_by_key(|(_, at)| **at).map(|(peer, _)| *peer)
    }

    fn schedule_periodic(&mut self, now: Time) {
        let every_ms = if self.lean { LEAN_SYNC_EVERY_MS } else { SYNC_EVERY_MS };
        let fifth = every_ms / 5;
        self.periodic_at = Some(now.after_ms(every_ms - fifth + self.rng.next_u64() % (2 * fifth)));
        self.periodic_latest = now.after_ms(every_ms + SYNC_LATEST_MS);
    }

    /// Frames to send, in order, since the last call.
    pub fn take_frames(&mut self) -> Vec<(NodeId, Vec<u8>)> {
        core::mem::take(&mut self.out)
    }

    /// When [`Spread::wake`] has something to do next.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Time> {
        let sessions = self.begun.values().chain(self.accepted.values());
        let patience = sessions.map(|session| session.active_at.after_ms(SYNC_PATIENCE_MS));
        let startable = self.due.iter().filter(|(peer, _)| !self.begun.contains_key(*peer)).map(|(_, at)| *at);
        let free_at = self.begun.values().map(|session| session.active_at.after_ms(SYNC_STALLED_MS)).max();
        let begin = startable.min().filter(|_| self.begun.len() < SYNC_BEGUN).map(|at| free_at.map_or(at, |free| at.max(free)));
        self.push
            .next_wakeup()
            .into_iter()
            .chain(patience)
            .chain(begin)
            .chain(self.missed.values().copied())
            .chain(self.periodic_at)
            .min()
    }
}

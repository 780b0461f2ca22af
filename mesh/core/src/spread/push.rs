//! Push of new records: eager links carry them, lazy links announce them (Leitão, Pereira, Rodrigues: *Epidemic
//! Broadcast Trees*, 2007, with one tree for all origins).
//!
//! A duplicate makes a link lazy, an announced record that does not come makes it eager again. What is queued is a set of
//! keys, and entries are read from the ledger when the batch goes: a newer record overwrites a queued older one, and a
//! queue is never longer than the ledger.
//! Announcements wait longer than pushes: what comes by the tree meanwhile need not be announced.
//! For now `grants` go to everybody, not only to their pool as the design allows: simpler, and right for some hundred
//! nodes; a limit for larger fleets.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng as _;

use super::Heard;
use super::frame::{Frame, FrameError, Held, Items, PACKED_BYTES};
use super::origin::Origins;
use crate::limits::{ANNOUNCERS, AWAITED, FRAME_ITEMS};
use crate::node_id::NodeId;
use crate::record::ledger::{Entry, Ledger};
use crate::record::signed::SignedRecord;
use crate::record::{RecordKey, Stamp};
use crate::time::Time;

/// A batch goes this long after its first record was queued, at the earliest …
const FLUSH_LEAST_MS: u64 = 50;
/// … and at the latest.
const FLUSH_MOST_MS: u64 = 200;
/// Announcements wait this long at least, so that one tells of many records, and of few that come by themselves meanwhile …
const ANNOUNCE_LEAST_MS: u64 = 400;
/// … and this long at most.
const ANNOUNCE_MOST_MS: u64 = 800;
/// An announced record that has not come for this long is asked for: some hops of the eager tree's batches.
const GRAFT_AFTER_MS: u64 = 1_000;
/// Asked for and not come: the next announcer is asked after this long.
const GRAFT_AGAIN_MS: u64 = 1_000;

/// The push side of one node.
#[derive(Debug, Default)]
pub(super) struct Push {
    links: BTreeMap<NodeId, Link>,
    awaited: BTreeMap<RecordKey, Awaited>,
    /// No awaited entry is due before.
    awaited_due: Option<Time>,
    origins: Origins,
    /// When the next batch goes, and the next announcements: the same for all links, so that a node wakes once for all of them.
    batch_at: Option<Time>,
    tell_at: Option<Time>,
}

/// One neighbour.
#[derive(Debug)]
struct Link {
    eager: bool,
    push: BTreeSet<RecordKey>,
    announce: BTreeSet<RecordKey>,
    direct: BTreeSet<RecordKey>,
    flush_at: Option<Time>,
    announce_at: Option<Time>,
    /// What the peer is known to have; bounded by [`AWAITED`], forgetting costs a copy.
    has: BTreeMap<RecordKey, Stamp>,
}

/// An announced entry that is not here.
#[derive(Debug)]
struct Awaited {
    rank: Stamp,
    announcers: Vec<NodeId>,
    due: Time,
}

/// Frames to send, in order.
pub(super) type Outbox = Vec<(NodeId, Vec<u8>)>;

impl Link {
    fn new() -> Self {
        Self {
            eager: true,
            push: BTreeSet::new(),
            announce: BTreeSet::new(),
            direct: BTreeSet::new(),
            flush_at: None,
            announce_at: None,
            has: BTreeMap::new(),
        }
    }

    fn note_has(&mut self, key: RecordKey, rank: Stamp) {
        let known = self.has.entry(key).or_insert(rank);
        *known = rank.max(*known);
        if self.has.len() > AWAITED {
            self.has.pop_first();
        }
    }

    fn schedule(&mut self, now: Time, delay_ms: u64) {
        let at = now.after_ms(delay_ms);
        self.flush_at = Some(self.flush_at.map_or(at, |known| known.min(at)));
    }

    /// Takes from `keys` what fits one frame and the peer is not known to have.
    fn pack(&mut self, from: Queue, ledger: &Ledger) -> Items {
        let mut items = Items::default();
        let mut bytes = 0;
        while bytes < PACKED_BYTES
            && let Some(key) = self.queue(from).pop_first()
        {
            let Some(entry) = ledger.entry(&key) else { continue };
            if from == Queue::Push && self.has.remove(&key).is_some_and(|rank| rank >= entry.rank()) {
                continue;
            }
            bytes += entry.size();
            items.put(entry);
        }
        items
    }

    fn queue(&mut self, which: Queue) -> &mut BTreeSet<RecordKey> {
        match which {
            Queue::Push => &mut self.push,
            Queue::Direct => &mut self.direct,
        }
    }

    fn announcements(&mut self, ledger: &Ledger) -> Vec<Held> {
        let mut held = Vec::new();
        while held.len() < FRAME_ITEMS / 2
            && let Some(key) = self.announce.pop_first()
        {
            match ledger.rank(&key) {
                Some(rank) if self.has.remove(&key).is_none_or(|known| known < rank) => held.push(Held { key, rank }),
                _ => {}
            }
        }
        held
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Push,
    Direct,
}

impl Items {
    /// Adds an entry.
    pub(super) fn put(&mut self, entry: &Entry) {
        match entry {
            Entry::Record(record) => self.records.push(record.bytes().to_vec()),
            Entry::Proof(pair) => {
                let [first, second] = &**pair;
                self.proofs.push((first.bytes().to_vec(), second.bytes().to_vec()));
            }
        }
    }
}

impl Push {
    pub(super) fn peer_up(&mut self, peer: NodeId) {
        self.links.insert(peer, Link::new());
    }

    pub(super) fn peer_down(&mut self, peer: &NodeId, rng: &mut ChaCha8Rng, out: &mut Outbox) {
        self.links.remove(peer);
        if !self.links.values().any(|link| link.eager) {
            self.make_one_eager(None, rng, out);
        }
    }

    pub(super) fn is_up(&self, peer: &NodeId) -> bool {
        self.links.contains_key(peer)
    }

    pub(super) fn peers(&self) -> impl ExactSizeIterator<Item = &NodeId> {
        self.links.keys()
    }

    /// The entry under `key` changed. `quietly`: it came by sync, so most others have it or will compare themselves;
    /// it is announced to all and pushed to nobody.
    pub(super) fn note_new(&mut self, now: Time, key: RecordKey, from: Option<NodeId>, quietly: bool, rng: &mut ChaCha8Rng) {
        if self.origins.admit(now, key) {
            self.enqueue(now, key, from, quietly, rng);
        }
    }

    fn enqueue(&mut self, now: Time, key: RecordKey, from: Option<NodeId>, quietly: bool, rng: &mut ChaCha8Rng) {
        let mut after = |known: Option<Time>, least: u64, most: u64| {
            known.filter(|at| *at > now).unwrap_or_else(|| now.after_ms(least + rng.next_u64() % (most - least)))
        };
        let batch_at = after(self.batch_at, FLUSH_LEAST_MS, FLUSH_MOST_MS);
        let tell_at = after(self.tell_at, ANNOUNCE_LEAST_MS, ANNOUNCE_MOST_MS);
        (self.batch_at, self.tell_at) = (Some(batch_at), Some(tell_at));
        for (peer, link) in &mut self.links {
            if Some(*peer) == from {
                continue;
            }
            if link.eager && !quietly {
                link.announce.remove(&key);
                link.push.insert(key);
                link.flush_at.get_or_insert(batch_at);
            } else if !link.push.contains(&key) {
                link.announce.insert(key);
                link.announce_at.get_or_insert(tell_at);
            }
        }
    }

    pub(super) fn push_to(&mut self, now: Time, key: RecordKey, peers: &[NodeId]) {
        for peer in peers {
            if let Some(link) = self.links.get_mut(peer) {
                link.push.remove(&key);
                link.announce.remove(&key);
                link.direct.insert(key);
                link.schedule(now, 0);
            }
        }
    }

    /// Records were pushed by a peer. More that were here than new ones make the link lazy, unless sent `directly`.
    pub(super) fn received(&mut self, peer: NodeId, sifted: &Sifted, directly: bool, out: &mut Outbox) -> Result<(), FrameError> {
        let eager = self.links.values().filter(|link| link.eager).count();
        let link = self.links.get_mut(&peer).ok_or(FrameError::NotConnected)?;
        for held in &sifted.held {
            link.note_has(held.key, held.rank);
        }
        if !directly && sifted.duplicates > sifted.heard.len() as u64 && link.eager && eager > 1 {
            link.eager = false;
            out.push((peer, Frame::Prune.encode()));
        }
        Ok(())
    }

    /// Announcements by a peer.
    pub(super) fn announced(&mut self, now: Time, peer: NodeId, held: Vec<Held>, ledger: &Ledger) -> Result<(), FrameError> {
        let link = self.links.get_mut(&peer).ok_or(FrameError::NotConnected)?;
        for Held { key, rank } in held {
            link.note_has(key, rank);
            if ledger.rank(&key).is_some_and(|known| known >= rank) {
                continue;
            }
            if self.awaited.len() >= AWAITED && !self.awaited.contains_key(&key) {
                continue;
            }
            let due = now.after_ms(GRAFT_AFTER_MS);
            let awaited = self.awaited.entry(key).or_insert_with(|| Awaited { rank, announcers: Vec::new(), due });
            self.awaited_due = Some(self.awaited_due.map_or(awaited.due, |sooner| sooner.min(awaited.due)));
            awaited.rank = awaited.rank.max(rank);
            if awaited.announcers.len() < ANNOUNCERS && !awaited.announcers.contains(&peer) {
                awaited.announcers.push(peer);
            }
        }
        Ok(())
    }

    /// A peer asks for entries and for the link to be eager.
    pub(super) fn graft(&mut self, now: Time, peer: &NodeId, keys: Vec<RecordKey>) -> Result<(), FrameError> {
        let link = self.links.get_mut(peer).ok_or(FrameError::NotConnected)?;
        link.eager = true;
        for key in keys {
            link.has.remove(&key);
            link.push.insert(key);
        }
        link.schedule(now, if link.push.is_empty() { FLUSH_LEAST_MS } else { 0 });
        Ok(())
    }

    /// A peer gets from elsewhere what this node pushes. The last eager link is given up only for another.
    pub(super) fn pruned(&mut self, peer: NodeId, rng: &mut ChaCha8Rng, out: &mut Outbox) -> Result<(), FrameError> {
        if !self.is_up(&peer) {
            return Err(FrameError::NotConnected);
        }
        let another = self.links.iter().any(|(other, link)| *other != peer && link.eager);
        if (another || self.make_one_eager(Some(peer), rng, out))
            && let Some(link) = self.links.get_mut(&peer)
        {
            link.eager = false;
            let queued = core::mem::take(&mut link.push);
            link.announce.extend(queued);
            if !link.announce.is_empty() && link.announce_at.is_none() {
                link.announce_at = link.flush_at;
            }
        }
        Ok(())
    }

    /// Makes a random link eager at both ends; false when there is none but `not`.
    fn make_one_eager(&mut self, not: Option<NodeId>, rng: &mut ChaCha8Rng, out: &mut Outbox) -> bool {
        let others: Vec<NodeId> = self.links.keys().copied().filter(|peer| Some(*peer) != not).collect();
        let Some(chosen) = pick(&others, rng) else { return false };
        if let Some(link) = self.links.get_mut(&chosen) {
            link.eager = true;
            out.push((chosen, Frame::Graft(Vec::new()).encode()));
        }
        true
    }

    pub(super) fn wake(&mut self, now: Time, ledger: &Ledger, rng: &mut ChaCha8Rng, out: &mut Outbox) {
        for key in self.origins.due(now) {
            self.enqueue(now, key, None, false, rng);
        }
        self.ask_for_awaited(now, ledger, out);
        for (peer, link) in &mut self.links {
            let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
            let (flush, tell) = (due(link.flush_at), due(link.announce_at));
            if flush {
                link.flush_at = None;
            }
            for (queue, frame) in [(Queue::Direct, Frame::Direct as fn(Items) -> Frame), (Queue::Push, Frame::Records)]
                .into_iter()
                .filter(|_| flush)
            {
                let items = link.pack(queue, ledger);
                if items.len() > 0 {
                    out.push((*peer, frame(items).encode()));
                }
            }
            if tell {
                link.announce_at = None;
                let held = link.announcements(ledger);
                if !held.is_empty() {
                    out.push((*peer, Frame::Announce(held).encode()));
                }
                if !link.announce.is_empty() {
                    link.announce_at = Some(now.after_ms(FLUSH_LEAST_MS));
                }
            }
            if flush && !(link.direct.is_empty() && link.push.is_empty()) {
                link.schedule(now, FLUSH_LEAST_MS);
            }
        }
    }

    fn ask_for_awaited(&mut self, now: Time, ledger: &Ledger, out: &mut Outbox) {
        if self.awaited_due.is_none_or(|due| due > now) {
            return;
        }
        let mut asks: BTreeMap<NodeId, Vec<RecordKey>> = BTreeMap::new();
        let links = &self.links;
        self.awaited.retain(|key, awaited| {
            if awaited.due > now {
                return true;
            }
            awaited.announcers.retain(|peer| links.contains_key(peer));
            if ledger.rank(key).is_some_and(|rank| rank >= awaited.rank) || awaited.announcers.is_empty() {
                return false;
            }
            let peer = awaited.announcers.remove(0);
            asks.entry(peer).or_default().push(*key);
            awaited.due = now.after_ms(GRAFT_AGAIN_MS);
            true
        });
        self.awaited_due = self.awaited.values().map(|awaited| awaited.due).min();
        for (peer, keys) in asks {
            if let Some(link) = self.links.get_mut(&peer) {
                link.eager = true;
                out.push((peer, Frame::Graft(keys).encode()));
            }
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        let flushes = self.links.values().flat_map(|link| [link.flush_at, link.announce_at]).flatten();
        flushes.chain(self.awaited_due).chain(self.origins.next_wakeup()).min()
    }
}

/// What of `items` is worth handing up, and what the sender thereby is known to have.
pub(super) struct Sifted {
    pub(super) heard: Vec<Heard>,
    held: Vec<Held>,
    /// Records and proofs in all.
    pub(super) records: u64,
    /// Of these, how many are here already.
    pub(super) duplicates: u64,
}

/// Splits what is new, or contradicts what is here, from what is known.
pub(super) fn sift(items: Items, ledger: &Ledger) -> Result<Sifted, FrameError> {
    let records = (items.proofs.len() + items.records.len()) as u64;
    let mut sifted = Sifted { heard: Vec::new(), held: Vec::new(), records, duplicates: 0 };
    sifted.heard.extend(items.documents.into_iter().map(Heard::Document));
    for (first, second) in items.proofs {
        let (key, _) = SignedRecord::peek(&first).map_err(|_| FrameError::Record)?;
        sifted.held.push(Held { key, rank: Stamp::PROOF });
        let known = ledger.entry(&key).map(Entry::records).unwrap_or_default();
        match known {
            [one, other] if one.bytes() == first && other.bytes() == second => sifted.duplicates += 1,
            _ => sifted.heard.push(Heard::Proof(first, second)),
        }
    }
    for record in items.records {
        let (key, stamp) = SignedRecord::peek(&record).map_err(|_| FrameError::Record)?;
        sifted.held.push(Held { key, rank: stamp });
        match ledger.entry(&key) {
            None => sifted.heard.push(Heard::Record(record)),
            Some(Entry::Record(known)) if known.stamp() < stamp => sifted.heard.push(Heard::Record(record)),
            Some(entry) if entry.records().iter().any(|known| known.bytes() == record) => sifted.duplicates += 1,
            Some(entry) if entry.records().iter().any(|known| known.stamp() == stamp) => sifted.heard.push(Heard::Record(record)),
            Some(_) => {}
        }
    }
    Ok(sifted)
}

/// One of `among`, at random.
pub(super) fn pick(among: &[NodeId], rng: &mut ChaCha8Rng) -> Option<NodeId> {
    let at = rng.next_u64().checked_rem(among.len() as u64)?;
    usize::try_from(at).ok().and_then(|at| among.get(at)).copied()
}

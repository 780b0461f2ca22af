//! Push of new records: eager links carry them, lazy links announce them (Leitão, Pereira, Rodrigues: *Epidemic
//! Broadcast Trees*, 2007, with one tree for all origins).
//!
//! Duplicates make a link lazy, an announced record that does not come makes it eager again. What comes by the side of the
//! tree, by sync or directly over a lazy link, is announced only, and passed on once the tree brings it too: else it would
//! reach others before the tree does, and their duplicates would tear the tree. What is queued is a set of keys, and entries are read from the ledger when the batch goes: a newer record overwrites a queued older one, and a
//! queue is never longer than the ledger.
//! Announcements wait much longer than pushes: what comes by the tree meanwhile need not be announced.
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
const FLUSH_LEAST_MS: u64 = 150;
/// … and at the latest: the later half of what the design allows, for a batch costs a frame on each link and is the fuller.
const FLUSH_MOST_MS: u64 = 200;
/// What did not fit a frame goes this long after it.
const FLUSH_NEXT_MS: u64 = 50;
/// Announcements wait this long at least, so that one tells of many records, and of few that come by themselves meanwhile:
/// longer than the tree needs to bring them, for they only mend it …
const ANNOUNCE_LEAST_MS: u64 = 3_000;
/// … and this long at most …
const ANNOUNCE_MOST_MS: u64 = 5_000;
/// … unless so many wait.
const ANNOUNCE_FULL: usize = 256;
/// An announced record that has not come for this long is asked for: some hops of the eager tree's batches …
const GRAFT_AFTER_MS: u64 = 1_000;
/// … and a random time below this: where the tree is torn the first to ask mends it for the others, who need not ask.
const GRAFT_SPREAD_MS: u64 = 2_000;
/// Asked for and not come: the next announcer is asked after this long.
const GRAFT_AGAIN_MS: u64 = 1_000;
/// A frame with more duplicates than news makes its link lazy only when another such follows after a random time below this,
/// with no news between: a ring of links is to be opened in one place, not by all who notice it at once.
const PRUNE_SPREAD_MS: u64 = 1_500;

/// The push side of one node.
#[derive(Debug, Default)]
pub(super) struct Push {
    links: BTreeMap<NodeId, Link>,
    awaited: BTreeMap<RecordKey, Awaited>,
    /// No awaited entry is due before.
    awaited_due: Option<Time>,
    /// Came by the side of the tree and were not passed on; bounded by [`AWAITED`], forgetting costs an announcement's delay.
    aside: BTreeSet<RecordKey>,
    origins: Origins,
    /// What goes over eager links with the next batch, and who brought it: one queue for all links, which are sent the same.
    batch: BTreeMap<RecordKey, Option<NodeId>>,
    batch_at: Option<Time>,
    /// What is announced next.
    tell: BTreeMap<RecordKey, Told>,
    tell_at: Option<Time>,
}

/// What waits to be announced.
#[derive(Clone, Copy, Debug)]
struct Told {
    from: Option<NodeId>,
    /// Over eager links too: it was pushed over none.
    to_all: bool,
}

/// One neighbour.
#[derive(Debug)]
struct Link {
    eager: bool,
    /// At some time since announcements went last: then not all that waits to be announced was pushed.
    was_lazy: bool,
    /// It brings more duplicates than news: the next frame that does after this makes it lazy.
    redundant_at: Option<Time>,
    /// Made for what two nodes tell each other directly.
    aside: bool,
    /// For this peer alone: what it asked for, what did not fit, what it is told directly.
    push: BTreeSet<RecordKey>,
    announce: BTreeSet<RecordKey>,
    direct: BTreeSet<RecordKey>,
    flush_at: Option<Time>,
    announce_at: Option<Time>,
    /// What the peer is known to have, of what waits for it and of what is not here yet; bounded by [`AWAITED`], forgetting costs
    /// a copy.
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
            was_lazy: false,
            redundant_at: None,
            aside: false,
            push: BTreeSet::new(),
            announce: BTreeSet::new(),
            direct: BTreeSet::new(),
            flush_at: None,
            announce_at: None,
            has: BTreeMap::new(),
        }
    }

    fn make_lazy(&mut self) {
        (self.eager, self.was_lazy, self.redundant_at) = (false, true, None);
    }

    fn make_eager(&mut self) {
        (self.eager, self.redundant_at) = (true, None);
    }

    fn note_has(&mut self, Held { key, rank }: Held) {
        let known = self.has.entry(key).or_insert(rank);
        *known = rank.max(*known);
        if self.has.len() > AWAITED {
            self.has.pop_first();
        }
    }

    /// Whether the peer has the entry under `key` as it is here; it is noted no longer.
    fn take_has(&mut self, key: &RecordKey, rank: Stamp) -> bool {
        !self.has.is_empty() && self.has.remove(key).is_some_and(|known| known >= rank)
    }

    fn schedule(&mut self, now: Time, delay_ms: u64) {
        let at = now.after_ms(delay_ms);
        self.flush_at = Some(self.flush_at.map_or(at, |known| known.min(at)));
    }

    /// Of `keys` what the peer is not known to have and fits one frame; what does not fit stays for the next.
    fn pack(&mut self, now: Time, keys: impl Iterator<Item = RecordKey>, ledger: &Ledger) -> Vec<RecordKey> {
        let mut packed = Vec::new();
        let mut bytes = 0;
        for key in keys {
            let Some(entry) = ledger.entry(&key) else { continue };
            if bytes >= PACKED_BYTES {
                self.push.insert(key);
            } else if !self.take_has(&key, entry.rank()) {
                bytes += entry.size();
                packed.push(key);
            }
        }
        if !self.push.is_empty() {
            self.schedule(now, FLUSH_NEXT_MS);
        }
        packed
    }

    /// Of `keys` what the peer is not known to have and fits one frame; what does not fit stays for the next.
    fn announcements(&mut self, now: Time, keys: impl Iterator<Item = RecordKey>, ledger: &Ledger) -> Vec<Held> {
        let mut held = Vec::new();
        for key in keys {
            let Some(rank) = ledger.rank(&key) else { continue };
            if held.len() >= FRAME_ITEMS / 2 {
                self.announce.insert(key);
            } else if !self.take_has(&key, rank) {
                held.push(Held { key, rank });
            }
        }
        self.announce_at = (!self.announce.is_empty()).then(|| now.after_ms(FLUSH_NEXT_MS));
        held
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Push,
    Direct,
}

/// The frame that was written last: several links are often sent the same.
#[derive(Default)]
struct Written {
    of: Option<(Queue, Vec<RecordKey>)>,
    bytes: Vec<u8>,
}

impl Written {
    /// `None` when there is nothing to send.
    fn frame(&mut self, queue: Queue, keys: Vec<RecordKey>, ledger: &Ledger) -> Option<Vec<u8>> {
        if keys.is_empty() {
            return None;
        }
        let of = Some((queue, keys));
        if self.of != of {
            let mut items = Items::default();
            let keys = of.iter().flat_map(|(_, keys)| keys);
            keys.filter_map(|key| ledger.entry(key)).for_each(|entry| items.put(entry));
            self.bytes = match queue {
                Queue::Push => Frame::Records(items),
                Queue::Direct => Frame::Direct(items),
            }
            .encode();
            self.of = of;
        }
        Some(self.bytes.clone())
    }
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

    /// The link is there for what two nodes tell each other directly, and no part of the tree, if there is another that is.
    pub(super) fn keep_lazy(&mut self, peer: NodeId, out: &mut Outbox) {
        let another = self.links.iter().any(|(other, link)| *other != peer && link.eager);
        let Some(link) = self.links.get_mut(&peer) else { return };
        link.aside = true;
        if another && link.eager {
            link.make_lazy();
            out.push((peer, Frame::Prune.encode()));
        }
    }

    pub(super) fn peer_down(&mut self, peer: &NodeId, rng: &mut ChaCha8Rng, out: &mut Outbox) {
        // The tree is torn there, and this node knows it first.
        if self.links.remove(peer).is_some_and(|link| link.eager) {
            self.make_one_eager(None, rng, out);
        }
    }

    pub(super) fn is_up(&self, peer: &NodeId) -> bool {
        self.links.contains_key(peer)
    }

    pub(super) fn peers(&self) -> impl ExactSizeIterator<Item = &NodeId> {
        self.links.keys()
    }

    /// Whether a peer's link is part of the tree, as far as this node knows.
    pub(super) fn is_eager(&self, peer: &NodeId) -> bool {
        self.links.get(peer).is_some_and(|link| link.eager)
    }

    /// The entry under `key` changed. `quietly`: it came by the side of the tree, so most others have it or will get it; it is
    /// announced to all and pushed to nobody, until the tree brings it too.
    pub(super) fn note_new(&mut self, now: Time, key: RecordKey, from: Option<NodeId>, quietly: bool, rng: &mut ChaCha8Rng) {
        if quietly {
            self.aside.insert(key);
            if self.aside.len() > AWAITED {
                self.aside.pop_first();
            }
        } else {
            self.aside.remove(&key);
        }
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
        if let Some(link) = from.and_then(|from| self.links.get_mut(&from)) {
            link.has.remove(&key);
        }
        if !quietly {
            self.batch.insert(key, from);
            self.batch_at = Some(batch_at);
        }
        self.tell.insert(key, Told { from, to_all: quietly });
        self.tell_at = Some(if self.tell.len() < ANNOUNCE_FULL { tell_at } else { tell_at.min(batch_at) });
    }

    /// To these connected peers alone, at once.
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

    /// What the peer says it has: that need not go to it, now or once it is here.
    fn note_has(&mut self, peer: &NodeId, held: Held, here: Option<Stamp>) {
        let queued = || self.batch.contains_key(&held.key) || self.tell.contains_key(&held.key);
        let Some(link) = self.links.get_mut(peer) else { return };
        if here == Some(held.rank) {
            link.push.remove(&held.key);
            link.announce.remove(&held.key);
        }
        if here.is_none_or(|here| here < held.rank) || here == Some(held.rank) && queued() {
            link.note_has(held);
        }
    }

    /// The peer has what it sent.
    pub(super) fn note_held(&mut self, peer: &NodeId, sifted: &Sifted, ledger: &Ledger) {
        for held in &sifted.held {
            self.note_has(peer, *held, ledger.rank(&held.key));
        }
    }

    /// Records were pushed by a peer. Frames with more that were here than new ones make the link lazy, unless sent `directly`.
    /// What was here only by the side of the tree is passed on now.
    pub(super) fn received(
        &mut self,
        now: Time,
        peer: NodeId,
        sifted: &Sifted,
        directly: bool,
        rng: &mut ChaCha8Rng,
        out: &mut Outbox,
    ) -> Result<(), FrameError> {
        let eager = self.links.values().filter(|link| link.eager).count();
        let link = self.links.get_mut(&peer).ok_or(FrameError::NotConnected)?;
        if directly && !link.eager {
            return Ok(());
        }
        let late: Vec<RecordKey> = sifted.known.iter().filter(|key| self.aside.remove(key)).copied().collect();
        let news = sifted.heard.len() + late.len();
        if !directly {
            let redundant = sifted.known.len() - late.len() > news;
            match link.redundant_at.filter(|_| redundant) {
                Some(at) if at <= now && link.eager && eager > 1 => {
                    link.make_lazy();
                    out.push((peer, Frame::Prune.encode()));
                }
                Some(_) => {}
                None => link.redundant_at = redundant.then(|| now.after_ms(rng.next_u64() % PRUNE_SPREAD_MS)),
            }
        }
        for key in late {
            self.enqueue(now, key, Some(peer), false, rng);
        }
        Ok(())
    }

    /// Announcements by a peer.
    pub(super) fn announced(
        &mut self,
        now: Time,
        peer: NodeId,
        held: Vec<Held>,
        ledger: &Ledger,
        rng: &mut ChaCha8Rng,
    ) -> Result<(), FrameError> {
        let due = now.after_ms(GRAFT_AFTER_MS + rng.next_u64() % GRAFT_SPREAD_MS);
        if !self.is_up(&peer) {
            return Err(FrameError::NotConnected);
        }
        for held in held {
            let here = ledger.rank(&held.key);
            self.note_has(&peer, held, here);
            let Held { key, rank } = held;
            if here.is_some_and(|here| here >= rank) {
                continue;
            }
            if self.awaited.len() >= AWAITED && !self.awaited.contains_key(&key) {
                continue;
            }
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
        link.make_eager();
        for key in keys {
            link.has.remove(&key);
            link.push.insert(key);
        }
        link.schedule(now, if link.push.is_empty() { FLUSH_NEXT_MS } else { 0 });
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
            link.make_lazy();
            let queued = core::mem::take(&mut link.push);
            link.announce.extend(queued);
            if !link.announce.is_empty() && link.announce_at.is_none() {
                link.announce_at = link.flush_at;
            }
        }
        Ok(())
    }

    /// Makes a random lazy link eager at both ends; false when there is none but `not`. One that was made for what two nodes
    /// tell each other directly only where there is no other.
    fn make_one_eager(&mut self, not: Option<NodeId>, rng: &mut ChaCha8Rng, out: &mut Outbox) -> bool {
        let lazy = self.links.iter().filter(|(peer, link)| !link.eager && Some(**peer) != not);
        let (aside, lasting): (Vec<_>, Vec<_>) = lazy.map(|(peer, link)| (*peer, link.aside)).partition(|(_, aside)| *aside);
        let among: Vec<NodeId> = if lasting.is_empty() { aside } else { lasting }.into_iter().map(|(peer, _)| peer).collect();
        let Some(chosen) = pick(&among, rng) else { return false };
        if let Some(link) = self.links.get_mut(&chosen) {
            link.make_eager();
            out.push((chosen, Frame::Graft(Vec::new()).encode()));
        }
        true
    }

    pub(super) fn wake(&mut self, now: Time, ledger: &Ledger, rng: &mut ChaCha8Rng, out: &mut Outbox) {
        for key in self.origins.due(now) {
            self.enqueue(now, key, None, false, rng);
        }
        self.ask_for_awaited(now, ledger, out);
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        let (batch, tell) = (due(self.batch_at), due(self.tell_at));
        let mut written = Written::default();
        for (peer, link) in &mut self.links {
            if due(link.flush_at) || batch {
                let own = due(link.flush_at);
                if own {
                    link.flush_at = None;
                    let direct = core::mem::take(&mut link.direct);
                    for key in &direct {
                        let queued = self.batch.contains_key(key) || self.tell.contains_key(key);
                        if let Some(rank) = ledger.rank(key).filter(|_| queued) {
                            link.note_has(Held { key: *key, rank });
                        }
                    }
                    let keys: Vec<RecordKey> = direct.into_iter().filter(|key| ledger.entry(key).is_some()).collect();
                    out.extend(written.frame(Queue::Direct, keys, ledger).map(|frame| (*peer, frame)));
                }
                let asked = if own { core::mem::take(&mut link.push) } else { BTreeSet::new() };
                let new = self.batch.iter().filter(|(key, from)| batch && **from != Some(*peer) && !asked.contains(*key));
                let eager = link.eager;
                let keys = asked.iter().copied().chain(new.filter(|_| eager).map(|(key, _)| *key));
                let keys = link.pack(now, keys, ledger);
                out.extend(written.frame(Queue::Push, keys, ledger).map(|frame| (*peer, frame)));
            }
            if due(link.announce_at) || tell {
                let queued = core::mem::take(&mut link.announce);
                let wanting = !link.eager || link.was_lazy;
                let new = self
                    .tell
                    .iter()
                    .filter(|(key, told)| tell && told.from != Some(*peer) && (wanting || told.to_all) && !queued.contains(*key));
                let keys = queued.iter().copied().chain(new.map(|(key, _)| *key));
                let held = link.announcements(now, keys, ledger);
                if !held.is_empty() {
                    out.push((*peer, Frame::Announce(held).encode()));
                }
                if tell {
                    link.was_lazy = !link.eager;
                    if !link.has.is_empty() {
                        let waits = |key: &RecordKey| !batch && self.batch.contains_key(key);
                        link.has.retain(|key, rank| waits(key) || ledger.rank(key).is_none_or(|here| here < *rank));
                    }
                }
            }
        }
        if batch {
            self.batch.clear();
            self.batch_at = None;
        }
        if tell {
            self.tell.clear();
            self.tell_at = None;
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
            // Of several announcers one that is asked anyway: each that is asked becomes part of the tree.
            let asked = awaited.announcers.iter().position(|peer| asks.contains_key(peer));
            let peer = awaited.announcers.remove(asked.unwrap_or(0));
            asks.entry(peer).or_default().push(*key);
            awaited.due = now.after_ms(GRAFT_AGAIN_MS);
            true
        });
        self.awaited_due = self.awaited.values().map(|awaited| awaited.due).min();
        for (peer, keys) in asks {
            if let Some(link) = self.links.get_mut(&peer) {
                link.make_eager();
                out.push((peer, Frame::Graft(keys).encode()));
            }
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        let flushes = self.links.values().flat_map(|link| [link.flush_at, link.announce_at]).flatten();
        flushes.chain(self.batch_at).chain(self.tell_at).chain(self.awaited_due).chain(self.origins.next_wakeup()).min()
    }
}

/// What of `items` is worth handing up, and what the sender thereby is known to have.
pub(super) struct Sifted {
    pub(super) heard: Vec<Heard>,
    held: Vec<Held>,
    /// Records and proofs in all.
    pub(super) records: u64,
    /// Of these, what is here already.
    pub(super) known: Vec<RecordKey>,
}

/// Splits what is new, or contradicts what is here, from what is known.
pub(super) fn sift(items: Items, ledger: &Ledger) -> Result<Sifted, FrameError> {
    let records = (items.proofs.len() + items.records.len()) as u64;
    let mut sifted = Sifted { heard: Vec::new(), held: Vec::new(), records, known: Vec::new() };
    sifted.heard.extend(items.documents.into_iter().map(Heard::Document));
    for (first, second) in items.proofs {
        let (key, _) = SignedRecord::peek(&first).map_err(|_| FrameError::Record)?;
        sifted.held.push(Held { key, rank: Stamp::PROOF });
        let known = ledger.entry(&key).map(Entry::records).unwrap_or_default();
        match known {
            [one, other] if one.bytes() == first && other.bytes() == second => sifted.known.push(key),
            _ => sifted.heard.push(Heard::Proof(first, second)),
        }
    }
    for record in items.records {
        let (key, stamp) = SignedRecord::peek(&record).map_err(|_| FrameError::Record)?;
        sifted.held.push(Held { key, rank: stamp });
        match ledger.entry(&key) {
            None => sifted.heard.push(Heard::Record(record)),
            Some(Entry::Record(known)) if known.stamp() < stamp => sifted.heard.push(Heard::Record(record)),
            Some(entry) if entry.records().iter().any(|known| known.bytes() == record) => sifted.known.push(key),
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

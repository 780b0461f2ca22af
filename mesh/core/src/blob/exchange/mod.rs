//! The exchange of one blob with neighbours: who sends which piece to whom next. No clock, no bytes.
//!
//! Whoever has an uplink decides what goes over it. As soon as less is agreed on than the uplink needs to stay busy
//! ([`pace`]), a node offers a neighbour a few pieces that it lacks, the rarest first (`choice`); the neighbour takes
//! the first that is neither here nor on its way (`intake`), so nothing is sent twice and nobody waits for an answer.
//! A piece counts as held by whoever has taken it, so a seed hands out each piece once before any twice, and gives the
//! next one to whoever has passed its earlier ones on. Fleets are of one owner: nobody pays for what it gets.
//!
//! Time is what passed since any fixed instant. The driver sends [`Exchange::take_messages`] in order, pulls
//! [`Exchange::next_part`] whenever a stream takes bytes, and calls [`Exchange::tick`] at [`Exchange::next_wakeup`].

mod choice;
mod intake;
pub mod message;
mod neighbour;
mod pace;
mod standing;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

pub use intake::{Expected, PartFate};
pub use message::{Message, MessageError, Part};
use neighbour::Neighbour;
use pace::{Pace, underway};
pub use standing::Standing;

use super::layout::Layout;
use super::piece_set::PieceSet;
use crate::limits::{BLOB_BROKEN, BLOB_NEIGHBOURS, BLOB_NEWS};
use crate::node_id::NodeId;

/// Pieces are announced this long after the first that is new, or when a message is full; with many neighbours that many
/// times [`NEWS_EACH`] after it, so that announcing costs the same.
const NEWS_AFTER: Duration = Duration::from_millis(40);
const NEWS_EACH: Duration = Duration::from_millis(6);
/// A piece that a neighbour passed over is not offered to it again for this long, and as long as pieces usually take.
const PASSED_FOR: Duration = Duration::from_millis(200);
/// A piece that was sent to a neighbour which does not announce it may be offered to it again after this.
const MARK_FOR: Duration = Duration::from_secs(3);
/// Marks end at multiples of this.
const MARK_STEP: Duration = Duration::from_millis(50);
/// A neighbour that leaves an offer unanswered, or parts unacknowledged, for this long is given up.
const SILENT: Duration = Duration::from_secs(15);
/// How often the clock is looked at for what is late.
const TICK: Duration = Duration::from_millis(500);

/// What one node gives to the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Whether it sends pieces at all; metered nodes do not.
    pub serves: bool,
    /// Whether it takes pieces; a node that does not fetch the blob only gives what it holds.
    pub takes: bool,
    /// To how many neighbours it sends at once, 1 or more.
    pub uploads: usize,
}

impl Default for Terms {
    fn default() -> Self {
        Self { serves: true, takes: true, uploads: 8 }
    }
}

/// The exchange of one blob at one node. At most [`BLOB_NEIGHBOURS`] neighbours.
#[derive(Clone, Debug)]
pub struct Exchange {
    layout: Layout,
    terms: Terms,
    held: PieceSet,
    neighbours: BTreeMap<NodeId, Neighbour>,
    /// For each piece: neighbours that count as having it.
    owners: Vec<u16>,
    /// Pieces that one neighbour has from here and no other neighbour has.
    sole: BTreeMap<u32, NodeId>,
    /// Pieces on their way here.
    expected: BTreeMap<u32, Expected>,
    /// How long a piece usually takes from being taken to being whole.
    usual: Duration,
    /// What others took here, in the order in which it is sent.
    queue: VecDeque<Sending>,
    pace: Pace,
    /// When the newest part was sent that somebody has acknowledged: what was sent before has left the uplink.
    left: Duration,
    news: Vec<u32>,
    news_due: Option<Duration>,
    /// Something that was held is not any more, and the neighbours were not told.
    lost: bool,
    tick_due: Duration,
    messages: Vec<(NodeId, Message)>,
    silent: Vec<NodeId>,
    random: ChaCha8Rng,
}

#[derive(Clone, Copy, Debug)]
struct Sending {
    peer: NodeId,
    piece: u32,
    offset: usize,
    length: usize,
}

/// The next bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// To whom.
    pub peer: NodeId,
    /// Of which piece.
    pub piece: u32,
    /// From which byte of it on.
    pub offset: usize,
    /// How many, 1 to [`crate::limits::BLOB_PART_BYTES`].
    pub length: usize,
    /// Whether these are its last bytes.
    pub last: bool,
}

/// The neighbour was not taken in: [`BLOB_NEIGHBOURS`] take part already. State is not touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{BLOB_NEIGHBOURS} peers exchange this blob already")]
pub struct TooManyPeers;

/// What only a neighbour that breaks the protocol says. State is not touched; let it leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// It answered an offer that was not made, or took what was not offered.
    #[error("it answered an offer that was not made")]
    Answer,
    /// It acknowledged nothing, or more than it was sent.
    #[error("it acknowledged bytes that were not sent")]
    Receipt,
    /// It sent bytes that were not asked for, or out of order.
    #[error("it sent bytes that were not asked for")]
    Bytes,
    /// It made more offers than are answered at once, or an empty one.
    #[error("it spoke before it said what it holds")]
    Order,
    /// It is no neighbour.
    #[error("it takes no part in the exchange")]
    Stranger,
}

impl Exchange {
    /// An exchange at a node that holds `held`. `seed` decides ties; give each node another.
    #[must_use]
    pub fn new(layout: Layout, held: PieceSet, terms: Terms, seed: u64, now: Duration) -> Self {
        assert_eq!(held.count(), layout.count(), "the pieces held are those of this blob");
        let count = usize::try_from(layout.count()).expect("at most 16,384");
        Self {
            layout,
            terms,
            held,
            neighbours: BTreeMap::new(),
            owners: alloc::vec![0; count],
            sole: BTreeMap::new(),
            expected: BTreeMap::new(),
            usual: Duration::from_millis(500),
            queue: VecDeque::new(),
            pace: Pace::new(now),
            left: Duration::ZERO,
            news: Vec::new(),
            news_due: None,
            lost: false,
            tick_due: now + TICK,
            messages: Vec::new(),
            silent: Vec::new(),
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Takes a neighbour in and tells it what is held here. One that takes part already begins anew.
    ///
    /// # Errors
    /// When [`BLOB_NEIGHBOURS`] others take part.
    pub fn join(&mut self, now: Duration, peer: NodeId) -> Result<(), TooManyPeers> {
        self.take_in(now, peer, true)
    }

    /// The same of one that only gives: nothing is ever offered to it.
    ///
    /// # Errors
    /// When [`BLOB_NEIGHBOURS`] others take part.
    pub fn join_giver(&mut self, now: Duration, peer: NodeId) -> Result<(), TooManyPeers> {
        self.take_in(now, peer, false)
    }

    fn take_in(&mut self, now: Duration, peer: NodeId, takes: bool) -> Result<(), TooManyPeers> {
        self.leave(peer);
        if self.neighbours.len() >= BLOB_NEIGHBOURS {
            return Err(TooManyPeers);
        }
        self.neighbours.insert(peer, Neighbour::new(self.layout, now, takes));
        self.messages.push((peer, Message::Holding(self.held.clone())));
        Ok(())
    }

    /// A neighbour is gone; what was expected of it may come from others.
    pub fn leave(&mut self, peer: NodeId) {
        let Some(neighbour) = self.neighbours.remove(&peer) else { return };
        for piece in neighbour.counted.iter() {
            self.uncount(peer, piece);
        }
        self.sole.retain(|_, owner| *owner != peer);
        self.expected.retain(|_, expected| expected.from != peer);
        self.queue.retain(|sending| sending.peer != peer);
        self.messages.retain(|(to, _)| *to != peer);
    }

    /// A neighbour said something. Parts go to [`Exchange::part`].
    ///
    /// # Errors
    /// [`Breach`].
    pub fn heard(&mut self, now: Duration, peer: NodeId, message: &Message) -> Result<(), Breach> {
        let neighbour = self.neighbours.get_mut(&peer).ok_or(Breach::Stranger)?;
        if neighbour.has.is_none() && !matches!(message, Message::Holding(_)) {
            return Err(Breach::Order);
        }
        match message {
            Message::Holding(held) => {
                let before = neighbour.has.replace(PieceSet::empty(self.layout));
                let lost: Vec<u32> = before.iter().flat_map(PieceSet::iter).filter(|piece| !held.contains(*piece)).collect();
                for piece in lost {
                    self.unmark(peer, piece);
                }
                held.iter().for_each(|piece| self.note_has(peer, piece));
            }
            Message::Have(pieces) => pieces.iter().for_each(|piece| self.note_has(peer, *piece)),
            Message::Offer { wait_ms, pieces } => self.offered(now, peer, *wait_ms, pieces),
            Message::Take(piece) => self.taken(now, peer, *piece)?,
            Message::Pass => {
                let open = neighbour.offers.pop_front().ok_or(Breach::Answer)?;
                neighbour.answered(now.saturating_sub(open.at));
                self.pace.answered(false);
                self.uncount_first(peer, &open.pieces);
                let until = self.passed_until(now);
                let Some(neighbour) = self.neighbours.get_mut(&peer) else { return Ok(()) };
                neighbour.marks.extend(open.pieces.into_iter().map(|piece| (until, piece)));
            }
            Message::Cancel(piece) => self.cancelled(now, peer, *piece),
            Message::Withdraw(piece) => self.withdrawn(peer, *piece),
            Message::Got(0) => return Err(Breach::Receipt),
            Message::Got(bytes) => {
                let newest = neighbour.acknowledge(u64::from(*bytes)).ok_or(Breach::Receipt)?;
                neighbour.meter.acknowledged(now, u64::from(*bytes));
                self.pace.uplink.acknowledged(now, u64::from(*bytes));
                if let Some(at) = newest {
                    neighbour.delayed(now.saturating_sub(at));
                    self.left = self.left.max(at);
                }
            }
            Message::Part(_) => return Err(Breach::Bytes),
        }
        Ok(())
    }

    /// What is to be said, in order. Offers are made here, so call it after every input.
    pub fn take_messages(&mut self, now: Duration) -> Vec<(NodeId, Message)> {
        if core::mem::take(&mut self.lost) {
            let held = self.held.clone();
            self.messages.extend(self.neighbours.keys().map(|peer| (*peer, Message::Holding(held.clone()))));
        }
        let received = self.neighbours.iter_mut().filter(|(_, neighbour)| neighbour.got > 0);
        self.messages.extend(received.map(|(peer, neighbour)| (*peer, Message::Got(core::mem::take(&mut neighbour.got)))));
        self.offer(now);
        if self.news.len() >= BLOB_NEWS || self.news_due.is_some_and(|due| due <= now) {
            self.tell_news();
        }
        core::mem::take(&mut self.messages)
    }

    /// The piece that [`Exchange::next_part`] would give bytes of, if the windows have room: have it at hand first.
    #[must_use]
    pub fn next_piece(&self, now: Duration) -> Option<u32> {
        let at = self.next_sending(|neighbour| neighbour.has_window() && !neighbour.is_stuck(now))?;
        self.queue.get(at).map(|sending| sending.piece)
    }

    /// The next bytes to send, counted as sent from now on; `None` when nothing is due or the windows are full.
    pub fn next_part(&mut self, now: Duration) -> Option<Outgoing> {
        let Some(at) = self.next_sending(|neighbour| neighbour.has_window() && !neighbour.is_stuck(now)) else {
            self.note_dry(now);
            return None;
        };
        let wire = self.wire_bytes(now);
        let sending = self.queue.get_mut(at)?;
        let neighbour = self.neighbours.get_mut(&sending.peer)?;
        if wire >= self.pace.uplink.wire_bytes(neighbour.least_delay()) {
            return None;
        }
        if wire == 0 {
            self.pace.uplink.restart(now);
        }
        if neighbour.on_wire == 0 {
            neighbour.meter.restart(now);
        }
        let length = (sending.length - sending.offset).min(self.pace.uplink.part_bytes());
        let last = sending.offset + length == sending.length;
        let (peer, piece, offset) = (sending.peer, sending.piece, sending.offset);
        sending.offset += length;
        let bytes = u64::try_from(length).expect("a part has 64 KiB at most");
        neighbour.queued_bytes -= bytes;
        neighbour.on_wire += bytes;
        neighbour.sent.push_back((now, bytes));
        if last {
            neighbour.queued -= 1;
            neighbour.marks.insert((in_step(now + MARK_FOR + self.usual), piece));
            self.queue.remove(at);
        }
        Some(Outgoing { peer, piece, offset, length, last })
    }

    /// A piece that is held cannot be read: it is missing again, and whoever took it is told.
    pub fn unreadable(&mut self, now: Duration, piece: u32) {
        let takers: Vec<NodeId> = self.queue.iter().filter(|it| it.piece == piece).map(|it| it.peer).collect();
        takers.into_iter().for_each(|peer| self.cancelled(now, peer, piece));
        self.forget(piece);
    }

    /// Looks at what is late. Call it at [`Exchange::next_wakeup`], or whenever it is convenient.
    pub fn tick(&mut self, now: Duration) {
        if now < self.tick_due {
            return;
        }
        self.tick_due = now + TICK;
        self.pace.settle(now);
        self.give_up_late(now);
        self.end_marks(now);
        for (peer, neighbour) in &self.neighbours {
            let silent = neighbour.is_silent(now, SILENT) || neighbour.is_choked(now, SILENT) || neighbour.broken >= BLOB_BROKEN;
            if silent {
                self.silent.push(*peer);
            }
        }
    }

    /// When [`Exchange::tick`] or [`Exchange::take_messages`] has something to do though nothing happens.
    #[must_use]
    pub fn next_wakeup(&self) -> Duration {
        let mut soonest = self.news_due.map_or(self.tick_due, |due| due.min(self.tick_due));
        if self.queue.is_empty() && self.terms.serves {
            let marks = self.neighbours.values().filter_map(|neighbour| neighbour.marks.first());
            soonest = marks.map(|(until, _)| *until).fold(soonest, Duration::min);
        }
        soonest
    }

    /// Neighbours that have not kept what they promised, or say nothing any more. Let them leave.
    pub fn take_silent(&mut self) -> Vec<NodeId> {
        core::mem::take(&mut self.silent)
    }

    /// The pieces held here.
    #[must_use]
    pub fn held(&self) -> &PieceSet {
        &self.held
    }

    /// Whether nothing is missing here.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.held.is_full()
    }

    /// Nothing can be sent: if the uplink could carry more and answers are waited for, or whoever has something to come takes
    /// no more now, more is offered from now on.
    fn note_dry(&mut self, now: Duration) {
        let held_up = !self.queue.is_empty();
        let waits = |it: &&Neighbour| (!it.offers.is_empty() && !it.is_late(now)) || (held_up && it.is_open(now));
        let mut open = self.neighbours.values().filter(waits);
        let Some(answer) = open.next().map(|it| it.answer) else { return };
        if self.wire_bytes(now) * 4 < self.pace.uplink.wire_bytes(Duration::ZERO) {
            self.pace.ran_dry(now, answer);
        }
    }

    /// What is begun first, then the rarest, then what was taken first: a rare piece that waits behind common ones keeps
    /// many uplinks waiting.
    fn next_sending(&self, is_free: impl Fn(&Neighbour) -> bool) -> Option<usize> {
        let mut best: Option<((bool, u16), usize)> = None;
        for (at, sending) in self.queue.iter().enumerate() {
            let order = (sending.offset == 0, self.owners_of(sending.piece));
            if best.is_none_or(|(least, _)| order < least) && self.neighbours.get(&sending.peer).is_some_and(&is_free) {
                best = Some((order, at));
            }
        }
        best.map(|(_, at)| at)
    }

    /// Bytes that may still be in front of the uplink or underway: not those that a neighbour is slow to acknowledge.
    fn wire_bytes(&self, now: Duration) -> u64 {
        let nearest = self.neighbours.values().filter_map(Neighbour::measured_delay).min().unwrap_or_default();
        let since = self.left.max(now.saturating_sub(underway(nearest)));
        self.neighbours.values().map(|other| other.sent_since(since)).sum()
    }

    /// Lets marks end that are no certain knowledge.
    fn end_marks(&mut self, now: Duration) {
        let Self { neighbours, owners, sole, queue, .. } = self;
        for (peer, neighbour) in neighbours.iter_mut() {
            while neighbour.marks.first().is_some_and(|(until, _)| *until <= now) {
                let Some((_, piece)) = neighbour.marks.pop_first() else { break };
                let open = neighbour.offers.iter().any(|open| open.pieces.contains(&piece));
                let queued = neighbour.queued > 0 && queue.iter().any(|it| it.peer == *peer && it.piece == piece);
                if open || queued || neighbour.has(piece) {
                    continue;
                }
                neighbour.marked.remove(piece);
                if neighbour.counted.remove(piece) {
                    lower(owners, piece);
                    if sole.get(&piece) == Some(peer) {
                        sole.remove(&piece);
                        neighbour.sole = neighbour.sole.saturating_sub(1);
                    }
                }
            }
        }
    }

    fn note_has(&mut self, peer: NodeId, piece: u32) {
        let Some(neighbour) = self.neighbours.get_mut(&peer) else { return };
        let Some(has) = neighbour.has.as_mut() else { return };
        if has.insert(piece) {
            neighbour.marked.insert(piece);
            if neighbour.counted.insert(piece) {
                self.count(piece);
            }
        }
    }

    /// A neighbour does not have a piece that it counted as having.
    fn unmark(&mut self, peer: NodeId, piece: u32) {
        let Some(neighbour) = self.neighbours.get_mut(&peer) else { return };
        neighbour.marked.remove(piece);
        if neighbour.counted.remove(piece) {
            self.uncount(peer, piece);
        }
    }

    /// One more neighbour counts as having the piece.
    fn count(&mut self, piece: u32) {
        raise(&mut self.owners, piece);
        if let Some(owner) = self.sole.remove(&piece)
            && let Some(owner) = self.neighbours.get_mut(&owner)
        {
            owner.sole = owner.sole.saturating_sub(1);
        }
    }

    /// One neighbour less counts as having the piece.
    fn uncount(&mut self, peer: NodeId, piece: u32) {
        lower(&mut self.owners, piece);
        if self.sole.get(&piece) == Some(&peer) {
            self.sole.remove(&piece);
            if let Some(owner) = self.neighbours.get_mut(&peer) {
                owner.sole = owner.sole.saturating_sub(1);
            }
        }
    }

    fn taken(&mut self, now: Duration, peer: NodeId, piece: u32) -> Result<(), Breach> {
        let length = self.layout.length(piece).ok_or(Breach::Answer)?;
        let neighbour = self.neighbours.get_mut(&peer).ok_or(Breach::Stranger)?;
        let at =
            neighbour.offers.front().and_then(|open| open.pieces.iter().position(|it| *it == piece)).ok_or(Breach::Answer)?;
        let open = neighbour.offers.pop_front().ok_or(Breach::Answer)?;
        neighbour.answered(now.saturating_sub(open.at));
        self.pace.answered(true);
        if at > 0 {
            self.uncount_first(peer, &open.pieces);
        }
        let until = self.passed_until(now);
        let Some(neighbour) = self.neighbours.get_mut(&peer) else { return Ok(()) };
        for (place, other) in open.pieces.into_iter().enumerate() {
            if place < at {
                neighbour.marks.insert((until, other));
            } else if place > at && !neighbour.counted.contains(other) {
                neighbour.marked.remove(other);
            }
        }
        neighbour.queued += 1;
        neighbour.queued_bytes += u64::try_from(length).expect("a piece has 1 MiB at most");
        self.queue.push_back(Sending { peer, piece, offset: 0, length });
        self.count_given(peer, piece);
        Ok(())
    }

    /// A piece that goes to a neighbour from here counts as held by it.
    fn count_given(&mut self, peer: NodeId, piece: u32) {
        let Some(neighbour) = self.neighbours.get_mut(&peer) else { return };
        if !neighbour.counted.insert(piece) {
            return;
        }
        self.count(piece);
        if self.owners_of(piece) == 1 {
            self.sole.insert(piece, peer);
            if let Some(neighbour) = self.neighbours.get_mut(&peer) {
                neighbour.sole += 1;
            }
        }
    }

    /// The first piece of an offer was not taken.
    fn uncount_first(&mut self, peer: NodeId, pieces: &[u32]) {
        let Some(first) = pieces.first() else { return };
        if let Some(neighbour) = self.neighbours.get_mut(&peer)
            && !neighbour.has(*first)
            && neighbour.counted.remove(*first)
        {
            self.uncount(peer, *first);
        }
    }

    fn cancelled(&mut self, now: Duration, peer: NodeId, piece: u32) {
        let Some(at) = self.queue.iter().position(|sending| sending.peer == peer && sending.piece == piece) else { return };
        let Some(sending) = self.queue.remove(at) else { return };
        let until = self.passed_until(now);
        if let Some(neighbour) = self.neighbours.get_mut(&peer) {
            neighbour.queued -= 1;
            neighbour.queued_bytes -= sending.left();
            neighbour.marks.insert((until, piece));
            self.messages.push((peer, Message::Withdraw(piece)));
        }
    }

    /// Until when a piece that a neighbour passed over now is not offered to it.
    fn passed_until(&self, now: Duration) -> Duration {
        in_step(now + PASSED_FOR.max(self.usual))
    }

    /// When a piece that is new now is announced.
    fn news_due(&self, now: Duration) -> Duration {
        now + NEWS_AFTER.max(NEWS_EACH * u32::try_from(self.neighbours.len()).unwrap_or(0))
    }

    fn tell_news(&mut self) {
        self.news_due = None;
        let news = core::mem::take(&mut self.news);
        for pieces in news.chunks(BLOB_NEWS) {
            self.messages.extend(self.neighbours.keys().map(|peer| (*peer, Message::Have(pieces.to_vec()))));
        }
    }

    fn owners_of(&self, piece: u32) -> u16 {
        index(piece).and_then(|at| self.owners.get(at)).copied().unwrap_or(0)
    }
}

impl Sending {
    fn left(&self) -> u64 {
        u64::try_from(self.length - self.offset).expect("a piece has 1 MiB at most")
    }
}

/// Marks end in steps, many at once: each end may be a reason to wake up.
fn in_step(until: Duration) -> Duration {
    let step = MARK_STEP.as_nanos();
    Duration::from_nanos(u64::try_from(until.as_nanos().div_ceil(step) * step).unwrap_or(u64::MAX))
}

fn index(piece: u32) -> Option<usize> {
    usize::try_from(piece).ok()
}

fn raise(owners: &mut [u16], piece: u32) {
    if let Some(count) = index(piece).and_then(|at| owners.get_mut(at)) {
        *count += 1;
    }
}

fn lower(owners: &mut [u16], piece: u32) {
    if let Some(count) = index(piece).and_then(|at| owners.get_mut(at)) {
        *count -= 1;
    }
}

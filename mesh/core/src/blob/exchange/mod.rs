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
mod counts;
mod intake;
pub mod message;
mod neighbour;
mod news;
mod pace;
mod sending;
mod soon;
mod standing;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

pub use intake::{Expected, PartFate};
pub use message::{Message, MessageError, Part};
use neighbour::Neighbour;
use news::News;
use pace::Pace;
pub use sending::Outgoing;
use sending::Sending;
pub use standing::Standing;

use super::layout::Layout;
use super::piece_set::PieceSet;
use crate::limits::{BLOB_BROKEN, BLOB_CALLED_OFF, BLOB_EXPECTED_BYTES, BLOB_NEIGHBOURS};
use crate::node_id::NodeId;

/// A neighbour that leaves an offer unanswered, or parts unacknowledged, for this long is given up.
const SILENT: Duration = Duration::from_secs(15);
/// A neighbour that has not said what it holds by then is given up.
const MUTE: Duration = Duration::from_secs(10);
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
    /// Most bytes on their way here at once, however little one piece; never more than [`BLOB_EXPECTED_BYTES`]. Where little
    /// is taken in a second, whoever waits long for its turn would be taken for one that acknowledges nothing.
    pub room_bytes: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self { serves: true, takes: true, uploads: 8, room_bytes: BLOB_EXPECTED_BYTES }
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
    news: News,
    /// Something that was held is not any more, and the neighbours were not told.
    lost: bool,
    tick_due: Duration,
    messages: Vec<(NodeId, Message)>,
    silent: Vec<NodeId>,
    random: ChaCha8Rng,
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
            news: News::default(),
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
        let before = self.let_go(peer);
        if self.neighbours.len() >= BLOB_NEIGHBOURS {
            return Err(TooManyPeers);
        }
        let mut neighbour = Neighbour::new(self.layout, now, takes, self.news.end());
        if let Some(before) = before {
            neighbour.begin_anew(before);
        }
        self.neighbours.insert(peer, neighbour);
        self.messages.push((peer, Message::Holding(self.held.clone())));
        Ok(())
    }

    /// A neighbour is gone; what was expected of it may come from others.
    pub fn leave(&mut self, peer: NodeId) {
        self.let_go(peer);
    }

    fn let_go(&mut self, peer: NodeId) -> Option<Neighbour> {
        let neighbour = self.neighbours.remove(&peer)?;
        for piece in neighbour.counted.iter() {
            self.uncount(peer, piece);
        }
        self.sole.retain(|_, owner| *owner != peer);
        self.queue.retain(|sending| sending.peer != peer);
        let promised = self.expected.iter().filter(|(_, expected)| expected.from == peer).map(|(piece, _)| *piece);
        for piece in promised.collect::<Vec<u32>>() {
            self.expected.remove(&piece);
            self.lose(piece);
        }
        self.messages.retain(|(to, _)| *to != peer);
        Some(neighbour)
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
                neighbour.took_bytes(now, u64::from(*bytes), self.layout.piece_bytes());
                self.pace.uplink.acknowledged(now, u64::from(*bytes));
                if let Some(sent) = newest {
                    neighbour.delayed(now.saturating_sub(sent.at));
                    self.left = self.left.max(sent.at);
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
            self.forget_news();
        }
        let received = self.neighbours.iter_mut().filter(|(_, neighbour)| neighbour.got > 0);
        self.messages.extend(received.map(|(peer, neighbour)| (*peer, Message::Got(core::mem::take(&mut neighbour.got)))));
        self.offer(now);
        self.tell_news(now);
        core::mem::take(&mut self.messages)
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
        self.withdraw_overdue(now);
        self.note_withheld(now);
        for (peer, neighbour) in &self.neighbours {
            let silent = neighbour.is_silent(now, SILENT) || neighbour.is_choked(now, SILENT) || neighbour.is_mute(now, MUTE);
            if silent || neighbour.broken >= BLOB_BROKEN || neighbour.called_off > BLOB_CALLED_OFF {
                self.silent.push(*peer);
            }
        }
    }

    /// When [`Exchange::tick`] or [`Exchange::take_messages`] has something to do though nothing happens.
    #[must_use]
    pub fn next_wakeup(&self) -> Duration {
        let mut soonest = self.news.due.map_or(self.tick_due, |due| due.min(self.tick_due));
        if self.terms.serves && !self.has_sending() {
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
}

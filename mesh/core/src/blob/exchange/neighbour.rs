//! What is known of one neighbour: what it has, what it was offered, what it took and what was taken from it.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::Exchange;
use super::pace::{FIRST_ANSWER, Meter};
use crate::blob::layout::Layout;
use crate::blob::piece_set::PieceSet;
use crate::limits::BLOB_OPEN_OFFERS;
use crate::node_id::NodeId;

/// An offer or a part that waits longer than this, and four times longer than is usual, holds up nobody else.
const LATE: Duration = Duration::from_secs(1);

/// No delay counts as longer: four times as long is less than what makes a silent neighbour.
const DELAY_MOST: Duration = Duration::from_millis(3_500);

/// Whoever has not said what it holds after this has no place where somebody waits for one: it is the first word of either
/// side.
const MUTE_FOR: Duration = Duration::from_secs(2);

/// A neighbour whose queue takes longer than this at its own rate gets no more to it, and takes no place of another.
const CLOGGED: Duration = Duration::from_secs(2);

/// Whoever has what is missing here and gives nothing for this long, and for as long as all take to give once, withholds it.
const WITHHELD: Duration = Duration::from_secs(3);

/// No neighbour promises more than it sends in this time, as it did lately.
const PROMISES: Duration = Duration::from_secs(1);

/// An offer that was not answered yet.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) pieces: Vec<u32>,
    pub(super) at: Duration,
    /// Pieces of it that were withdrawn since: an answer that takes one of them is answered already.
    pub(super) withdrawn: BTreeSet<u32>,
}

/// A piece that was taken from a neighbour and is on its way here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Coming {
    /// Bytes of it that came, in order.
    pub(super) bytes: usize,
    /// It is not needed any more; parts that come all the same are dropped.
    pub(super) cancelled: bool,
}

/// A part that was sent, as far as it is not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) at: Duration,
    pub(super) bytes: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Neighbour {
    /// Whether it takes pieces at all.
    pub(super) takes: bool,
    /// What it said it has. `None` until it said so the first time.
    pub(super) has: Option<PieceSet>,
    /// What it said it has, and what it took here.
    pub(super) counted: PieceSet,
    /// What is not offered to it: `counted`, what is in open offers, and what it said comes from others.
    pub(super) marked: PieceSet,
    /// When a mark ends that is no certain knowledge, soonest first; a piece may be in here twice.
    pub(super) marks: BTreeSet<(Duration, u32)>,
    /// At most [`BLOB_OPEN_OFFERS`].
    pub(super) offers: VecDeque<Open>,
    /// Pieces that it took and that were not yet sent to the last byte.
    pub(super) queued: usize,
    /// Bytes of those that are here, as far as they were not sent.
    pub(super) queued_bytes: u64,
    /// Pieces that it was offered and that are still on their way here. At most as many as are expected.
    pub(super) early: BTreeSet<u32>,
    /// Up to where it has heard what is new here.
    pub(super) heard_of: u64,
    /// Pieces that it has from here and that no other neighbour has.
    pub(super) sole: usize,
    /// Parts that were sent and not acknowledged.
    pub(super) sent: VecDeque<Sent>,
    /// Sum of `sent`.
    pub(super) on_wire: u64,
    pub(super) meter: Meter,
    /// How long its answers to offers usually take.
    pub(super) answer: Duration,
    /// Least time from sending a part to its receipt, once there was one.
    delay: Option<Duration>,
    /// What was taken from it.
    pub(super) coming: BTreeMap<u32, Coming>,
    /// How fast that comes.
    pub(super) giving: Meter,
    /// Bytes that came and were not acknowledged.
    pub(super) got: u32,
    /// Pieces that it promised and did not send in time.
    pub(super) broken: u32,
    /// Pieces that it took here and did not want after all, since it acknowledged as many bytes as a piece has.
    pub(super) called_off: u32,
    /// Bytes that it acknowledged since then.
    pub(super) acknowledged: u64,
    /// When its stream was opened.
    opened: Duration,
    /// When it became a neighbour, be it over another stream.
    joined: Duration,
    /// When a piece of it was stored, or it acknowledged as many bytes as a piece has; or when it became a neighbour.
    pub(super) useful: Duration,
    /// When bytes of it came that were needed; or when it became a neighbour.
    pub(super) gave: Duration,
    /// It has what is missing here and gives nothing for long: it gets what nobody else needs.
    pub(super) withholds: bool,
    /// Pieces in a row that it took its word back of before any byte of them came.
    pub(super) taken_back: u32,
}

impl Exchange {
    /// What each neighbour said it holds; `None` before it said so.
    pub fn holdings(&self) -> impl Iterator<Item = (NodeId, Option<&PieceSet>)> + '_ {
        self.neighbours.iter().map(|(peer, neighbour)| (*peer, neighbour.has.as_ref()))
    }
}

impl Exchange {
    /// Whether a piece came of a neighbour, or went to it.
    #[must_use]
    pub fn was_useful(&self, peer: &NodeId) -> bool {
        self.neighbours.get(peer).is_some_and(Neighbour::was_useful)
    }

    /// Looks at who gives nothing of what it could.
    pub(super) fn note_withheld(&mut self, now: Duration) {
        let patience = WITHHELD.max(self.usual * u32::try_from(self.neighbours.len()).unwrap_or(0));
        for neighbour in self.neighbours.values_mut() {
            let gives = now.saturating_sub(neighbour.gave) <= patience;
            neighbour.withholds = !gives && self.held.missing().any(|piece| neighbour.has(piece));
        }
    }

    /// The neighbour that has been of no use for longest, for longer than `patience` and than it takes all to be of use once:
    /// it makes room where somebody waits. Before any other one that has not even said what it holds.
    #[must_use]
    pub fn least_useful(&self, now: Duration, patience: Duration) -> Option<NodeId> {
        let patience = patience.max(self.usual * u32::try_from(self.neighbours.len()).unwrap_or(0));
        let is_idle = |it: &Neighbour| now.saturating_sub(it.useful) > patience || it.is_mute(now, MUTE_FOR);
        let idle = self.neighbours.iter().filter(|(_, it)| is_idle(it));
        idle.min_by_key(|(_, it)| (it.has.is_some(), it.useful)).map(|(peer, _)| *peer)
    }
}

impl Neighbour {
    /// A neighbour that has heard of what is new here up to `heard_of`.
    pub(super) fn new(layout: Layout, now: Duration, takes: bool, heard_of: u64) -> Self {
        Self {
            takes,
            has: None,
            counted: PieceSet::empty(layout),
            marked: PieceSet::empty(layout),
            marks: BTreeSet::new(),
            offers: VecDeque::new(),
            queued: 0,
            queued_bytes: 0,
            early: BTreeSet::new(),
            heard_of,
            sole: 0,
            sent: VecDeque::new(),
            on_wire: 0,
            meter: Meter::new(now),
            answer: FIRST_ANSWER,
            delay: None,
            coming: BTreeMap::new(),
            giving: Meter::new(now),
            got: 0,
            broken: 0,
            called_off: 0,
            acknowledged: 0,
            opened: now,
            joined: now,
            useful: now,
            gave: now,
            withholds: false,
            taken_back: 0,
        }
    }

    /// Begins anew on another stream. What it did on the one before is not forgotten.
    pub(super) fn begin_anew(&mut self, before: Self) {
        (self.meter, self.giving) = (before.meter, before.giving);
        (self.broken, self.taken_back, self.called_off) = (before.broken, before.taken_back, before.called_off);
        (self.joined, self.useful, self.gave) = (before.joined, before.useful, before.gave);
    }

    /// It acknowledged bytes of pieces of this length.
    pub(super) fn took_bytes(&mut self, now: Duration, bytes: u64, piece_bytes: u64) {
        self.acknowledged += bytes;
        if self.acknowledged >= piece_bytes {
            (self.acknowledged, self.called_off, self.useful) = (0, 0, now);
        }
    }

    /// Whether it never said what it holds, for so long.
    pub(super) fn is_mute(&self, now: Duration, patience: Duration) -> bool {
        self.has.is_none() && now.saturating_sub(self.opened) > patience
    }

    /// Whether a piece came of it, or went to it.
    pub(super) fn was_useful(&self) -> bool {
        self.useful > self.joined
    }

    /// Whether it said that it has the piece.
    pub(super) fn has(&self, piece: u32) -> bool {
        self.has.as_ref().is_some_and(|has| has.contains(piece))
    }

    /// Whether it may be offered something now.
    pub(super) fn is_open(&self, now: Duration) -> bool {
        let complete = self.has.as_ref().is_none_or(PieceSet::is_full);
        let ready = !self.is_late(now) && !self.is_stuck(now) && !self.is_clogged();
        self.takes && !complete && self.offers.len() < BLOB_OPEN_OFFERS && ready
    }

    /// Whether it takes an upload slot: something is offered to it or waits for it, and goes on.
    pub(super) fn is_busy(&self, now: Duration) -> bool {
        let waits = self.queued > 0 || !self.offers.is_empty();
        waits && !self.is_late(now) && !self.is_stuck(now) && !self.is_clogged()
    }

    /// Whether more waits for it than it takes in a while at its own rate.
    pub(super) fn is_clogged(&self) -> bool {
        self.queued_bytes > self.meter.lately_in(CLOGGED)
    }

    /// How much of what waits for it keeps the uplink busy for as long as `ahead`: while its window is full no more than it
    /// takes in that time.
    pub(super) fn waiting_bytes(&self, now: Duration, ahead: Duration) -> u64 {
        match (self.is_stuck(now), self.has_window()) {
            (true, _) => 0,
            (false, true) => self.queued_bytes,
            (false, false) => self.queued_bytes.min(self.meter.lately_in(ahead)),
        }
    }

    /// Whether it may promise one more piece, while so many bytes that it promised are still to come.
    pub(super) fn may_promise(&self, owed_bytes: u64, piece_bytes: u64) -> bool {
        owed_bytes < self.giving.lately_in(PROMISES).max(2 * piece_bytes)
    }

    /// Whether its oldest offer waits too long; it then holds up nobody else.
    pub(super) fn is_late(&self, now: Duration) -> bool {
        self.is_silent(now, LATE.max(self.answer * 4))
    }

    /// Whether its oldest offer has waited for longer than this.
    pub(super) fn is_silent(&self, now: Duration, patience: Duration) -> bool {
        self.offers.front().is_some_and(|open| now.saturating_sub(open.at) > patience)
    }

    /// Whether it has not acknowledged for too long.
    pub(super) fn is_stuck(&self, now: Duration) -> bool {
        self.is_choked(now, LATE.max(self.least_delay().saturating_mul(4)))
    }

    /// Whether bytes have not been acknowledged for longer than this.
    pub(super) fn is_choked(&self, now: Duration, patience: Duration) -> bool {
        self.sent.front().is_some_and(|sent| now.saturating_sub(sent.at) > patience)
    }

    /// Least delay measured; none is assumed before.
    pub(super) fn least_delay(&self) -> Duration {
        self.delay.unwrap_or_default()
    }

    /// The same, where one was measured.
    pub(super) fn measured_delay(&self) -> Option<Duration> {
        self.delay
    }

    /// A part was acknowledged after so long.
    pub(super) fn delayed(&mut self, took: Duration) {
        let took = took.min(DELAY_MOST);
        self.delay = Some(self.delay.map_or(took, |least| least.min(took)));
    }

    /// Bytes that were sent to it since then and not acknowledged.
    pub(super) fn sent_since(&self, since: Duration) -> u64 {
        self.sent.iter().rev().take_while(|sent| sent.at >= since).map(|sent| sent.bytes).sum()
    }

    /// Whether one more part may be sent to it.
    pub(super) fn has_window(&self) -> bool {
        self.on_wire < self.meter.wire_bytes(self.least_delay())
    }

    /// An offer was answered after this long.
    pub(super) fn answered(&mut self, took: Duration) {
        self.answer = (self.answer * 3 + took) / 4;
    }

    /// Takes a receipt for so many bytes; `None` when so much was not sent. Returns the newest part that is acknowledged as
    /// a whole.
    pub(super) fn acknowledge(&mut self, mut bytes: u64) -> Option<Option<Sent>> {
        if bytes > self.on_wire {
            return None;
        }
        self.on_wire -= bytes;
        let mut newest = None;
        while bytes > 0 {
            let sent = self.sent.front_mut()?;
            if sent.bytes > bytes {
                sent.bytes -= bytes;
                break;
            }
            bytes -= sent.bytes;
            newest = Some(*sent);
            self.sent.pop_front();
        }
        Some(newest)
    }
}

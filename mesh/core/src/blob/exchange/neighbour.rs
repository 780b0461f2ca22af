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

/// A neighbour whose queue takes longer than this at its own rate gets no more to it, and takes no place of another.
const CLOGGED: Duration = Duration::from_secs(2);

/// No neighbour promises more than it sends in this time, as it did lately.
const PROMISES: Duration = Duration::from_secs(1);

/// An offer that was not answered yet.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) pieces: Vec<u32>,
    pub(super) at: Duration,
}

/// A piece that was taken from a neighbour and is on its way here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Coming {
    /// Bytes of it that came, in order.
    pub(super) bytes: usize,
    /// It is not needed any more; parts that come all the same are dropped.
    pub(super) cancelled: bool,
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
    /// Bytes of them that were not sent.
    pub(super) queued_bytes: u64,
    /// Pieces that it has from here and that no other neighbour has.
    pub(super) sole: usize,
    /// Parts that were sent and not acknowledged: when, and how many bytes.
    pub(super) sent: VecDeque<(Duration, u64)>,
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
}

impl Exchange {
    /// What each neighbour said it holds; `None` before it said so.
    pub fn holdings(&self) -> impl Iterator<Item = (NodeId, Option<&PieceSet>)> + '_ {
        self.neighbours.iter().map(|(peer, neighbour)| (*peer, neighbour.has.as_ref()))
    }
}

impl Neighbour {
    pub(super) fn new(layout: Layout, now: Duration, takes: bool) -> Self {
        Self {
            takes,
            has: None,
            counted: PieceSet::empty(layout),
            marked: PieceSet::empty(layout),
            marks: BTreeSet::new(),
            offers: VecDeque::new(),
            queued: 0,
            queued_bytes: 0,
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
        }
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
        self.sent.front().is_some_and(|(at, _)| now.saturating_sub(*at) > patience)
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
        self.sent.iter().rev().take_while(|(at, _)| *at >= since).map(|(_, bytes)| bytes).sum()
    }

    /// Whether one more part may be sent to it.
    pub(super) fn has_window(&self) -> bool {
        self.on_wire < self.meter.wire_bytes(self.least_delay())
    }

    /// An offer was answered after this long.
    pub(super) fn answered(&mut self, took: Duration) {
        self.answer = (self.answer * 3 + took) / 4;
    }

    /// Takes a receipt for so many bytes; `None` when so much was not sent. Returns when the newest part was sent that
    /// is acknowledged as a whole.
    pub(super) fn acknowledge(&mut self, mut bytes: u64) -> Option<Option<Duration>> {
        if bytes > self.on_wire {
            return None;
        }
        self.on_wire -= bytes;
        let mut newest = None;
        while bytes > 0 {
            let (at, left) = self.sent.front_mut()?;
            if *left > bytes {
                *left -= bytes;
                break;
            }
            bytes -= *left;
            newest = Some(*at);
            self.sent.pop_front();
        }
        Some(newest)
    }
}

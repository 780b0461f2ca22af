//! The receiving side: which offers are taken, what is on its way, and what has waited too long.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use super::message::Message;
use super::{Breach, Exchange};
use crate::limits::{BLOB_BROKEN, BLOB_EXPECTED_BYTES, BLOB_EXPECTED_PIECES, BLOB_TAKEN_BACK};
use crate::node_id::NodeId;

/// What was promised and has not come at all for this long, and eight times longer than is usual, is given up.
const PROMISED: Duration = Duration::from_secs(8);

/// However long a neighbour says that a piece will take, it is not waited for longer than this before it begins to come.
const DUE_AT_MOST: Duration = Duration::from_secs(120);

/// Another is worth a change when a piece comes earlier by this from it.
const CLEARLY: Duration = Duration::from_millis(150);

/// A promise is overdue when it is late by this, and by twice what pieces usually take.
const BEHIND: Duration = Duration::from_millis(300);

/// And when it has not come for so long and eight times what is usual, whatever it said.
const BEHIND_AT_MOST: Duration = Duration::from_secs(10);

/// A piece that is on its way here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// From whom.
    pub from: NodeId,
    /// When it was taken.
    pub since: Duration,
    /// When bytes of it came last, or when it was taken.
    pub touched: Duration,
    /// When it is likely to be whole.
    pub due: Duration,
    /// Bytes that came.
    pub bytes: usize,
    /// Whether all its bytes are here and are being verified and stored.
    pub whole: bool,
}

/// What becomes of the bytes of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartFate {
    /// Keep them beside what came before of this piece.
    Keep,
    /// The same, and the piece is whole now: verify and store it, then say [`Exchange::stored`] or let the sender leave.
    Whole,
    /// They are not needed any more.
    Drop,
}

impl Exchange {
    /// Bytes of a piece came from a neighbour. One receipt for all that came is sent with the next messages.
    ///
    /// # Errors
    /// When they were not asked for, are out of order, or more than the piece has.
    pub fn part(&mut self, now: Duration, peer: NodeId, piece: u32, offset: usize, length: usize) -> Result<PartFate, Breach> {
        let neighbour = self.neighbours.get_mut(&peer).ok_or(Breach::Stranger)?;
        let whole = self.layout.length(piece).ok_or(Breach::Bytes)?;
        let coming = neighbour.coming.get_mut(&piece).ok_or(Breach::Bytes)?;
        let ends = offset.checked_add(length).ok_or(Breach::Bytes)?;
        if coming.bytes != offset || length == 0 || ends > whole {
            return Err(Breach::Bytes);
        }
        neighbour.giving.acknowledged(now, u64::try_from(length).map_err(|_| Breach::Bytes)?);
        coming.bytes = ends;
        let dropped = coming.cancelled;
        if ends == whole {
            neighbour.coming.remove(&piece);
        }
        neighbour.got += u32::try_from(length).map_err(|_| Breach::Bytes)?;
        let expected = self.expected.get_mut(&piece).filter(|expected| expected.from == peer && !dropped);
        let Some(expected) = expected else { return Ok(PartFate::Drop) };
        (neighbour.gave, neighbour.withholds) = (now, false);
        expected.touched = now;
        expected.bytes = ends;
        expected.due = now + left_for(now.saturating_sub(expected.since), ends, whole);
        if ends < whole {
            return Ok(PartFate::Keep);
        }
        expected.whole = true;
        self.usual = (self.usual * 15 + now.saturating_sub(expected.since)) / 16;
        Ok(PartFate::Whole)
    }

    /// Whether parts of a piece are still to come: what came of another is of no use.
    #[must_use]
    pub fn expects(&self, piece: u32) -> bool {
        self.expected.get(&piece).is_some_and(|expected| !expected.whole)
    }

    /// Whether a piece is on its way, or all of it is here and being verified and stored.
    #[must_use]
    pub fn is_expected(&self, piece: u32) -> bool {
        self.expected.contains_key(&piece)
    }

    /// A piece passed verification and is stored.
    pub fn stored(&mut self, now: Duration, piece: u32) {
        if let Some(expected) = self.expected.remove(&piece)
            && let Some(neighbour) = self.neighbours.get_mut(&expected.from)
        {
            (neighbour.broken, neighbour.taken_back, neighbour.useful) = (0, 0, now);
            // Stored without its last byte: it came by another way.
            if let Some(coming) = neighbour.coming.get_mut(&piece).filter(|coming| !coming.cancelled) {
                coming.cancelled = true;
                self.messages.push((expected.from, Message::Cancel(piece)));
            }
        }
        if self.held.insert(piece) {
            self.note_news(now, piece);
            self.arrived(piece);
        }
    }

    /// A piece that was held turned out to be damaged on this node's own disk: it is missing again, and all are told with
    /// the next messages, once however many there are.
    pub fn forget(&mut self, piece: u32) {
        if self.held.remove(piece) {
            self.lost = true;
            self.lose(piece);
        }
    }

    /// Answers an offer: the first piece that is neither here nor on its way, or else one that another keeps waiting.
    pub(super) fn offered(&mut self, now: Duration, peer: NodeId, wait_ms: u32, pieces: &[u32]) {
        pieces.iter().for_each(|piece| self.note_has(peer, *piece));
        let coming = u64::try_from(self.expected.len()).unwrap_or(u64::MAX).saturating_mul(self.layout.piece_bytes());
        let most = BLOB_EXPECTED_BYTES.min(self.terms.room_bytes.max(1));
        let room = self.expected.len() < BLOB_EXPECTED_PIECES && coming < most;
        let busy = |piece: &u32| self.neighbours.get(&peer).is_some_and(|it| it.coming.contains_key(piece));
        let wanted = |piece: &&u32| !self.held.contains(**piece) && !busy(piece);
        let due = now + Duration::from_millis(u64::from(wait_ms));
        let free = pieces.iter().filter(wanted).find(|piece| !self.expected.contains_key(piece));
        let room_of = free.filter(|_| !room).and_then(|_| self.furthest(now, peer, due));
        let free = free.filter(|_| room || room_of.is_some());
        let slow = || pieces.iter().filter(wanted).find(|piece| self.is_slow(now, peer, due, **piece));
        let takes = self.terms.takes && !self.is_behind(now, peer) && self.may_promise(peer);
        let Some(piece) = free.or_else(slow).copied().filter(|_| takes) else {
            self.messages.push((peer, Message::Pass));
            return;
        };
        room_of.into_iter().for_each(|given_up| self.cancel_expected(given_up));
        self.cancel_expected(piece);
        self.expected.insert(piece, Expected { from: peer, since: now, touched: now, due, bytes: 0, whole: false });
        if let Some(neighbour) = self.neighbours.get_mut(&peer) {
            if neighbour.coming.is_empty() {
                neighbour.giving.restart(now);
            }
            neighbour.coming.insert(piece, super::neighbour::Coming::default());
        }
        self.messages.push((peer, Message::Take(piece)));
    }

    /// Whether a neighbour may promise one more piece: nobody keeps more waiting than it sends in a while.
    fn may_promise(&self, peer: NodeId) -> bool {
        let owed = self.expected.values().filter(|expected| expected.from == peer && !expected.whole).count();
        let owed_bytes = u64::try_from(owed).unwrap_or(u64::MAX).saturating_mul(self.layout.piece_bytes());
        self.neighbours.get(&peer).is_some_and(|it| it.may_promise(owed_bytes, self.layout.piece_bytes()))
    }

    /// The promise that is furthest from being kept, of those of others that have hardly begun to come: it makes room for a
    /// piece that would come clearly earlier.
    fn furthest(&self, now: Duration, peer: NodeId, due: Duration) -> Option<u32> {
        let hardly = |piece: u32, bytes: usize| self.layout.length(piece).is_some_and(|length| bytes.saturating_mul(8) < length);
        let others = self.expected.iter().filter(|(piece, it)| it.from != peer && !it.whole && hardly(**piece, it.bytes));
        let others = others.filter(|(_, it)| !self.waits_for_this_node(now, it));
        let (piece, left) = others.map(|(piece, it)| (*piece, left_until(now, it.due))).max_by_key(|(_, left)| *left)?;
        (left > due.saturating_sub(now) * 2 + CLEARLY * 4).then_some(piece)
    }

    /// Whether what was promised may wait for nothing but this node, which bounds what it takes: nobody is slow then, for a while.
    fn waits_for_this_node(&self, now: Duration, expected: &Expected) -> bool {
        self.terms.room_bytes < BLOB_EXPECTED_BYTES && now.saturating_sub(expected.touched) < PROMISED
    }

    /// Whether a neighbour owes a piece that should have come, or begun to come, long ago: it is given no more to do until it
    /// comes. However long it says that it will take, there is a time by which it should.
    fn is_behind(&self, now: Duration, peer: NodeId) -> bool {
        let mut owed = self.expected.values().filter(|expected| expected.from == peer);
        owed.any(|expected| self.is_overdue(now, expected))
    }

    /// Whether a piece should have come, or begun to come, long ago.
    pub(super) fn is_overdue(&self, now: Duration, expected: &Expected) -> bool {
        let grace = BEHIND.max(self.usual * 2);
        let by = expected.due.min(expected.since + BEHIND_AT_MOST + self.usual * 8);
        !expected.whole && expected.touched.max(by) + grace < now
    }

    /// Whether a piece that another promised is better taken from who would send it by `due`: it would come clearly
    /// earlier. What is coming already must be very late, for its bytes would be lost.
    fn is_slow(&self, now: Duration, peer: NodeId, due: Duration, piece: u32) -> bool {
        let Some(expected) = self.expected.get(&piece).filter(|it| it.from != peer && !it.whole) else { return false };
        if self.waits_for_this_node(now, expected) {
            return false;
        }
        let old = left_until(now, expected.due);
        let new = due.saturating_sub(now);
        if expected.bytes == 0 { old > new + CLEARLY } else { old > new * 2 + CLEARLY * 4 }
    }

    /// Tells whoever promised the piece that it comes from another.
    fn cancel_expected(&mut self, piece: u32) {
        let Some(old) = self.expected.remove(&piece) else { return };
        if let Some(coming) = self.neighbours.get_mut(&old.from).and_then(|it| it.coming.get_mut(&piece)) {
            coming.cancelled = true;
            self.messages.push((old.from, Message::Cancel(piece)));
        }
        self.lose(piece);
    }

    /// A neighbour will not send what it promised, or not the rest of it: it does not have the piece, unless it says so again.
    pub(super) fn withdrawn(&mut self, peer: NodeId, piece: u32) {
        let Some(neighbour) = self.neighbours.get_mut(&peer) else { return };
        let had_begun = neighbour.coming.remove(&piece).is_some_and(|coming| coming.bytes > 0);
        if neighbour.has.as_mut().is_some_and(|has| has.remove(piece)) {
            let owed = self.queue.iter().any(|it| it.peer == peer && it.piece == piece);
            if !owed {
                self.unmark(peer, piece);
            }
        }
        // What this node cancelled is not expected of it any more.
        if self.expected.get(&piece).is_some_and(|expected| expected.from == peer && !expected.whole) {
            self.expected.remove(&piece);
            if let Some(neighbour) = self.neighbours.get_mut(&peer) {
                // It may have promised what was about to arrive there.
                neighbour.taken_back += u32::from(!had_begun);
                if had_begun {
                    neighbour.broken += 1;
                } else if neighbour.taken_back >= BLOB_TAKEN_BACK {
                    neighbour.broken = BLOB_BROKEN;
                }
            }
            self.lose(piece);
        }
    }

    /// Gives up what was promised and does not come, so that others may bring it.
    pub(super) fn give_up_late(&mut self, now: Duration) {
        let patience = PROMISED.max(self.usual * 8);
        // A thin line carries one piece after another: what waits behind one that comes is not late.
        let moves = |expected: &&Expected| expected.bytes > 0 && now.saturating_sub(expected.touched) <= patience;
        let moving: BTreeSet<NodeId> = self.expected.values().filter(moves).map(|expected| expected.from).collect();
        let late = |expected: &Expected| {
            let due = expected.due.min(expected.since + DUE_AT_MOST);
            let waited = now.saturating_sub(expected.touched.max(due));
            !expected.whole && waited > patience && (expected.bytes > 0 || !moving.contains(&expected.from))
        };
        let given_up: Vec<(u32, NodeId)> = self
            .expected
            .iter()
            .filter(|(_, expected)| late(expected))
            .map(|(piece, expected)| (*piece, expected.from))
            .collect();
        for (piece, peer) in given_up {
            self.cancel_expected(piece);
            if let Some(neighbour) = self.neighbours.get_mut(&peer) {
                neighbour.broken += 1;
            }
        }
    }
}

/// How long a piece still takes that is due then: what should be here already takes as long again as it is late.
fn left_until(now: Duration, due: Duration) -> Duration {
    due.saturating_sub(now) + now.saturating_sub(due)
}

/// How long the rest of a piece takes when its first bytes took `passed`.
fn left_for(passed: Duration, bytes: usize, whole: usize) -> Duration {
    let left = u32::try_from(whole.saturating_sub(bytes)).unwrap_or(u32::MAX);
    passed.saturating_mul(left) / u32::try_from(bytes).unwrap_or(u32::MAX).max(1)
}

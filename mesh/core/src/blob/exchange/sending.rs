//! What others took here, in the order in which it is sent, and how much of it the windows have room for.

use core::time::Duration;

use super::counts::in_step;
use super::message::Message;
use super::neighbour::{Neighbour, Sent};
use super::pace::underway;
use super::{Breach, Exchange};
use crate::limits::BLOB_WIRE_BYTES;
use crate::node_id::NodeId;

/// A piece that was sent to a neighbour which does not announce it may be offered to it again after this.
const MARK_FOR: Duration = Duration::from_secs(3);

/// A piece that a neighbour took, as far as it was not sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub(super) peer: NodeId,
    pub(super) piece: u32,
    pub(super) offset: usize,
    pub(super) length: usize,
    /// Whether the piece is here; it may have been taken before.
    pub(super) here: bool,
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

impl Exchange {
    /// The piece whose bytes are wanted next and are not at hand: one of the two that would be sent next if all were, so that
    /// no more is read ahead than that.
    #[must_use]
    pub fn next_to_read(&self, now: Duration, is_ready: impl Fn(u32) -> bool) -> Option<u32> {
        let first = self.next_sending(now, |_| true).and_then(|at| self.queue.get(at))?;
        if !is_ready(first.piece) {
            return Some(first.piece);
        }
        let second = self.next_sending(now, |piece| piece != first.piece).and_then(|at| self.queue.get(at))?;
        (!is_ready(second.piece)).then_some(second.piece)
    }

    /// The next bytes to send, counted as sent from now on; `None` when nothing is due or the windows are full.
    pub fn next_part(&mut self, now: Duration) -> Option<Outgoing> {
        self.next_part_of(now, |_| true)
    }

    /// The same of pieces that are at hand: one that a disk is slow to give keeps no other waiting.
    pub fn next_part_of(&mut self, now: Duration, mut is_ready: impl FnMut(u32) -> bool) -> Option<Outgoing> {
        let Some(at) = self.next_sending(now, &mut is_ready) else {
            if self.queue.iter().all(|sending| !sending.here || is_ready(sending.piece)) {
                self.note_dry(now);
            }
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
        neighbour.sent.push_back(Sent { at: now, bytes });
        if last {
            neighbour.queued -= 1;
            neighbour.marks.insert((in_step(now + MARK_FOR + self.usual), piece));
            self.queue.remove(at);
        }
        Some(Outgoing { peer, piece, offset, length, last })
    }

    /// Whether somebody may still take a piece from here, or is to be sent it: what nobody takes need not be kept at hand.
    #[must_use]
    pub fn may_be_taken(&self, piece: u32) -> bool {
        let lacks = |it: &Neighbour| it.takes && !it.has(piece);
        self.terms.serves && (self.neighbours.values().any(lacks) || self.queue.iter().any(|sending| sending.piece == piece))
    }

    /// A piece that is held cannot be read: it is missing again, and whoever took it is told.
    pub fn unreadable(&mut self, piece: u32) {
        self.forget(piece);
    }

    /// A neighbour takes a piece of its oldest open offer.
    pub(super) fn taken(&mut self, now: Duration, peer: NodeId, piece: u32) -> Result<(), Breach> {
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
        // Said already, but not heard there when this was said.
        if open.withdrawn.contains(&piece) {
            return Ok(());
        }
        let here = self.held.contains(piece);
        neighbour.queued += 1;
        if here {
            neighbour.queued_bytes += u64::try_from(length).expect("a piece has 1 MiB at most");
        }
        self.queue.push_back(Sending { peer, piece, offset: 0, length, here });
        self.count_given(peer, piece);
        Ok(())
    }

    /// A neighbour does not need a piece any more that it took.
    pub(super) fn cancelled(&mut self, now: Duration, peer: NodeId, piece: u32) {
        if !self.drop_sending(peer, piece) {
            return;
        }
        let until = self.passed_until(now);
        if let Some(neighbour) = self.neighbours.get_mut(&peer) {
            neighbour.marks.insert((until, piece));
            neighbour.called_off += 1;
        }
        self.messages.push((peer, Message::Withdraw(piece)));
        // A withdrawal says that it is not here.
        if self.held.contains(piece) {
            self.messages.push((peer, Message::Have(alloc::vec![piece])));
        }
    }

    /// Sends no more of a piece to a neighbour. Returns whether it was to be sent.
    pub(super) fn drop_sending(&mut self, peer: NodeId, piece: u32) -> bool {
        let Some(at) = self.queue.iter().position(|sending| sending.peer == peer && sending.piece == piece) else { return false };
        let Some(sending) = self.queue.remove(at) else { return false };
        if let Some(neighbour) = self.neighbours.get_mut(&peer) {
            neighbour.queued -= 1;
            if sending.here {
                neighbour.queued_bytes -= sending.left();
            }
        }
        true
    }

    /// Whether something is to be sent that is here.
    pub(super) fn has_sending(&self) -> bool {
        self.queue.iter().any(|sending| sending.here)
    }

    /// Nothing can be sent: if the uplink could carry more and answers are waited for, or whoever has something to come takes
    /// no more now, more is offered from now on.
    fn note_dry(&mut self, now: Duration) {
        let held_up = self.has_sending();
        let waits = |it: &&Neighbour| (!it.offers.is_empty() && !it.is_late(now)) || (held_up && it.is_open(now));
        let mut open = self.neighbours.values().filter(waits);
        let Some(answer) = open.next().map(|it| it.answer) else { return };
        if self.wire_bytes(now) * 4 < self.pace.uplink.wire_bytes(Duration::ZERO) {
            self.pace.ran_dry(now, answer);
        }
    }

    /// What is begun first, then the rarest, then what was taken first: a rare piece that waits behind common ones keeps
    /// many uplinks waiting.
    fn next_sending(&self, now: Duration, mut is_ready: impl FnMut(u32) -> bool) -> Option<usize> {
        let mut best: Option<((bool, u16), usize)> = None;
        let on_wire: u64 = self.neighbours.values().map(|neighbour| neighbour.on_wire).sum();
        let left = BLOB_WIRE_BYTES.saturating_sub(on_wire);
        for (at, sending) in self.queue.iter().enumerate().filter(|(_, sending)| sending.here) {
            let order = (sending.offset == 0, self.owners_of(sending.piece));
            let is_better = best.is_none_or(|(least, _)| order < least);
            let is_free = |it: &Neighbour| it.has_window() && !it.is_stuck(now) && it.on_wire < left;
            if is_better && is_ready(sending.piece) && self.neighbours.get(&sending.peer).is_some_and(is_free) {
                best = Some((order, at));
            }
        }
        best.map(|(_, at)| at)
    }

    /// Bytes that may still be in front of the uplink or underway: not those that a neighbour is slow to acknowledge.
    pub(super) fn wire_bytes(&self, now: Duration) -> u64 {
        let nearest = self.neighbours.values().filter_map(Neighbour::measured_delay).min().unwrap_or_default();
        let since = self.left.max(now.saturating_sub(underway(nearest)));
        self.neighbours.values().map(|other| other.sent_since(since)).sum()
    }
}

impl Sending {
    pub(super) fn left(&self) -> u64 {
        u64::try_from(self.length - self.offset).expect("a piece has 1 MiB at most")
    }
}

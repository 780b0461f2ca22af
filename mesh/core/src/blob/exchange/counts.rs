//! Who counts as having which piece, and what is not offered to whom for now.

use core::time::Duration;

use super::Exchange;
use crate::node_id::NodeId;

/// A piece that a neighbour passed over is not offered to it again for this long, and as long as pieces usually take.
const PASSED_FOR: Duration = Duration::from_millis(200);
/// Marks end at multiples of this.
const MARK_STEP: Duration = Duration::from_millis(50);

impl Exchange {
    /// Lets marks end that are no certain knowledge.
    pub(super) fn end_marks(&mut self, now: Duration) {
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

    /// A neighbour says that it has a piece.
    pub(super) fn note_has(&mut self, peer: NodeId, piece: u32) {
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
    pub(super) fn unmark(&mut self, peer: NodeId, piece: u32) {
        let Some(neighbour) = self.neighbours.get_mut(&peer) else { return };
        neighbour.marked.remove(piece);
        if neighbour.counted.remove(piece) {
            self.uncount(peer, piece);
        }
    }

    /// One more neighbour counts as having the piece.
    pub(super) fn count(&mut self, piece: u32) {
        raise(&mut self.owners, piece);
        if let Some(owner) = self.sole.remove(&piece)
            && let Some(owner) = self.neighbours.get_mut(&owner)
        {
            owner.sole = owner.sole.saturating_sub(1);
        }
    }

    /// One neighbour less counts as having the piece.
    pub(super) fn uncount(&mut self, peer: NodeId, piece: u32) {
        lower(&mut self.owners, piece);
        if self.sole.get(&piece) == Some(&peer) {
            self.sole.remove(&piece);
            if let Some(owner) = self.neighbours.get_mut(&peer) {
                owner.sole = owner.sole.saturating_sub(1);
            }
        }
    }

    /// A piece that goes to a neighbour from here counts as held by it.
    pub(super) fn count_given(&mut self, peer: NodeId, piece: u32) {
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
    pub(super) fn uncount_first(&mut self, peer: NodeId, pieces: &[u32]) {
        let Some(first) = pieces.first() else { return };
        if let Some(neighbour) = self.neighbours.get_mut(&peer)
            && !neighbour.has(*first)
            && neighbour.counted.remove(*first)
        {
            self.uncount(peer, *first);
        }
    }

    /// Until when a piece that a neighbour passed over now is not offered to it.
    pub(super) fn passed_until(&self, now: Duration) -> Duration {
        in_step(now + PASSED_FOR.max(self.usual))
    }

    pub(super) fn owners_of(&self, piece: u32) -> u16 {
        index(piece).and_then(|at| self.owners.get(at)).copied().unwrap_or(0)
    }
}

/// Marks end in steps, many at once: each end may be a reason to wake up.
pub(super) fn in_step(until: Duration) -> Duration {
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

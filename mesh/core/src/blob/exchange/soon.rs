//! Pieces that are about to arrive. A rare one is offered before it is here, so that it goes on the moment it is whole: its
//! neighbour's answer is here by then, and a hop costs one way instead of three.
//!
//! What was offered so and comes to nothing is withdrawn: from the queue, from the offers that name it, and from whoever
//! takes it for held here.

use alloc::vec::Vec;
use core::time::Duration;

use super::Exchange;
use super::message::Message;
use crate::node_id::NodeId;

/// A piece that more neighbours have than this is carried on by others as well.
const RARE: u16 = 4;
/// What is late by more than this is not about to arrive.
const LATE_BY: Duration = Duration::from_millis(100);

/// A piece that is on its way here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Soon {
    pub(super) piece: u32,
    /// In how long it is likely to be whole.
    pub(super) left: Duration,
    /// How many neighbours count as having it.
    pub(super) owners: u16,
}

impl Exchange {
    /// The rare pieces that are about to arrive.
    pub(super) fn soon(&self, now: Duration) -> Vec<Soon> {
        let rare = self.expected.iter().filter_map(|(piece, expected)| {
            let timely = expected.whole || expected.due.max(expected.touched) + LATE_BY >= now;
            let owners = self.owners_of(*piece);
            (timely && owners <= RARE).then(|| Soon { piece: *piece, left: expected.due.saturating_sub(now), owners })
        });
        rare.collect()
    }

    /// Whoever was promised a piece that does not begin to come here is told so, and looks for it elsewhere: it would wait for
    /// this node, and take nothing else from it, as long as this node waits for another.
    pub(super) fn withdraw_overdue(&mut self, now: Duration) {
        let overdue = self.expected.iter().filter(|(_, it)| it.bytes == 0 && self.is_overdue(now, it));
        let promised = |piece: &u32| {
            let is_taken = self.queue.iter().any(|sending| sending.piece == *piece);
            is_taken || self.neighbours.values().any(|neighbour| neighbour.early.contains(piece))
        };
        let pieces: Vec<u32> = overdue.map(|(piece, _)| *piece).filter(promised).collect();
        pieces.into_iter().for_each(|piece| self.lose(piece));
    }

    /// A piece of an offer: in how long it is here, and whether it is not yet.
    pub(super) fn left_of(&self, now: Duration, piece: u32) -> Option<Duration> {
        if self.held.contains(piece) {
            return None;
        }
        self.expected.get(&piece).map(|expected| expected.due.saturating_sub(now))
    }

    /// A piece is neither here nor on its way any more. Whoever was offered it, took it or was told of it hears that it will
    /// not come.
    pub(super) fn lose(&mut self, piece: u32) {
        let told: Vec<NodeId> =
            self.neighbours.iter().filter(|(_, it)| it.early.contains(&piece)).map(|(peer, _)| *peer).collect();
        let takers: Vec<NodeId> = self.queue.iter().filter(|it| it.piece == piece).map(|it| it.peer).collect();
        let offered = self.neighbours.iter().filter(|(_, it)| it.offers.iter().any(|open| open.pieces.contains(&piece)));
        let mut all: Vec<NodeId> = offered.map(|(peer, _)| *peer).chain(told).chain(takers).collect();
        all.sort_unstable();
        all.dedup();
        for peer in all {
            self.drop_sending(peer, piece);
            let Some(neighbour) = self.neighbours.get_mut(&peer) else { continue };
            neighbour.early.remove(&piece);
            // Its answer is on its way, and may name the piece.
            for open in neighbour.offers.iter_mut().filter(|open| open.pieces.contains(&piece)) {
                open.withdrawn.insert(piece);
            }
            if !neighbour.has(piece) {
                self.unmark(peer, piece);
            }
            self.messages.push((peer, Message::Withdraw(piece)));
        }
    }

    /// A piece is here: what was taken of it goes out, and what was said of it is true.
    pub(super) fn arrived(&mut self, piece: u32) {
        let Self { queue, neighbours, .. } = self;
        neighbours.values_mut().for_each(|neighbour| {
            neighbour.early.remove(&piece);
        });
        for sending in queue.iter_mut().filter(|it| it.piece == piece && !it.here) {
            sending.here = true;
            if let Some(neighbour) = neighbours.get_mut(&sending.peer) {
                neighbour.queued_bytes += sending.left();
            }
        }
    }
}

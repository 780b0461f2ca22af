//! What the task of a blob lets be seen of it: a picture, a few times a second at most.

use std::collections::BTreeSet;
use std::time::Duration;

use groundswell_core::blob::PieceSet;
use groundswell_core::node_id::NodeId;
use tokio::time::Instant;

use super::Swarm;
use crate::pieces::glimpse::{Gauge, Glimpse, Neighbour};

/// How often a picture is taken while the same neighbours take part.
const TAKEN_EVERY: Duration = Duration::from_millis(500);
/// Of so many that have everything it is remembered that they do; all say so in their records too.
const COMPLETED: usize = 1_024;

/// What is kept for the pictures.
#[derive(Default)]
pub(super) struct Seen {
    taken: Option<Instant>,
    neighbours: BTreeSet<NodeId>,
    completed: BTreeSet<NodeId>,
}

/// Bytes to and from a neighbour.
#[derive(Clone, Copy, Default)]
pub(super) struct Moved {
    pub(super) sent: Gauge,
    pub(super) received: Gauge,
}

impl Swarm {
    /// Takes a picture when it is time, or when others take part than before. Returns whether it did.
    pub(super) fn picture(&mut self) -> bool {
        let same = self.strands.keys().eq(self.seen.neighbours.iter());
        if same && self.seen.taken.is_some_and(|taken| taken.elapsed() < TAKEN_EVERY) {
            return false;
        }
        self.moved.retain(|peer, _| self.strands.contains_key(peer));
        self.seen.taken = Some(Instant::now());
        self.seen.neighbours = self.strands.keys().copied().collect();
        let neighbours: Vec<Neighbour> = self
            .exchange
            .holdings()
            .map(|(peer, holds)| {
                let Moved { sent, received } = self.moved.get(&peer).copied().unwrap_or_default();
                Neighbour { peer, holds: holds.cloned(), sent, received }
            })
            .collect();
        for neighbour in neighbours.iter().filter(|it| it.holds.as_ref().is_some_and(PieceSet::is_full)) {
            if self.seen.completed.len() < COMPLETED {
                self.seen.completed.insert(neighbour.peer);
            }
        }
        let completed = self.seen.completed.iter().filter(|peer| !self.strands.contains_key(*peer)).copied().collect();
        let glimpse = Glimpse { held: self.exchange.held().held(), pieces: self.layout.count(), neighbours, completed };
        self.shared.glimpses().insert(self.blob, glimpse);
        true
    }

    /// It has everything, and is about to be let go.
    pub(super) fn note_complete(&mut self, peer: NodeId) {
        if self.seen.completed.len() < COMPLETED {
            self.seen.completed.insert(peer);
        }
    }
}

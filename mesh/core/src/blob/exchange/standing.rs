//! How an exchange stands, for whoever shows it.

use core::time::Duration;

use super::Exchange;
use super::neighbour::Neighbour;
use crate::blob::piece_set::PieceSet;
use crate::node_id::NodeId;

/// A neighbour that gave nothing for so long is no source.
const GIVES_WITHIN: Duration = Duration::from_secs(30);

/// How an exchange stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Neighbours that take part.
    pub peers: usize,
    /// Whether some neighbour has some piece that is missing here. What one says that has given nothing for
    /// half a minute does not count.
    pub has_source: bool,
    /// Whole copies among the neighbours, in parts per million: pieces that they hold ÷ pieces of the blob.
    pub copies_ppm: u64,
    /// Neighbours that hold everything.
    pub peers_complete: usize,
}

impl Exchange {
    /// How the exchange stands.
    #[must_use]
    pub fn standing(&self, now: Duration) -> Standing {
        let gives = |neighbour: &&Neighbour| now.saturating_sub(neighbour.gave) < GIVES_WITHIN;
        let has = |piece: u32| self.neighbours.values().filter(gives).any(|neighbour| neighbour.has(piece));
        let owned: u64 = self.neighbours.values().filter_map(|it| it.has.as_ref()).map(|has| u64::from(has.held())).sum();
        Standing {
            peers: self.neighbours.len(),
            has_source: self.held.missing().any(has),
            copies_ppm: owned.saturating_mul(1_000_000) / u64::from(self.layout.count()),
            peers_complete: self.neighbours.values().filter(|it| it.has.as_ref().is_some_and(PieceSet::is_full)).count(),
        }
    }

    /// What each neighbour said it holds: pieces.
    pub fn neighbours(&self) -> impl Iterator<Item = (NodeId, u32)> + '_ {
        self.neighbours.iter().map(|(peer, neighbour)| (*peer, neighbour.has.as_ref().map_or(0, PieceSet::held)))
    }
}

//! Pieces in memory: those that were read or came last, since a piece goes out in parts and to several neighbours.

use std::collections::VecDeque;
use std::sync::Arc;

/// What they take together, at least one piece.
const CACHED_BYTES: usize = 8 * 1024 * 1024;

/// The last pieces.
#[derive(Debug, Default)]
pub(super) struct Cache {
    pieces: VecDeque<(u32, Arc<Vec<u8>>)>,
    bytes: usize,
}

impl Cache {
    pub(super) fn get(&self, piece: u32) -> Option<Arc<Vec<u8>>> {
        self.pieces.iter().rev().find(|(number, _)| *number == piece).map(|(_, bytes)| Arc::clone(bytes))
    }

    pub(super) fn put(&mut self, piece: u32, bytes: Arc<Vec<u8>>) {
        if self.pieces.iter().any(|(number, _)| *number == piece) {
            return;
        }
        self.bytes += bytes.len();
        self.pieces.push_back((piece, bytes));
        while self.bytes > CACHED_BYTES && self.pieces.len() > 1 {
            let Some((_, old)) = self.pieces.pop_front() else { return };
            self.bytes -= old.len();
        }
    }

    pub(super) fn clear(&mut self) {
        (self.pieces, self.bytes) = (VecDeque::new(), 0);
    }
}

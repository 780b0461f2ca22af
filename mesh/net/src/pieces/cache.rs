//! Pieces in memory, of all swarms together: those that were read or came last, since a piece goes out in parts and to several
//! neighbours.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use groundswell_core::digest::Digest;

/// What they take together, at least one piece.
const CACHED_BYTES: usize = 16 * 1024 * 1024;

/// The last pieces.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<Pieces>);

#[derive(Debug, Default)]
struct Pieces {
    pieces: VecDeque<(Digest, u32, Arc<Vec<u8>>)>,
    bytes: usize,
}

impl Cache {
    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.0.lock().expect("no holder of this lock panics")
    }

    pub(super) fn get(&self, blob: &Digest, piece: u32) -> Option<Arc<Vec<u8>>> {
        let pieces = self.pieces();
        let found = pieces.pieces.iter().rev().find(|(of, number, _)| of == blob && *number == piece);
        found.map(|(_, _, bytes)| Arc::clone(bytes))
    }

    pub(super) fn put(&self, blob: Digest, piece: u32, bytes: Arc<Vec<u8>>) {
        let mut pieces = self.pieces();
        if pieces.pieces.iter().any(|(of, number, _)| *of == blob && *number == piece) {
            return;
        }
        pieces.bytes += bytes.len();
        pieces.pieces.push_back((blob, piece, bytes));
        while pieces.bytes > CACHED_BYTES && pieces.pieces.len() > 1 {
            let Some((_, _, old)) = pieces.pieces.pop_front() else { return };
            pieces.bytes -= old.len();
        }
    }

    /// What they take together.
    pub(super) fn bytes(&self) -> usize {
        self.pieces().bytes
    }

    /// Forgets what is kept of one blob.
    pub(super) fn clear(&self, blob: &Digest) {
        self.keep(blob, |_| false);
    }

    /// Forgets the pieces of one blob that are not wanted any more.
    pub(super) fn keep(&self, blob: &Digest, wanted: impl Fn(u32) -> bool) {
        let mut pieces = self.pieces();
        pieces.pieces.retain(|(of, piece, _)| of != blob || wanted(*piece));
        pieces.bytes = pieces.pieces.iter().map(|(_, _, bytes)| bytes.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_blobs_together_take_no_more_than_the_bound_and_each_keeps_its_own_pieces() {
        let cache = Cache::default();
        let blob = |n: u8| Digest([n; 32]);
        let piece = |byte: u8| Arc::new(vec![byte; 1024 * 1024]);
        (0..64).for_each(|n| cache.put(blob(n), 7, piece(n)));
        let kept: Vec<u8> = (0..64).filter(|n| cache.get(&blob(*n), 7).is_some()).collect();
        assert_eq!(kept, (48..64).collect::<Vec<u8>>());
        assert_eq!(cache.get(&blob(63), 7).as_deref(), Some(&vec![63; 1024 * 1024]));
        cache.clear(&blob(63));
        assert_eq!(cache.get(&blob(63), 7), None);
        cache.put(blob(62), 8, piece(62));
        cache.keep(&blob(62), |piece| piece == 8);
        assert_eq!([7, 8].map(|piece| cache.get(&blob(62), piece).is_some()), [false, true]);
        cache.put(blob(1), 8, piece(1));
        assert!(cache.get(&blob(48), 7).is_some(), "what was cleared makes room");
    }
}

//! The sha256 of a download while it comes: it goes over the pieces that are here from the first on, so that at the end only
//! the rest is left.
//!
//! It lives in memory alone; after a restart it begins anew and catches up from the disk, a little after each piece that
//! comes. A piece that comes in its turn is hashed as it is in memory. What the disk made of it afterwards is seen by
//! whoever reads it: each piece is checked before it is sent, and the whole file again when it is staged.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use groundswell_core::blob::Layout;
use groundswell_core::digest::Digest;
use sha2::{Digest as _, Sha256};

/// Most bytes that are caught up from the disk at once: what is to be noted of a download, and its end, wait for no more.
const CAUGHT_UP_BYTES: u64 = 2 * 1024 * 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct RunningHash {
    layout: Layout,
    hashed: Mutex<Hashed>,
}

#[derive(Debug, Default)]
struct Hashed {
    sha256: Sha256,
    /// The first piece that is not in it.
    next: u32,
}

impl RunningHash {
    pub(super) fn new(layout: Layout) -> Self {
        Self { layout, hashed: Mutex::default() }
    }

    fn hashed(&self) -> MutexGuard<'_, Hashed> {
        // Half a step is only left by a panic inside the digest; then the whole file does not have it either.
        self.hashed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece was written. Takes it in when it is the next one. Does nothing while another thread does.
    pub(super) fn advance(&self, piece: u32, bytes: &[u8]) {
        let Ok(mut hashed) = self.hashed.try_lock() else { return };
        if hashed.next == piece {
            hashed.sha256.update(bytes);
            hashed.next += 1;
        }
    }

    /// Takes in some of what follows and is `held`. Does nothing while another thread does.
    pub(super) fn catch_up(&self, file: &File, held: impl Fn(u32) -> bool) -> io::Result<()> {
        let Ok(mut hashed) = self.hashed.try_lock() else { return Ok(()) };
        let mut left = CAUGHT_UP_BYTES / self.layout.piece_bytes();
        while left > 0 && held(hashed.next) && hashed.take(file, self.layout)? {
            left -= 1;
        }
        Ok(())
    }

    /// The digest of the whole file; what is not in it yet is read. Begins anew afterwards.
    pub(super) fn finish(&self, file: &File) -> io::Result<Digest> {
        let mut hashed = self.hashed();
        while hashed.take(file, self.layout)? {}
        Ok(Digest(std::mem::take(&mut *hashed).sha256.finalize().into()))
    }

    /// How many pieces are in it.
    #[cfg(test)]
    fn pieces(&self) -> u32 {
        self.hashed().next
    }
}

impl Hashed {
    /// Reads the next piece from the file; `false` when there is none, or the file was cut short.
    fn take(&mut self, file: &File, layout: Layout) -> io::Result<bool> {
        let Some((range, length)) = layout.range(self.next).zip(layout.length(self.next)) else { return Ok(false) };
        let mut bytes = vec![0; length];
        match file.read_exact_at(&mut bytes, range.start) {
            Ok(()) => {
                self.sha256.update(&bytes);
                self.next += 1;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const PIECE: usize = 65_536;

    fn write(running: &RunningHash, file: &File, content: &[u8], held: &mut BTreeSet<u32>, piece: u32) {
        let range = running.layout.range(piece).unwrap();
        let bytes = content.get(usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()).unwrap();
        file.write_all_at(bytes, range.start).unwrap();
        held.insert(piece);
        running.advance(piece, bytes);
        running.catch_up(file, |piece| held.contains(&piece)).unwrap();
    }

    #[test]
    fn pieces_in_order_leave_nothing_to_read_at_the_end() {
        let content: Vec<u8> = (0..5 * PIECE + 7).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let running = RunningHash::new(Layout::of(content.len() as u64).unwrap());
        let file = tempfile::tempfile().unwrap();
        let mut held = BTreeSet::new();
        (0..6).for_each(|piece| write(&running, &file, &content, &mut held, piece));
        assert_eq!(running.pieces(), 6);
        file.set_len(0).unwrap();
        assert_eq!(running.finish(&file).unwrap(), Digest::of(&content), "without a byte of the file");
    }

    #[test]
    fn one_piece_that_closes_a_gap_takes_a_bounded_part_of_what_waits_behind_it() {
        let content = vec![7; 200 * PIECE];
        let running = RunningHash::new(Layout::of(content.len() as u64).unwrap());
        let file = tempfile::tempfile().unwrap();
        let mut held = BTreeSet::new();
        (1..200).for_each(|piece| write(&running, &file, &content, &mut held, piece));
        assert_eq!(running.pieces(), 0);
        write(&running, &file, &content, &mut held, 0);
        assert_eq!(u64::from(running.pieces()), 1 + CAUGHT_UP_BYTES / PIECE as u64);
        assert_eq!(running.finish(&file).unwrap(), Digest::of(&content));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn in_whatever_order_and_however_often_pieces_come_the_digest_is_the_files(
            tail in 1..PIECE,
            order in Just((0..40_u32).collect::<Vec<_>>()).prop_shuffle(),
            again in prop::collection::vec(0..40_u32, 0..20),
        ) {
            let content: Vec<u8> = (0..39 * PIECE + tail).map(|at| u8::try_from((at / 3) % 251).unwrap()).collect();
            let running = RunningHash::new(Layout::of(content.len() as u64).unwrap());
            let file = tempfile::tempfile().unwrap();
            file.set_len(content.len() as u64).unwrap();
            let mut held = BTreeSet::new();
            for (nth, piece) in order.iter().enumerate() {
                write(&running, &file, &content, &mut held, *piece);
                if let Some(again) = again.get(nth).filter(|again| held.contains(again)) {
                    write(&running, &file, &content, &mut held, *again);
                }
            }
            prop_assert_eq!(running.finish(&file).unwrap(), Digest::of(&content));
            prop_assert_eq!(running.finish(&file).unwrap(), Digest::of(&content), "and once more from the disk");
        }
    }
}

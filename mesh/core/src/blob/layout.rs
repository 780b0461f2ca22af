//! How a blob is cut into pieces: a pure function of its size.

use core::ops::Range;

use crate::limits::{BLOB_BYTES, LARGE_PIECE_BYTES, MEDIUM_BLOB_BYTES, MEDIUM_PIECE_BYTES, SMALL_BLOB_BYTES, SMALL_PIECE_BYTES};

/// The pieces of a blob: all of one power-of-two size but the last, which has what is left (at least one byte).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    size_bytes: u64,
    piece_bytes: u64,
    count: u32,
}

/// Why a size has no layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// An empty file is never a blob (case B1).
    #[error("a blob has at least one byte")]
    Empty,
    /// Larger than [`BLOB_BYTES`].
    #[error("a blob of {0} bytes is larger than {BLOB_BYTES}")]
    TooLarge(u64),
}

impl Layout {
    /// The layout of a blob of `size_bytes`.
    ///
    /// # Errors
    /// When the size is 0 or above [`BLOB_BYTES`].
    pub fn of(size_bytes: u64) -> Result<Self, LayoutError> {
        let piece_bytes = match size_bytes {
            0 => return Err(LayoutError::Empty),
            size if size <= SMALL_BLOB_BYTES => SMALL_PIECE_BYTES,
            size if size <= MEDIUM_BLOB_BYTES => MEDIUM_PIECE_BYTES,
            size if size <= BLOB_BYTES => LARGE_PIECE_BYTES,
            _ => return Err(LayoutError::TooLarge(size_bytes)),
        };
        let count = u32::try_from(size_bytes.div_ceil(piece_bytes)).expect("at most BLOB_PIECES, which is 16,384");
        Ok(Self { size_bytes, piece_bytes, count })
    }

    /// Size of the blob in bytes.
    #[must_use]
    pub fn size_bytes(self) -> u64 {
        self.size_bytes
    }

    /// Size of every piece but the last, in bytes.
    #[must_use]
    pub fn piece_bytes(self) -> u64 {
        self.piece_bytes
    }

    /// How many pieces there are: 1 to [`crate::limits::BLOB_PIECES`].
    #[must_use]
    pub fn count(self) -> u32 {
        self.count
    }

    /// The bytes of the blob that make `piece`, counted from 0; `None` when there is no such piece.
    #[must_use]
    pub fn range(self, piece: u32) -> Option<Range<u64>> {
        if piece >= self.count {
            return None;
        }
        let start = u64::from(piece) * self.piece_bytes;
        Some(start..self.size_bytes.min(start + self.piece_bytes))
    }

    /// Length of `piece` in bytes, 1 to 1 MiB; `None` when there is no such piece.
    #[must_use]
    pub fn length(self, piece: u32) -> Option<usize> {
        let range = self.range(piece)?;
        usize::try_from(range.end - range.start).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::BLOB_PIECES;
    use proptest::prelude::*;

    #[test]
    fn pieces_grow_at_the_edges_that_the_design_names() {
        let cut = |size| Layout::of(size).map(|layout| (layout.piece_bytes(), layout.count()));
        assert_eq!(cut(0), Err(LayoutError::Empty));
        assert_eq!(cut(1), Ok((65_536, 1)));
        assert_eq!(cut(65_536), Ok((65_536, 1)));
        assert_eq!(cut(65_537), Ok((65_536, 2)));
        assert_eq!(cut(SMALL_BLOB_BYTES), Ok((65_536, 256)));
        assert_eq!(cut(SMALL_BLOB_BYTES + 1), Ok((131_072, 129)));
        assert_eq!(cut(MEDIUM_BLOB_BYTES), Ok((131_072, 1_526)));
        assert_eq!(cut(MEDIUM_BLOB_BYTES + 1), Ok((1_048_576, 191)));
        assert_eq!(cut(BLOB_BYTES).map(|(_, count)| u64::from(count)), Ok(BLOB_PIECES));
        assert_eq!(cut(BLOB_BYTES + 1), Err(LayoutError::TooLarge(BLOB_BYTES + 1)));
        assert_eq!(cut(u64::MAX), Err(LayoutError::TooLarge(u64::MAX)));
    }

    proptest! {
        #[test]
        fn pieces_cover_the_blob_once_and_in_order(size in 1..=BLOB_BYTES) {
            let layout = Layout::of(size).unwrap();
            let mut next = 0;
            for piece in 0..layout.count() {
                let range = layout.range(piece).unwrap();
                prop_assert_eq!(range.start, next);
                prop_assert!(range.end > range.start && range.end - range.start <= layout.piece_bytes());
                next = range.end;
            }
            prop_assert_eq!(next, size);
            prop_assert_eq!(layout.range(layout.count()), None);
        }
    }
}

//! A set of pieces of one blob: who has what, and what is still missing.

use alloc::vec;
use alloc::vec::Vec;

use super::layout::Layout;

/// Which pieces of a blob of known piece count are in the set. At most 2 KiB.
///
/// As bytes it is a bitmap: piece `p` is bit `p % 8` (lowest first) of byte `p / 8`; bits beyond the last piece are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceSet {
    count: u32,
    held: u32,
    bits: Vec<u8>,
}

/// Why bytes are not the bitmap of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PieceSetError {
    /// The bitmap of that many pieces has another length.
    #[error("a bitmap has {found} bytes where the blob's pieces need {expected}")]
    Length {
        /// Bytes that there must be.
        expected: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// A bit is set beyond the last piece.
    #[error("a bitmap names a piece beyond the last one")]
    Beyond,
}

impl PieceSet {
    /// No piece of a blob of this layout.
    #[must_use]
    pub fn empty(layout: Layout) -> Self {
        Self { count: layout.count(), held: 0, bits: vec![0; Self::bytes_for(layout)] }
    }

    /// Every piece of a blob of this layout.
    #[must_use]
    pub fn full(layout: Layout) -> Self {
        let mut set = Self::empty(layout);
        for piece in 0..layout.count() {
            set.insert(piece);
        }
        set
    }

    /// Length of the bitmap of a blob of this layout, in bytes.
    #[must_use]
    pub fn bytes_for(layout: Layout) -> usize {
        usize::try_from(layout.count().div_ceil(8)).expect("at most 2,048")
    }

    /// Reads a bitmap.
    ///
    /// # Errors
    /// When its length is not exactly that of the layout, or a bit beyond the last piece is set.
    pub fn from_bytes(layout: Layout, bytes: &[u8]) -> Result<Self, PieceSetError> {
        let expected = Self::bytes_for(layout);
        if bytes.len() != expected {
            return Err(PieceSetError::Length { expected, found: bytes.len() });
        }
        let used = layout.count() % 8;
        if used != 0 && bytes.last().is_some_and(|last| last >> used != 0) {
            return Err(PieceSetError::Beyond);
        }
        let held = bytes.iter().map(|byte| byte.count_ones()).sum();
        Ok(Self { count: layout.count(), held, bits: bytes.to_vec() })
    }

    /// The bitmap.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bits
    }

    /// How many pieces the blob has.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How many pieces are in the set.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Whether every piece is in the set.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.held == self.count
    }

    /// Whether `piece` is in the set; false for pieces that the blob does not have.
    #[must_use]
    pub fn contains(&self, piece: u32) -> bool {
        let (byte, mask) = place(piece);
        self.bits.get(byte).is_some_and(|bits| bits & mask != 0)
    }

    /// Adds a piece. Returns whether it was new; a piece that the blob does not have is never added.
    pub fn insert(&mut self, piece: u32) -> bool {
        let (byte, mask) = place(piece);
        if piece >= self.count {
            return false;
        }
        let Some(bits) = self.bits.get_mut(byte) else { return false };
        let fresh = *bits & mask == 0;
        *bits |= mask;
        self.held += u32::from(fresh);
        fresh
    }

    /// Takes a piece out. Returns whether it was in.
    pub fn remove(&mut self, piece: u32) -> bool {
        let (byte, mask) = place(piece);
        let Some(bits) = self.bits.get_mut(byte) else { return false };
        let was = *bits & mask != 0;
        *bits &= !mask;
        self.held -= u32::from(was);
        was
    }

    /// The pieces in the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.count).filter(|piece| self.contains(*piece))
    }

    /// The pieces in this set that are not in `other` (of the same blob), from the byte of `start` on, once around.
    pub fn without<'a>(&'a self, other: &'a Self, start: u32) -> impl Iterator<Item = u32> + 'a {
        let length = self.bits.len();
        let first = usize::try_from(start / 8).unwrap_or(0);
        let round = (first..length).chain(0..first.min(length));
        let bits_at = |set: &Self, at: usize| set.bits.get(at).copied().unwrap_or(0);
        let bytes = round.map(move |at| (at, bits_at(self, at) & !bits_at(other, at))).filter(|(_, bits)| *bits != 0);
        bytes.flat_map(|(at, bits)| {
            let base = u32::try_from(at).unwrap_or(0) * 8;
            (0..8).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| base + bit)
        })
    }

    /// The pieces of the blob that are not in the set, in order.
    pub fn missing(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.count).filter(|piece| !self.contains(*piece))
    }
}

fn place(piece: u32) -> (usize, u8) {
    (usize::try_from(piece / 8).expect("a usize has 32 bits or more"), 1 << (piece % 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::BLOB_BYTES;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    #[test]
    fn a_bitmap_of_the_wrong_length_or_with_bits_beyond_the_end_is_refused() {
        let layout = Layout::of(10 * 65_536).unwrap();
        assert_eq!(PieceSet::from_bytes(layout, &[]), Err(PieceSetError::Length { expected: 2, found: 0 }));
        assert_eq!(PieceSet::from_bytes(layout, &[0; 3]), Err(PieceSetError::Length { expected: 2, found: 3 }));
        assert_eq!(PieceSet::from_bytes(layout, &[0xff, 0x04]), Err(PieceSetError::Beyond));
        assert!(PieceSet::from_bytes(layout, &[0xff, 0x03]).unwrap().is_full());
    }

    #[test]
    fn a_piece_that_the_blob_does_not_have_is_never_in_the_set() {
        let mut set = PieceSet::empty(Layout::of(10 * 65_536).unwrap());
        assert!(!set.insert(10) && !set.insert(u32::MAX) && !set.remove(15) && !set.contains(u32::MAX));
        assert_eq!(set.held(), 0);
    }

    proptest! {
        #[test]
        fn the_set_does_what_a_tree_set_does(size in 1..BLOB_BYTES, moves in prop::collection::vec((any::<bool>(), 0..20_000_u32), 0..200)) {
            let layout = Layout::of(size).unwrap();
            let mut set = PieceSet::empty(layout);
            let mut model = BTreeSet::new();
            for (add, piece) in moves {
                if add && piece < layout.count() {
                    prop_assert_eq!(set.insert(piece), model.insert(piece));
                } else if !add {
                    prop_assert_eq!(set.remove(piece), model.remove(&piece));
                }
            }
            prop_assert!(set.iter().eq(model.iter().copied()));
            prop_assert_eq!(usize::try_from(set.held()).unwrap(), model.len());
            prop_assert_eq!(set.missing().count(), usize::try_from(layout.count()).unwrap() - model.len());
            prop_assert_eq!(PieceSet::from_bytes(layout, set.as_bytes()), Ok(set));
        }

        #[test]
        fn any_bytes_are_a_bitmap_or_a_typed_error(size in 1..BLOB_BYTES, bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = PieceSet::from_bytes(Layout::of(size).unwrap(), &bytes);
        }
    }
}

//! The hash list of a blob: one BLAKE3 subtree hash per piece, bound to the signed root.
//!
//! A piece is a power-of-two number of BLAKE3 chunks at a multiple of its size, so it is a whole subtree of the
//! hash tree (the last one may be short). The list of their chaining values folds up to the root; once it does,
//! each piece is verified on its own, whatever order it comes in and whoever sent it. A blob of one piece has the
//! root itself as its list. Source: the BLAKE3 paper, section 2.1.

use alloc::vec::Vec;

use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

use super::layout::Layout;
use crate::digest::Hex32;

const HASH_BYTES: usize = 32;

/// The verified hashes of a blob's pieces, in order. At most 512 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashList {
    layout: Layout,
    root: Hex32,
    hashes: Vec<[u8; HASH_BYTES]>,
}

/// Why bytes are not the hash list of a blob. State is not touched; the sender is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HashListError {
    /// Not 32 bytes for each piece.
    #[error("a hash list has {found} bytes where the blob's pieces need {expected}")]
    Length {
        /// Bytes that there must be.
        expected: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// The hashes do not fold to the signed root.
    #[error("a hash list does not lead to the signed blake3 root")]
    Root,
}

/// Why bytes are not the piece asked for. State is not touched; the sender is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PieceError {
    /// The blob has no such piece.
    #[error("the blob has no piece {0}")]
    Beyond(u32),
    /// Too short or too long.
    #[error("piece {piece} has {found} bytes instead of {expected}")]
    Length {
        /// Which piece.
        piece: u32,
        /// Bytes that it must have.
        expected: usize,
        /// Bytes that came.
        found: usize,
    },
    /// Its hash is not the one in the list.
    #[error("piece {0} does not have its blake3 hash")]
    Hash(u32),
}

impl HashList {
    /// The list of a blob of one piece, which is the root itself; `None` when the blob has more pieces.
    #[must_use]
    pub fn of_one_piece(layout: Layout, root: Hex32) -> Option<Self> {
        (layout.count() == 1).then(|| Self { layout, root, hashes: alloc::vec![root.0] })
    }

    /// Reads a list from anywhere and verifies it against the signed root.
    ///
    /// # Errors
    /// When it has not exactly 32 bytes per piece, or does not fold to `root`.
    pub fn verify(layout: Layout, root: Hex32, bytes: &[u8]) -> Result<Self, HashListError> {
        let expected = Self::bytes_for(layout);
        let (hashes, rest) = bytes.as_chunks::<HASH_BYTES>();
        if bytes.len() != expected || !rest.is_empty() {
            return Err(HashListError::Length { expected, found: bytes.len() });
        }
        if fold_root(hashes) != Some(root.0) {
            return Err(HashListError::Root);
        }
        Ok(Self { layout, root, hashes: hashes.to_vec() })
    }

    /// Length of the list of a blob of this layout, in bytes.
    #[must_use]
    pub fn bytes_for(layout: Layout) -> usize {
        usize::try_from(layout.count()).expect("at most 16,384") * HASH_BYTES
    }

    /// Whether `bytes` are `piece` of this blob.
    ///
    /// # Errors
    /// When there is no such piece, or length or hash differ.
    pub fn verify_piece(&self, piece: u32, bytes: &[u8]) -> Result<(), PieceError> {
        let range = self.layout.range(piece).ok_or(PieceError::Beyond(piece))?;
        let expected = self.layout.length(piece).ok_or(PieceError::Beyond(piece))?;
        if bytes.len() != expected {
            return Err(PieceError::Length { piece, expected, found: bytes.len() });
        }
        let index = usize::try_from(piece).map_err(|_| PieceError::Beyond(piece))?;
        let listed = self.hashes.get(index).ok_or(PieceError::Beyond(piece))?;
        // Public data: there is nothing to learn from the time that the comparison takes.
        if piece_hash(self.layout, range.start, bytes) == *listed { Ok(()) } else { Err(PieceError::Hash(piece)) }
    }

    /// The list as it travels: 32 bytes per piece.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.hashes.concat()
    }

    /// The layout that it belongs to.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The BLAKE3 root that it folds to.
    #[must_use]
    pub fn root(&self) -> Hex32 {
        self.root
    }
}

/// Builds the hash list of bytes that pass by in order, for local publishing.
#[derive(Debug)]
pub struct HashListBuilder {
    layout: Layout,
    hashes: Vec<[u8; HASH_BYTES]>,
    piece: Hasher,
    piece_filled: u64,
    seen: u64,
}

impl HashListBuilder {
    /// Starts a list for a blob of this layout.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self { layout, hashes: Vec::new(), piece: Hasher::new(), piece_filled: 0, seen: 0 }
    }

    /// Takes the next bytes. Bytes beyond the layout's size are counted, and make [`Self::finish`] fail.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = usize::try_from(self.layout.piece_bytes() - self.piece_filled).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            if self.piece_filled == 0 {
                // More pieces than the layout has cannot come out right; hash no more of them.
                if self.seen >= self.layout.size_bytes() {
                    self.seen = self.seen.saturating_add(length(bytes));
                    return;
                }
                self.piece = Hasher::new();
                self.piece.set_input_offset(self.seen);
            }
            self.piece.update(now);
            self.piece_filled += length(now);
            self.seen += length(now);
            if self.piece_filled == self.layout.piece_bytes() {
                self.close_piece();
            }
            bytes = later;
        }
    }

    /// The list, with its root; `None` when the bytes were not exactly as many as the layout says.
    #[must_use]
    pub fn finish(mut self) -> Option<HashList> {
        if self.seen != self.layout.size_bytes() {
            return None;
        }
        if self.piece_filled > 0 {
            self.close_piece();
        }
        let root = Hex32(fold_root(&self.hashes)?);
        Some(HashList { layout: self.layout, root, hashes: self.hashes })
    }

    fn close_piece(&mut self) {
        let hash = match self.layout.count() {
            1 => *self.piece.finalize().as_bytes(),
            _ => self.piece.finalize_non_root(),
        };
        self.hashes.push(hash);
        self.piece_filled = 0;
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("a usize has 64 bits or fewer")
}

fn piece_hash(layout: Layout, offset: u64, bytes: &[u8]) -> [u8; HASH_BYTES] {
    if layout.count() == 1 {
        return *blake3::hash(bytes).as_bytes();
    }
    let mut hasher = Hasher::new();
    hasher.set_input_offset(offset);
    hasher.update(bytes);
    hasher.finalize_non_root()
}

/// The root above piece hashes; `None` for no hashes.
fn fold_root(hashes: &[ChainingValue]) -> Option<[u8; HASH_BYTES]> {
    match hashes {
        [] => None,
        [only] => Some(*only),
        _ => {
            let (left, right) = hashes.split_at(left_of(hashes.len()));
            Some(*merge_subtrees_root(&fold(left), &fold(right), Mode::Hash).as_bytes())
        }
    }
}

/// The chaining value above one or more piece hashes; recursion is as deep as the tree, 14 levels at most.
fn fold(hashes: &[ChainingValue]) -> ChainingValue {
    match hashes {
        [] => unreachable!("both halves of two or more hashes have one or more"),
        [only] => *only,
        _ => {
            let (left, right) = hashes.split_at(left_of(hashes.len()));
            merge_subtrees_non_root(&fold(left), &fold(right), Mode::Hash)
        }
    }
}

/// The left subtree takes the largest power of two that is less than the whole.
fn left_of(count: usize) -> usize {
    count.div_ceil(2).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SMALL_BLOB_BYTES;
    use alloc::vec;
    use proptest::prelude::*;

    fn bytes(size: usize) -> Vec<u8> {
        (0..size).map(|i| u8::try_from((i * 31 + i / 251) % 256).unwrap()).collect()
    }

    fn list_of(bytes: &[u8]) -> HashList {
        let mut builder = HashListBuilder::new(Layout::of(length(bytes)).unwrap());
        bytes.chunks(7919).for_each(|chunk| builder.update(chunk));
        builder.finish().unwrap()
    }

    fn piece(list: &HashList, bytes: &[u8], piece: u32) -> Vec<u8> {
        let range = list.layout().range(piece).unwrap();
        bytes[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()].to_vec()
    }

    #[test]
    fn the_root_of_the_list_is_the_blake3_hash_at_every_odd_size() {
        let p = 65_536;
        for size in
            [1, 2, 1023, 1024, 1025, p - 1, p, p + 1, 2 * p, 2 * p + 1, 3 * p, 3 * p + 1024, 5 * p - 1, 7 * p + 17, 16 * p]
        {
            let bytes = bytes(size);
            let list = list_of(&bytes);
            assert_eq!(list.root().0, *blake3::hash(&bytes).as_bytes(), "{size}");
            assert_eq!(HashList::verify(list.layout(), list.root(), &list.to_bytes()), Ok(list.clone()), "{size}");
            for index in 0..list.layout().count() {
                assert_eq!(list.verify_piece(index, &piece(&list, &bytes, index)), Ok(()), "{size} {index}");
            }
        }
    }

    #[test]
    fn medium_pieces_lead_to_the_same_root() {
        let bytes = bytes(usize::try_from(SMALL_BLOB_BYTES).unwrap() + 12_345);
        assert_eq!(list_of(&bytes).root().0, *blake3::hash(&bytes).as_bytes());
    }

    #[test]
    fn a_piece_is_refused_with_one_bit_changed_in_another_place_short_or_long() {
        let bytes = bytes(3 * 65_536 + 5);
        let list = list_of(&bytes);
        let good = piece(&list, &bytes, 1);
        let mut bad = good.clone();
        bad[40_000] ^= 1;
        assert_eq!(list.verify_piece(1, &bad), Err(PieceError::Hash(1)));
        assert_eq!(list.verify_piece(2, &good), Err(PieceError::Hash(2)));
        assert_eq!(list.verify_piece(1, &good[1..]), Err(PieceError::Length { piece: 1, expected: 65_536, found: 65_535 }));
        assert_eq!(list.verify_piece(3, &good), Err(PieceError::Length { piece: 3, expected: 5, found: 65_536 }));
        assert_eq!(list.verify_piece(4, &good), Err(PieceError::Beyond(4)));
        assert_eq!(list.verify_piece(u32::MAX, &[]), Err(PieceError::Beyond(u32::MAX)));
    }

    #[test]
    fn a_blob_of_one_piece_has_its_root_as_its_list() {
        let bytes = bytes(300);
        let layout = Layout::of(300).unwrap();
        let root = Hex32(*blake3::hash(&bytes).as_bytes());
        let list = HashList::of_one_piece(layout, root).unwrap();
        assert_eq!(list.verify_piece(0, &bytes), Ok(()));
        assert_eq!(HashList::verify(layout, root, &root.0), Ok(list));
        assert_eq!(HashList::of_one_piece(Layout::of(65_537).unwrap(), root), None);
    }

    #[test]
    fn a_builder_that_saw_too_few_or_too_many_bytes_gives_no_list() {
        let layout = Layout::of(65_536 + 10).unwrap();
        for size in [0, 65_536, 65_545, 65_547, 400_000] {
            let mut builder = HashListBuilder::new(layout);
            builder.update(&vec![1; size]);
            assert_eq!(builder.finish(), None, "{size}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn a_list_with_any_change_does_not_lead_to_the_root(pieces in 2..9_usize, at in any::<prop::sample::Index>(), flip in 1..=255_u8) {
            let bytes = bytes(pieces * 65_536 - 77);
            let list = list_of(&bytes);
            let mut wire = list.to_bytes();
            let at = at.index(wire.len());
            wire[at] ^= flip;
            prop_assert_eq!(HashList::verify(list.layout(), list.root(), &wire), Err(HashListError::Root));
            wire.pop();
            let is_short = matches!(HashList::verify(list.layout(), list.root(), &wire), Err(HashListError::Length { .. }));
            prop_assert!(is_short);
        }

        #[test]
        fn any_bytes_are_a_list_or_a_typed_error(size in 1..40_000_000_u64, wire in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = HashList::verify(Layout::of(size).unwrap(), Hex32([3; 32]), &wire);
        }
    }
}

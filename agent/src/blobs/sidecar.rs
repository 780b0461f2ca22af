//! The two small files beside a blob: its hash list, and the bitmap of a download. Versioned, and checked when read.

use std::io;
use std::path::Path;

use groundswell_core::blob::{BlobName, HashList, Layout, PieceSet};
use groundswell_core::digest::{Digest, Hex32};
use groundswell_core::limits::BLOB_PIECES;

use super::files;

const VERSION: u8 = 1;
const LIST_HEADER_BYTES: usize = 1 + 8 + 32;
const CHECK_BYTES: usize = 32;

/// Most bytes of a hash list file.
fn list_bytes_most() -> usize {
    LIST_HEADER_BYTES + 32 * usize::try_from(BLOB_PIECES).expect("16,384 pieces at most")
}

/// Keeps size, root and hash list: `version, u64 size, root, hashes`.
pub(super) fn write_list(path: &Path, list: &HashList) -> io::Result<()> {
    let mut content = vec![VERSION];
    content.extend_from_slice(&list.layout().size_bytes().to_be_bytes());
    content.extend_from_slice(&list.root().0);
    content.extend_from_slice(&list.to_bytes());
    files::replace(path, &content)
}

/// Reads a hash list file; `None` when it is missing, torn, or does not fold to its own root.
pub(super) fn read_list(path: &Path) -> io::Result<Option<HashList>> {
    Ok(files::read_small(path, list_bytes_most())?.and_then(|content| parse_list(&content)))
}

fn parse_list(content: &[u8]) -> Option<HashList> {
    let (&version, rest) = content.split_first()?;
    let (size, rest) = rest.split_first_chunk::<8>()?;
    let (root, hashes) = rest.split_first_chunk::<32>()?;
    let layout = Layout::of(u64::from_be_bytes(*size)).ok().filter(|_| version == VERSION)?;
    HashList::verify(layout, Hex32(*root), hashes).ok()
}

/// The blob's name, from its file name and hash list.
pub(super) fn name_of(sha256: Digest, list: &HashList) -> BlobName {
    BlobName { sha256, size_bytes: list.layout().size_bytes(), blake3: list.root() }
}

/// Keeps the pieces that are durably in the data: `version, bitmap, blake3 of both`. The caller has flushed the data.
pub(super) fn write_have(path: &Path, held: &PieceSet) -> io::Result<()> {
    let mut content = vec![VERSION];
    content.extend_from_slice(held.as_bytes());
    let check = blake3::hash(&content);
    content.extend_from_slice(check.as_bytes());
    files::replace(path, &content)
}

/// Reads a bitmap; `None` when it is missing, torn, or of another blob.
pub(super) fn read_have(path: &Path, layout: Layout) -> io::Result<Option<PieceSet>> {
    let most = 1 + PieceSet::bytes_for(layout) + CHECK_BYTES;
    Ok(files::read_small(path, most)?.and_then(|content| parse_have(&content, layout)))
}

fn parse_have(content: &[u8], layout: Layout) -> Option<PieceSet> {
    let (body, check) = content.split_last_chunk::<CHECK_BYTES>()?;
    let (&version, bitmap) = body.split_first()?;
    if version != VERSION || blake3::hash(body).as_bytes() != check {
        return None;
    }
    PieceSet::from_bytes(layout, bitmap).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_sidecar_or_nothing(content in prop::collection::vec(any::<u8>(), 0..300), size in 1..1_000_000_000_u64) {
            let _ = parse_list(&content);
            prop_assert_eq!(parse_have(&content, Layout::of(size).unwrap()), None);
        }

        #[test]
        fn a_bitmap_with_any_change_is_no_bitmap(at in 0..35_usize, flip in 1..=255_u8) {
            let layout = Layout::of(10 * 65_536).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("have");
            write_have(&path, &PieceSet::full(layout)).unwrap();
            prop_assert_eq!(read_have(&path, layout).unwrap(), Some(PieceSet::full(layout)));
            let mut content = std::fs::read(&path).unwrap();
            content[at] ^= flip;
            prop_assert_eq!(parse_have(&content, layout), None);
        }
    }
}

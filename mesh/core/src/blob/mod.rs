//! Blobs as pieces: their layout, the hash list by which each piece is verified on arrival, and who is asked for what.
//!
//! A blob is named by its SHA-256; the signed manifest adds its size and its BLAKE3 root. The size alone fixes the
//! piece layout, so two nodes never disagree about what piece 7 is. Nothing here reads, writes or sends bytes:
//! `mesh/net` carries pieces, the agent stores them. The SHA-256 of the whole file is the agent's business.
//! Design, section 9; the wire is described in `docs/PROTOCOL.md`.

pub mod availability;
pub mod exchange;
pub mod hash_list;
pub mod layout;
pub mod piece_set;

pub use hash_list::{HashList, HashListBuilder, HashListError, PieceError};
pub use layout::{Layout, LayoutError};
pub use piece_set::{PieceSet, PieceSetError};

use crate::digest::{Digest, Hex32};
use crate::documents::release::Artifact;

/// Everything that is needed to fetch a blob and to verify every piece of it on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobName {
    /// SHA-256 of the whole file: its identity.
    pub sha256: Digest,
    /// Its size in bytes, 1 to [`crate::limits::BLOB_BYTES`].
    pub size_bytes: u64,
    /// Its BLAKE3 root, from the signed manifest.
    pub blake3: Hex32,
}

impl From<&Artifact> for BlobName {
    fn from(artifact: &Artifact) -> Self {
        Self { sha256: artifact.sha256.into(), size_bytes: artifact.size, blake3: artifact.blake3 }
    }
}

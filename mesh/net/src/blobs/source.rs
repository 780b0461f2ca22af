//! What the mesh needs of whoever keeps the files: sources to serve from, sinks to fetch into.
//!
//! All methods may block on a disk; the mesh calls them from threads where that is allowed.

use groundswell_core::blob::{HashList, PieceSet};
use groundswell_core::digest::Digest;

/// What a node holds of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Size of the whole blob in bytes.
    pub size_bytes: u64,
    /// The pieces that it can serve: verified ones only.
    pub held: PieceSet,
}

/// Why a piece cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The blob is not here.
    #[error("the blob is not here")]
    NoBlob,
    /// The blob has no such piece.
    #[error("the blob has no piece {0}")]
    Beyond(u32),
    /// The piece is not held, or is damaged on disk.
    #[error("piece {0} is not held")]
    NotHeld(u32),
    /// The file cannot be read.
    #[error("the blob's file cannot be read")]
    Io(#[from] std::io::Error),
}

/// Blobs that can be served, whole or in part. Serves nothing that was not verified.
pub trait BlobSource: Send + Sync + 'static {
    /// What is held of a blob; `None` when it is unknown, or must not be served (metered nodes).
    fn describe(&self, sha256: &Digest) -> Option<Described>;

    /// The verified hash list of a blob; `None` when it is not known (yet).
    fn hash_list(&self, sha256: &Digest) -> Option<HashList>;

    /// The bytes of one piece.
    ///
    /// # Errors
    /// [`ReadError`]; all but `Io` are told to the asking peer as they are.
    fn read_piece(&self, sha256: &Digest, piece: u32) -> Result<Vec<u8>, ReadError>;
}

/// Documents that are fetched rather than gossiped: rosters, in their published form.
pub trait DocumentSource: Send + Sync + 'static {
    /// The published form of the document with this body digest; `None` when it is not here.
    fn document(&self, digest: &Digest) -> Option<Vec<u8>>;
}

/// Why a sink did not take a piece, or did not finish.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// No room. Frees nothing by itself; the download goes on from here when it is started again.
    #[error("disk-full: {needed_bytes} bytes are needed and {free_bytes} may be used")]
    DiskFull {
        /// Bytes still to be written.
        needed_bytes: u64,
        /// Bytes that may still be used.
        free_bytes: u64,
    },
    /// Every piece has its blake3 hash, yet the file has another sha256: the manifest contradicts itself.
    #[error("the manifest contradicts itself: its blake3 root and its sha256 are of different files")]
    Contradiction,
    /// These pieces were damaged on this node's own disk and are missing again.
    #[error("{} pieces were damaged on this node's disk", pieces.len())]
    Damaged {
        /// Which.
        pieces: Vec<u32>,
    },
    /// The file cannot be written.
    #[error("the blob's file cannot be written")]
    Io(#[from] std::io::Error),
}

/// Where a fetched blob goes. One download at a time; methods are called from several threads.
pub trait PieceSink: Send + Sync + 'static {
    /// Pieces that are here and verified, from this or an earlier attempt.
    fn held(&self) -> PieceSet;

    /// The verified hash list, if an earlier attempt got it.
    fn hash_list(&self) -> Option<HashList>;

    /// Keeps the verified hash list. Called before the first piece.
    ///
    /// # Errors
    /// When it cannot be stored.
    fn keep_hash_list(&self, list: &HashList) -> Result<(), SinkError>;

    /// Stores a piece whose bytes have been verified. The same piece may come twice.
    ///
    /// # Errors
    /// When it cannot be stored; it is then not held.
    fn write_piece(&self, piece: u32, bytes: &[u8]) -> Result<(), SinkError>;

    /// Does what stored pieces leave to be done and nobody waits for: makes them durable now and then, for one. Called again
    /// and again while pieces come, never twice at once; pieces are stored and passed on meanwhile.
    ///
    /// # Errors
    /// When it cannot be done; that ends the download.
    fn keep_up(&self) -> Result<(), SinkError> {
        Ok(())
    }

    /// Every piece is here: checks the sha256 of the whole and makes it durable under its name.
    ///
    /// # Errors
    /// `Damaged` lets the download go on; the others end it.
    fn finish(&self) -> Result<(), SinkError>;
}

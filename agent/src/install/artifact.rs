//! Where staged bytes come from: the blob store, seen from here.

use std::fs::File;
use std::io;

use groundswell_core::digest::Digest;

/// Gives whole artifacts by digest. The device checks size and digest of what it copies all the same.
pub trait ArtifactSource: Send + Sync + 'static {
    /// Opens the artifact for reading, from its beginning.
    ///
    /// # Errors
    /// `NotFound` when it is not here whole; otherwise what the file system says.
    fn open(&self, sha256: &Digest) -> io::Result<File>;
}

//! Where staged bytes, and the documents that speak for them, come from: blob store and shelf, seen from here.

use std::fs::File;
use std::io;

use groundswell_core::digest::Digest;
use groundswell_core::text::Product;

/// Gives whole artifacts by digest. The device checks size and digest of what it copies all the same.
pub trait ArtifactSource: Send + Sync + 'static {
    /// Opens the artifact for reading, from its beginning.
    ///
    /// # Errors
    /// `NotFound` when it is not here whole; otherwise what the file system says.
    fn open(&self, sha256: &Digest) -> io::Result<File>;

    /// What was read was not the artifact: whoever keeps it looks whether it still is, so that it is fetched again.
    /// Reads the whole file.
    fn doubt(&self, sha256: &Digest) {
        let _ = sha256;
    }

    /// The published documents by which this node judges `product` now, for a helper that judges again; none where there
    /// is no helper to show them to.
    fn papers(&self, product: &Product) -> Vec<Vec<u8>> {
        let _ = product;
        Vec::new()
    }
}

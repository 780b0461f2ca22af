//! The files of a release, served to the mesh from where they lie: nothing is copied, every piece is checked when read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use groundswell_core::blob::{BlobName, HashList, HashListBuilder, Layout, PieceSet};
use groundswell_core::digest::Digest;
use groundswell_net::blobs::{BlobSource, Described, ReadError};
use sha2::{Digest as _, Sha256};

/// Bytes of a file read at once.
const READ_BYTES: usize = 256 * 1024;

/// Files by the sha256 of their content.
#[derive(Debug, Default)]
pub struct ReleaseFiles {
    files: BTreeMap<Digest, (PathBuf, HashList)>,
}

/// A file is not what the manifest says.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its size or digests differ from the manifest's.
    #[error("{} is not the file that the manifest names: sign it anew, or give the right folder", .0.display())]
    Differs(PathBuf),
}

impl ReleaseFiles {
    /// Adds the file at `path` as the blob `name`, after checking its size, sha256 and blake3.
    ///
    /// # Errors
    /// When it cannot be read or is another file.
    pub fn add(&mut self, name: &BlobName, path: &Path) -> Result<(), FileError> {
        let read = |source| FileError::Read { path: path.to_path_buf(), source };
        let differs = || FileError::Differs(path.to_path_buf());
        let mut file = File::open(path).map_err(read)?;
        let size = file.metadata().map_err(read)?.len();
        let layout = Layout::of(size).map_err(|_| differs())?;
        let (mut sha256, mut hashes) = (Sha256::new(), HashListBuilder::new(layout));
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = file.read(&mut buffer).map_err(read)?;
            if count == 0 {
                break;
            }
            let bytes = buffer.get(..count).unwrap_or_default();
            sha256.update(bytes);
            hashes.update(bytes);
        }
        let list = hashes.finish().ok_or_else(differs)?;
        let found = BlobName { sha256: Digest(sha256.finalize().into()), size_bytes: size, blake3: list.root() };
        if found != *name {
            return Err(differs());
        }
        self.files.insert(name.sha256, (path.to_path_buf(), list));
        Ok(())
    }

    /// The blobs' digests.
    pub fn digests(&self) -> impl Iterator<Item = Digest> + '_ {
        self.files.keys().copied()
    }

    /// The files with their digests.
    pub fn paths(&self) -> impl Iterator<Item = (Digest, &Path)> + '_ {
        self.files.iter().map(|(digest, (path, _))| (*digest, path.as_path()))
    }
}

impl BlobSource for ReleaseFiles {
    fn describe(&self, sha256: &Digest) -> Option<Described> {
        let layout = self.files.get(sha256)?.1.layout();
        Some(Described { size_bytes: layout.size_bytes(), held: PieceSet::full(layout) })
    }

    fn hash_list(&self, sha256: &Digest) -> Option<HashList> {
        self.files.get(sha256).map(|(_, list)| list.clone())
    }

    fn read_piece(&self, sha256: &Digest, piece: u32) -> Result<Vec<u8>, ReadError> {
        let (path, list) = self.files.get(sha256).ok_or(ReadError::NoBlob)?;
        let (range, length) = list.layout().range(piece).zip(list.layout().length(piece)).ok_or(ReadError::Beyond(piece))?;
        let mut bytes = vec![0; length];
        File::open(path)?.read_exact_at(&mut bytes, range.start)?;
        // Changed since it was added: better nothing than a lie.
        list.verify_piece(piece, &bytes).map_err(|_| ReadError::NotHeld(piece))?;
        Ok(bytes)
    }
}

//! Local publishing: bytes that a tool on this machine brings, under the sha256 that it announces.
//!
//! What came stays when the tool goes away in the middle, until the agent ends or its room is needed: the next put of the
//! same blob goes on from there. It is read and hashed again then; only the whole, checked, becomes the blob.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use groundswell_core::blob::{BlobName, HashListBuilder, Layout, LayoutError};
use groundswell_core::digest::Digest;
use sha2::{Digest as _, Sha256};

use super::files;
use super::folder::Way;
use super::sidecar;
use super::store::{BlobStore, DownloadError, Shared};

/// Bytes read at once where an earlier put is taken up again.
const READ_BYTES: usize = 256 * 1024;

/// Why bytes were not taken. Nothing of them stays.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// The announced size is no size of a blob.
    #[error("{0} has an impossible size")]
    Size(Digest, #[source] LayoutError),
    /// It was to go on from where nothing ends.
    #[error("{blob} was to go on at byte {asked} of {here} that are here")]
    Offset {
        /// The blob.
        blob: Digest,
        /// Where it was to go on.
        asked: u64,
        /// Bytes that are here.
        here: u64,
    },
    /// No room for it.
    #[error(transparent)]
    Room(#[from] DownloadError),
    /// The same blob is being put by someone else.
    #[error("{0} is being put already")]
    Underway(Digest),
    /// More or fewer bytes came than were announced.
    #[error("{blob} was announced with {announced_bytes} bytes and has {found_bytes}")]
    Length {
        /// The blob.
        blob: Digest,
        /// Bytes announced.
        announced_bytes: u64,
        /// Bytes that came, at least.
        found_bytes: u64,
    },
    /// The bytes have another digest.
    #[error("the bytes announced as {announced} are {found}")]
    Digest {
        /// As announced.
        announced: Digest,
        /// As found.
        found: Digest,
    },
    /// A file cannot be written.
    #[error("the files of {0} cannot be written")]
    Io(Digest, #[source] io::Error),
}

/// A blob on its way in. Dropping it before [`Put::commit`] keeps what came so far, unless something was wrong with it.
#[derive(Debug)]
pub struct Put {
    begun: Begun,
    blob: Digest,
    layout: Layout,
    path: PathBuf,
    file: File,
    sha256: Sha256,
    hashes: HashListBuilder,
    found_bytes: u64,
    /// It can become the blob yet.
    sound: bool,
}

/// That nobody else puts the same blob; ends with its drop.
#[derive(Debug)]
struct Begun {
    shared: Arc<Shared>,
    blob: Digest,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.shared.end_put(&self.blob);
    }
}

impl BlobStore {
    /// Begins to take a blob of exactly `size_bytes`. When it is here already, the bytes are checked all the same.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn put(&self, blob: Digest, size_bytes: u64) -> Result<Put, PutError> {
        self.put_from(blob, size_bytes, 0)
    }

    /// The same, going on at byte `offset`, of which [`BlobStore::put_bytes_here`] are left of an earlier put. Reads these.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn put_from(&self, blob: Digest, size_bytes: u64, offset: u64) -> Result<Put, PutError> {
        let layout = Layout::of(size_bytes).map_err(|error| PutError::Size(blob, error))?;
        let shared = Arc::clone(&self.shared);
        if !shared.begin_put(blob) {
            return Err(PutError::Underway(blob));
        }
        // From here on its end is the drop's.
        let begun = Begun { shared, blob };
        let here = self.put_bytes_here(&blob);
        if offset != 0 && (offset != here || here > size_bytes) {
            return Err(PutError::Offset { blob, asked: offset, here });
        }
        begun.shared.make_room(blob, Way::Put, size_bytes)?;
        let path = begun.shared.put(&blob);
        let failed = |error| PutError::Io(blob, error);
        let file = files::open_in_place(&path).map_err(failed)?;
        let (sha256, hashes) = (Sha256::new(), HashListBuilder::new(layout));
        let mut put = Put { begun, blob, layout, path, file, sha256, hashes, found_bytes: 0, sound: true };
        if offset == 0 {
            put.file.set_len(0).map_err(failed)?;
        } else {
            put.read_again().map_err(failed)?;
        }
        Ok(put)
    }

    /// How many bytes are left of a put that was interrupted.
    #[must_use]
    pub fn put_bytes_here(&self, blob: &Digest) -> u64 {
        std::fs::symlink_metadata(self.shared.put(blob)).map_or(0, |metadata| metadata.len())
    }

    /// Takes a blob that is in memory. Returns its name.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn put_bytes(&self, bytes: &[u8]) -> Result<BlobName, PutError> {
        let size_bytes = u64::try_from(bytes.len()).expect("a usize has 64 bits or fewer");
        let mut put = self.put(Digest::of(bytes), size_bytes)?;
        put.write(bytes)?;
        put.commit()
    }
}

impl Put {
    /// Takes in what an earlier put has left, and goes on behind it.
    fn read_again(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = match self.file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let bytes = buffer.get(..read).unwrap_or_default();
            self.sha256.update(bytes);
            self.hashes.update(bytes);
            self.found_bytes = self.found_bytes.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// When there are more than announced, or the disk fails; drop it then.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), PutError> {
        self.found_bytes = self.found_bytes.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if self.found_bytes > self.layout.size_bytes() {
            self.sound = false;
            return Err(self.length());
        }
        if let Err(error) = self.file.write_all(bytes) {
            // How much of it was written is not known.
            self.sound = false;
            return Err(self.failed(error));
        }
        self.sha256.update(bytes);
        self.hashes.update(bytes);
        Ok(())
    }

    /// Checks length and sha256, and makes the blob durable under its name.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn commit(mut self) -> Result<BlobName, PutError> {
        self.sound = false;
        let found = Digest(std::mem::take(&mut self.sha256).finalize().into());
        let hashes = std::mem::replace(&mut self.hashes, HashListBuilder::new(self.layout));
        let Some(list) = hashes.finish() else { return Err(self.length()) };
        if found != self.blob {
            return Err(PutError::Digest { announced: self.blob, found });
        }
        let name = sidecar::name_of(self.blob, &list);
        let folder = &self.begun.shared.settings.folder;
        let stored = self.file.sync_all().and_then(|()| sidecar::write_list(&self.begun.shared.hashes(&self.blob), &list));
        // The list is durable before the name that makes the blob count.
        let stored = stored.and_then(|()| files::sync_folder(folder));
        let stored = stored.and_then(|()| std::fs::rename(&self.path, self.begun.shared.path(&self.blob)));
        stored.and_then(|()| files::sync_folder(folder)).map_err(|error| self.failed(error))?;
        self.begun.shared.completed(self.blob, list);
        Ok(name)
    }

    fn length(&self) -> PutError {
        PutError::Length { blob: self.blob, announced_bytes: self.layout.size_bytes(), found_bytes: self.found_bytes }
    }

    fn failed(&self, error: io::Error) -> PutError {
        let needed_bytes = self.layout.size_bytes().saturating_sub(self.found_bytes);
        match self.begun.shared.unwritable(self.blob, needed_bytes, error) {
            DownloadError::Io(blob, error) => PutError::Io(blob, error),
            full => PutError::Room(full),
        }
    }
}

impl Drop for Put {
    fn drop(&mut self) {
        if self.sound && self.found_bytes > 0 {
            return;
        }
        // After a commit the file has its new name, and there is nothing to remove.
        if let Err(error) = files::remove(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "what was put in part cannot be removed");
        }
    }
}

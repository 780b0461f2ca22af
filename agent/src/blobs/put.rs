//! Local publishing: bytes that a tool on this machine brings, under the sha256 that it announces.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use groundswell_core::blob::{BlobName, HashListBuilder, Layout, LayoutError};
use groundswell_core::digest::Digest;
use sha2::{Digest as _, Sha256};

use super::files;
use super::sidecar;
use super::store::{BlobStore, DownloadError, PUT, Shared};

/// Why bytes were not taken. Nothing of them stays.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// The announced size is no size of a blob.
    #[error("{0} has an impossible size")]
    Size(Digest, #[source] LayoutError),
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

/// A blob on its way in. Dropping it before [`Put::commit`] removes what came so far.
#[derive(Debug)]
pub struct Put {
    shared: Arc<Shared>,
    blob: Digest,
    layout: Layout,
    path: PathBuf,
    file: File,
    sha256: Sha256,
    hashes: HashListBuilder,
    found_bytes: u64,
}

impl BlobStore {
    /// Begins to take a blob of exactly `size_bytes`. When it is here already, the bytes are checked all the same.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn put(&self, blob: Digest, size_bytes: u64) -> Result<Put, PutError> {
        let layout = Layout::of(size_bytes).map_err(|error| PutError::Size(blob, error))?;
        let shared = Arc::clone(&self.shared);
        shared.check_quota(blob, size_bytes)?;
        shared.check_free(blob, size_bytes)?;
        let path = shared.path(&blob).with_extension(PUT);
        let file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(PutError::Underway(blob)),
            Err(error) => return Err(PutError::Io(blob, error)),
        };
        let (sha256, hashes) = (Sha256::new(), HashListBuilder::new(layout));
        Ok(Put { shared, blob, layout, path, file, sha256, hashes, found_bytes: 0 })
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
    /// Takes the next bytes.
    ///
    /// # Errors
    /// When there are more than announced, or the disk fails; drop it then.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), PutError> {
        self.found_bytes = self.found_bytes.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if self.found_bytes > self.layout.size_bytes() {
            return Err(self.length());
        }
        self.file.write_all(bytes).map_err(|error| self.failed(error))?;
        self.sha256.update(bytes);
        self.hashes.update(bytes);
        Ok(())
    }

    /// Checks length and sha256, and makes the blob durable under its name.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn commit(mut self) -> Result<BlobName, PutError> {
        let found = Digest(std::mem::take(&mut self.sha256).finalize().into());
        let hashes = std::mem::replace(&mut self.hashes, HashListBuilder::new(self.layout));
        let Some(list) = hashes.finish() else { return Err(self.length()) };
        if found != self.blob {
            return Err(PutError::Digest { announced: self.blob, found });
        }
        let name = sidecar::name_of(self.blob, &list);
        let folder = &self.shared.settings.folder;
        let stored = self.file.sync_all().and_then(|()| sidecar::write_list(&self.shared.hashes(&self.blob), &list));
        // The list is durable before the name that makes the blob count.
        let stored = stored.and_then(|()| files::sync_folder(folder));
        let stored = stored.and_then(|()| std::fs::rename(&self.path, self.shared.path(&self.blob)));
        stored.and_then(|()| files::sync_folder(folder)).map_err(|error| self.failed(error))?;
        self.shared.completed(self.blob, list);
        Ok(name)
    }

    fn length(&self) -> PutError {
        PutError::Length { blob: self.blob, announced_bytes: self.layout.size_bytes(), found_bytes: self.found_bytes }
    }

    fn failed(&self, error: io::Error) -> PutError {
        if !files::is_full(&error) {
            return PutError::Io(self.blob, error);
        }
        let free_bytes = files::free_bytes(&self.shared.settings.folder).unwrap_or(0);
        let needed_bytes = self.layout.size_bytes().saturating_sub(self.found_bytes);
        PutError::Room(DownloadError::DiskFull { blob: self.blob, needed_bytes, free_bytes })
    }
}

impl Drop for Put {
    fn drop(&mut self) {
        // After a commit the file has its new name, and there is nothing to remove.
        if let Err(error) = files::remove(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "what was put in part cannot be removed");
        }
    }
}

//! A disk that lacks space, or does not tell what it holds.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use groundswell_agent::install::files::{Files, Kind, OnDisk, Reading, Writing};

/// As much as anything takes.
pub(crate) const PLENTY: u64 = 1 << 40;

/// The machine's own files with so many bytes of space left; what a reserve held comes back when it is removed.
#[derive(Clone, Debug)]
pub(crate) struct Scarce {
    left: Arc<AtomicU64>,
    /// The name of files of which the disk does not tell what they hold.
    mute: Arc<Mutex<Option<&'static str>>>,
    /// The name that no other file can be given.
    stuck: Arc<Mutex<Option<&'static str>>>,
    /// Syncs of folders fail after what they are to save was done.
    unsafe_folders: Arc<AtomicBool>,
}

struct ScarceFile(Box<dyn Writing>, Scarce);

impl Scarce {
    pub(crate) fn new() -> Self {
        Self {
            left: Arc::new(AtomicU64::new(PLENTY)),
            mute: Arc::default(),
            stuck: Arc::default(),
            unsafe_folders: Arc::default(),
        }
    }

    pub(crate) fn leave(&self, bytes: u64) {
        self.left.store(bytes, Ordering::SeqCst);
    }

    pub(crate) fn left(&self) -> u64 {
        self.left.load(Ordering::SeqCst)
    }

    pub(crate) fn mute(&self, name: Option<&'static str>) {
        *self.mute.lock().unwrap() = name;
    }

    pub(crate) fn stick(&self, name: Option<&'static str>) {
        *self.stuck.lock().unwrap() = name;
    }

    pub(crate) fn lose_folders(&self, lose: bool) {
        self.unsafe_folders.store(lose, Ordering::SeqCst);
    }

    fn tells(&self, path: &Path) -> io::Result<()> {
        let mute = *self.mute.lock().unwrap();
        let is_mute = mute.is_some_and(|name| path.file_name().is_some_and(|file| file == name));
        if is_mute { Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())) } else { Ok(()) }
    }

    fn take(&self, bytes: u64) -> io::Result<()> {
        let take = |left: u64| left.checked_sub(bytes);
        let taken = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        taken.map(drop).map_err(|_| io::ErrorKind::StorageFull.into())
    }
}

impl io::Write for ScarceFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.take(bytes.len() as u64)?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Writing for ScarceFile {
    fn reserve(&mut self, size_bytes: u64) -> io::Result<()> {
        if self.1.left() < size_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.reserve(size_bytes)
    }

    fn set_length(&mut self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }

    fn set_mode(&mut self, mode: u32) -> io::Result<()> {
        self.0.set_mode(mode)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }
}

impl Files for Scarce {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.take(1)?;
        OnDisk.make_folder(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        if self.unsafe_folders.load(Ordering::SeqCst) {
            return Err(rustix::io::Errno::IO.into());
        }
        OnDisk.sync_folder(path)
    }

    fn entries(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        OnDisk.entries(path)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<Kind>> {
        OnDisk.kind(path)
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Writing>> {
        self.take(1)?;
        Ok(Box::new(ScarceFile(OnDisk.create(path, mode)?, self.clone())))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Writing>> {
        Ok(Box::new(ScarceFile(OnDisk.append(path)?, self.clone())))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Reading>> {
        self.tells(path)?;
        OnDisk.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let stuck = *self.stuck.lock().unwrap();
        if stuck.is_some_and(|name| to.file_name().is_some_and(|file| file == name)) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        OnDisk.rename(from, to)
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.take(1)?;
        OnDisk.symlink(target, link)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.tells(path)?;
        OnDisk.read_link(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let length = std::fs::symlink_metadata(path)?.len();
        OnDisk.remove_file(path)?;
        self.left.fetch_add(length, Ordering::SeqCst);
        Ok(())
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        OnDisk.remove_folder(path)
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(self.left())
    }
}

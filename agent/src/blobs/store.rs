//! The blob folder: what is whole, what is under way, and whether there is room for more.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use groundswell_core::blob::{BlobName, HashList, Layout, LayoutError};
use groundswell_core::digest::{Digest, Hex32};
use tokio::sync::watch;

use super::files;
use super::partial::Partial;
use super::sidecar;

/// Most blobs in the folder, whole or under way: three releases of eight products with ten files each, four times over.
pub const BLOBS: usize = 1_024;

/// Where blobs live, and how much they may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder; created when it is not there.
    pub folder: PathBuf,
    /// Most bytes that all blobs together may take, downloads under way counted whole.
    pub quota_bytes: u64,
    /// Bytes of the file system that stay free whatever happens: the running product and the store need room too.
    pub reserve_bytes: u64,
}

/// The folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the blob folder {}", folder.display())]
pub struct OpenError {
    /// The folder.
    pub folder: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// Why a download does not begin.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The size in the manifest is no size of a blob.
    #[error("{0} has an impossible size")]
    Size(Digest, #[source] LayoutError),
    /// The file system has not enough room above the reserve.
    #[error("disk-full: {blob} needs {needed_bytes} bytes and {free_bytes} may be used")]
    DiskFull {
        /// The blob.
        blob: Digest,
        /// Bytes still to be written.
        needed_bytes: u64,
        /// Bytes free above the reserve.
        free_bytes: u64,
    },
    /// All blobs together would take more than is allowed: remove some, or raise the quota.
    #[error("blob-quota: {blob} needs {needed_bytes} bytes and {left_bytes} are left of the quota for blobs")]
    Quota {
        /// The blob.
        blob: Digest,
        /// Bytes that it takes.
        needed_bytes: u64,
        /// Bytes left.
        left_bytes: u64,
    },
    /// [`BLOBS`] are here.
    #[error("there are {BLOBS} blobs already; remove some")]
    TooMany,
    /// Another thread is looking at its files this very moment: a mistake of the caller.
    #[error("the download of {0} is being begun already")]
    Underway(Digest),
    /// The blob is here or on its way, with another size or blake3 root than this manifest says.
    #[error("the manifest contradicts itself: {0} has another size or blake3 root")]
    Contradiction(Digest),
    /// A file cannot be written or read.
    #[error("the files of {0} cannot be used")]
    Io(Digest, #[source] io::Error),
}

/// Why a blob cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// It is not here as a whole.
    #[error("{0} is not here")]
    NotHere(Digest),
    /// Its file does not have its digest any more; it was removed and can be fetched again.
    #[error("{0} was damaged on disk and is removed")]
    Damaged(Digest),
    /// Its file cannot be read.
    #[error("the file of {0} cannot be read")]
    Io(Digest, #[source] io::Error),
}

/// What is here of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its name.
    pub name: BlobName,
    /// Pieces that are here.
    pub held: u32,
    /// Pieces that it has.
    pub pieces: u32,
}

/// How a download began.
#[derive(Debug)]
pub enum Begun {
    /// The blob is here as a whole.
    Whole,
    /// It goes into this. Dropping it keeps what it has, for the next attempt; while one is alive (a stopped download
    /// may still be finishing a write), the same is given out again.
    Partial(Arc<Partial>),
}

/// The blob folder of a node. Clones share it. One process at a time may use a folder.
#[derive(Clone, Debug)]
pub struct BlobStore {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    state: Mutex<State>,
    whole: watch::Sender<BTreeSet<Digest>>,
}

#[derive(Debug, Default)]
struct State {
    whole: BTreeMap<Digest, Arc<HashList>>,
    underway: BTreeMap<Digest, Weak<Partial>>,
    /// Downloads whose files are being looked at; that takes long, so the lock is not held meanwhile.
    opening: BTreeSet<Digest>,
}

impl BlobStore {
    /// Opens the folder and looks at every file in it. What a crash left behind is removed; a file under a blob's name
    /// without its size and a hash list is never taken for the blob (case B1), and is removed too.
    ///
    /// # Errors
    /// When the folder cannot be made, read or written.
    pub fn open(settings: Settings) -> Result<Self, OpenError> {
        let folder = settings.folder.clone();
        let failed = |source| OpenError { folder: folder.clone(), source };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let whole = recover(&folder).map_err(failed)?;
        let names = whole.keys().copied().collect();
        let state = Mutex::new(State { whole, ..State::default() });
        Ok(Self { shared: Arc::new(Shared { settings, state, whole: watch::Sender::new(names) }) })
    }

    /// The whole blobs as they come and go: what this node can serve.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<BTreeSet<Digest>> {
        self.shared.whole.subscribe()
    }

    /// Everything that is here: whole, being downloaded, or left by a download that was stopped.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list(&self) -> io::Result<Vec<Held>> {
        let (mut all, underway) = {
            let state = self.shared.state();
            let whole = state.whole.iter().map(|(sha256, list)| {
                let pieces = list.layout().count();
                Held { name: sidecar::name_of(*sha256, list), held: pieces, pieces }
            });
            let underway: Vec<_> = state.underway.values().filter_map(Weak::upgrade).collect();
            (whole.collect::<Vec<_>>(), underway)
        };
        all.extend(underway.iter().map(|partial| partial.progress()));
        for (sha256, _) in self.shared.parts()? {
            if all.iter().any(|held| held.name.sha256 == sha256) {
                continue;
            }
            if let Some(list) = sidecar::read_list(&self.shared.hashes(&sha256))? {
                let noted = sidecar::read_have(&self.shared.have(&sha256), list.layout())?;
                let (held, pieces) = (noted.map_or(0, |noted| noted.held()), list.layout().count());
                all.push(Held { name: sidecar::name_of(sha256, &list), held, pieces });
            }
        }
        Ok(all)
    }

    /// Whether a blob is here as a whole.
    #[must_use]
    pub fn holds(&self, sha256: &Digest) -> bool {
        self.shared.state().whole.contains_key(sha256)
    }

    /// Begins or resumes a download: checks for room, and finds what earlier attempts left. Reads the parts of an
    /// earlier attempt that its bitmap does not claim, to keep what a crash had not yet noted.
    ///
    /// # Errors
    /// [`DownloadError`]; nothing is left behind that was not there before.
    pub fn download(&self, name: BlobName) -> Result<Begun, DownloadError> {
        let blob = name.sha256;
        let layout = Layout::of(name.size_bytes).map_err(|error| DownloadError::Size(blob, error))?;
        {
            let mut state = self.shared.state();
            if let Some(list) = state.whole.get(&blob) {
                let same = sidecar::name_of(blob, list) == name;
                return if same { Ok(Begun::Whole) } else { Err(DownloadError::Contradiction(blob)) };
            }
            state.underway.retain(|_, partial| partial.strong_count() > 0);
            if let Some(partial) = state.underway.get(&blob).and_then(Weak::upgrade) {
                let same = partial.name() == name;
                return if same { Ok(Begun::Partial(partial)) } else { Err(DownloadError::Contradiction(blob)) };
            }
            if !state.opening.insert(blob) {
                return Err(DownloadError::Underway(blob));
            }
        }
        let opened = self.shared.check_quota(blob, name.size_bytes).and_then(|()| Partial::open(&self.shared, name, layout));
        let mut state = self.shared.state();
        state.opening.remove(&blob);
        let partial = Arc::new(opened?);
        state.underway.insert(blob, Arc::downgrade(&partial));
        Ok(Begun::Partial(partial))
    }

    /// Opens a whole blob for reading, without checking its content. Whoever copies it hashes the copy.
    ///
    /// # Errors
    /// [`LookupError`].
    pub fn open_blob(&self, sha256: &Digest) -> Result<File, LookupError> {
        let size = self.shared.size_of(sha256).ok_or(LookupError::NotHere(*sha256))?;
        let file = match files::open(&self.shared.path(sha256)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.shared.damaged(sha256)),
            Err(error) => return Err(LookupError::Io(*sha256, error)),
        };
        let found = file.metadata().map_err(|error| LookupError::Io(*sha256, error))?.len();
        if found == size { Ok(file) } else { Err(self.shared.damaged(sha256)) }
    }

    /// Opens a whole blob after checking the sha256 of its content on the very descriptor returned; its position is 0.
    ///
    /// # Errors
    /// [`LookupError`]; a damaged blob is removed.
    pub fn open_verified(&self, sha256: &Digest) -> Result<File, LookupError> {
        let file = self.open_blob(sha256)?;
        let found = files::sha256(&file).map_err(|error| LookupError::Io(*sha256, error))?;
        if found == *sha256 { Ok(file) } else { Err(self.shared.damaged(sha256)) }
    }

    /// Removes a blob, whole or partial. A download under way stores nothing from then on, and fails: stop it first.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn remove(&self, sha256: &Digest) -> io::Result<()> {
        let underway = self.shared.state().underway.remove(sha256).and_then(|partial| partial.upgrade());
        underway.inspect(|partial| partial.abandon());
        let mut state = self.shared.state();
        if state.whole.remove(sha256).is_some() {
            self.shared.announce(&state);
        }
        for path in [self.shared.path(sha256), self.shared.part(sha256), self.shared.have(sha256), self.shared.hashes(sha256)] {
            files::remove(&path)?;
        }
        files::sync_folder(&self.shared.settings.folder)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    pub(super) fn path(&self, sha256: &Digest) -> PathBuf {
        self.settings.folder.join(sha256.hex().to_string())
    }

    pub(super) fn part(&self, sha256: &Digest) -> PathBuf {
        self.path(sha256).with_extension(PART)
    }

    pub(super) fn have(&self, sha256: &Digest) -> PathBuf {
        self.path(sha256).with_extension(HAVE)
    }

    pub(super) fn hashes(&self, sha256: &Digest) -> PathBuf {
        self.path(sha256).with_extension(HASHES)
    }

    pub(super) fn list_of(&self, sha256: &Digest) -> Option<Arc<HashList>> {
        self.state().whole.get(sha256).cloned()
    }

    fn size_of(&self, sha256: &Digest) -> Option<u64> {
        self.list_of(sha256).map(|list| list.layout().size_bytes())
    }

    pub(super) fn partial_of(&self, sha256: &Digest) -> Option<Arc<Partial>> {
        self.state().underway.get(sha256).and_then(Weak::upgrade)
    }

    /// A blob got its name on disk.
    pub(super) fn completed(&self, sha256: Digest, list: HashList) {
        let mut state = self.state();
        state.underway.remove(&sha256);
        state.whole.insert(sha256, Arc::new(list));
        self.announce(&state);
    }

    /// A blob's file is not what it was: it is forgotten and removed.
    pub(super) fn damaged(&self, sha256: &Digest) -> LookupError {
        tracing::error!(blob = %sha256, "a blob was damaged on disk and is removed");
        let mut state = self.state();
        state.whole.remove(sha256);
        self.announce(&state);
        for path in [self.path(sha256), self.hashes(sha256)] {
            if let Err(error) = files::remove(&path) {
                tracing::error!(path = %path.display(), %error, "a damaged blob cannot be removed");
            }
        }
        LookupError::Damaged(*sha256)
    }

    fn announce(&self, state: &State) {
        self.whole.send_replace(state.whole.keys().copied().collect());
    }

    /// Sizes of the files of downloads, under way or stopped.
    fn parts(&self) -> io::Result<Vec<(Digest, u64)>> {
        let mut parts = Vec::new();
        for found in std::fs::read_dir(&self.settings.folder)? {
            let found = found?;
            if let Entry::Part(sha256) = entry(&found.file_name()) {
                parts.push((sha256, found.metadata()?.len()));
            }
        }
        Ok(parts)
    }

    /// Whether there is room for a blob by number and by quota.
    pub(super) fn check_quota(&self, blob: Digest, needed_bytes: u64) -> Result<(), DownloadError> {
        let parts = self.parts().map_err(|error| DownloadError::Io(blob, error))?;
        let others = parts.iter().filter(|(other, _)| *other != blob);
        let state = self.state();
        if state.whole.len() + others.clone().count() >= BLOBS {
            return Err(DownloadError::TooMany);
        }
        let whole = state.whole.iter().filter(|(other, _)| **other != blob).map(|(_, list)| list.layout().size_bytes());
        let taken = whole.chain(others.map(|(_, size_bytes)| *size_bytes)).fold(0, u64::saturating_add);
        let left_bytes = self.settings.quota_bytes.saturating_sub(taken);
        if needed_bytes <= left_bytes { Ok(()) } else { Err(DownloadError::Quota { blob, needed_bytes, left_bytes }) }
    }

    /// Whether the file system has `needed_bytes` above the reserve.
    pub(super) fn check_free(&self, blob: Digest, needed_bytes: u64) -> Result<(), DownloadError> {
        let free = files::free_bytes(&self.settings.folder).map_err(|error| DownloadError::Io(blob, error))?;
        let free_bytes = free.saturating_sub(self.settings.reserve_bytes);
        if needed_bytes <= free_bytes { Ok(()) } else { Err(DownloadError::DiskFull { blob, needed_bytes, free_bytes }) }
    }
}

pub(super) const PART: &str = "part";
pub(super) const HAVE: &str = "have";
pub(super) const HASHES: &str = "hashes";
pub(super) const PUT: &str = "put";

/// What a file of the folder is, by its name.
enum Entry {
    Whole(Digest),
    /// A download's data.
    Part(Digest),
    /// Belongs to a blob; kept while that blob's data is here.
    Beside(Digest),
    Leftover,
    Foreign,
}

fn entry(name: &OsStr) -> Entry {
    let Some(name) = name.to_str() else { return Entry::Foreign };
    let (stem, suffix) = name.split_once('.').map_or((name, None), |(stem, suffix)| (stem, Some(suffix)));
    let Ok(hex) = stem.parse::<Hex32>() else { return Entry::Foreign };
    match suffix {
        None => Entry::Whole(hex.into()),
        Some(PART) => Entry::Part(hex.into()),
        Some(HAVE | HASHES) => Entry::Beside(hex.into()),
        Some(other) if other.ends_with(".new") || other == PUT => Entry::Leftover,
        Some(_) => Entry::Foreign,
    }
}

/// Brings the folder in order after any crash, and says which blobs are whole.
fn recover(folder: &Path) -> io::Result<BTreeMap<Digest, Arc<HashList>>> {
    let mut whole = BTreeMap::new();
    let mut beside = BTreeSet::new();
    for found in std::fs::read_dir(folder)? {
        let found = found?;
        match entry(&found.file_name()) {
            Entry::Foreign => {}
            Entry::Leftover => files::remove(&found.path())?,
            Entry::Part(sha256) | Entry::Beside(sha256) => {
                beside.insert(sha256);
            }
            Entry::Whole(sha256) => match whole_blob(&found.path())? {
                Some(list) => {
                    whole.insert(sha256, Arc::new(list));
                }
                None => {
                    tracing::warn!(path = %found.path().display(), "a file under a blob's name is not that blob and is removed");
                    remove_anything(&found.path())?;
                }
            },
        }
    }
    for sha256 in beside {
        let path = folder.join(sha256.hex().to_string());
        if sidecar::read_list(&path.with_extension(HASHES))?.is_none() {
            // Nothing in it can be verified, so it is worth nothing.
            files::remove(&path.with_extension(PART))?;
        }
        let has_part = path.with_extension(PART).exists();
        if !has_part {
            files::remove(&path.with_extension(HAVE))?;
        }
        if !has_part && !whole.contains_key(&sha256) {
            files::remove(&path.with_extension(HASHES))?;
        }
    }
    files::sync_folder(folder)?;
    Ok(whole)
}

/// The hash list of a file under a blob's name, if it can be that blob: a regular file of the very size.
fn whole_blob(path: &Path) -> io::Result<Option<HashList>> {
    let metadata = std::fs::symlink_metadata(path)?;
    let list = sidecar::read_list(&path.with_extension(HASHES))?;
    Ok(list.filter(|list| metadata.is_file() && metadata.len() == list.layout().size_bytes()))
}

fn remove_anything(path: &Path) -> io::Result<()> {
    if std::fs::symlink_metadata(path)?.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
}

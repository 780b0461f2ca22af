//! The blob folder: what is whole, what is under way, and whether there is room for more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use groundswell_core::blob::{BlobName, HashList, Layout, LayoutError};
use groundswell_core::digest::Digest;
use tokio::sync::watch;

use super::eviction::{Candidate, Needed, Spared, choose};
use super::files;
use super::folder::{self, Found, Part, Way};
use super::partial::Partial;
use super::sidecar;

/// How long a blob that nobody names yet stays: its documents come after it.
const UNNAMED_FOR: Duration = Duration::from_secs(3_600);
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
    #[error("disk-full: {blob} needs {needed_bytes} bytes and {free_bytes} may be used beside limits.keep-free: free some")]
    DiskFull {
        /// The blob.
        blob: Digest,
        /// Bytes still to be written.
        needed_bytes: u64,
        /// Bytes free above the reserve.
        free_bytes: u64,
    },
    /// All blobs together would take more than is allowed, and none may give way.
    #[error(
        "blob-quota: {blob} needs {needed_bytes} bytes and {left_bytes} are left of the quota for blobs, \
         whose other blobs rollouts still need: raise limits.blobs"
    )]
    Quota {
        /// The blob.
        blob: Digest,
        /// Bytes that it takes.
        needed_bytes: u64,
        /// Bytes left.
        left_bytes: u64,
    },
    /// [`BLOBS`] are here.
    #[error("there are {BLOBS} blobs already, and rollouts need them all")]
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
    spared: Spared,
}

#[derive(Debug, Default)]
struct State {
    whole: BTreeMap<Digest, Whole>,
    /// How often any blob was used.
    uses: u64,
    underway: BTreeMap<Digest, Weak<Partial>>,
    /// Downloads whose files are being looked at; that takes long, so the lock is not held meanwhile.
    opening: BTreeSet<Digest>,
    /// Blobs that tools on this machine are bringing.
    putting: BTreeSet<Digest>,
    /// Blobs whose files are being removed; that takes long, so the lock is not held meanwhile.
    removing: BTreeSet<Digest>,
    /// Blobs on their way in whose room was found free, until they are done with it or take it from the file system: how many
    /// bytes. By the way that they come.
    promised: BTreeMap<(Digest, Way), u64>,
}

/// A blob that is here as a whole.
#[derive(Debug)]
struct Whole {
    list: Arc<HashList>,
    /// The count of uses at its last one.
    used: u64,
    /// When it came, unless it was here before the store was opened.
    came: Option<Instant>,
}

impl State {
    fn used(&mut self, sha256: &Digest) {
        self.uses += 1;
        if let Some(whole) = self.whole.get_mut(sha256) {
            whole.used = self.uses;
        }
    }
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
        let found = folder::recover(&folder).map_err(failed)?;
        let names = found.iter().map(|found| found.sha256).collect();
        let uses = u64::try_from(found.len()).unwrap_or(u64::MAX);
        let whole = |(used, Found { sha256, list }): (u64, Found)| (sha256, Whole { list: Arc::new(list), used, came: None });
        let state = State { whole: (1..).zip(found).map(whole).collect(), uses, ..State::default() };
        let (state, spared) = (Mutex::new(state), Spared::default());
        Ok(Self { shared: Arc::new(Shared { settings, state, whole: watch::Sender::new(names), spared }) })
    }

    /// From now on blobs may give way to others where room is short: those that `needed` does not name, that nobody is
    /// writing, and that have been here for a while, for a file may come before the documents that name it. Until then
    /// none does. `needed` is asked without any lock of the store; the first one that is given stays.
    pub fn spare_only(&self, needed: Needed) {
        self.shared.spared.set(needed);
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
            let whole = state.whole.iter().map(|(sha256, whole)| {
                let pieces = whole.list.layout().count();
                Held { name: sidecar::name_of(*sha256, &whole.list), held: pieces, pieces }
            });
            let underway: Vec<_> = state.underway.values().filter_map(Weak::upgrade).collect();
            (whole.collect::<Vec<_>>(), underway)
        };
        all.extend(underway.iter().map(|partial| partial.progress()));
        for Part { sha256, .. } in self.shared.parts()? {
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

    /// What is here of a blob, whole or being downloaded. Asks no disk.
    #[must_use]
    pub fn held(&self, sha256: &Digest) -> Option<Held> {
        if let Some(list) = self.shared.list_of(sha256) {
            let pieces = list.layout().count();
            return Some(Held { name: sidecar::name_of(*sha256, &list), held: pieces, pieces });
        }
        self.shared.partial_of(sha256).map(|partial| partial.progress())
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
            if let Some(whole) = state.whole.get(&blob) {
                let same = sidecar::name_of(blob, &whole.list) == name;
                return if same { Ok(Begun::Whole) } else { Err(DownloadError::Contradiction(blob)) };
            }
            state.underway.retain(|_, partial| partial.strong_count() > 0);
            if let Some(partial) = state.underway.get(&blob).and_then(Weak::upgrade) {
                let same = partial.name() == name;
                return if same { Ok(Begun::Partial(partial)) } else { Err(DownloadError::Contradiction(blob)) };
            }
            if state.removing.contains(&blob) || !state.opening.insert(blob) {
                return Err(DownloadError::Underway(blob));
            }
        }
        let opened =
            self.shared.make_room(blob, Way::Download, name.size_bytes).and_then(|()| Partial::open(&self.shared, name, layout));
        let mut state = self.shared.state();
        state.opening.remove(&blob);
        state.promised.remove(&(blob, Way::Download));
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
        self.shared.state().used(sha256);
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

    /// Lets blobs that nobody needs give way until so many bytes are free on the file system above the reserve, for `blob` is
    /// about to be copied there; none where all of them together would not do. Asks nothing where there is room.
    ///
    /// # Errors
    /// When the folder cannot be read, or a file not removed.
    pub fn make_free(&self, blob: &Digest, needed_bytes: u64) -> io::Result<()> {
        let free = files::free_bytes(&self.shared.settings.folder)?.saturating_sub(self.shared.settings.reserve_bytes);
        let Some(needed) = (needed_bytes > free).then(|| self.shared.spared.ask()).flatten() else { return Ok(()) };
        let candidates = self.shared.candidates(*blob, &needed)?;
        for sha256 in choose(candidates, needed_bytes - free, 0).into_iter().flatten() {
            tracing::info!(blob = %sha256, "removed, to make room where {blob} is to be copied to: no rollout needs it");
            self.shared.remove(&sha256)?;
        }
        Ok(())
    }

    /// Removes a blob, whole or partial. A download under way stores nothing from then on, and fails: stop it first.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn remove(&self, sha256: &Digest) -> io::Result<()> {
        self.shared.remove(sha256)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Whether nobody else puts the blob already; then it is being put from now on.
    pub(super) fn begin_put(&self, sha256: Digest) -> bool {
        let mut state = self.state();
        !state.removing.contains(&sha256) && state.putting.insert(sha256)
    }

    pub(super) fn end_put(&self, sha256: &Digest) {
        let mut state = self.state();
        state.putting.remove(sha256);
        state.promised.remove(&(*sha256, Way::Put));
    }

    pub(super) fn path(&self, sha256: &Digest) -> PathBuf {
        self.settings.folder.join(sha256.hex().to_string())
    }

    pub(super) fn part(&self, sha256: &Digest) -> PathBuf {
        self.path(sha256).with_extension(folder::PART)
    }

    pub(super) fn put(&self, sha256: &Digest) -> PathBuf {
        self.path(sha256).with_extension(folder::PUT)
    }

    pub(super) fn have(&self, sha256: &Digest) -> PathBuf {
        self.path(sha256).with_extension(folder::HAVE)
    }

    pub(super) fn hashes(&self, sha256: &Digest) -> PathBuf {
        self.path(sha256).with_extension(folder::HASHES)
    }

    pub(super) fn list_of(&self, sha256: &Digest) -> Option<Arc<HashList>> {
        self.state().whole.get(sha256).map(|whole| Arc::clone(&whole.list))
    }

    fn size_of(&self, sha256: &Digest) -> Option<u64> {
        self.list_of(sha256).map(|list| list.layout().size_bytes())
    }

    pub(super) fn partial_of(&self, sha256: &Digest) -> Option<Arc<Partial>> {
        self.state().underway.get(sha256).and_then(Weak::upgrade)
    }

    fn remove(&self, sha256: &Digest) -> io::Result<()> {
        let underway = self.state().underway.remove(sha256).and_then(|partial| partial.upgrade());
        underway.inspect(|partial| partial.abandon());
        let mut paths = vec![self.path(sha256), self.part(sha256), self.have(sha256), self.hashes(sha256)];
        {
            let mut state = self.state();
            if state.whole.remove(sha256).is_some() {
                self.announce(&state);
            }
            if !state.putting.contains(sha256) {
                paths.push(self.put(sha256));
            }
            // Until its files are gone nobody begins to bring it anew. Should two remove it, the first one ends that.
            state.removing.insert(*sha256);
        }
        let removed = paths.iter().try_for_each(|path| files::remove(path));
        let removed = removed.and_then(|()| files::sync_folder(&self.settings.folder));
        self.state().removing.remove(sha256);
        removed
    }

    /// A blob got its name on disk.
    pub(super) fn completed(&self, sha256: Digest, list: HashList) {
        // Whatever else brings it is overtaken.
        let underway = self.state().underway.remove(&sha256).and_then(|partial| partial.upgrade());
        underway.inspect(|partial| partial.abandon());
        let mut state = self.state();
        state.underway.remove(&sha256);
        state.promised.retain(|(other, _), _| *other != sha256);
        state.uses += 1;
        let whole = Whole { list: Arc::new(list), used: state.uses, came: Some(Instant::now()) };
        state.whole.insert(sha256, whole);
        self.announce(&state);
        // What came of it in part is not needed any more.
        let put = (!state.putting.contains(&sha256)).then(|| self.put(&sha256));
        drop(state);
        for path in [self.part(&sha256), self.have(&sha256)].into_iter().chain(put) {
            if let Err(error) = files::remove(&path) {
                tracing::warn!(path = %path.display(), %error, "what came in part cannot be removed");
            }
        }
    }

    /// A blob's file is not what it was: it is forgotten and removed.
    pub(super) fn damaged(&self, sha256: &Digest) -> LookupError {
        tracing::error!(blob = %sha256, "a blob was damaged on disk and is removed");
        {
            let mut state = self.state();
            state.whole.remove(sha256);
            state.removing.insert(*sha256);
            self.announce(&state);
        }
        for path in [self.path(sha256), self.hashes(sha256)] {
            if let Err(error) = files::remove(&path) {
                tracing::error!(path = %path.display(), %error, "a damaged blob cannot be removed");
            }
        }
        self.state().removing.remove(sha256);
        LookupError::Damaged(*sha256)
    }

    fn announce(&self, state: &State) {
        self.whole.send_replace(state.whole.keys().copied().collect());
    }

    fn parts(&self) -> io::Result<Vec<Part>> {
        folder::parts(&self.settings.folder)
    }

    /// Makes room for a blob, by number, quota and free space: lets others give way where it must.
    pub(super) fn make_room(&self, blob: Digest, way: Way, needed_bytes: u64) -> Result<(), DownloadError> {
        let Err(full) = self.check_room(blob, way, needed_bytes) else { return Ok(()) };
        if way == Way::Download && self.gives_up_put(&blob).map_err(|error| DownloadError::Io(blob, error))? {
            return self.make_room(blob, way, needed_bytes);
        }
        let (bytes, places) = match &full {
            DownloadError::Quota { left_bytes, .. } => (needed_bytes.saturating_sub(*left_bytes), 0),
            DownloadError::DiskFull { free_bytes, .. } => (needed_bytes.saturating_sub(*free_bytes), 0),
            DownloadError::TooMany => (0, 1),
            _ => return Err(full),
        };
        let Some(needed) = self.spared.ask() else { return Err(full) };
        let candidates = self.candidates(blob, &needed).map_err(|error| DownloadError::Io(blob, error))?;
        let Some(chosen) = choose(candidates, bytes, places) else { return Err(full) };
        for sha256 in chosen {
            tracing::info!(blob = %sha256, "removed, to make room for {blob}: no rollout needs it");
            self.remove(&sha256).map_err(|error| DownloadError::Io(sha256, error))?;
        }
        // One bound was met; another may be short as well.
        self.make_room(blob, way, needed_bytes)
    }

    /// Removes what a tool had begun to bring of a blob and nobody brings now. Whether there was anything.
    fn gives_up_put(&self, blob: &Digest) -> io::Result<bool> {
        let put = self.put(blob);
        let state = self.state();
        if state.putting.contains(blob) || !put.exists() {
            return Ok(false);
        }
        files::remove(&put).map(|()| true)
    }

    /// What may give way: whole blobs and stopped downloads that nobody needs.
    fn candidates(&self, blob: Digest, needed: &BTreeSet<Digest>) -> io::Result<Vec<Candidate>> {
        let parts = self.parts()?;
        let state = self.state();
        let is_free = |sha256: &Digest| *sha256 != blob && !needed.contains(sha256);
        let whole = state
            .whole
            .iter()
            .filter(|(sha256, whole)| is_free(sha256) && whole.came.is_none_or(|came| came.elapsed() >= UNNAMED_FOR));
        let whole = whole.map(|(sha256, whole)| Candidate {
            sha256: *sha256,
            size_bytes: whole.list.layout().size_bytes(),
            used: whole.used,
        });
        let stopped = parts.into_iter().filter(|Part { sha256, .. }| {
            let written = state.underway.get(sha256).is_some_and(|partial| partial.strong_count() > 0);
            let begun = state.opening.contains(sha256) || state.putting.contains(sha256);
            is_free(sha256) && !written && !begun && !state.whole.contains_key(sha256)
        });
        let stopped = stopped.map(|Part { sha256, size_bytes, .. }| Candidate { sha256, size_bytes, used: 0 });
        Ok(whole.chain(stopped).collect())
    }

    /// Whether there is room for a blob that comes this way, by number, quota and free space.
    fn check_room(&self, blob: Digest, way: Way, needed_bytes: u64) -> Result<(), DownloadError> {
        let parts = self.parts().map_err(|error| DownloadError::Io(blob, error))?;
        let own = |part: &&Part| part.sha256 == blob && part.way == way;
        let here = parts.iter().find(own).map_or(0, |part| part.size_bytes);
        // What comes of the same blob the other way takes room of its own, until one of them is whole.
        let others = parts.iter().filter(|part| !own(part));
        {
            let mut state = self.state();
            let whole = state.whole.iter().filter(|(other, _)| **other != blob);
            let besides = others.clone().filter(|part| part.sha256 != blob);
            if whole.clone().count() + besides.count() >= BLOBS {
                return Err(DownloadError::TooMany);
            }
            let whole = whole.map(|(_, whole)| whole.list.layout().size_bytes());
            // What others found free and have not taken yet is not free.
            let on_disk = |other: &Digest, way: Way| {
                parts.iter().find(|part| part.sha256 == *other && part.way == way).map_or(0, |part| part.size_bytes)
            };
            let promised = state.promised.iter().filter(|((other, other_way), _)| (*other, *other_way) != (blob, way));
            let promised = promised.map(|((other, way), bytes)| bytes.saturating_sub(on_disk(other, *way)));
            let taken = whole.chain(others.map(|part| part.size_bytes)).chain(promised).fold(0, u64::saturating_add);
            let left_bytes = self.settings.quota_bytes.saturating_sub(taken);
            if needed_bytes > left_bytes {
                return Err(DownloadError::Quota { blob, needed_bytes, left_bytes });
            }
            state.promised.insert((blob, way), needed_bytes);
        }
        // What a stopped download has taken already is not needed again.
        self.check_free(blob, needed_bytes.saturating_sub(here))
    }

    /// What it means that a file of a blob on its way in cannot be written.
    pub(super) fn unwritable(&self, blob: Digest, needed_bytes: u64, error: io::Error) -> DownloadError {
        if !files::is_full(&error) {
            return DownloadError::Io(blob, error);
        }
        let free_bytes = files::free_bytes(&self.settings.folder).unwrap_or(0);
        DownloadError::DiskFull { blob, needed_bytes, free_bytes }
    }

    /// Whether the file system has `needed_bytes` above the reserve.
    pub(super) fn check_free(&self, blob: Digest, needed_bytes: u64) -> Result<(), DownloadError> {
        let free = files::free_bytes(&self.settings.folder).map_err(|error| DownloadError::Io(blob, error))?;
        let free_bytes = free.saturating_sub(self.settings.reserve_bytes);
        if needed_bytes <= free_bytes { Ok(()) } else { Err(DownloadError::DiskFull { blob, needed_bytes, free_bytes }) }
    }
}

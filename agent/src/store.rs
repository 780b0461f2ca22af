//! What must survive a power cut: a key-value store on sled, durable when [`Store::commit`] returns.
//!
//! sled lives here and nowhere else. Its `flush` is not durable on Linux (it ends in `sync_file_range`), so every
//! commit calls `fdatasync` on the database's own file afterwards. Values are cut into small pieces, because sled
//! writes large pages into files of their own that it never syncs.
//!
//! The node's identity lives here too: a lost store is a lost identity, by construction (design, section 7, rule 7).
//! A store that is damaged, emptied or set back is an error with a way out; nothing starts empty by accident.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::install::files::{Link, open_regular_as};

/// One change: `None` removes the key.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// A key with its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Bytes of a value in one sled entry. A sled leaf holds at most 17 entries and moves into a file of its own above
/// 128 KiB; 17 pieces of this size stay well below.
const PIECE_BYTES: usize = 4096;
/// sled's page cache. The core keeps everything in memory, so nothing is read twice.
const CACHE_BYTES: u64 = 1024 * 1024;
/// How long a store that another holds is waited for, and how often it is tried meanwhile.
const LOCK_WAIT: Duration = Duration::from_secs(3);
const LOCK_RETRY: Duration = Duration::from_millis(20);
const FORMAT: u8 = 1;
const FORMAT_KEY: &[u8] = b"m/format";
const COMMITS_KEY: &[u8] = b"m/commits";
const IDENTITY_KEY: &[u8] = b"m/identity";
const VALUE_PREFIX: u8 = b'v';

/// A store on disk, or in memory for those who promise nothing (observers, tests).
pub struct Store {
    place: Place,
}

enum Place {
    Disk(Box<Disk>),
    Memory { identity: [u8; 32], values: Mutex<BTreeMap<Vec<u8>, Vec<u8>>> },
}

struct Disk {
    folder: PathBuf,
    database: sled::Db,
    /// A second handle on sled's `db` file: `fdatasync` on it makes durable what `flush` handed to the kernel.
    file: File,
    /// Holds the number of the last commit. Written after each one and never synced: it may lag behind the database,
    /// the database must never lag behind it.
    witness: File,
    state: Mutex<State>,
}

struct State {
    commits: u64,
    /// Pieces per key, to remove the rest when a value shrinks. Only keys with more than one.
    pieces: BTreeMap<Vec<u8>, u32>,
}

/// Why a store cannot be opened or made.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing there.
    #[error("there is no store in {}: run `swell node init`, or name the right data folder", .0.display())]
    Missing(PathBuf),
    /// Something there already.
    #[error("there is a store in {} already: a node keeps its identity; move the folder away to make a new one", .0.display())]
    Exists(PathBuf),
    /// Another process has it.
    #[error("the store in {} is in use: stop the agent or tool that runs on it", .0.display())]
    Locked(PathBuf),
    /// It cannot be read back.
    #[error(
        "the store in {} is damaged ({what}): its promises are lost, so the node needs a new identity; \
         move the folder away, run `swell node init`, and admit it anew", .folder.display()
    )]
    Damaged {
        /// The store's folder.
        folder: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// It is older than it was.
    #[error(
        "the store in {} was set back by {lost} commits: it may have forgotten promises; \
         move the folder away, run `swell node init`, and admit the node anew", .folder.display()
    )]
    SetBack {
        /// The store's folder.
        folder: PathBuf,
        /// Commits that are gone.
        lost: u64,
    },
    /// Written by newer software.
    #[error("the store in {} has format {format}, this version knows {FORMAT}: run the newer version", .folder.display())]
    Newer {
        /// The store's folder.
        folder: PathBuf,
        /// Its format.
        format: u8,
    },
    /// The file system refused.
    #[error("cannot {operation} {}", .path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// A commit failed: nothing of its batch may be acted on. The store is as before, or has all of the batch without
/// being sure that it is durable; committing the same batch again is right in both cases.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the store in {}: free disk space or repair the file system; nothing is published until it can be written", .folder.display())]
pub struct CommitError {
    /// The store's folder.
    pub folder: PathBuf,
    /// Why not.
    pub source: io::Error,
}

impl Store {
    /// Makes a new store in `folder` for the node with this Ed25519 secret, durable when it returns.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when there is one already; otherwise as [`Store::open`].
    pub fn create(folder: &Path, secret: &[u8; 32]) -> Result<Self, StoreError> {
        if folder.join("db").exists() {
            return Err(StoreError::Exists(folder.to_path_buf()));
        }
        let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let io = |operation, path: &Path| {
            let path = path.to_path_buf();
            move |source| StoreError::Io { operation, path, source }
        };
        // Made aside and renamed when whole: a crash in the middle leaves no half-made store behind.
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let aside = parent.join(format!(".{name}.new"));
        if aside.exists() {
            std::fs::remove_dir_all(&aside).map_err(io("remove", &aside))?;
        }
        // The identity's secret lies in it.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&aside).map_err(io("create", &aside))?;
        {
            let database = open_database(&aside)?;
            let fail = |error| io("write", &aside)(to_io(error));
            database.insert(FORMAT_KEY, &[FORMAT]).map_err(fail)?;
            database.insert(COMMITS_KEY, &0u64.to_be_bytes()).map_err(fail)?;
            database.insert(IDENTITY_KEY, secret).map_err(fail)?;
            let disk = Disk::new(&aside, database, State { commits: 0, pieces: BTreeMap::new() })?;
            disk.make_durable().map_err(io("write", &aside))?;
        }
        // The names of the new files are durable only once their folders are.
        let sync = |path: &Path| File::open(path).and_then(|folder| folder.sync_all()).map_err(io("flush", path));
        sync(&aside)?;
        std::fs::rename(&aside, folder).map_err(io("create", folder))?;
        sync(parent)?;
        Self::open(folder)
    }

    /// Opens the store in `folder`.
    ///
    /// # Errors
    /// When it is missing, in use, damaged, set back, newer, or cannot be read; each names the folder and a way out.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        // sled would make a new, empty database where there is none.
        if !folder.join("db").exists() {
            return Err(StoreError::Missing(folder.to_path_buf()));
        }
        let database = open_database(folder)?;
        let damaged = |what: &str| StoreError::Damaged { folder: folder.to_path_buf(), what: what.to_owned() };
        let get = |key: &[u8]| guarded(folder, || database.get(key));
        match get(FORMAT_KEY)?.as_deref() {
            Some([FORMAT]) => {}
            Some([format]) => return Err(StoreError::Newer { folder: folder.to_path_buf(), format: *format }),
            _ => return Err(damaged("its format mark is gone")),
        }
        let commits = get(COMMITS_KEY)?.and_then(|bytes| bytes.as_ref().try_into().ok().map(u64::from_be_bytes));
        let commits = commits.ok_or_else(|| damaged("its commit counter is gone"))?;
        if get(IDENTITY_KEY)?.is_none_or(|secret| secret.len() != 32) {
            return Err(damaged("its identity is gone"));
        }
        let disk = Disk::new(folder, database, State { commits, pieces: BTreeMap::new() })?;
        let witnessed =
            disk.witnessed().map_err(|source| StoreError::Io { operation: "read", path: witness_path(folder), source })?;
        if witnessed > commits {
            return Err(StoreError::SetBack { folder: folder.to_path_buf(), lost: witnessed - commits });
        }
        // Reads every value once: damage shows now, and a commit knows how many pieces each value has.
        disk.load()?;
        Ok(Self { place: Place::Disk(Box::new(disk)) })
    }

    /// An empty store in memory: for observers, who promise nothing, and for tests.
    #[must_use]
    pub fn in_memory(secret: &[u8; 32]) -> Self {
        Self { place: Place::Memory { identity: *secret, values: Mutex::new(BTreeMap::new()) } }
    }

    /// The 32 secret bytes of the node's Ed25519 key.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn identity(&self) -> Result<[u8; 32], StoreError> {
        match &self.place {
            Place::Memory { identity, .. } => Ok(*identity),
            Place::Disk(disk) => guarded(&disk.folder, || disk.database.get(IDENTITY_KEY))?
                .and_then(|secret| secret.as_ref().try_into().ok())
                .ok_or_else(|| StoreError::Damaged { folder: disk.folder.clone(), what: "its identity is gone".to_owned() }),
        }
    }

    /// Everything that was committed, in no particular order.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a value does not read back whole.
    pub fn load(&self) -> Result<Vec<Pair>, StoreError> {
        match &self.place {
            Place::Memory { values, .. } => Ok(lock(values).iter().map(|(key, value)| (key.clone(), value.clone())).collect()),
            Place::Disk(disk) => disk.load(),
        }
    }

    /// Applies all of `batch` or nothing, and returns once it is durable. Blocks for as long as the disk takes.
    ///
    /// # Errors
    /// When the disk refuses: see [`CommitError`].
    pub fn commit(&self, batch: &[Change]) -> Result<(), CommitError> {
        match &self.place {
            Place::Memory { values, .. } => {
                let mut values = lock(values);
                for (key, value) in batch {
                    match value {
                        Some(value) => values.insert(key.clone(), value.clone()),
                        None => values.remove(key),
                    };
                }
                Ok(())
            }
            Place::Disk(disk) => disk.commit(batch).map_err(|source| CommitError { folder: disk.folder.clone(), source }),
        }
    }
}

impl Disk {
    fn new(folder: &Path, database: sled::Db, state: State) -> Result<Self, StoreError> {
        let open = |path: PathBuf, create: bool| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(create).truncate(false);
            let file = open_regular_as(&path, Link::Refused, &mut options);
            file.map_err(|source| StoreError::Io { operation: "open", path, source })
        };
        let file = open(folder.join("db"), false)?;
        let witness = open(witness_path(folder), true)?;
        Ok(Self { folder: folder.to_path_buf(), database, file, witness, state: Mutex::new(state) })
    }

    fn witnessed(&self) -> io::Result<u64> {
        let mut bytes = Vec::new();
        (&self.witness).take(8).read_to_end(&mut bytes)?;
        Ok(bytes.try_into().map_or(0, u64::from_be_bytes))
    }

    fn make_durable(&self) -> io::Result<()> {
        self.database.flush().map_err(to_io)?;
        self.file.sync_data()
    }

    fn commit(&self, batch: &[Change]) -> io::Result<()> {
        let mut state = lock(&self.state);
        let commits = state.commits + 1;
        let mut changes = sled::Batch::default();
        changes.insert(COMMITS_KEY, &commits.to_be_bytes());
        let mut pieces = BTreeMap::new();
        for (key, value) in batch {
            let before = pieces.get(key).or_else(|| state.pieces.get(key)).copied().unwrap_or(1);
            let mut after = 0;
            if let Some(value) = value {
                let length = u32::try_from(value.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
                let whole = [length.to_be_bytes().as_slice(), value].concat();
                for piece in whole.chunks(PIECE_BYTES) {
                    changes.insert(piece_key(key, after), piece);
                    after += 1;
                }
            }
            (after..before).for_each(|stale| changes.remove(piece_key(key, stale)));
            pieces.insert(key.clone(), after);
        }
        self.database.apply_batch(changes).map_err(to_io)?;
        self.make_durable()?;
        state.commits = commits;
        for (key, count) in pieces {
            if count > 1 {
                state.pieces.insert(key, count)
            } else {
                state.pieces.remove(&key)
            };
        }
        // Only ever behind the database; see the field.
        self.witness.write_all_at(&commits.to_be_bytes(), 0)
    }

    fn load(&self) -> Result<Vec<Pair>, StoreError> {
        let damaged = |what: &str| StoreError::Damaged { folder: self.folder.clone(), what: what.to_owned() };
        let mut values: Vec<Pair> = Vec::new();
        let mut counts = BTreeMap::new();
        guarded(&self.folder, || {
            for entry in self.database.scan_prefix([VALUE_PREFIX]) {
                let (raw, piece) = entry?;
                let Some((key, index)) = split_piece_key(&raw) else { continue };
                match values.last_mut() {
                    Some((last, value)) if last == key && counts.get(last.as_slice()) == Some(&index) => {
                        value.extend_from_slice(&piece)
                    }
                    _ if index == 0 => values.push((key.to_vec(), piece.to_vec())),
                    _ => return Err(sled::Error::Corruption { at: None, bt: () }),
                }
                counts.insert(key.to_vec(), index + 1);
            }
            Ok(())
        })?;
        for (_, value) in &mut values {
            let Some((length, rest)) = value.split_first_chunk::<4>() else { return Err(damaged("a value has no length")) };
            if usize::try_from(u32::from_be_bytes(*length)).ok() != Some(rest.len()) {
                return Err(damaged("a value is not whole"));
            }
            value.drain(..4);
        }
        counts.retain(|_, count| *count > 1);
        lock(&self.state).pieces = counts;
        Ok(values)
    }
}

fn witness_path(folder: &Path) -> PathBuf {
    folder.join("witness")
}

/// `v ‖ length of the key ‖ key ‖ number of the piece`, so that the pieces of a value stand together, in order.
fn piece_key(key: &[u8], piece: u32) -> Vec<u8> {
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    [&[VALUE_PREFIX], length.to_be_bytes().as_slice(), key, &piece.to_be_bytes()].concat()
}

fn split_piece_key(raw: &[u8]) -> Option<(&[u8], u32)> {
    let (length, rest) = raw.get(1..)?.split_first_chunk::<4>()?;
    let (key, piece) = rest.split_last_chunk::<4>()?;
    (usize::try_from(u32::from_be_bytes(*length)).ok()? == key.len()).then(|| (key, u32::from_be_bytes(*piece)))
}

/// Opens sled's database, waiting [`LOCK_WAIT`] for whoever is just letting go of it: the lock is on an open file that
/// every child between its fork and its exec holds too, so it outlives the store that was dropped by some milliseconds.
fn open_database(folder: &Path) -> Result<sled::Db, StoreError> {
    let config = sled::Config::new().path(folder).cache_capacity(CACHE_BYTES).mode(sled::Mode::LowSpace).flush_every_ms(None);
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match guarded(folder, || config.open()) {
            Err(StoreError::Locked(_)) if Instant::now() < deadline => std::thread::sleep(LOCK_RETRY),
            opened => return opened,
        }
    }
}

/// Runs `read`, which may fail or, on a damaged database, panic inside sled.
fn guarded<T>(folder: &Path, read: impl FnOnce() -> sled::Result<T>) -> Result<T, StoreError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(sled::Error::Io(error))) if error.to_string().starts_with("could not acquire lock") => {
            Err(StoreError::Locked(folder.to_path_buf()))
        }
        Ok(Err(sled::Error::Io(source))) if source.kind() != io::ErrorKind::Other => {
            Err(StoreError::Io { operation: "read", path: folder.to_path_buf(), source })
        }
        Ok(Err(error)) => Err(StoreError::Damaged { folder: folder.to_path_buf(), what: error.to_string() }),
        Err(_) => Err(StoreError::Damaged { folder: folder.to_path_buf(), what: "the database does not read back".to_owned() }),
    }
}

fn to_io(error: sled::Error) -> io::Error {
    match error {
        sled::Error::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// A lock whose holder panicked is taken over: what it guards is replaced as a whole, never half-changed.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.place {
            Place::Disk(disk) => write!(f, "Store({})", disk.folder.display()),
            Place::Memory { .. } => write!(f, "Store(memory)"),
        }
    }
}

//! A download under way: data written in place, and a durable bitmap that never claims more than is on disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use groundswell_core::blob::{BlobName, HashList, Layout, PieceSet};
use groundswell_net::blobs::{PieceSink, ReadError, SinkError};

use super::files;
use super::running_hash::RunningHash;
use super::sidecar;
use super::store::{DownloadError, Held, Shared};

/// Bytes written between two flushes of data and bitmap: after a crash so much may have to be read again, not fetched.
const CHECKPOINT_BYTES: u64 = 16 * 1024 * 1024;

/// One download of one blob. Dropping it notes what is here, for the next attempt.
#[derive(Debug)]
pub struct Partial {
    shared: Arc<Shared>,
    name: BlobName,
    layout: Layout,
    file: File,
    list: OnceLock<HashList>,
    sha256: RunningHash,
    state: Mutex<State>,
    /// Held while a file beside the data is replaced: an older bitmap never overwrites a newer one, and two peers that
    /// bring the hash list at once do not write one temporary file.
    checkpoint: Mutex<()>,
    /// Whether it is whole; held while that is being found out, so that two who finish agree.
    whole: Mutex<bool>,
}

#[derive(Debug)]
struct State {
    held: PieceSet,
    unnoted_bytes: u64,
    /// Finished or removed: its files are not its own any more.
    closed: bool,
}

impl Partial {
    /// Opens what an earlier attempt left, or begins anew; takes the whole size from the file system at once.
    pub(super) fn open(shared: &Arc<Shared>, name: BlobName, layout: Layout) -> Result<Self, DownloadError> {
        let blob = name.sha256;
        let failed = |error| shared.unwritable(blob, name.size_bytes, error);
        let list = sidecar::read_list(&shared.hashes(&blob)).map_err(failed)?;
        let list = list.filter(|list| sidecar::name_of(blob, list) == name);
        if list.is_some() {
            take_back_name(shared, name).map_err(failed)?;
        }
        let file = files::open_in_place(&shared.part(&blob)).map_err(failed)?;
        let found = file.metadata().map_err(failed)?.len();
        let held = match &list {
            Some(list) if found == name.size_bytes => {
                let claimed = sidecar::read_have(&shared.have(&blob), layout).map_err(failed)?;
                find_unclaimed(&file, list, claimed.unwrap_or_else(|| PieceSet::empty(layout))).map_err(failed)?
            }
            _ => {
                begin(shared, name, &file)?;
                PieceSet::empty(layout)
            }
        };
        let known = OnceLock::new();
        if let Some(list) = list {
            let _ = known.set(list);
        }
        let state = Mutex::new(State { held, unnoted_bytes: 0, closed: false });
        let (checkpoint, whole) = (Mutex::new(()), Mutex::new(false));
        let sha256 = RunningHash::new(layout);
        Ok(Self { shared: Arc::clone(shared), name, layout, file, list: known, sha256, state, checkpoint, whole })
    }

    /// The blob's name.
    #[must_use]
    pub fn name(&self) -> BlobName {
        self.name
    }

    /// How much is here.
    #[must_use]
    pub fn progress(&self) -> Held {
        Held { name: self.name, held: self.state().held.held(), pieces: self.layout.count() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Reads a piece that is held and checks it once more; the disk may have changed it since.
    pub(super) fn read_piece(&self, piece: u32) -> Result<Vec<u8>, ReadError> {
        let list = self.list.get().ok_or(ReadError::NotHeld(piece))?;
        if piece >= self.layout.count() {
            return Err(ReadError::Beyond(piece));
        }
        if !self.state().held.contains(piece) {
            return Err(ReadError::NotHeld(piece));
        }
        read_verified(&self.file, list, piece)?.ok_or(ReadError::NotHeld(piece))
    }

    /// The data gets another name or none: nothing is written beside it any more.
    pub(super) fn abandon(&self) {
        let _no_note_now = self.checkpoint.lock().expect("no holder of this lock panics");
        self.state().closed = true;
    }

    /// Notes what is here when enough came since the last time. The room of the data is reserved, that of the bitmap is
    /// not: on a full disk it is tried again after as much again, and meanwhile a crash costs reading more.
    fn note_if_due(&self) -> Result<(), SinkError> {
        if self.state().unnoted_bytes < CHECKPOINT_BYTES {
            return Ok(());
        }
        match self.note() {
            Ok(()) => Ok(()),
            Err(Unnoted::Bitmap(error)) if files::is_full(&error) => {
                tracing::warn!(blob = %self.name.sha256, %error, "how far a download is cannot be noted: the disk is full");
                Ok(())
            }
            Err(error) => Err(self.sink_error(error.into())),
        }
    }

    /// Flushes the data, and only then the bitmap that speaks of it.
    fn note(&self) -> Result<(), Unnoted> {
        let _one_at_a_time = self.checkpoint.lock().expect("no holder of this lock panics");
        let held = {
            let mut state = self.state();
            if state.closed {
                return Ok(());
            }
            state.unnoted_bytes = 0;
            state.held.clone()
        };
        self.file.sync_data().map_err(Unnoted::Data)?;
        sidecar::write_have(&self.shared.have(&self.name.sha256), &held).map_err(Unnoted::Bitmap)
    }

    /// The complete file has another digest than its name: finds the pieces that this disk damaged.
    fn find_damage(&self, list: &HashList) -> SinkError {
        let mut pieces = Vec::new();
        for piece in 0..self.layout.count() {
            match read_verified(&self.file, list, piece) {
                Ok(Some(_)) => {}
                Ok(None) => pieces.push(piece),
                Err(error) => return SinkError::Io(error),
            }
        }
        if pieces.is_empty() {
            return SinkError::Contradiction;
        }
        let mut state = self.state();
        pieces.iter().for_each(|piece| {
            state.held.remove(*piece);
        });
        drop(state);
        match self.note() {
            Ok(()) => SinkError::Damaged { pieces },
            Err(error) => self.sink_error(error.into()),
        }
    }

    /// The blob came another way meanwhile.
    fn is_overtaken(&self) -> bool {
        self.shared.list_of(&self.name.sha256).is_some()
    }

    fn sink_error(&self, error: io::Error) -> SinkError {
        if !files::is_full(&error) {
            return SinkError::Io(error);
        }
        let missing = self.layout.count() - self.state().held.held();
        let needed_bytes = u64::from(missing) * self.layout.piece_bytes();
        let free_bytes = files::free_bytes(&self.shared.settings.folder).unwrap_or(0);
        SinkError::DiskFull { needed_bytes, free_bytes }
    }
}

impl PieceSink for Partial {
    fn held(&self) -> PieceSet {
        self.state().held.clone()
    }

    fn hash_list(&self) -> Option<HashList> {
        self.list.get().cloned()
    }

    fn keep_hash_list(&self, list: &HashList) -> Result<(), SinkError> {
        let _one_at_a_time = self.checkpoint.lock().expect("no holder of this lock panics");
        if self.list.get().is_some() {
            return Ok(());
        }
        let keep = sidecar::write_list(&self.shared.hashes(&self.name.sha256), list);
        keep.and_then(|()| files::sync_folder(&self.shared.settings.folder)).map_err(|error| self.sink_error(error))?;
        let _ = self.list.set(list.clone());
        Ok(())
    }

    fn write_piece(&self, piece: u32, bytes: &[u8]) -> Result<(), SinkError> {
        if self.state().closed {
            if self.is_overtaken() {
                return Ok(());
            }
            return Err(SinkError::Io(io::Error::other("the blob was removed while it was being fetched")));
        }
        let range = self.layout.range(piece).expect("the mesh writes only verified pieces, and those exist");
        self.file.write_all_at(bytes, range.start).map_err(|error| self.sink_error(error))?;
        {
            let mut state = self.state();
            state.held.insert(piece);
            state.unnoted_bytes += range.end - range.start;
        }
        self.sha256.advance(piece, bytes);
        Ok(())
    }

    fn keep_up(&self) -> Result<(), SinkError> {
        self.sha256.catch_up(&self.file, |piece| self.state().held.contains(piece))?;
        self.note_if_due()
    }

    fn finish(&self) -> Result<(), SinkError> {
        let blob = self.name.sha256;
        let mut whole = self.whole.lock().expect("no holder of this lock panics");
        if *whole || self.is_overtaken() {
            return Ok(());
        }
        let list = self.list.get().ok_or_else(|| SinkError::Io(io::Error::other("a blob without its hash list is not whole")))?;
        // The disk writes while the rest is hashed.
        let (synced, found) = std::thread::scope(|scope| {
            let syncing = scope.spawn(|| self.file.sync_all());
            let found = self.sha256.finish(&self.file);
            (syncing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), found)
        });
        synced.map_err(|error| self.sink_error(error))?;
        if found? != blob {
            return Err(self.find_damage(list));
        }
        // No bitmap is written from here on: the data gets another name.
        self.abandon();
        let renamed = std::fs::rename(self.shared.part(&blob), self.shared.path(&blob));
        if renamed.is_err() && self.is_overtaken() {
            return Ok(());
        }
        renamed.and_then(|()| files::sync_folder(&self.shared.settings.folder)).map_err(|error| self.sink_error(error))?;
        *whole = true;
        self.shared.completed(blob, list.clone());
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let unnoted_bytes = self.state().unnoted_bytes;
        if unnoted_bytes > 0
            && let Err(error) = self.note().map_err(io::Error::from)
        {
            tracing::warn!(blob = %self.name.sha256, %error, "the progress of a download was not noted");
        }
    }
}

/// Why it was not noted what is here.
#[derive(Debug)]
enum Unnoted {
    /// The data is not known to be on disk.
    Data(io::Error),
    /// The data is, the bitmap beside it is an older one.
    Bitmap(io::Error),
}

impl From<Unnoted> for io::Error {
    fn from(unnoted: Unnoted) -> Self {
        match unnoted {
            Unnoted::Data(error) | Unnoted::Bitmap(error) => error,
        }
    }
}

/// A file that got its name and was not known to keep it, since the folder could not be flushed: it goes on as what it was
/// before, with everything that is in it.
fn take_back_name(shared: &Shared, name: BlobName) -> io::Result<()> {
    let (named, part) = (shared.path(&name.sha256), shared.part(&name.sha256));
    let is_whole = std::fs::metadata(&named).is_ok_and(|found| found.is_file() && found.len() == name.size_bytes);
    if is_whole && !part.exists() { std::fs::rename(named, part) } else { Ok(()) }
}

/// Starts from nothing: what is there is not this blob's.
fn begin(shared: &Shared, name: BlobName, file: &File) -> Result<(), DownloadError> {
    let blob = name.sha256;
    let failed = |error| shared.unwritable(blob, name.size_bytes, error);
    file.set_len(0).map_err(failed)?;
    files::remove(&shared.have(&blob)).map_err(failed)?;
    let reserve = || files::reserve(file, name.size_bytes).map_err(failed);
    let reserved = shared.check_free(blob, name.size_bytes).and_then(|()| reserve());
    if reserved.is_err() {
        // Nothing of it is needed, and its room is.
        files::remove(&shared.part(&blob)).map_err(failed)?;
    }
    reserved
}

/// Adds the pieces that are on disk though the bitmap does not say so: what a crash had not yet noted. Where the file
/// system tells what was never written, that is not read.
fn find_unclaimed(file: &File, list: &HashList, mut held: PieceSet) -> io::Result<PieceSet> {
    let layout = list.layout();
    let mut unclaimed = held.missing().peekable();
    let mut found = Vec::new();
    while let Some(start) = unclaimed.peek().and_then(|piece| layout.range(*piece)).map(|range| range.start) {
        let Some(data) = files::data_from(file, start)? else { break };
        // What ends before the data has none.
        while unclaimed.next_if(|piece| layout.range(*piece).is_some_and(|range| range.end <= data.start)).is_some() {}
        while let Some(piece) = unclaimed.next_if(|piece| layout.range(*piece).is_some_and(|range| range.start < data.end)) {
            if read_verified(file, list, piece)?.is_some() {
                found.push(piece);
            }
        }
    }
    drop(unclaimed);
    found.into_iter().for_each(|piece| {
        held.insert(piece);
    });
    Ok(held)
}

/// Reads a piece; `None` when it does not have its hash, or the file ends before it does.
pub(super) fn read_verified(file: &File, list: &HashList, piece: u32) -> io::Result<Option<Vec<u8>>> {
    let Some((range, length)) = list.layout().range(piece).zip(list.layout().length(piece)) else { return Ok(None) };
    let mut bytes = vec![0; length];
    match file.read_exact_at(&mut bytes, range.start) {
        Ok(()) => Ok(list.verify_piece(piece, &bytes).is_ok().then_some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

//! The files of one product: two slots, `current`, and the confirmed version.
//!
//! ```text
//! products/bcd/slots/a/bcd        the binary, mode 0555
//! products/bcd/slots/a/slot.json  what it is; written last, so a described slot is whole
//! products/bcd/current            → slots/a, swapped by rename (case I5)
//! products/bcd/confirmed.json     the last confirmed slot, its version, and with that the floor
//! products/bcd/denied.json        builds that failed here
//! ```
//!
//! Blocking calls; what may be overwritten and when is decided in `machine`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use groundswell_core::digest::Digest;
use groundswell_core::install::{Confirmed, Contents, Denied, Described, Slot};
use groundswell_core::text::Product;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use super::durable::{make_folder, read_small, remove_file, remove_tree, replace};
use super::files::{Files, Kind, Reading, Writing};
use super::forks;

const DESCRIPTION: &str = "slot.json";
const CONFIRMED: &str = "confirmed.json";
const DENIED: &str = "denied.json";
const CURRENT: &str = "current";
const NEXT: &str = ".current.new";
const INCOMING: &str = ".incoming";
/// Read and hashed at once.
const CHUNK_BYTES: usize = 256 * 1024;
/// Largest description that is read: they have about 400 bytes, a full list of what failed about 30 KiB.
const DESCRIPTION_BYTES: u64 = 128 * 1024;

/// The files of one product.
#[derive(Clone, Debug)]
pub struct Slots {
    files: Arc<dyn Files>,
    folder: PathBuf,
    product: Product,
}

/// A file of ours, with its form's number.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    spec: u8,
    #[serde(flatten)]
    content: T,
}

/// What failed, as it is kept: a list needs a name beside the form's number.
#[derive(Default, Serialize, Deserialize)]
struct DeniedList {
    denied: Vec<Denied>,
}

/// What a small file of ours says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept<T> {
    /// It is not there.
    Absent,
    /// It is there, and not what we wrote.
    Damaged,
    /// What it says.
    Said(T),
}

/// How much the slots of one product may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Least bytes that staging leaves free on the file system.
    pub keep_free_bytes: u64,
    /// Most bytes in both slots together.
    pub slot_bytes: u64,
}

impl Room {
    /// No bound but the disk's own size.
    pub const ENDLESS: Self = Self { keep_free_bytes: 0, slot_bytes: u64::MAX };
}

/// Why a slot was not filled.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// The artifact cannot be read.
    #[error("cannot read the artifact: {0}")]
    Source(io::Error),
    /// The slot cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Slot {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Too little free space.
    #[error("{need} bytes are needed and {free} are free beyond the {keep_free} that must stay so")]
    Space {
        /// Needed.
        need: u64,
        /// Free, less what must stay free.
        free: u64,
        /// Must stay free.
        keep_free: u64,
    },
    /// More than the slots of this product may hold.
    #[error("{need} bytes are needed beside {held} in the other slot, and limits.slots allows {slot_bytes} in both")]
    Quota {
        /// Needed.
        need: u64,
        /// In the other slot.
        held: u64,
        /// Allowed in both.
        slot_bytes: u64,
    },
    /// The copy is not what the manifest names.
    #[error("{0}")]
    Content(#[from] Mismatch),
}

/// A file is not what the manifest names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Other length.
    #[error("the file has {found} bytes instead of {signed}")]
    Size {
        /// Signed.
        signed: u64,
        /// Found, as far as it was read.
        found: u64,
    },
    /// Other digest.
    #[error("the file's digest is {found} instead of {signed}")]
    Digest {
        /// Signed.
        signed: Digest,
        /// Found.
        found: Digest,
    },
    /// The name leads to another file than the one that was checked.
    #[error("the file was exchanged while it was checked")]
    Exchanged,
}

impl Slots {
    /// The files of `product` in `folder`, which is made when it is not there.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn open(files: Arc<dyn Files>, folder: &Path, product: Product) -> io::Result<Self> {
        make_folder(&*files, folder)?;
        make_folder(&*files, &folder.join("slots"))?;
        Ok(Self { files, folder: folder.to_owned(), product })
    }

    /// The product's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The product.
    #[must_use]
    pub fn product(&self) -> &Product {
        &self.product
    }

    /// The folder of a slot.
    #[must_use]
    pub fn slot_folder(&self, slot: Slot) -> PathBuf {
        self.folder.join("slots").join(slot.name())
    }

    /// The binary of a slot, there or not.
    #[must_use]
    pub fn binary(&self, slot: Slot) -> PathBuf {
        self.slot_folder(slot).join(self.product.as_str())
    }

    /// Where `current` leads; `None` when it is missing, leads elsewhere, or is no symlink.
    ///
    /// # Errors
    /// When the disk does not tell.
    pub fn current(&self) -> io::Result<Option<Slot>> {
        match self.files.read_link(&self.folder.join(CURRENT)) {
            Ok(target) => Ok([Slot::A, Slot::B].into_iter().find(|slot| target == Path::new("slots").join(slot.name()))),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What a slot says of itself; `None` when it is empty, half filled, or its description is damaged.
    ///
    /// # Errors
    /// When the disk does not tell.
    pub fn described(&self, slot: Slot) -> io::Result<Option<Described>> {
        let Kept::Said(described) = self.read(&self.slot_folder(slot).join(DESCRIPTION))? else { return Ok(None) };
        let is_whole = self.files.kind(&self.binary(slot))? == Some(Kind::File);
        Ok(is_whole.then_some(described))
    }

    /// The last confirmed version.
    ///
    /// # Errors
    /// When the disk does not tell.
    pub fn confirmed(&self) -> io::Result<Kept<Confirmed>> {
        self.read(&self.folder.join(CONFIRMED))
    }

    /// Builds that failed here, oldest first; none where the list is damaged.
    ///
    /// # Errors
    /// When the disk does not tell.
    pub fn denied(&self) -> io::Result<Vec<Denied>> {
        match self.read::<DeniedList>(&self.folder.join(DENIED))? {
            Kept::Said(list) => Ok(list.denied),
            Kept::Absent | Kept::Damaged => Ok(Vec::new()),
        }
    }

    /// Writes down what failed.
    ///
    /// # Errors
    /// What the file system says; the old list then still holds.
    pub fn deny(&self, denied: &[Denied]) -> io::Result<()> {
        self.write(&self.folder, DENIED, &DeniedList { denied: denied.to_vec() })
    }

    /// Takes a slot's description away, durably, and then all else in it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn empty(&self, slot: Slot) -> io::Result<()> {
        let folder = self.slot_folder(slot);
        if self.files.kind(&folder)?.is_some() {
            remove_file(&*self.files, &folder.join(DESCRIPTION))?;
            self.files.sync_folder(&folder)?;
            remove_tree(&*self.files, &folder)?;
        }
        self.files.sync_folder(&self.folder.join("slots"))
    }

    /// Copies `source` into an empty slot, checks the copy, makes it durable, and describes it last. The copy is a file of
    /// its own: it may share blocks with the source until one is written to, and is never a hard link to it, or whoever
    /// writes to the one would change the other.
    ///
    /// # Errors
    /// [`FillError`]; the slot then has no description.
    pub fn fill(&self, slot: Slot, described: &Described, source: &File, room: Room) -> Result<(), FillError> {
        let folder = self.slot_folder(slot);
        let cannot = |path: &Path| {
            let path = path.to_owned();
            move |source| FillError::Slot { path, source }
        };
        self.preflight(slot, described.contents.size_bytes, room)?;
        make_folder(&*self.files, &folder).map_err(cannot(&folder))?;
        let incoming = folder.join(INCOMING);
        remove_file(&*self.files, &incoming).map_err(cannot(&incoming))?;
        let size_bytes = described.contents.size_bytes;
        let (mut file, found) = match self.files.create_shared(&incoming, 0o600, source).map_err(cannot(&incoming))? {
            Some(file) => {
                file.mark();
                let found = self.files.open(&incoming).and_then(|mut shared| hash(&mut *shared, size_bytes));
                (file, found.map_err(FillError::Source)?)
            }
            None => {
                let mut file = self.files.create(&incoming, 0o600).map_err(cannot(&incoming))?;
                file.mark();
                file.reserve(size_bytes).map_err(cannot(&incoming))?;
                let found = copy(source, &mut *file, size_bytes, &incoming)?;
                (file, found)
            }
        };
        matches((size_bytes, described.contents.sha256), found)?;
        let binary = self.binary(slot);
        file.set_mode(0o555)
            .and_then(|()| file.sync())
            .and_then(|()| self.files.rename(&incoming, &binary))
            .and_then(|()| self.files.sync_folder(&folder))
            .map_err(cannot(&binary))?;
        drop(file);
        forks::wait_for(&*self.files, &binary).map_err(cannot(&binary))?;
        self.describe(slot, described).map_err(cannot(&folder.join(DESCRIPTION)))
    }

    fn preflight(&self, slot: Slot, need: u64, room: Room) -> Result<(), FillError> {
        let Room { keep_free_bytes: keep_free, slot_bytes } = room;
        let cannot_look = |source| FillError::Slot { path: self.folder.clone(), source };
        let held = self.held_bytes(slot.other()).map_err(cannot_look)?;
        if need.saturating_add(held) > slot_bytes {
            return Err(FillError::Quota { need, held, slot_bytes });
        }
        let free = self.files.free_bytes(&self.folder).map_err(cannot_look)?.saturating_sub(keep_free);
        if free < need { Err(FillError::Space { need, free, keep_free }) } else { Ok(()) }
    }

    /// How many bytes a slot's binary has, as it is described.
    ///
    /// # Errors
    /// When the disk does not tell.
    pub fn held_bytes(&self, slot: Slot) -> io::Result<u64> {
        Ok(self.described(slot)?.map_or(0, |described| described.contents.size_bytes))
    }

    /// Writes a slot's description.
    ///
    /// # Errors
    /// What the file system says.
    pub fn describe(&self, slot: Slot, described: &Described) -> io::Result<()> {
        let folder = self.slot_folder(slot);
        // It may have been emptied for what then did not come.
        make_folder(&*self.files, &folder)?;
        self.write(&folder, DESCRIPTION, described)
    }

    /// Checks size and digest of a slot's file on one open descriptor, and that its name still leads to it.
    ///
    /// # Errors
    /// `InvalidData` with a [`Mismatch`] inside; otherwise what the file system says.
    pub fn verify(&self, slot: Slot, contents: &Contents) -> io::Result<()> {
        verify_file(&*self.files, &self.binary(slot), contents.size_bytes, contents.sha256)
    }

    /// Swaps `current`, where it leads elsewhere; `None` removes it. At every instant it leads to the old slot or the new one (case I5).
    ///
    /// # Errors
    /// What the file system says; `current` is then as it was.
    pub fn point(&self, slot: Option<Slot>) -> io::Result<()> {
        let current = self.folder.join(CURRENT);
        match slot {
            // A disk that takes no writes keeps no version from starting that it leads to already.
            Some(slot) if self.current().is_ok_and(|now| now == Some(slot)) => {}
            Some(slot) => {
                let next = self.folder.join(NEXT);
                remove_file(&*self.files, &next)?;
                self.files.symlink(&Path::new("slots").join(slot.name()), &next)?;
                self.files.rename(&next, &current)?;
            }
            None => remove_file(&*self.files, &current)?,
        }
        self.files.sync_folder(&self.folder)
    }

    /// Makes a slot the confirmed one and its sequence the floor, in one atomic write.
    ///
    /// # Errors
    /// What the file system says; the confirmed version is then the old one.
    pub fn bless(&self, confirmed: &Confirmed) -> io::Result<()> {
        self.write(&self.folder, CONFIRMED, confirmed)
    }

    /// What a small file of ours says. Only what is not there is absent: a disk that does not tell is an error, for what
    /// it holds may be the only word on which slot runs.
    fn read<T: DeserializeOwned>(&self, path: &Path) -> io::Result<Kept<T>> {
        let damaged = |error: &dyn std::fmt::Display| {
            tracing::warn!(path = %path.display(), %error, "a damaged file is ignored");
            Ok(Kept::Damaged)
        };
        let text = match read_small(&*self.files, path, DESCRIPTION_BYTES) {
            Ok(text) => text,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::NotFound => Ok(Kept::Absent),
                    // Something else in its place or in its folder's, or far too long.
                    io::ErrorKind::InvalidData | io::ErrorKind::FileTooLarge | io::ErrorKind::NotADirectory => damaged(&error),
                    _ => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
                };
            }
        };
        match serde_json::from_slice::<Versioned<T>>(&text) {
            Ok(Versioned { spec: 1, content }) => Ok(Kept::Said(content)),
            Ok(Versioned { spec, .. }) => {
                tracing::warn!(path = %path.display(), spec, "a file of a newer agent is not understood");
                Ok(Kept::Damaged)
            }
            Err(error) => damaged(&error),
        }
    }

    fn write<T: Serialize>(&self, folder: &Path, name: &str, content: &T) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(&Versioned { spec: 1, content }).map_err(io::Error::from)?;
        replace(&*self.files, folder, name, &text)
    }
}

/// Checks size and digest of a file on one open descriptor, and that its name still leads to it.
///
/// # Errors
/// `InvalidData` with a [`Mismatch`] inside; otherwise what the file system says.
pub fn verify_file(files: &dyn Files, path: &Path, size_bytes: u64, sha256: Digest) -> io::Result<()> {
    let mut file = files.open(path)?;
    verify_open(&mut *file, size_bytes, sha256)?;
    if !file.is_at(path)? {
        return Err(io::Error::new(io::ErrorKind::InvalidData, Mismatch::Exchanged));
    }
    Ok(())
}

/// Checks size and digest of what is left of an open file.
///
/// # Errors
/// As [`verify_file`].
pub(crate) fn verify_open(file: &mut dyn Reading, size_bytes: u64, sha256: Digest) -> io::Result<()> {
    let found = hash(file, size_bytes)?;
    matches((size_bytes, sha256), found).map_err(|mismatch| io::Error::new(io::ErrorKind::InvalidData, mismatch))
}

/// Copies at most one byte more than `size_bytes`, so that a longer file is noticed and not written out.
fn copy(source: impl Read, target: &mut dyn Writing, size_bytes: u64, path: &Path) -> Result<(u64, Digest), FillError> {
    let mut source = source.take(size_bytes.saturating_add(1));
    let mut sha256 = sha2::Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut length: u64 = 0;
    loop {
        let read = match source.read(&mut buffer) {
            Ok(0) => return Ok((length, Digest(sha256.finalize().into()))),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(FillError::Source(error)),
        };
        let chunk = buffer.get(..read).unwrap_or_default();
        sha256.update(chunk);
        target.write_all(chunk).map_err(|source| FillError::Slot { path: path.to_owned(), source })?;
        length = length.saturating_add(chunk.len() as u64);
    }
}

fn hash(file: &mut dyn Reading, size_bytes: u64) -> io::Result<(u64, Digest)> {
    let mut file = file.take(size_bytes.saturating_add(1));
    let mut sha256 = sha2::Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut length: u64 = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((length, Digest(sha256.finalize().into()))),
            Ok(read) => {
                sha256.update(buffer.get(..read).unwrap_or_default());
                length = length.saturating_add(read as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn matches((signed_length, signed): (u64, Digest), (length, found): (u64, Digest)) -> Result<(), Mismatch> {
    if length != signed_length {
        return Err(Mismatch::Size { signed: signed_length, found: length });
    }
    if found != signed {
        return Err(Mismatch::Digest { signed, found });
    }
    Ok(())
}

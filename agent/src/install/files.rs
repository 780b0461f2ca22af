//! The file system as installs use it: a few calls, so that a crash can be put before, inside and after each of them.
//!
//! [`OnDisk`] is the machine's own. The crash matrix brings two others: one that ends the process at a chosen call, and
//! one in memory that loses what was not synced, entries of folders included. Everything that must survive a power cut
//! goes through here; what processes print, and the note of a running process, do not have to.

use std::fmt::Debug;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

/// What a name leads to, without following a symlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symlink, or anything else.
    Other,
}

/// A file system. Errors are those of the calls of the same names.
pub trait Files: Debug + Send + Sync {
    /// Makes one folder.
    ///
    /// # Errors
    /// `AlreadyExists` when it is there.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    /// Makes the entries of a folder durable: a rename or a new file survives power loss only after this.
    ///
    /// # Errors
    /// What the file system says.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder.
    ///
    /// # Errors
    /// What the file system says.
    fn entries(&self, path: &Path) -> io::Result<Vec<PathBuf>>;
    /// What is there; `None` when nothing is.
    ///
    /// # Errors
    /// What the file system says.
    fn kind(&self, path: &Path) -> io::Result<Option<Kind>>;
    /// Makes a new file, never through a symlink or over another file.
    ///
    /// # Errors
    /// `AlreadyExists` when something is there.
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Writing>>;
    /// Makes a new file with the content of `source` that shares its blocks on disk: writing to one of the two does not
    /// change the other. `None`, and no file, where that cannot be done.
    ///
    /// # Errors
    /// `AlreadyExists` when something is there.
    fn create_shared(&self, path: &Path, mode: u32, source: &File) -> io::Result<Option<Box<dyn Writing>>> {
        let _ = (path, mode, source);
        Ok(None)
    }
    /// Opens a file to append to it.
    ///
    /// # Errors
    /// What the file system says.
    fn append(&self, path: &Path) -> io::Result<Box<dyn Writing>>;
    /// Opens a regular file to read it from its beginning; never through a symlink, and never waiting for a pipe.
    ///
    /// # Errors
    /// What the file system says; `InvalidData` for anything but a regular file.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Reading>>;
    /// Gives a file another name, in place of what has it.
    ///
    /// # Errors
    /// What the file system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes a symlink.
    ///
    /// # Errors
    /// `AlreadyExists` when something is there.
    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()>;
    /// Where a symlink leads.
    ///
    /// # Errors
    /// What the file system says.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;
    /// Removes a file or symlink.
    ///
    /// # Errors
    /// `NotFound` when it is not there.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    ///
    /// # Errors
    /// What the file system says.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
    /// Bytes that an unprivileged process may still write on the file system of a folder.
    ///
    /// # Errors
    /// When the file system cannot be asked.
    fn free_bytes(&self, folder: &Path) -> io::Result<u64>;
}

/// A file open for writing.
pub trait Writing: Write + Send {
    /// Takes the space of so many bytes now, so that a full disk is found before the first of them is written.
    /// File systems that cannot do that take it while writing.
    ///
    /// # Errors
    /// `StorageFull` when there is too little.
    fn reserve(&mut self, size_bytes: u64) -> io::Result<()>;
    /// Cuts the file off, or extends it with zeros.
    ///
    /// # Errors
    /// What the file system says.
    fn set_length(&mut self, length: u64) -> io::Result<()>;
    /// Sets the mode.
    ///
    /// # Errors
    /// What the file system says.
    fn set_mode(&mut self, mode: u32) -> io::Result<()>;
    /// Makes content and length durable; the name needs the folder's sync.
    ///
    /// # Errors
    /// What the file system says.
    fn sync(&mut self) -> io::Result<()>;
    /// Marks the file as open for writing, for [`Reading::is_free`], as long as anybody has this opening of it: a child that is being
    /// started has a copy. Where the file system cannot do that nothing is marked.
    fn mark(&self) {}
}

/// A file open for reading.
pub trait Reading: Read + Send {
    /// Whether nobody has an opening of the file that was marked.
    fn is_free(&self) -> bool {
        true
    }

    /// Whether `path` still leads to this very file, and not through a symlink.
    ///
    /// # Errors
    /// What the file system says.
    fn is_at(&self, path: &Path) -> io::Result<bool>;
}

/// A symlink in the last place of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The file is ours: nobody makes a symlink of it.
    Refused,
    /// A person named the file, and may have named a symlink.
    Followed,
}

/// Opens a regular file for reading, at once: a pipe in its place is not waited for.
///
/// # Errors
/// What the file system says; `InvalidData` for anything else than a regular file, a refused symlink included.
pub fn open_regular(path: &Path, link: Link) -> io::Result<File> {
    open_regular_as(path, link, OpenOptions::new().read(true))
}

/// The same in another way than for reading.
pub(crate) fn open_regular_as(path: &Path, link: Link, options: &mut OpenOptions) -> io::Result<File> {
    let no_link = if link == Link::Refused { OFlags::NOFOLLOW } else { OFlags::empty() };
    let flags = (no_link | OFlags::NONBLOCK).bits().cast_signed();
    let other = || io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file");
    let file = match options.custom_flags(flags).open(path) {
        // A symlink; a pipe that nobody reads.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::LOOP | Errno::NXIO)) => return Err(other()),
        opened => opened?,
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(other()) }
}

/// The machine's own file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnDisk;

impl Files for OnDisk {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().create(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn entries(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect()
    }

    fn kind(&self, path: &Path) -> io::Result<Option<Kind>> {
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_file() => Ok(Some(Kind::File)),
            Ok(metadata) if metadata.is_dir() => Ok(Some(Kind::Folder)),
            Ok(_) => Ok(Some(Kind::Other)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Writing>> {
        Ok(Box::new(OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?))
    }

    fn create_shared(&self, path: &Path, mode: u32, source: &File) -> io::Result<Option<Box<dyn Writing>>> {
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        match rustix::fs::ioctl_ficlone(&file, source) {
            Ok(()) => Ok(Some(Box::new(file))),
            // Whatever the reason: what keeps a copy from being made is told by the copy.
            Err(_) => fs::remove_file(path).map(|()| None),
        }
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Writing>> {
        Ok(Box::new(open_regular_as(path, Link::Refused, OpenOptions::new().append(true))?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Reading>> {
        Ok(Box::new(open_regular(path, Link::Refused)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        symlink(target, link)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        fs::read_link(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(folder)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl Writing for File {
    fn reserve(&mut self, size_bytes: u64) -> io::Result<()> {
        if size_bytes == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(&*self, FallocateFlags::KEEP_SIZE, 0, size_bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn set_length(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn set_mode(&mut self, mode: u32) -> io::Result<()> {
        self.set_permissions(Permissions::from_mode(mode))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }

    fn mark(&self) {
        // A lock belongs to the opening, and so to all who have it.
        let _ = self.try_lock();
    }
}

impl Reading for File {
    fn is_free(&self) -> bool {
        !matches!(self.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let (open, named) = (self.metadata()?, fs::symlink_metadata(path)?);
        Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
    }
}

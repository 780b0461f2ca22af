//! Locks that keep two processes of ours from using one folder.
//!
//! They end with the process that holds them, however it ends.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

use super::files::{Link, open_regular, open_regular_as};

/// Keeps other processes of ours away from a folder.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    /// Closing the file is not enough: a child of another thread, between its fork and its exec, still has it.
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::debug!(%error, "a folder's lock ends only with its file");
        }
    }
}

/// Locks a folder for this process, by the file `lock` in it; `None` when another holds it. Only its owner may open the
/// file: whoever can read a file can lock it, and keep us out for ever.
pub(crate) fn lock(folder: &Path) -> io::Result<Option<Lock>> {
    let path = folder.join("lock");
    let mut options = OpenOptions::new();
    let file = match open_regular_as(&path, Link::Refused, options.write(true).create(true).truncate(false).mode(0o600)) {
        // Of an earlier run, on a file system that is read-only by now.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => open_regular(&path, Link::Refused)?,
        opened => opened?,
    };
    if others_may_read(&file)? {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    hold(file)
}

/// Whether others than its owner may open it, and so lock it.
fn others_may_read(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.mode() & 0o077 != 0)
}

/// Whether a folder that is locked itself is ours.
#[derive(Debug)]
pub(crate) enum Itself {
    Held(Lock),
    /// Another process of ours holds it.
    InUse,
    /// A process of this user, or of root, holds it, and others can read the folder: whoever can may have had a program that
    /// runs as another user, such as one that is setuid, inherit a lock of theirs. That is no word on whether one of ours does.
    MayBeInUse,
}

/// The same by the folder itself: without writing anything, and whatever is in it. An error where others may read the
/// folder and a process of another user holds it: that is no word on whether one of ours does.
pub(crate) fn lock_itself(folder: &Path) -> io::Result<Itself> {
    let file = OpenOptions::new().read(true).custom_flags(OFlags::DIRECTORY.bits().cast_signed()).open(folder)?;
    let metadata = file.metadata()?;
    let open_to_others = others_may_read(&file)?;
    match hold(file)? {
        Some(held) => Ok(Itself::Held(held)),
        None if !open_to_others => Ok(Itself::InUse),
        None if is_held_by_ours(metadata.ino()) => Ok(Itself::MayBeInUse),
        None => Err(io::Error::other("a process of another user holds it: others can read the folder")),
    }
}

/// Whether a process of this user, or of root, holds a lock on a file of this number.
fn is_held_by_ours(inode: u64) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    // `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`: who, and which file.
    locks.lines().any(|line| {
        let mut fields = line.split_whitespace().skip_while(|field| *field != "FLOCK").skip(3);
        let (Some(pid), Some(file)) = (fields.next(), fields.next()) else { return false };
        let names_it = file.rsplit(':').next().is_some_and(|number| number.parse() == Ok(inode));
        names_it && std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| [0, own].contains(&process.uid()))
    })
}

fn hold(file: File) -> io::Result<Option<Lock>> {
    match file.try_lock() {
        Ok(()) => Ok(Some(Lock(file))),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

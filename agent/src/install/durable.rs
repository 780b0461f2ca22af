//! Files that are whole or not there at all: written aside, synced, renamed, and the folder synced too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Makes the entries of `folder` durable: a rename or a new file survives power loss only after this.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes `folder` and its missing parents, durably.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let Some(parent) = folder.parent() else { return fs::create_dir(folder) };
    make_folder(parent)?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => sync_folder(parent),
    }
}

/// Replaces the content of `name` in `folder`: at every instant it has the old content or the new.
pub(super) fn replace(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let aside = folder.join(format!(".{name}.new"));
    let written = write_new(&aside, content).and_then(|()| fs::rename(&aside, folder.join(name)));
    if let Err(error) = written {
        // A full disk gets back what this took.
        let _ = fs::remove_file(&aside);
        return Err(error);
    }
    sync_folder(folder)
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    remove_file(path)?;
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Removes a file; one that is not there is removed already.
pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether an error says that there is no space: free blocks, inodes, or quota.
pub(super) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

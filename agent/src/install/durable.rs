//! Files that are whole or not there at all: written aside, synced, renamed, and the folder synced too.
//!
//! What is found done already is synced all the same: the process that did it may have been killed before its sync.

use std::io::{self, Write};
use std::path::Path;

use super::files::{Files, Kind};

/// Makes `folder` and its missing parents, durably.
pub(crate) fn make_folder(files: &dyn Files, folder: &Path) -> io::Result<()> {
    let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) else { return Ok(()) };
    match files.kind(folder)? {
        Some(Kind::Folder | Kind::Other) => match files.sync_folder(parent) {
            // Whoever made it before this process may use a folder of which this process may not read the parent.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        },
        Some(Kind::File) => Err(io::ErrorKind::NotADirectory.into()),
        None => {
            make_folder(files, parent)?;
            files.make_folder(folder)?;
            files.sync_folder(parent)
        }
    }
}

/// Replaces the content of `name` in `folder`: at every instant it has the old content or the new.
pub(crate) fn replace(files: &dyn Files, folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let aside = folder.join(format!(".{name}.new"));
    let written = write_new(files, &aside, content).and_then(|()| files.rename(&aside, &folder.join(name)));
    if let Err(error) = written {
        // A full disk gets back what this took.
        let _ = files.remove_file(&aside);
        return Err(error);
    }
    files.sync_folder(folder)
}

fn write_new(files: &dyn Files, path: &Path, content: &[u8]) -> io::Result<()> {
    remove_file(files, path)?;
    let mut file = files.create(path, 0o644)?;
    file.write_all(content)?;
    file.sync()
}

/// Removes a file; one that is not there is removed already.
pub(crate) fn remove_file(files: &dyn Files, path: &Path) -> io::Result<()> {
    match files.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a folder with all in it, without following a symlink; one that is not there is removed already.
pub(crate) fn remove_tree(files: &dyn Files, folder: &Path) -> io::Result<()> {
    match files.kind(folder)? {
        None => return Ok(()),
        Some(Kind::File | Kind::Other) => return remove_file(files, folder),
        Some(Kind::Folder) => {}
    }
    for entry in files.entries(folder)? {
        remove_tree(files, &entry)?;
    }
    files.remove_folder(folder)
}

/// Whether an error says that there is no space: free blocks, inodes, or quota.
pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

//! What the helper stands on: folders and files that nobody but root, or the user it runs as, can change.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// Why a path is no firm ground.
#[derive(Debug, thiserror::Error)]
pub enum GroundError {
    /// It is not absolute, or leads back up.
    #[error("{}: name it by its full path, without `..`", .0.display())]
    Form(PathBuf),
    /// It cannot be looked at.
    #[error("cannot look at {}", .path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A part of it is a symlink, or not a folder.
    #[error("{} is not a folder of its own: name the real path", .0.display())]
    NotAFolder(PathBuf),
    /// It is not a plain file.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// It belongs to somebody else.
    #[error("{} belongs to user {owner}: run `chown root` on it, or name another place", .path.display())]
    Owner {
        /// What.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// Others can write it.
    #[error("{} can be written by others (mode {mode:03o}): run `chmod go-w` on it", .path.display())]
    Mode {
        /// What.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

const WRITABLE_BY_OTHERS: u32 = 0o022;
pub(crate) const STICKY: u32 = 0o1000;

/// Whether `folder` and every folder above it can be changed by nobody else. In a folder with the sticky bit others may
/// make what they like, and touch nothing that is there: a folder of the helper's own in it is safe.
///
/// # Errors
/// The first part that cannot be trusted.
pub fn check_folder(folder: &Path) -> Result<(), GroundError> {
    check_form(folder)?;
    let mut parts: Vec<&Path> = folder.ancestors().collect();
    parts.reverse();
    for part in parts {
        let found = look(part)?;
        if !found.is_dir() {
            return Err(GroundError::NotAFolder(part.to_owned()));
        }
        let mode = found.mode() & 0o7777;
        let shared = mode & STICKY != 0 && part != folder;
        check_hands(part, found.uid(), if shared { 0 } else { mode })?;
    }
    Ok(())
}

/// Whether a path says by itself where it leads: full, and nowhere back up.
///
/// # Errors
/// [`GroundError::Form`].
pub fn check_form(path: &Path) -> Result<(), GroundError> {
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if path.is_absolute() && plain { Ok(()) } else { Err(GroundError::Form(path.to_owned())) }
}

/// Whether the file at `path`, and what leads to it, can be changed by nobody else.
///
/// # Errors
/// The first part that cannot be trusted.
pub fn check_file(path: &Path) -> Result<(), GroundError> {
    let found = look(path)?;
    if !found.is_file() {
        return Err(GroundError::NotAFile(path.to_owned()));
    }
    check_hands(path, found.uid(), found.mode() & 0o7777)?;
    let parent = path.parent().ok_or_else(|| GroundError::Form(path.to_owned()))?;
    check_folder(parent)
}

pub(crate) fn look(path: &Path) -> Result<std::fs::Metadata, GroundError> {
    std::fs::symlink_metadata(path).map_err(|source| GroundError::Io { path: path.to_owned(), source })
}

pub(crate) fn check_hands(path: &Path, owner: u32, mode: u32) -> Result<(), GroundError> {
    let own = rustix::process::geteuid().as_raw();
    if owner != 0 && owner != own {
        return Err(GroundError::Owner { path: path.to_owned(), owner });
    }
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(GroundError::Mode { path: path.to_owned(), mode: mode & 0o777 });
    }
    Ok(())
}

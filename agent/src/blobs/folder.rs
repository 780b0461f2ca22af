//! What the files of the folder are, by their names, and what a crash left of them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use groundswell_core::blob::HashList;
use groundswell_core::digest::{Digest, Hex32};

use super::files;
use super::sidecar;

pub(super) const PART: &str = "part";
pub(super) const HAVE: &str = "have";
pub(super) const HASHES: &str = "hashes";
pub(super) const PUT: &str = "put";

/// What a file of the folder is, by its name.
enum Entry {
    Whole(Digest),
    /// A download's data.
    Part(Digest),
    /// What a tool on this machine has brought of it.
    Put(Digest),
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
        Some(PUT) => Entry::Put(hex.into()),
        Some(other) if other.ends_with(".new") => Entry::Leftover,
        Some(_) => Entry::Foreign,
    }
}

/// A whole blob.
pub(super) struct Found {
    pub(super) sha256: Digest,
    pub(super) list: HashList,
}

/// How a blob comes: each way has a file of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// From peers.
    Download,
    /// From a tool on this machine.
    Put,
}

/// A file of a blob on its way in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) sha256: Digest,
    pub(super) way: Way,
    pub(super) size_bytes: u64,
}

/// The files of downloads and puts, under way or stopped.
pub(super) fn parts(folder: &Path) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    for found in std::fs::read_dir(folder)? {
        let found = found?;
        let part = match entry(&found.file_name()) {
            Entry::Part(sha256) => Some((sha256, Way::Download)),
            Entry::Put(sha256) => Some((sha256, Way::Put)),
            _ => None,
        };
        if let Some((sha256, way)) = part {
            match found.metadata() {
                Ok(metadata) => parts.push(Part { sha256, way, size_bytes: metadata.len() }),
                // It became whole, or was removed, this very moment.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(parts)
}

/// Brings the folder in order after any crash, and says which blobs are whole: what was used longest ago first, as far as
/// the file system remembers.
pub(super) fn recover(folder: &Path) -> io::Result<Vec<Found>> {
    let mut whole: Vec<(SystemTime, Found)> = Vec::new();
    let mut beside = BTreeSet::new();
    for found in std::fs::read_dir(folder)? {
        let found = found?;
        match entry(&found.file_name()) {
            Entry::Foreign => {}
            Entry::Leftover | Entry::Put(_) => files::remove(&found.path())?,
            Entry::Part(sha256) | Entry::Beside(sha256) => {
                beside.insert(sha256);
            }
            Entry::Whole(sha256) => match whole_blob(&found.path())? {
                Some(list) => {
                    let metadata = found.metadata()?;
                    let used = metadata.accessed().ok().max(metadata.modified().ok());
                    whole.push((used.unwrap_or(SystemTime::UNIX_EPOCH), Found { sha256, list }));
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
        let is_whole = whole.iter().any(|(_, found)| found.sha256 == sha256);
        if is_whole || sidecar::read_list(&path.with_extension(HASHES))?.is_none() {
            // It is not needed any more, or nothing in it can be verified, so it is worth nothing.
            files::remove(&path.with_extension(PART))?;
        }
        let has_part = path.with_extension(PART).exists();
        if !has_part {
            files::remove(&path.with_extension(HAVE))?;
        }
        if !has_part && !is_whole {
            files::remove(&path.with_extension(HASHES))?;
        }
    }
    files::sync_folder(folder)?;
    whole.sort_by_key(|(used, found)| (*used, found.sha256));
    Ok(whole.into_iter().map(|(_, found)| found).collect())
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

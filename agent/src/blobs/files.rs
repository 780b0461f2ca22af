//! Small durable acts on files of the blob folder.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use groundswell_core::digest::Digest;
use rustix::fs::{FallocateFlags, SeekFrom, seek};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::install::durable::read_bounded;
use crate::install::files::{Link, open_regular, open_regular_as};

/// Bytes read at once where a whole file is hashed: large enough that the disk is the bound, small enough for any device.
const READ_BYTES: usize = 256 * 1024;

/// Opens a regular file for reading; never follows a link in the last place.
pub(super) fn open(path: &Path) -> io::Result<File> {
    open_regular(path, Link::Refused)
}

/// Opens or creates a regular file for reading and writing in place.
pub(super) fn open_in_place(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    open_regular_as(path, Link::Refused, &mut options)
}

/// Writes a small file so that after a crash there is the old content or the new, never a mixture. Durable once the
/// folder is flushed.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    // Two that replace the same file at once must not share the new one.
    static REPLACED: AtomicU64 = AtomicU64::new(0);
    let fresh = path.with_added_extension(format!("{}.new", REPLACED.fetch_add(1, Ordering::Relaxed)));
    let mut options = OpenOptions::new();
    let mut file = open_regular_as(&fresh, Link::Refused, options.write(true).create(true).truncate(true).mode(0o600))?;
    file.write_all(content)?;
    file.sync_data()?;
    std::fs::rename(&fresh, path)
}

/// Reads a small file; `None` when it is not there or longer than `most_bytes`.
pub(super) fn read_small(path: &Path, most_bytes: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match read_bounded(file, u64::try_from(most_bytes).unwrap_or(u64::MAX)) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a file; it is no error when it is not there.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// SHA-256 of a file from its start, whatever the descriptor's position.
pub(super) fn sha256(file: &File) -> io::Result<Digest> {
    use std::os::unix::fs::FileExt;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; READ_BYTES];
    let mut at = 0_u64;
    loop {
        let read = match file.read_at(&mut buffer, at) {
            Ok(0) => return Ok(Digest(hasher.finalize().into())),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
            Ok(read) => read,
        };
        hasher.update(buffer.get(..read).unwrap_or_default());
        at = at.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
    }
}

/// Reserves the file's whole size, so that a full disk shows now and not in the middle. Where the file system cannot,
/// the file only gets its size.
pub(super) fn reserve(file: &File, size_bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size_bytes) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => file.set_len(size_bytes),
        Err(errno) => Err(errno.into()),
    }
}

/// The next bytes from `start` on that were ever written, as far as the file system tells; `None` when there are none. Moves
/// the descriptor's position.
pub(super) fn data_from(file: &File, start: u64) -> io::Result<Option<Range<u64>>> {
    let length = file.metadata()?.len();
    let data = match seek(file, SeekFrom::Data(start)) {
        Ok(data) => data,
        Err(Errno::NXIO) => return Ok(None),
        // It does not tell: anything may be data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok((start < length).then_some(start..length)),
        Err(errno) => return Err(errno.into()),
    };
    Ok(Some(data..seek(file, SeekFrom::Hole(data)).unwrap_or(length)))
}

/// Bytes on the folder's file system that this process may still use.
pub(super) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Whether an error says that there is no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn what_was_written_is_found_and_what_never_was_is_passed_over_where_the_file_system_tells() {
        let (size_bytes, at) = (64 << 20, 40 << 20);
        let file = tempfile::tempfile().unwrap();
        reserve(&file, size_bytes).unwrap();
        let tells = data_from(&file, 0).unwrap().is_none();
        file.write_all_at(&[7; 4096], at).unwrap();
        let mut found = Vec::new();
        while let Some(data) = data_from(&file, found.last().map_or(0, |last: &Range<u64>| last.end)).unwrap() {
            found.push(data);
        }
        assert!(found.iter().any(|data| data.contains(&at) && data.contains(&(at + 4095))), "{found:?}");
        let read: u64 = found.iter().map(|data| data.end - data.start).sum();
        assert!(!tells || read < 4 << 20, "{found:?}");
    }
}

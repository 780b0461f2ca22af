//! Files that are whole or not there at all: written aside, synced, renamed, and the folder synced too; and how small ones
//! are read: regular files only, of a bounded size, at once.
//!
//! What is found done already is synced all the same: the process that did it may have been killed before its sync.

use std::io::{self, Read, Write};
use std::path::Path;

use super::files::{Files, Kind, Link, open_regular};

/// Reads a small file of ours.
///
/// # Errors
/// What the file system says; `InvalidData` when it is no regular file, `FileTooLarge` when it has more than `most_bytes`.
pub(crate) fn read_small(files: &dyn Files, path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    read_bounded(files.open(path)?, most_bytes)
}

/// Reads a small file that a person has named. Errors as of [`read_small`]; a symlink is followed.
pub(crate) fn read_named(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    read_bounded(open_regular(path, Link::Followed)?, most_bytes)
}

/// The same for text; `InvalidData` where it is none.
pub(crate) fn read_named_text(path: &Path, most_bytes: u64) -> io::Result<String> {
    String::from_utf8(read_named(path, most_bytes)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Reads an open file to its end.
pub(crate) fn read_bounded(file: impl Read, most_bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(most_bytes.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > most_bytes {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {most_bytes} bytes")));
    }
    Ok(content)
}

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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::super::files::{OnDisk, open_regular_as};
    use super::*;

    #[test]
    fn nothing_but_a_regular_file_is_read_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").unwrap();
        fs::create_dir(at("folder")).unwrap();
        mkfifoat(CWD, at("pipe"), Mode::from_raw_mode(0o600)).unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink("/dev/zero", at("endless")).unwrap();
        assert_eq!(read_small(&OnDisk, &at("file"), 4).unwrap(), b"text");
        assert_eq!(read_named(&at("link"), 4).unwrap(), b"text", "a person may name a symlink");
        for name in ["folder", "pipe", "link", "endless"] {
            assert_eq!(read_small(&OnDisk, &at(name), 4).unwrap_err().kind(), io::ErrorKind::InvalidData, "{name}");
        }
        for name in ["folder", "pipe", "endless"] {
            assert_eq!(read_named(&at(name), 4).unwrap_err().kind(), io::ErrorKind::InvalidData, "{name}");
        }
        assert_eq!(read_small(&OnDisk, &at("none"), 4).unwrap_err().kind(), io::ErrorKind::NotFound);
        // Nor written: a pipe that nobody reads would be waited for.
        let append = |name| open_regular_as(&at(name), Link::Refused, fs::OpenOptions::new().append(true)).map(|_| ());
        assert_eq!(append("pipe").unwrap_err().kind(), io::ErrorKind::InvalidData);
        append("file").unwrap();
    }

    #[test]
    fn a_file_that_is_longer_than_it_may_be_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_small(&OnDisk, &path, 5).unwrap(), b"12345");
        assert_eq!(read_small(&OnDisk, &path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_named_text(&path, 5).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}

//! The machine's file system below one folder: every step of a path is opened by itself and follows no symlink.
//!
//! What lies outside of the folder cannot be reached by any path, and nobody who could make a symlink inside (nobody
//! can: [`super::ground`]) would lead anything astray.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, fstatvfs, fsync, mkdirat, openat, readlinkat, renameat, statat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;

use crate::install::files::{Files, Kind, Reading, Writing};

/// How a folder on the way is opened.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The files below one folder.
#[derive(Clone, Debug)]
pub struct Beneath {
    root: Arc<OwnedFd>,
    path: PathBuf,
}

/// A file open for reading, and the folder it was found under.
struct Opened {
    file: File,
    beneath: Beneath,
}

impl Beneath {
    /// Opens the folder itself; what leads to it is the caller's to judge.
    ///
    /// # Errors
    /// What the file system says; `NotADirectory` for a symlink.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = openat(CWD, path, FOLDER, Mode::empty())?;
        Ok(Self { root: Arc::new(root), path: path.to_owned() })
    }

    /// The plain names that lead from the folder to `path`.
    fn names<'a>(&self, path: &'a Path) -> io::Result<Vec<&'a OsStr>> {
        let below = path.strip_prefix(&self.path).map_err(|_| io::Error::from(io::ErrorKind::PermissionDenied))?;
        let name = |part| match part {
            Component::Normal(name) => Ok(name),
            _ => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        };
        below.components().map(name).collect()
    }

    fn walk(&self, names: &[&OsStr]) -> io::Result<OwnedFd> {
        let mut folder = openat(&*self.root, ".", FOLDER, Mode::empty())?;
        for name in names {
            folder = openat(&folder, *name, FOLDER, Mode::empty())?;
        }
        Ok(folder)
    }

    /// The folder that `path` names.
    fn folder(&self, path: &Path) -> io::Result<OwnedFd> {
        self.walk(&self.names(path)?)
    }

    /// The folder that holds `path`, and its name there.
    fn place(&self, path: &Path) -> io::Result<(OwnedFd, OsString)> {
        let names = self.names(path)?;
        let (name, above) = names.split_last().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok((self.walk(above)?, (*name).to_owned()))
    }
}

impl Files for Beneath {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.place(path)?;
        Ok(mkdirat(&folder, &name, Mode::from_raw_mode(0o755))?)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        Ok(fsync(&self.folder(path)?)?)
    }

    fn entries(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in Dir::read_from(&self.folder(path)?)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                found.push(path.join(name));
            }
        }
        Ok(found)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<Kind>> {
        if self.names(path)?.is_empty() {
            return Ok(Some(Kind::Folder));
        }
        let found = self.place(path).and_then(|(folder, name)| Ok(statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW)?));
        match found {
            Ok(stat) => Ok(Some(match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Kind::File,
                FileType::Directory => Kind::Folder,
                _ => Kind::Other,
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Writing>> {
        let (folder, name) = self.place(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Box::new(File::from(openat(&folder, &name, flags, Mode::from_raw_mode(mode))?)))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Writing>> {
        let (folder, name) = self.place(path)?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Box::new(File::from(openat(&folder, &name, flags, Mode::empty())?)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Reading>> {
        let (folder, name) = self.place(path)?;
        // Without NONBLOCK a pipe in the place of a file would be waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let other = || io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file");
        let file = match openat(&folder, &name, flags, Mode::empty()) {
            Err(Errno::LOOP) => return Err(other()),
            opened => opened?,
        };
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(other());
        }
        Ok(Box::new(Opened { file: File::from(file), beneath: self.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((old, from), (new, to)) = (self.place(from)?, self.place(to)?);
        Ok(renameat(&old, &from, &new, &to)?)
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        let (folder, name) = self.place(link)?;
        Ok(symlinkat(target, &folder, &name)?)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let (folder, name) = self.place(path)?;
        let target = readlinkat(&folder, &name, Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.place(path)?;
        Ok(unlinkat(&folder, &name, AtFlags::empty())?)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.place(path)?;
        Ok(unlinkat(&folder, &name, AtFlags::REMOVEDIR)?)
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        let stat = fstatvfs(&self.folder(folder)?)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl Read for Opened {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.file.read(into)
    }
}

impl Reading for Opened {
    fn is_free(&self) -> bool {
        self.file.is_free()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let (folder, name) = self.beneath.place(path)?;
        match statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => {
                let open = fstat(&self.file)?;
                Ok((open.st_dev, open.st_ino) == (named.st_dev, named.st_ino))
            }
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use super::*;

    fn ground() -> (tempfile::TempDir, Beneath) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("in")).unwrap();
        fs::create_dir(folder.path().join("out")).unwrap();
        fs::write(folder.path().join("out/secret"), "secret").unwrap();
        let beneath = Beneath::open(&folder.path().join("in")).unwrap();
        (folder, beneath)
    }

    #[test]
    fn files_are_made_read_renamed_and_removed_below_the_folder() {
        let (folder, beneath) = ground();
        let at = |name: &str| folder.path().join("in").join(name);
        beneath.make_folder(&at("slots")).unwrap();
        let mut file = beneath.create(&at("slots/new"), 0o600).unwrap();
        file.write_all(b"bytes").unwrap();
        file.sync().unwrap();
        assert_eq!(beneath.create(&at("slots/new"), 0o600).map(|_| ()).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        beneath.rename(&at("slots/new"), &at("slots/bcd")).unwrap();
        beneath.sync_folder(&at("slots")).unwrap();
        let mut text = String::new();
        let mut open = beneath.open(&at("slots/bcd")).unwrap();
        open.read_to_string(&mut text).unwrap();
        assert!(text == "bytes" && open.is_at(&at("slots/bcd")).unwrap());
        assert_eq!(beneath.entries(&at("slots")).unwrap(), [at("slots/bcd")]);
        beneath.symlink(Path::new("slots"), &at("current")).unwrap();
        assert_eq!(beneath.read_link(&at("current")).unwrap(), Path::new("slots"));
        assert_eq!(beneath.kind(&at("current")).unwrap(), Some(Kind::Other));
        beneath.remove_file(&at("slots/bcd")).unwrap();
        assert!(!open.is_at(&at("slots/bcd")).unwrap());
        beneath.remove_folder(&at("slots")).unwrap();
        assert_eq!(beneath.kind(&at("slots")).unwrap(), None);
        assert!(beneath.free_bytes(&at("")).unwrap() > 0);
    }

    #[test]
    fn no_path_leads_out_of_the_folder() {
        let (folder, beneath) = ground();
        for path in ["out/secret", "in/../out/secret", "in2/x", "/etc/passwd"] {
            assert!(beneath.open(&folder.path().join(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn no_symlink_is_followed_at_any_step() {
        let (folder, beneath) = ground();
        let at = |name: &str| folder.path().join("in").join(name);
        symlink("../out", at("slots")).unwrap();
        symlink("../out/secret", at("file")).unwrap();
        symlink(folder.path().join("out/made"), at("new")).unwrap();
        for path in ["slots/secret", "file"] {
            assert!(beneath.open(&at(path)).is_err(), "{path}");
        }
        assert!(beneath.create(&at("new"), 0o600).is_err() && beneath.create(&at("slots/new"), 0o600).is_err());
        assert!(beneath.append(&at("file")).is_err() && beneath.sync_folder(&at("slots")).is_err());
        assert!(beneath.remove_file(&at("slots/secret")).is_err());
        assert_eq!(fs::read_dir(folder.path().join("out")).unwrap().count(), 1);
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_refused_at_once() {
        let (folder, beneath) = ground();
        let at = folder.path().join("in/pipe");
        rustix::fs::mkfifoat(CWD, &at, Mode::from_raw_mode(0o600)).unwrap();
        assert!(beneath.open(&at).is_err());
    }
}

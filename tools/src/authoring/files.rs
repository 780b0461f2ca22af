//! Files written whole or not at all: a temporary file beside the target, flushed, then renamed.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::failure::Failure;

/// Readable by its owner alone.
const SECRET: u32 = 0o600;
/// Readable by all.
const PUBLIC: u32 = 0o644;

/// Files that a command is about to write: all are prepared before the first appears under its name.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    files: Vec<Pending>,
}

#[derive(Debug)]
struct Pending {
    path: PathBuf,
    bytes: Vec<u8>,
    mode: u32,
    replace: bool,
}

impl Batch {
    /// A public file, replacing one of that name.
    pub(crate) fn public(&mut self, path: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>) {
        self.files.push(Pending { path: path.into(), bytes: bytes.into(), mode: PUBLIC, replace: true });
    }

    /// A public file that must not exist yet.
    pub(crate) fn new_public(&mut self, path: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>) {
        self.files.push(Pending { path: path.into(), bytes: bytes.into(), mode: PUBLIC, replace: false });
    }

    /// A secret file that must not exist yet.
    pub(crate) fn new_secret(&mut self, path: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>) {
        self.files.push(Pending { path: path.into(), bytes: bytes.into(), mode: SECRET, replace: false });
    }

    /// Where the files will be.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.files.iter().map(|file| file.path.display().to_string()).collect()
    }

    /// Refuses when a file that must be new exists. Call it before any work that costs.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.files.iter().find(|file| !file.replace && file.path.exists()) {
            Some(file) => Err(Failure::invalid(format!("{} exists already: nothing was written", file.path.display()))),
            None => Ok(()),
        }
    }

    /// Writes all files. Nothing appears unless every one could be prepared.
    pub(crate) fn write(self) -> Result<(), Failure> {
        self.check()?;
        let mut ready = Vec::new();
        for file in self.files {
            let folder = folder_of(&file.path);
            fs::create_dir_all(folder).map_err(|source| Failure::unwritable(folder, source))?;
            let prepared = prepare(folder, &file).map_err(|source| Failure::unwritable(&file.path, source))?;
            ready.push((file, prepared));
        }
        for (file, prepared) in ready {
            let placed = if file.replace { prepared.persist(&file.path) } else { prepared.persist_noclobber(&file.path) };
            placed.map_err(|error| Failure::unwritable(&file.path, error.error))?;
            // The rename is durable once its folder is.
            let folder = folder_of(&file.path);
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(|source| Failure::unwritable(folder, source))?;
        }
        Ok(())
    }
}

fn prepare(folder: &Path, file: &Pending) -> std::io::Result<NamedTempFile> {
    let mut prepared =
        tempfile::Builder::new().prefix(".swell-").permissions(Permissions::from_mode(SECRET)).tempfile_in(folder)?;
    prepared.write_all(&file.bytes)?;
    prepared.as_file().set_permissions(Permissions::from_mode(file.mode))?;
    prepared.as_file().sync_all()?;
    Ok(prepared)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_appears_when_one_file_is_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b"), "old").unwrap();
        let mut batch = Batch::default();
        batch.new_secret(folder.path().join("a"), "new");
        batch.new_public(folder.path().join("b"), "new");
        assert!(batch.write().is_err());
        assert!(!folder.path().join("a").exists());
        assert_eq!(fs::read_to_string(folder.path().join("b")).unwrap(), "old");
    }

    #[test]
    fn secrets_are_readable_by_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut batch = Batch::default();
        batch.new_secret(folder.path().join("keys/a.pem"), "secret");
        batch.public(folder.path().join("a.json"), "public");
        batch.write().unwrap();
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("keys/a.pem"), mode("a.json")), (0o600, 0o644));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file stays");
    }
}

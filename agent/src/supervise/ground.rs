//! What a supervisor stands on: its folder and its locks.
//!
//! Nothing of it keeps a build from being started (S6): what is missing is said, done without, and looked for again. Only
//! another supervisor at work on the same data folder ends this one. Two locks tell of that: on the data folder itself, for
//! which nothing must be written, and on a file that supervisors of every age lock. That file is its owner's alone, so it
//! decides where other users can read the folder, and so lock it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::keeper::KeeperError;
use super::marks::Marks;
use crate::install::durable::make_folder;
use crate::install::files::OnDisk;
use crate::install::lock::{Itself, Lock, lock, lock_itself};

/// What a supervisor can do without for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    DataLock,
    Folder,
    FolderLock,
}

/// The ground.
#[derive(Debug)]
pub(super) struct Ground {
    data: PathBuf,
    folder: PathBuf,
    data_lock: Option<Lock>,
    folder_lock: Option<Lock>,
    /// What is missing, and what was last said of it.
    missing: BTreeMap<Part, String>,
}

impl Ground {
    /// Takes whatever can be had below a data folder.
    ///
    /// # Errors
    /// When another supervisor is at work there.
    pub(super) fn find(data: &Path) -> Result<Self, KeeperError> {
        let mut ground = Self {
            data: data.to_owned(),
            folder: Marks::folder_in(data),
            data_lock: None,
            folder_lock: None,
            missing: BTreeMap::new(),
        };
        ground.secure()?;
        Ok(ground)
    }

    /// The folder of the files that supervisor and agent share.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether nothing is missing.
    pub(super) fn is_whole(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether other supervisors are kept away.
    pub(super) fn is_locked(&self) -> bool {
        self.data_lock.is_some() || self.folder_lock.is_some()
    }

    /// Looks for the folder and the locks that are missing.
    ///
    /// # Errors
    /// When another supervisor holds one.
    pub(super) fn secure(&mut self) -> Result<(), KeeperError> {
        let data = self.data.clone();
        let in_use = || KeeperError::InUse(data.clone());
        let mut may_be_in_use = false;
        if self.data_lock.is_none() {
            match lock_itself(&self.data) {
                Ok(Itself::Held(held)) => {
                    self.data_lock = Some(held);
                    self.found(Part::DataLock);
                }
                Ok(Itself::InUse) => return Err(in_use()),
                Ok(Itself::MayBeInUse) => {
                    may_be_in_use = true;
                    let others = "another process holds it, and other users can read the folder, which should have mode 0700";
                    self.misses(Part::DataLock, &io::Error::other(others));
                }
                Err(error) => self.misses(Part::DataLock, &error),
            }
        }
        if self.folder_lock.is_some() {
            return Ok(());
        }
        match make_folder(&OnDisk, &self.folder) {
            Ok(()) => self.found(Part::Folder),
            Err(error) => self.misses(Part::Folder, &error),
        }
        match lock(&self.folder) {
            Ok(Some(held)) => {
                self.folder_lock = Some(held);
                self.found(Part::FolderLock);
            }
            Ok(None) => return Err(in_use()),
            // Nothing else tells.
            Err(_) if may_be_in_use => return Err(in_use()),
            Err(error) => self.misses(Part::FolderLock, &error),
        }
        Ok(())
    }

    fn found(&mut self, part: Part) {
        if self.missing.remove(&part).is_some() {
            tracing::info!("{} again", part.told(self));
        }
    }

    /// Says it once, and again when the reason is another.
    fn misses(&mut self, part: Part, error: &io::Error) {
        let said = error.to_string();
        if self.missing.get(&part) != Some(&said) {
            tracing::error!("not {}: {said}; {}", part.told(self), part.without());
            self.missing.insert(part, said);
        }
    }
}

impl Part {
    /// What is so when it is there.
    fn told(self, ground: &Ground) -> String {
        let (data, folder) = (ground.data.display(), ground.folder.display());
        match self {
            Self::DataLock => format!("holding the folder {data} against other supervisors"),
            Self::Folder => format!("able to use the folder {folder}"),
            Self::FolderLock => format!("holding {folder}/lock"),
        }
    }

    fn without(self) -> &'static str {
        match self {
            Self::DataLock => "tried again later",
            Self::Folder => "no build is tried without it, the last confirmed one runs",
            Self::FolderLock => "only supervisors that hold the data folder itself are kept away",
        }
    }
}

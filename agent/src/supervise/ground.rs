//! What a supervisor stands on: its folder, its locks, its socket.
//!
//! Nothing of it keeps a build from being started (S6): what is missing is said, done without, and looked for again. Only
//! another supervisor at work on the same data folder ends this one. Two locks tell of that: on the data folder itself, for
//! which nothing must be written, and on a file that supervisors of every age lock.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::keeper::KeeperError;
use super::marks::Marks;
use super::notify::Listener;
use crate::install::durable::make_folder;
use crate::install::files::OnDisk;
use crate::install::lock::{Lock, lock, lock_itself};

/// The socket in the folder.
pub(super) const SOCKET_NAME: &str = "notify";

/// What a supervisor can do without for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    DataLock,
    Folder,
    FolderLock,
    Socket,
}

/// The ground.
#[derive(Debug)]
pub(super) struct Ground {
    data: PathBuf,
    folder: PathBuf,
    data_lock: Option<Lock>,
    folder_lock: Option<Lock>,
    listener: Listener,
    /// What is missing, and what was last said of it.
    missing: BTreeMap<Part, String>,
}

impl Ground {
    /// Takes whatever can be had below a data folder.
    ///
    /// # Errors
    /// When another supervisor is at work there, or the kernel gives no socket at all.
    pub(super) fn find(data: &Path) -> Result<Self, KeeperError> {
        let mut ground = Self {
            data: data.to_owned(),
            folder: Marks::folder_in(data),
            data_lock: None,
            folder_lock: None,
            listener: Listener::unnamed().map_err(KeeperError::Socket)?,
            missing: BTreeMap::new(),
        };
        ground.secure()?;
        ground.listen();
        Ok(ground)
    }

    /// The folder of the files that supervisor and agent share.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where signs of life arrive.
    pub(super) fn listener(&self) -> &Listener {
        &self.listener
    }

    /// Whether nothing is missing.
    pub(super) fn is_whole(&self) -> bool {
        self.missing.is_empty()
    }

    /// Looks for the folder and the locks that are missing.
    ///
    /// # Errors
    /// When another supervisor holds one.
    pub(super) fn secure(&mut self) -> Result<(), KeeperError> {
        let in_use = || KeeperError::InUse(self.data.clone());
        if self.data_lock.is_none() {
            match lock_itself(&self.data) {
                Ok(Some(held)) => {
                    self.data_lock = Some(held);
                    self.found(Part::DataLock);
                }
                Ok(None) => return Err(in_use()),
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
            Ok(None) => return Err(KeeperError::InUse(self.data.clone())),
            Err(error) => self.misses(Part::FolderLock, &error),
        }
        Ok(())
    }

    /// Listens at the place in the folder, where it does not yet. While an agent runs it would speak to the old one.
    pub(super) fn listen(&mut self) {
        if self.listener.is_there() {
            return;
        }
        match Listener::at(&self.folder.join(SOCKET_NAME)) {
            Ok(listener) => {
                self.listener = listener;
                self.found(Part::Socket);
            }
            Err(error) => {
                self.misses(Part::Socket, &error);
                // An agent would find nobody behind the name of one whose file is gone.
                if self.listener.has_path()
                    && let Ok(unnamed) = Listener::unnamed()
                {
                    self.listener = unnamed;
                }
            }
        }
    }

    fn found(&mut self, part: Part) {
        if self.missing.remove(&part).is_some() {
            tracing::info!("{} again", part.told(self));
        }
    }

    /// Says it once, and again when the reason is another.
    fn misses(&mut self, part: Part, error: &io::Error) {
        let said = format!("{error}{}", hint(part, error));
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
            Self::Socket => format!("listening at {folder}/notify"),
        }
    }

    fn without(self) -> &'static str {
        match self {
            Self::DataLock => "tried again later",
            Self::Folder => "no build is tried without it, the last confirmed one runs",
            Self::FolderLock => "only supervisors that hold the data folder itself are kept away",
            Self::Socket => "the agent's signs of life come by an abstract socket",
        }
    }
}

/// A way out, where the reason tells of one.
fn hint(part: Part, error: &io::Error) -> &'static str {
    match (part, error.kind()) {
        // What the kernel calls a path that is too long for a socket, before it looks at the disk.
        (Part::Socket, io::ErrorKind::InvalidInput) => " (a shorter `data-dir` helps)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_folder_is_advised_only_where_it_helps() {
        let long = Listener::at(Path::new(&format!("/{}/notify", "x".repeat(120)))).unwrap_err();
        assert_eq!(hint(Part::Socket, &long), " (a shorter `data-dir` helps)");
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::NotFound] {
            assert_eq!(hint(Part::Socket, &kind.into()), "");
        }
    }
}

//! The file of a build, opened once: what was hashed is what is started, whatever becomes of its name meanwhile.
//!
//! It is run as `/proc/self/fd/N`. What an interpreter opens once more, a script or a format that was registered with
//! binfmt_misc, therefore keeps its descriptor; a binary does not. A binary of another machine cannot be told from one of
//! this: an emulator must be registered with the flag `O`, by which the kernel hands it the open file, or the build cannot be
//! started and its trial is given up. Where `/proc` is missing the name is used, if it still leads to the very file.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use groundswell_core::digest::Digest;
use rustix::io::{FdFlags, fcntl_setfd};

use crate::install::files::{Link, Reading as _, open_regular};
use crate::install::slots::{Mismatch, verify_open};

/// Begins a file that the kernel runs by itself.
const BINARY: &[u8] = b"\x7fELF";

/// The file of a build.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    /// None for the supervisor's own build, which nobody signed.
    file: Option<File>,
}

impl Program {
    /// The build that the supervisor is itself.
    #[must_use]
    pub fn own(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None }
    }

    /// Opens a file, and checks size and digest of what is open.
    ///
    /// # Errors
    /// `InvalidData` when it is not what is named; otherwise what the file system says.
    pub fn checked(path: &Path, size_bytes: u64, sha256: Digest) -> io::Result<Self> {
        let mut file = open_regular(path, Link::Refused)?;
        verify_open(&mut file, size_bytes, sha256)?;
        Ok(Self { path: path.to_owned(), file: Some(file) })
    }

    /// Where it was found.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A command that runs it, for as long as this lives.
    ///
    /// # Errors
    /// `InvalidData` when only its name could be run, and that leads to another file now; otherwise what the file system says.
    pub fn command(&self) -> io::Result<Command> {
        let named = || Command::new(&self.path);
        let Some(file) = &self.file else {
            // Where its package was replaced or removed meanwhile, what runs here can still be run.
            let is_gone = self.path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
            return Ok(if is_gone { self.known_as("/proc/self/exe") } else { named() });
        };
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        if !Path::new(&open).exists() {
            return match file.is_at(&self.path) {
                Ok(true) => Ok(named()),
                Ok(false) => Err(io::Error::new(io::ErrorKind::InvalidData, Mismatch::Exchanged)),
                Err(error) => Err(error),
            };
        }
        if !is_binary(file)? {
            fcntl_setfd(file, FdFlags::empty())?;
        }
        Ok(self.known_as(&open))
    }

    /// Another name leads there; those who list processes see its own.
    fn known_as(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.arg0(&self.path);
        command
    }
}

fn is_binary(mut file: &File) -> io::Result<bool> {
    let mut first = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(BINARY.len() as u64).read_to_end(&mut first)?;
    Ok(first == BINARY)
}

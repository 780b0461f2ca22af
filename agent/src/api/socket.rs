//! The socket's file: mode 0660, replaced when stale, never taken from an agent that answers.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// Why the API cannot be served at a path.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Somebody answers there.
    #[error("somebody answers already at {}: stop that agent or helper, or give this one a socket of its own", .0.display())]
    Running(PathBuf),
    /// Something that is not a socket lies there.
    #[error("{} is in the way and is not a socket: move it away, or name another socket", .0.display())]
    InTheWay(PathBuf),
    /// The file system refuses.
    #[error("cannot make the socket {}: its folder must exist and be writable, its path shorter than 108 bytes", .path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A bound socket. Its file is removed on drop.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    file: SocketFile,
}

#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Gone already, or replaced by hand: nothing to do about either.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Socket {
    pub(crate) fn bind(path: &Path) -> Result<Self, SocketError> {
        use std::os::unix::fs::FileTypeExt as _;
        let fail = |source| SocketError::Io { path: path.to_path_buf(), source };
        match std::fs::symlink_metadata(path) {
            Ok(there) if !there.file_type().is_socket() => return Err(SocketError::InTheWay(path.to_path_buf())),
            Ok(_) if UnixStream::connect(path).is_ok() => return Err(SocketError::Running(path.to_path_buf())),
            _ => {}
        }
        // Bound aside and renamed, so that nobody connects before the mode is set, and a stale file is replaced at once.
        let aside = path.with_extension("sock-new");
        match std::fs::remove_file(&aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&aside).map_err(fail)?;
        std::fs::set_permissions(&aside, Permissions::from_mode(0o660)).map_err(fail)?;
        std::fs::rename(&aside, path).map_err(fail)?;
        Ok(Self { listener, file: SocketFile(path.to_path_buf()) })
    }

    pub(crate) fn into_parts(self) -> (UnixListener, SocketFile) {
        (self.listener, self.file)
    }
}

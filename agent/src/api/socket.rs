//! The socket's file: mode 0660, replaced when stale, never taken from an agent that answers.

use std::fs::Permissions;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, chownat, fstat, open};
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
    /// Binds it, and gives it to `group` where one is named.
    pub(crate) fn bind(path: &Path, group: Option<u32>) -> Result<Self, SocketError> {
        use std::os::unix::fs::FileTypeExt as _;
        let fail = |source| SocketError::Io { path: path.to_path_buf(), source };
        match std::fs::symlink_metadata(path) {
            Ok(there) if !there.file_type().is_socket() => return Err(SocketError::InTheWay(path.to_path_buf())),
            Ok(_) if UnixStream::connect(path).is_ok() => return Err(SocketError::Running(path.to_path_buf())),
            _ => {}
        }
        // Bound aside and renamed, so that nobody connects before group and mode are set, and a stale file is replaced at
        // once.
        let aside = path.with_extension("sock-new");
        match std::fs::remove_file(&aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&aside).map_err(fail)?;
        give(&aside, group).map_err(fail)?;
        std::fs::rename(&aside, path).map_err(fail)?;
        Ok(Self { listener, file: SocketFile(path.to_path_buf()) })
    }

    pub(crate) fn into_parts(self) -> (UnixListener, SocketFile) {
        (self.listener, self.file)
    }
}

/// Sets group and mode of the socket at `path`, and of nothing that a symlink in its place leads to: the very file is opened
/// first, and what it is looked at.
fn give(path: &Path, group: Option<u32>) -> io::Result<()> {
    let made = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&made)?.st_mode) != FileType::Socket {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "something else was put in its place"));
    }
    if let Some(group) = group {
        chownat(&made, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)?;
    }
    // No call sets the mode of what is open by its path alone; this name leads to it, wherever it lies by now.
    std::fs::set_permissions(format!("/proc/self/fd/{}", made.as_raw_fd()), Permissions::from_mode(0o660))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn group_and_mode_are_the_sockets_own_and_of_nothing_that_lies_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, file, link) = (folder.path().join("socket"), folder.path().join("file"), folder.path().join("link"));
        let _listener = UnixListener::bind(&socket).unwrap();
        give(&socket, Some(rustix::process::getegid().as_raw())).unwrap();
        assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o660);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&socket, Permissions::from_mode(0o600)).unwrap();
        for target in [&file, &socket] {
            let _ = fs::remove_file(&link);
            symlink(target, &link).unwrap();
            assert_eq!(give(&link, None).unwrap_err().kind(), io::ErrorKind::InvalidData);
            assert_eq!(fs::metadata(target).unwrap().mode() & 0o777, 0o600, "what it leads to is as it was");
        }
        assert_eq!(give(&file, None).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}

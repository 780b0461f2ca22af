//! systemd's notification protocol, both ends: datagrams of `NAME=value` lines to the socket in `NOTIFY_SOCKET`.
//!
//! The supervisor listens for its agent and tells the service manager; the agent tells whoever started it, which may be
//! either. Only what `sd_notify(3)` has kept stable for ever is used.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram as StdDatagram};
use std::path::Path;

use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// Names the socket.
pub const SOCKET: &str = "NOTIFY_SOCKET";
/// Microseconds after which a silent process counts as hanging.
pub const WATCHDOG: &str = "WATCHDOG_USEC";
/// For which process that was meant.
pub const WATCHDOG_FOR: &str = "WATCHDOG_PID";
/// It is up.
pub const READY: &str = "READY=1";
/// It lives.
pub const ALIVE: &str = "WATCHDOG=1";
/// It is coming to an end.
pub const STOPPING: &str = "STOPPING=1";
/// Longest datagram that is read.
pub const MOST_BYTES: usize = 4 * 1024;

/// The end that tells.
#[derive(Debug)]
pub struct Notifier(StdDatagram);

impl Notifier {
    /// To the socket of this name: a path, or with `@` an abstract one.
    ///
    /// # Errors
    /// When there is no such socket.
    pub fn connect(name: &str) -> io::Result<Self> {
        let address = match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(name)?,
        };
        let socket = StdDatagram::unbound()?;
        socket.connect_addr(&address)?;
        // Whoever does not read must not stop who tells.
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// Tells, and whether that got through; what cannot be told is lost, for nothing must wait for who listens.
    pub fn tell(&self, lines: &str) -> bool {
        let told = self.0.send(lines.as_bytes());
        if let Err(error) = &told {
            tracing::debug!(%error, "nobody is told {lines}");
        }
        told.is_ok()
    }
}

/// What the agent said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is up.
    Ready,
    /// It lives.
    Alive,
}

/// The end that listens.
#[derive(Debug)]
pub struct Listener {
    socket: UnixDatagram,
    /// As [`SOCKET`] has it.
    name: String,
    /// Device and inode of the socket's file, where it has one.
    file: Option<(u64, u64)>,
}

impl Listener {
    /// A socket at `path`, in place of what an earlier supervisor left there: it has its name before that one loses it.
    ///
    /// # Errors
    /// When it cannot be bound: a path of more than 107 bytes cannot (`InvalidInput`).
    pub fn at(path: &Path) -> io::Result<Self> {
        // As long as the name itself, so that only the path decides whether it fits.
        let aside = path.with_file_name(".notif");
        match std::fs::remove_file(&aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = StdDatagram::bind(&aside)?;
        if let Err(error) = std::fs::rename(&aside, path) {
            let _ = std::fs::remove_file(&aside);
            return Err(error);
        }
        let file = identity(path);
        Self::listen(socket, path.display().to_string(), file)
    }

    /// A socket of the kernel's own, for which no file system is needed: an abstract one.
    ///
    /// # Errors
    /// When the kernel has none.
    pub fn unnamed() -> io::Result<Self> {
        let mut drawn = [0; 8];
        getrandom::fill(&mut drawn).map_err(|error| io::Error::other(error.to_string()))?;
        let name = format!("groundswell-supervise-{}-{:016x}", std::process::id(), u64::from_be_bytes(drawn));
        let socket = StdDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        Self::listen(socket, format!("@{name}"), None)
    }

    fn listen(socket: StdDatagram, name: String, file: Option<(u64, u64)>) -> io::Result<Self> {
        set_socket_passcred(&socket, true)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: UnixDatagram::from_std(socket)?, name, file })
    }

    /// What an agent is given as [`SOCKET`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has a place in the file system.
    #[must_use]
    pub fn has_path(&self) -> bool {
        self.file.is_some()
    }

    /// Whether that place still leads to it: somebody may have removed its file, or mounted something over its folder.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.file.is_some() && identity(Path::new(&self.name)) == self.file
    }

    /// The next datagram: what `from` said in it. Nothing, when anybody else sent it: a process that an earlier agent left
    /// behind does not speak for the one that runs. Cancel safe.
    pub async fn hear(&self, from: Option<Pid>) -> Vec<Heard> {
        let mut datagram = vec![0; MOST_BYTES];
        let received = self.socket.async_io(Interest::READABLE, || receive(&self.socket, &mut datagram)).await;
        match received {
            Ok((length, sender)) if sender.is_some() && sender == from => heard(datagram.get(..length).unwrap_or_default()),
            Ok((_, sender)) => {
                tracing::debug!(sender = sender.map(Pid::as_raw_nonzero), "a sign of life that is not the agent's");
                Vec::new()
            }
            Err(error) => {
                tracing::debug!(%error, "a sign of life is lost");
                Vec::new()
            }
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// One datagram, and which process the kernel says has sent it.
fn receive(socket: &UnixDatagram, into: &mut [u8]) -> io::Result<(usize, Option<Pid>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1), ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut sender = None;
    for message in control.drain() {
        // Files that come along are closed.
        if let RecvAncillaryMessage::ScmCredentials(credentials) = message {
            sender = Some(credentials.pid);
        }
    }
    Ok((received.bytes, sender))
}

/// What a datagram says, in its order; what is not known is passed over.
#[must_use]
pub fn heard(datagram: &[u8]) -> Vec<Heard> {
    let lines = datagram.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| match line {
            line if line == READY.as_bytes() => Some(Heard::Ready),
            line if line == ALIVE.as_bytes() => Some(Heard::Alive),
            _ => None,
        })
        .collect()
}

//! systemd's notification protocol, both ends: datagrams of `NAME=value` lines to the socket in `NOTIFY_SOCKET`.
//!
//! The supervisor listens for its agent and tells the service manager; the agent tells whoever started it, which may be
//! either. Only what `sd_notify(3)` has kept stable for ever is used.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

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
pub struct Notifier(UnixDatagram);

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
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        // Whoever does not read must not stop who tells.
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// Tells; what cannot be told is lost, for nothing must depend on who listens.
    pub fn tell(&self, lines: &str) {
        if let Err(error) = self.0.send(lines.as_bytes()) {
            tracing::debug!(%error, "nobody is told {lines}");
        }
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

/// The end that listens: a socket at `path`, in place of what an earlier supervisor left there.
///
/// # Errors
/// When it cannot be bound: a path of more than 107 bytes cannot.
pub fn listen(path: &Path) -> io::Result<tokio::net::UnixDatagram> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    tokio::net::UnixDatagram::bind(path)
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

//! systemd's notification protocol, both ends: datagrams of `NAME=value` lines.
//!
//! The supervisor tells the service manager, by the socket that `NOTIFY_SOCKET` names; its agent tells the supervisor, by
//! one end of a pair that is the agent's standard input: it has no name, so nobody else can find it, flood it, or take its
//! place, and no disk is needed for it. An agent without a supervisor tells the service manager. Only what `sd_notify(3)`
//! has kept stable for ever is used.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram as StdDatagram};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::sockopt::{set_socket_passcred, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use crate::let_go::{Received, let_go, let_go_of_files, receive};

/// Names the service manager's socket.
pub const SOCKET: &str = "NOTIFY_SOCKET";
/// Says by which of its open files an agent speaks to its supervisor: 0.
pub const SIGNS: &str = "GROUNDSWELL_SUPERVISOR_SIGNS";
/// The only value of [`SIGNS`] there is.
pub const STANDARD_INPUT: &str = "0";
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

/// So many are read in a row.
const MOST_AT_ONCE: usize = 256;

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

    /// By the end of a pair that this process has as its standard input. Nothing that it starts inherits it: the end moves
    /// to a descriptor that is closed there, and what reads from the standard input finds it empty.
    ///
    /// Signs of life come first: where nothing empty can be had, the standard input stays what it is.
    ///
    /// # Errors
    /// When it is no such end.
    pub fn inherited() -> io::Result<Self> {
        let input = io::stdin();
        let (domain, kind) = (socket_domain(&input)?, socket_type(&input)?);
        if (domain, kind) != (AddressFamily::UNIX, SocketType::DGRAM) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the standard input is not the end of a pair"));
        }
        let socket = StdDatagram::from(input.as_fd().try_clone_to_owned()?);
        socket.set_nonblocking(true)?;
        // An agent that gave no signs for want of an empty input would be killed for that, and every later one too.
        let empty = File::open("/dev/null").map(OwnedFd::from).or_else(|_| io::pipe().map(|(end, _)| OwnedFd::from(end)));
        if let Err(error) = empty.and_then(|empty| Ok(rustix::stdio::dup2_stdin(empty)?)) {
            tracing::warn!(%error, "what this agent starts without an input of its own has the end of its supervisor's pair");
        }
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

/// The end that listens to one agent. An agent that sends open files is not heard any more; dropping the listener waits for
/// nothing that lies in it.
#[derive(Debug)]
pub struct Listener {
    /// There until it is dropped.
    socket: Option<UnixDatagram>,
    deaf: AtomicBool,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(Ok(socket)) = self.socket.take().map(UnixDatagram::into_std) {
            let_go(socket);
        }
    }
}

impl Listener {
    /// A listener, and the end that is for the agent.
    ///
    /// # Errors
    /// When the kernel has no sockets left.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (socket, other) = StdDatagram::pair()?;
        set_socket_passcred(&socket, true)?;
        socket.set_nonblocking(true)?;
        let socket = Some(UnixDatagram::from_std(socket)?);
        Ok((Self { socket, deaf: AtomicBool::new(false) }, OwnedFd::from(other)))
    }

    /// The next datagram: what `from` said in it. Nothing, when anybody else sent it: a process that an agent has handed its
    /// end to does not speak for it. Cancel safe.
    pub async fn hear(&self, from: Pid) -> Vec<Heard> {
        let Some(socket) = self.listens() else { return std::future::pending().await };
        let mut datagram = vec![0; MOST_BYTES];
        let received = socket.async_io(Interest::READABLE, || receive(socket, &mut datagram)).await;
        self.said(from, &datagram, received)
    }

    /// What `from` has said already, without waiting; of a flood only its beginning.
    #[must_use]
    pub fn heard(&self, from: Pid) -> Vec<Heard> {
        let mut said = Vec::new();
        let mut datagram = vec![0; MOST_BYTES];
        for _ in 0..MOST_AT_ONCE {
            let Some(socket) = self.listens() else { break };
            match receive(socket, &mut datagram) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                received => said.extend(self.said(from, &datagram, received)),
            }
        }
        said
    }

    fn listens(&self) -> Option<&UnixDatagram> {
        self.socket.as_ref().filter(|_| !self.deaf.load(Ordering::Relaxed))
    }

    fn said(&self, from: Pid, datagram: &[u8], received: io::Result<Received>) -> Vec<Heard> {
        match received {
            Ok(Received { files, sender, .. }) if !files.is_empty() => {
                tracing::error!(
                    sender = sender.map(Pid::as_raw_nonzero),
                    "open files came with a sign of life: the agent is not heard any more"
                );
                self.deaf.store(true, Ordering::Relaxed);
                let_go_of_files(files);
                Vec::new()
            }
            Ok(Received { bytes, sender, .. }) if sender == Some(from) => heard(datagram.get(..bytes).unwrap_or_default()),
            Ok(Received { sender, .. }) => {
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

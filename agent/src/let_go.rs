//! Open files that others sent, and how they are let go of.
//!
//! Closing one that came over a socket, or a socket in which one lies unread, may take as long as who sent it likes: a
//! connection that lingers, a file of a file system that the sender serves. The kernel does it within the call that reads
//! where nobody takes them in. So they are taken in, and a thread closes them that nobody waits for.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::net::sockopt::set_socket_linger;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Pid;

/// Most open files that come at once: the kernel's own bound (`SCM_MAX_FD`).
const MOST_FILES: usize = 253;
/// Stack of a thread that closes.
const STACK_BYTES: usize = 64 * 1024;

/// What came in one read.
#[derive(Debug)]
pub(crate) struct Received {
    /// Bytes.
    pub(crate) bytes: usize,
    /// Which process the kernel says has sent it, where the socket is told.
    pub(crate) sender: Option<Pid>,
    /// For [`let_go`], and nothing else.
    pub(crate) files: Vec<OwnedFd>,
}

/// Reads what is there without waiting for anything that came along.
pub(crate) fn receive(socket: impl AsFd, into: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1), ScmRights(MOST_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, flags)?;
    let (mut sender, mut files) = (None, Vec::new());
    for message in control.drain() {
        match message {
            RecvAncillaryMessage::ScmCredentials(credentials) => sender = Some(credentials.pid),
            RecvAncillaryMessage::ScmRights(came) => files.extend(came),
            _ => {}
        }
    }
    Ok(Received { bytes: received.bytes, sender, files })
}

/// Drops it on a thread of its own; where there is no thread to be had it is kept for ever, which costs less than to wait.
pub(crate) fn let_go<T: Send + 'static>(what: T) {
    let held = Arc::new(Mutex::new(Some(what)));
    let taken = Arc::clone(&held);
    let take = |held: &Mutex<Option<T>>| held.lock().unwrap_or_else(PoisonError::into_inner).take();
    let named = thread::Builder::new().name("swell-close".to_owned()).stack_size(STACK_BYTES);
    if let Err(error) = named.spawn(move || drop(take(&taken))) {
        tracing::warn!(%error, "no thread to close what somebody sent: it stays open");
        std::mem::forget(take(&held));
    }
}

/// The same of open files; those that are connections are told not to linger first.
pub(crate) fn let_go_of_files(files: Vec<OwnedFd>) {
    if files.is_empty() {
        return;
    }
    let_go(Unlingering(files));
}

struct Unlingering(Vec<OwnedFd>);

impl Drop for Unlingering {
    fn drop(&mut self) {
        for file in &self.0 {
            // Where it is no socket there is nothing to be told.
            let _ = set_socket_linger(file, None);
        }
    }
}

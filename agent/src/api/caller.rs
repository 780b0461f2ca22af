//! One connection of the local API. Whatever its other side sends holds up nobody but itself: open files, which HTTP has no use
//! for, end it, and are closed elsewhere ([`crate::let_go`]).

use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use crate::let_go::{let_go, let_go_of_files, receive};

/// Connections at once, those that are being let go of included; more wait until there is room.
const CALLERS: usize = 256;
/// Most bytes of one read.
const AT_ONCE: usize = 64 * 1024;
/// Before the next try, where a connection cannot be accepted: there are more descriptors when another ends.
const PAUSE: Duration = Duration::from_millis(100);

/// The socket.
pub(super) struct Callers {
    listener: UnixListener,
    places: Arc<Semaphore>,
}

impl Callers {
    pub(super) fn new(listener: UnixListener) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(CALLERS)) }
    }
}

impl Listener for Callers {
    type Io = Caller;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Caller, SocketAddr) {
        let place = Arc::clone(&self.places).acquire_owned().await.expect("nothing closes it");
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => return (Caller { stream: Some(stream), place: Some(place) }, address),
                Err(error) => {
                    tracing::debug!(%error, "a connection to the local API is lost");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection. Dropping it waits for nothing.
pub(super) struct Caller {
    /// There until it is dropped.
    stream: Option<UnixStream>,
    place: Option<OwnedSemaphorePermit>,
}

impl Caller {
    fn stream(self: Pin<&mut Self>) -> io::Result<Pin<&mut UnixStream>> {
        self.get_mut().stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl AsyncRead for Caller {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = self.stream()?;
        let most = buf.remaining().min(AT_ONCE);
        loop {
            ready!(stream.poll_read_ready(cx))?;
            match stream.try_io(Interest::READABLE, || receive(&*stream, buf.initialize_unfilled_to(most))) {
                Ok(received) if received.files.is_empty() => {
                    buf.advance(received.bytes);
                    return Poll::Ready(Ok(()));
                }
                Ok(received) => {
                    let_go_of_files(received.files);
                    let told = "an open file came over the local API, which takes none";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, told)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Caller {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(cx, buf)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let Some(Ok(stream)) = self.stream.take().map(UnixStream::into_std) else { return };
        // From here on nothing more comes; what lies there unread may have open files in it.
        let _ = stream.shutdown(Shutdown::Both);
        if let Ok((_, 1..)) = recv(&stream, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            let_go((OwnedFd::from(stream), self.place.take()));
        }
    }
}

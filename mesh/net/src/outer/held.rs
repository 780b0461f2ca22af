//! A stream whose other side hears at once when it is dropped, also while it does not read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

/// The stream; its drop ends the receiver of the channel that it was made with.
#[derive(Debug)]
pub(crate) struct Held<S> {
    stream: S,
    _here: oneshot::Sender<()>,
}

impl<S> Held<S> {
    /// The stream, and what resolves when it is dropped.
    pub(crate) fn new(stream: S) -> (Self, oneshot::Receiver<()>) {
        let (here, gone) = oneshot::channel();
        (Self { stream, _here: here }, gone)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Held<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Held<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }
}

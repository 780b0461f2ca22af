//! A stream that holds something until it is dropped: a place among others, or word to whoever waits for its end.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

/// The stream, and what is dropped with it.
#[derive(Debug)]
pub(crate) struct Held<S, T = oneshot::Sender<()>> {
    stream: S,
    _held: T,
}

impl<S, T> Held<S, T> {
    /// The stream with what it holds.
    pub(crate) fn with(stream: S, held: T) -> Self {
        Self { stream, _held: held }
    }
}

impl<S> Held<S> {
    /// The stream, and what resolves when it is dropped, also while the other side does not read.
    pub(crate) fn new(stream: S) -> (Self, oneshot::Receiver<()>) {
        let (here, gone) = oneshot::channel();
        (Self::with(stream, here), gone)
    }
}

impl<S: AsyncRead + Unpin, T: Unpin> AsyncRead for Held<S, T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin, T: Unpin> AsyncWrite for Held<S, T> {
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

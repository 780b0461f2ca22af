//! A visit at another node's outer door, from the dial to the stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::{AsyncRead, AsyncWrite};
use groundswell_core::node_id::NodeId;
use libp2p::Stream;
use tokio::sync::oneshot;

use crate::outer::visit::VisitFailed;

/// Where the stream of a visit goes, once the peer's outer door is open.
pub(crate) type Knock = oneshot::Sender<Result<(NodeId, VisitStream), VisitFailed>>;

/// The stream of a visit. Dropping it closes the connection, which is there for nothing else.
#[derive(Debug)]
pub(crate) struct VisitStream {
    stream: Stream,
    _done: oneshot::Sender<()>,
}

impl VisitStream {
    pub(super) fn new(stream: Stream, done: oneshot::Sender<()>) -> Self {
        Self { stream, _done: done }
    }
}

impl AsyncRead for VisitStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for VisitStream {
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

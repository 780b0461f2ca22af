//! How a stream to a peer is had: from the mesh, or from memory in tests.

use futures::future::BoxFuture;
use futures::io::{AsyncRead, AsyncWrite};
use groundswell_core::node_id::NodeId;

/// A stream of bytes in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Why there is no stream to a peer now. Another time there may be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(pub String);

/// Opens streams to members, to exchange blobs over them.
pub trait Connect: Send + Sync + 'static {
    /// A new stream to `peer`, who answers on it as [`super::Server`] does.
    fn connect(&self, peer: NodeId) -> BoxFuture<'static, Result<Box<dyn Duplex>, ConnectError>>;

    /// A new stream to `peer` for `/groundswell/pieces/1`; `None` where it does not speak that, and has to be asked for
    /// pieces over [`Connect::connect`].
    fn pieces(&self, peer: NodeId) -> BoxFuture<'static, Result<Option<Box<dyn Duplex>>, ConnectError>> {
        let _ = peer;
        Box::pin(std::future::ready(Ok(None)))
    }
}

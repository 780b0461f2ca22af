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

/// Opens streams of the blob protocol to members.
pub trait Connect: Send + Sync + 'static {
    /// A new stream to `peer`, who answers on it as [`super::Server`] does.
    fn connect(&self, peer: NodeId) -> BoxFuture<'static, Result<Box<dyn Duplex>, ConnectError>>;
}

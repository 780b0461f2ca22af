//! The blob protocol on the real mesh: streams to and from admitted peers.

use futures::future::BoxFuture;
use groundswell_core::node_id::NodeId;

use super::connect::{Connect, ConnectError, Duplex};
use super::serve::Server;
use crate::Network;
use crate::streams::{BLOB, OpenError, PIECES};

impl Connect for Network {
    fn connect(&self, peer: NodeId) -> BoxFuture<'static, Result<Box<dyn Duplex>, ConnectError>> {
        let streams = self.streams().clone();
        Box::pin(async move {
            match streams.open(peer, BLOB).await {
                Ok(stream) => Ok(Box::new(stream) as Box<dyn Duplex>),
                Err(error) => Err(ConnectError(error.to_string())),
            }
        })
    }

    fn pieces(&self, peer: NodeId) -> BoxFuture<'static, Result<Option<Box<dyn Duplex>>, ConnectError>> {
        let streams = self.streams().clone();
        Box::pin(async move {
            match streams.open(peer, PIECES).await {
                Ok(stream) => Ok(Some(Box::new(stream) as Box<dyn Duplex>)),
                Err(OpenError::Unsupported(..)) => Ok(None),
                Err(error) => Err(ConnectError(error.to_string())),
            }
        })
    }
}

impl Server {
    /// Serves the members that come in over `network`, until it shuts down. Call it once for one network.
    /// Cancel-safe: drop the future to stop serving.
    pub async fn serve_network(&self, network: &Network) {
        match network.streams().incoming(BLOB) {
            Some(incoming) => self.serve(incoming).await,
            None => tracing::error!("the blobs of this network are served already"),
        }
    }
}

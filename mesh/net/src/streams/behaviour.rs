//! Gives each request for a stream to the newest connection of its peer.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use groundswell_core::node_id::NodeId;
use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::swarm::behaviour::ConnectionEstablished;
use libp2p::swarm::{
    ConnectionClosed, ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, NotifyHandler, THandler, THandlerInEvent,
    THandlerOutEvent, ToSwarm,
};
use libp2p::{Multiaddr, PeerId};
use tokio::sync::mpsc;

use super::handler::Handler;
use super::{Acceptors, OpenError, Request};
use crate::door::node_id;

/// Stands behind the door, so every connection that it knows is admitted.
pub(crate) struct Behaviour {
    requests: mpsc::Receiver<Request>,
    acceptors: Arc<Acceptors>,
    /// The connections of each peer, oldest first.
    connections: BTreeMap<NodeId, VecDeque<ConnectionId>>,
}

#[derive(Debug, thiserror::Error)]
#[error("its identity is not an Ed25519 key")]
struct NotEd25519;

impl Behaviour {
    pub(super) fn new(requests: mpsc::Receiver<Request>, acceptors: Arc<Acceptors>) -> Self {
        Self { requests, acceptors, connections: BTreeMap::new() }
    }

    fn handler(&self, peer: PeerId) -> Result<Handler, ConnectionDenied> {
        let peer = node_id(peer).ok_or_else(|| ConnectionDenied::new(NotEd25519))?;
        Ok(Handler::new(peer, Arc::clone(&self.acceptors)))
    }
}

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = Handler;
    type ToSwarm = Infallible;

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.handler(peer)
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.handler(peer)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(ConnectionEstablished { peer_id, connection_id, .. }) => {
                if let Some(peer) = node_id(peer_id) {
                    self.connections.entry(peer).or_default().push_back(connection_id);
                }
            }
            FromSwarm::ConnectionClosed(ConnectionClosed { peer_id, connection_id, .. }) => {
                let Some(peer) = node_id(peer_id) else { return };
                if let Some(connections) = self.connections.get_mut(&peer) {
                    connections.retain(|id| *id != connection_id);
                    if connections.is_empty() {
                        self.connections.remove(&peer);
                    }
                }
            }
            _ => {}
        }
    }

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
        match event {}
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        while let Poll::Ready(Some(request)) = self.requests.poll_recv(cx) {
            let newest = self.connections.get(&request.peer).and_then(|connections| connections.back());
            let peer = request.peer;
            match (newest, PeerId::from_bytes(&peer.to_peer_id_bytes())) {
                (Some(id), Ok(peer_id)) => {
                    return Poll::Ready(ToSwarm::NotifyHandler { peer_id, handler: NotifyHandler::One(*id), event: request });
                }
                _ => drop(request.reply.send(Err(OpenError::NotConnected(peer)))),
            }
        }
        Poll::Pending
    }
}

//! Who is up: the connections of each admitted peer, its queue, and the task that writes to it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use groundswell_core::node_id::NodeId;
use libp2p::swarm::ConnectionId;
use tokio::sync::{Notify, Semaphore};
use tokio::task::{AbortHandle, JoinSet};

use crate::config::QUEUED_BYTES;
use crate::counters::Tally;
use crate::door::SESSION_BYTES;
use crate::event::NetworkEvent;
use crate::link::writer::{self, Queue};
use crate::network::Shared;
use crate::streams::Streams;

/// All peers that are up.
pub(super) struct Peers {
    up: BTreeMap<NodeId, Peer>,
    shared: Arc<Shared>,
    streams: Streams,
    /// The bytes that all queues share.
    bytes: Arc<Semaphore>,
    /// One for each peer that is up, and those just told to end.
    writers: JoinSet<()>,
}

struct Peer {
    session: [u8; SESSION_BYTES],
    connections: Vec<ConnectionId>,
    address: String,
    moved: Arc<Notify>,
    writer: AbortHandle,
}

impl Peers {
    pub(super) fn new(shared: Arc<Shared>, streams: Streams) -> Self {
        Self { up: BTreeMap::new(), shared, streams, bytes: Arc::new(Semaphore::new(QUEUED_BYTES)), writers: JoinSet::new() }
    }

    pub(super) fn is_up(&self, peer: NodeId) -> bool {
        self.up.contains_key(&peer)
    }

    pub(super) fn address(&self, peer: NodeId) -> Option<String> {
        self.up.get(&peer).map(|peer| peer.address.clone())
    }

    /// A connection was admitted. Returns what to tell, and the connections of an earlier run of the peer, to be closed.
    pub(super) fn admitted(
        &mut self,
        peer: NodeId,
        connection: ConnectionId,
        session: [u8; SESSION_BYTES],
        dialled: bool,
        address: String,
    ) -> (Vec<NetworkEvent>, Vec<ConnectionId>) {
        let mut events = Vec::new();
        let mut stale = Vec::new();
        if let Some(known) = self.up.get_mut(&peer) {
            if known.session == session {
                known.connections.push(connection);
                known.moved.notify_one();
                events.extend(dialled.then_some(NetworkEvent::Reached { peer, address }));
                return (events, stale);
            }
            // The peer restarted; or a second machine runs under its identity, which its records will show.
            tracing::info!(%peer, %address, "a peer restarted");
            stale.clone_from(&known.connections);
            self.take_down(peer);
            events.push(NetworkEvent::PeerDown { peer });
        }
        Tally::add(&self.shared.tally.peers_admitted, 1);
        let (queue, queued) = Queue::new(Arc::clone(&self.bytes));
        self.shared.queues.lock().unwrap_or_else(PoisonError::into_inner).insert(peer, queue);
        let moved = Arc::new(Notify::new());
        while self.writers.try_join_next().is_some() {}
        let writer = self.writers.spawn(writer::run(
            peer,
            self.streams.clone(),
            queued,
            Arc::clone(&moved),
            Arc::clone(&self.shared.tally),
        ));
        self.up.insert(peer, Peer { session, connections: vec![connection], address: address.clone(), moved, writer });
        events.push(NetworkEvent::PeerUp { peer, dialled, address });
        (events, stale)
    }

    /// A connection closed. Returns `PeerDown` when it was the last one.
    pub(super) fn closed(&mut self, peer: NodeId, connection: ConnectionId) -> Option<NetworkEvent> {
        let known = self.up.get_mut(&peer)?;
        known.connections.retain(|id| *id != connection);
        if known.connections.is_empty() {
            self.take_down(peer);
            return Some(NetworkEvent::PeerDown { peer });
        }
        // The link may have been on the closed one.
        known.moved.notify_one();
        None
    }

    pub(super) fn clear(&mut self) {
        self.up.clear();
        self.shared.queues.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.writers.abort_all();
    }

    fn take_down(&mut self, peer: NodeId) {
        self.shared.queues.lock().unwrap_or_else(PoisonError::into_inner).remove(&peer);
        if let Some(peer) = self.up.remove(&peer) {
            peer.writer.abort();
        }
    }
}

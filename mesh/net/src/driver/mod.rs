//! The one task that owns the swarm: a loop over everything that can happen to it.
//!
//! It never waits for the agent: events go through a short list in front of the agent's channel, and while that list is
//! long neither the swarm nor the links are read, so slowness travels back to the peers instead of into memory.
//! [`peers`] keeps who is up, [`dials`] what is being dialled, [`gossip`] which messages await an answer.

mod dials;
mod gossip;
mod peers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use groundswell_core::digest::Digest;
use groundswell_core::limits::{ADDRESS_BYTES, ADDRESSES};
use groundswell_core::node_id::NodeId;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::{ListenError, SwarmEvent};
use libp2p::{Multiaddr, PeerId, Swarm, gossipsub, mdns, ping};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::behaviour::{MembersEvent, Mesh, MeshEvent};
use crate::counters::Tally;
use crate::door::{DoorEvent, node_id};
use crate::event::NetworkEvent;
use crate::link::reader::{self, FromLink};
use crate::network::{Command, Shared};
use crate::streams::{Incoming, LINK, PeerStream, Streams};

/// Events in front of the agent's channel beyond which nothing more is read.
const AHEAD: usize = 16;
/// Frames between the readers and this loop: few, since each may be large.
const FRAMES: usize = 8;
/// How long closing connections may take at shutdown.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// See the module.
pub(crate) struct Driver {
    swarm: Swarm<Mesh>,
    local: PeerId,
    /// Configured addresses; when there are some, they are the ones told.
    external: Vec<Multiaddr>,
    /// What is listened on now.
    listening: Vec<Multiaddr>,
    /// What was told last.
    told: Vec<String>,
    events: mpsc::Sender<NetworkEvent>,
    ahead: VecDeque<NetworkEvent>,
    shared: Arc<Shared>,
    peers: peers::Peers,
    dials: dials::Dials,
    gossip: gossip::Gossip,
    links: Option<Incoming>,
    /// Links whose peer is not up yet; bounded by the places of their connections.
    early: Vec<(NodeId, PeerStream)>,
    /// The readers of inbound links; at most a few for each connection.
    readers: JoinSet<()>,
}

impl Driver {
    pub(crate) fn new(
        swarm: Swarm<Mesh>,
        fleet: Digest,
        external: Vec<Multiaddr>,
        listening: Vec<Multiaddr>,
        events: mpsc::Sender<NetworkEvent>,
        shared: Arc<Shared>,
        streams: Streams,
    ) -> Self {
        let local = *swarm.local_peer_id();
        Self {
            swarm,
            local,
            external,
            listening,
            told: Vec::new(),
            events,
            ahead: VecDeque::new(),
            links: streams.incoming(LINK),
            early: Vec::new(),
            peers: peers::Peers::new(Arc::clone(&shared), streams),
            dials: dials::Dials::default(),
            gossip: gossip::Gossip::new(fleet, Arc::clone(&shared.tally)),
            shared,
            readers: JoinSet::new(),
        }
    }

    /// Runs until `stopped` says so or nobody holds a handle.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<Command>, mut stopped: watch::Receiver<bool>) {
        let mut links = self.links.take();
        let (read, mut frames) = mpsc::channel(FRAMES);
        let events = self.events.clone();
        self.tell_addresses();
        loop {
            let room = self.ahead.len() < AHEAD;
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => break,
                permit = events.reserve(), if !self.ahead.is_empty() => match (permit, self.ahead.pop_front()) {
                    (Ok(permit), Some(event)) => permit.send(event),
                    // The agent hears no more: there is nobody to work for.
                    _ => break,
                },
                command = commands.recv(), if room => match command {
                    Some(command) => self.obey(command),
                    None => break,
                },
                event = self.swarm.select_next_some(), if room => self.on_swarm(event),
                Some(heard) = frames.recv(), if room => self.on_link(heard),
                Some((peer, stream)) = accepted(&mut links), if room => self.early.push((peer, stream)),
                Some(_) = self.readers.join_next(), if !self.readers.is_empty() => {}
            }
            self.start_readers(&read);
        }
        self.close().await;
    }

    /// Reads the links whose peer is up. A link can arrive a moment before the news that its peer was admitted.
    fn start_readers(&mut self, driver: &mpsc::Sender<FromLink>) {
        if self.early.is_empty() {
            return;
        }
        let known = |peer: NodeId| PeerId::from_bytes(&peer.to_peer_id_bytes()).is_ok_and(|peer| self.swarm.is_connected(&peer));
        self.early.retain(|(peer, _)| known(*peer));
        let (ready, early): (Vec<_>, _) =
            std::mem::take(&mut self.early).into_iter().partition(|(peer, _)| self.peers.is_up(*peer));
        self.early = early;
        for (peer, stream) in ready {
            self.readers.spawn(reader::run(peer, stream, driver.clone(), Arc::clone(&self.shared.tally)));
        }
    }

    fn tell(&mut self, event: NetworkEvent) {
        self.ahead.push_back(event);
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Gossip(bytes) => self.gossip.publish(self.swarm.behaviour_mut().gossip(), bytes),
            Command::Answer(ticket, forward) => self.gossip.answer(self.swarm.behaviour_mut().gossip(), ticket, forward),
            Command::Dial(peer, addresses) => {
                let told = self.dials.dial(&mut self.swarm, &self.peers, peer, addresses);
                self.ahead.extend(told);
            }
            Command::Hangup(peer, reason) => self.hang_up(peer, &reason),
            Command::Visit(peer, addresses, knock) => dials::visit(&mut self.swarm, peer, &addresses, knock),
        }
    }

    fn hang_up(&mut self, peer: NodeId, reason: &str) {
        tracing::debug!(%peer, reason, "hanging up");
        if let Ok(peer) = PeerId::from_bytes(&peer.to_peer_id_bytes()) {
            // An error means that it is not connected, which is what is wanted.
            self.swarm.disconnect_peer_id(peer).ok();
        }
    }

    fn on_link(&mut self, heard: FromLink) {
        match heard {
            // Frames of a peer that went down meanwhile are dropped, so that nothing comes after its PeerDown.
            FromLink::Frame(peer, bytes) if self.peers.is_up(peer) => self.tell(NetworkEvent::Frame { peer, bytes }),
            FromLink::Frame(..) => Tally::add(&self.shared.tally.frames_dropped, 1),
            FromLink::Violation(peer, reason) => {
                if let Some(address) = self.peers.address(peer) {
                    self.tell(NetworkEvent::Refused { peer, address, reason: reason.clone() });
                    self.hang_up(peer, &reason);
                }
            }
        }
    }

    fn on_swarm(&mut self, event: SwarmEvent<MeshEvent>) {
        match event {
            SwarmEvent::Behaviour(MeshEvent::Door(event)) => self.on_door(event),
            SwarmEvent::Behaviour(MeshEvent::Mdns(mdns::Event::Discovered(found))) => self.on_found(found),
            SwarmEvent::ConnectionClosed { peer_id, connection_id, cause, .. } => {
                tracing::debug!(%peer_id, ?cause, "a connection closed");
                let down = node_id(peer_id).and_then(|peer| self.peers.closed(peer, connection_id));
                self.ahead.extend(down);
            }
            SwarmEvent::ConnectionEstablished { connection_id, .. } => self.dials.succeeded(connection_id),
            SwarmEvent::OutgoingConnectionError { connection_id, peer_id, error } => {
                self.swarm.behaviour_mut().door.knock_failed(connection_id, || dials::reason(&error));
                let failed = self.dials.failed(connection_id, peer_id, &error);
                self.ahead.extend(failed);
            }
            SwarmEvent::IncomingConnectionError { send_back_addr, error, .. } => {
                if matches!(error, ListenError::Denied { .. }) {
                    Tally::add(&self.shared.tally.connections_denied, 1);
                }
                tracing::debug!(from = %send_back_addr, %error, "an inbound connection failed");
            }
            SwarmEvent::NewListenAddr { address, .. } => {
                if !self.listening.contains(&address) {
                    self.listening.push(address);
                }
                self.tell_addresses();
            }
            SwarmEvent::ExpiredListenAddr { address, .. } => {
                self.listening.retain(|known| *known != address);
                self.tell_addresses();
            }
            SwarmEvent::ListenerClosed { addresses, reason, .. } => {
                tracing::warn!(?addresses, ?reason, "no longer listening");
                self.listening.retain(|known| !addresses.contains(known));
                self.tell_addresses();
            }
            SwarmEvent::ListenerError { error, .. } => tracing::debug!(%error, "a listener failed for a moment"),
            _ => {}
        }
    }

    fn on_door(&mut self, event: DoorEvent<MembersEvent>) {
        match event {
            DoorEvent::Admitted { peer, connection, session, dialled, address } => {
                let (events, stale) = self.peers.admitted(peer, connection, session, dialled, address);
                for connection in stale {
                    self.swarm.close_connection(connection);
                }
                self.ahead.extend(events);
            }
            DoorEvent::Refused { peer, address, reason, proven, later } => {
                Tally::add(&self.shared.tally.peers_refused, 1);
                if proven {
                    self.tell(NetworkEvent::Reached { peer, address: address.clone() });
                }
                if later {
                    // Whoever was expected there: the dial is over, and only its pause is left to wait for.
                    for expected in [Some(peer), None] {
                        let (addresses, reason) = (vec![address.clone()], reason.clone());
                        self.tell(NetworkEvent::DialFailed { peer: expected, addresses, reason });
                    }
                }
                self.tell(NetworkEvent::Refused { peer, address, reason });
            }
            DoorEvent::Inner(MembersEvent::Gossip(gossipsub::Event::Message { propagation_source, message_id, message })) => {
                let event = self.gossip.heard(self.swarm.behaviour_mut().gossip(), propagation_source, message_id, message);
                self.ahead.extend(event);
            }
            DoorEvent::Inner(MembersEvent::Ping(ping::Event { peer, connection, result: Err(error) })) => {
                tracing::debug!(%peer, %error, "a connection is dead");
                self.swarm.close_connection(connection);
            }
            DoorEvent::Inner(MembersEvent::Gossip(gossipsub::Event::SlowPeer { peer_id, failed_messages })) => {
                tracing::debug!(peer = %peer_id, ?failed_messages, "a peer is slow to take gossip");
            }
            DoorEvent::Inner(_) => {}
        }
    }

    /// What multicast DNS found, by peer; more addresses than a record may have are left out.
    fn on_found(&mut self, found: Vec<(PeerId, Multiaddr)>) {
        let mut by_peer: Vec<(NodeId, Vec<String>)> = Vec::new();
        for (peer, address) in found {
            let (Some(peer), address) = (node_id(peer), address.to_string()) else { continue };
            if address.len() > ADDRESS_BYTES {
                continue;
            }
            match by_peer.iter_mut().find(|(known, _)| *known == peer) {
                Some((_, addresses)) if addresses.len() < ADDRESSES => addresses.push(address),
                Some(_) => {}
                None => by_peer.push((peer, vec![address])),
            }
        }
        for (peer, addresses) in by_peer {
            self.tell(NetworkEvent::Discovered { peer: Some(peer), addresses });
        }
    }

    /// Tells the own addresses when they changed.
    fn tell_addresses(&mut self) {
        let from = if self.external.is_empty() { &self.listening } else { &self.external };
        let mut addresses: Vec<&Multiaddr> = from.iter().collect();
        if addresses.iter().any(|address| !is_loopback(address)) {
            addresses.retain(|address| !is_loopback(address));
        }
        let told: Vec<String> = addresses
            .into_iter()
            .map(|address| address.clone().with_p2p(self.local).unwrap_or_else(|address| address).to_string())
            .filter(|address| address.len() <= ADDRESS_BYTES)
            .take(ADDRESSES)
            .collect();
        if told != self.told {
            self.told.clone_from(&told);
            self.tell(NetworkEvent::Addresses(told));
        }
    }

    /// Closes what is open, so that peers see it at once instead of after their pings fail.
    async fn close(mut self) {
        let peers: Vec<PeerId> = self.swarm.connected_peers().copied().collect();
        for peer in peers {
            self.swarm.disconnect_peer_id(peer).ok();
        }
        let closing = async {
            while self.swarm.network_info().num_peers() > 0 {
                self.swarm.select_next_some().await;
            }
        };
        if timeout(CLOSE_WITHIN, closing).await.is_err() {
            tracing::debug!("some connections did not close in time");
        }
        self.peers.clear();
        self.readers.shutdown().await;
    }
}

fn is_loopback(address: &Multiaddr) -> bool {
    match address.iter().next() {
        Some(Protocol::Ip4(ip)) => ip.is_loopback(),
        Some(Protocol::Ip6(ip)) => ip.is_loopback(),
        _ => false,
    }
}

async fn accepted(links: &mut Option<Incoming>) -> Option<(NodeId, PeerStream)> {
    match links {
        Some(links) => links.recv().await,
        None => None,
    }
}

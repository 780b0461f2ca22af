//! What is being dialled, so that a failure can name the addresses that were tried.

use std::collections::HashMap;

use groundswell_core::limits::{ADDRESS_BYTES, PEERS};
use groundswell_core::node_id::NodeId;
use libp2p::core::transport::TransportError;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{ConnectionId, DialError};
use libp2p::{Multiaddr, PeerId, Swarm};

use super::peers::Peers;
use crate::behaviour::Mesh;
use crate::door::{Knock, node_id};
use crate::event::NetworkEvent;
use crate::outer::visit::VisitFailed;
use crate::start::chain;

/// Dials under way. Bounded by the connection limits on pending dials; this is the belt to those braces.
#[derive(Default)]
pub(super) struct Dials {
    pending: HashMap<ConnectionId, Dial>,
}

struct Dial {
    peer: Option<NodeId>,
    addresses: Vec<String>,
}

impl Dials {
    /// Starts dialling. Addresses that name their peer are dialled together, the others one by one.
    /// Returns what is known at once: what cannot be dialled, and who is up already.
    pub(super) fn dial(
        &mut self,
        swarm: &mut Swarm<Mesh>,
        peers: &Peers,
        peer: Option<NodeId>,
        addresses: Vec<String>,
    ) -> Vec<NetworkEvent> {
        let mut told = Vec::new();
        let mut known: Vec<(NodeId, Vec<Multiaddr>)> = Vec::new();
        for text in addresses {
            let (named, address) = match read(&text) {
                Ok(read) => read,
                Err(reason) => {
                    told.push(NetworkEvent::DialFailed { peer, addresses: vec![text], reason });
                    continue;
                }
            };
            match (peer, named) {
                (Some(peer), Some(named)) if peer != named => {
                    let reason = format!("the address is that of {named}");
                    told.push(NetworkEvent::DialFailed { peer: Some(peer), addresses: vec![text], reason });
                }
                (Some(peer), _) | (None, Some(peer)) => match known.iter_mut().find(|(other, _)| *other == peer) {
                    Some((_, addresses)) => addresses.push(address),
                    None => known.push((peer, vec![address])),
                },
                (None, None) => {
                    let options = DialOpts::unknown_peer_id().address(address).allocate_new_port().build();
                    told.extend(self.start(swarm, options, None, vec![text]));
                }
            }
        }
        for (peer, addresses) in known {
            let Ok(peer_id) = PeerId::from_bytes(&peer.to_peer_id_bytes()) else { continue };
            if peers.is_up(peer) {
                let named = addresses.into_iter().map(|address| address.with(Protocol::P2p(peer_id)).to_string());
                told.extend(named.map(|address| NetworkEvent::Reached { peer, address }));
                continue;
            }
            let texts = addresses.iter().map(ToString::to_string).collect();
            let options = DialOpts::peer_id(peer_id)
                .condition(PeerCondition::DisconnectedAndNotDialing)
                .addresses(addresses)
                // From the listening port two simultaneous dials would become one TCP connection without an acceptor.
                .allocate_new_port()
                .build();
            told.extend(self.start(swarm, options, Some(peer), texts));
        }
        told
    }

    pub(super) fn succeeded(&mut self, connection: ConnectionId) {
        self.pending.remove(&connection);
    }

    pub(super) fn failed(&mut self, connection: ConnectionId, peer: Option<PeerId>, error: &DialError) -> Option<NetworkEvent> {
        let dial = self.pending.remove(&connection)?;
        let peer = dial.peer.or_else(|| peer.and_then(node_id));
        Some(NetworkEvent::DialFailed { peer, addresses: dial.addresses, reason: reason(error) })
    }

    fn start(
        &mut self,
        swarm: &mut Swarm<Mesh>,
        options: DialOpts,
        peer: Option<NodeId>,
        addresses: Vec<String>,
    ) -> Option<NetworkEvent> {
        if self.pending.len() >= PEERS {
            let reason = format!("{PEERS} dials are under way already");
            return Some(NetworkEvent::DialFailed { peer, addresses, reason });
        }
        let connection = options.connection_id();
        match swarm.dial(options) {
            Ok(()) => {
                self.pending.insert(connection, Dial { peer, addresses });
                None
            }
            // Being connected to or dialled already is what was wanted.
            Err(DialError::DialPeerConditionFalse(_)) => None,
            Err(error) => Some(NetworkEvent::DialFailed { peer, addresses, reason: reason(&error) }),
        }
    }
}

/// Dials a peer to visit its outer door, and nothing else.
pub(super) fn visit(swarm: &mut Swarm<Mesh>, peer: Option<NodeId>, addresses: &[String], knock: Knock) {
    let read: Vec<_> = addresses.iter().filter_map(|text| read(text).ok()).collect();
    let whom = peer.or_else(|| read.iter().find_map(|(named, _)| *named));
    // Without a name one address is one peer; with one, the addresses of others are left out.
    let at: Vec<Multiaddr> = match whom {
        Some(whom) => {
            read.into_iter().filter(|(named, _)| named.is_none_or(|named| named == whom)).map(|(_, address)| address).collect()
        }
        None => read.into_iter().take(1).map(|(_, address)| address).collect(),
    };
    let options = match whom.and_then(|whom| PeerId::from_bytes(&whom.to_peer_id_bytes()).ok()) {
        Some(whom) => DialOpts::peer_id(whom).condition(PeerCondition::Always).addresses(at).allocate_new_port().build(),
        None => match at.into_iter().next() {
            Some(address) => DialOpts::unknown_peer_id().address(address).allocate_new_port().build(),
            None => return drop(knock.send(Err(VisitFailed::Unreachable("no address can be read".into())))),
        },
    };
    let connection = options.connection_id();
    let door = &mut swarm.behaviour_mut().door;
    door.knock(connection, knock);
    if let Err(error) = swarm.dial(options) {
        swarm.behaviour_mut().door.knock_failed(connection, || reason(&error));
    }
}

/// The peer that an address names, and the address without it.
fn read(text: &str) -> Result<(Option<NodeId>, Multiaddr), String> {
    if text.len() > ADDRESS_BYTES {
        return Err(format!("an address has at most {ADDRESS_BYTES} bytes"));
    }
    let mut address: Multiaddr = text.parse().map_err(|error| format!("not a multiaddress: {error}"))?;
    match address.pop() {
        Some(Protocol::P2p(peer)) => match node_id(peer) {
            Some(peer) => Ok((Some(peer), address)),
            None => Err("it names a peer whose key is not Ed25519".into()),
        },
        Some(last) => Ok((None, address.with(last))),
        None => Err("it is empty".into()),
    }
}

/// One line, naming each address tried.
pub(super) fn reason(error: &DialError) -> String {
    match error {
        // The swarm leaves out the addresses that it listens on, and none is left.
        DialError::LocalPeerId { .. } | DialError::NoAddresses => "that is this node itself".into(),
        DialError::WrongPeerId { obtained, .. } => format!("{obtained} answered there"),
        DialError::Denied { cause } => chain(cause),
        DialError::Transport(tried) => {
            let tried = tried.iter().map(|(address, error)| match error {
                TransportError::MultiaddrNotSupported(_) => format!("{address}: no transport for it"),
                TransportError::Other(error) => format!("{address}: {}", chain(error)),
            });
            tried.collect::<Vec<_>>().join("; ")
        }
        DialError::Aborted | DialError::DialPeerConditionFalse(_) => "it was given up".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_and_without_its_peer() {
        let id = NodeId([7; 32]);
        let (peer, address) = read(&format!("/ip4/127.0.0.1/tcp/7070/p2p/{id}")).expect("well formed");
        assert_eq!((peer, address.to_string()), (Some(id), "/ip4/127.0.0.1/tcp/7070".to_owned()));
        let (peer, address) = read("/ip4/127.0.0.1/udp/7070/quic-v1").expect("well formed");
        assert_eq!((peer, address.to_string()), (None, "/ip4/127.0.0.1/udp/7070/quic-v1".to_owned()));
    }

    #[test]
    fn an_address_that_is_empty_long_or_no_multiaddress_is_refused() {
        for text in ["", "127.0.0.1:7070", &format!("/dns4/{}/tcp/1", "a".repeat(ADDRESS_BYTES))] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}

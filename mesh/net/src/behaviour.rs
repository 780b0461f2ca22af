//! The protocols of the mesh put together: what stands before the door, and what behind it.

use std::io;
use std::time::Duration;

use groundswell_core::digest::Digest;
use groundswell_core::limits::{DOCUMENT_BYTES, PEERS};
use libp2p::gossipsub::{self, IdentTopic, MessageAuthenticity, MessageId, ValidationMode};
use libp2p::identity::Keypair;
use libp2p::swarm::NetworkBehaviour;
use libp2p::swarm::behaviour::toggle::Toggle;
use libp2p::{connection_limits, identify, mdns, ping};

use crate::config::{CONNECTIONS_PER_PEER, GOSSIP_BYTES, UNADMITTED, VISITS};
use crate::door::{Door, Keeper};
use crate::outer::limits::{FORMERS, MEMBERS, STRANGERS, VISITS_PER_PEER};
use crate::streams;

/// Before the door: what must see connections that are not admitted, and speaks to nobody itself.
#[derive(NetworkBehaviour)]
pub(crate) struct Mesh {
    /// First, so that a connection over a limit gets no further.
    limits: connection_limits::Behaviour,
    /// Finds addresses only; it adds no protocol to any connection.
    mdns: Toggle<mdns::tokio::Behaviour>,
    pub(crate) door: Door<Members>,
}

/// Behind the door: every protocol that only members have.
#[derive(NetworkBehaviour)]
pub(crate) struct Members {
    pub(crate) gossip: gossipsub::Behaviour,
    streams: streams::Behaviour,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
}

/// Idle TCP connections through routers live for minutes at least; a dead peer is noticed within the sum of both.
const PING_EVERY: Duration = Duration::from_secs(15);
const PING_WITHIN: Duration = Duration::from_secs(15);
/// Dials under way. Of inbound handshakes the door keeps count: see [`crate::config::HANDSHAKES`].
const PENDING: u32 = 32;

impl Mesh {
    pub(crate) fn new(
        identity: &Keypair,
        keeper: Keeper,
        streams: streams::Behaviour,
        with_mdns: bool,
    ) -> Result<Self, (&'static str, String)> {
        let fleet = keeper.admission.fleet();
        let members = Members {
            gossip: gossip(identity, fleet).map_err(|reason| ("gossip", reason))?,
            streams,
            identify: identify::Behaviour::new(
                identify::Config::new("/groundswell/1".into(), identity.public())
                    .with_agent_version(concat!("groundswell/", env!("CARGO_PKG_VERSION")).into())
                    // Addresses travel in signed records; identify would tell them all, local ones included.
                    .with_hide_listen_addrs(true)
                    .with_push_listen_addr_updates(false)
                    .with_cache_size(0),
            ),
            ping: ping::Behaviour::new(ping::Config::new().with_interval(PING_EVERY).with_timeout(PING_WITHIN)),
        };
        let mdns = with_mdns
            .then(|| mdns::tokio::Behaviour::new(mdns::Config::default(), identity.public().to_peer_id()))
            .transpose()
            .map_err(|error: io::Error| ("multicast DNS", error.to_string()))?;
        Ok(Self { limits: connection_limits::Behaviour::new(limits()), mdns: mdns.into(), door: Door::new(members, keeper) })
    }

    pub(crate) fn gossip(&mut self) -> &mut gossipsub::Behaviour {
        &mut self.door.inner_mut().gossip
    }
}

/// Strangers, visitors and second connections have room beside the members, so they never take a member's place.
fn limits() -> connection_limits::ConnectionLimits {
    let members = u32::try_from(PEERS).expect("PEERS is small");
    let strangers = u32::try_from(UNADMITTED).expect("UNADMITTED is small");
    let visits_of_one = u32::try_from(VISITS_PER_PEER).expect("it is small");
    let visits = u32::try_from(STRANGERS + FORMERS + MEMBERS + VISITS).expect("they are small");
    connection_limits::ConnectionLimits::default()
        .with_max_pending_outgoing(Some(PENDING))
        .with_max_established_per_peer(Some(CONNECTIONS_PER_PEER + visits_of_one))
        .with_max_established(Some(members * CONNECTIONS_PER_PEER + strangers + visits))
}

/// The one topic of a fleet.
pub(crate) fn topic(fleet: Digest) -> IdentTopic {
    IdentTopic::new(format!("groundswell/1/{}", fleet.hex()))
}

fn gossip(identity: &Keypair, fleet: Digest) -> Result<gossipsub::Behaviour, String> {
    let config = gossipsub::ConfigBuilder::default()
        // Nothing is passed on before the agent has verified it.
        .validate_messages()
        .validation_mode(ValidationMode::Strict)
        // One document is one message, whoever publishes it and how often.
        .message_id_fn(|message| MessageId::new(&Digest::of(&message.data).0))
        .max_transmit_size(GOSSIP_BYTES)
        // A node keeps few links, so the mesh is small too.
        .mesh_outbound_min(1)
        .mesh_n_low(3)
        .mesh_n(4)
        .mesh_n_high(8)
        // Documents of this size or more are announced first to those who may have them.
        .idontwant_message_size_threshold(4 * 1024)
        .connection_handler_queue_len(64)
        .build()
        .map_err(|error| error.to_string())?;
    let mut gossip = gossipsub::Behaviour::new(MessageAuthenticity::Signed(identity.clone()), config)?;
    gossip.subscribe(&topic(fleet)).map_err(|error| format!("{error:?}"))?;
    Ok(gossip)
}

const _: () = assert!(DOCUMENT_BYTES < GOSSIP_BYTES);

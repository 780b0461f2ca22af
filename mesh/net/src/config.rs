//! What the mesh of one node is told at its start, and the bounds of this crate with their reasons.

use std::time::Duration;

use groundswell_core::limits;

use crate::pieces::Rates;

/// Settings of [`crate::Network::start`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Multiaddresses to listen on, such as `/ip4/0.0.0.0/tcp/7070` and `/ip4/0.0.0.0/udp/7070/quic-v1`; port 0 picks a
    /// free one. Empty: dial only. Always offer TCP: UDP is often blocked at the edge.
    pub listen: Vec<String>,
    /// Addresses under which others reach this node, told as they are in [`crate::NetworkEvent::Addresses`]
    /// (behind a router or a load balancer). Empty: the addresses listened on.
    pub external: Vec<String>,
    /// Look for peers on the local network by multicast DNS.
    pub mdns: bool,
    /// How long a new connection has to prove its membership. A test may shorten it.
    pub admit_within: Duration,
    /// With how many peers it is connected at most. A test may have fewer than [`limits::PEERS`].
    pub most_peers: usize,
    /// What goes out at the outer door counts here.
    pub rates: Rates,
    /// For tests of what an old build can still do: offers and speaks no protocol but the outer door's.
    pub only_outer_door: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            external: Vec::new(),
            mdns: false,
            admit_within: ADMIT_WITHIN,
            most_peers: limits::PEERS,
            rates: Rates::default(),
            only_outer_door: false,
        }
    }
}

/// A peer that has not proven its certificate by then is hung up on.
pub const ADMIT_WITHIN: Duration = Duration::from_secs(5);
/// Events that wait for the agent before the mesh stops reading: small, since each may carry a whole frame.
pub const EVENTS: usize = 64;
/// Commands that wait for the mesh: a burst of answers and dials of the agent's one loop.
pub const COMMANDS: usize = 1_024;
/// Frames that wait for one slow peer; more are dropped and counted, and sync repairs that.
pub const FRAMES_PER_PEER: usize = 256;
/// Bytes that wait for one slow peer.
pub const QUEUED_BYTES_PER_PEER: usize = 4 * 1024 * 1024;
/// Bytes that wait for all slow peers together: what a small device can spare.
pub const QUEUED_BYTES: usize = 32 * 1024 * 1024;
/// Connections to one peer: two simultaneous dials make two.
pub const CONNECTIONS_PER_PEER: u32 = 2;
/// Inbound connections that have not proven anything yet: strangers never take the places of members. When one more comes,
/// the one that waits longest of those from where most come gives way.
pub const UNADMITTED: usize = 32;
/// Inbound handshakes under way. From one network at most as many as are free, so there is always room for another.
pub const HANDSHAKES: usize = 64;
/// Longest proof, in bytes. A certificate with every label at its longest and every signature has less than half of it.
pub const PROOF_BYTES: usize = 64 * 1024;
/// Visits of this node at other nodes' outer doors, at once: one for documents, and the sources of one blob.
pub const VISITS: usize = 8;
/// Gossip messages whose answer is awaited; the oldest is ignored when one more comes.
pub const TICKETS: usize = 1_024;
/// Largest gossip message: one document and gossipsub's own fields (topic, author, signature).
pub const GOSSIP_BYTES: usize = limits::DOCUMENT_BYTES + 4 * 1024;
/// Inbound streams of one protocol that wait to be taken up; more are refused, and the opener is told.
pub const INCOMING_STREAMS: usize = 32;
/// Inbound streams of one protocol open at once on one connection.
pub const STREAMS_PER_CONNECTION: usize = 32;
/// Longest refusal reason on the wire, in bytes.
pub const REFUSAL_BYTES: usize = 200;

const _: () = assert!(PROOF_BYTES <= crate::outer::limits::CERTIFICATE_BYTES && PROOF_BYTES <= limits::DOCUMENT_BYTES);
const _: () = assert!(limits::FRAME_BYTES < QUEUED_BYTES_PER_PEER && QUEUED_BYTES_PER_PEER < QUEUED_BYTES);

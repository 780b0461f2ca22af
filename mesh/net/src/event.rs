//! Everything that the mesh tells the agent: one closed enum.

use groundswell_core::node_id::NodeId;

/// Something happened in the mesh.
///
/// Of one peer, `PeerUp` comes before all its frames and gossip and `PeerDown` after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkEvent {
    /// A peer was admitted on both sides and can be sent to. Comes once, however many connections there are;
    /// a peer that restarted comes as `PeerDown`, `PeerUp`, even when its old connection was not seen to close.
    PeerUp {
        /// Who.
        peer: NodeId,
        /// Whether this node dialled.
        dialled: bool,
        /// The peer's address: dialable when this node dialled, else merely where it came from.
        address: String,
    },
    /// A dial ended at a peer that was up already, or at a member that has no place for one more: no `PeerUp` tells of it.
    Reached {
        /// Who answered there.
        peer: NodeId,
        /// The address, dialable.
        address: String,
    },
    /// The last connection to a peer closed.
    PeerDown {
        /// Who.
        peer: NodeId,
    },
    /// A frame on the neighbour link of an admitted peer.
    Frame {
        /// From whom.
        peer: NodeId,
        /// At most [`groundswell_core::limits::FRAME_BYTES`].
        bytes: Vec<u8>,
    },
    /// A gossip message. It goes no further before [`crate::Network::answer`].
    Gossip {
        /// The peer that delivered it, which need not be its author.
        peer: NodeId,
        /// Names the message in the answer.
        ticket: u64,
        /// A document, not verified in any way.
        bytes: Vec<u8>,
    },
    /// Own dialable addresses changed; the whole new set, each ending in `/p2p/<own id>`, loopback last.
    Addresses(Vec<String>),
    /// Multicast DNS found a peer on the local network. A hint: nobody has proven anything.
    Discovered {
        /// Who it says it is.
        peer: Option<NodeId>,
        /// Where it says it is.
        addresses: Vec<String>,
    },
    /// A connection was closed because one side did not admit the other.
    Refused {
        /// Who it was.
        peer: NodeId,
        /// Where.
        address: String,
        /// Why: this side's reason, or the peer's.
        reason: String,
    },
    /// A dial led to no connection.
    DialFailed {
        /// Who was expected.
        peer: Option<NodeId>,
        /// The addresses tried.
        addresses: Vec<String>,
        /// Why, naming each address.
        reason: String,
    },
}

/// What becomes of a gossip message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// Valid: pass it on.
    Accept,
    /// Not passed on, and nobody's fault: already known, or it cannot be judged yet.
    Ignore,
    /// Invalid: not passed on, and the peer that delivered it loses standing.
    Reject,
}

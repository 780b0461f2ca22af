//! The door: until both sides have admitted each other, a connection has no protocol but the exchange of proofs, and the
//! outer door (see [`crate::outer`]) for those who cannot be admitted.
//!
//! [`Door`] wraps every other behaviour. Those learn of a connection, and their protocols are negotiated on it, only
//! after both proofs were accepted; of a peer that is not admitted they learn nothing at all (guarantee S7).
//!
//! ```text
//! dialler                                  acceptor
//!    │ ── Hello(fleet, session, proof) ──►    │  checks; refuses or answers
//!    │ ◄── Hello(fleet, session, proof) ──    │
//!    │  checks; opens its ear (inner protocols can be accepted, not yet opened)
//!    │ ── Accepted ──────────────────────►    │  opens ear and mouth
//!    │ ◄────────────────────────── Ready ──   │
//!    │  opens its mouth
//! ```
//! So neither side ever opens a protocol that the other does not offer yet. [`exchange`] has the bytes,
//! [`handler`] the order of one connection, [`behaviour`] what the swarm and the inner behaviours see, [`crowded`] who gives way
//! when too many wait, [`turns`] whose proof is looked at next.

mod behaviour;
mod crowded;
mod exchange;
mod handler;
mod knock;
mod outside;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use libp2p::swarm::ConnectionId;

use crate::admission::Admission;
use crate::outer::serve::OuterDoor;
use groundswell_core::node_id::NodeId;

pub(crate) use behaviour::{Door, node_id};
pub(crate) use exchange::SESSION_BYTES;
pub(crate) use knock::Knock;
pub(crate) use turns::Turns;

/// The protocol by which a connection is admitted.
pub(crate) const PROTOCOL: &str = "/groundswell/admit/1";

/// What every connection's exchange needs.
pub(crate) struct Keeper {
    /// Judges proofs and gives the own one.
    pub(crate) admission: Arc<dyn Admission>,
    /// Drawn at each start, so that others notice a restart even when the old connection was not seen to close.
    pub(crate) session: [u8; SESSION_BYTES],
    /// How long a connection may take to be admitted.
    pub(crate) within: Duration,
    /// With how many peers the node is connected at most.
    pub(crate) most_peers: usize,
    /// The outer door of this node, where it has one.
    pub(crate) outer: Option<Arc<OuterDoor>>,
    /// For tests: nothing else is offered or spoken.
    pub(crate) only_outer: bool,
    /// Of looking at what peers show that are not known here.
    pub(crate) turns: Turns,
}

/// What the door tells the swarm's owner, beside what the inner behaviours say.
#[derive(Debug)]
pub(crate) enum DoorEvent<E> {
    /// Both sides admitted each other on this connection.
    Admitted {
        /// Who.
        peer: NodeId,
        /// On which connection.
        connection: ConnectionId,
        /// The peer's process, as it says itself.
        session: [u8; SESSION_BYTES],
        /// Whether this side dialled.
        dialled: bool,
        /// The remote address.
        address: String,
    },
    /// The connection is being closed, or closed before it was admitted.
    Refused {
        /// Who.
        peer: NodeId,
        /// The remote address.
        address: String,
        /// Why.
        reason: String,
        /// Whether this side dialled it and it proved itself: it is a member, and has no place.
        proven: bool,
        /// Whether this side dialled it and is to come again soon.
        later: bool,
    },
    /// From an inner behaviour.
    Inner(E),
}

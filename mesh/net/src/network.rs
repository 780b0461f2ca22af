//! The handle on a running mesh: what the agent can ask of it. Every call returns at once.
//!
//! The swarm itself runs in one task (`driver`); it ends with [`Network::shutdown`] or when the last handle is dropped.

use std::sync::Arc;

use groundswell_core::node_id::NodeId;
use tokio::sync::mpsc::Receiver;

use crate::admission::Admission;
use crate::config::Config;
use crate::counters::Counters;
use crate::event::{Forward, NetworkEvent};
use crate::streams::Streams;

/// Why the mesh did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address in the configuration cannot be read.
    #[error("cannot read the address {address}: write it like /ip4/0.0.0.0/tcp/7070")]
    Address {
        /// As configured.
        address: String,
    },
    /// An address cannot be listened on: most often its port is in use.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// As configured.
        address: String,
        /// What the operating system said.
        reason: String,
    },
    /// The secret key is not 32 bytes of an Ed25519 key.
    #[error("the node's secret key is not an Ed25519 key")]
    Secret,
    /// A part of the stack did not start: multicast DNS, DNS settings, gossip.
    #[error("cannot start {part}: {reason}")]
    Part {
        /// Which.
        part: &'static str,
        /// Why.
        reason: String,
    },
}

/// A command was not taken: the mesh has [`crate::config::COMMANDS`] waiting, or has shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// Too many commands wait; counted in `commands_dropped`.
    #[error("the mesh has too many commands waiting")]
    Full,
    /// The mesh has shut down.
    #[error("the mesh has shut down")]
    Closed,
}

/// A running mesh. Clones share it.
#[derive(Clone, Debug)]
pub struct Network {}

impl Network {
    /// Starts listening and runs the swarm in a task of the current tokio runtime. Returns once every address of
    /// `config.listen` is listened on.
    ///
    /// `secret` is the node's Ed25519 secret key (the 32-byte seed). Drain the receiver always: when it is full, the mesh
    /// stops reading from peers.
    ///
    /// # Errors
    /// [`StartError`], naming the address at fault.
    pub async fn start(
        config: Config,
        secret: [u8; 32],
        admission: Arc<dyn Admission>,
    ) -> Result<(Self, Receiver<NetworkEvent>), StartError> {
        todo!("{config:?} {secret:?} {}", admission.fleet())
    }

    /// This node's own id.
    #[must_use]
    pub fn local_id(&self) -> NodeId {
        todo!()
    }

    /// Queues a frame for a peer, at most [`groundswell_core::limits::FRAME_BYTES`]. Frames to one peer keep their order.
    /// When the peer is not up or slow (its queue is full) the frame is dropped and counted; sync repairs that.
    /// Returns whether it was queued.
    pub fn send(&self, peer: NodeId, bytes: Vec<u8>) -> bool {
        todo!("{peer} {bytes:?}")
    }

    /// Publishes a document to the fleet's gossip topic. Without neighbours it goes nowhere; sync repairs that.
    ///
    /// # Errors
    /// When it was not taken.
    pub fn gossip(&self, bytes: Vec<u8>) -> Result<(), Busy> {
        todo!("{bytes:?}")
    }

    /// Says what becomes of a gossip message. Each ticket is answered once; later answers do nothing.
    ///
    /// # Errors
    /// When it was not taken; the message then goes no further.
    pub fn answer(&self, ticket: u64, forward: Forward) -> Result<(), Busy> {
        todo!("{ticket} {forward:?}")
    }

    /// Connects to whoever is at one of `addresses` (multiaddresses, tried together); with `peer`, only to that one.
    /// A dial to a peer that is up or being dialled does nothing. Ends in `PeerUp`, `Refused` or `DialFailed`.
    ///
    /// # Errors
    /// When it was not taken.
    pub fn dial(&self, peer: Option<NodeId>, addresses: Vec<String>) -> Result<(), Busy> {
        todo!("{peer:?} {addresses:?}")
    }

    /// Closes all connections to a peer; `PeerDown` follows.
    ///
    /// # Errors
    /// When it was not taken.
    pub fn hangup(&self, peer: NodeId, reason: &str) -> Result<(), Busy> {
        todo!("{peer} {reason}")
    }

    /// The counters as they stand.
    #[must_use]
    pub fn counters(&self) -> Counters {
        todo!()
    }

    /// Streams to admitted peers, for the protocols of this crate.
    pub(crate) fn streams(&self) -> &Streams {
        todo!()
    }

    /// Closes all connections and listeners and waits until the swarm has ended and its ports are free.
    pub async fn shutdown(&self) {
        todo!()
    }
}

//! The handle on a running mesh: what the agent can ask of it. Every call but `start` and `shutdown` returns at once.
//!
//! The swarm itself runs in one task (`driver`); it ends with [`Network::shutdown`] or when the last handle is dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use groundswell_core::node_id::NodeId;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};

use crate::admission::Admission;
use crate::blobs::Duplex;
use crate::config::Config;
use crate::counters::{Counters, Tally};
use crate::door::Knock;
use crate::event::{Forward, NetworkEvent};
use crate::link::writer::Queue;
use crate::outer::visit::VisitFailed;
use crate::start;
use crate::streams::{PIECES, Streams};

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

/// A command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// [`crate::config::COMMANDS`] commands wait already; counted in `commands_dropped`.
    #[error("the mesh has too many commands waiting")]
    Full,
    /// The mesh has shut down.
    #[error("the mesh has shut down")]
    Closed,
}

/// A running mesh. Clones share it.
#[derive(Clone, Debug)]
pub struct Network {
    pub(crate) local_id: NodeId,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) streams: Streams,
    pub(crate) stop: Arc<watch::Sender<bool>>,
    pub(crate) ended: watch::Receiver<bool>,
}

/// What the handles and the driver share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The queue of each peer that is up.
    pub(crate) queues: Mutex<BTreeMap<NodeId, Queue>>,
    pub(crate) tally: Arc<Tally>,
}

/// What a handle asks of the driver.
#[derive(Debug)]
pub(crate) enum Command {
    Gossip(Vec<u8>),
    Answer(u64, Forward),
    Dial(Option<NodeId>, Vec<String>),
    Hangup(NodeId, String),
    Visit(Option<NodeId>, Vec<String>, Knock),
}

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
    ) -> Result<(Self, mpsc::Receiver<NetworkEvent>), StartError> {
        start::start(config, secret, admission).await
    }

    /// This node's own id.
    #[must_use]
    pub fn local_id(&self) -> NodeId {
        self.local_id
    }

    /// Queues a frame for a peer, at most [`groundswell_core::limits::FRAME_BYTES`]. Frames to one peer keep their order
    /// (but for those around a change of connection). When the peer is not up or slow (its queue is full) the frame is
    /// dropped and counted; sync repairs that. Returns whether it was queued.
    pub fn send(&self, peer: NodeId, bytes: Vec<u8>) -> bool {
        let queues = self.shared.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queued = queues.get(&peer).is_some_and(|queue| queue.push(bytes));
        if !queued {
            Tally::add(&self.shared.tally.frames_dropped, 1);
        }
        queued
    }

    /// Publishes a document to the fleet's gossip topic. Without neighbours it goes nowhere; sync repairs that.
    ///
    /// # Errors
    /// When it was not taken.
    pub fn gossip(&self, bytes: Vec<u8>) -> Result<(), Busy> {
        self.command(Command::Gossip(bytes))
    }

    /// Says what becomes of a gossip message. Each ticket is answered once; later answers do nothing.
    ///
    /// # Errors
    /// When it was not taken; the message then goes no further.
    pub fn answer(&self, ticket: u64, forward: Forward) -> Result<(), Busy> {
        self.command(Command::Answer(ticket, forward))
    }

    /// Connects to whoever is at one of `addresses` (multiaddresses, tried together); with `peer`, or where an address
    /// ends in `/p2p/<id>`, only to that one. A dial to a peer that is up or being dialled does nothing.
    /// Ends in `PeerUp`, `Refused` or `DialFailed`.
    ///
    /// # Errors
    /// When it was not taken.
    pub fn dial(&self, peer: Option<NodeId>, addresses: Vec<String>) -> Result<(), Busy> {
        self.command(Command::Dial(peer, addresses))
    }

    /// Closes all connections to a peer; `PeerDown` follows.
    ///
    /// # Errors
    /// When it was not taken.
    pub fn hangup(&self, peer: NodeId, reason: &str) -> Result<(), Busy> {
        self.command(Command::Hangup(peer, reason.to_owned()))
    }

    /// Visits the outer door of `peer`, or of whoever is at the first of `addresses`: a connection of its own with one
    /// stream, on which [`crate::outer::visit::Visit`] asks. Cancel-safe; dropping the stream closes the connection. At most
    /// [`crate::config::VISITS`] at once, which the caller sees to.
    ///
    /// # Errors
    /// When nobody can be reached there, or has no outer door.
    pub async fn visit(&self, peer: Option<NodeId>, addresses: Vec<String>) -> Result<(NodeId, Box<dyn Duplex>), VisitFailed> {
        let (knock, answer) = oneshot::channel();
        let gone = |reason: &str| VisitFailed::Unreachable(reason.to_owned());
        self.command(Command::Visit(peer, addresses, knock)).map_err(|busy| gone(&busy.to_string()))?;
        // Dropped unanswered when the connection closes under it.
        let (peer, stream) = answer.await.map_err(|_| gone("the connection closed"))??;
        Ok((peer, Box::new(stream)))
    }

    /// The counters as they stand.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.tally.read()
    }

    /// The streams that members open for `/groundswell/pieces/1`, for [`crate::pieces::Swarms::serve`]; `None` when they are
    /// taken already.
    #[must_use]
    pub fn incoming_pieces(&self) -> Option<mpsc::Receiver<(NodeId, impl Duplex + use<>)>> {
        self.streams.incoming(PIECES)
    }

    /// Streams to admitted peers, for the protocols of this crate.
    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Closes all connections and listeners and waits until the swarm has ended and its ports are free.
    pub async fn shutdown(&self) {
        self.stop.send_replace(true);
        let mut ended = self.ended.clone();
        // An error means that the driver is gone, which is what is waited for.
        drop(ended.wait_for(|ended| *ended).await);
    }

    fn command(&self, command: Command) -> Result<(), Busy> {
        self.commands.try_send(command).map_err(|error| match error {
            TrySendError::Full(_) => {
                Tally::add(&self.shared.tally.commands_dropped, 1);
                Busy::Full
            }
            TrySendError::Closed(_) => Busy::Closed,
        })
    }
}

//! Streams between admitted peers, for the protocols of this crate: the neighbour link and blobs.
//!
//! Opening is a handshake: the acceptor writes one byte, 1 (taken up) or 0 (busy: too many wait or are open), so nothing
//! is dropped silently. Peers that are not admitted never get this far: see `door`.
//!
//! How to use it (blobs): `network.streams().open(peer, BLOB).await` on one side; on the other
//! `network.streams().incoming(BLOB)`, which gives the one receiver of that protocol, to be drained by one task.
//! A [`PeerStream`] is `futures::AsyncRead + AsyncWrite`; it keeps its connection open, and dropping it resets it
//! (close it first when the last bytes matter).

mod behaviour;
mod handler;
mod upgrade;

use std::sync::{Arc, Mutex, PoisonError};

use groundswell_core::node_id::NodeId;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::config::INCOMING_STREAMS;
use crate::counters::Tally;
use crate::held::Held;

pub(crate) use behaviour::Behaviour;

/// The neighbour link: frames, one direction per stream.
pub(crate) const LINK: &str = "/groundswell/link/1";
/// Pieces of blobs.
pub(crate) const BLOB: &str = "/groundswell/blob/1";
/// Exchanges of one blob's pieces.
pub(crate) const PIECES: &str = "/groundswell/pieces/1";
/// Every protocol that this node accepts streams of.
const PROTOCOLS: [&str; 3] = [LINK, BLOB, PIECES];

/// Streams asked for that the swarm has not looked at yet.
const REQUESTS: usize = 64;

/// Why a stream could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OpenError {
    /// No admitted connection to that peer.
    #[error("{0} is not connected")]
    NotConnected(NodeId),
    /// The peer does not speak the protocol.
    #[error("{0} does not speak {1}")]
    Unsupported(NodeId, &'static str),
    /// The peer has too many such streams; try again later or another peer.
    #[error("{0} has too many {1} streams")]
    Busy(NodeId, &'static str),
    /// The connection broke or was too slow.
    #[error("the connection to {0} failed: {1}")]
    Failed(NodeId, String),
    /// Too many streams are being opened here, or the mesh has shut down.
    #[error("too many streams are being opened")]
    Full,
}

/// A stream to an admitted peer. It holds the acceptor's place among the streams of its connection.
pub(crate) type PeerStream = Held<libp2p::Stream, Option<OwnedSemaphorePermit>>;

/// Accepted streams of one protocol, with the peer that opened each.
pub(crate) type Incoming = mpsc::Receiver<(NodeId, PeerStream)>;

/// Opens streams, and hands out the receivers of incoming ones. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    requests: mpsc::Sender<Request>,
    incoming: Arc<Mutex<Vec<(&'static str, Incoming)>>>,
}

/// One stream asked for.
#[derive(Debug)]
pub(crate) struct Request {
    peer: NodeId,
    protocol: &'static str,
    reply: oneshot::Sender<Result<PeerStream, OpenError>>,
}

/// Where accepted streams go.
#[derive(Debug)]
pub(crate) struct Acceptors {
    queues: Vec<(&'static str, mpsc::Sender<(NodeId, PeerStream)>)>,
    tally: Arc<Tally>,
}

impl Acceptors {
    fn queue(&self, protocol: &str) -> Option<&mpsc::Sender<(NodeId, PeerStream)>> {
        self.queues.iter().find(|(name, _)| *name == protocol).map(|(_, queue)| queue)
    }
}

/// The handle, and the behaviour that serves it.
pub(crate) fn streams(tally: Arc<Tally>) -> (Streams, Behaviour) {
    let (requests, served) = mpsc::channel(REQUESTS);
    let mut queues = Vec::new();
    let mut incoming = Vec::new();
    for protocol in PROTOCOLS {
        let (queue, receiver) = mpsc::channel(INCOMING_STREAMS);
        queues.push((protocol, queue));
        incoming.push((protocol, receiver));
    }
    let acceptors = Arc::new(Acceptors { queues, tally });
    (Streams { requests, incoming: Arc::new(Mutex::new(incoming)) }, Behaviour::new(served, acceptors))
}

impl Streams {
    /// Opens a stream on the newest connection to `peer`. Cancel-safe: dropping the future drops the stream.
    pub(crate) async fn open(&self, peer: NodeId, protocol: &'static str) -> Result<PeerStream, OpenError> {
        let (reply, answer) = oneshot::channel();
        self.requests.try_send(Request { peer, protocol, reply }).map_err(|_| OpenError::Full)?;
        // The reply is dropped unanswered when the connection closes under it.
        answer.await.unwrap_or(Err(OpenError::NotConnected(peer)))
    }

    /// The incoming streams of a protocol; `None` when they were taken already. Holds at most
    /// [`crate::config::INCOMING_STREAMS`].
    pub(crate) fn incoming(&self, protocol: &'static str) -> Option<Incoming> {
        let mut incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        let at = incoming.iter().position(|(name, _)| *name == protocol)?;
        Some(incoming.swap_remove(at).1)
    }
}

//! Streams between admitted peers, for the protocols of this crate: the neighbour link and blobs.
//!
//! Opening is a handshake: the acceptor writes one byte, 1 (taken up) or 0 (busy: too many wait or are open), so nothing
//! is dropped silently. Peers that are not admitted never get this far: see `door`.
//!
//! How to use it (blobs): `network.streams().open(peer, BLOB).await` on one side; on the other
//! `network.streams().incoming(BLOB)`, which gives the one receiver of that protocol, to be drained by one task.
//! A [`PeerStream`] is `futures::AsyncRead + AsyncWrite`; it keeps its connection open, and dropping it resets it
//! (close it first when the last bytes matter).

use groundswell_core::node_id::NodeId;
use tokio::sync::mpsc::Receiver;

/// The neighbour link: frames, one direction per stream.
pub(crate) const LINK: &str = "/groundswell/link/1";
/// Pieces of blobs.
pub(crate) const BLOB: &str = "/groundswell/blob/1";

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
    /// Too many streams are being opened here.
    #[error("too many streams are being opened")]
    Full,
}

/// A stream to an admitted peer.
#[derive(Debug)]
pub(crate) struct PeerStream {}

/// Opens streams, and hands out the receivers of incoming ones. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Streams {}

impl Streams {
    /// Opens a stream on the newest connection to `peer`. Cancel-safe: dropping the future drops the stream.
    pub(crate) async fn open(&self, peer: NodeId, protocol: &'static str) -> Result<PeerStream, OpenError> {
        todo!("{peer} {protocol}")
    }

    /// The incoming streams of a protocol; `None` when they were taken already. Holds at most
    /// [`crate::config::INCOMING_STREAMS`].
    pub(crate) fn incoming(&self, protocol: &'static str) -> Option<Receiver<(NodeId, PeerStream)>> {
        todo!("{protocol}")
    }
}

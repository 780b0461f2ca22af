//! What a node fetches: blobs in swarms, documents whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use groundswell_core::blob::{BlobName, LayoutError};
use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use tokio::sync::watch;

use super::document::{self, DocumentError};
use super::source::{PieceSink, SinkError};
use super::standing::Charge;
use crate::pieces::Swarms;

/// Fetches blobs and documents from members. One for the whole node, so that a liar is known in every download.
pub struct Fetcher {
    swarms: Swarms,
}

/// Why a download ended without the blob. A lack of peers never ends one; what was fetched stays in the sink.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The size in the manifest is no size of a blob.
    #[error("the manifest's size of {0} cannot be")]
    Size(Digest, #[source] LayoutError),
    /// This node's own disk failed or is full.
    #[error("{0} cannot be stored")]
    Sink(Digest, #[source] SinkError),
}

/// How far a download is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Pieces that are here.
    pub held: u32,
    /// Pieces that the blob has.
    pub pieces: u32,
    /// Peers that take part, the useless ones of the moment included.
    pub peers: usize,
    /// Whether some peer has some missing piece, as far as is known.
    pub has_source: bool,
    /// Whole copies among those peers, in parts per million.
    pub copies_ppm: u64,
    /// Peers that hold all of it.
    pub peers_complete: usize,
    /// Peers that lost their standing in this download.
    pub charged: BTreeMap<NodeId, Charge>,
}

impl Fetcher {
    /// A fetcher that takes part in these swarms.
    #[must_use]
    pub fn new(swarms: Swarms) -> Self {
        Self { swarms }
    }

    /// Fetches `blob` into `sink` from the peers that `peers` names, best first; the caller keeps that set up to date
    /// (connected members, and those whose record says that they serve it). Goes on for as long as it takes: without a
    /// source it waits for one and says so in `progress`. Pieces that the sink holds are never asked for. Others get
    /// what is here meanwhile, and afterwards.
    ///
    /// Cancel-safe: drop the future to stop. All streams of the blob end with it; verified pieces stay in the sink, and
    /// a write under way is finished in its own thread.
    ///
    /// # Errors
    /// Only what waiting does not cure: see [`FetchError`].
    pub async fn fetch(
        &self,
        blob: BlobName,
        sink: Arc<dyn PieceSink>,
        peers: watch::Receiver<Vec<NodeId>>,
        progress: watch::Sender<Progress>,
    ) -> Result<(), FetchError> {
        self.swarms.fetch(blob, sink, peers, progress).await
    }

    /// Fetches the published form of a document, at most `most_bytes` long, and checks with `accept` that it is the one
    /// named (its signatures are the core's business). Peers are tried in turn, a few at once when they are slow; one
    /// that sends something else loses its standing. Cancel-safe: drop the future to stop.
    ///
    /// # Errors
    /// When none of the peers gave it, with each one's reason.
    pub async fn fetch_document(
        &self,
        digest: Digest,
        most_bytes: usize,
        peers: &[NodeId],
        accept: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, DocumentError> {
        let shared = self.swarms.shared();
        let trusted: Vec<NodeId> = peers.iter().copied().filter(|peer| shared.standings.charged_until(peer).is_none()).collect();
        document::fetch(shared.connect(), &shared.standings, digest, most_bytes, &trusted, accept).await
    }

    /// The peers that are not asked for anything now, and why.
    #[must_use]
    pub fn charged(&self) -> Vec<(NodeId, Charge)> {
        self.swarms.charged()
    }
}

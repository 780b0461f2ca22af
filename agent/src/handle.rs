//! The way into a running node: what the local API and the tools may ask the driver.
//!
//! Every question goes through the driver's one loop and is answered from the core's state after all effects before it.

use groundswell_core::digest::Digest;
use groundswell_core::documents::rejection::Rejection;
use groundswell_core::node::effect::Accepted;
use groundswell_core::node::view::{Explanation, LeaseView, NodeView, PeerView, RolloutView, RosterView};
use groundswell_core::node_id::NodeId;
use groundswell_core::text::Product;
use groundswell_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

use crate::events::EventLog;

/// Questions that wait for the driver: more local clients than that are told to come again.
pub const WAITING: usize = 64;

/// This node and its agent: `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusView {
    /// The core's part.
    #[serde(flatten)]
    pub node: NodeView,
    /// The agent's part.
    pub agent: AgentView,
}

/// The process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    /// Version of the software.
    pub version: String,
    /// When it started, by its wall clock.
    pub started_at: Timestamp,
    /// Addresses under which it can be dialled.
    pub addresses: Vec<String>,
    /// Blobs that are here whole.
    pub blobs: Vec<Digest>,
    /// Downloads under way.
    pub downloads: Vec<DownloadView>,
    /// What others fetch from here.
    #[serde(default)]
    pub uploads: Vec<UploadView>,
    /// What the last dial that failed said.
    pub last_dial_failure: Option<String>,
    /// Why the last visit at another node's outer door did not bring everything.
    #[serde(default)]
    pub last_visit_failure: Option<String>,
    /// What does not work now.
    pub faults: Vec<FaultView>,
    /// The mesh's counters since the start.
    pub counters: std::collections::BTreeMap<String, u64>,
}

/// A download under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DownloadView {
    /// What.
    pub sha256: Digest,
    /// Its size in bytes.
    #[serde(default)]
    pub size_bytes: u64,
    /// Pieces here.
    pub held: u32,
    /// Pieces of the blob.
    pub pieces: u32,
    /// Peers in conversation.
    pub peers: u32,
    /// Of these, peers on this node's own network.
    #[serde(default)]
    pub near_peers: u32,
    /// Bytes a second that come, lately.
    #[serde(default)]
    pub bytes_per_second: u64,
    /// Whole copies that the others have together, in parts per million: see [`BlobView::copies_ppm`].
    #[serde(default)]
    pub copies_ppm: u64,
    /// Seconds until it is here, if it goes on like this; `None` while nothing comes.
    #[serde(default)]
    pub seconds_left: Option<u64>,
}

impl std::fmt::Display for DownloadView {
    /// `fetches sha256/…: 12 of 160 pieces, 2.1 MB/s from 3 peers (1 nearby), which have 1.42 copies with others; 40 s left`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { sha256, held, pieces, peers, near_peers, .. } = self;
        write!(f, "fetches {sha256}: {held} of {pieces} pieces, {} from {peers} peers", Rate(self.bytes_per_second))?;
        if *near_peers > 0 {
            write!(f, " ({near_peers} nearby)")?;
        }
        write!(f, "; the others have {} copies", Copies(self.copies_ppm))?;
        self.seconds_left.map_or(Ok(()), |seconds| write!(f, "; {seconds} s left"))
    }
}

impl std::fmt::Display for UploadView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { sha256, peers, .. } = self;
        write!(f, "gives {sha256}: {} to {peers} peers; ", Rate(self.bytes_per_second))?;
        write!(f, "the others have {} copies", Copies(self.copies_ppm))
    }
}

/// Bytes a second for people: `2.1 MB/s`.
#[derive(Clone, Copy, Debug)]
pub struct Rate(pub u64);

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = |unit: u64| (self.0 / unit, self.0 % unit * 10 / unit);
        let ((whole, tenth), unit) = match self.0 {
            bytes @ 0..1_000 => return write!(f, "{bytes} B/s"),
            1_000..1_000_000 => (tenths(1_000), "kB/s"),
            1_000_000..1_000_000_000 => (tenths(1_000_000), "MB/s"),
            _ => (tenths(1_000_000_000), "GB/s"),
        };
        write!(f, "{whole}.{tenth} {unit}")
    }
}

/// Copies in parts per million for people: `1.42`, never more than there are.
#[derive(Clone, Copy, Debug)]
pub struct Copies(pub u64);

impl std::fmt::Display for Copies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:02}", self.0 / 1_000_000, self.0 % 1_000_000 / 10_000)
    }
}

/// A blob that goes out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UploadView {
    /// What.
    pub sha256: Digest,
    /// Peers that take part and lack some of it.
    pub peers: u32,
    /// Bytes a second that go out, lately.
    pub bytes_per_second: u64,
    /// Whole copies that the others have together, in parts per million: see [`BlobView::copies_ppm`].
    pub copies_ppm: u64,
}

/// A blob that is here, in part or whole, and how far the others have it: `GET /v1/blobs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlobView {
    /// Its sha256.
    pub sha256: Digest,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Pieces here.
    pub held: u32,
    /// Pieces of the blob.
    pub pieces: u32,
    /// Other members that have all of it and pass it on, as far as is known here.
    pub holders: u32,
    /// Whole copies that the others have together, in parts per million: as many as have the rarest piece, and the share of
    /// pieces that more of them have. From 1,000,000 on they can complete each other without this node.
    pub copies_ppm: u64,
    /// Other nodes that rollouts in force ask to fetch it; `None` when none names its release.
    pub takers: Option<u32>,
    /// Who takes part in its exchange with this node.
    pub peers: Vec<BlobPeerView>,
}

/// A member that takes part in the exchange of a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlobPeerView {
    /// Its id.
    pub node: NodeId,
    /// Its name.
    pub name: Option<String>,
    /// Pieces that it has.
    pub held: u32,
    /// Bytes a second from here to it, lately.
    pub sent_bytes_per_second: u64,
    /// Bytes a second from it to here, lately.
    pub received_bytes_per_second: u64,
}

/// Something of this machine that does not work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultView {
    /// What: `store`.
    pub what: String,
    /// Why, and the way out.
    pub detail: String,
    /// Since when.
    pub since: Timestamp,
}

/// A document that is here: `GET /v1/documents`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DocumentView {
    /// Its body digest.
    pub digest: Digest,
    /// Its kind, `groundswell.release`.
    pub kind: String,
    /// Size of its published form in bytes.
    pub bytes: u64,
}

/// Why a document was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Refused by trust.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// It cannot be made durable now; try again once the store works.
    #[error("not taken: {0}")]
    Fault(String),
    /// No answer: the agent is stopping, or has too much to do.
    #[error(transparent)]
    Gone(#[from] Gone),
}

/// The driver does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gone {
    /// Too many questions wait.
    #[error("the agent has too many requests waiting: try again")]
    Busy,
    /// It has ended.
    #[error("the agent is stopping")]
    Stopped,
}

/// A place for an answer.
pub type Reply<T> = oneshot::Sender<T>;

/// One question to the driver.
#[derive(Debug)]
#[expect(missing_docs, reason = "named after the paths of the API, each with the place for its answer")]
pub enum Request {
    Status(Reply<StatusView>),
    Rollouts(Reply<Vec<RolloutView>>),
    Leases(Reply<Vec<LeaseView>>),
    Roster(Reply<Option<RosterView>>),
    Peers(Reply<Vec<PeerView>>),
    Blobs(Reply<Vec<BlobView>>),
    Explain { product: Option<Product>, reply: Reply<Vec<Explanation>> },
    Documents(Reply<Vec<DocumentView>>),
    Document { digest: Digest, reply: Reply<Option<Vec<u8>>> },
    Publish { bytes: Vec<u8>, reply: Reply<Result<Accepted, PublishError>> },
}

impl Request {
    /// Whether it changes nothing: it can be answered at any time.
    #[must_use]
    pub fn is_question(&self) -> bool {
        match self {
            Self::Status(_) | Self::Rollouts(_) | Self::Leases(_) | Self::Roster(_) | Self::Peers(_) | Self::Blobs(_) => true,
            Self::Explain { .. } | Self::Documents(_) | Self::Document { .. } => true,
            Self::Publish { .. } => false,
        }
    }
}

/// A running node, as its local clients see it. Clones share it.
#[derive(Clone, Debug)]
pub struct Handle {
    requests: mpsc::Sender<Request>,
    events: Arc<EventLog>,
}

impl Handle {
    /// A handle and the end that the driver reads.
    #[must_use]
    pub fn new(events: Arc<EventLog>) -> (Self, mpsc::Receiver<Request>) {
        let (requests, inbox) = mpsc::channel(WAITING);
        (Self { requests, events }, inbox)
    }

    /// The node's events.
    #[must_use]
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// Asks. Cancel-safe: an answer that nobody waits for is dropped.
    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, Gone> {
        let (reply, answer) = oneshot::channel();
        self.requests.try_send(request(reply)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Gone::Busy,
            mpsc::error::TrySendError::Closed(_) => Gone::Stopped,
        })?;
        answer.await.map_err(|_| Gone::Stopped)
    }

    /// This node.
    ///
    /// # Errors
    /// When the driver does not answer; so for all of these.
    pub async fn status(&self) -> Result<StatusView, Gone> {
        self.ask(Request::Status).await
    }

    /// Rollouts as seen here.
    #[expect(clippy::missing_errors_doc, reason = "see `status`")]
    pub async fn rollouts(&self) -> Result<Vec<RolloutView>, Gone> {
        self.ask(Request::Rollouts).await
    }

    /// Slots and their holders as seen here.
    #[expect(clippy::missing_errors_doc, reason = "see `status`")]
    pub async fn leases(&self) -> Result<Vec<LeaseView>, Gone> {
        self.ask(Request::Leases).await
    }

    /// The newest roster and how far leases have moved to it; `None` before any is here.
    #[expect(clippy::missing_errors_doc, reason = "see `status`")]
    pub async fn roster(&self) -> Result<Option<RosterView>, Gone> {
        self.ask(Request::Roster).await
    }

    /// Members as seen here.
    #[expect(clippy::missing_errors_doc, reason = "see `status`")]
    pub async fn peers(&self) -> Result<Vec<PeerView>, Gone> {
        self.ask(Request::Peers).await
    }

    /// Blobs here, and how far the others have them.
    #[expect(clippy::missing_errors_doc, reason = "see `status`")]
    pub async fn blobs(&self) -> Result<Vec<BlobView>, Gone> {
        self.ask(Request::Blobs).await
    }

    /// Why this node does not move: one product, or all.
    #[expect(clippy::missing_errors_doc, reason = "see `status`")]
    pub async fn explain(&self, product: Option<Product>) -> Result<Vec<Explanation>, Gone> {
        self.ask(|reply| Request::Explain { product, reply }).await
    }

    /// The documents here, rosters included.
    #[expect(clippy::missing_errors_doc, reason = "see `status`")]
    pub async fn documents(&self) -> Result<Vec<DocumentView>, Gone> {
        self.ask(Request::Documents).await
    }

    /// The published form of a document or roster.
    #[expect(clippy::missing_errors_doc, reason = "see `status`")]
    pub async fn document(&self, digest: Digest) -> Result<Option<Vec<u8>>, Gone> {
        self.ask(|reply| Request::Document { digest, reply }).await
    }

    /// Hands in a published document; returns once it is durable here and on its way to the peers.
    ///
    /// # Errors
    /// When it is refused, cannot be made durable, or the driver does not answer.
    pub async fn publish(&self, bytes: Vec<u8>) -> Result<Accepted, PublishError> {
        self.ask(|reply| Request::Publish { bytes, reply }).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_copies_are_rounded_down_for_people() {
        let rates = [0, 999, 1_000, 999_999, 2_150_000, 1_000_000_000].map(|bytes| Rate(bytes).to_string());
        assert_eq!(rates, ["0 B/s", "999 B/s", "1.0 kB/s", "999.9 kB/s", "2.1 MB/s", "1.0 GB/s"]);
        assert_eq!([0, 999_999, 1_425_000].map(|ppm| Copies(ppm).to_string()), ["0.00", "0.99", "1.42"]);
    }
}

//! The local API of one agent, as its clients see it: HTTP over its unix socket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use groundswell_core::digest::Digest;
use groundswell_core::node::view::{Explanation, LeaseView, NodeView, PeerView, RolloutView};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::error::FleetError;

/// An agent that takes longer does not answer, on the busiest machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// The same while it takes a blob to its disk.
const TAKE_WITHIN: Duration = Duration::from_secs(300);

/// One agent's API.
#[derive(Clone, Debug)]
pub struct Api {
    node: String,
    socket: PathBuf,
}

/// `GET /v1/status`.
#[derive(Clone, Debug, Deserialize)]
pub struct StatusView {
    /// The node.
    #[serde(flatten)]
    pub node: NodeView,
    /// Its agent.
    pub agent: AgentView,
}

/// The agent's part of its status, as far as it is of use here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    /// Blobs that are here whole.
    pub blobs: Vec<Digest>,
    /// Downloads under way.
    pub downloads: Vec<DownloadView>,
    /// What does not work.
    pub faults: Vec<serde_json::Value>,
    /// The mesh's counters.
    pub counters: BTreeMap<String, u64>,
}

/// A download under way.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DownloadView {
    /// Pieces here.
    pub held: u32,
    /// Pieces of the blob.
    pub pieces: u32,
    /// Peers in conversation.
    pub peers: u32,
}

/// One event: its number, its kind, and the rest as it is.
#[derive(Clone, Debug, Deserialize)]
pub struct EventView {
    /// 1, 2, 3 … since the agent started.
    pub number: u64,
    /// Its kind: `phase-changed`.
    pub kind: String,
    /// Its other fields.
    #[serde(flatten)]
    pub fields: BTreeMap<String, serde_json::Value>,
}

impl EventView {
    /// A field that is a text; empty when it is not there.
    #[must_use]
    pub fn text(&self, field: &str) -> &str {
        self.fields.get(field).and_then(serde_json::Value::as_str).unwrap_or_default()
    }
}

impl Api {
    /// The API of `node` behind `socket`.
    #[must_use]
    pub fn new(node: &str, socket: &Path) -> Self {
        Self { node: node.to_owned(), socket: socket.to_path_buf() }
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The node and its agent.
    ///
    /// # Errors
    /// When the agent does not answer; so for all of these.
    pub async fn status(&self) -> Result<StatusView, FleetError> {
        self.get("/v1/status").await
    }

    /// Rollouts as seen there.
    #[expect(clippy::missing_errors_doc, reason = "see `status`")]
    pub async fn rollouts(&self) -> Result<Vec<RolloutView>, FleetError> {
        self.get("/v1/rollouts").await
    }

    /// Leases as seen there.
    #[expect(clippy::missing_errors_doc, reason = "see `status`")]
    pub async fn leases(&self) -> Result<Vec<LeaseView>, FleetError> {
        self.get("/v1/leases").await
    }

    /// Members as seen there.
    #[expect(clippy::missing_errors_doc, reason = "see `status`")]
    pub async fn peers(&self) -> Result<Vec<PeerView>, FleetError> {
        self.get("/v1/peers").await
    }

    /// Why the node does not move.
    #[expect(clippy::missing_errors_doc, reason = "see `status`")]
    pub async fn explain(&self) -> Result<Vec<Explanation>, FleetError> {
        self.get("/v1/explain").await
    }

    /// Events after a number, 0 for all that are kept.
    #[expect(clippy::missing_errors_doc, reason = "see `status`")]
    pub async fn events(&self, after: u64) -> Result<Vec<EventView>, FleetError> {
        self.get(&format!("/v1/events?after={after}")).await
    }

    /// Hands in bytes as a blob, before or after the documents that name it; its digest.
    #[expect(clippy::missing_errors_doc, reason = "see `status`")]
    pub async fn put_blob(&self, bytes: Vec<u8>) -> Result<Digest, FleetError> {
        let sha256 = Digest::of(&bytes);
        self.ask(Request::put(format!("/v1/blobs/{}", sha256.hex())), bytes, TAKE_WITHIN).await?;
        Ok(sha256)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, FleetError> {
        let body = self.ask(Request::get(path), Vec::new(), ANSWER_WITHIN).await?;
        serde_json::from_slice(&body).map_err(|error| self.silent(format!("{path}: {error}: {}", String::from_utf8_lossy(&body))))
    }

    fn silent(&self, detail: String) -> FleetError {
        FleetError::Silent { node: self.node.clone(), detail }
    }

    async fn ask(&self, request: hyper::http::request::Builder, body: Vec<u8>, within: Duration) -> Result<Bytes, FleetError> {
        let path = request.uri_ref().map(ToString::to_string).unwrap_or_default();
        let request = request.header("host", "localhost").body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| self.silent(format!("{path}: {error}")))?;
        let answer = tokio::time::timeout(within, self.exchange(&path, request)).await;
        answer.map_err(|_| self.silent(format!("no answer to {path} within {within:?}")))?.map_err(|detail| self.silent(detail))
    }

    async fn exchange(&self, path: &str, request: Request<Full<Bytes>>) -> Result<Bytes, String> {
        let told = |error: &dyn std::fmt::Display| error.to_string();
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| told(&error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| told(&error))?;
        let exchange = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
        };
        tokio::pin!(exchange, connection);
        // The connection does the work while the exchange waits.
        let answered = tokio::select! {
            answered = &mut exchange => answered,
            _ = &mut connection => exchange.await,
        };
        let (status, body) = answered.map_err(|error| told(&error))?;
        if status.is_success() { Ok(body) } else { Err(format!("{path}: {status}: {}", String::from_utf8_lossy(&body))) }
    }
}

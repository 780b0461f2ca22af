//! A download: conversations with several peers at once until every piece is here, verified and stored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use groundswell_core::blob::{BlobName, Layout, LayoutError};
use groundswell_core::digest::Digest;
use groundswell_core::limits::BLOB_PEERS;
use groundswell_core::node_id::NodeId;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::connect::Connect;
use super::document::{self, DocumentError};
use super::download::{Download, blocking};
use super::limits::{DAMAGED_TIMES, RETRY_FIRST, RETRY_MOST};
use super::source::{PieceSink, SinkError};
use super::standing::{Charge, Standings};
use super::supplier::{Parting, converse};

/// Fetches blobs and documents from members. One for the whole node, so that a liar is known in every download.
pub struct Fetcher {
    connect: Arc<dyn Connect>,
    standings: Standings,
    local: NodeId,
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
    /// Peers in conversation, the useless ones of the moment included.
    pub peers: usize,
    /// Whether some peer has some missing piece, as far as is known.
    pub has_source: bool,
    /// Peers that lost their standing in this download.
    pub charged: BTreeMap<NodeId, Charge>,
}

/// When a peer may be tried again, and how often it failed before.
#[derive(Clone, Copy)]
struct Pause {
    until: Instant,
    length: Duration,
}

impl Fetcher {
    /// A fetcher for the node `local`, which decides between equally rare pieces.
    #[must_use]
    pub fn new(connect: Arc<dyn Connect>, local: NodeId) -> Self {
        Self { connect, standings: Standings::default(), local }
    }

    /// Fetches `blob` into `sink` from the peers that `peers` names, best first; the caller keeps that set up to date
    /// (connected members, and those whose record says that they serve it). Goes on for as long as it takes: without a
    /// source it waits for one and says so in `progress`. Pieces that the sink holds are never asked for.
    ///
    /// Cancel-safe: drop the future to stop. All conversations end with it; verified pieces stay in the sink, and a
    /// write under way is finished in its own thread.
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
        let layout = Layout::of(blob.size_bytes).map_err(|error| FetchError::Size(blob.sha256, error))?;
        let seed = seed(&self.local, &blob.sha256);
        let opened = blocking(move || Arc::new(Download::new(blob, layout, sink, seed))).await;
        opened.keep_own_hash_list().await.map_err(|error| FetchError::Sink(blob.sha256, error))?;
        let mut swarm = Swarm {
            fetcher: self,
            download: opened,
            peers,
            progress,
            talks: JoinSet::new(),
            talking: Vec::new(),
            pauses: BTreeMap::new(),
            charged: BTreeMap::new(),
        };
        let mut damaged = 0;
        loop {
            swarm.gather().await.map_err(|error| FetchError::Sink(blob.sha256, error))?;
            let sink = Arc::clone(&swarm.download.sink);
            match blocking(move || sink.finish()).await {
                Ok(()) => return Ok(()),
                Err(SinkError::Damaged { pieces }) if damaged < DAMAGED_TIMES => {
                    damaged += 1;
                    tracing::warn!(blob = %blob.sha256, pieces = pieces.len(), "fetching again what this disk damaged");
                    pieces.iter().for_each(|piece| swarm.download.plan().forget(*piece));
                }
                Err(error) => return Err(FetchError::Sink(blob.sha256, error)),
            }
        }
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
        let trusted: Vec<NodeId> = peers.iter().copied().filter(|peer| self.standings.charged_until(peer).is_none()).collect();
        document::fetch(&self.connect, &self.standings, digest, most_bytes, &trusted, accept).await
    }

    /// The peers that are not asked for anything now, and why.
    #[must_use]
    pub fn charged(&self) -> Vec<(NodeId, Charge)> {
        self.standings.list()
    }
}

/// Another order among equally rare pieces for every node and blob, without a source of chance.
fn seed(local: &NodeId, blob: &Digest) -> u64 {
    let [b0, b1, b2, b3, b4, b5, b6, b7, ..] = Digest::of(&[local.0, blob.0].concat()).0;
    u64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7])
}

/// The conversations of one download. Dropping it ends them all.
struct Swarm<'a> {
    fetcher: &'a Fetcher,
    download: Arc<Download>,
    peers: watch::Receiver<Vec<NodeId>>,
    progress: watch::Sender<Progress>,
    talks: JoinSet<(NodeId, Parting)>,
    talking: Vec<NodeId>,
    pauses: BTreeMap<NodeId, Pause>,
    charged: BTreeMap<NodeId, Charge>,
}

impl Swarm<'_> {
    /// Talks with peers until no piece is missing.
    async fn gather(&mut self) -> Result<(), SinkError> {
        let mut changes = self.download.changes();
        let mut ticks = tokio::time::interval(RETRY_FIRST);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut peers_known = true;
        while !self.download.is_complete() {
            let next_try = self.begin_talks();
            self.report();
            tokio::select! {
                Some(ended) = self.talks.join_next() => self.end_talk(ended)?,
                changed = self.peers.changed(), if peers_known => peers_known = changed.is_ok(),
                () = sleep_until(next_try.unwrap_or_else(Instant::now)), if next_try.is_some() => {}
                _ = changes.changed() => {}
                _ = ticks.tick() => {}
            }
        }
        self.talks.shutdown().await;
        self.talking.drain(..).for_each(|peer| self.download.plan().leave(peer));
        self.report();
        Ok(())
    }

    /// Begins conversations while there is room. Returns when the next paused peer may be tried.
    fn begin_talks(&mut self) -> Option<Instant> {
        let wanted = self.peers.borrow_and_update().clone();
        self.pauses.retain(|peer, _| wanted.contains(peer));
        let now = Instant::now();
        let mut next_try: Option<Instant> = None;
        for peer in wanted {
            if self.talking.len() >= BLOB_PEERS {
                return None;
            }
            if self.talking.contains(&peer) || peer == self.fetcher.local {
                continue;
            }
            let paused = self.pauses.get(&peer).map(|pause| pause.until);
            let until = paused.max(self.fetcher.standings.charged_until(&peer)).filter(|until| *until > now);
            if let Some(until) = until {
                next_try = Some(next_try.map_or(until, |sooner| sooner.min(until)));
                continue;
            }
            self.talking.push(peer);
            let talk = converse(Arc::clone(&self.download), peer, Arc::clone(&self.fetcher.connect));
            self.talks.spawn(async move { (peer, talk.await) });
        }
        next_try
    }

    fn end_talk(&mut self, ended: Result<(NodeId, Parting), tokio::task::JoinError>) -> Result<(), SinkError> {
        let (peer, parting) = match ended {
            Ok(ended) => ended,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => return Ok(()),
        };
        let asked = self.download.plan().in_flight(peer);
        self.download.plan().leave(peer);
        self.talking.retain(|other| *other != peer);
        if asked > 0 {
            self.download.note_change();
        }
        match parting {
            Parting::Complete => {}
            Parting::Useless => self.pause(peer),
            Parting::Broken(reason) => {
                tracing::debug!(%peer, reason, "a source of a blob is given up for now");
                self.pause(peer);
            }
            Parting::Charged(charge) => {
                self.fetcher.standings.charge(peer, charge);
                self.charged.insert(peer, charge);
            }
            Parting::Sink(error) => return Err(error),
        }
        Ok(())
    }

    fn pause(&mut self, peer: NodeId) {
        let length = self.pauses.get(&peer).map_or(RETRY_FIRST, |pause| (pause.length * 2).min(RETRY_MOST));
        self.pauses.insert(peer, Pause { until: Instant::now() + length, length });
    }

    fn report(&self) {
        let (held, has_source) = {
            let plan = self.download.plan();
            (plan.held().held(), plan.has_source())
        };
        let pieces = self.download.layout.count();
        let progress = Progress { held, pieces, peers: self.talking.len(), has_source, charged: self.charged.clone() };
        self.progress.send_if_modified(|last| {
            let news = *last != progress;
            *last = progress;
            news
        });
    }
}

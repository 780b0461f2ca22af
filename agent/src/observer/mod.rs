//! A node without a device, in memory: what `swell publish --to` and `swell fleet pull --from` are while they run.
//!
//! It joins with the operator's observer certificate, signs no records, and serves a release's files from where they lie
//! ([`files`]). [`publish`] hands documents and files over and waits until enough members hold them.

pub mod files;
pub mod publish;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use groundswell_core::crypto::SoftwareCrypto;
use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::documents::rejection::Rejection;
use groundswell_core::limits::DOCUMENT_BYTES;
use groundswell_core::node::effect::{Effect, Event};
use groundswell_core::node::input::{Input, Source};
use groundswell_core::node::{Node, NodeConfig};
use groundswell_core::node_id::NodeId;
use groundswell_core::trust::local::LocalTrust;
use groundswell_net::blobs::limits::PUBLISHED_ROSTER_BYTES;
use groundswell_net::blobs::{Fetcher, Server};
use groundswell_net::pieces::{Swarms, Terms};
use groundswell_net::{Network, StartError};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use self::files::ReleaseFiles;
use crate::admission::{Door, SharedNode, Shelves};
use crate::agent::{platform, together};
use crate::blobs::{self, BlobStore};
use crate::clock::{self, Clock};
use crate::driver::{Driver, DriverError, Parts, Sources};
use crate::events::{EventLog, Told};
use crate::handle::{Handle, PublishError};
use crate::identity::{self, Secret};
use crate::store::Store;

/// Who the observer is, and whom it asks.
#[derive(Clone)]
pub struct Settings {
    /// The fleet's id.
    pub fleet: Digest,
    /// The observer's key.
    pub secret: Secret,
    /// Published documents that it knows: the fleet documents and its own certificate at least.
    pub documents: Vec<Vec<u8>>,
    /// Multiaddresses of peers to reach.
    pub peers: Vec<String>,
}

/// Why an observer cannot do its work.
#[derive(Debug, thiserror::Error)]
pub enum ObserverError {
    /// The kernel gives no randomness, no folder, no timer.
    #[error("cannot start: {what}")]
    Start {
        /// What failed.
        what: &'static str,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// One of its own documents is refused.
    #[error("a document of the fleet folder is refused")]
    Document(#[source] Rejection),
    /// No fleet document among its own.
    #[error("no fleet document of {0} was given: name the fleet folder")]
    NoFleet(Digest),
    /// No certificate of this key among its own.
    #[error("no certificate of {0} was given: admit this operator's request as an observer, and name the fleet folder")]
    NoCertificate(NodeId),
    /// The mesh.
    #[error(transparent)]
    Mesh(#[from] StartError),
    /// Nobody answers.
    #[error("none of the peers can be reached ({peers}){}", .last.as_deref().map_or_else(String::new, |last| format!(": {last}")))]
    Unreachable {
        /// Whom it tried.
        peers: String,
        /// What the last attempt said.
        last: Option<String>,
    },
    /// A peer answers and does not let it in.
    #[error("{peer} does not let this observer in: {reason}")]
    Refused {
        /// Which peer.
        peer: NodeId,
        /// What it said.
        reason: String,
    },
    /// A document that was to be published is refused.
    #[error("{name} is refused")]
    Rejected {
        /// Its name.
        name: String,
        /// Why.
        source: Rejection,
    },
    /// The loop has ended.
    #[error("the observer ended by itself")]
    Ended(#[source] Option<DriverError>),
    /// Not done in the time given.
    #[error("not done within {within_seconds} s: {missing}")]
    Late {
        /// The time given.
        within_seconds: u64,
        /// What is missing.
        missing: String,
    },
    /// Files without a rollout that asks for them.
    #[error("no rollout in force names the release {0}, so no node fetches its files: publish the rollout with them")]
    NoRollout(Digest),
}

/// A running observer. Dropping it ends it.
pub struct Observer {
    node: SharedNode,
    handle: Handle,
    network: Network,
    fetcher: Fetcher,
    swarms: Swarms,
    peers: Vec<String>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), DriverError>>,
    /// Documents that a connected peer gave back: seen at each.
    given_back: Mutex<BTreeMap<NodeId, std::collections::BTreeSet<Digest>>>,
    _folder: tempfile::TempDir,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Observer {
    /// Starts it; it dials its peers at once. Nothing is listened on.
    ///
    /// # Errors
    /// When its own documents do not make it a member, or the machine refuses.
    pub async fn start(settings: Settings, files: Arc<ReleaseFiles>) -> Result<Self, ObserverError> {
        let start = |what| move |source: std::io::Error| ObserverError::Start { what, source: source.into() };
        let (node, initial) = open_node(&settings)?;
        let folder = tempfile::tempdir().map_err(start("no temporary folder"))?;
        let place = blobs::Settings { folder: folder.path().join("blobs"), quota_bytes: 0, reserve_bytes: 0 };
        let store =
            BlobStore::open(place).map_err(|error| ObserverError::Start { what: "no temporary folder", source: error.into() })?;
        let node = SharedNode::new(node);
        let door = Arc::new(Door::new(node.clone(), settings.fleet, &settings.secret, Clock::default(), None));
        let mesh = groundswell_net::Config::default();
        let (network, heard) = Network::start(mesh, settings.secret, Arc::<Door>::clone(&door)).await?;
        let events = Arc::new(EventLog::default());
        let (handle, requests) = Handle::new(Arc::clone(&events));
        let (stop, stopped) = watch::channel(false);
        let (_no_device, reports) = mpsc::channel(1);
        let parts = Parts {
            node: node.clone(),
            door,
            store: Arc::new(Store::in_memory(&settings.secret)),
            blobs: store,
            network: network.clone(),
            devices: None,
            events,
            clock: Clock::default(),
            lean: true,
            served: Arc::<ReleaseFiles>::clone(&files),
            swarm: Terms::default(),
            initial,
        };
        let (_no_door, pushed) = mpsc::channel(1);
        let sources = Sources { network: heard, reports, requests, pushed, stop: stopped };
        let driver =
            Driver::new(parts, sources).map_err(|error| ObserverError::Start { what: "no timer", source: error.into() })?;
        let server = Server::new(files, Arc::new(Shelves(node.clone())));
        let swarms = driver.swarms();
        let fetcher = Fetcher::new(swarms.clone());
        let (serving, ending, served_swarms) = (network.clone(), stop.clone(), swarms.clone());
        let task = tokio::spawn(async move {
            let served = async {
                tokio::join!(server.serve_network(&serving), served_swarms.serve_network(&serving));
            };
            together(driver.run(), std::future::ready(()), served, std::future::pending(), &ending).await
        });
        let given_back = Mutex::default();
        Ok(Self { node, handle, network, fetcher, swarms, peers: settings.peers, stop, task, given_back, _folder: folder })
    }

    /// Waits until a peer has let it in.
    ///
    /// # Errors
    /// When none does within that time: refused if somebody said so, else unreachable.
    pub async fn connected(&self, within: Duration) -> Result<(), ObserverError> {
        let mut news = self.handle.events().follow();
        let (mut after, mut refusal) = (0, None);
        let waited = tokio::time::timeout(within, async {
            loop {
                for entry in self.handle.events().since(after, crate::events::KEPT).entries {
                    after = entry.number;
                    match &entry.told {
                        Told::PeerUp { .. } => return Ok(()),
                        Told::PeerRefused { peer, reason, .. } => refusal = Some((*peer, reason.clone())),
                        _ => {}
                    }
                }
                news.wait_for(|last| *last > after).await.map_err(|_| ObserverError::Ended(None))?;
            }
        });
        if let Ok(outcome) = waited.await {
            return outcome;
        }
        if let Some((peer, reason)) = refusal {
            return Err(ObserverError::Refused { peer, reason });
        }
        let last = self.handle.status().await.ok().and_then(|status| status.agent.last_dial_failure);
        Err(ObserverError::Unreachable { peers: self.peers.join(", "), last })
    }

    /// Every document in force in the mesh, rosters included, in an order in which a stranger can accept them: its body
    /// digest, its kind, its published form. Waits for a complete sync and for the rosters that documents name.
    ///
    /// # Errors
    /// When that does not come about in time.
    pub async fn pull(&self, within: Duration) -> Result<Vec<(Digest, Kind, Vec<u8>)>, ObserverError> {
        self.complete(within).await?;
        let node = self.node.lock();
        Ok(node.documents().map(|(digest, kind, bytes)| (digest, kind, bytes.to_vec())).collect())
    }

    /// Waits for a complete sync with a peer and for the rosters that documents name.
    async fn complete(&self, within: Duration) -> Result<(), ObserverError> {
        let complete = |node: &Node| node.has_synced() && node.shelf().wanted_rosters().is_empty();
        self.poll(within, |node| complete(node).then_some(()).ok_or_else(|| "a complete sync with a peer".to_owned())).await
    }

    /// The node as its local clients see it.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Leaves the mesh.
    ///
    /// # Errors
    /// When the loop ended by itself before.
    pub async fn end(mut self) -> Result<(), ObserverError> {
        self.stop.send_replace(true);
        let ended = (&mut self.task).await;
        self.network.shutdown().await;
        match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(ObserverError::Ended(Some(error))),
            Err(_) => Err(ObserverError::Ended(None)),
        }
    }

    /// Looks at the node until `done` is satisfied. Records and documents arrive without an event of their own each, so it
    /// looks a few times a second.
    async fn poll<T>(&self, within: Duration, done: impl Fn(&Node) -> Result<T, String>) -> Result<T, ObserverError> {
        let deadline = tokio::time::Instant::now() + within;
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        loop {
            ticks.tick().await;
            let missing = match done(&self.node.lock()) {
                Ok(value) => return Ok(value),
                Err(missing) => missing,
            };
            if self.task.is_finished() {
                return Err(ObserverError::Ended(None));
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(ObserverError::Late { within_seconds: within.as_secs(), missing });
            }
        }
    }

    /// Asks a connected peer for a document: whether it gives it back.
    async fn gives_back(&self, peer: NodeId, digest: Digest, kind: Kind) -> bool {
        let known = |given: &BTreeMap<NodeId, std::collections::BTreeSet<Digest>>| {
            given.get(&peer).is_some_and(|all| all.contains(&digest))
        };
        if known(&self.given_back.lock().unwrap_or_else(PoisonError::into_inner)) {
            return true;
        }
        let most_bytes = if kind == Kind::Roster { PUBLISHED_ROSTER_BYTES } else { DOCUMENT_BYTES };
        let same = |bytes: &[u8]| {
            groundswell_core::documents::envelope::Envelope::parse(bytes).is_ok_and(|envelope| envelope.digest() == digest)
        };
        let given = self.fetcher.fetch_document(digest, most_bytes, &[peer], same).await.is_ok();
        if given {
            let mut all = self.given_back.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(peer).or_default().insert(digest);
        }
        given
    }

    async fn hand_in(&self, name: &str, bytes: Vec<u8>) -> Result<groundswell_core::node::effect::Accepted, ObserverError> {
        self.handle.publish(bytes).await.map_err(|error| match error {
            PublishError::Rejected(source) => ObserverError::Rejected { name: name.to_owned(), source },
            PublishError::Fault(_) | PublishError::Gone(_) => ObserverError::Ended(None),
        })
    }
}

/// How often an observer looks at what it waits for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

fn open_node(settings: &Settings) -> Result<(Node, Vec<Effect>), ObserverError> {
    let config = NodeConfig {
        fleet: settings.fleet,
        platform: platform(),
        products: std::collections::BTreeSet::new(),
        lean: true,
        local_trust: LocalTrust::default(),
        bootstrap: settings.peers.clone(),
        silent: true,
        agent: None,
    };
    let seed = identity::generate().map_err(|error| ObserverError::Start { what: "no randomness", source: error.into() })?;
    let crypto = Box::new(SoftwareCrypto::from_secret(&settings.secret));
    let node = Node::open(config, crypto, seed, Vec::new(), clock::now());
    let mut node = node.map_err(|error| ObserverError::Start { what: "the node does not open", source: error.into() })?;
    let mut initial = node.take_effects();
    for bytes in &settings.documents {
        node.handle(clock::now(), Input::Document { bytes: bytes.clone(), source: Source::Store });
        let effects = node.take_effects();
        for effect in &effects {
            if let Effect::Event(Event::DocumentRejected { rejection, .. }) = effect {
                return Err(ObserverError::Document(rejection.clone()));
            }
        }
        initial.extend(effects);
    }
    if node.shelf().fleet().is_none() {
        return Err(ObserverError::NoFleet(settings.fleet));
    }
    if node.own_proof().is_none() {
        return Err(ObserverError::NoCertificate(node.id()));
    }
    Ok((node, initial))
}

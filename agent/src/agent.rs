//! Wires one node: store, core, mesh, devices, downloads, local API. Starts them in order and ends them in reverse.
//!
//! What is missing or wrong ends the start with the file's name and a way out; once it runs, it keeps running on what
//! it has.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use groundswell_core::crypto::SoftwareCrypto;
use groundswell_core::digest::Digest;
use groundswell_core::documents::envelope::Envelope;
use groundswell_core::documents::rejection::Rejection;
use groundswell_core::documents::{Body, Kind};
use groundswell_core::limits::{OUTER_AFTER_MS, PUBLISHED_ROSTER_BYTES};
use groundswell_core::node::effect::{Effect, Event};
use groundswell_core::node::input::{Input, Source};
use groundswell_core::node::{AgentProduct, Node, NodeConfig, OpenError};
use groundswell_core::node_id::NodeId;
use groundswell_core::text::{Platform, Product};
use groundswell_core::trust::local::{LocalTrust, Raise};
use groundswell_net::blobs::{BlobSource, Server};
use groundswell_net::{Network, StartError};
use tokio::sync::{mpsc, watch};

use crate::admission::{Door, SharedNode, Shelves};
use crate::api::{self, SocketError};
use crate::blobs::{self, BlobStore};
use crate::clock::Clock;
use crate::config::{Config, TrustRaise, TrustRaises};
use crate::driver::{Driver, DriverError, Parts, Sources, sweep};
use crate::events::EventLog;
use crate::handle::Handle;
use crate::helper::papers::papers;
use crate::identity::{self, IdentityError};
use crate::install::durable::read_named;
use crate::install::files::OnDisk;
use crate::install::{ArtifactSource, DeviceError, Devices};
use crate::observer::files::ReleaseFiles;
use crate::outer::keeper::Keeper;
use crate::store::StoreError;
use crate::supervise::marks::Marks;
use crate::supervise::own::{Own, Parent, give_signs};

/// Reports of devices that wait for the driver.
const REPORTS: usize = 64;

/// Why an agent does not run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The data folder.
    #[error("cannot use the data folder {}: create it, or name another as `data-dir`", .path.display())]
    DataFolder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The node's key, or the store that holds it.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store reads back, but not as a node.
    #[error("the store in {} cannot be used", .folder.display())]
    Open {
        /// The store's folder.
        folder: PathBuf,
        /// Why.
        source: OpenError,
    },
    /// A document named in the configuration cannot be read.
    #[error("cannot read the document {}: name the right file in the configuration", .path.display())]
    DocumentFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A document named in the configuration is refused.
    #[error("the document {} is refused", .path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Rejection,
    },
    /// The certificate is another node's.
    #[error("{} is the certificate of {certified}, this node is {node}: admit this node's own request, or name the right key file", .path.display())]
    ForeignCertificate {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        certified: NodeId,
        /// This node.
        node: NodeId,
    },
    /// There is no valid fleet document.
    #[error("no fleet document of {fleet} is known here: name its file under `documents` in the configuration")]
    NoFleet {
        /// The fleet's id.
        fleet: Digest,
    },
    /// The kernel gives no randomness.
    #[error("the operating system gives no randomness")]
    Randomness(#[source] io::Error),
    /// The blob folder.
    #[error(transparent)]
    Blobs(#[from] blobs::OpenError),
    /// The local API's socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The mesh.
    #[error("the mesh cannot start: choose a free port under `listen`, or stop what uses it")]
    Mesh(#[from] StartError),
    /// A device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The loop.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// Why an agent ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Told,
    /// It is to be started again by its supervisor, from what the files name now.
    ToBeReplaced,
}

/// What a test changes about an agent; nothing else does.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// The clocks that it goes by.
    pub clock: Clock,
    /// As a build would be that is too old for the mesh: offers and speaks the outer door's protocol and no other.
    pub only_outer_door: bool,
    /// For how long it had no protocol in common with the mesh when it starts, in milliseconds, instead of what it counted.
    pub lacking_ms: Option<u64>,
    /// Which of the configured products counts as the agent itself.
    pub agent_product: Option<Product>,
}

/// Runs an agent until `shutdown` is done, without anybody who supervises it. Call it once per data folder, within a tokio
/// runtime that has all drivers.
///
/// # Errors
/// [`AgentError`], before anything is announced to the mesh, or when a part ends by itself.
pub async fn run(config: Config, shutdown: impl Future<Output = ()> + Send) -> Result<(), AgentError> {
    run_under(config, Parent::default(), shutdown).await.map(|_| ())
}

/// Runs an agent that `parent` has started, until `shutdown` is done or it is to be replaced. As [`run`] otherwise.
///
/// # Errors
/// As [`run`].
pub async fn run_under(config: Config, parent: Parent, shutdown: impl Future<Output = ()> + Send) -> Result<Ended, AgentError> {
    run_set(config, parent, Setting::default(), shutdown).await
}

/// [`run_under`], as a build would be that has spoken no protocol of the mesh for a day: it lives through outer doors, until
/// another build of it runs. For rehearsals of that.
///
/// # Errors
/// As [`run`].
pub async fn run_outdated(
    config: Config,
    parent: Parent,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<Ended, AgentError> {
    let setting = Setting { only_outer_door: true, lacking_ms: Some(OUTER_AFTER_MS), ..Setting::default() };
    run_set(config, parent, setting, shutdown).await
}

/// [`run`] in a setting of a test's making.
///
/// # Errors
/// As [`run`].
pub async fn run_in(config: Config, setting: Setting, shutdown: impl Future<Output = ()> + Send) -> Result<(), AgentError> {
    run_set(config, Parent::default(), setting, shutdown).await.map(|_| ())
}

async fn run_set(
    config: Config,
    parent: Parent,
    setting: Setting,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<Ended, AgentError> {
    let clock = setting.clock;
    std::fs::create_dir_all(&config.data_dir)
        .map_err(|source| AgentError::DataFolder { path: config.data_dir.clone(), source })?;
    let folder = config.data_dir.join("store");
    let store = identity::open_store(&folder, &config.key_file)?;
    let secret = store.identity()?;

    let node_config = NodeConfig {
        fleet: config.fleet,
        platform: platform(),
        products: config.products.keys().cloned().collect(),
        lean: config.lean,
        local_trust: local_trust(&config.trust),
        bootstrap: config.bootstrap.clone(),
        silent: false,
        agent: match setting.agent_product {
            Some(product) => Some(AgentProduct { product, supervised: true }),
            None => config
                .own_product()
                .map(|product| AgentProduct { product: product.clone(), supervised: parent.supervisor.is_some() }),
        },
    };
    let crypto = Box::new(SoftwareCrypto::from_secret(&secret));
    let seed = identity::generate().map_err(AgentError::Randomness)?;
    let node = Node::open(node_config, crypto, seed, store.load()?, clock.now());
    let mut node = node.map_err(|source| AgentError::Open { folder, source })?;
    if let Some(lacking_ms) = setting.lacking_ms {
        node.restore_lack(lacking_ms);
    }
    let mut initial = node.take_effects();
    for path in config.documents.iter().chain(&config.certificate_file) {
        initial.extend(read_document(&mut node, path, &clock)?);
    }
    if node.shelf().fleet().is_none() {
        return Err(AgentError::NoFleet { fleet: config.fleet });
    }
    if node.own_proof().is_none() {
        tracing::warn!("no certificate of this node ({}) is known here: no peer will let it in until it is admitted", node.id());
    }

    let blobs = BlobStore::open(blobs::Settings {
        folder: config.data_dir.join("blobs"),
        quota_bytes: config.limits.blob_bytes,
        reserve_bytes: config.limits.keep_free_bytes,
    })?;
    let socket = api::bind(&config.socket)?;
    let node = SharedNode::new(node);
    blobs.spare_only(needed(node.clone(), clock.clone()));
    // A metered node serves documents, which are small and rare, and no blobs.
    let served: Arc<dyn BlobSource> = if config.lean { Arc::new(ReleaseFiles::default()) } else { Arc::new(blobs.clone()) };
    let (keeper, pushed) = Keeper::new(node.clone(), config.fleet, &secret, Arc::clone(&served), clock.clone());
    let door = Arc::new(Door::new(node.clone(), config.fleet, &secret, clock.clone(), Some(Arc::new(keeper))));
    // Every way by which blobs go out or come in shares them.
    let rates = config.swarm.rates.clone();
    let mesh = groundswell_net::Config {
        listen: config.listen.clone(),
        external: Vec::new(),
        mdns: config.mdns,
        rates: rates.clone(),
        only_outer_door: setting.only_outer_door,
        ..groundswell_net::Config::default()
    };
    let (network, heard) = Network::start(mesh, secret, Arc::<Door>::clone(&door)).await?;
    let (reports, reported) = mpsc::channel(REPORTS);
    let artifacts: Arc<dyn ArtifactSource> = Arc::new(Artifacts { blobs: blobs.clone(), node: node.clone() });
    let (restart, mut replaced) = watch::channel(false);
    let restart = Arc::new(restart);
    let own = own(&config, &parent, Arc::clone(&restart));
    let devices = Devices::start(&config, &artifacts, &reports, own.as_ref())?;
    drop(reports);

    let events = Arc::new(EventLog::default());
    let (handle, requests) = Handle::new(Arc::clone(&events));
    let (stop, stopped) = watch::channel(false);
    let parts = Parts {
        node: node.clone(),
        door,
        store: Arc::new(store),
        blobs: blobs.clone(),
        network: network.clone(),
        devices: Some(devices),
        events,
        clock,
        lean: config.lean,
        served: Arc::clone(&served),
        swarm: config.swarm,
        initial,
    };
    let sources = Sources { network: heard, reports: reported, requests, pushed, stop: stopped.clone() };
    let driver = Driver::new(parts, sources)?;
    let server = Server::new(served, Arc::new(Shelves(node))).within(rates);
    let swarms = driver.swarms();
    let serves = async {
        tokio::join!(server.serve_network(&network), swarms.serve_network(&network));
    };
    tracing::info!("node {} of fleet {} is running; its socket is {}", network.local_id(), config.fleet, config.socket.display());

    let signs = parent.notify.map(|notify| tokio::spawn(give_signs(notify, handle.clone())));
    let api = api::serve(socket, handle, blobs, stopped);
    let told = async {
        tokio::select! {
            () = shutdown => {}
            // Its sender lives as long as this function.
            _ = replaced.wait_for(|replaced| *replaced) => {}
        }
    };
    let ended = together(driver.run(), api, serves, told, &stop).await;
    if let Some(signs) = signs {
        signs.abort();
    }
    network.shutdown().await;
    ended?;
    Ok(if *restart.borrow() { Ended::ToBeReplaced } else { Ended::Told })
}

/// Which blobs rollouts and the slots here still need: asked when room is short.
fn needed(node: SharedNode, clock: Clock) -> blobs::Needed {
    Arc::new(move || {
        let node = node.lock();
        let releases: Vec<_> = node.shelf().releases().collect();
        sweep::needed(&releases, &node.rollouts(clock.now()), &sweep::running(&node))
    })
}

/// This agent as its own product, where it is one.
fn own(config: &Config, parent: &Parent, restart: Arc<watch::Sender<bool>>) -> Option<Own> {
    let name = config.own_product()?;
    let product = config.products.get(name)?;
    let marks = Marks::new(Arc::new(OnDisk), &config.data_dir, Some(name.as_str()));
    let (supervisor, most_boots, hooks) = (parent.supervisor, product.trial_starts, product.hooks.in_a_trial());
    Some(Own { marks, supervisor, most_boots, hooks, restart })
}

/// Runs the loop, and beside it the API and the serving of blobs, until the loop ends: told to by `shutdown`, or by itself.
/// The API ends after the loop, so that its last clients get an answer.
pub(crate) async fn together(
    driver: impl Future<Output = Result<(), DriverError>>,
    api: impl Future<Output = ()>,
    serving: impl Future<Output = ()>,
    shutdown: impl Future<Output = ()>,
    stop: &watch::Sender<bool>,
) -> Result<(), DriverError> {
    tokio::pin!(driver, api, serving, shutdown);
    let (mut api_ended, mut serving_ended, mut told) = (false, false, false);
    let ended = loop {
        tokio::select! {
            ended = &mut driver => break ended,
            () = &mut api, if !api_ended => api_ended = true,
            () = &mut serving, if !serving_ended => serving_ended = true,
            () = &mut shutdown, if !told => {
                told = true;
                stop.send_replace(true);
            }
        }
    };
    stop.send_replace(true);
    if !api_ended {
        api.await;
    }
    ended
}

/// Reads a published document named in the configuration. One that is only older than what is known here is left.
fn read_document(node: &mut Node, path: &Path, clock: &Clock) -> Result<Vec<Effect>, AgentError> {
    use groundswell_core::documents::rejection::Reason;
    let failed = |source| AgentError::DocumentFile { path: path.to_path_buf(), source };
    let refused = |source| AgentError::Document { path: path.to_path_buf(), source };
    let bytes = match read_named(path, PUBLISHED_ROSTER_BYTES as u64) {
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            return Err(refused(Rejection::new(Reason::TooLarge, "envelope", error.to_string())));
        }
        read => read.map_err(failed)?,
    };
    let envelope = Envelope::parse(&bytes).map_err(refused)?;
    if let (Kind::Node, Ok(Body::Node(certificate))) = (envelope.kind, Body::parse(envelope.kind, &envelope.body))
        && certificate.node != node.id()
    {
        let (certified, node) = (certificate.node, node.id());
        return Err(AgentError::ForeignCertificate { path: path.to_path_buf(), certified, node });
    }
    node.handle(clock.now(), Input::Document { bytes, source: Source::Store });
    let effects = node.take_effects();
    let rejection = effects.iter().find_map(|effect| match effect {
        Effect::Event(Event::DocumentRejected { peer: None, rejection }) => Some(rejection.clone()),
        _ => None,
    });
    match rejection {
        // What the mesh has brought since outranks the file of the first day.
        Some(rejection)
            if matches!(rejection.reason, Reason::Rollback | Reason::Expired | Reason::UnknownKey | Reason::Revoked) =>
        {
            tracing::warn!("the document {} has no effect: {rejection}", path.display());
        }
        Some(rejection) => return Err(refused(rejection)),
        None => {}
    }
    Ok(effects)
}

pub(crate) fn local_trust(raises: &TrustRaises) -> LocalTrust {
    let raise = |raise: &TrustRaise| Raise { threshold: raise.threshold, pins: raise.pins.clone() };
    LocalTrust {
        root: raise(&raises.root),
        release: raises.release.iter().map(|(product, role)| (product.clone(), raise(role))).collect(),
        rollout: raise(&raises.rollout),
        enroll: raise(&raises.enroll),
    }
}

/// This machine's platform in the words of manifests: `linux-amd64`.
#[must_use]
pub fn platform() -> Platform {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    Platform::new(format!("{}-{architecture}", std::env::consts::OS)).expect("the compiler's names are plain words")
}

/// Staged bytes come from the blob store; the device checks size and digest of what it copies.
struct Artifacts {
    blobs: BlobStore,
    node: SharedNode,
}

impl ArtifactSource for Artifacts {
    fn open(&self, sha256: &Digest) -> io::Result<File> {
        self.blobs.open_blob(sha256).map_err(|error| match error {
            blobs::LookupError::NotHere(_) | blobs::LookupError::Damaged(_) => {
                io::Error::new(io::ErrorKind::NotFound, error.to_string())
            }
            blobs::LookupError::Io(_, source) => source,
        })
    }

    fn doubt(&self, sha256: &Digest) {
        // A damaged one is removed, and said so, by the store.
        if let Err(blobs::LookupError::Io(_, error)) = self.blobs.open_verified(sha256) {
            tracing::warn!(blob = %sha256, %error, "an artifact cannot be read");
        }
    }

    fn papers(&self, product: &Product) -> Vec<Vec<u8>> {
        let node = self.node.lock();
        papers(node.shelf(), &node.id(), product)
    }
}

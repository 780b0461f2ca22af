//! The helper's socket: who may speak, how much, how long; and the desks behind it.
//!
//! Only the configured user and group are answered (SO_PEERCRED, as of the connection). One order at a time and product;
//! an order that was begun is finished, whether or not anybody waits for its answer. There is no other socket, and no
//! network anywhere below this module.
//!
//! What a peer sends, open files above all, can make whoever looks at it, reads it or lets go of it wait for as long as the
//! peer likes: the close of a socket that lingers, any call on a file of a file system that the peer serves itself. So each
//! connection has a thread of its own, from its first byte to its end (see [`super::peer`]), and holds up nobody but itself.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use groundswell_core::limits::PRODUCTS;
use groundswell_core::text::{Product, Reason};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::account::{Account, AccountError};
use super::archive::{Archive, OfferError, Pins};
use super::beneath::Beneath;
use super::desk::{Desk, Settings, SharedArchive, refused};
use super::ground::{self, GroundError};
use super::peer;
use super::wire::{Order, Reply, Why};
use crate::agent::{local_trust, platform};
use crate::api::{Socket, SocketError};
use crate::clock;
use crate::config::HelperConfig;
use crate::effects::blocking;
use crate::install::device::this_boot;
use crate::install::files::Files;
use crate::install::slots::Room;
use crate::supervise::notify::{ALIVE, Notifier};

/// Connections at once: one for each product of a node, and some for an agent that has just started again.
pub const CONNECTIONS: usize = PRODUCTS + 4;
/// Connections beyond those that are told so at once; more wait until there is room.
const TURNED_AWAY: usize = 4;
/// Each has a thread.
const THREADS: u32 = 16;

const _: () = assert!(THREADS as usize == CONNECTIONS + TURNED_AWAY);

/// How often each product's ground is looked at, as often as an agent does that with its own.
const TIDY_EVERY: Duration = Duration::from_secs(5);

/// How long others may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// From the first byte of a frame to its last; and for a reply to be taken.
    pub frame: Duration,
    /// For a connection to stand without a frame.
    pub idle: Duration,
}

impl Default for Patience {
    /// 10 s, which a roster takes on no machine; and a minute.
    fn default() -> Self {
        Self { frame: Duration::from_secs(10), idle: Duration::from_secs(60) }
    }
}

/// Why a helper does not run.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// The agent's account.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// The data folder can be changed by others.
    #[error("data-dir must be changed by nobody else")]
    Ground(#[from] GroundError),
    /// So can the folder of the socket: whoever can rename there takes the socket's place, or has its owner and mode set on
    /// another file.
    #[error("the folder of socket must be changed by nobody else")]
    SocketGround(#[source] GroundError),
    /// The data folder cannot be used.
    #[error("cannot use the data folder {}", path.display())]
    DataFolder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The documents cannot be read back.
    #[error("cannot read the documents in {}: repair the file system; if they are lost, move the folder away", path.display())]
    Archive {
        /// Their folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A product's folder cannot be used.
    #[error("product {product}: cannot use its folder; another helper may be running")]
    Product {
        /// The product.
        product: Product,
        /// Why.
        source: io::Error,
    },
    /// The socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// What all connections share.
pub(super) struct Shared {
    pub(super) account: Account,
    pub(super) patience: Patience,
    archive: SharedArchive,
    /// `None` once the helper stops.
    desks: BTreeMap<Product, tokio::sync::Mutex<Option<Desk>>>,
    pub(super) places: Semaphore,
    /// Rosters are read and verified one at a time, in this space: so many connections cannot fill the memory.
    pub(super) large: Arc<tokio::sync::Mutex<Vec<u8>>>,
    pub(super) stopping: watch::Receiver<bool>,
}

/// Runs a helper until `shutdown` is done, within a tokio runtime that has all drivers. `signs`: who is told that it lives,
/// and how often.
///
/// # Errors
/// [`HelperError`], before the socket is there.
pub async fn run(
    config: HelperConfig,
    patience: Patience,
    signs: Option<(Notifier, Duration)>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), HelperError> {
    let account = Account::find(&config.agent_user, config.agent_group.as_deref())?;
    let files = open_ground(&config.data_dir)?;
    ground::check_folder(config.socket.parent().unwrap_or(Path::new("/"))).map_err(HelperError::SocketGround)?;
    let pins = Pins {
        fleet: config.fleet,
        node: config.node,
        trust: local_trust(&config.trust),
        products: config.products.keys().cloned().collect(),
        platform: platform(),
    };
    let folder = config.data_dir.join("documents");
    let archive = Archive::open(pins, Arc::clone(&files), &folder);
    let archive = archive.map_err(|source| HelperError::Archive { path: folder, source })?;
    let archive: SharedArchive = Arc::new(Mutex::new(archive));
    let (stop, stopping) = watch::channel(false);
    let mut desks = BTreeMap::new();
    for (product, how) in &config.products {
        let settings = Settings {
            product: product.clone(),
            folder: config.product_dir(product),
            config: how.clone(),
            room: Room { keep_free_bytes: config.keep_free_bytes, slot_bytes: config.slot_bytes },
            artifact_bytes: config.artifact_bytes,
            boot: this_boot(),
        };
        let desk = Desk::open(settings, Arc::clone(&files), Arc::clone(&archive), stopping.clone()).await;
        let desk = desk.map_err(|source| HelperError::Product { product: product.clone(), source })?;
        desks.insert(product.clone(), tokio::sync::Mutex::new(Some(desk)));
    }
    let shared = Arc::new(Shared {
        account,
        patience,
        archive,
        desks,
        places: Semaphore::new(CONNECTIONS),
        large: Arc::default(),
        stopping: stopping.clone(),
    });
    let mut tasks = JoinSet::new();
    // Each desk is locked before the socket is there: nobody is answered about a product before its recovery is done.
    for product in shared.desks.keys().cloned() {
        let (begun, locked) = oneshot::channel();
        tasks.spawn(recover(Arc::clone(&shared), product, begun));
        let _ = locked.await;
    }
    tasks.spawn(tidy(Arc::clone(&shared)));
    if let Some(signs) = signs {
        tasks.spawn(give_signs(Arc::clone(&shared), signs));
    }
    let (listener, _file) = Socket::bind(&config.socket, Some(account.gid))?.into_parts();
    let threads = Arc::new(Semaphore::new(THREADS as usize));
    tracing::info!("installing for {} of fleet {}; the socket is {}", config.node, config.fleet, config.socket.display());

    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            (thread, accepted) = accept(&listener, &threads) => match accepted {
                Ok(stream) => {
                    tasks.spawn(peer::admit(Arc::clone(&shared), stream, thread));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection is lost");
                    // Out of descriptors: there are more when a connection ends.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                if let Err(error) = ended {
                    std::panic::resume_unwind(error.into_panic());
                }
            }
        }
    }
    stop.send_replace(true);
    // What is in the middle of something stops after its present operation.
    for desk in shared.desks.values() {
        if let Some(desk) = desk.lock().await.take() {
            desk.shutdown().await;
        }
    }
    tasks.shutdown().await;
    // A thread that hangs in what its peer has sent ends with the process.
    if timeout(patience.frame, threads.acquire_many(THREADS)).await.is_err() {
        tracing::warn!("a connection does not end: it is left");
    }
    Ok(())
}

/// The next connection, once there is a thread for it. Cancel safe.
async fn accept(listener: &UnixListener, threads: &Arc<Semaphore>) -> (OwnedSemaphorePermit, io::Result<UnixStream>) {
    let thread = Arc::clone(threads).acquire_owned().await.expect("nothing closes it");
    (thread, listener.accept().await.map(|(stream, _)| stream))
}

/// Gives signs of life for as long as an agent that comes would be answered. Where every place has been taken for long,
/// by connections that hang or orders that never end, nothing but a new start of the helper helps; it goes on where it was.
async fn give_signs(shared: Arc<Shared>, (notifier, every): (Notifier, Duration)) {
    loop {
        if shared.places.available_permits() > 0 {
            notifier.tell(ALIVE);
        }
        tokio::time::sleep(every).await;
    }
}

/// Makes the data folder, sees that nobody else can change it, and opens it.
fn open_ground(folder: &Path) -> Result<Arc<dyn Files>, HelperError> {
    let failed = |source| HelperError::DataFolder { path: folder.to_owned(), source };
    ground::check_form(folder)?;
    match std::fs::DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    ground::check_folder(folder)?;
    Ok(Arc::new(Beneath::open(folder).map_err(failed)?))
}

async fn recover(shared: Arc<Shared>, product: Product, begun: oneshot::Sender<()>) {
    let Some(desk) = shared.desks.get(&product) else { return };
    let mut desk = desk.lock().await;
    let _ = begun.send(());
    if let Some(open) = desk.as_mut()
        && !open.recover().await
    {
        // The helper stops, or the machine restarts for it: nobody is told what is not settled.
        if let Some(desk) = desk.take() {
            desk.shutdown().await;
        }
    }
}

/// Looks after all grounds until the helper stops. One whose order is under way is looked at the next time.
async fn tidy(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.clone();
    let mut looks = interval(TIDY_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return,
            _ = looks.tick() => {}
        }
        for desk in shared.desks.values() {
            if let Ok(mut desk) = desk.try_lock()
                && let Some(desk) = desk.as_mut()
            {
                desk.tidy().await;
            }
        }
    }
}

impl Shared {
    pub(super) fn has(&self, product: &Product) -> bool {
        self.desks.contains_key(product)
    }

    /// Keeps a document, or says why not. Its bytes come back.
    pub(super) async fn take(&self, bytes: Vec<u8>) -> (Reply, Vec<u8>) {
        let archive = Arc::clone(&self.archive);
        let (offered, bytes) = blocking(move || {
            let mut archive = archive.lock().unwrap_or_else(PoisonError::into_inner);
            (archive.offer(&bytes, clock::wall()), bytes)
        })
        .await;
        let reply = match offered {
            Ok(kept) => Reply::Taken { digest: kept.digest, fresh: kept.fresh },
            Err(error) => {
                let why = if matches!(error, OfferError::Disk(_)) { Why::Disk } else { Why::Document };
                Reply::Refused { why, text: Reason::lossy(&error.to_string()) }
            }
        };
        (reply, bytes)
    }

    /// Carries an order out. The open file comes back, to be closed by whoever received it.
    pub(super) async fn carry_out(&self, order: Order, file: Option<File>) -> (Reply, Option<File>) {
        let Some(desk) = self.desks.get(order.product()) else { return (stopping(), file) };
        let mut desk = desk.lock().await;
        let Some(desk) = desk.as_mut().filter(|_| !*self.stopping.borrow()) else { return (stopping(), file) };
        let reply = match order {
            Order::Stage { release, .. } => return desk.stage(release, file).await,
            Order::State { .. } => match desk.state(true).await {
                Ok(state) => Reply::State(state),
                Err(failure) => refused((Why::Disk, failure.to_string())),
            },
            Order::Activate { release, claim, .. } => desk.activate(release, claim).await,
            Order::Confirm { release, .. } => desk.confirm(release).await,
            Order::Revert { release, reason, at_fault, .. } => desk.revert(release, reason, at_fault).await,
        };
        (reply, file)
    }
}

pub(super) fn stopping() -> Reply {
    Reply::Refused { why: Why::Stopping, text: Reason::lossy("the helper ends") }
}

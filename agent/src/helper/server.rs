//! The helper's socket: who may speak, how much, how long; and the desks behind it.
//!
//! Only the configured user and group are answered (SO_PEERCRED, as of the connection). One order at a time and product;
//! an order that was begun is finished, whether or not anybody waits for its answer. There is no other socket, and no
//! network anywhere below this module.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use groundswell_core::limits::{DOCUMENT_BYTES, PRODUCTS};
use groundswell_core::text::{Product, Reason};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::account::{Account, AccountError};
use super::archive::{Archive, OfferError, Pins};
use super::beneath::Beneath;
use super::channel::{self, Frame, ReadError};
use super::desk::{Desk, Settings, SharedArchive, refused};
use super::ground::{self, GroundError};
use super::wire::{FrameError, Kind, Order, Reply, Why, decode_order, encode_reply};
use crate::agent::{local_trust, platform};
use crate::api::{Socket, SocketError};
use crate::clock;
use crate::config::HelperConfig;
use crate::effects::blocking;
use crate::install::device::this_boot;
use crate::install::files::Files;
use crate::install::slots::Room;

/// Connections at once: one for each product of a node, and some for an agent that has just started again.
pub const CONNECTIONS: usize = PRODUCTS + 4;

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
    /// The socket cannot be given to the agent's group.
    #[error("cannot give the socket {} to the agent's group", path.display())]
    Group {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What all connections share.
struct Shared {
    account: Account,
    patience: Patience,
    archive: SharedArchive,
    /// `None` once the helper stops.
    desks: BTreeMap<Product, tokio::sync::Mutex<Option<Desk>>>,
    places: Arc<Semaphore>,
    /// Rosters are read one at a time: so many connections cannot fill the memory.
    large: Semaphore,
    stopping: watch::Receiver<bool>,
}

/// Runs a helper until `shutdown` is done, within a tokio runtime that has all drivers.
///
/// # Errors
/// [`HelperError`], before the socket is there.
pub async fn run(config: HelperConfig, patience: Patience, shutdown: impl Future<Output = ()> + Send) -> Result<(), HelperError> {
    let account = Account::find(&config.agent_user, config.agent_group.as_deref())?;
    let files = open_ground(&config.data_dir)?;
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
        places: Arc::new(Semaphore::new(CONNECTIONS)),
        large: Semaphore::new(1),
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
    let (listener, _file) = Socket::bind(&config.socket)?.into_parts();
    std::os::unix::fs::chown(&config.socket, None, Some(account.gid))
        .map_err(|source| HelperError::Group { path: config.socket.clone(), source })?;
    tracing::info!("installing for {} of fleet {}; the socket is {}", config.node, config.fleet, config.socket.display());

    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => shared.admit(stream, &mut tasks),
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
    Ok(())
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
    /// Takes a connection, or ends it.
    fn admit(self: &Arc<Self>, stream: UnixStream, tasks: &mut JoinSet<()>) {
        let Account { uid, gid } = self.account;
        match stream.peer_cred() {
            Ok(peer) if (peer.uid(), peer.gid()) == (uid, gid) => {}
            Ok(peer) => {
                tracing::warn!(uid = peer.uid(), gid = peer.gid(), pid = peer.pid(), "not the agent: not answered");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "nobody knows who this is: not answered");
                return;
            }
        }
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            tasks.spawn(turn_away(stream, self.patience));
            return;
        };
        let shared = Arc::clone(self);
        tasks.spawn(async move {
            shared.serve(stream).await;
            drop(place);
        });
    }

    /// Answers one connection until it ends, errs, or idles.
    async fn serve(self: &Arc<Self>, mut stream: UnixStream) {
        let mut stopping = self.stopping.clone();
        loop {
            let frame = tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => return,
                frame = self.next(&mut stream) => frame,
            };
            let reply = match frame {
                Ok(Some(frame)) => self.answer(frame).await,
                Ok(None) => return,
                Err(ReadError::Io(error)) => {
                    tracing::debug!(%error, "a connection ended");
                    return;
                }
                Err(ReadError::Frame(error)) => not_a_frame(&error),
            };
            let ends = matches!(reply, Reply::Refused { why: Why::Frame, .. });
            if let Reply::Refused { why, text } = &reply {
                tracing::info!(?why, "refused: {}", text.as_str());
            }
            let written =
                timeout(self.patience.frame, channel::write(&mut stream, Kind::Reply, &encode_reply(&reply), None)).await;
            if ends || !matches!(written, Ok(Ok(()))) {
                return;
            }
        }
    }

    /// The next frame: its first byte may take long, the rest may not.
    async fn next(&self, stream: &mut UnixStream) -> Result<Option<Frame>, ReadError> {
        let late = |_| ReadError::Io(io::ErrorKind::TimedOut.into());
        timeout(self.patience.idle, stream.readable()).await.map_err(late)??;
        let whole = async {
            let Some(opening) = channel::read_header(stream, &[Kind::Document, Kind::Order]).await? else { return Ok(None) };
            let _turn = match opening.length() > DOCUMENT_BYTES {
                true => self.large.acquire().await.ok(),
                false => None,
            };
            channel::read_body(stream, opening).await.map(Some)
        };
        timeout(self.patience.frame, whole).await.map_err(late)?
    }

    async fn answer(self: &Arc<Self>, frame: Frame) -> Reply {
        if frame.kind == Kind::Document {
            return self.take(frame.body).await;
        }
        let order = match decode_order(&frame.body) {
            Ok(order) => order,
            Err(error) => return not_a_frame(&error),
        };
        if frame.file.is_some() && !matches!(order, Order::Stage { .. }) {
            return not_a_frame(&FrameError::File);
        }
        if !self.desks.contains_key(order.product()) {
            let text = format!("{} is not in this helper's configuration", order.product());
            return Reply::Refused { why: Why::Product, text: Reason::lossy(&text) };
        }
        // In a task of its own: what was begun is finished, whether or not the agent lives to hear of it.
        let shared = Arc::clone(self);
        match tokio::spawn(async move { shared.carry_out(order, frame.file).await }).await {
            Ok(reply) => reply,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => stopping(),
        }
    }

    async fn take(&self, bytes: Vec<u8>) -> Reply {
        let archive = Arc::clone(&self.archive);
        let offered = blocking(move || {
            let mut archive = archive.lock().unwrap_or_else(PoisonError::into_inner);
            archive.offer(&bytes, clock::wall())
        });
        let (why, error) = match offered.await {
            Ok(kept) => return Reply::Taken { digest: kept.digest, fresh: kept.fresh },
            Err(error @ OfferError::Rejected(_)) => (Why::Document, error),
            Err(error @ OfferError::Disk(_)) => (Why::Disk, error),
        };
        Reply::Refused { why, text: Reason::lossy(&error.to_string()) }
    }

    async fn carry_out(&self, order: Order, file: Option<std::fs::File>) -> Reply {
        let Some(desk) = self.desks.get(order.product()) else { return stopping() };
        let mut desk = desk.lock().await;
        let Some(desk) = desk.as_mut().filter(|_| !*self.stopping.borrow()) else { return stopping() };
        match order {
            Order::State { .. } => match desk.state(true).await {
                Ok(state) => Reply::State(state),
                Err(failure) => refused((Why::Disk, failure.to_string())),
            },
            Order::Stage { release, .. } => desk.stage(release, file).await,
            Order::Activate { release, claim, .. } => desk.activate(release, claim).await,
            Order::Confirm { release, .. } => desk.confirm(release).await,
            Order::Revert { release, reason, at_fault, .. } => desk.revert(release, reason, at_fault).await,
        }
    }
}

async fn turn_away(mut stream: UnixStream, patience: Patience) {
    let text = Reason::lossy("too many connections");
    let reply = encode_reply(&Reply::Refused { why: Why::Busy, text });
    // One that does not listen needs no answer.
    let _ = timeout(patience.frame, channel::write(&mut stream, Kind::Reply, &reply, None)).await;
}

fn not_a_frame(error: &FrameError) -> Reply {
    Reply::Refused { why: Why::Frame, text: Reason::lossy(&error.to_string()) }
}

fn stopping() -> Reply {
    Reply::Refused { why: Why::Stopping, text: Reason::lossy("the helper ends") }
}

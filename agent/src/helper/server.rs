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
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};

use super::account::{Account, AccountError};
use super::archive::{OfferError, Pins};
use super::beneath::Beneath;
use super::desk::{Desk, STOPS_WITHIN, Settings, SharedMemory, refused};
use super::ground::{self, GroundError};
use super::memory::Memory;
use super::peer;
use super::reader::Reader;
use super::wire::{Order, Reply, Why};
use crate::agent::{local_trust, platform};
use crate::api::{Socket, SocketError, SocketFile};
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

/// How long the desks may take to end, side by side: longer than what is under way has for that, and short enough for the rest.
const ENDS_WITHIN: Duration = Duration::from_secs(STOPS_WITHIN.as_secs() * 5 / 6);

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

/// The desks; `None` once the helper stops.
type SharedDesk = Arc<tokio::sync::Mutex<Option<Desk>>>;
type Desks = BTreeMap<Product, SharedDesk>;
/// A desk whose turn it is.
pub(super) type Turn = OwnedMutexGuard<Option<Desk>>;

/// What all connections share.
pub(super) struct Shared {
    pub(super) patience: Patience,
    memory: SharedMemory,
    desks: Desks,
    pub(super) places: Semaphore,
    /// Rosters are read and verified one at a time, in this space: so many connections cannot fill the memory.
    pub(super) large: Arc<tokio::sync::Mutex<Vec<u8>>>,
    reader: Reader,
    pub(super) stopping: watch::Receiver<bool>,
}

/// Runs a helper until `shutdown` is done, within a tokio runtime that has all drivers. `signs`: who is told that it lives,
/// and how often.
///
/// What is under way is finished or taken back before anything else is looked at: what keeps new orders from coming keeps
/// nothing from that.
///
/// # Errors
/// [`HelperError`], before the socket is there.
pub async fn run(
    config: HelperConfig,
    patience: Patience,
    signs: Option<(Notifier, Duration)>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), HelperError> {
    let files = open_ground(&config.data_dir)?;
    let pins = Pins {
        fleet: config.fleet,
        node: config.node,
        trust: local_trust(&config.trust),
        products: config.products.keys().cloned().collect(),
        platform: platform(),
    };
    let memory = Memory::new(pins, Arc::clone(&files), config.data_dir.join("documents"));
    let memory: SharedMemory = Arc::new(Mutex::new(memory));
    let (stop, stopping) = watch::channel(false);
    let (desks, opened) = open_desks(&config, &files, &memory, &stopping).await;
    let shared = Arc::new(Shared {
        patience,
        memory,
        desks,
        places: Semaphore::new(CONNECTIONS),
        large: Arc::default(),
        reader: Reader::start(),
        stopping: stopping.clone(),
    });
    let (mut tasks, mut recoveries) = (JoinSet::new(), JoinSet::new());
    // Each desk is locked before the socket is there: nobody is answered about a product before its recovery is done.
    for product in shared.desks.keys().cloned() {
        let (begun, locked) = oneshot::channel();
        recoveries.spawn(recover(Arc::clone(&shared), product, begun));
        let _ = locked.await;
    }
    tokio::pin!(shutdown);
    let is_whole = opened.is_ok();
    let mut door = match opened {
        // Whose folders these are is not known: the documents are not touched.
        Err(error) => Err(error),
        Ok(()) => {
            shared.look().await;
            for desk in shared.desks.values() {
                tasks.spawn(tidy(Arc::clone(desk), stopping.clone()));
            }
            open_door(&config)
        }
    };
    let mut told = String::new();
    while let Err(error) = &door {
        if told != error.to_string() {
            told = error.to_string();
            tracing::error!("{told}: what is under way is finished or taken back first");
        }
        if recoveries.is_empty() && !(is_whole && shared.goes_back()) {
            break;
        }
        tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = recoveries.join_next() => heed(ended),
            () = tokio::time::sleep(TIDY_EVERY) => {}
        }
        if is_whole {
            // What kept it shut may have passed meanwhile.
            door = open_door(&config);
        }
    }
    let (account, listener, _file) = match door {
        Ok(door) => door,
        Err(error) => {
            shared.end(&stop).await;
            recoveries.shutdown().await;
            tasks.shutdown().await;
            return Err(error);
        }
    };
    let threads = Arc::new(Semaphore::new(THREADS as usize));
    tasks.spawn(look_again(Arc::clone(&shared)));
    if let Some(signs) = signs {
        tasks.spawn(give_signs(Arc::clone(&shared), Arc::clone(&threads), signs));
    }
    tracing::info!("installing for {} of fleet {}; the socket is {}", config.node, config.fleet, config.socket.display());

    loop {
        tokio::select! {
            () = &mut shutdown => break,
            (thread, accepted) = accept(&listener, &threads) => match accepted {
                Ok(stream) => {
                    tasks.spawn(peer::admit(Arc::clone(&shared), account, stream, thread));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection is lost");
                    // Out of descriptors: there are more when a connection ends.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(ended) = recoveries.join_next() => heed(ended),
            Some(ended) = tasks.join_next() => heed(ended),
        }
    }
    shared.end(&stop).await;
    recoveries.shutdown().await;
    tasks.shutdown().await;
    // A thread that hangs in what its peer has sent ends with the process.
    if timeout(patience.frame, threads.acquire_many(THREADS)).await.is_err() {
        tracing::warn!("a connection does not end: it is left");
    }
    Ok(())
}

/// The desks that can be opened; and the first reason why another cannot.
async fn open_desks(
    config: &HelperConfig,
    files: &Arc<dyn Files>,
    memory: &SharedMemory,
    stopping: &watch::Receiver<bool>,
) -> (Desks, Result<(), HelperError>) {
    let (mut desks, mut opened) = (BTreeMap::new(), Ok(()));
    for (product, how) in &config.products {
        let settings = Settings {
            product: product.clone(),
            folder: config.product_dir(product),
            config: how.clone(),
            room: Room { keep_free_bytes: config.keep_free_bytes, slot_bytes: config.slot_bytes },
            artifact_bytes: config.artifact_bytes,
            boot: this_boot(),
        };
        match Desk::open(settings, Arc::clone(files), Arc::clone(memory), stopping.clone()).await {
            Ok(desk) => {
                desks.insert(product.clone(), Arc::new(tokio::sync::Mutex::new(Some(desk))));
            }
            Err(source) => opened = opened.and(Err(HelperError::Product { product: product.clone(), source })),
        }
    }
    (desks, opened)
}

/// Who may come, and where.
fn open_door(config: &HelperConfig) -> Result<(Account, UnixListener, SocketFile), HelperError> {
    let account = Account::find(&config.agent_user, config.agent_group.as_deref())?;
    ground::check_folder(config.socket.parent().unwrap_or(Path::new("/"))).map_err(HelperError::SocketGround)?;
    let (listener, file) = Socket::bind(&config.socket, Some(account.gid))?.into_parts();
    Ok((account, listener, file))
}

/// Until all of them have ended.
async fn all(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        heed(ended);
    }
}

fn heed(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// The next connection, once there is a thread for it. Cancel safe.
async fn accept(listener: &UnixListener, threads: &Arc<Semaphore>) -> (OwnedSemaphorePermit, io::Result<UnixStream>) {
    let thread = Arc::clone(threads).acquire_owned().await.expect("nothing closes it");
    (thread, listener.accept().await.map(|(stream, _)| stream))
}

/// Gives signs of life for as long as an agent that comes would be answered: there is a thread for it and a place, and the
/// documents can be asked. Where that has not been for long, by connections that hang, orders that never end or a disk that does
/// not answer, nothing but a new start of the helper helps; it goes on where it was.
async fn give_signs(shared: Arc<Shared>, threads: Arc<Semaphore>, (notifier, every): (Notifier, Duration)) {
    loop {
        if shared.places.available_permits() > 0 && threads.available_permits() > 0 {
            shared.ask_the_memory().await;
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

/// From now on, each after a pause.
fn looks() -> Interval {
    let mut looks = interval_at(Instant::now() + TIDY_EVERY, TIDY_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// Waits for the next look. `false`: the helper stops.
async fn is_time(looks: &mut Interval, stopping: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        _ = stopping.wait_for(|stopping| *stopping) => false,
        _ = looks.tick() => true,
    }
}

/// Looks after a product's ground until the helper stops; while an order is under way it is looked at the next time. No product
/// waits for what another's takes.
async fn tidy(desk: SharedDesk, mut stopping: watch::Receiver<bool>) {
    let mut looks = looks();
    while is_time(&mut looks, &mut stopping).await {
        if let Ok(mut desk) = desk.try_lock()
            && let Some(desk) = desk.as_mut().filter(|_| !*stopping.borrow())
        {
            desk.tidy().await;
        }
    }
}

/// Looks for the documents until the helper stops.
async fn look_again(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.clone();
    let mut looks = looks();
    while is_time(&mut looks, &mut stopping).await {
        shared.look().await;
    }
}

impl Shared {
    /// Opens the archive, where it could not be read until now.
    async fn look(&self) {
        let memory = Arc::clone(&self.memory);
        blocking(move || memory.lock().unwrap_or_else(PoisonError::into_inner).look()).await;
    }

    /// Returns once nobody holds the documents.
    async fn ask_the_memory(&self) {
        let memory = Arc::clone(&self.memory);
        blocking(move || drop(memory.lock().unwrap_or_else(PoisonError::into_inner))).await;
    }

    /// Whether a way back has not ended; whoever is busy may be about it.
    fn goes_back(&self) -> bool {
        let goes_back = |desk: &Option<Desk>| desk.as_ref().is_some_and(Desk::goes_back);
        self.desks.values().any(|desk| desk.try_lock().map_or(true, |desk| goes_back(&desk)))
    }

    /// What is in the middle of something stops after its present operation. One whose disk does not answer, or an agent's file that
    /// it reads, keeps no other from its end.
    async fn end(&self, stop: &watch::Sender<bool>) {
        stop.send_replace(true);
        let mut ending = JoinSet::new();
        for desk in self.desks.values() {
            let desk = Arc::clone(desk);
            ending.spawn(async move {
                let desk = desk.lock().await.take();
                if let Some(desk) = desk {
                    desk.shutdown().await;
                }
            });
        }
        if timeout(ENDS_WITHIN, all(&mut ending)).await.is_err() {
            tracing::warn!(products = ending.len(), "what is under way does not end: it is left to the next start");
        }
    }

    /// Keeps a document, or says why not. Its bytes come back.
    pub(super) async fn take(&self, bytes: Vec<u8>) -> (Reply, Vec<u8>) {
        let memory = Arc::clone(&self.memory);
        let offer = move || {
            let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            let reply = match memory.archive().map(|archive| archive.offer(&bytes, clock::wall())) {
                Ok(Ok(kept)) => Reply::Taken { digest: kept.digest, fresh: kept.fresh },
                Ok(Err(error @ OfferError::Disk(_))) => refused((Why::Disk, error.to_string())),
                Ok(Err(error)) => refused((Why::Document, error.to_string())),
                Err(closed) => refused((Why::Disk, closed.to_string())),
            };
            (reply, bytes)
        };
        self.reader.read(offer).await
    }

    /// Waits for the desk of a product that is in the configuration. Cancel safe: nothing of an order has begun before.
    pub(super) async fn turn(&self, product: &Product) -> Option<Turn> {
        let desk = Arc::clone(self.desks.get(product)?);
        Some(desk.lock_owned().await)
    }

    /// Carries an order out. The open file comes back, to be closed by whoever received it.
    pub(super) async fn carry_out(&self, mut turn: Turn, order: Order, file: Option<File>) -> (Reply, Option<File>) {
        let Some(desk) = turn.as_mut().filter(|_| !*self.stopping.borrow()) else { return (stopping(), file) };
        let reply = match order {
            Order::Stage { release, .. } => return desk.stage(release, file).await,
            Order::State { .. } => desk.tell().await,
            Order::Failed { .. } => match desk.last_failure().await {
                Ok(failed) => Reply::Failed(failed),
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

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    use groundswell_core::digest::Digest;
    use groundswell_core::node_id::NodeId;
    use groundswell_core::trust::local::LocalTrust;

    use super::*;
    use crate::install::files::OnDisk;

    fn shared(folder: &Path, stopping: watch::Receiver<bool>) -> Arc<Shared> {
        let pins = Pins {
            fleet: Digest([1; 32]),
            node: NodeId([2; 32]),
            trust: LocalTrust::default(),
            products: [].into(),
            platform: platform(),
        };
        let memory = Memory::new(pins, Arc::new(OnDisk), folder.to_owned());
        let places = Semaphore::new(CONNECTIONS);
        let (desks, large, reader) = (Desks::new(), Arc::default(), Reader::start());
        let patience = Patience::default();
        Arc::new(Shared { patience, memory: Arc::new(Mutex::new(memory)), desks, places, large, reader, stopping })
    }

    #[tokio::test]
    async fn a_desk_that_does_not_end_keeps_no_other_from_its_end_and_is_left_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let (stop, stopping) = watch::channel(false);
        let text = HelperConfig::documented_default().replace("\"/var/lib/groundswell-helper\"", "\"data\"");
        let mut config = HelperConfig::parse(&folder.path().join("helper.toml"), &text).unwrap();
        let how = config.products.values().next().unwrap().clone();
        config.products = ["a-hangs", "ends"].map(|name| (Product::new(name).unwrap(), how.clone())).into();
        let mut shared = Arc::into_inner(shared(folder.path(), stopping.clone())).unwrap();
        let files: Arc<dyn Files> = Arc::new(OnDisk);
        files.make_folder(&config.data_dir).unwrap();
        files.make_folder(&config.data_dir.join("products")).unwrap();
        let opened;
        (shared.desks, opened) = open_desks(&config, &files, &shared.memory, &stopping).await;
        opened.unwrap();
        let [ends, hangs] = ["ends", "a-hangs"].map(|name| Arc::clone(&shared.desks[&Product::new(name).unwrap()]));
        let _order_under_way = hangs.lock().await;
        tokio::time::pause();
        let began = Instant::now();
        shared.end(&stop).await;
        assert!(ends.lock().await.is_none() && began.elapsed() < STOPS_WITHIN, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn no_sign_of_life_is_given_while_an_agent_that_comes_would_not_be_answered() {
        let name = format!("groundswell-signs-{}", std::process::id());
        let heard = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        heard.set_nonblocking(true).unwrap();
        let signs = tokio::net::UnixDatagram::from_std(heard).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (_stop, stopping) = watch::channel(false);
        let (shared, threads) = (shared(folder.path(), stopping), Arc::new(Semaphore::new(THREADS as usize)));
        let every = Duration::from_millis(5);
        let notifier = Notifier::connect(&format!("@{name}")).unwrap();
        let giving = tokio::spawn(give_signs(Arc::clone(&shared), Arc::clone(&threads), (notifier, every)));
        let next = async || signs.recv(&mut [0; 64]).await.unwrap();
        // After those that were given before, nothing comes while something is held.
        let silent = async || {
            for _ in 0..200 {
                if timeout(50 * every, next()).await.is_err() {
                    return;
                }
            }
            panic!("it goes on");
        };
        next().await;
        let held = threads.acquire_many(THREADS).await.unwrap();
        silent().await;
        drop(held);
        next().await;
        let held = shared.places.acquire_many(u32::try_from(CONNECTIONS).unwrap()).await.unwrap();
        silent().await;
        drop(held);
        next().await;
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let (is_held, told) = oneshot::channel();
        let memory = Arc::clone(&shared.memory);
        let holder = std::thread::spawn(move || {
            let _memory = memory.lock();
            is_held.send(()).unwrap();
            let _ = held.recv();
        });
        told.await.unwrap();
        silent().await;
        drop(hold);
        holder.join().unwrap();
        next().await;
        giving.abort();
    }
}

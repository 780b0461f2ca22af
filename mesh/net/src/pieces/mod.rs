//! Blobs in a swarm: nodes that fetch the same blob pass its pieces on to each other while they fetch.
//!
//! What goes to whom is decided by the core's exchange ([`groundswell_core::blob::exchange`]), which knows neither
//! clock nor bytes. Here is what drives it: one task for each blob (`swarm`), one stream with each neighbour
//! (`strand`, its bytes in [`frames`]), the ordinary requests of `/groundswell/blob/1` where a peer has no stream of
//! this kind (`bridge`), and the node's rates (`throttle`). [`Swarms`] is what the rest of the agent sees.
//! The bytes on the wire are described in `docs/PROTOCOL.md`.

mod bridge;
mod cache;
pub mod frames;
pub mod glimpse;
mod opening;
mod proof;
mod strand;
mod swarm;
mod throttle;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use groundswell_core::blob::{BlobName, HashList, Layout};
use groundswell_core::digest::Digest;
use groundswell_core::limits::BLOB_NEIGHBOURS;
use groundswell_core::node_id::NodeId;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

pub use proof::Proof;
pub use throttle::{Rate, Rates};

use crate::Network;
use crate::blobs::limits::STALLED_AFTER;
use crate::blobs::standing::Standings;
use crate::blobs::{BlobSource, Charge, Connect, Duplex, FetchError, PieceSink, Progress, SinkError, blocking};
use crate::crowd::Crowd;
use cache::Cache;
use frames::{Opening, Refusal};
use glimpse::Glimpse;
use swarm::{Fetch, Inbound, Swarm};

/// Most blobs that are exchanged at once.
const SWARMS: usize = 64;
/// Streams that came in and were not looked at yet, for each blob.
const INBOUND: usize = 16;
/// Streams whose opening is being read, over all blobs.
const GREETED: usize = 64;
/// The same of one peer: it opens one for each blob.
const GREETED_OF_PEER: usize = 8;
/// How long a stream may take to say which blob it is about.
const OPENED_WITHIN: Duration = STALLED_AFTER;

/// What this node gives to swarms, and takes from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Whether it passes pieces on. A metered node does not.
    pub serves: bool,
    /// To how many neighbours it sends at once, for each blob; 1 or more.
    pub uploads: usize,
    /// With how many neighbours it exchanges one blob, 1 to [`BLOB_NEIGHBOURS`].
    pub neighbours: usize,
    /// What it sends and takes at most, over all blobs; shared with what else sends and takes blobs here.
    pub rates: Rates,
}

impl Default for Terms {
    fn default() -> Self {
        Self { serves: true, uploads: 8, neighbours: BLOB_NEIGHBOURS, rates: Rates::default() }
    }
}

/// Every swarm that this node takes part in. Clones share them.
#[derive(Clone)]
pub struct Swarms {
    shared: Arc<Shared>,
    /// The task of each blob; all end when nobody holds a handle.
    _tasks: Arc<Mutex<JoinSet<()>>>,
}

/// What all swarms of a node share.
pub(crate) struct Shared {
    connect: Arc<dyn Connect>,
    /// What is passed on, and how a piece is read again.
    source: Arc<dyn BlobSource>,
    pub(crate) standings: Standings,
    local: NodeId,
    terms: Terms,
    running: Mutex<BTreeMap<Digest, Running>>,
    tasks: Weak<Mutex<JoinSet<()>>>,
    numbers: AtomicU64,
    tally: Tally,
    cache: Cache,
    glimpses: Mutex<BTreeMap<Digest, Glimpse>>,
}

/// Bytes of pieces since the start, without framing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwarmCounters {
    /// Sent to neighbours.
    pub sent_bytes: u64,
    /// Taken from neighbours.
    pub received_bytes: u64,
    /// Of those, what came too late to be needed.
    pub wasted_bytes: u64,
}

#[derive(Default)]
struct Tally {
    sent: AtomicU64,
    received: AtomicU64,
    wasted: AtomicU64,
}

impl Tally {
    fn add(to: &AtomicU64, bytes: usize) {
        to.fetch_add(u64::try_from(bytes).unwrap_or(0), Ordering::Relaxed);
    }

    fn sent(&self, bytes: usize) {
        Self::add(&self.sent, bytes);
    }

    fn received(&self, bytes: usize) {
        Self::add(&self.received, bytes);
    }

    fn wasted(&self, bytes: usize) {
        Self::add(&self.wasted, bytes);
    }
}

struct Running {
    /// Tells one task for a blob from the next.
    number: u64,
    inbound: mpsc::Sender<Inbound>,
    abort: tokio::task::AbortHandle,
}

impl Swarms {
    /// Takes part in nothing yet. `source` is where pieces are read that go to others.
    #[must_use]
    pub fn new(connect: Arc<dyn Connect>, source: Arc<dyn BlobSource>, local: NodeId, terms: Terms) -> Self {
        let tasks = Arc::default();
        let shared = Shared {
            connect,
            source,
            standings: Standings::default(),
            local,
            terms,
            running: Mutex::default(),
            tasks: Arc::downgrade(&tasks),
            numbers: AtomicU64::new(0),
            tally: Tally::default(),
            cache: Cache::default(),
            glimpses: Mutex::default(),
        };
        Self { shared: Arc::new(shared), _tasks: tasks }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The peers that nothing is taken from now, and why.
    #[must_use]
    pub fn charged(&self) -> Vec<(NodeId, Charge)> {
        self.shared.standings.list()
    }

    /// The counters as they stand.
    #[must_use]
    pub fn counters(&self) -> SwarmCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Tally { sent, received, wasted } = &self.shared.tally;
        SwarmCounters { sent_bytes: read(sent), received_bytes: read(received), wasted_bytes: read(wasted) }
    }

    /// Bytes of pieces that are kept in memory, over all blobs, for whoever is sent them next; besides, each neighbour keeps
    /// what is being sent to it.
    #[must_use]
    pub fn cached_bytes(&self) -> usize {
        self.shared.cache.bytes()
    }

    /// The swarms that this node takes part in now, as they were within the last second.
    #[must_use]
    pub fn glimpses(&self) -> BTreeMap<Digest, Glimpse> {
        self.shared.glimpses().clone()
    }

    /// See [`crate::blobs::Fetcher::fetch`].
    pub(crate) async fn fetch(
        &self,
        blob: BlobName,
        sink: Arc<dyn PieceSink>,
        peers: watch::Receiver<Vec<NodeId>>,
        progress: watch::Sender<Progress>,
    ) -> Result<(), FetchError> {
        let layout = Layout::of(blob.size_bytes).map_err(|error| FetchError::Size(blob.sha256, error))?;
        let failed = |error| FetchError::Sink(blob.sha256, error);
        let opened = Arc::clone(&sink);
        let (held, list) = blocking(move || {
            let known = opened.hash_list().filter(|list| list.root() == blob.blake3 && list.layout() == layout);
            let list = match known {
                Some(list) => Some(list),
                None => {
                    let list = HashList::of_one_piece(layout, blob.blake3);
                    list.as_ref().map_or(Ok(()), |list| opened.keep_hash_list(list))?;
                    list
                }
            };
            Ok((opened.held(), list))
        })
        .await
        .map_err(failed)?;
        let (done, ended) = oneshot::channel();
        let fetch = Fetch { blake3: blob.blake3, sink, peers, progress, done };
        self.shared.begin(blob.sha256, layout, held, list, Some(fetch));
        match ended.await {
            Ok(outcome) => outcome.map_err(failed),
            // Another fetch of it took its place, or the runtime ends.
            Err(_) => Err(failed(SinkError::Io(std::io::Error::other("another fetch of it has begun")))),
        }
    }

    /// Lets the members that come in over `network` take part, until it shuts down. Call it once for one network.
    /// Cancel-safe: drop the future to let nobody in any more.
    pub async fn serve_network(&self, network: &Network) {
        match network.incoming_pieces() {
            Some(incoming) => self.serve(incoming).await,
            None => tracing::error!("the swarms of this network are served already"),
        }
    }

    /// The same for streams from elsewhere; each comes with the member at its other end.
    pub async fn serve<S: Duplex + 'static>(&self, mut incoming: mpsc::Receiver<(NodeId, S)>) {
        let mut greeted = Crowd::new(GREETED, GREETED_OF_PEER);
        loop {
            tokio::select! {
                next = incoming.recv() => {
                    let Some((peer, stream)) = next else { return };
                    let shared = Arc::clone(&self.shared);
                    if !greeted.admit(peer, async move { shared.greet(peer, Box::new(stream)).await }) {
                        tracing::debug!(%peer, "too many streams are being opened");
                    }
                }
                Some(()) = greeted.one_left() => {}
            }
        }
    }
}

impl Shared {
    pub(crate) fn connect(&self) -> &Arc<dyn Connect> {
        &self.connect
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<Digest, Running>> {
        self.running.lock().expect("no holder of this lock panics")
    }

    pub(crate) fn glimpses(&self) -> MutexGuard<'_, BTreeMap<Digest, Glimpse>> {
        self.glimpses.lock().expect("no holder of this lock panics")
    }

    /// Reads which blob a stream is about, and hands it to that blob's task.
    async fn greet(self: Arc<Self>, peer: NodeId, mut stream: Box<dyn Duplex>) {
        let opening = match timeout(OPENED_WITHIN, frames::read_opening(&mut stream)).await {
            Ok(Ok(opening)) => opening,
            Ok(Err(error)) if error.is_breach() => return self.standings.charge(peer, Charge::Breach),
            Ok(Err(error)) => return tracing::debug!(%peer, %error, "a stream of pieces ended before it began"),
            Err(_) => return tracing::debug!(%peer, "a stream of pieces said nothing"),
        };
        if let Err((mut stream, refusal)) = self.hand_over(peer, &opening, stream).await
            && let Err(error) = frames::write_refusal(&mut stream, refusal).await
        {
            tracing::debug!(%peer, %error, "a refusal did not reach the peer");
        }
    }

    async fn hand_over(
        self: &Arc<Self>,
        peer: NodeId,
        opening: &Opening,
        stream: Box<dyn Duplex>,
    ) -> Result<(), (Box<dyn Duplex>, Refusal)> {
        let mut inbound = Inbound { peer, stream, wants_list: opening.wants_list, size_bytes: opening.size_bytes };
        for _ in 0..2 {
            let known = self.running().get(&opening.sha256).map(|running| running.inbound.clone());
            if let Some(known) = known {
                match known.try_send(inbound) {
                    Ok(()) => return Ok(()),
                    Err(mpsc::error::TrySendError::Full(back)) => return Err((back.stream, Refusal::Busy)),
                    Err(mpsc::error::TrySendError::Closed(back)) => inbound = back,
                }
            }
            if let Err(refusal) = self.serve_blob(opening.sha256).await {
                return Err((inbound.stream, refusal));
            }
        }
        Err((inbound.stream, Refusal::Busy))
    }

    /// Begins to give what is held of a blob that is not being fetched.
    async fn serve_blob(self: &Arc<Self>, sha256: Digest) -> Result<(), Refusal> {
        if !self.terms.serves {
            return Err(Refusal::NotHere);
        }
        if self.running().len() >= SWARMS {
            return Err(Refusal::Busy);
        }
        let shared = Arc::clone(self);
        let found = blocking(move || shared.source.describe(&sha256).zip(shared.source.hash_list(&sha256))).await;
        let (described, list) = found.ok_or(Refusal::NotHere)?;
        if described.held.held() == 0 {
            return Err(Refusal::NotHere);
        }
        self.begin(sha256, list.layout(), described.held, Some(list), None);
        Ok(())
    }

    /// Starts the task of a blob. One that fetches takes the place of one that only gives; otherwise the first stays.
    fn begin(
        self: &Arc<Self>,
        sha256: Digest,
        layout: Layout,
        held: groundswell_core::blob::PieceSet,
        list: Option<HashList>,
        fetch: Option<Fetch>,
    ) {
        let mut running = self.running();
        if let Some(old) = running.get(&sha256).filter(|old| !old.inbound.is_closed()) {
            if fetch.is_none() {
                return;
            }
            old.abort.abort();
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (inbound, received) = mpsc::channel(INBOUND);
        let swarm = Swarm::new(Arc::clone(self), sha256, layout, held, list, fetch, received);
        let shared = Arc::clone(self);
        let task = async move {
            let ended = swarm.run().await;
            let mut running = shared.running();
            if running.get(&sha256).is_some_and(|it| it.number == number) {
                running.remove(&sha256);
                shared.glimpses().remove(&sha256);
                shared.cache.clear(&sha256);
            }
            drop(running);
            // Told last: whoever fetches it next finds the place free.
            ended.tell();
        };
        // Nobody takes part any more.
        let Some(tasks) = self.tasks.upgrade() else { return };
        let mut tasks = tasks.lock().expect("no holder of this lock panics");
        while tasks.try_join_next().is_some() {}
        let abort = tasks.spawn(task);
        drop(tasks);
        running.insert(sha256, Running { number, inbound, abort });
    }
}

//! Downloads under way: artifacts into the blob store, rosters into memory. The core says what, the mesh brings it.
//!
//! Each is one task, owned here and ended by drop. Which peers are asked is kept up to date by the driver: connected
//! ones on this node's own network first, and before the others those that say they have it; the others may hold part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use groundswell_core::blob::BlobName;
use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::documents::envelope::Envelope;
use groundswell_core::documents::release::Artifact;
use groundswell_core::node::input::Fault as Trouble;
use groundswell_core::node::view::PeerView;
use groundswell_core::node_id::NodeId;
use groundswell_core::text::{Product, Reason};
use groundswell_net::blobs::limits::PUBLISHED_ROSTER_BYTES;
use groundswell_net::blobs::{FetchError, Fetcher, PieceSink, Progress, SinkError};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::company::in_own_order;
use crate::blobs::{Begun, BlobStore, DownloadError};
use crate::effects::blocking;
use crate::handle::DownloadView;

/// News that wait for the driver; the tasks wait when it is full.
const NEWS: usize = 16;
/// How long no peer may have a missing piece before the core is told.
const NO_SOURCE_AFTER: Duration = Duration::from_secs(5);
/// When a download has not grown for so long, members are dialled that have all of it, whoever is connected and says so too.
const STALLS_AFTER: Duration = Duration::from_secs(10);
/// So many at a time.
const DIALLED: usize = 2;
/// Pause between two rounds of asking everybody for a roster.
const ROSTER_PAUSE: Duration = Duration::from_secs(2);
/// Pause before a blob is tried again whose last download still writes its last piece.
const UNDERWAY_PAUSE: Duration = Duration::from_millis(100);

/// What came of a download.
#[derive(Debug)]
pub(super) enum News {
    /// The artifact is whole and checked.
    Fetched(Digest),
    /// No peer has what is missing.
    NoSource(Digest),
    /// It failed for a reason that waiting does not cure.
    Failed(Digest, Trouble, Reason),
    /// The published form of a roster.
    Roster { digest: Digest, bytes: Vec<u8> },
}

/// All downloads.
pub(super) struct Fetches {
    fetcher: Arc<Fetcher>,
    blobs: BlobStore,
    news: mpsc::Sender<News>,
    artifacts: BTreeMap<Digest, Task>,
    rosters: BTreeMap<Digest, Task>,
    /// How often each roster came and was asked for again: what came was not signed as it must be.
    again: BTreeMap<Digest, usize>,
    /// Peers on this node's own network.
    near: BTreeSet<NodeId>,
    /// How often members were looked for.
    rounds: u64,
    /// Something began since [`Fetches::take_begun`] was asked.
    begun: bool,
}

struct Task {
    products: BTreeSet<Product>,
    size_bytes: u64,
    /// How many tenths of it were told.
    told_tenths: Option<u32>,
    /// How many pieces were here when last there were more than before, and when that was.
    grown: (u32, Instant),
    peers: watch::Sender<Vec<NodeId>>,
    progress: watch::Receiver<Progress>,
    task: JoinHandle<()>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fetches {
    pub(super) fn new(fetcher: Arc<Fetcher>, blobs: BlobStore) -> (Self, mpsc::Receiver<News>) {
        let (news, inbox) = mpsc::channel(NEWS);
        let (artifacts, rosters, again, near) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        (Self { fetcher, blobs, news, artifacts, rosters, again, near, rounds: 0, begun: false }, inbox)
    }

    /// These peers are on this node's own network: they are asked first from now on.
    pub(super) fn set_near(&mut self, near: BTreeSet<NodeId>) {
        self.near = near;
    }

    /// Whether anything is under way, so that its peers must be kept up to date.
    pub(super) fn any(&self) -> bool {
        !self.artifacts.is_empty() || !self.rosters.is_empty()
    }

    /// Whether something began to be fetched since this was asked last: its peers are to be looked for at once.
    pub(super) fn take_begun(&mut self) -> bool {
        std::mem::take(&mut self.begun)
    }

    /// Begins to fetch an artifact for a product, or joins the download that is under way.
    pub(super) fn fetch(&mut self, product: Product, artifact: &Artifact, peers: &BTreeSet<NodeId>) {
        let name = BlobName::from(artifact);
        if let Some(task) = self.artifacts.get_mut(&name.sha256) {
            task.products.insert(product);
            return;
        }
        let (peers, known) = watch::channel(best_first(peers, &BTreeSet::new(), &self.near));
        let (say, progress) = watch::channel(Progress::default());
        let download = download(Arc::clone(&self.fetcher), self.blobs.clone(), name, known, say, self.news.clone());
        let task = tokio::spawn(download);
        let products = BTreeSet::from([product]);
        let grown = (0, Instant::now());
        let task = Task { products, size_bytes: name.size_bytes, told_tenths: None, grown, peers, progress, task };
        self.artifacts.insert(name.sha256, task);
        self.begun = true;
    }

    /// Ends a product's interest in an artifact; the download ends with the last one. What is here stays.
    pub(super) fn cancel(&mut self, product: &Product, sha256: &Digest) {
        let Some(task) = self.artifacts.get_mut(sha256) else { return };
        task.products.remove(product);
        if task.products.is_empty() {
            self.artifacts.remove(sha256);
        }
    }

    /// Begins to fetch a roster, unless it is under way.
    pub(super) fn fetch_roster(&mut self, digest: Digest, size_bytes: u64, peers: &BTreeSet<NodeId>) {
        if self.rosters.contains_key(&digest) {
            return;
        }
        let (peers, known) = watch::channel(peers.iter().copied().collect());
        let (_, progress) = watch::channel(Progress::default());
        let again = self.again.get(&digest).copied().unwrap_or(0);
        let most_bytes = published_bytes(size_bytes);
        let task = tokio::spawn(roster(Arc::clone(&self.fetcher), digest, most_bytes, again, known, self.news.clone()));
        let grown = (0, Instant::now());
        let task = Task { products: BTreeSet::new(), size_bytes, told_tenths: None, grown, peers, progress, task };
        self.rosters.insert(digest, task);
        self.begun = true;
    }

    /// A download ended, or says something: for which products.
    pub(super) fn products(&mut self, sha256: &Digest, ended: bool) -> BTreeSet<Product> {
        if ended {
            self.artifacts.remove(sha256).map(|mut task| std::mem::take(&mut task.products)).unwrap_or_default()
        } else {
            self.artifacts.get(sha256).map(|task| task.products.clone()).unwrap_or_default()
        }
    }

    /// A roster is here.
    pub(super) fn roster_ended(&mut self, digest: &Digest) {
        self.rosters.remove(digest);
        if self.again.len() >= NEWS && !self.again.contains_key(digest) {
            self.again.pop_first();
        }
        let again = self.again.entry(*digest).or_default();
        *again = again.saturating_add(1);
    }

    /// Tells every download whom it may ask. Returns members worth connecting to: those that say they have an artifact
    /// of which no connected peer says so, or one that does not grow. Others each time.
    pub(super) fn refresh(
        &mut self,
        me: NodeId,
        connected: &BTreeSet<NodeId>,
        members: &[PeerView],
    ) -> Vec<(NodeId, Vec<String>)> {
        let mut wanted = BTreeMap::new();
        self.rounds += 1;
        for (sha256, task) in &mut self.artifacts {
            let stalls = task.stalls(Instant::now());
            let says: BTreeSet<NodeId> = members
                .iter()
                .filter(|member| !member.convicted && member.serves.contains(sha256))
                .map(|member| member.node)
                .collect();
            set(&task.peers, best_first(connected, &says, &self.near));
            if connected.is_disjoint(&says) || stalls {
                let is_far = |member: &&PeerView| says.contains(&member.node) && !connected.contains(&member.node);
                let far = members.iter().filter(is_far).filter(|member| !member.addresses.is_empty() && member.node != me);
                let far = in_own_order(me, self.rounds, far).into_iter().take(DIALLED);
                wanted.extend(far.map(|member| (member.node, member.addresses.clone())));
            }
        }
        for task in self.rosters.values() {
            set(&task.peers, connected.iter().copied().collect());
        }
        wanted.into_iter().collect()
    }

    /// Each download with its products, without what only the swarm knows.
    pub(super) fn views(&self) -> impl Iterator<Item = (&BTreeSet<Product>, DownloadView)> {
        self.artifacts.iter().map(|(sha256, task)| (&task.products, task.view(*sha256)))
    }

    /// Downloads that begin, or are a tenth or more further than what was told of them last.
    pub(super) fn news(&mut self) -> Vec<DownloadView> {
        let mut news = Vec::new();
        for (sha256, task) in &mut self.artifacts {
            let view = task.view(*sha256);
            let tenths = view.held.saturating_mul(10).checked_div(view.pieces);
            if tenths.is_some() && task.told_tenths != tenths {
                task.told_tenths = tenths;
                news.push(view);
            }
        }
        news
    }

    /// How many of these peers are on this node's own network.
    pub(super) fn count_near(&self, peers: impl Iterator<Item = NodeId>) -> u32 {
        u32::try_from(peers.filter(|peer| self.near.contains(peer)).count()).unwrap_or(u32::MAX)
    }
}

impl Task {
    /// Whether it has not grown for long.
    fn stalls(&mut self, now: Instant) -> bool {
        let held = self.progress.borrow().held;
        if held > self.grown.0 {
            self.grown = (held, now);
        }
        now.saturating_duration_since(self.grown.1) >= STALLS_AFTER
    }

    fn view(&self, sha256: Digest) -> DownloadView {
        let progress = self.progress.borrow();
        DownloadView {
            sha256,
            size_bytes: self.size_bytes,
            held: progress.held,
            pieces: progress.pieces,
            peers: u32::try_from(progress.peers).unwrap_or(u32::MAX),
            near_peers: 0,
            bytes_per_second: 0,
            copies_ppm: 0,
            seconds_left: None,
        }
    }
}

/// The order in which peers are asked for one blob: those nearby first, and among those near and far who say they have it.
/// One who says so stands first in any case: the ones nearby may all wait for the same bytes.
fn best_first(peers: &BTreeSet<NodeId>, says: &BTreeSet<NodeId>, near: &BTreeSet<NodeId>) -> Vec<NodeId> {
    let mut best: Vec<NodeId> = peers.iter().copied().collect();
    best.sort_by_key(|peer| (!near.contains(peer), !says.contains(peer)));
    if let Some(at) = best.iter().position(|peer| says.contains(peer)) {
        best.get_mut(..=at).unwrap_or_default().rotate_right(1);
    }
    best
}

fn set(sender: &watch::Sender<Vec<NodeId>>, peers: Vec<NodeId>) {
    sender.send_if_modified(|last| {
        let news = *last != peers;
        *last = peers;
        news
    });
}

/// Base64 of the body, and room for its signatures.
fn published_bytes(body_bytes: u64) -> usize {
    let body = usize::try_from(body_bytes).unwrap_or(usize::MAX);
    (body.div_ceil(3).saturating_mul(4)).saturating_add(16 * 1024).min(PUBLISHED_ROSTER_BYTES)
}

async fn download(
    fetcher: Arc<Fetcher>,
    blobs: BlobStore,
    name: BlobName,
    peers: watch::Receiver<Vec<NodeId>>,
    progress: watch::Sender<Progress>,
    news: mpsc::Sender<News>,
) {
    let sha256 = name.sha256;
    let mut whole = blobs.watch();
    let outcome = loop {
        let store = blobs.clone();
        let begun = blocking(move || store.download(name)).await;
        match begun {
            Ok(Begun::Whole) => break News::Fetched(sha256),
            Ok(Begun::Partial(partial)) => {
                let seen = progress.subscribe();
                let sink: Arc<dyn PieceSink> = partial;
                let fetched = tokio::select! {
                    fetched = fetcher.fetch(name, sink, peers, progress) => fetched,
                    // It came another way: somebody put it in by the local API, or another product had it.
                    () = arrives(&mut whole, &sha256) => Ok(()),
                    never = watch_sources(sha256, seen, &news) => match never {},
                };
                break match fetched {
                    Ok(()) => News::Fetched(sha256),
                    Err(error) => {
                        let full = matches!(error, FetchError::Sink(_, SinkError::DiskFull { .. }));
                        News::Failed(sha256, trouble(full), reason(&error))
                    }
                };
            }
            // A download that was stopped is finishing its last write in a thread; nothing tells when it has.
            Err(DownloadError::Underway(_)) => tokio::time::sleep(UNDERWAY_PAUSE).await,
            Err(error) => {
                let full = matches!(error, DownloadError::DiskFull { .. } | DownloadError::Quota { .. } | DownloadError::TooMany);
                break News::Failed(sha256, trouble(full), reason(&error));
            }
        }
    };
    // An error means that the driver has ended.
    let _ = news.send(outcome).await;
}

/// Returns when the blob is here whole.
async fn arrives(whole: &mut watch::Receiver<BTreeSet<Digest>>, sha256: &Digest) {
    if whole.wait_for(|blobs| blobs.contains(sha256)).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Says so each time when no peer has had a missing piece for a while.
async fn watch_sources(
    sha256: Digest,
    mut progress: watch::Receiver<Progress>,
    news: &mpsc::Sender<News>,
) -> std::convert::Infallible {
    loop {
        let waited = tokio::time::timeout(NO_SOURCE_AFTER, progress.wait_for(|progress| progress.has_source)).await.is_err();
        if waited {
            let _ = news.send(News::NoSource(sha256)).await;
            let _ = progress.wait_for(|progress| progress.has_source).await;
        }
        if progress.wait_for(|progress| !progress.has_source).await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// `again`: how often it came already and was refused. Then not at once, and beginning with another peer, for whoever
/// brought it last has the right body with signatures that do not count here; it need not be a liar.
async fn roster(
    fetcher: Arc<Fetcher>,
    digest: Digest,
    most_bytes: usize,
    again: usize,
    mut peers: watch::Receiver<Vec<NodeId>>,
    news: mpsc::Sender<News>,
) {
    let named = |bytes: &[u8]| Envelope::parse(bytes).is_ok_and(|it| it.kind == Kind::Roster && it.digest() == digest);
    if again > 0 {
        tokio::time::sleep(ROSTER_PAUSE).await;
    }
    loop {
        let mut asked = peers.borrow_and_update().clone();
        let first = again.checked_rem(asked.len()).unwrap_or(0);
        asked.rotate_left(first);
        match fetcher.fetch_document(digest, most_bytes, &asked, named).await {
            Ok(bytes) => {
                let _ = news.send(News::Roster { digest, bytes }).await;
                return;
            }
            Err(error) => tracing::debug!("{error}"),
        }
        // Somebody new to ask, or those who did not have it may have it by now.
        let _ = tokio::time::timeout(ROSTER_PAUSE, peers.changed()).await;
    }
}

fn trouble(full: bool) -> Trouble {
    if full { Trouble::DiskFull } else { Trouble::Broken }
}

/// The whole chain of an error, for a record.
fn reason(error: &dyn std::error::Error) -> Reason {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    Reason::lossy(&text)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use futures::future::BoxFuture;
    use groundswell_core::documents::release::Artifact;
    use groundswell_core::text::ArtifactName;
    use groundswell_net::blobs::{Connect, ConnectError, Duplex};
    use groundswell_net::pieces::{Swarms, Terms};

    use super::*;
    use crate::blobs::Settings;

    struct Nobody;

    impl Connect for Nobody {
        fn connect(&self, _: NodeId) -> BoxFuture<'static, Result<Box<dyn Duplex>, ConnectError>> {
            Box::pin(std::future::pending())
        }
    }

    fn nodes(numbers: &[u8]) -> BTreeSet<NodeId> {
        numbers.iter().map(|number| NodeId([*number; 32])).collect()
    }

    fn downloads(folder: PathBuf) -> (Fetches, mpsc::Receiver<News>) {
        let settings = Settings { folder, quota_bytes: u64::MAX, reserve_bytes: 0 };
        let blobs = BlobStore::open(settings).unwrap();
        let swarms = Swarms::new(Arc::new(Nobody), Arc::new(blobs.clone()), NodeId([0; 32]), Terms::default());
        Fetches::new(Arc::new(Fetcher::new(swarms)), blobs)
    }

    #[tokio::test]
    async fn peers_are_looked_for_the_moment_something_begins_to_be_fetched_and_then_in_turn() {
        let folder = tempfile::tempdir().unwrap();
        let (mut fetches, _news) = downloads(folder.path().join("blobs"));
        assert!(!fetches.take_begun() && !fetches.any());
        let (nobody, product) = (BTreeSet::new(), Product::new("bcd").unwrap());
        fetches.fetch_roster(Digest::of(b"roster"), 1_000, &nobody);
        assert!(fetches.any(), "links are made for a roster too");
        assert!(fetches.take_begun() && !fetches.take_begun(), "once");
        fetches.fetch_roster(Digest::of(b"roster"), 1_000, &nobody);
        assert!(!fetches.take_begun(), "it is under way");
        let artifact = Artifact {
            name: ArtifactName::new("x").unwrap(),
            platform: None,
            sha256: Digest::of(b"x").hex(),
            size: 1,
            blake3: Digest::of(b"y").hex(),
        };
        fetches.fetch(product.clone(), &artifact, &nobody);
        assert!(fetches.take_begun());
        fetches.fetch(product, &artifact, &nobody);
        assert!(!fetches.take_begun(), "it is under way");
    }

    #[test]
    fn peers_nearby_are_asked_first_and_one_that_has_it_all_before_any() {
        let order = |says: &[u8], near: &[u8]| {
            let best = best_first(&nodes(&[1, 2, 3, 4, 5]), &nodes(says), &nodes(near));
            best.iter().map(|node| node.0[0]).collect::<Vec<_>>()
        };
        assert_eq!(order(&[], &[]), [1, 2, 3, 4, 5]);
        assert_eq!(order(&[3, 5], &[]), [3, 5, 1, 2, 4]);
        assert_eq!(order(&[3, 5], &[2, 5]), [5, 2, 3, 1, 4], "near with all, near, far with all, far");
        assert_eq!(order(&[3], &[4, 5]), [3, 4, 5, 1, 2], "a far one that has it goes before two nearby that may wait for it");
        assert_eq!(order(&[9], &[8, 2]), [2, 1, 3, 4, 5], "who is no peer is not asked");
    }
}

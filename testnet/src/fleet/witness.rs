//! The services' own witness: each sample service holds a connection to it for as long as it lives, and says how it is.
//!
//! What it knows comes from the services alone, so it is evidence beside the agents' records. When the harness ends, in
//! whatever way, the connections end, and with them the services.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

use super::error::FleetError;
use super::service::Word;

/// Something that a service did.
#[derive(Clone, Debug)]
pub struct Observed {
    /// When.
    pub at: Instant,
    /// The node.
    pub node: String,
    /// The version.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// What.
    pub change: Change,
}

/// What a service did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It started; it does not serve yet.
    Started,
    /// It serves and is healthy.
    Healthy,
    /// It serves and is not healthy.
    Unhealthy,
    /// It ended.
    Ended,
}

/// Listens for services. Dropping it ends all of them.
#[derive(Debug)]
pub struct Witness {
    shared: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Live services by process.
    live: BTreeMap<u32, Word>,
    /// Whose pool's budget a node uses, and whether it is counted.
    pools: BTreeMap<String, String>,
    counting: bool,
    most_down: BTreeMap<String, usize>,
    observed: Vec<Observed>,
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Witness {
    /// Listens at `socket`, for nodes with their pools.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn listen(socket: &Path, pools: BTreeMap<String, String>) -> Result<Self, FleetError> {
        let listener = UnixListener::bind(socket).map_err(FleetError::io(format!("cannot listen at {}", socket.display())))?;
        let shared = Arc::new(Mutex::new(Seen { pools, ..Seen::default() }));
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { shared, task })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts from now on how many nodes of each pool have no healthy service.
    pub fn count(&self) {
        let mut seen = self.seen();
        seen.counting = true;
        seen.most_down.clear();
        seen.judge();
    }

    /// The most nodes of each pool that had no healthy service at once, since [`Witness::count`].
    #[must_use]
    pub fn most_down(&self) -> BTreeMap<String, usize> {
        self.seen().most_down.clone()
    }

    /// The version of each node's healthy service.
    #[must_use]
    pub fn healthy(&self) -> BTreeMap<String, String> {
        let seen = self.seen();
        let healthy = seen.live.values().filter(|word| word.healthy);
        healthy.map(|word| (word.node.clone(), word.version.clone())).collect()
    }

    /// Everything that services did, in order.
    #[must_use]
    pub fn observed(&self) -> Vec<Observed> {
        self.seen().observed.clone()
    }

    /// Processes of services that live.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.seen().live.keys().copied().collect()
    }
}

impl Seen {
    fn take(&mut self, word: Word) {
        let before = self.live.insert(word.pid, word.clone());
        let change = match (before, word.healthy) {
            (_, true) => Change::Healthy,
            (None, false) => Change::Started,
            (Some(_), false) => Change::Unhealthy,
        };
        self.note(word, change);
    }

    fn end(&mut self, pid: u32) {
        if let Some(word) = self.live.remove(&pid) {
            self.note(word, Change::Ended);
        }
    }

    fn note(&mut self, word: Word, change: Change) {
        let Word { node, version, pid, .. } = word;
        self.observed.push(Observed { at: Instant::now(), node, version, pid, change });
        self.judge();
    }

    fn judge(&mut self) {
        if !self.counting {
            return;
        }
        let healthy: BTreeSet<&String> = self.live.values().filter(|word| word.healthy).map(|word| &word.node).collect();
        let mut down: BTreeMap<&String, usize> = BTreeMap::new();
        for (node, pool) in &self.pools {
            *down.entry(pool).or_default() += usize::from(!healthy.contains(node));
        }
        for (pool, count) in down {
            let most = self.most_down.entry(pool.clone()).or_default();
            *most = (*most).max(count);
        }
    }
}

async fn accept(listener: UnixListener, shared: Arc<Mutex<Seen>>) {
    let mut services = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => { services.spawn(attend(stream, Arc::clone(&shared))); }
                // Out of files: nothing to do about it here, and the next service is refused.
                Err(_) => tokio::task::yield_now().await,
            },
            Some(_) = services.join_next() => {}
        }
    }
}

/// Attends one service until it ends.
async fn attend(stream: UnixStream, shared: Arc<Mutex<Seen>>) {
    let (read, _held) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    let mut pid = None;
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(word) = serde_json::from_str::<Word>(&line) {
            pid = Some(word.pid);
            shared.lock().unwrap_or_else(PoisonError::into_inner).take(word);
        }
    }
    if let Some(pid) = pid {
        shared.lock().unwrap_or_else(PoisonError::into_inner).end(pid);
    }
}

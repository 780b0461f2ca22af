//! What the conversations of one download share: the plan, the hash list, the sink.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use groundswell_core::blob::{BlobName, HashList, Layout, Planner};
use groundswell_core::node_id::NodeId;
use tokio::sync::watch;

use super::source::{PieceSink, SinkError};
use super::standing::Charge;

/// One download, shared by its conversations. Locks are never held across an await.
pub(super) struct Download {
    pub(super) blob: BlobName,
    pub(super) layout: Layout,
    pub(super) sink: Arc<dyn PieceSink>,
    plan: Mutex<Planner>,
    hashes: OnceLock<Arc<HashList>>,
    /// Bumped when there may be something else to ask for: a peer left, a piece is missing again, or all is here.
    changed: watch::Sender<()>,
}

/// What became of a piece that a peer sent.
pub(super) enum Stored {
    /// It is verified and stored, or was held already.
    Kept,
    /// It is not the piece.
    Bad(Charge),
    /// The sink did not take it.
    Failed(SinkError),
}

impl Download {
    pub(super) fn new(blob: BlobName, layout: Layout, sink: Arc<dyn PieceSink>, seed: u64) -> Self {
        let plan = Mutex::new(Planner::new(layout, sink.held(), seed));
        let known = sink.hash_list().filter(|list| list.root() == blob.blake3 && list.layout() == layout);
        let hashes = OnceLock::new();
        if let Some(list) = known.or_else(|| HashList::of_one_piece(layout, blob.blake3)) {
            let _ = hashes.set(Arc::new(list));
        }
        Self { blob, layout, sink, plan, hashes, changed: watch::Sender::new(()) }
    }

    pub(super) fn plan(&self) -> MutexGuard<'_, Planner> {
        self.plan.lock().expect("no holder of this lock panics")
    }

    pub(super) fn hashes(&self) -> Option<Arc<HashList>> {
        self.hashes.get().cloned()
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(super) fn note_change(&self) {
        self.changed.send_replace(());
    }

    pub(super) fn is_complete(&self) -> bool {
        self.plan().is_complete()
    }

    /// Verifies a hash list that a peer sent and keeps it. Cancel-safe: keeping goes on in its thread.
    pub(super) async fn take_hash_list(self: &Arc<Self>, bytes: Vec<u8>) -> Stored {
        let download = Arc::clone(self);
        blocking(move || match HashList::verify(download.layout, download.blob.blake3, &bytes) {
            Err(_) => Stored::Bad(Charge::BadHashList),
            Ok(list) => download.keep(list),
        })
        .await
    }

    /// Makes a list that did not come from a peer known to the sink.
    pub(super) async fn keep_own_hash_list(self: &Arc<Self>) -> Result<(), SinkError> {
        let Some(list) = self.hashes() else { return Ok(()) };
        let sink = Arc::clone(&self.sink);
        blocking(move || if sink.hash_list().is_some() { Ok(()) } else { sink.keep_hash_list(&list) }).await
    }

    fn keep(&self, list: HashList) -> Stored {
        if self.hashes.get().is_some() {
            return Stored::Kept;
        }
        match self.sink.keep_hash_list(&list) {
            Err(error) => Stored::Failed(error),
            Ok(()) => {
                let _ = self.hashes.set(Arc::new(list));
                self.note_change();
                Stored::Kept
            }
        }
    }

    /// Verifies a piece, stores it and tells the plan. Cancel-safe: storing goes on in its thread, and what it stored
    /// is found by the next download.
    pub(super) async fn take_piece(self: &Arc<Self>, peer: NodeId, piece: u32, bytes: Vec<u8>, hashes: Arc<HashList>) -> Stored {
        if self.plan().held().contains(piece) {
            self.plan().arrived(peer, piece);
            return Stored::Kept;
        }
        let sink = Arc::clone(&self.sink);
        let stored = blocking(move || match hashes.verify_piece(piece, &bytes) {
            Err(_) => Stored::Bad(Charge::BadPiece),
            Ok(()) => sink.write_piece(piece, &bytes).map_or_else(Stored::Failed, |()| Stored::Kept),
        })
        .await;
        if let Stored::Kept = stored {
            self.plan().arrived(peer, piece);
            if self.is_complete() {
                self.note_change();
            }
        }
        stored
    }
}

/// Runs what may wait for a disk where that is allowed. A panic there goes on here.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is shutting down: whoever waits is being dropped as well.
        Err(_) => std::future::pending().await,
    }
}

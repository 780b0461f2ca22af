//! Runs the core's effects strictly in order: what must be durable is durable before what follows it is done.
//!
//! Consecutive `Persist`s are one commit. When a commit fails, everything from it on waits in the queue, untouched and in
//! order, until a later run commits it: nothing is ever published that is not on disk (design, section 7, rule 2). Whoever
//! runs them may answer questions while a commit waits for its disk.

use std::collections::VecDeque;
use std::sync::Arc;

use groundswell_core::node::effect::Effect;

use crate::store::{Change, CommitError, Store};

/// What makes a batch durable.
pub trait Durable: Send + Sync + 'static {
    /// Applies all of `batch` and returns once it is durable; may block on a disk.
    ///
    /// # Errors
    /// When it is not known to be durable; the same batch may be committed again.
    fn commit(&self, batch: &[Change]) -> Result<(), CommitError>;
}

impl Durable for Store {
    fn commit(&self, batch: &[Change]) -> Result<(), CommitError> {
        Self::commit(self, batch)
    }
}

/// What does everything that is not a `Persist`. Never waits: each effect is handed over or dropped with a word.
pub trait Hands {
    /// Does one effect.
    fn perform(&mut self, effect: Effect);
}

/// Performs what stands in front of the next batch and takes that off the queue; `None` when all is done. Nothing that stands
/// behind the batch may be done before it is durable: [`commit`] it, or [`put_back`].
pub fn next_batch(queue: &mut VecDeque<Effect>, hands: &mut impl Hands) -> Option<Vec<Change>> {
    loop {
        match queue.pop_front()? {
            Effect::Persist { key, value } => {
                let mut batch = vec![(key, value)];
                while let Some(Effect::Persist { .. }) = queue.front() {
                    if let Some(Effect::Persist { key, value }) = queue.pop_front() {
                        batch.push((key, value));
                    }
                }
                return Some(batch);
            }
            effect => hands.perform(effect),
        }
    }
}

/// Makes a batch durable. Gives it back, to be put back where that failed. Not cancel-safe: with the future the batch is lost,
/// durable or not.
///
/// # Errors
/// The store's; nothing that stands behind the batch is done then.
pub async fn commit(store: Arc<dyn Durable>, batch: Vec<Change>) -> (Vec<Change>, Result<(), CommitError>) {
    blocking(move || {
        let outcome = store.commit(&batch);
        (batch, outcome)
    })
    .await
}

/// Puts a batch that is not durable in front of everything that waits for it.
pub fn put_back(queue: &mut VecDeque<Effect>, batch: Vec<Change>) {
    for (key, value) in batch.into_iter().rev() {
        queue.push_front(Effect::Persist { key, value });
    }
}

/// Runs what waits for a disk where that is allowed. A panic there goes on here.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is shutting down: whoever waits is being dropped as well.
        Err(_) => std::future::pending().await,
    }
}

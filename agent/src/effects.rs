//! Runs the core's effects strictly in order: what must be durable is durable before what follows it is done.
//!
//! Consecutive `Persist`s are one commit. When a commit fails, everything from it on waits in the queue, untouched and in
//! order, until a later run commits it: nothing is ever published that is not on disk (design, section 7, rule 2).

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

/// Runs `queue` from its front until it is empty or a commit fails; then the batch that failed is back at its front.
///
/// Not cancel-safe: a batch taken from the queue is lost when the future is dropped during its commit. The driver
/// drops it only at its own end.
///
/// # Errors
/// The commit's error. What stands before the failed batch is done, what stands after it is not.
pub async fn run(queue: &mut VecDeque<Effect>, store: &Arc<dyn Durable>, hands: &mut impl Hands) -> Result<(), CommitError> {
    while let Some(effect) = queue.pop_front() {
        let Effect::Persist { key, value } = effect else {
            hands.perform(effect);
            continue;
        };
        let mut batch = vec![(key, value)];
        while let Some(Effect::Persist { .. }) = queue.front() {
            if let Some(Effect::Persist { key, value }) = queue.pop_front() {
                batch.push((key, value));
            }
        }
        let durable = Arc::clone(store);
        let (batch, outcome) = blocking(move || {
            let outcome = durable.commit(&batch);
            (batch, outcome)
        })
        .await;
        if let Err(error) = outcome {
            for (key, value) in batch.into_iter().rev() {
                queue.push_front(Effect::Persist { key, value });
            }
            return Err(error);
        }
    }
    Ok(())
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

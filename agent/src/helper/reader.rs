//! One thread on which documents are read. The allocator keeps for each thread what that once needed: read on whichever is free,
//! the largest rosters would take the memory of one on every thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use tokio::sync::oneshot;

type Work = Box<dyn FnOnce() + Send>;

/// The thread, for as long as anybody holds this.
pub(super) struct Reader(Sender<Work>);

impl Reader {
    /// Starts it.
    ///
    /// # Panics
    /// Where the machine lets no thread be started, as the runtime's own do.
    pub(super) fn start() -> Self {
        let (sender, works) = channel::<Work>();
        let read = move || works.into_iter().for_each(|work| work());
        thread::Builder::new().name("documents".to_owned()).spawn(read).expect("a thread can be started");
        Self(sender)
    }

    /// Does `work` there, after all that came before: each connection asks for one at a time. A panic there goes on here.
    pub(super) async fn read<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = oneshot::channel();
        // Whoever does not wait any more has hung up.
        let work = move || drop(tell.send(catch_unwind(AssertUnwindSafe(work))));
        self.0.send(Box::new(work)).expect("the thread lives as long as this does");
        match told.await.expect("all that is sent is done") {
            Ok(done) => done,
            Err(panic) => resume_unwind(panic),
        }
    }
}

//! Children that are being started, and why a slot waits for them.
//!
//! Between its fork and its exec a child has a copy of every open file, so a binary that was just written and closed is
//! still open for writing there, and whatever runs it is told "text file busy". Children are started inside
//! [`starting`], and a file that is to be run is ready once [`wait`] has returned after it was closed: a child that is
//! started later cannot have it.

use std::io;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use tokio::time::sleep;

/// How often "text file busy" is tried again, should another program than this one have the file open for writing.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

static STARTING: RwLock<()> = RwLock::new(());

/// Starts a child: `start` is a call that returns once the child runs its program.
pub fn starting<T>(start: impl FnOnce() -> T) -> T {
    let _under_way = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    start()
}

/// Starts a child by `spawn`, and tries again for half a second while its file is busy.
///
/// # Errors
/// What `spawn` says.
pub(crate) async fn started<T>(mut spawn: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut tries = 0;
    loop {
        match starting(&mut spawn) {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES => {
                tries += 1;
                sleep(BUSY_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Waits for every child that is being started now: milliseconds. Blocking.
pub fn wait() {
    drop(STARTING.write().unwrap_or_else(PoisonError::into_inner));
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_file_waits_for_the_children_that_are_being_started() {
        let (begun, begins) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        let child = thread::spawn(move || {
            starting(|| {
                begun.send(()).unwrap();
                goes.recv().unwrap();
            });
        });
        begins.recv().unwrap();
        let file = thread::spawn(move || {
            wait();
            done.send(()).unwrap();
        });
        assert!(is_done.recv_timeout(Duration::from_millis(50)).is_err(), "a child has not run its program yet");
        go.send(()).unwrap();
        is_done.recv().unwrap();
        child.join().unwrap();
        file.join().unwrap();
    }
}

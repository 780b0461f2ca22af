//! Children that are being started, and why a slot waits for them.
//!
//! Between its fork and its exec a child has a copy of every open file, so a binary that was just written and closed is
//! still open for writing there, and whatever runs it is told "text file busy": a shell says so with an exit code that
//! nobody tries again. Children are started inside [`starting`], and a file that is to be run is ready once
//! [`wait_for`] has returned after it was closed: a child that is started later cannot have it, and one that was
//! started before has let go of it. The start of a child returns a moment before the child's copies are closed; so the
//! file is marked while it is written, and the mark is waited for.

use std::io;
use std::path::Path;
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::files::Files;

/// How often "text file busy" is tried again, should another program than this one have the file open for writing.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// How long a child that runs its program may still have a file …
const LET_GO_WITHIN: Duration = Duration::from_secs(5);
/// … and how soon one looks again.
const LOOK_EVERY: Duration = Duration::from_millis(2);

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

/// Waits until no child has `path`, which this process wrote, marked ([`super::files::Writing::mark`]) and closed: milliseconds, and five
/// seconds at most, for whatever else may hold it. Blocking.
///
/// # Errors
/// When the file cannot be opened.
pub fn wait_for(files: &dyn Files, path: &Path) -> io::Result<()> {
    wait();
    let file = files.open(path)?;
    let begun = Instant::now();
    while !file.is_free() && begun.elapsed() < LET_GO_WITHIN {
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;
    use std::sync::mpsc;

    use super::*;
    use crate::install::files::{OnDisk, Writing as _};

    #[test]
    fn a_file_waits_for_the_children_that_are_being_started() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("binary");
        fs::write(&path, "").unwrap();
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
            wait_for(&OnDisk, &path).unwrap();
            done.send(()).unwrap();
        });
        assert!(is_done.recv_timeout(Duration::from_millis(50)).is_err(), "a child has not run its program yet");
        go.send(()).unwrap();
        is_done.recv().unwrap();
        child.join().unwrap();
        file.join().unwrap();
    }

    #[test]
    fn a_binary_that_a_started_child_still_has_open_is_waited_for_and_then_runs_from_a_shell() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("binary");
        let mut file = File::create(&path).unwrap();
        file.mark();
        file.write_all(b"#!/bin/sh\nexit 7\n").unwrap();
        file.set_permissions(Permissions::from_mode(0o755)).unwrap();
        // As a child has it that runs its program already, and whose copies are not closed yet.
        let inherited = file.try_clone().unwrap();
        drop(file);
        let child = thread::spawn(move || {
            thread::sleep(Duration::from_millis(300));
            drop(inherited);
        });
        wait_for(&OnDisk, &path).unwrap();
        let status = starting(|| Command::new("sh").arg("-c").arg(&path).status()).unwrap();
        assert_eq!(status.code(), Some(7), "126 says that it was busy");
        child.join().unwrap();
    }
}

//! How what is under way ends once the device is to stop.
//!
//! A pause is given up at once ([`stoppable`]). What starts or stops a version, and a hook, may be in the middle of
//! a write after which nothing runs when it is cut off: a boot loader's environment, a database of packages, a disk that is
//! being let go. It ends by itself, or is told to.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::activate::process;
use super::disk::Failure;
use super::executor::Stopped;

/// How long what is under way may take to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grace {
    /// By itself.
    pub by_itself: Duration,
    /// Once it was told to, by SIGTERM; then it is killed.
    pub told: Duration,
}

impl Grace {
    /// Half of what whoever stops this process leaves it, and a sixth more; the rest is for what else it has to end.
    #[must_use]
    pub fn within(stop_timeout: Duration) -> Self {
        Self { by_itself: stop_timeout / 2, told: stop_timeout / 6 }
    }
}

impl Default for Grace {
    fn default() -> Self {
        Self::within(Duration::from_secs(60))
    }
}

/// Waits for `work`, or gives it up when the device stops.
pub(super) async fn stoppable<T>(stopping: &mut watch::Receiver<bool>, work: impl Future<Output = T>) -> Result<T, Stopped> {
    tokio::select! {
        done = work => Ok(done),
        _ = stopping.wait_for(|stopping| *stopping) => Err(Stopped::Stopping),
    }
}

/// Waits for `work`; once the device stops, for no longer than `grace`. What fails then has failed for that, as where the
/// machine goes down with all that a command needs: nobody is told, and the next start does it again.
pub(super) async fn ending<T>(
    stopping: &watch::Receiver<bool>,
    grace: Grace,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<Result<T, Failure>, Stopped> {
    let (tell, told) = watch::channel(false);
    let mut work = pin!(process::until_told(told, grace.told, work));
    let mut stops = stopping.clone();
    let mut done = tokio::select! {
        done = &mut work => Some(done),
        _ = stops.wait_for(|stopping| *stopping) => None,
    };
    if done.is_none() {
        done = timeout(grace.by_itself, &mut work).await.ok();
    }
    if done.is_none() {
        tell.send_replace(true);
        done = timeout(grace.told, work).await.ok();
    }
    match done {
        // A device that was let go without a word stops too.
        Some(Err(failure)) if *stopping.borrow() || stopping.has_changed().is_err() => {
            tracing::warn!(%failure, "cut short by the stop; the next start goes on");
            Err(Stopped::Stopping)
        }
        Some(done) => Ok(done),
        None => Err(Stopped::Stopping),
    }
}

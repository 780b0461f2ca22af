//! The task that probes one product and tells every change of its health.
//!
//! Each version that is started gets a number ([`Target::start`]); every change carries the number of the version that
//! was probed, so that the last word on the old version is never taken for the first on the new one.

use std::path::PathBuf;
use std::time::Duration;

use groundswell_core::node::input::Health;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::judge::{Judge, Verdict};
use super::names::Names;
use super::probe::{self, ProcessVerdict, Seen};
use crate::config::HealthConfig;
use crate::install::activate::leftover::end_health;
use crate::install::activate::{Launch, ProcessState};

/// After so many intervals and time limits without an answer, and this on top, health is not known any more.
const STALE_AFTER: u32 = 3;
const SLACK: Duration = Duration::from_secs(10);

/// What is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Counts starts.
    pub start: u64,
    /// What runs; `None` while nothing does, and then nothing is probed.
    pub launch: Option<Launch>,
}

/// A change of health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The start that was probed.
    pub start: u64,
    /// What it is now.
    pub health: Health,
}

/// The handle of the task.
#[derive(Debug)]
pub struct Monitor {
    target: watch::Sender<Target>,
    task: JoinHandle<()>,
}

impl Monitor {
    /// Starts the task; it waits when `changes` is full. `stable_after` is of use with a supervised process only.
    #[must_use]
    pub fn start(
        config: HealthConfig,
        stable_after: Duration,
        process: Option<watch::Receiver<ProcessState>>,
        changes: mpsc::Sender<Changed>,
    ) -> Self {
        let (target, watched) = watch::channel(Target { start: 0, launch: None });
        let task = tokio::spawn(live(config, stable_after, process, watched, changes));
        Self { target, task }
    }

    /// Probes this from now on, from the beginning.
    pub fn watch(&self, target: Target) {
        self.target.send_replace(target);
    }

    /// Ends the task. A probe in progress is given up.
    pub async fn shutdown(self) {
        drop(self.target);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the health task failed");
        }
    }
}

async fn live(
    config: HealthConfig,
    stable_after: Duration,
    mut process: Option<watch::Receiver<ProcessState>>,
    mut target: watch::Receiver<Target>,
    changes: mpsc::Sender<Changed>,
) {
    let names = Names::default();
    let mut ended_in: Option<PathBuf> = None;
    loop {
        let Target { start, launch } = target.borrow_and_update().clone();
        let Some(launch) = launch else {
            if target.changed().await.is_err() {
                return;
            }
            continue;
        };
        if let Some(folder) = launch.folder().filter(|folder| ended_in.as_deref() != Some(*folder)) {
            // No probe of this agent runs yet.
            end_health(folder).await;
            ended_in = Some(folder.to_owned());
        }
        let mut judge = Judge::new(config.healthy_after, config.unhealthy_after);
        let mut seen = Seen::nothing(names.clone());
        // One version, until another takes its place.
        loop {
            let began = Instant::now();
            let health = tokio::select! {
                changed = target.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                health = taken(
                    &mut judge,
                    patience(&config),
                    judge_once(&config, stable_after, &launch, process.as_mut(), &mut seen),
                ) => health,
            };
            if let Some(health) = health
                && changes.send(Changed { start, health }).await.is_err()
            {
                return;
            }
            tokio::select! {
                changed = target.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = sleep_until(began + config.interval) => {}
                () = another_end(process.as_mut(), seen.ends) => {}
            }
        }
    }
}

/// How long a probe may take with all that it waits for: longer than any does, and then what was known is too old to hold.
fn patience(config: &HealthConfig) -> Duration {
    config.interval.saturating_add(config.timeout).saturating_mul(STALE_AFTER).saturating_add(SLACK)
}

/// What a probe changes, or that it does not end.
async fn taken(judge: &mut Judge, patience: Duration, probing: impl Future<Output = Verdict>) -> Option<Health> {
    match timeout(patience, probing).await {
        Ok(verdict) => judge.take(verdict),
        Err(_) => judge.lose_sight(&format!("the health check has not ended for {} s", patience.as_secs())),
    }
}

async fn judge_once(
    config: &HealthConfig,
    stable_after: Duration,
    launch: &Launch,
    process: Option<&mut watch::Receiver<ProcessState>>,
    seen: &mut Seen,
) -> Verdict {
    if let Some(state) = probe::now(process.as_deref()) {
        let verdict = probe::process(&state, seen.ends, stable_after);
        seen.ends = state.ends;
        if let ProcessVerdict::Down(why) = verdict {
            return Verdict::Fail(why);
        }
    }
    probe::check(config, launch, seen).await
}

/// Returns when the process has ended once more: an end is a failure at once, not at the next interval.
async fn another_end(process: Option<&mut watch::Receiver<ProcessState>>, ends_seen: u32) {
    let Some(process) = process else { return std::future::pending().await };
    if process.wait_for(|state| state.ends > ends_seen).await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn health_that_is_older_than_a_few_probes_is_not_known_any_more() {
        let mut judge = Judge::new(1, 3);
        let patience = Duration::from_millis(20);
        let long = Duration::from_secs(60);
        assert_eq!(taken(&mut judge, long, async { Verdict::Pass }).await, Some(Health::Healthy));
        let stale = taken(&mut judge, patience, std::future::pending()).await;
        assert!(matches!(&stale, Some(Health::Unknown(why)) if why.contains("has not ended for")), "{stale:?}");
        assert_eq!(taken(&mut judge, patience, std::future::pending()).await, None, "said once");
        assert_eq!(taken(&mut judge, long, async { Verdict::Pass }).await, Some(Health::Healthy));
    }
}

//! The way back, and whatever else start-up may not give up: every step that works helps, so a failure ends nothing.
//!
//! What it cannot do without is tried again later, with a growing pause, and the journal stays open until then: the old
//! version's start above all. Before it runs nothing says that the way back is done (S6).

use std::sync::atomic::Ordering;
use std::time::Duration;

use groundswell_core::install::recovery::Recovery;
use groundswell_core::install::{Entry, Mark, Operation, Way};
use tokio::time::sleep;

use super::disk::Failure;
use super::executor::{Executor, Stopped, stoppable};

/// How often a start is tried before it is left for later.
const STARTS: u32 = 3;
/// From one of these tries to the next.
const START_PAUSE: Duration = Duration::from_secs(1);
/// From one try to go back at start-up to the next: the first pause, twice as long each time, and the longest.
pub(super) const RECOVERY_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How the way back went.
pub(super) enum WayBack {
    /// To its end.
    Done,
    /// Something that it cannot do without failed: it goes on later.
    Unfinished(Failure),
    Stopping,
}

impl Executor {
    /// Carries out a recovery that may not fail, after so many tries. An error: the disk takes no writes, the old version does
    /// not start, or the machine cannot be restarted, or does not run what it should; it has to be tried again, for there is no
    /// other way and nothing true could be told meanwhile. `None`: the device stops.
    pub(super) async fn went_back(&mut self, recovery: &Recovery, tries: u32) -> Option<Result<(), Failure>> {
        match self.insist(&recovery.operations).await {
            WayBack::Done => Some(Ok(())),
            WayBack::Stopping => None,
            WayBack::Unfinished(failure) => {
                let pause = RECOVERY_PAUSE.saturating_mul(1_u32 << tries.min(8)).min(LONGEST_PAUSE);
                tracing::error!(product = %self.product, %failure, ?pause, "cannot go back yet; tried again");
                self.pending.clear();
                stoppable(&mut self.stopping, sleep(pause)).await.ok()?;
                Some(Err(failure))
            }
        }
    }

    /// Does operations in order and goes on after a failure: on the way back every step that works helps.
    /// What the disk still lacks is kept for later; what else went badly is told with the verdict.
    pub(super) async fn insist(&mut self, operations: &[Operation]) -> WayBack {
        let way = self.insist_on(operations).await;
        self.held_up.store(matches!(way, WayBack::Unfinished(_)), Ordering::Relaxed);
        way
    }

    async fn insist_on(&mut self, operations: &[Operation]) -> WayBack {
        let mut unpointed = None;
        let ends = operations.iter().any(closes);
        let goes_back = operations.iter().any(|operation| matches!(noted(operation), Some(Mark::Revert { .. })));
        for operation in operations {
            let closes = closes(operation);
            if unpointed.is_some() {
                // It is not told before `current` says so too, but it runs.
                let (Operation::Start(slot, contents) | Operation::Keep(slot, contents)) = operation else { continue };
                match self.perform(&Operation::Keep(*slot, contents.clone())).await {
                    Ok(()) => continue,
                    Err(Stopped::Stopping) => return WayBack::Stopping,
                    Err(Stopped::Failed(operation, failure)) => {
                        tracing::error!(product = %self.product, %operation, %failure, "on the way back");
                        continue;
                    }
                }
            }
            if closes && !self.pending.is_empty() {
                self.pending.push(operation.clone());
                continue;
            }
            let failure = match self.attempt(operation).await {
                Ok(()) => continue,
                Err(Stopped::Stopping) => return WayBack::Stopping,
                Err(Stopped::Failed(_, failure)) => failure,
            };
            tracing::error!(product = %self.product, %operation, %failure, "on the way back");
            match operation {
                // The machine runs what is left, or comes up with it the next time.
                Operation::Booted(..) => return WayBack::Unfinished(failure),
                // Nothing runs, or what was to be left does.
                Operation::Start(..) | Operation::Stop(..) if goes_back => {
                    self.trouble.add(failure.clone());
                    return WayBack::Unfinished(failure);
                }
                Operation::Start(..) | Operation::Keep(..) | Operation::Stop(..) | Operation::Hook(..) => {
                    self.trouble.add(failure);
                }
                // The journal is closed last: what is still missing tells that the version was left.
                Operation::Deny(_) | Operation::Forgive(_) | Operation::Describe(..) => self.pending.push(operation.clone()),
                _ if closes => self.pending.push(operation.clone()),
                // What starts by its slot runs all the same; a command would start what `current` still leads to.
                Operation::Point(_) if self.starter.starts_by_slot() => unpointed = Some(failure),
                Operation::Point(_) => return WayBack::Unfinished(failure),
                // With the journal closed behind it, a version that is good for ever would be taken back by the next start.
                Operation::Bless(_) if ends => return WayBack::Unfinished(failure),
                // A restart that is not written down would be repeated for ever.
                Operation::Note(Entry { mark: Mark::Revert { way: Way::Restarting { .. }, .. }, .. })
                | Operation::Restart(..) => {
                    return WayBack::Unfinished(failure);
                }
                _ => {}
            }
        }
        unpointed.map_or(WayBack::Done, WayBack::Unfinished)
    }

    /// Does one operation; what starts or stops a version is tried a few times.
    async fn attempt(&mut self, operation: &Operation) -> Result<(), Stopped> {
        let tries = if matches!(operation, Operation::Start(..) | Operation::Stop(..)) { STARTS } else { 1 };
        for _ in 1..tries {
            match self.perform(operation).await {
                Err(Stopped::Failed(..)) => stoppable(&mut self.stopping, sleep(START_PAUSE)).await?,
                done => return done,
            }
        }
        self.perform(operation).await
    }
}

fn noted(operation: &Operation) -> Option<&Mark> {
    match operation {
        Operation::Note(Entry { mark, .. }) => Some(mark),
        _ => None,
    }
}

fn closes(operation: &Operation) -> bool {
    noted(operation) == Some(&Mark::Closed)
}

//! The way back, and whatever else start-up may not give up: every step that works helps, so a failure ends nothing.
//!
//! What it cannot do without is tried again later, with a growing pause, and the journal stays open until then: the old
//! version's start above all. Before it runs nothing says that the way back is done (S6). Where the machine is restarted for
//! it, that comes in the end whether or not anything else has worked, for the boot loader may go back by itself.

use std::sync::atomic::Ordering;
use std::time::Duration;

use groundswell_core::install::machine::{self, is_asked};
use groundswell_core::install::recovery::Recovery;
use groundswell_core::install::{Confirmed, Denied, Entry, Found, Mark, Operation, Way};
use groundswell_core::limits::TRIES_BACK;
use groundswell_core::node::effect::Step;
use groundswell_core::node::input::{Fault, Recovered, Report};
use groundswell_core::text::Reason;
use tokio::time::sleep;

use super::disk::Failure;
use super::ending::stoppable;
use super::executor::{Executor, Outcome, Stopped};

/// How often a start is tried before it is left for later.
const STARTS: u32 = 3;

/// How long what failed on the way back is left alone.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// From one try of a start to the next.
    pub start: Duration,
    /// From one try to go back at start-up to the next: the first pause, twice as long each time.
    pub first: Duration,
    /// The longest of these.
    pub longest: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { start: Duration::from_secs(1), first: Duration::from_secs(5), longest: Duration::from_secs(60) }
    }
}

impl Pauses {
    /// The pause after so many tries.
    #[must_use]
    pub fn after(&self, tries: u32) -> Duration {
        self.first.saturating_mul(1_u32 << tries.min(8)).min(self.longest)
    }
}

/// How the way back went.
pub(super) enum WayBack {
    /// To its end.
    Done,
    /// Something that it cannot do without failed: it goes on later.
    Unfinished(Unfinished),
    Stopping,
}

/// What a way back could not do without.
#[derive(Debug)]
pub(super) struct Unfinished {
    /// What failed.
    pub(super) failure: Failure,
    /// The machine is known not to run what it should.
    pub(super) answered: bool,
}

impl From<Failure> for Unfinished {
    fn from(failure: Failure) -> Self {
        Self { failure, answered: false }
    }
}

impl Executor {
    /// Writes what an earlier revert on a full disk still owes, where it can.
    pub async fn settle(&mut self) {
        if !self.pending.is_empty() {
            let pending = std::mem::take(&mut self.pending);
            self.insist(&pending).await;
        }
    }

    /// Whether a way back that is over has still to be written down.
    pub(crate) fn owes(&self) -> bool {
        !self.pending.is_empty()
    }

    /// What a way back still has to write comes before anything that it could be written over. It waits for the disk, for as long as
    /// that takes.
    pub(super) fn owing(&self, step: &Step) -> Option<Outcome> {
        let reason = Reason::lossy("the disk does not let the end of the last upgrade be written down");
        let report = match step {
            _ if !self.owes() => return None,
            Step::Stage { install } => Report::StageFailed { release: install.release, fault: Fault::DiskFull, reason },
            Step::Activate { install, .. } => Report::ActivateFailed { release: install.release, reason, at_fault: false },
            _ => return None,
        };
        Some(Outcome::Report(report))
    }

    /// Carries out a recovery that may not fail, after so many tries. An error: the disk takes no writes, the old version does
    /// not start, or the machine cannot be restarted, or does not run what it should; it has to be tried again, for there is no
    /// other way and nothing true could be told meanwhile. `None`: the device stops.
    pub(super) async fn went_back(&mut self, recovery: &Recovery, tries: u32) -> Option<Result<(), Unfinished>> {
        match self.insist(&recovery.operations).await {
            WayBack::Done => Some(Ok(())),
            WayBack::Stopping => None,
            WayBack::Unfinished(unfinished) => {
                let pause = self.pauses.after(tries);
                tracing::error!(product = %self.product, failure = %unfinished.failure, ?pause, "cannot go back yet; tried again");
                self.pending.clear();
                stoppable(&mut self.stopping, sleep(pause)).await.ok()?;
                Some(Err(unfinished))
            }
        }
    }

    /// Does operations in order and goes on after a failure: on the way back every step that works helps.
    /// What the disk still lacks is kept for later; what else went badly is told with the verdict.
    pub(super) async fn insist(&mut self, operations: &[Operation]) -> WayBack {
        // It says nothing of a way back that is under way.
        if operations.is_empty() {
            return WayBack::Done;
        }
        let way = self.insist_on(operations).await;
        self.held_up.store(matches!(way, WayBack::Unfinished(_)), Ordering::Relaxed);
        way
    }

    async fn insist_on(&mut self, operations: &[Operation]) -> WayBack {
        let mut unpointed: Option<Failure> = None;
        let ends = operations.iter().any(closes);
        let goes_back = operations.iter().any(|operation| matches!(noted(operation), Some(Mark::Revert { .. })));
        let goes_down = matches!(operations.last(), Some(Operation::Restart(..)));
        let goes_down_anyway = goes_down && operations.iter().any(is_unset);
        let goes_next =
            operations.iter().filter_map(noted).any(|mark| matches!(mark, Mark::Revert { way: Way::Next { .. }, .. }));
        let lasts = operations.iter().filter_map(noted).any(has_lasted);
        let before_restart = operations.iter().rev().nth(1).filter(|_| goes_down);
        let mut is_back = false;
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
            // Each of these may take its whole grace.
            if *self.stopping.borrow() {
                return WayBack::Stopping;
            }
            let failure = match self.attempt(operation).await {
                Ok(()) => {
                    is_back |= matches!(operation, Operation::Booted(..) | Operation::Left(..));
                    continue;
                }
                Err(Stopped::Stopping) => return WayBack::Stopping,
                Err(Stopped::Failed(_, failure)) => failure,
            };
            tracing::error!(product = %self.product, %operation, %failure, "on the way back");
            match operation {
                // The machine runs what is left, or comes up with it the next time.
                Operation::Booted(..) | Operation::Left(..) => {
                    return WayBack::Unfinished(Unfinished { answered: failure.answered, failure });
                }
                // Its command says so again and again: that nothing is there to be stopped, for all that can be known.
                Operation::Stop(..) if goes_back && !goes_down && lasts && failure.answered => self.trouble.add(failure),
                // What is left does not run any more. Should the boot loader take it again, the next start of the agent finds that.
                Operation::Start(..) | Operation::Stop(..) if is_back || (goes_next && lasts) => self.trouble.add(failure),
                // Nothing runs, or what was to be left does; of a machine that is to be restarted once more that is known.
                Operation::Start(..) | Operation::Stop(..) if goes_back && !goes_down_anyway => {
                    self.trouble.add(failure.clone());
                    return WayBack::Unfinished(Unfinished { failure, answered: goes_down });
                }
                Operation::Start(..) | Operation::Keep(..) | Operation::Stop(..) | Operation::Hook(..) => {
                    self.trouble.add(failure);
                }
                // The journal is closed last: what is still missing tells that the version was left.
                Operation::Deny(_) | Operation::Forgive(_) | Operation::Describe(..) => self.pending.push(operation.clone()),
                _ if closes => self.pending.push(operation.clone()),
                // What starts by its slot runs all the same; a command would start what `current` still leads to.
                Operation::Point(_) if self.starter.starts_by_slot() => unpointed = Some(failure),
                Operation::Point(_) => return WayBack::Unfinished(failure.into()),
                // With the journal closed behind it, a version that is good for ever would be taken back by the next start.
                Operation::Bless(_) if ends => return WayBack::Unfinished(failure.into()),
                // A restart that is not written down would be repeated for ever.
                _ if before_restart.is_some_and(|note| std::ptr::eq(note, operation)) => {
                    return WayBack::Unfinished(failure.into());
                }
                Operation::Restart(..) => return WayBack::Unfinished(failure.into()),
                _ => {}
            }
        }
        unpointed.map_or(WayBack::Done, |failure| WayBack::Unfinished(failure.into()))
    }

    /// What is told at start-up of a way back that does not end: it is gone on with by the core's orders, which may have something
    /// else to put in its place. `None` where nobody listens to that, or there may be an end.
    pub(super) fn unfinished(&self, found: &Found) -> Option<Recovered> {
        let entry = machine::held_up(found).filter(|_| self.is_heard)?;
        let Entry { transaction, mark: Mark::Revert { reason, at_fault, .. } } = entry else { return None };
        let going_back = Some(Box::new((transaction.contents.release, reason.clone(), *at_fault)));
        let denied = found.denied.iter().flat_map(Denied::named).collect();
        let claim = transaction.claim;
        let at_rest = Recovered::at_rest(self.what_runs(found), found.floor());
        Some(Recovered { going_back, claim, denied, ..at_rest })
    }

    /// Whether a machine at rest started from something else than the confirmed version, which is made the next one again then.
    /// Boot loaders leave a system that does not come up, whatever was decided before. `None`: the device stops.
    pub(super) async fn has_strayed(&mut self, found: &Found) -> Option<bool> {
        let Some(Confirmed { slot, contents }) = found.standing().filter(|_| found.open().is_none() && is_asked(self.manner))
        else {
            return Some(false);
        };
        let (slot, contents) = (*slot, contents.clone());
        match self.perform(&Operation::Booted(slot, contents.clone())).await {
            Ok(()) => Some(false),
            Err(Stopped::Stopping) => None,
            Err(Stopped::Failed(_, failure)) if !failure.answered => {
                tracing::warn!(product = %self.product, %failure, "taken for what is confirmed");
                Some(false)
            }
            Err(Stopped::Failed(_, failure)) => {
                tracing::error!(product = %self.product, %failure, output = failure.output, "the machine left the confirmed version");
                match self.attempt(&Operation::Start(slot, contents)).await {
                    Err(Stopped::Stopping) => return None,
                    Err(Stopped::Failed(_, failure)) => {
                        tracing::error!(product = %self.product, %failure, "it cannot be made the next one");
                    }
                    Ok(()) => {}
                }
                Some(true)
            }
        }
    }

    /// Does one operation; what starts or stops a version is tried a few times.
    async fn attempt(&mut self, operation: &Operation) -> Result<(), Stopped> {
        let tries = if matches!(operation, Operation::Start(..) | Operation::Stop(..)) { STARTS } else { 1 };
        for _ in 1..tries {
            match self.perform(operation).await {
                Err(Stopped::Failed(..)) => stoppable(&mut self.stopping, sleep(self.pauses.start)).await?,
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

/// Whether a way back was begun so often that it goes on without what keeps failing, where it can.
fn has_lasted(mark: &Mark) -> bool {
    matches!(mark, Mark::Revert { tries, .. } if *tries >= TRIES_BACK)
}

/// Whether the machine is restarted although nothing may have made the old version the next one.
fn is_unset(operation: &Operation) -> bool {
    matches!(noted(operation), Some(Mark::Revert { way: Way::Restarting { unset: true, .. }, .. }))
}

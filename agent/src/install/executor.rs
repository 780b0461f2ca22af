//! Carries out plans: files on a blocking thread, processes through the starter, one operation after the other.
//!
//! What follows a failure is decided here and only here: a failed stage gives back what it took; a failed activation
//! waits for the core's revert; a confirm or revert is never given up ([`Outcome::Again`]), for there is no other way.

use std::sync::Arc;

use groundswell_core::digest::Digest;
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Recovered, Report};
use groundswell_core::record::ClaimName;
use groundswell_core::text::{Product, Reason};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::activate::{Launch, Starter};
use super::disk::{Disk, Failure};
use super::machine::{self, Contents, Entry, Found, Mark, Operation, Plan, Slot};
use super::recovery::{self, Ending};

/// How often the old version's start is tried in one revert before it is reported and left to its health check.
const REVERT_STARTS: u32 = 3;

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Tell the core.
    Report(Report),
    /// The disk does not let it be finished now: try again soon.
    Again,
    /// The device stops; the next start goes on.
    Stopping,
    /// Nothing to tell: the step is not for here, or makes no sense.
    Nothing,
}

/// Carries out the plans of one product.
pub struct Executor {
    product: Product,
    disk: Arc<Disk>,
    starter: Starter,
    trial_starts: u32,
    stopping: watch::Receiver<bool>,
    /// What runs, as far as this run of the agent knows, and how often something was started.
    launch: Option<Launch>,
    starts: u64,
    /// Left over from a revert on a disk that was full.
    pending: Vec<Operation>,
}

enum Stopped {
    Failed(Failure),
    Stopping,
}

impl Executor {
    /// An executor over open files; `recover` comes first. It stops between operations once `stopping` is true.
    #[must_use]
    pub fn new(product: Product, disk: Arc<Disk>, starter: Starter, trial_starts: u32, stopping: watch::Receiver<bool>) -> Self {
        Self { product, disk, starter, trial_starts, stopping, launch: None, starts: 0, pending: Vec::new() }
    }

    /// What runs, and the number of its start.
    #[must_use]
    pub fn running(&self) -> (u64, Option<Launch>) {
        (self.starts, self.launch.clone())
    }

    /// The starter.
    #[must_use]
    pub fn starter(&self) -> &Starter {
        &self.starter
    }

    /// Ends it, with a supervised process.
    pub async fn shutdown(self) {
        self.starter.shutdown().await;
    }

    /// What the disk says now.
    pub async fn found(&self) -> Found {
        let disk = Arc::clone(&self.disk);
        blocking(move || disk.found()).await
    }

    /// Finishes or takes back what the last run left, and tells what there is.
    pub async fn recover(&mut self) -> Recovered {
        let found = self.found().await;
        let recovery = recovery::recover(&found, self.trial_starts);
        let mut ending = recovery.ending;
        match ending {
            Ending::Trial(_) => {
                if let Err(Stopped::Failed(failure)) = self.run(&recovery.operations).await {
                    let way_back = recovery::give_up(&self.found().await, &failure.with_output());
                    self.insist(&way_back.operations).await;
                    ending = way_back.ending;
                }
            }
            Ending::Settled | Ending::Reverted(..) => {
                self.insist(&recovery.operations).await;
            }
        }
        let staged = self.checked_staged().await;
        let found = self.found().await;
        let (trial, reverted) = match ending {
            Ending::Settled => (None, None),
            Ending::Trial(release) => (Some(release), None),
            Ending::Reverted(release, reason) => (None, Some((release, reason))),
        };
        Recovered { running: found.running(), floor: found.floor(), trial, reverted, staged }
    }

    /// The release in the idle slot, if its file still has the signed digest.
    async fn checked_staged(&self) -> Option<Digest> {
        let found = self.found().await;
        let contents = found.staged()?.clone();
        let release = contents.release;
        match self.file(Operation::Verify(found.idle(), contents)).await {
            Ok(()) => Some(release),
            Err(failure) => {
                tracing::warn!(product = %self.product, %failure, "the staged version is damaged and will be staged again");
                None
            }
        }
    }

    /// Carries out a step.
    pub async fn execute(&mut self, step: &Step) -> Outcome {
        let pending = std::mem::take(&mut self.pending);
        self.insist(&pending).await;
        match step {
            Step::Stage { install } => self.stage(install).await,
            Step::Activate { install, claim } => self.activate(install, *claim).await,
            Step::Confirm { release } => self.confirm(*release).await,
            Step::Revert { release, reason } => self.revert(*release, reason).await,
            Step::Fetch { .. } | Step::CancelFetch { .. } => {
                tracing::warn!(product = %self.product, "a fetch is not for the device");
                Outcome::Nothing
            }
        }
    }

    async fn stage(&mut self, install: &Install) -> Outcome {
        let release = install.release;
        let failed = |failure: &Failure| {
            Outcome::Report(Report::StageFailed { release, fault: failure.fault, reason: Reason::lossy(&failure.reason) })
        };
        let found = self.found().await;
        let operations = match machine::stage(&found, install) {
            Err(refusal) => return failed(&Failure::broken(refusal.to_string())),
            Ok(Plan::Do(operations)) => operations,
            Ok(Plan::Done | Plan::TooLate) => return Outcome::Report(Report::Staged { release }),
        };
        let contents = Contents::of(install);
        if found.staged() == Some(&contents) && self.file(Operation::Verify(found.idle(), contents)).await.is_ok() {
            return Outcome::Report(Report::Staged { release });
        }
        match self.run(&operations).await {
            Ok(()) => Outcome::Report(Report::Staged { release }),
            Err(Stopped::Stopping) => Outcome::Stopping,
            Err(Stopped::Failed(failure)) => {
                let give_back = machine::unstage(&self.found().await);
                self.insist(&give_back).await;
                failed(&failure)
            }
        }
    }

    async fn activate(&mut self, install: &Install, claim: ClaimName) -> Outcome {
        let release = install.release;
        let failed = |failure: &Failure| Outcome::Report(Report::ActivateFailed { release, reason: failure.with_output() });
        let operations = match machine::activate(&self.found().await, install, claim) {
            Err(refusal) => return failed(&Failure::broken(refusal.to_string())),
            Ok(Plan::Do(operations)) => operations,
            Ok(Plan::Done | Plan::TooLate) => return Outcome::Report(Report::Activated { release }),
        };
        match self.run(&operations).await {
            Ok(()) => Outcome::Report(Report::Activated { release }),
            Err(Stopped::Stopping) => Outcome::Stopping,
            Err(Stopped::Failed(failure)) => failed(&failure),
        }
    }

    async fn confirm(&mut self, release: Digest) -> Outcome {
        let operations = match machine::confirm(&self.found().await, release) {
            Err(refusal) => {
                tracing::error!(product = %self.product, %release, %refusal, "asked to confirm what is not on trial");
                return Outcome::Nothing;
            }
            Ok(Plan::Do(operations)) => operations,
            Ok(Plan::Done | Plan::TooLate) => return Outcome::Report(Report::Confirmed { release }),
        };
        match self.run(&operations).await {
            Ok(()) => Outcome::Report(Report::Confirmed { release }),
            Err(Stopped::Stopping) => Outcome::Stopping,
            Err(Stopped::Failed(failure)) => {
                tracing::error!(product = %self.product, %failure, "cannot confirm yet; tried again");
                Outcome::Again
            }
        }
    }

    async fn revert(&mut self, release: Digest, reason: &Reason) -> Outcome {
        let found = self.found().await;
        let operations = match machine::revert(&found, release, reason) {
            Plan::TooLate => {
                // The decision to confirm is on disk already: finish it, whatever the core forgot.
                return self.confirm(release).await;
            }
            Plan::Done => {
                return Outcome::Report(Report::Reverted { release, running: found.running(), output: Reason::none() });
            }
            Plan::Do(operations) => operations,
        };
        let mut output = unsaid(&self.starter.output(), reason);
        let trouble = self.insist(&operations).await;
        let found = self.found().await;
        if found.current != found.confirmed.as_ref().map(|confirmed| confirmed.slot) {
            self.pending.clear();
            return Outcome::Again;
        }
        if let Some(failure) = trouble {
            let semicolon = if output.is_empty() { "" } else { "; and " };
            output = format!("{output}{semicolon}going back: {}", failure.with_output().as_str());
        }
        Outcome::Report(Report::Reverted { release, running: found.running(), output: Reason::lossy(&output) })
    }

    /// Does operations in order, up to the first failure.
    async fn run(&mut self, operations: &[Operation]) -> Result<(), Stopped> {
        for operation in operations {
            if *self.stopping.borrow() {
                return Err(Stopped::Stopping);
            }
            self.perform(operation).await?;
        }
        Ok(())
    }

    /// Does operations in order and goes on after a failure: on the way back every step that works helps.
    /// What the journal still lacks is kept for later. Returns the failure of a start.
    async fn insist(&mut self, operations: &[Operation]) -> Option<Failure> {
        let mut trouble = None;
        for (place, operation) in operations.iter().enumerate() {
            let mut left = match operation {
                Operation::Start(..) | Operation::Stop(..) => REVERT_STARTS,
                _ => 1,
            };
            let failure = loop {
                left -= 1;
                match self.perform(operation).await {
                    Ok(()) => break None,
                    Err(Stopped::Stopping) => return trouble,
                    Err(Stopped::Failed(failure)) if left == 0 => break Some(failure),
                    Err(Stopped::Failed(_)) => {}
                }
            };
            let Some(failure) = failure else { continue };
            tracing::error!(product = %self.product, %operation, %failure, "on the way back");
            match operation {
                Operation::Start(..) | Operation::Keep(..) | Operation::Stop(..) => trouble = Some(failure),
                Operation::Note(Entry { mark: Mark::Closed, .. }) => self.pending.push(operation.clone()),
                // A command would start what `current` still leads to: the rest comes when the disk takes writes again.
                Operation::Point(_) => {
                    self.pending.extend(operations.iter().skip(place).cloned());
                    return trouble;
                }
                _ => {}
            }
        }
        trouble
    }

    /// Does one operation. Public for the crash tests, which end between any two.
    ///
    /// # Errors
    /// Why it failed.
    pub async fn perform_one(&mut self, operation: &Operation) -> Result<(), Failure> {
        match self.perform(operation).await {
            Ok(()) => Ok(()),
            Err(Stopped::Failed(failure)) => Err(failure),
            Err(Stopped::Stopping) => Err(Failure::broken("the device stops")),
        }
    }

    async fn perform(&mut self, operation: &Operation) -> Result<(), Stopped> {
        let result = match operation {
            Operation::Start(slot, contents) => {
                let launch = self.launch(*slot, contents).await;
                self.note_start(Some(launch.clone()));
                stoppable(&mut self.stopping, self.starter.start(&launch)).await?
            }
            Operation::Keep(slot, contents) => {
                let launch = self.launch(*slot, contents).await;
                if self.launch.as_ref().map(|running| &running.binary) != Some(&launch.binary) {
                    self.note_start(Some(launch.clone()));
                }
                stoppable(&mut self.stopping, self.starter.keep(&launch)).await?
            }
            Operation::Stop(slot, contents) => {
                let launch = self.launch(*slot, contents).await;
                self.note_start(None);
                stoppable(&mut self.stopping, self.starter.stop(&launch)).await?
            }
            _ => self.file(operation.clone()).await,
        };
        result.map_err(Stopped::Failed)
    }

    async fn file(&self, operation: Operation) -> Result<(), Failure> {
        let disk = Arc::clone(&self.disk);
        blocking(move || disk.perform(&operation)).await
    }

    fn note_start(&mut self, launch: Option<Launch>) {
        self.launch = launch;
        self.starts = self.starts.saturating_add(1);
    }

    async fn launch(&self, slot: Slot, contents: &Contents) -> Launch {
        let found = self.found().await;
        let open = found.open().map(|entry| &entry.transaction).filter(|transaction| transaction.to == slot);
        let claim = open.and_then(|transaction| transaction.claim);
        Launch::new(self.product.clone(), self.disk.slots(), slot, contents.clone(), claim)
    }
}

/// Waits for `work`, or gives it up when the device stops.
async fn stoppable<T>(stopping: &mut watch::Receiver<bool>, work: impl Future<Output = T>) -> Result<T, Stopped> {
    tokio::select! {
        done = work => Ok(done),
        _ = stopping.wait_for(|stopping| *stopping) => Err(Stopped::Stopping),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Of the last lines of output, those that the reason for going back does not give already.
fn unsaid(output: &str, reason: &Reason) -> String {
    let is_news = |line: &&str| !reason.as_str().contains(Reason::lossy(line).as_str());
    output.split(" | ").filter(is_news).collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_that_the_reason_gives_is_not_given_again() {
        let reason = Reason::lossy("unhealthy: the process ended with status 1: no database | giving up");
        assert_eq!(unsaid("no database | giving up | no database", &reason), "");
        assert_eq!(unsaid("no database | no route to host", &reason), "no route to host");
        assert_eq!(unsaid("", &reason), "");
    }
}

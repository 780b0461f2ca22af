//! Carries out plans: files on a blocking thread, processes through the starter, one operation after the other.
//!
//! What follows a failure is decided here and only here: a failed stage gives back what it took; a failed activation
//! waits for the core's revert; a confirm or revert is never given up ([`Outcome::Again`]), for there is no other way.

use std::sync::Arc;
use std::time::Duration;

use groundswell_core::digest::Digest;
use groundswell_core::install::machine::{self, Cause, Plan, Refusal};
use groundswell_core::install::recovery::{self, Ending, Recovery};
use groundswell_core::install::{Contents, Denied, Entry, Found, Hook, Manner, Mark, Operation, Slot, Way};
use groundswell_core::limits::REASON_CHARS;
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Recovered, Report};
use groundswell_core::record::ClaimName;
use groundswell_core::record::status::Running;
use groundswell_core::text::{Product, Reason};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::activate::{Launch, Origin, Starter, hook};
use super::disk::{Disk, Failure};
use crate::config::HooksConfig;

/// How often the old version's start is tried in one revert before it is reported and left to its health check.
const REVERT_STARTS: u32 = 3;

/// Most characters of what was left, and of what went badly on the way back, where a verdict tells both.
const OUTPUT_CHARS: usize = 150;
const TROUBLE_CHARS: usize = 300;
const _: () = assert!(OUTPUT_CHARS + TROUBLE_CHARS + 40 <= REASON_CHARS, "both fit a reason, with what joins them");

/// From one try to go back at start-up to the next.
const RECOVERY_PAUSE: Duration = Duration::from_secs(5);

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and nearly all of them are reports")]
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
    hooks: HooksConfig,
    manner: Manner,
    stopping: watch::Receiver<bool>,
    /// What runs, as far as this run of the agent knows, and how often something was started.
    launch: Option<Launch>,
    starts: u64,
    /// Left over from a revert on a disk that was full.
    pending: Vec<Operation>,
}

enum Stopped {
    /// This operation failed, and why.
    Failed(Box<Operation>, Failure),
    Stopping,
}

/// How the way back went.
enum WayBack {
    /// To its end; what went badly, in order: starts and hooks, of which there are a handful.
    Done(Vec<Failure>),
    /// Something that it cannot do without failed: it goes on later.
    Unfinished(Failure),
    Stopping,
}

impl Executor {
    /// An executor over open files; `recover` comes first. It stops between operations once `stopping` is true.
    #[must_use]
    pub fn new(disk: Arc<Disk>, starter: Starter, hooks: HooksConfig, manner: Manner, stopping: watch::Receiver<bool>) -> Self {
        Self {
            product: disk.slots().product().clone(),
            disk,
            starter,
            hooks,
            manner,
            stopping,
            launch: None,
            starts: 0,
            pending: Vec::new(),
        }
    }

    /// What runs, and the number of its start.
    #[must_use]
    pub fn running(&self) -> (u64, Option<Launch>) {
        (self.starts, self.launch.clone().filter(|launch| self.starter.runs(launch)))
    }

    /// Which version runs: what `current` leads to, unless it is known that this is not what was started.
    fn what_runs(&self, found: &Found) -> Option<Running> {
        match self.starter.origin() {
            Origin::Current => found.running(),
            Origin::Slot(slot) => found.running_from(slot),
            Origin::Elsewhere => None,
        }
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
    ///
    /// # Errors
    /// Where it does not tell.
    pub async fn found(&self) -> Result<Found, Failure> {
        let disk = Arc::clone(&self.disk);
        blocking(move || disk.found()).await
    }

    /// The same, waiting for a disk that does not tell: nothing true could be said meanwhile. `None`: the device stops.
    async fn found_at_last(&mut self) -> Option<Found> {
        loop {
            match self.found().await {
                Ok(found) => return Some(found),
                Err(failure) => {
                    tracing::error!(product = %self.product, %failure, "tried again");
                    stoppable(&mut self.stopping, sleep(RECOVERY_PAUSE)).await.ok()?;
                }
            }
        }
    }

    /// Finishes or takes back what the last run left, and tells what there is; `None` when the device stops before
    /// that, or the machine restarts for it.
    pub async fn recover(&mut self) -> Option<Recovered> {
        let found = self.found_at_last().await?;
        if found.is_lost() {
            tracing::error!(product = %self.product, "{}", Refusal::Lost);
        }
        let mut recovery = recovery::recover(&found, self.manner);
        if matches!(recovery.ending, Ending::Trial(_) | Ending::Restarting) {
            match self.run(&recovery.operations).await {
                Ok(()) => {}
                Err(Stopped::Stopping) => return None,
                Err(Stopped::Failed(operation, failure)) => recovery.ending = self.give_up(&operation, &failure).await?,
            }
        } else {
            while !self.went_back(&recovery).await? {
                recovery = recovery::recover(&self.found_at_last().await?, self.manner);
            }
        }
        let ending = recovery.ending;
        let staged = self.checked_staged().await;
        let found = self.found_at_last().await?;
        let (trial, reverted, at_fault) = match ending {
            Ending::Settled | Ending::Restarting => (None, None, true),
            Ending::Trial(release) => (Some(release), None, true),
            Ending::Reverted(release, reason, at_fault) => (None, Some((release, reason)), at_fault),
        };
        let denied = found.denied.iter().flat_map(Denied::named).collect();
        Some(Recovered { running: self.what_runs(&found), floor: found.floor(), trial, reverted, at_fault, staged, denied })
    }

    /// Goes back after an operation of a recovered trial failed; where that leads.
    async fn give_up(&mut self, failed: &Operation, failure: &Failure) -> Option<Ending> {
        let cause = Cause { reason: failure.with_output(), at_fault: failure.at_fault };
        loop {
            let way_back = recovery::give_up(&self.found_at_last().await?, &cause, self.manner, failed);
            if self.went_back(&way_back).await? {
                return Some(way_back.ending);
            }
        }
    }

    /// Carries out a recovery that may not fail. `false`: the disk takes no writes, or the machine cannot be restarted;
    /// it has to be tried again, for there is no other way and nothing true could be told meanwhile. `None`: the device stops.
    async fn went_back(&mut self, recovery: &Recovery) -> Option<bool> {
        match self.insist(&recovery.operations).await {
            WayBack::Done(_) => Some(true),
            WayBack::Stopping => None,
            WayBack::Unfinished(failure) => {
                tracing::error!(product = %self.product, %failure, "cannot go back yet; tried again");
                self.pending.clear();
                stoppable(&mut self.stopping, sleep(RECOVERY_PAUSE)).await.ok()?;
                Some(false)
            }
        }
    }

    /// The release in the idle slot, if its file still has the signed digest.
    pub async fn checked_staged(&self) -> Option<Digest> {
        let found = self.found().await.ok()?;
        let (idle, contents) = (found.idle()?, found.staged()?.clone());
        let release = contents.release;
        match self.file(Operation::Verify(idle, contents)).await {
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
            Step::Activate { install, claim, within_ms } => {
                self.starter.allow(Duration::from_millis(*within_ms));
                self.activate(install, *claim).await
            }
            Step::Confirm { release } => self.confirm(*release).await,
            Step::Revert { release, reason, at_fault } => {
                self.revert(*release, &Cause { reason: reason.clone(), at_fault: *at_fault }).await
            }
            Step::Fetch { .. } | Step::CancelFetch { .. } => {
                tracing::warn!(product = %self.product, "a fetch is not for the device");
                Outcome::Nothing
            }
        }
    }

    async fn stage(&mut self, install: &Install) -> Outcome {
        let release = install.release;
        let failed = |failure: &Failure| {
            Outcome::Report(Report::StageFailed { release, fault: failure.fault, reason: failure.with_output() })
        };
        let found = match self.found().await {
            Ok(found) => found,
            Err(failure) => return failed(&failure),
        };
        let operations = match machine::stage(&found, install) {
            Err(refusal) => return failed(&Failure::broken(refusal.to_string())),
            Ok(Plan::Do(operations)) => operations,
            Ok(Plan::Done | Plan::TooLate) => return Outcome::Report(Report::Staged { release }),
        };
        let contents = Contents::of(install);
        if let Some(idle) = found.idle().filter(|_| found.staged() == Some(&contents))
            && self.file(Operation::Verify(idle, contents)).await.is_ok()
        {
            return Outcome::Report(Report::Staged { release });
        }
        match self.run(&operations).await {
            Ok(()) => Outcome::Report(Report::Staged { release }),
            Err(Stopped::Stopping) => Outcome::Stopping,
            Err(Stopped::Failed(_, failure)) => {
                if let Ok(found) = self.found().await {
                    self.insist(&machine::unstage(&found)).await;
                }
                failed(&failure)
            }
        }
    }

    async fn activate(&mut self, install: &Install, claim: ClaimName) -> Outcome {
        let release = install.release;
        let product = self.product.clone();
        let failed = |failure: &Failure| {
            let (reason, at_fault) = (failure.with_output(), failure.at_fault);
            if !at_fault {
                tracing::error!(%product, %failure, "the version cannot be switched to; it is not to blame");
            }
            Outcome::Report(Report::ActivateFailed { release, reason, at_fault })
        };
        let found = match self.found().await {
            Ok(found) => found,
            Err(failure) => return failed(&failure),
        };
        let operations = match machine::activate(&found, install, claim, self.manner) {
            // What the slots do not allow tells nothing of the release.
            Err(refusal) => return failed(&Failure::of_the_device(refusal.to_string())),
            Ok(Plan::Do(operations)) => operations,
            Ok(Plan::Done | Plan::TooLate) => return Outcome::Report(Report::Activated { release }),
        };
        match self.run(&operations).await {
            Ok(()) => Outcome::Report(Report::Activated { release }),
            Err(Stopped::Stopping) => Outcome::Stopping,
            Err(Stopped::Failed(_, failure)) => failed(&failure),
        }
    }

    async fn confirm(&mut self, release: Digest) -> Outcome {
        let found = match self.found().await {
            Ok(found) => found,
            Err(failure) => return self.again(&failure),
        };
        let operations = match machine::confirm(&found, release) {
            Err(refusal) => {
                tracing::error!(product = %self.product, %release, %refusal, "asked to confirm what is not on trial");
                return Outcome::Report(Report::ConfirmFailed { release, reason: Reason::lossy(&refusal.to_string()) });
            }
            Ok(Plan::Do(operations)) => operations,
            Ok(Plan::Done | Plan::TooLate) => return Outcome::Report(Report::Confirmed { release }),
        };
        match self.run(&operations).await {
            Ok(()) => Outcome::Report(Report::Confirmed { release }),
            Err(Stopped::Stopping) => Outcome::Stopping,
            Err(Stopped::Failed(_, failure)) => {
                tracing::error!(product = %self.product, %failure, "cannot confirm yet; tried again");
                Outcome::Again
            }
        }
    }

    /// A confirm or a revert of which the disk does not tell how far it is: tried again until it does.
    fn again(&self, failure: &Failure) -> Outcome {
        tracing::error!(product = %self.product, %failure, "tried again");
        Outcome::Again
    }

    async fn revert(&mut self, release: Digest, cause: &Cause) -> Outcome {
        let found = match self.found().await {
            Ok(found) => found,
            Err(failure) => return self.again(&failure),
        };
        let operations = match machine::revert(&found, release, cause, self.manner) {
            Plan::TooLate => {
                // The decision to confirm is on disk already: finish it, whatever the core forgot.
                return self.confirm(release).await;
            }
            Plan::Done => {
                return Outcome::Report(Report::Reverted { release, running: self.what_runs(&found), output: Reason::none() });
            }
            Plan::Do(operations) => operations,
        };
        let mut output = unsaid(&self.starter.output().await, &cause.reason);
        let trouble = match self.insist(&operations).await {
            WayBack::Done(trouble) => trouble,
            WayBack::Unfinished(_) => {
                self.pending.clear();
                return Outcome::Again;
            }
            WayBack::Stopping => return Outcome::Stopping,
        };
        let found = match self.found().await {
            Ok(found) => found,
            Err(failure) => return self.again(&failure),
        };
        if found.current != found.confirmed.as_ref().map(|confirmed| confirmed.slot) {
            self.pending.clear();
            return Outcome::Again;
        }
        if !trouble.is_empty() {
            output = with_trouble(&output, &trouble);
        }
        Outcome::Report(Report::Reverted { release, running: self.what_runs(&found), output: Reason::lossy(&output) })
    }

    /// Gives back the space of what can never run again, when there is too little. `true` when something was removed.
    pub async fn reclaim(&mut self) -> bool {
        let Ok(found) = self.found().await else { return false };
        let operations = machine::reclaim(&found);
        let mut removed = false;
        for operation in operations {
            match self.file(operation).await {
                Ok(()) => removed = true,
                Err(failure) => tracing::warn!(product = %self.product, %failure, "an old version is not removed"),
            }
        }
        removed
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
    /// What the disk still lacks is kept for later.
    async fn insist(&mut self, operations: &[Operation]) -> WayBack {
        let mut trouble = Vec::new();
        for (place, operation) in operations.iter().enumerate() {
            let closes = matches!(operation, Operation::Note(Entry { mark: Mark::Closed, .. }));
            if closes && !self.pending.is_empty() {
                self.pending.push(operation.clone());
                continue;
            }
            let mut left = match operation {
                Operation::Start(..) | Operation::Stop(..) => REVERT_STARTS,
                _ => 1,
            };
            let failure = loop {
                left -= 1;
                match self.perform(operation).await {
                    Ok(()) => break None,
                    Err(Stopped::Stopping) => return WayBack::Stopping,
                    Err(Stopped::Failed(_, failure)) if left == 0 => break Some(failure),
                    Err(Stopped::Failed(..)) => {}
                }
            };
            let Some(failure) = failure else { continue };
            tracing::error!(product = %self.product, %operation, %failure, "on the way back");
            match operation {
                Operation::Start(..) | Operation::Keep(..) | Operation::Stop(..) | Operation::Hook(..) => {
                    trouble.push(failure);
                }
                // The journal is closed last: what is still missing tells that the version was left.
                Operation::Deny(_) | Operation::Describe(..) => self.pending.push(operation.clone()),
                _ if closes => self.pending.push(operation.clone()),
                // A command would start what `current` still leads to: the rest comes when the disk takes writes again.
                Operation::Point(_) => {
                    self.pending.extend(operations.iter().skip(place).cloned());
                    return WayBack::Unfinished(failure);
                }
                // A restart that is not written down would be repeated for ever.
                Operation::Note(Entry { mark: Mark::Revert { way: Way::Restarting { .. }, .. }, .. })
                | Operation::Restart(..) => {
                    return WayBack::Unfinished(failure);
                }
                _ => {}
            }
        }
        WayBack::Done(trouble)
    }

    /// Does one operation. Public for the crash tests, which end between any two.
    ///
    /// # Errors
    /// Why it failed.
    pub async fn perform_one(&mut self, operation: &Operation) -> Result<(), Failure> {
        match self.perform(operation).await {
            Ok(()) => Ok(()),
            Err(Stopped::Failed(_, failure)) => Err(failure),
            Err(Stopped::Stopping) => Err(Failure::broken("the device stops")),
        }
    }

    async fn perform(&mut self, operation: &Operation) -> Result<(), Stopped> {
        let failed = |failure| Stopped::Failed(Box::new(operation.clone()), failure);
        let result = match operation {
            Operation::Start(slot, contents) => {
                let launch = self.launch(*slot, contents).await.map_err(failed)?;
                self.note_start(Some(launch.clone()));
                stoppable(&mut self.stopping, self.starter.start(&launch)).await?
            }
            Operation::Keep(slot, contents) => {
                let launch = self.launch(*slot, contents).await.map_err(failed)?;
                if self.launch.as_ref().map(|running| &running.binary) != Some(&launch.binary) {
                    self.note_start(Some(launch.clone()));
                }
                stoppable(&mut self.stopping, self.starter.keep(&launch)).await?
            }
            Operation::Stop(slot, contents) => {
                let launch = self.launch(*slot, contents).await.map_err(failed)?;
                self.note_start(None);
                stoppable(&mut self.stopping, self.starter.stop(&launch)).await?
            }
            Operation::Restart(slot, contents) => {
                let launch = self.launch(*slot, contents).await.map_err(failed)?;
                Err(stoppable(&mut self.stopping, self.starter.restart_machine(&launch)).await?)
            }
            Operation::Booted(slot, contents) => {
                let launch = self.launch(*slot, contents).await.map_err(failed)?;
                stoppable(&mut self.stopping, self.starter.booted(&launch)).await?
            }
            Operation::Hook(place, slot, contents) => self.hook(*place, *slot, contents).await?,
            _ => self.file(operation.clone()).await,
        };
        result.map_err(failed)
    }

    /// Runs a hook. From the decision to confirm on, its failure is only told.
    async fn hook(&mut self, place: Hook, slot: Slot, contents: &Contents) -> Result<Result<(), Failure>, Stopped> {
        if !self.hooks.commands.contains_key(&place) {
            return Ok(Ok(()));
        }
        let (launch, found) = match (self.launch(slot, contents).await, self.found().await) {
            (Ok(launch), Ok(found)) => (launch, found),
            (Err(failure), _) | (_, Err(failure)) => return Ok(Err(failure)),
        };
        let reason = match found.open() {
            Some(Entry { mark: Mark::Revert { reason, .. }, .. }) => Some(reason.clone()),
            _ => None,
        };
        let reason = reason.as_ref().map(Reason::as_str);
        let done = stoppable(&mut self.stopping, hook(&self.hooks, place, &launch, reason)).await?;
        match (done, place) {
            (Err(failure), Hook::AfterStage | Hook::BeforeConfirm | Hook::AfterConfirm) => {
                tracing::warn!(product = %self.product, %failure, output = failure.output, "the install goes on all the same");
                Ok(Ok(()))
            }
            (done, _) => Ok(done),
        }
    }

    async fn file(&self, operation: Operation) -> Result<(), Failure> {
        let disk = Arc::clone(&self.disk);
        blocking(move || disk.perform(&operation)).await
    }

    fn note_start(&mut self, launch: Option<Launch>) {
        self.launch = launch;
        self.starts = self.starts.saturating_add(1);
    }

    async fn launch(&self, slot: Slot, contents: &Contents) -> Result<Launch, Failure> {
        let found = self.found().await?;
        let open = found.open().map(|entry| &entry.transaction).filter(|transaction| transaction.to == slot);
        Ok(Launch::new(self.disk.slots(), slot, contents.clone(), open))
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

/// What was left printed, and all that went badly on the way back: each with its share, so that none hides another.
fn with_trouble(output: &str, trouble: &[Failure]) -> String {
    let share = TROUBLE_CHARS / trouble.len().max(1);
    let told = trouble.iter().map(|failure| failure.with_output().as_str().chars().take(share).collect::<String>());
    let told = told.collect::<Vec<_>>().join("; ");
    let surplus = output.chars().count().saturating_sub(OUTPUT_CHARS);
    let end: String = output.chars().skip(surplus).collect();
    let semicolon = if end.is_empty() { "" } else { "; and " };
    format!("{end}{semicolon}going back: {told}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_trouble_on_the_way_back_hides_another_however_long_they_are() {
        let failure = |name: &str| Failure { output: "é".repeat(400), ..Failure::broken(format!("hook {name}: failed")) };
        let trouble = ["before-revert", "start", "after-revert"].map(failure);
        let text = with_trouble(&format!("{} the end", "x".repeat(400)), &trouble);
        assert!(Reason::new(text.clone()).is_ok(), "{} characters", text.chars().count());
        for told in
            ["the end; and going back: ", "hook before-revert: failed: é", "; hook start: failed", "; hook after-revert: failed"]
        {
            assert!(text.contains(told), "{text}");
        }
        assert_eq!(with_trouble("", &[Failure::broken("no")]), "going back: no");
    }

    #[test]
    fn output_that_the_reason_gives_is_not_given_again() {
        let reason = Reason::lossy("unhealthy: the process ended with status 1: no database | giving up");
        assert_eq!(unsaid("no database | giving up | no database", &reason), "");
        assert_eq!(unsaid("no database | no route to host", &reason), "no route to host");
        assert_eq!(unsaid("", &reason), "");
    }
}

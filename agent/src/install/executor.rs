//! Carries out plans: files on a blocking thread, processes through the starter, one operation after the other.
//!
//! What follows a failure is decided here and only here: a failed stage gives back what it took; a failed activation
//! waits for the core's revert; a confirm or revert is never given up ([`Outcome::Again`]), for there is no other way.
//! How the way back is insisted on stands in `way_back`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use groundswell_core::digest::Digest;
use groundswell_core::install::machine::{self, Cause, Plan, Refusal};
use groundswell_core::install::recovery::{self, Ending};
use groundswell_core::install::{Contents, Denied, Entry, Found, Hook, Manner, Mark, Operation, Part, Slot};
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Recovered, Report};
use groundswell_core::record::ClaimName;
use groundswell_core::record::status::Running;
use groundswell_core::text::{Product, Reason};
use tokio::sync::watch;
use tokio::time::sleep;

use super::activate::{Launch, Starter, hook};
use super::disk::{Disk, Failure};
use super::ending::{Grace, ending, stoppable};
use super::told::{Trouble, told_at_start, told_of_way, unsaid};
use super::way_back::{Pauses, WayBack};
use crate::config::HooksConfig;
use crate::effects::blocking;

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and nearly all of them are reports")]
pub enum Outcome {
    /// Tell the core.
    Report(Report),
    /// The disk does not let it be finished now, or the old version does not start: try again soon.
    Again,
    /// The device stops; the next start goes on.
    Stopping,
    /// Nothing to tell: the step is not for here, or makes no sense.
    Nothing,
}

/// Carries out the plans of one product.
pub struct Executor {
    pub(super) product: Product,
    pub(super) disk: Arc<Disk>,
    pub(super) starter: Starter,
    hooks: HooksConfig,
    pub(super) manner: Manner,
    pub(super) stopping: watch::Receiver<bool>,
    grace: Grace,
    /// What runs, as far as this run of the agent knows, and how often something was started.
    launch: Option<Launch>,
    starts: u64,
    /// Left over from a revert on a disk that was full.
    pub(super) pending: Vec<Operation>,
    /// Recovery could not tell what failed here.
    untold: bool,
    /// What went badly on the way back that is under way.
    pub(super) trouble: Trouble,
    /// Whether a way back is held up, for those who tell of that.
    pub(super) held_up: Arc<AtomicBool>,
    pub(super) pauses: Pauses,
    /// Somebody goes on with what start-up cannot finish.
    pub(super) is_heard: bool,
    /// The machine started from something else than the confirmed version.
    strayed: bool,
}

pub(super) enum Stopped {
    /// This operation failed, and why.
    Failed(Box<Operation>, Failure),
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
            grace: Grace::default(),
            launch: None,
            starts: 0,
            pending: Vec::new(),
            untold: false,
            trouble: Trouble::default(),
            held_up: Arc::default(),
            pauses: Pauses::default(),
            is_heard: false,
            strayed: false,
        }
    }

    /// Says by `held_up` whether a way back cannot be finished for now.
    #[must_use]
    pub(super) fn telling(self, held_up: Arc<AtomicBool>) -> Self {
        Self { held_up, ..self }.heard()
    }

    /// At start-up it tells of a way back that does not end, for there is somebody who goes on with it.
    #[must_use]
    pub fn heard(self) -> Self {
        Self { is_heard: true, ..self }
    }

    /// How long what is under way may take once the device is to stop.
    #[must_use]
    pub fn ending_within(self, grace: Grace) -> Self {
        Self { grace, ..self }
    }

    /// With other pauses on the way back.
    #[must_use]
    pub fn pausing(self, pauses: Pauses) -> Self {
        Self { pauses, ..self }
    }

    /// What runs, and the number of its start.
    #[must_use]
    pub fn running(&self) -> (u64, Option<Launch>) {
        (self.starts, self.launch.clone().filter(|launch| self.starter.runs(launch)))
    }

    /// Which version runs: what `current` leads to, unless it is known that this is not what was started.
    pub(crate) fn what_runs(&self, found: &Found) -> Option<Running> {
        self.starter.origin().running(found).filter(|_| !self.strayed)
    }

    /// Whether the machine has started from something else than the confirmed version.
    pub(crate) fn has_left(&self) -> bool {
        self.strayed
    }

    /// The starter.
    #[must_use]
    pub fn starter(&self) -> &Starter {
        &self.starter
    }

    /// Ends it, with a supervised process.
    pub async fn shutdown(self) {
        // What this run started did not fail for that.
        if self.launch.is_some()
            && let Some(note) = machine::stop(&self.look().await, self.manner)
            && let Err(failure) = self.file(note).await
        {
            tracing::warn!(product = %self.product, %failure, "the next start counts as one more of the version on trial");
        }
        self.starter.shutdown().await;
    }

    /// What the disk says now.
    ///
    /// # Errors
    /// Where it does not tell all of it.
    pub async fn found(&self) -> Result<Found, Failure> {
        let disk = Arc::clone(&self.disk);
        let origin = self.starter.origin().slot();
        blocking(move || disk.found()).await.map(|found| Found { origin, ..found })
    }

    /// The same, with what it does not tell named.
    pub(super) async fn look(&self) -> Found {
        let disk = Arc::clone(&self.disk);
        Found { origin: self.starter.origin().slot(), ..blocking(move || disk.look()).await }
    }

    /// What the disk says once it is `enough`: nothing true could be said meanwhile, but what is known to run is kept running.
    /// `None`: the device stops.
    async fn once(&mut self, enough: impl Fn(&Found) -> bool) -> Option<Found> {
        loop {
            let found = self.look().await;
            if enough(&found) {
                return Some(found);
            }
            let unread = found.unread.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            tracing::error!(product = %self.product, unread, "the disk does not tell what is installed; tried again");
            if found.open().is_none()
                && let WayBack::Stopping = self.insist(&recovery::recover(&found, self.manner).operations).await
            {
                return None;
            }
            stoppable(&mut self.stopping, sleep(self.pauses.first)).await.ok()?;
        }
    }

    /// Enough to finish or take back what the last run left: an open journal says by itself where the way leads.
    async fn enough_to_recover(&mut self) -> Option<Found> {
        self.once(|found| found.open().is_some() || !found.is_unsure()).await
    }

    /// Finishes or takes back what the last run left, and tells what there is; `None` when the device stops before
    /// that, or the machine restarts for it.
    pub async fn recover(&mut self) -> Option<Recovered> {
        let found = self.enough_to_recover().await?;
        if found.is_lost() {
            tracing::error!(product = %self.product, "{}", Refusal::Lost);
        }
        let open = found.open().map(|entry| (entry.transaction.claim, entry.mark == Mark::Confirm));
        let mut recovery = recovery::recover(&found, self.manner);
        // What a version that is left said last: what comes in its place speaks next.
        let left = match &recovery.ending {
            Ending::Reverted(_, reason, _) => unsaid(&self.starter.output().await, reason),
            _ => String::new(),
        };
        // Of a way back that is under way each try counts.
        let goes_back = matches!(found.open(), Some(Entry { mark: Mark::Revert { .. }, .. }));
        if !goes_back && matches!(recovery.ending, Ending::Trial(_) | Ending::Restarting) {
            match self.run(&recovery.operations).await {
                Ok(()) => {}
                Err(Stopped::Stopping) => return None,
                Err(Stopped::Failed(operation, failure)) => match self.give_up(&operation, &failure).await? {
                    Ok(ending) => recovery.ending = ending,
                    Err(told) => return Some(*told),
                },
            }
        } else {
            let mut tries = 0;
            while let Err(again) = self.went_back(&recovery, tries).await? {
                let found = self.enough_to_recover().await?;
                if let Some(told) = self.unfinished(&found) {
                    return Some(told);
                }
                recovery = recovery::try_again(&found, self.manner, again.answered);
                tries += 1;
            }
        }
        let ending = recovery.ending;
        let staged = self.checked_staged().await;
        let found = self.once(|found| !found.unread.contains(&Part::Current)).await?;
        if let Some((_, true)) = open
            && let Some((slot, contents)) = self.starter.origin().gives_way_to(&found)
            && let Err(Stopped::Stopping) = self.perform(&Operation::Restart(slot, contents)).await
        {
            return None;
        }
        self.untold = found.unread.contains(&Part::Denied);
        let (trial, reverted, at_fault) = match ending {
            Ending::Settled | Ending::Restarting => (None, None, true),
            Ending::Trial(release) => (Some(release), None, true),
            Ending::Reverted(release, reason, at_fault) => {
                (None, Some((release, told_at_start(&reason, &left, self.trouble.take()))), at_fault)
            }
        };
        let denied = found.denied.iter().flat_map(Denied::named).collect();
        let claim = open.and_then(|(claim, _)| claim);
        let failed = found.denied_last().and_then(Denied::went_back).map(Box::new);
        self.strayed = trial.is_none() && self.has_strayed(&found).await?;
        let (running, floor) = (self.what_runs(&found), found.floor());
        let going_back = None;
        Some(Recovered { running, floor, trial, going_back, reverted, at_fault, claim, failed, staged, denied })
    }

    /// Goes back after an operation of a recovered trial failed; where that leads.
    async fn give_up(&mut self, failed: &Operation, failure: &Failure) -> Option<Result<Ending, Box<Recovered>>> {
        let cause = Cause { reason: failure.with_output(), at_fault: failure.at_fault };
        let mut way_back = recovery::give_up(&self.look().await, &cause, self.manner, failed, failure.answered);
        let mut tries = 0;
        while let Err(again) = self.went_back(&way_back, tries).await? {
            let found = self.look().await;
            if let Some(told) = self.unfinished(&found) {
                return Some(Err(Box::new(told)));
            }
            way_back = match found.open() {
                Some(Entry { mark: Mark::Revert { .. }, .. }) => recovery::try_again(&found, self.manner, again.answered),
                _ => recovery::give_up(&found, &cause, self.manner, failed, failure.answered),
            };
            tries += 1;
        }
        Some(Ok(way_back.ending))
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
        self.settle().await;
        if let Some(owing) = self.owing(step) {
            return owing;
        }
        match step {
            Step::Stage { install } => self.stage(install).await,
            Step::Activate { install, claim, within_ms } => {
                self.starter.allow(*claim, Duration::from_millis(*within_ms)).await;
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
        let found = self.look().await;
        let operations = match machine::stage(&found, install) {
            Err(refusal) => return failed(&Failure::refused(&refusal)),
            Ok(Plan::Do(operations)) => operations,
            Ok(Plan::Done | Plan::TooLate) => return Outcome::Report(Report::Staged { release }),
        };
        if self.strayed && found.standing().is_some_and(|confirmed| confirmed.contents.release == release) {
            return failed(&Failure::of_the_device("the machine left this version, which is confirmed, for another system"));
        }
        if found.good().is_none()
            && let Err(missing) = self.starter.leads_back()
        {
            return failed(&missing);
        }
        let contents = Contents::of(install);
        // Whoever gives the order could not be told at start-up; the next start tells.
        if let Some(denied) = found.denied.iter().find(|denied| self.untold && denied.names(&contents)) {
            return failed(&Failure::of_the_device(format!("this build failed here before: {}", denied.reason.as_str())));
        }
        if let Some(idle) = found.idle().filter(|_| found.staged() == Some(&contents))
            && self.file(Operation::Verify(idle, contents)).await.is_ok()
        {
            return Outcome::Report(Report::Staged { release });
        }
        match self.run(&operations).await {
            Ok(()) => Outcome::Report(Report::Staged { release }),
            Err(Stopped::Stopping) => Outcome::Stopping,
            Err(Stopped::Failed(_, failure)) => {
                self.insist(&machine::unstage(&self.look().await)).await;
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
        let found = self.look().await;
        if machine::held_up(&found).is_some() {
            // It is told of no other version.
            drop(self.trouble.take());
        } else if found.open().is_none() {
            self.starter.begins();
        }
        let operations = match machine::activate(&found, install, claim, self.manner) {
            // What the slots do not allow tells nothing of the release.
            Err(refusal) => return failed(&Failure::of_the_device(refusal.to_string())),
            Ok(Plan::Do(operations)) => operations,
            Ok(Plan::Done | Plan::TooLate) => return Outcome::Report(Report::Activated { release }),
        };
        // Staged by a build that did not ask.
        if found.good().is_none()
            && let Err(missing) = self.starter.leads_back()
        {
            return failed(&missing);
        }
        match self.run(&operations).await {
            Ok(()) => Outcome::Report(Report::Activated { release }),
            Err(Stopped::Stopping) => Outcome::Stopping,
            Err(Stopped::Failed(_, failure)) => failed(&failure),
        }
    }

    async fn confirm(&mut self, release: Digest) -> Outcome {
        let found = self.look().await;
        if is_untold(&found, release) {
            return self.again(&found);
        }
        let operations = match machine::confirm(&found, release) {
            Err(refusal) => {
                tracing::error!(product = %self.product, %release, %refusal, "asked to confirm what is not on trial");
                let reason = Reason::lossy(&refusal.to_string());
                return Outcome::Report(Report::ConfirmFailed { release, reason, at_fault: false });
            }
            Ok(Plan::Do(operations)) => operations,
            Ok(Plan::Done | Plan::TooLate) => return Outcome::Report(Report::Confirmed { release }),
        };
        match self.run(&operations).await {
            Ok(()) => Outcome::Report(Report::Confirmed { release }),
            Err(Stopped::Stopping) => Outcome::Stopping,
            Err(Stopped::Failed(operation, failure)) if matches!(*operation, Operation::Hook(..)) => {
                let at_fault = failure.at_fault && failure.answered;
                Outcome::Report(Report::ConfirmFailed { release, reason: failure.with_output(), at_fault })
            }
            Err(Stopped::Failed(_, failure)) => {
                tracing::error!(product = %self.product, %failure, "cannot confirm yet; tried again");
                Outcome::Again
            }
        }
    }

    /// A confirm or a revert of which the disk does not tell how far it is: tried again until it does.
    fn again(&self, found: &Found) -> Outcome {
        let unread = found.unread.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        tracing::error!(product = %self.product, unread, "the disk does not tell how far it is; tried again");
        Outcome::Again
    }

    async fn revert(&mut self, release: Digest, cause: &Cause) -> Outcome {
        let found = self.look().await;
        if is_untold(&found, release) {
            return self.again(&found);
        }
        let home = found.open().and_then(|entry| entry.transaction.from);
        let operations = match machine::revert(&found, release, cause, self.manner) {
            Plan::TooLate => {
                // The decision to confirm is on disk already: finish it, whatever the core forgot.
                return self.confirm(release).await;
            }
            Plan::Done => {
                return Outcome::Report(Report::Reverted { release, running: self.what_runs(&found), output: Reason::none() });
            }
            Plan::Do(operations) if found.open().is_none() => {
                self.insist(&operations).await;
                return Outcome::Report(Report::Reverted { release, running: self.what_runs(&found), output: Reason::none() });
            }
            Plan::Do(operations) => operations,
        };
        let output = unsaid(&self.starter.output().await, &cause.reason);
        match self.insist(&operations).await {
            WayBack::Done => {}
            WayBack::Unfinished(unfinished) => {
                tracing::error!(product = %self.product, failure = %unfinished.failure, "cannot go back yet; tried again");
                self.pending.clear();
                return Outcome::Again;
            }
            WayBack::Stopping => return Outcome::Stopping,
        }
        let found = self.look().await;
        if found.unread.contains(&Part::Current) || found.current != home {
            self.pending.clear();
            return Outcome::Again;
        }
        let output = told_of_way(&output, &self.trouble.take());
        Outcome::Report(Report::Reverted { release, running: self.what_runs(&found), output: Reason::lossy(&output) })
    }

    /// Gives back the space of what can never run again, when there is too little. `true` when something was removed.
    pub async fn reclaim(&mut self) -> bool {
        let operations = machine::reclaim(&self.look().await);
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

    pub(super) async fn perform(&mut self, operation: &Operation) -> Result<(), Stopped> {
        let failed = |failure| Stopped::Failed(Box::new(operation.clone()), failure);
        let result = match operation {
            Operation::Start(slot, contents) => {
                let launch = self.launch(*slot, contents).await;
                self.note_start(Some(launch.clone()));
                let started = ending(&self.stopping, self.grace, self.starter.start(&launch)).await?;
                self.noting_trouble(started)
            }
            Operation::Keep(slot, contents) => {
                let launch = self.launch(*slot, contents).await;
                if self.launch.as_ref().map(|running| &running.binary) != Some(&launch.binary) {
                    self.note_start(Some(launch.clone()));
                }
                ending(&self.stopping, self.grace, self.starter.keep(&launch)).await?
            }
            Operation::Stop(slot, contents) => {
                let launch = self.launch(*slot, contents).await;
                self.note_start(None);
                let stopped = ending(&self.stopping, self.grace, self.starter.stop(&launch)).await?;
                self.noting_trouble(stopped)
            }
            Operation::Restart(slot, contents) => {
                let launch = self.launch(*slot, contents).await;
                Err(stoppable(&mut self.stopping, self.starter.restart_machine(&launch)).await?)
            }
            Operation::Booted(slot, contents) => {
                let launch = self.launch(*slot, contents).await;
                stoppable(&mut self.stopping, self.starter.booted(&launch)).await?
            }
            Operation::Left(slot, contents) => {
                let launch = self.launch(*slot, contents).await;
                stoppable(&mut self.stopping, self.starter.left(&launch)).await?
            }
            Operation::Hook(place, slot, contents) => self.hook(*place, *slot, contents).await?,
            _ => self.file(operation.clone()).await,
        };
        result.map_err(failed)
    }

    /// What was done although something was not as it should be.
    fn noting_trouble(&mut self, done: Result<Option<Failure>, Failure>) -> Result<(), Failure> {
        if let Some(trouble) = done? {
            tracing::error!(product = %self.product, failure = %trouble, "gone on with all the same");
            self.trouble.add(trouble);
        }
        Ok(())
    }

    /// Runs a hook. From the decision to confirm on, its failure is only told.
    async fn hook(&mut self, place: Hook, slot: Slot, contents: &Contents) -> Result<Result<(), Failure>, Stopped> {
        if !self.hooks.commands.contains_key(&place) {
            return Ok(Ok(()));
        }
        let launch = self.launch(slot, contents).await;
        let goes_back = matches!(place, Hook::BeforeRevert | Hook::AfterRevert);
        let reason = match self.look().await.open() {
            Some(Entry { mark: Mark::Revert { reason, .. }, .. }) if goes_back => Some(reason.clone()),
            _ => None,
        };
        let reason = reason.as_ref().map(Reason::as_str);
        let done = ending(&self.stopping, self.grace, hook(&self.hooks, place, &launch, reason)).await?;
        match (done, place) {
            // By it the boot loader is told to stay with a version.
            (Err(failure), Hook::BeforeConfirm) if machine::is_asked(self.manner) => Ok(Err(failure)),
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

    async fn launch(&self, slot: Slot, contents: &Contents) -> Launch {
        let found = self.look().await;
        let open = found.open().map(|entry| &entry.transaction).filter(|transaction| transaction.to == slot);
        Launch::new(self.disk.slots(), slot, contents.clone(), open)
    }
}

/// Whether the disk does not tell at present how far this release is; an open journal says it by itself.
fn is_untold(found: &Found, release: Digest) -> bool {
    found.is_unsure() && found.open().is_none_or(|entry| entry.transaction.contents.release != release)
}

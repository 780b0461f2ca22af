//! Installs of one product inside the helper: the executor of an agent without a helper, behind a warrant.
//!
//! The bytes come from a file that the agent had open; their path is never looked at. They are copied into a file that
//! is made here, and whatever the agent does to its own file meanwhile, only what was copied is hashed and kept.

use std::fs::File;
use std::io::{self, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use groundswell_core::digest::Digest;
use groundswell_core::install::{Boot, Contents, Denied, Entry, Found, Mark, Operation, SlotState};
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::hold::Hold;
use groundswell_core::node::input::{Fault, Report};
use groundswell_core::node::warrant::{Unwarranted, Warrant};
use groundswell_core::record::ClaimName;
use groundswell_core::text::{Product, Reason};
use tokio::sync::watch;
use tokio::time::Instant;

use super::memory::Memory;
use super::wire::{GoingBack, LastFailure, Launched, Outcome, Reply, State, TakenBack, Why};
use crate::clock;
use crate::config::HelperProduct;
use crate::effects::blocking;
use crate::install::activate::{Launch, Starter};
use crate::install::artifact::ArtifactSource;
use crate::install::disk::{Disk, Failure, Place};
use crate::install::durable::make_folder;
use crate::install::ending::Grace;
use crate::install::executor::{self, Executor};
use crate::install::files::Files;
use crate::install::lock::{Lock, lock};
use crate::install::slots::Room;
use crate::install::way_back::Pauses;

/// Only an agent that is its own product asks for the time of a trial, and no helper starts one.
const NO_MATTER_MS: u64 = 0;

/// What the service manager leaves the helper to stop: `TimeoutStopSec` of its unit.
pub const STOPS_WITHIN: Duration = Duration::from_secs(120);

/// A switch that failed is taken back after this, where no agent lives to ask for it.
const UNASKED: Duration = Duration::from_secs(60);

/// The documents, shared by the desks of all products.
pub type SharedMemory = Arc<Mutex<Memory>>;

/// The file that the order under way came with.
#[derive(Debug, Default)]
struct Handed(Mutex<Option<File>>);

impl ArtifactSource for Handed {
    fn open(&self, _: &Digest) -> io::Result<File> {
        let handed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = handed.as_ref().ok_or(io::ErrorKind::NotFound)?.try_clone()?;
        // Where the agent left its place in it is its own affair.
        file.rewind()?;
        Ok(file)
    }
}

/// What a desk needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The product.
    pub product: Product,
    /// Its folder.
    pub folder: PathBuf,
    /// How it is installed.
    pub config: HelperProduct,
    /// How much its slots may take, and what staging leaves free.
    pub room: Room,
    /// Largest artifact, in bytes.
    pub artifact_bytes: u64,
    /// The present run of the machine.
    pub boot: Boot,
}

/// One product's installs.
pub struct Desk {
    settings: Settings,
    memory: SharedMemory,
    executor: Executor,
    disk: Arc<Disk>,
    handed: Arc<Handed>,
    /// What was taken back without an order.
    reverted: Option<TakenBack>,
    /// Why the switch failed that waits to be taken back, and whether its build is to blame.
    failed: Option<(Reason, bool)>,
    /// When a way back is gone on with, though nobody asks.
    again: Option<Again>,
    _lock: Lock,
}

/// A way back that has not ended.
#[derive(Clone, Copy, Debug)]
struct Again {
    tries: u32,
    at: Instant,
}

impl Again {
    /// The next try after so many: it stops and starts things, and is done again after twice the time of before.
    fn after(tries: u32) -> Self {
        Self { tries, at: Instant::now() + Pauses::default().after(tries) }
    }
}

/// Why an order was refused.
type Refusal = (Why, String);

impl Desk {
    /// Opens the product's folder; [`Desk::recover`] comes first.
    ///
    /// # Errors
    /// What the file system says; `AlreadyExists` when another process has the folder.
    pub async fn open(
        settings: Settings,
        files: Arc<dyn Files>,
        memory: SharedMemory,
        stopping: watch::Receiver<bool>,
    ) -> io::Result<Self> {
        let handed = Arc::new(Handed::default());
        let Settings { product, folder, room, boot, config, .. } = settings.clone();
        let place = Place { files, folder: folder.clone(), product, boot, room };
        // Nothing is read before nobody else writes.
        make_folder(&*place.files, &folder)?;
        let lock = lock(&folder)?.ok_or(io::ErrorKind::AlreadyExists)?;
        let disk = Arc::new(Disk::open(place, Arc::<Handed>::clone(&handed))?);
        let starter = Starter::open(&config.activator, &folder, None).await;
        let executor = Executor::new(Arc::clone(&disk), starter, config.hooks.clone(), config.manner(), stopping)
            .ending_within(Grace::within(STOPS_WITHIN))
            .heard();
        let (reverted, failed, again) = (None, None, None);
        Ok(Self { settings, memory, executor, disk, handed, reverted, failed, again, _lock: lock })
    }

    /// Finishes or takes back what the last run left; `false` when the helper stops before that. A way back that does not end is gone
    /// on with later, so that whoever has something else to put in its place is heard.
    pub async fn recover(&mut self) -> bool {
        let Some(recovered) = self.executor.recover().await else { return false };
        let at_fault = recovered.at_fault;
        self.again = recovered.going_back.map(|_| Again::after(0));
        self.reverted = recovered.reverted.map(|(release, reason)| TakenBack { release, reason, at_fault });
        self.raise_floor().await;
        true
    }

    /// What slots and journal say.
    ///
    /// `checked`: the file in the idle slot is read and hashed for it.
    ///
    /// # Errors
    /// Where the disk does not tell.
    pub async fn state(&self, checked: bool) -> Result<State, Failure> {
        let found = self.executor.found().await?;
        let staged = match checked {
            true => self.executor.checked_staged().await,
            false => found.staged().map(|contents| contents.release),
        };
        let trial = found.open().filter(|entry| matches!(entry.mark, Mark::Watch { .. }));
        Ok(State {
            running: self.executor.what_runs(&found),
            floor: found.floor(),
            trial: trial.map(|entry| entry.transaction.contents.release),
            reverted: self.reverted.clone(),
            staged,
            denied: found.denied.iter().flat_map(Denied::named).collect(),
            launch: self.launched(&found).filter(|_| !self.executor.has_left()).as_ref().map(launched),
        })
    }

    /// What an agent hears that has just started.
    pub async fn tell(&self) -> Reply {
        let told = async {
            let state = self.state(true).await?;
            let going_back = self.going_back(&self.executor.found().await?);
            Ok::<_, Failure>(going_back.map_or_else(|| Reply::State(state.clone()), |it| Reply::GoesBack(it, state.clone())))
        };
        told.await.unwrap_or_else(|failure| refused((Why::Disk, failure.to_string())))
    }

    /// What is being left: between two orders nothing else stands open but a stage, a trial, or a confirm.
    fn going_back(&self, found: &Found) -> Option<GoingBack> {
        // Of one that has only to be written down the old version runs.
        let Entry { transaction, mark } = found.open().filter(|_| !self.executor.owes())?;
        let (reason, at_fault) = match mark {
            Mark::Stage | Mark::Watch(_) | Mark::Confirm | Mark::Closed => return None,
            Mark::Revert { reason, at_fault, .. } => (reason.clone(), *at_fault),
            Mark::Switch | Mark::Activate(_) | Mark::Reboot { .. } => {
                self.failed.clone().unwrap_or((Reason::lossy("its switch did not come to an end"), false))
            }
        };
        Some(GoingBack { release: transaction.contents.release, reason, at_fault, claim: transaction.claim })
    }

    /// Whether a way back has not ended.
    pub fn goes_back(&self) -> bool {
        self.again.is_some()
    }

    /// The last upgrade that went back for a fault of its build.
    ///
    /// # Errors
    /// Where the disk does not tell.
    pub async fn last_failure(&self) -> Result<Option<LastFailure>, Failure> {
        let found = self.executor.found().await?;
        Ok(found.denied_last().and_then(Denied::went_back).map(LastFailure::from))
    }

    /// What `current` leads to.
    fn launched(&self, found: &Found) -> Option<Launch> {
        let slot = found.current?;
        let confirmed = found.confirmed.as_ref().filter(|confirmed| confirmed.slot == slot);
        let contents = confirmed
            .map(|confirmed| &confirmed.contents)
            .or_else(|| found.described(slot).map(|described| &described.contents))?;
        let open = found.open().map(|entry| &entry.transaction).filter(|transaction| transaction.to == slot);
        Some(Launch::new(self.disk.slots(), slot, contents.clone(), open))
    }

    /// Copies an open file of the agent's into the idle slot, if documents warrant that; gives the file back, for closing it
    /// may take as long as the agent likes.
    pub async fn stage(&mut self, release: Digest, file: Option<File>) -> (Reply, Option<File>) {
        let install = match self.warrant(release, None).await {
            Ok(warrant) => warrant.install,
            Err(refusal) => return (refused(refusal), file),
        };
        // Whatever was taken back of it is heard and forgiven: it is not told again of the next try.
        self.reverted.take_if(|taken| taken.release == release);
        let Some(file) = file else {
            return (refused((Why::File, "no open file came with the order".to_owned())), None);
        };
        let size_bytes = install.artifact.size;
        let (file, looked) = blocking(move || {
            let looked = look(&file, size_bytes);
            (file, looked)
        })
        .await;
        if let Err(text) = looked {
            return (refused((Why::File, text)), Some(file));
        }
        *self.handed.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        let mut reply = self.execute(Step::Stage { install }).await;
        let file = self.handed.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Reply::Done { outcome: outcome @ Outcome::Staged, state } = &mut reply {
            // The copy itself is read once more, from where it lies.
            state.staged = self.reads_back(release).await.then_some(release);
            if state.staged.is_none() {
                let reason = Reason::lossy("the copy does not read back as it was written");
                *outcome = Outcome::StageFailed { disk_full: false, reason };
            }
        }
        (reply, file)
    }

    /// Whether the idle slot holds it whole; also in the middle of a way back, in the place of which it is to come.
    async fn reads_back(&mut self, release: Digest) -> bool {
        let Ok(found) = self.executor.found().await else { return false };
        let Some(idle) = found.idle() else { return false };
        let Some(described) = found.described(idle).filter(|slot| slot.state == SlotState::Staged) else { return false };
        let contents = described.contents.clone();
        contents.release == release && self.executor.perform_one(&Operation::Verify(idle, contents)).await.is_ok()
    }

    /// Switches to what is staged, if documents still warrant it.
    pub async fn activate(&mut self, release: Digest, claim: ClaimName) -> Reply {
        let found = match self.executor.found().await {
            Ok(found) => found,
            Err(failure) => return refused((Why::Disk, failure.to_string())),
        };
        // On trial already: asked a second time, after a connection that broke.
        if let Some(entry) = found.open().filter(|entry| matches!(entry.mark, Mark::Watch { .. }))
            && entry.transaction.contents.release == release
        {
            return self.done(Outcome::Activated).await;
        }
        match self.warrant(release, Some(claim)).await {
            Ok(Warrant { install, .. }) => {
                self.reverted = None;
                self.execute(Step::Activate { install, claim, within_ms: NO_MATTER_MS }).await
            }
            Err(refusal) => refused(refusal),
        }
    }

    /// Makes what is on trial the good version. What was taken back meanwhile is not, and the answer says why: an agent that has
    /// gone on all the time has not heard of it.
    pub async fn confirm(&mut self, release: Digest) -> Reply {
        let reply = self.execute(Step::Confirm { release }).await;
        match (reply, self.taken_back(release)) {
            (Reply::Done { outcome: Outcome::ConfirmFailed { .. }, state }, Some(taken)) => {
                let reason = taken.reason.clone();
                let outcome = if taken.at_fault { Outcome::ConfirmRefused { reason } } else { Outcome::ConfirmFailed { reason } };
                Reply::Done { outcome, state }
            }
            (reply, _) => reply,
        }
    }

    /// Goes back to the last confirmed version. Where that has happened already, the answer says what for.
    pub async fn revert(&mut self, release: Digest, reason: Reason, at_fault: bool) -> Reply {
        let reply = self.execute(Step::Revert { release, reason: reason.clone(), at_fault }).await;
        match (reply, self.taken_back(release).filter(|taken| !reason.as_str().contains(taken.reason.as_str()))) {
            (Reply::Done { outcome: Outcome::Reverted { running, output }, state }, Some(taken)) if output.is_empty() => {
                Reply::Done { outcome: Outcome::Reverted { running, output: taken.reason.clone() }, state }
            }
            (reply, _) => reply,
        }
    }

    fn taken_back(&self, release: Digest) -> Option<&TakenBack> {
        self.reverted.as_ref().filter(|taken| taken.release == release)
    }

    /// Goes on with a way back that nobody has asked for of late: the agent may have ended, or be one that does not hear of it.
    async fn go_on(&mut self) {
        if self.again.is_none_or(|again| Instant::now() < again.at) {
            return;
        }
        let Ok(found) = self.executor.found().await else { return };
        let Some(GoingBack { release, reason, at_fault, .. }) = self.going_back(&found) else {
            self.again = None;
            return;
        };
        if let Reply::Done { outcome: Outcome::Reverted { output, .. }, .. } =
            self.execute(Step::Revert { release, reason: reason.clone(), at_fault }).await
        {
            let reason = if output.is_empty() { reason } else { Reason::lossy(&format!("{reason}: {output}")) };
            self.reverted = Some(TakenBack { release, reason, at_fault });
        }
    }

    /// Looks after its ground at rest: goes on with a way back, gives back the space of what can never run again, where there is too little, and
    /// holds the reserve again, where it was used up and there is space.
    pub async fn tidy(&mut self) {
        self.executor.settle().await;
        self.go_on().await;
        let disk = Arc::clone(&self.disk);
        if blocking(move || disk.is_short_of_space()).await {
            self.executor.reclaim().await;
        }
        let disk = Arc::clone(&self.disk);
        if !blocking(move || disk.is_short_of_space()).await {
            let disk = Arc::clone(&self.disk);
            blocking(move || disk.make_reserve()).await;
        }
    }

    /// Ends it.
    pub async fn shutdown(self) {
        self.executor.shutdown().await;
    }

    async fn execute(&mut self, step: Step) -> Reply {
        let outcome = self.executor.execute(&step).await;
        self.note(&step, &outcome);
        let disk = Arc::clone(&self.disk);
        blocking(move || disk.make_reserve()).await;
        self.raise_floor().await;
        self.done(told(outcome)).await
    }

    /// What is left open by it, and when that is gone on with where nobody asks.
    fn note(&mut self, step: &Step, outcome: &executor::Outcome) {
        match (step, outcome) {
            (Step::Activate { .. }, executor::Outcome::Report(Report::ActivateFailed { reason, at_fault, .. })) => {
                self.failed = Some((reason.clone(), *at_fault));
                self.again = Some(Again { tries: 0, at: Instant::now() + UNASKED });
            }
            (Step::Revert { .. }, executor::Outcome::Again) => {
                let tries = self.again.map_or(0, |again| again.tries.saturating_add(1));
                self.again = Some(Again::after(tries));
            }
            (Step::Activate { .. } | Step::Revert { .. }, _) => (self.failed, self.again) = (None, None),
            _ => {}
        }
    }

    async fn done(&self, outcome: Outcome) -> Reply {
        match self.state(false).await {
            Ok(state) => Reply::Done { outcome, state },
            Err(failure) => refused((Why::Disk, failure.to_string())),
        }
    }

    /// The floor of the slots, once more beside the documents: a description that is damaged does not lower it.
    async fn raise_floor(&self) {
        let (memory, product) = (Arc::clone(&self.memory), self.settings.product.clone());
        // What the disk does not tell now it tells after the next order.
        let Ok(found) = self.executor.found().await else { return };
        let floor = found.floor();
        blocking(move || memory.lock().unwrap_or_else(PoisonError::into_inner).raise_floor(&product, floor)).await;
    }

    /// `claim`: under which it is to be activated.
    async fn warrant(&self, release: Digest, claim: Option<ClaimName>) -> Result<Warrant, Refusal> {
        let found = self.executor.found().await.map_err(|failure| (Why::Disk, failure.to_string()))?;
        let memory = Arc::clone(&self.memory);
        let product = self.settings.product.clone();
        let lock = self.settings.config.version_lock.clone();
        let (running, floor) = (found.running(), found.floor());
        let warrant = blocking(move || {
            let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            let archive = memory.archive().map_err(|closed| (Why::Disk, closed.to_string()))?;
            let given = archive.warrant(&product, &release, lock.as_deref(), running.as_ref(), floor, clock::wall());
            let given = given.map_err(|error| (Why::Disk, format!("the documents cannot be written down: {error}")))?;
            given.map_err(|unwarranted| (kind(&unwarranted), unwarranted.to_string()))
        })
        .await?;
        let size = warrant.install.artifact.size;
        let most = self.settings.artifact_bytes;
        if size > most {
            return Err((Why::Warrant, format!("the artifact has {size} bytes; limits.artifact allows {most}")));
        }
        let failed = denied(&found, &warrant.install);
        match failed {
            Some(denied) if !warrant.forgives(denied.claim) => {
                Err((Why::Denied, format!("this build failed here before: {}", denied.reason.as_str())))
            }
            // An agent names its claim itself: one that is forgiven already would have the next failure forgiven too.
            Some(_) if claim.is_some_and(|claim| !warrant.is_after_forgiveness(claim)) => {
                Err((Why::Denied, "this build failed here before, and is tried again only under a later claim".to_owned()))
            }
            _ => Ok(warrant),
        }
    }
}

/// Looks at an open file before anything of it is read. Blocking, for as long as whoever serves the file likes.
fn look(file: &File, size_bytes: u64) -> Result<(), String> {
    let metadata = file.metadata().map_err(|error| format!("the open file cannot be looked at: {error}"))?;
    if !metadata.is_file() {
        return Err("what came with the order is not a regular file".to_owned());
    }
    if metadata.len() != size_bytes {
        return Err(format!("the open file has {} bytes instead of {size_bytes}", metadata.len()));
    }
    Ok(())
}

fn denied<'a>(found: &'a Found, install: &Install) -> Option<&'a Denied> {
    let contents = Contents::of(install);
    found.denied.iter().find(|denied| denied.names(&contents))
}

/// What time, or a further document, may still change is held; all else is refused.
fn kind(unwarranted: &Unwarranted) -> Why {
    match unwarranted {
        Unwarranted::NoFleet
        | Unwarranted::FleetLost { .. }
        | Unwarranted::RosterMissing(_)
        | Unwarranted::CertificateMissing(_)
        | Unwarranted::Rivals(..)
        | Unwarranted::Held(Hold::Paused(_) | Hold::Conflict(_) | Hold::Expired(..) | Hold::ReleaseMissing) => Why::Held,
        _ => Why::Warrant,
    }
}

pub(super) fn refused((why, text): Refusal) -> Reply {
    Reply::Refused { why, text: Reason::lossy(&text) }
}

fn told(outcome: executor::Outcome) -> Outcome {
    let report = match outcome {
        executor::Outcome::Report(report) => report,
        executor::Outcome::Again | executor::Outcome::Nothing => return Outcome::Again,
        executor::Outcome::Stopping => return Outcome::Stopping,
    };
    match report {
        Report::Staged { .. } => Outcome::Staged,
        Report::StageFailed { fault, reason, .. } => Outcome::StageFailed { disk_full: fault == Fault::DiskFull, reason },
        Report::Activated { .. } => Outcome::Activated,
        Report::ActivateFailed { reason, at_fault, .. } => Outcome::ActivateFailed { reason, at_fault },
        Report::Confirmed { .. } => Outcome::Confirmed,
        Report::ConfirmFailed { reason, at_fault: true, .. } => Outcome::ConfirmRefused { reason },
        Report::ConfirmFailed { reason, .. } => Outcome::ConfirmFailed { reason },
        Report::Reverted { running, output, .. } => Outcome::Reverted { running, output },
        // No step comes to any other.
        _ => Outcome::Again,
    }
}

fn launched(launch: &Launch) -> Launched {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    Launched {
        contents: launch.contents.clone(),
        slot: text(&launch.slot),
        binary: text(&launch.binary),
        claim: launch.claim,
        trial: launch.trial,
    }
}

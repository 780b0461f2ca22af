//! The agent's side of its supervisor: who started it, signs of life, and its own replacement.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use groundswell_core::install::Slot;
use groundswell_core::install::supervision::Reading;
use groundswell_core::record::ClaimName;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use tokio::sync::watch;

use super::marks::{Marks, TrialMark};
use super::notify::{ALIVE, Notifier, READY, SIGNS, SOCKET, STANDARD_INPUT, WATCHDOG, WATCHDOG_FOR};
use super::program::Program;
use super::{SLOT, SUPERVISOR};
use crate::clock;
use crate::handle::Handle;
use crate::install::activate::{Launch, Origin};
use crate::install::device::this_boot;
use crate::install::disk::Failure;

/// How long an agent may take to end once it asked to be replaced.
const ENDS_WITHIN: Duration = Duration::from_secs(120);
/// Beyond the rollout's own time for an upgrade, and what hooks may take: the new build decides first, the supervisor is there
/// when it does not.
const MARGIN: Duration = Duration::from_secs(60);
/// Where the rollout's time could not be written down before a crash cut the hand-over off.
const TRIAL_TIME: Duration = Duration::from_secs(15 * 60);
/// As which its process is listed, at most 15 bytes.
const NAME: &str = "swell";
/// A watchdog that nobody asked for: how often an agent gives a sign of life then.
const SIGNS_EVERY: Duration = Duration::from_secs(20);

/// Whoever started this agent.
#[derive(Debug, Default)]
pub struct Parent {
    /// The supervisor, if it is one.
    pub supervisor: Option<Supervisor>,
    /// Who is told of readiness and life, and how often.
    pub notify: Option<(Notifier, Duration)>,
}

/// A supervisor that started this agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supervisor {
    /// From which slot; `None` for its own build.
    pub slot: Option<Slot>,
}

impl Parent {
    /// What the environment says, as given by `variable`. A supervisor that is not this process's parent is somebody else's.
    ///
    /// Call it first thing, before any thread is started: from here on the process is asked to end when its supervisor dies,
    /// so that no two agents use one folder.
    ///
    /// # Errors
    /// When the kernel refuses, or the supervisor has died meanwhile.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> io::Result<Self> {
        let supervisor = match variable(SLOT).as_deref() {
            _ if !is_supervised(&variable) => None,
            Some("a") => Some(Supervisor { slot: Some(Slot::A) }),
            Some("b") => Some(Supervisor { slot: Some(Slot::B) }),
            _ => Some(Supervisor { slot: None }),
        };
        if supervisor.is_some() {
            set_parent_process_death_signal(Some(Signal::TERM))?;
            // Run through a descriptor, it is listed under that one's number.
            let _ = std::fs::write("/proc/self/comm", NAME);
            if !is_supervised(&variable) {
                return Err(io::Error::other("the supervisor has ended"));
            }
        }
        let mine = variable(WATCHDOG_FOR).is_none_or(|pid| pid == std::process::id().to_string());
        let watchdog = variable(WATCHDOG).filter(|_| mine).and_then(|text| text.parse().ok()).map(Duration::from_micros);
        let every = watchdog.map_or(SIGNS_EVERY, |watchdog| (watchdog / 3).max(Duration::from_millis(10)));
        let by_input = supervisor.is_some() && variable(SIGNS).as_deref() == Some(STANDARD_INPUT);
        let listens = by_input.then(Notifier::inherited).or_else(|| variable(SOCKET).map(|name| Notifier::connect(&name)));
        let notify = match listens {
            Some(Ok(notifier)) => Some((notifier, every)),
            Some(Err(error)) => {
                tracing::warn!(%error, "whoever started this agent does not listen");
                None
            }
            None => None,
        };
        Ok(Self { supervisor, notify })
    }
}

/// Whether a supervisor has started this process, and still lives. One that is not its parent is somebody else's.
pub fn is_supervised(variable: impl Fn(&str) -> Option<String>) -> bool {
    let parent = getppid().map(Pid::as_raw_nonzero).map(std::num::NonZeroI32::get);
    parent.is_some() && variable(SUPERVISOR).and_then(|pid| pid.parse::<i32>().ok()) == parent
}

/// Tells `notify` that the agent is up once it answers, and from then on that it lives, for as long as it answers.
/// Ends with the agent.
pub(crate) async fn give_signs((notifier, every): (Notifier, Duration), handle: Handle) {
    use crate::handle::Gone;
    let mut ready = false;
    loop {
        match handle.status().await {
            Ok(status) => {
                // Told until it gets through: without it no sign of life counts.
                if !ready {
                    ready = notifier.tell(&format!("{READY}\nSTATUS=agent {}", status.agent.version));
                }
                if ready {
                    notifier.tell(ALIVE);
                }
            }
            // Asked again; too busy for that is no sign of life.
            Err(Gone::Busy) => {}
            Err(Gone::Stopped) => return,
        }
        tokio::time::sleep(every).await;
    }
}

/// How this agent, which is its own product, is replaced. Clones share it.
#[derive(Clone, Debug)]
pub struct Own {
    /// The files that it shares with its supervisor.
    pub marks: Marks,
    /// Its supervisor; without one it is never replaced.
    pub supervisor: Option<Supervisor>,
    /// How often its supervisor may start a build on trial.
    pub most_boots: u32,
    /// How long its hooks may take in the middle of a trial, one after the other.
    pub hooks: Duration,
    /// Set when it is to end and be started from what the files name.
    pub restart: Arc<watch::Sender<bool>>,
}

/// Starts builds of the agent itself.
#[derive(Debug)]
pub struct Replacement {
    own: Option<Own>,
    boot: String,
    /// How long the rollout gives the next version; `None` in a run of the agent that was not told.
    within: Option<Duration>,
    output: String,
}

impl Replacement {
    pub(crate) fn new(own: Option<Own>) -> Self {
        Self { own, boot: this_boot().0, within: None, output: String::new() }
    }

    /// How long the rollout gives the next version: written down, for a crash may come before it is handed over.
    pub(crate) async fn allow(&mut self, claim: ClaimName, within: Duration) {
        self.within = Some(within);
        let Ok(own) = self.own() else { return };
        let marks = own.marks.clone();
        if let Err(error) = blocking(move || marks.allow(&claim.to_string(), within)).await {
            tracing::warn!(%error, "the time for this upgrade is not written down");
        }
    }

    fn own(&self) -> Result<&Own, Failure> {
        let own = self.own.as_ref().filter(|own| own.supervisor.is_some());
        own.ok_or_else(|| Failure::of_the_device("this agent was not started by `swell supervise`, which alone can replace it"))
    }

    /// Names what the supervisor is to start: a build on trial, or the last confirmed one again.
    pub(crate) async fn start(&self, launch: &Launch) -> Result<(), Failure> {
        let own = self.own()?;
        let marks = own.marks.clone();
        let written = if launch.trial {
            let mut mark = self.mark(own, launch)?;
            let (told, hooks) = (self.within, own.hooks);
            blocking(move || {
                let within = told.or_else(|| marks.allowed(&mark.trial)).unwrap_or(TRIAL_TIME);
                mark.confirm_within_seconds = within.saturating_add(MARGIN).saturating_add(hooks).as_secs();
                marks.write_trial(&mark)
            })
            .await
        } else {
            blocking(move || marks.clear_trial()).await
        };
        written.map_err(|error| Failure::of_the_device(format!("the supervisor cannot be told: {error}")))
    }

    /// The trial, for no time yet.
    fn mark(&self, own: &Own, launch: &Launch) -> Result<TrialMark, Failure> {
        let slot = slot_of(launch).ok_or_else(|| Failure::broken("the slot has another name than a or b"))?;
        let trial = launch.claim.map_or_else(|| launch.contents.release.to_string(), |claim| claim.to_string());
        let now = clock::now();
        Ok(TrialMark {
            trial,
            slot,
            sha256: launch.contents.sha256,
            size_bytes: launch.contents.size_bytes,
            most_boots: own.most_boots,
            confirm_within_seconds: 0,
            boot: self.boot.clone(),
            since_ms: now.boot.0,
            since_awake_ms: Some(now.awake_ms),
        })
    }

    /// Nothing is left to run but the supervisor's own build.
    pub(crate) async fn stop(&self) -> Result<(), Failure> {
        let marks = self.own()?.marks.clone();
        let cleared = blocking(move || marks.clear_trial()).await;
        cleared.map_err(|error| Failure::of_the_device(format!("the supervisor cannot be told: {error}")))
    }

    /// Asks to be started again from what the files name, and waits for the end: returns only when it does not come.
    pub(crate) async fn restart(&self, launch: &Launch) -> Failure {
        let own = match self.own() {
            Ok(own) => own,
            Err(failure) => return failure,
        };
        tracing::info!(product = %launch.product, version = %launch.contents.version, "the agent ends to be replaced");
        own.restart.send_replace(true);
        tokio::time::sleep(ENDS_WITHIN).await;
        Failure::of_the_device(format!("the agent did not end within {} s", ENDS_WITHIN.as_secs()))
    }

    /// Whether this process is the build in `launch`; otherwise why the supervisor went back. A trial that was never handed
    /// over, because of a crash right before that, is handed over now.
    pub(crate) async fn started(&mut self, launch: &Launch) -> Result<(), Failure> {
        let own = self.own()?;
        if own.supervisor.is_some_and(|supervisor| supervisor.slot.is_some() && supervisor.slot == slot_of(launch)) {
            return Ok(());
        }
        let mark = self.mark(own, launch)?;
        let marks = own.marks.clone();
        let contents = launch.contents.clone();
        let file = launch.binary.clone();
        let (boots, asked, is_whole) = blocking(move || {
            let checked = Program::checked(&file, contents.size_bytes, contents.sha256);
            (marks.boots(), marks.trial(), checked.is_ok())
        })
        .await;
        let (boots, why) = match boots {
            Reading::Said(boots) if boots.trial == mark.trial => (boots.boots, boots.given_up),
            _ => (0, None),
        };
        // Started too seldom, or rotten by now, it was not tried: nothing is known of it.
        let failed = |was_tried: bool, reason: String| {
            if was_tried && is_whole { Failure::broken(reason) } else { Failure::of_the_device(reason) }
        };
        // What an earlier upgrade left there asks for nothing any more.
        let asked = matches!(asked, Reading::Said(asked) if (&asked.trial, asked.sha256) == (&mark.trial, mark.sha256));
        let version = &launch.contents.version;
        match (why, asked) {
            (Some(why), _) => {
                self.output.clone_from(&why);
                Err(failed(boots > 0, format!("the supervisor went back from {version}: {why}")))
            }
            (None, false) => {
                self.start(launch).await?;
                Err(self.restart(launch).await)
            }
            // It could not write down that it starts it, or why it does not start it again.
            (None, true) => {
                let tried = boots >= own.most_boots;
                Err(failed(tried, format!("the supervisor started {version} {boots} times, and could write down no more of it")))
            }
        }
    }

    /// Where this process was started from: by its supervisor, or by somebody who takes no heed of slots.
    pub(crate) fn origin(&self) -> Origin {
        match &self.own {
            None => Origin::Current,
            Some(own) => own.supervisor.and_then(|supervisor| supervisor.slot).map_or(Origin::Elsewhere, Origin::Slot),
        }
    }

    pub(crate) fn output(&self) -> String {
        self.output.clone()
    }
}

fn slot_of(launch: &Launch) -> Option<Slot> {
    let name = launch.slot.file_name()?;
    [Slot::A, Slot::B].into_iter().find(|slot| name == slot.name())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

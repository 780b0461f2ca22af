//! Starting versions: by a command, as a supervised child, through systemd, by a signal, or this agent itself.
//!
//! All are told which version by the same environment ([`Launch`]); none uses a shell. What a supervised process
//! does between starts is the business of `supervise`; whether a version works is judged in `crate::health`.

mod command;
pub mod launch;
pub mod leftover;
pub mod output;
pub(crate) mod proc;
pub mod process;
mod signal;
pub mod supervise;
mod systemd;

use std::path::Path;
use std::time::Duration;

use groundswell_core::install::Slot;
use groundswell_core::record::ClaimName;
use tokio::sync::watch;

pub use command::Commands;
pub use launch::Launch;
pub use signal::Teller;
pub use supervise::ProcessState;
pub use systemd::Systemd;

pub(super) use self::command::hook;
use self::leftover::Note;
use self::supervise::Supervisor;
use super::disk::Failure;
use crate::config::Activator;
use crate::supervise::own::{Own, Replacement};

/// How long a command of an agent that died may take to end once it is told to.
const COMMAND_ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Starts and stops the versions of one product.
#[derive(Debug)]
pub enum Starter {
    /// By a command.
    Command(Commands),
    /// As a child.
    Supervise(Supervisor),
    /// Through systemd.
    Systemd(Systemd),
    /// By a signal.
    Signal(Teller),
    /// Through the supervisor of this agent, which is the product.
    Agent(Replacement),
}

/// Where what runs was started from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From wherever `current` leads.
    Current,
    /// From this slot.
    Slot(Slot),
    /// From no slot: no release that this device knows of.
    Elsewhere,
}

impl Starter {
    /// A starter as configured. What an agent that died left running is stopped first: its command or hook, and a supervised
    /// process. `own` is this agent, where it is the product itself.
    pub async fn open(activator: &Activator, folder: &Path, own: Option<Own>) -> Self {
        Note::COMMAND.stop(folder, COMMAND_ENDS_WITHIN).await;
        match activator {
            Activator::Command(config) => {
                let commands = Commands::new(config.clone());
                if let Err(missing) = commands.leads_back() {
                    tracing::warn!(folder = %folder.display(), "a first release is not installed: {missing}");
                }
                Self::Command(commands)
            }
            Activator::Supervise(config) => {
                leftover::stop(folder, config.stop_timeout).await;
                Self::Supervise(Supervisor::start(config.clone(), folder.to_owned()))
            }
            Activator::Systemd(config) => Self::Systemd(Systemd::new(config.clone())),
            Activator::Signal(config) => Self::Signal(Teller::new(config.clone())),
            Activator::Helper(_) => unreachable!("what a helper installs is started by the helper"),
            Activator::Agent => Self::Agent(Replacement::new(own)),
        }
    }

    /// Starts a version in place of the one that runs. `Some`: there was nothing to be done, and people should look.
    ///
    /// # Errors
    /// Why not, with the last lines of output.
    pub async fn start(&mut self, launch: &Launch) -> Result<Option<Failure>, Failure> {
        match self {
            Self::Command(commands) => commands.start(launch).await?,
            Self::Supervise(supervisor) => supervisor.run(launch.clone(), true).await?,
            Self::Systemd(systemd) => systemd.start(launch).await?,
            Self::Signal(teller) => return teller.start(launch).await,
            Self::Agent(replacement) => replacement.start(launch).await?,
        }
        Ok(None)
    }

    /// Sees that a version runs, where the agent itself keeps it running.
    ///
    /// # Errors
    /// Why not.
    pub async fn keep(&mut self, launch: &Launch) -> Result<(), Failure> {
        match self {
            Self::Supervise(supervisor) => supervisor.run(launch.clone(), false).await,
            Self::Command(_) | Self::Systemd(_) | Self::Signal(_) | Self::Agent(_) => Ok(()),
        }
    }

    /// How long the version that is started next, under this claim, may take to be confirmed, where whoever starts it wants to
    /// know.
    pub async fn allow(&mut self, claim: ClaimName, within: Duration) {
        if let Self::Agent(replacement) = self {
            replacement.allow(claim, within).await;
        }
    }

    /// An upgrade begins, and nothing is under way: no start of what is left later can have been heard of yet.
    pub fn begins(&mut self) {
        if let Self::Signal(teller) = self {
            teller.begins();
        }
    }

    /// Stops what runs; nothing takes its place. `Some`: nothing was there to be stopped, and people should look.
    ///
    /// # Errors
    /// Why not.
    pub async fn stop(&mut self, launch: &Launch) -> Result<Option<Failure>, Failure> {
        match self {
            Self::Command(commands) => commands.stop(launch).await?,
            Self::Supervise(supervisor) => supervisor.stop().await,
            Self::Systemd(systemd) => return systemd.stop(launch).await,
            // It is not this agent's to end a process that it did not start; without `current` it finds no binary.
            Self::Signal(_) => {}
            Self::Agent(replacement) => replacement.stop().await?,
        }
        Ok(None)
    }

    /// Whether a first install could be left again.
    ///
    /// # Errors
    /// What is missing for that.
    pub fn leads_back(&self) -> Result<(), Failure> {
        if let Self::Command(commands) = self { commands.leads_back() } else { Ok(()) }
    }

    /// Restarts the machine, and waits for it to go down; for the agent itself, its process. Returns only when that does
    /// not come.
    pub async fn restart_machine(&mut self, launch: &Launch) -> Failure {
        match self {
            Self::Command(commands) => commands.restart_machine(launch).await,
            Self::Agent(replacement) => replacement.restart(launch).await,
            _ => {
                let missing = "nothing says how to restart the machine: activator.reboot was taken out of the configuration";
                Failure::of_the_device(missing)
            }
        }
    }

    /// Checks that the machine has started from a version; for the agent itself, its process.
    ///
    /// # Errors
    /// When it has not, or it cannot be told.
    pub async fn booted(&mut self, launch: &Launch) -> Result<(), Failure> {
        match self {
            Self::Command(commands) => commands.booted(launch).await,
            // Whatever keeps it from being handed over once more: this process is another one.
            Self::Agent(replacement) => {
                replacement.started(launch).await.map_err(|failure| Failure { answered: true, ..failure })
            }
            _ => Ok(()),
        }
    }

    /// Checks that the machine does not run a version any more.
    ///
    /// # Errors
    /// When it does, or it cannot be told.
    pub async fn left(&mut self, launch: &Launch) -> Result<(), Failure> {
        match self.booted(launch).await {
            Ok(()) => {
                let still = format!("the machine still runs {}", launch.contents.version);
                Err(Failure { answered: true, ..Failure::of_the_device(still) })
            }
            Err(failure) if failure.answered => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// The last lines of output of what was started last.
    pub async fn output(&self) -> String {
        match self {
            Self::Command(commands) => commands.output(),
            Self::Supervise(supervisor) => supervisor.output(),
            Self::Systemd(systemd) => systemd.last_lines().await,
            Self::Signal(_) => String::new(),
            Self::Agent(replacement) => replacement.output(),
        }
    }

    /// Where what runs was started from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        match self {
            Self::Agent(replacement) => replacement.origin(),
            Self::Command(_) | Self::Supervise(_) | Self::Systemd(_) | Self::Signal(_) => Origin::Current,
        }
    }

    /// Whether versions are started by their slot, wherever `current` leads.
    #[must_use]
    pub fn starts_by_slot(&self) -> bool {
        matches!(self, Self::Supervise(_))
    }

    /// Whether a version that was started is what runs. An agent whose supervisor runs a build of its own is not the one in
    /// its slots, and its health tells nothing of that.
    #[must_use]
    pub fn runs(&self, launch: &Launch) -> bool {
        match self.origin() {
            Origin::Current => true,
            Origin::Slot(slot) => launch.slot.file_name().is_some_and(|name| name == slot.name()),
            Origin::Elsewhere => false,
        }
    }

    /// How the supervised process fares; `None` where something else keeps it running.
    #[must_use]
    pub fn process(&self) -> Option<watch::Receiver<ProcessState>> {
        match self {
            Self::Supervise(supervisor) => Some(supervisor.state()),
            _ => None,
        }
    }

    /// Stops a supervised process: the agent ends. What anything else started goes on.
    pub async fn shutdown(self) {
        if let Self::Supervise(supervisor) = self {
            supervisor.shutdown().await;
        }
    }
}

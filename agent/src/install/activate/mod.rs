//! Starting versions: by a command, or as a supervised child.
//!
//! Both are told which version by the same environment ([`Launch`]); neither uses a shell. What a supervised process
//! does between starts is the business of `supervise`; whether a version works is judged in `crate::health`.

pub mod launch;
pub mod leftover;
pub mod output;
pub mod process;
pub mod supervise;

use std::path::Path;

use tokio::sync::watch;

pub use launch::Launch;
pub use supervise::ProcessState;

use self::process::Ended;
use self::supervise::Supervisor;
use super::disk::Failure;
use crate::config::{Activator, CommandActivator};

/// Starts and stops the versions of one product.
#[derive(Debug)]
pub enum Starter {
    /// By a command.
    Command {
        /// Which.
        config: CommandActivator,
        /// The output of the last run.
        output: String,
    },
    /// As a child.
    Supervise(Supervisor),
}

impl Starter {
    /// A starter as configured. A process left over by an agent that died is stopped first.
    pub async fn open(activator: &Activator, folder: &Path) -> Self {
        match activator {
            Activator::Command(config) => Self::Command { config: config.clone(), output: String::new() },
            Activator::Supervise(config) => {
                leftover::stop(folder, config.stop_timeout).await;
                Self::Supervise(Supervisor::start(config.clone(), folder.to_owned()))
            }
        }
    }

    /// Starts a version in place of the one that runs.
    ///
    /// # Errors
    /// Why not, with the last lines of output.
    pub async fn start(&mut self, launch: &Launch) -> Result<(), Failure> {
        match self {
            Self::Command { config, output } => {
                let run = config.run.clone();
                command(config, &run, launch, output).await
            }
            Self::Supervise(supervisor) => supervisor.run(launch.clone(), true).await,
        }
    }

    /// Sees that a version runs, where the agent itself keeps it running.
    ///
    /// # Errors
    /// Why not.
    pub async fn keep(&mut self, launch: &Launch) -> Result<(), Failure> {
        match self {
            Self::Command { .. } => Ok(()),
            Self::Supervise(supervisor) => supervisor.run(launch.clone(), false).await,
        }
    }

    /// Stops what runs; nothing takes its place.
    ///
    /// # Errors
    /// Why not.
    pub async fn stop(&mut self, launch: &Launch) -> Result<(), Failure> {
        match self {
            Self::Command { config, output } => match config.stop.clone() {
                Some(stop) => command(config, &stop, launch, output).await,
                None => Ok(()),
            },
            Self::Supervise(supervisor) => {
                supervisor.stop().await;
                Ok(())
            }
        }
    }

    /// The last lines of output of what was started last.
    #[must_use]
    pub fn output(&self) -> String {
        match self {
            Self::Command { output, .. } => output.clone(),
            Self::Supervise(supervisor) => supervisor.output(),
        }
    }

    /// How the supervised process fares; `None` with a command.
    #[must_use]
    pub fn process(&self) -> Option<watch::Receiver<ProcessState>> {
        match self {
            Self::Command { .. } => None,
            Self::Supervise(supervisor) => Some(supervisor.state()),
        }
    }

    /// Stops a supervised process: the agent ends. What a command started goes on.
    pub async fn shutdown(self) {
        if let Self::Supervise(supervisor) = self {
            supervisor.shutdown().await;
        }
    }
}

async fn command(config: &CommandActivator, argv: &[String], launch: &Launch, output: &mut String) -> Result<(), Failure> {
    let argv = launch.fill_all(argv);
    let name = argv.first().cloned().unwrap_or_default();
    let failed = |reason: String, output: &str| Err(Failure { output: output.to_owned(), ..Failure::broken(reason) });
    match process::run(&argv, &launch.environment(), config.timeout).await {
        Err(error) => failed(format!("cannot run {name}: {error}"), ""),
        Ok(finished) => {
            *output = finished.output;
            match finished.ended {
                Ended::Status(status) if status.success() => Ok(()),
                Ended::Status(status) => failed(format!("{name} ended with {}", process::said(status)), output),
                Ended::TimedOut => failed(format!("{name} took longer than {} s", config.timeout.as_secs()), output),
            }
        }
    }
}

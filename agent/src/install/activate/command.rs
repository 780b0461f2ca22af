//! Starting versions by commands: the way to anything that is not a plain service, OS updaters included.
//!
//! Where a version runs only after the machine has been restarted, `run` hands it over, `reboot` restarts the machine,
//! and `booted` tells afterwards which version the machine came up with. `docs/INSTALL.md` has adapters.

use std::time::Duration;

use tokio::time::sleep;

use super::launch::Launch;
use super::process::{self, Ended};
use crate::config::{CommandActivator, HooksConfig};
use crate::install::disk::Failure;

/// Runs the configured commands and keeps the end of what they printed.
#[derive(Debug)]
pub struct Commands {
    config: CommandActivator,
    /// The output of the last run.
    output: String,
}

impl Commands {
    pub(super) fn new(config: CommandActivator) -> Self {
        Self { config, output: String::new() }
    }

    pub(super) async fn start(&mut self, launch: &Launch) -> Result<(), Failure> {
        let argv = match &self.config.back {
            Some(back) if !launch.trial => back.clone(),
            _ => self.config.run.clone(),
        };
        self.run(&argv, launch).await
    }

    pub(super) async fn stop(&mut self, launch: &Launch) -> Result<(), Failure> {
        self.leads_back()?;
        match self.config.stop.clone() {
            Some(stop) => self.run(&stop, launch).await,
            None => Ok(()),
        }
    }

    /// Whether a first install could be left again. Configurations of before `stop` was asked for lack it, which matters only
    /// there.
    pub(super) fn leads_back(&self) -> Result<(), Failure> {
        if self.config.reboot.is_some() && self.config.stop.is_none() {
            return Err(Failure::of_the_device(
                "activator.stop is missing: with `reboot` nothing else leads back from the first release; it makes the system of \
                 before that the next one",
            ));
        }
        Ok(())
    }

    pub(super) async fn restart_machine(&mut self, launch: &Launch) -> Failure {
        let Some(reboot) = self.config.reboot.clone() else {
            return Failure::of_the_device("activator.reboot was taken out of the configuration");
        };
        if let Err(failure) = self.run(&reboot.run, launch).await {
            let reason = format!("the machine cannot be restarted: {}", failure.reason);
            return Failure { reason, at_fault: false, ..failure };
        }
        tracing::info!(product = %launch.product, version = %launch.contents.version, "the machine restarts");
        sleep(reboot.timeout).await;
        Failure::of_the_device(format!("the machine did not go down within {} s", reboot.timeout.as_secs()))
    }

    pub(super) async fn booted(&mut self, launch: &Launch) -> Result<(), Failure> {
        let Some(reboot) = self.config.reboot.clone() else { return Ok(()) };
        self.run(&reboot.booted, launch).await.map_err(|failure| {
            let (version, reason) = (&launch.contents.version, &failure.reason);
            if failure.answered {
                return Failure { reason: format!("the machine did not start from {version}: {reason}"), ..failure };
            }
            // Nothing was said of the version.
            let reason = format!("nothing tells whether the machine started from {version}: {reason}");
            Failure { reason, at_fault: false, ..failure }
        })
    }

    pub(super) fn output(&self) -> String {
        self.output.clone()
    }

    async fn run(&mut self, argv: &[String], launch: &Launch) -> Result<(), Failure> {
        let done = run(argv, launch, Vec::new(), self.config.timeout).await;
        match &done {
            Ok(output) => self.output.clone_from(output),
            Err(failure) => self.output.clone_from(&failure.output),
        }
        done.map(|_| ())
    }
}

/// Runs the operator's command of one place of an install.
///
/// # Errors
/// Why it failed, with the last lines of output.
pub(crate) async fn hook(
    hooks: &HooksConfig,
    hook: groundswell_core::install::Hook,
    launch: &Launch,
    reason: Option<&str>,
) -> Result<(), Failure> {
    let Some(argv) = hooks.commands.get(&hook) else { return Ok(()) };
    let mut more = vec![("GROUNDSWELL_HOOK".to_owned(), hook.name().to_owned())];
    more.extend(reason.map(|reason| ("GROUNDSWELL_REASON".to_owned(), reason.to_owned())));
    match run(argv, launch, more, hooks.timeout).await {
        Ok(_) => Ok(()),
        Err(failure) => Err(Failure { reason: format!("hook {}: {}", hook.name(), failure.reason), ..failure }),
    }
}

/// Runs a command for a version; its last lines of output. A later start of the agent ends it, should this one be killed
/// meanwhile: what it does late would undo what was decided since.
pub(super) async fn run(
    argv: &[String],
    launch: &Launch,
    more: Vec<(String, String)>,
    limit: Duration,
) -> Result<String, Failure> {
    let argv = launch.fill_all(argv);
    let name = argv.first().cloned().unwrap_or_default();
    let mut environment = launch.environment();
    environment.extend(more);
    let failed = |reason: String, output: String| Err(Failure { output, ..Failure::broken(reason) });
    let finished = match launch.folder() {
        Some(folder) => process::run_noted(&argv, &environment, limit, folder).await,
        None => process::run(&argv, &environment, limit).await,
    };
    match finished {
        Err(error) => Err(launch.cannot_run(&name, &error)),
        Ok(finished) => match finished.ended {
            Ended::Status(status) if status.success() => Ok(finished.output),
            Ended::Status(status) => failed(format!("{name} ended with {}", process::said(status)), finished.output)
                .map_err(|failure| Failure { answered: true, ..failure }),
            Ended::TimedOut => failed(format!("{name} took longer than {} s", limit.as_secs()), finished.output),
        },
    }
}

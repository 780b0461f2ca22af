//! Starting versions through systemd: a unit whose `ExecStart=` leads through `current`, asked by `systemctl`.

use std::time::Duration;

use super::command::run;
use super::launch::Launch;
use super::process;
use crate::config::SystemdActivator;
use crate::install::disk::Failure;

/// How long systemd may take to tell how a unit fares.
const TELL: Duration = Duration::from_secs(5);
/// Of a unit's log so many lines are asked for: a verdict carries less.
const LOG_LINES: &str = "--lines=5";

/// Asks systemd.
#[derive(Debug)]
pub struct Systemd {
    config: SystemdActivator,
}

impl Systemd {
    pub(super) fn new(config: SystemdActivator) -> Self {
        Self { config }
    }

    pub(super) async fn start(&self, launch: &Launch) -> Result<(), Failure> {
        self.ask(self.config.action.verb(), launch).await
    }

    pub(super) async fn stop(&self, launch: &Launch) -> Result<(), Failure> {
        self.ask("stop", launch).await
    }

    async fn ask(&self, verb: &str, launch: &Launch) -> Result<(), Failure> {
        let SystemdActivator { unit, systemctl, timeout, .. } = &self.config;
        let argv = [systemctl, verb, unit].map(str::to_owned);
        match run(&argv, launch, Vec::new(), *timeout).await {
            Ok(_) => Ok(()),
            Err(failure) => {
                // What systemctl prints itself only says where to look.
                let said = self.last_lines().await;
                let output = if said.is_empty() { failure.output } else { said };
                Err(Failure { reason: format!("{} (systemctl {verb} {unit})", failure.reason), output, ..failure })
            }
        }
    }

    /// The end of the unit's log, as `systemctl status` tells it.
    pub(super) async fn last_lines(&self) -> String {
        let SystemdActivator { unit, systemctl, .. } = &self.config;
        let argv = [systemctl, "status", "--no-pager", "--full", LOG_LINES, unit].map(str::to_owned);
        // Its status is that of the unit, which is not asked for here.
        process::run(&argv, &[], TELL).await.map(|finished| finished.output).unwrap_or_default()
    }
}

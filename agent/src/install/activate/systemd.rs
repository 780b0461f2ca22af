//! Starting versions through systemd: a unit whose `ExecStart=` leads through `current`, asked by `systemctl`.
//!
//! On the way back nothing is reloaded: the process that would take the old version up may be gone. The unit is restarted,
//! and what systemd has counted of its failures is forgotten first, or it would refuse that as "repeated too quickly".

use std::time::Duration;

use super::command::run;
use super::launch::Launch;
use super::process::{self, Ended};
use crate::config::{SystemdActivator, UnitAction};
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
        if launch.trial {
            return self.ask(self.config.action.verb(), launch).await;
        }
        let SystemdActivator { unit, systemctl, .. } = &self.config;
        let forget = [systemctl, "reset-failed", unit].map(str::to_owned);
        // Nothing has to have failed; the restart tells what matters.
        if let Err(failure) = run(&forget, launch, Vec::new(), TELL).await {
            tracing::debug!(unit, %failure, output = failure.output, "systemd does not forget the unit's failures");
        }
        self.ask(UnitAction::Restart.verb(), launch).await
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
                // Where systemd itself does not answer, nothing is known of the version.
                let at_fault = failure.at_fault && self.answers().await;
                Err(Failure { reason: format!("{} (systemctl {verb} {unit})", failure.reason), output, at_fault, ..failure })
            }
        }
    }

    /// Whether systemd tells of the unit at all.
    async fn answers(&self) -> bool {
        let SystemdActivator { unit, systemctl, .. } = &self.config;
        let argv = [systemctl, "show", "--property=LoadState", unit].map(str::to_owned);
        let told = process::run(&argv, &[], TELL).await;
        told.is_ok_and(|told| matches!(told.ended, Ended::Status(status) if status.success()))
    }

    /// The end of the unit's log, as `systemctl status` tells it.
    pub(super) async fn last_lines(&self) -> String {
        let SystemdActivator { unit, systemctl, .. } = &self.config;
        let argv = [systemctl, "status", "--no-pager", "--full", LOG_LINES, unit].map(str::to_owned);
        // Its status is that of the unit, which is not asked for here.
        process::run(&argv, &[], TELL).await.map(|finished| finished.output).unwrap_or_default()
    }
}

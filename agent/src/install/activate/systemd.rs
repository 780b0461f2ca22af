//! Starting versions through systemd: a unit whose `ExecStart=` leads through `current`, asked by `systemctl`.
//!
//! On the way back nothing is reloaded: the process that would take the old version up may be gone. The unit is restarted,
//! and what systemd has counted of its failures is forgotten first, or it would refuse that as "repeated too quickly". Where
//! that failed it may have come up since: what was started since then is left alone.

use std::path::PathBuf;
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
    /// The binary that was asked for last on the way back, without success, and what ran in the unit before that.
    asked: Option<(PathBuf, String)>,
}

/// How systemd sees the unit.
struct Seen {
    active: String,
    /// Names what runs in it: another one after each start. Empty where systemd does not say.
    invocation: String,
}

impl Systemd {
    pub(super) fn new(config: SystemdActivator) -> Self {
        Self { config, asked: None }
    }

    pub(super) async fn start(&mut self, launch: &Launch) -> Result<(), Failure> {
        let before = self.asked.take();
        if launch.trial {
            return self.ask(self.config.action.verb(), launch).await;
        }
        let seen = self.look().await;
        let same = before.as_ref().is_some_and(|(binary, _)| *binary == launch.binary);
        let was = before.filter(|_| same).map(|(_, was)| was).or_else(|| Some(seen.as_ref()?.invocation.clone()));
        let verb = match (&seen, &was) {
            // Only what was started since then is known to be the old version.
            (Some(Seen { active, invocation }), Some(was)) if same && !invocation.is_empty() && invocation != was => {
                match active.as_str() {
                    "active" => return Ok(()),
                    // Joins the start that is under way, and waits for it.
                    "activating" | "reloading" | "refreshing" => "start",
                    _ => UnitAction::Restart.verb(),
                }
            }
            _ => UnitAction::Restart.verb(),
        };
        let started = self.start_anew(verb, launch).await;
        if started.is_err() {
            self.asked = was.map(|was| (launch.binary.clone(), was));
        }
        started
    }

    async fn start_anew(&self, verb: &str, launch: &Launch) -> Result<(), Failure> {
        let SystemdActivator { unit, systemctl, .. } = &self.config;
        let forget = [systemctl, "reset-failed", unit].map(str::to_owned);
        // Nothing has to have failed; the restart tells what matters.
        if let Err(failure) = run(&forget, launch, Vec::new(), TELL).await {
            tracing::debug!(unit, %failure, output = failure.output, "systemd does not forget the unit's failures");
        }
        self.ask(verb, launch).await
    }

    /// `Some`: there was nothing to be stopped.
    pub(super) async fn stop(&self, launch: &Launch) -> Result<Option<Failure>, Failure> {
        let Err(failure) = self.ask("stop", launch).await else { return Ok(None) };
        // A unit that is not loaded, or not there, cannot be stopped, and does not run.
        match self.look().await {
            Some(seen) if ["inactive", "failed"].contains(&seen.active.as_str()) => Ok(Some(failure)),
            _ => Err(failure),
        }
    }

    /// `None`: systemd does not say.
    async fn look(&self) -> Option<Seen> {
        let SystemdActivator { unit, systemctl, .. } = &self.config;
        let argv = [systemctl, "show", "--property=ActiveState,InvocationID", unit].map(str::to_owned);
        let told = process::run(&argv, &[], TELL).await.ok()?;
        let property = |name: &str| {
            let mut lines = told.stdout.lines().filter_map(|line| line.trim().split_once('='));
            lines.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        let answered = matches!(told.ended, Ended::Status(status) if status.success());
        let (active, invocation) = (property("ActiveState")?, property("InvocationID").unwrap_or_default());
        answered.then_some(Seen { active, invocation })
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

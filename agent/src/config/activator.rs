//! The `activator` table of a product: what starts a version.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::period::{Period, Size};
use super::product::{Wrong, command};

/// What starts a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activator {
    /// Runs a command, and the version is started when it ends with 0.
    Command(CommandActivator),
    /// Keeps the slot's binary running as a child of the agent.
    Supervise(Supervise),
    /// Asks systemd to restart or reload a unit.
    Systemd(SystemdActivator),
    /// Tells a running process by a signal.
    Signal(SignalActivator),
    /// This agent itself is the product: it is restarted by `swell supervise`, which runs what is on trial.
    Agent,
    /// Leaves slots and starts to `swell helper`, which has the rights for it.
    Helper(HelperActivator),
}

/// `type = "helper"`: what starts a version stands in the helper's own file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperActivator {
    /// The helper's unix socket.
    pub socket: PathBuf,
}

/// `type = "command"`. Arguments may contain `{slot}`, `{binary}`, `{version}`, `{product}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandActivator {
    /// Program and arguments; no shell.
    pub run: Vec<String>,
    /// Run in place of `run` when the last confirmed version comes back.
    pub back: Option<Vec<String>>,
    /// Run when the first install is taken back and nothing is left to start.
    pub stop: Option<Vec<String>>,
    /// How long any of them may take.
    pub timeout: Duration,
    /// Where a version runs only after the machine has been restarted.
    pub reboot: Option<Reboot>,
}

/// How the machine is restarted into a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reboot {
    /// Restarts the machine; no shell.
    pub run: Vec<String>,
    /// Ends with 0 when the machine runs the version; no shell.
    pub booted: Vec<String>,
    /// How long the machine may take to go down.
    pub timeout: Duration,
}

/// `type = "supervise"`. Arguments and environment may contain `{slot}`, `{binary}`, `{version}`, `{product}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supervise {
    /// Program and arguments; no shell. `["{binary}"]` by default.
    pub run: Vec<String>,
    /// Set in its environment, beside the `GROUNDSWELL_…` variables.
    pub env: BTreeMap<String, String>,
    /// When it ends.
    pub restart: RestartPolicy,
    /// From SIGTERM to SIGKILL.
    pub stop_timeout: Duration,
    /// Most bytes of its log file; one older file is kept beside it.
    pub log_bytes: u64,
}

/// How a supervised process that ended is started again: after `backoff`, doubled each time up to `backoff_max`,
/// from the beginning once it has run for `stable_after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartPolicy {
    /// The first pause.
    pub backoff: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// How long it must run to count as started well.
    pub stable_after: Duration,
}

/// `type = "systemd"`: a unit that starts the binary through `current`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemdActivator {
    /// The unit's name.
    pub unit: String,
    /// What it is asked for.
    pub action: UnitAction,
    /// The program that talks to systemd.
    pub systemctl: String,
    /// How long it may take.
    pub timeout: Duration,
}

/// How a unit comes to run the new version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnitAction {
    /// Stops and starts it.
    Restart,
    /// Lets the running process take up the new binary, as the unit's `ExecReload=` says.
    Reload,
    /// Reloads where the unit can, restarts where it cannot.
    ReloadOrRestart,
}

impl UnitAction {
    /// The verb of `systemctl`.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Reload => "reload",
            Self::ReloadOrRestart => "reload-or-restart",
        }
    }
}

/// `type = "signal"`: a process that takes up the new binary by itself when it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalActivator {
    /// The file with its process id.
    pub pid_file: PathBuf,
    /// What it is sent.
    pub signal: TellSignal,
}

/// Signals that tell a process to take up a new binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TellSignal {
    /// SIGHUP.
    Hup,
    /// SIGUSR1.
    Usr1,
    /// SIGUSR2.
    Usr2,
    /// SIGTERM, where something else starts it again.
    Term,
}

/// Flat on purpose: a tagged enum would lose the lines of its keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ActivatorFile {
    r#type: ActivatorType,
    run: Option<Vec<String>>,
    back: Option<Vec<String>>,
    stop: Option<Vec<String>>,
    timeout: Option<Period>,
    reboot: Option<Vec<String>>,
    booted: Option<Vec<String>>,
    reboot_timeout: Option<Period>,
    env: Option<BTreeMap<String, String>>,
    restart: Option<RestartFile>,
    stop_timeout: Option<Period>,
    log_size: Option<Size>,
    unit: Option<String>,
    action: Option<UnitAction>,
    systemctl: Option<String>,
    pid_file: Option<PathBuf>,
    signal: Option<TellSignal>,
    socket: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ActivatorType {
    Command,
    Supervise,
    Systemd,
    Signal,
    Helper,
    Agent,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct RestartFile {
    backoff: Period,
    backoff_max: Period,
    stable_after: Period,
}

impl Default for RestartFile {
    fn default() -> Self {
        Self {
            backoff: Period(Duration::from_secs(1)),
            backoff_max: Period(Duration::from_secs(60)),
            stable_after: Period(Duration::from_secs(10)),
        }
    }
}

const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);
const REBOOT_TIMEOUT: Duration = Duration::from_secs(600);
/// Where the documented helper listens.
const HELPER_SOCKET: &str = "/run/groundswell-helper/helper.sock";

impl ActivatorFile {
    /// Whether the agent keeps the process running itself, or is it.
    pub(super) fn is_supervised(&self) -> bool {
        matches!(self.r#type, ActivatorType::Supervise | ActivatorType::Agent)
    }

    /// The unit, for a health check that names none.
    pub(super) fn unit(&self) -> Option<String> {
        self.unit.clone()
    }

    pub(super) fn check(self, folder: &Path) -> Result<Activator, Wrong> {
        self.refuse_foreign_keys()?;
        let timeout = self.timeout.map_or(COMMAND_TIMEOUT, |timeout| timeout.0);
        match self.r#type {
            ActivatorType::Command => {
                let run = self.run.ok_or(("activator.run", "is missing: program and arguments".to_owned()))?;
                let reboot = match (self.reboot, self.booted) {
                    (Some(run), Some(booted)) => Some(Reboot {
                        run: command("activator.reboot", run)?,
                        booted: command("activator.booted", booted)?,
                        timeout: self.reboot_timeout.map_or(REBOOT_TIMEOUT, |timeout| timeout.0),
                    }),
                    (Some(_), None) => {
                        let missing = "is missing: with `reboot` the agent must be able to ask which version the machine started";
                        return Err(("activator.booted", missing.to_owned()));
                    }
                    (None, Some(_)) => return Err(("activator.booted", "belongs to `reboot`".to_owned())),
                    (None, None) => None,
                };
                Ok(Activator::Command(CommandActivator {
                    run: command("activator.run", run)?,
                    back: self.back.map(|back| command("activator.back", back)).transpose()?,
                    stop: self.stop.map(|stop| command("activator.stop", stop)).transpose()?,
                    timeout,
                    reboot,
                }))
            }
            ActivatorType::Supervise => {
                let restart = self.restart.unwrap_or_default();
                if restart.backoff.0 > restart.backoff_max.0 {
                    return Err(("activator.restart.backoff", "must not be longer than backoff-max".to_owned()));
                }
                Ok(Activator::Supervise(Supervise {
                    run: command("activator.run", self.run.unwrap_or_else(|| vec!["{binary}".to_owned()]))?,
                    env: self.env.unwrap_or_default(),
                    restart: RestartPolicy {
                        backoff: restart.backoff.0,
                        backoff_max: restart.backoff_max.0,
                        stable_after: restart.stable_after.0,
                    },
                    stop_timeout: self.stop_timeout.map_or(Duration::from_secs(10), |timeout| timeout.0),
                    log_bytes: self.log_size.map_or(1 << 20, |size| size.0),
                }))
            }
            ActivatorType::Systemd => Ok(Activator::Systemd(SystemdActivator {
                unit: unit("activator.unit", self.unit)?,
                action: self.action.unwrap_or(UnitAction::Restart),
                systemctl: self.systemctl.unwrap_or_else(systemctl),
                timeout,
            })),
            ActivatorType::Signal => Ok(Activator::Signal(SignalActivator {
                pid_file: folder.join(self.pid_file.ok_or(("activator.pid-file", "is missing".to_owned()))?),
                signal: self.signal.unwrap_or(TellSignal::Hup),
            })),
            ActivatorType::Helper => Ok(Activator::Helper(HelperActivator {
                socket: folder.join(self.socket.unwrap_or_else(|| PathBuf::from(HELPER_SOCKET))),
            })),
            ActivatorType::Agent => Ok(Activator::Agent),
        }
    }

    /// A key that the type does not read would be believed to work.
    fn refuse_foreign_keys(&self) -> Result<(), Wrong> {
        use ActivatorType::{Command, Helper, Signal, Supervise, Systemd};
        let keys: [(&'static str, bool, &[ActivatorType], &str); 15] = [
            ("activator.run", self.run.is_some(), &[Command, Supervise], "\"command\" or \"supervise\""),
            ("activator.back", self.back.is_some(), &[Command], "\"command\""),
            ("activator.stop", self.stop.is_some(), &[Command], "\"command\""),
            ("activator.timeout", self.timeout.is_some(), &[Command, Systemd], "\"command\" or \"systemd\""),
            ("activator.reboot", self.reboot.is_some(), &[Command], "\"command\""),
            ("activator.booted", self.booted.is_some(), &[Command], "\"command\""),
            ("activator.reboot-timeout", self.reboot_timeout.is_some(), &[Command], "\"command\""),
            ("activator.env", self.env.is_some(), &[Supervise], "\"supervise\""),
            ("activator.restart", self.restart.is_some(), &[Supervise], "\"supervise\""),
            ("activator.stop-timeout", self.stop_timeout.is_some(), &[Supervise], "\"supervise\""),
            ("activator.log-size", self.log_size.is_some(), &[Supervise], "\"supervise\""),
            (
                "activator.unit",
                self.unit.is_some() || self.action.is_some() || self.systemctl.is_some(),
                &[Systemd],
                "\"systemd\"",
            ),
            ("activator.pid-file", self.pid_file.is_some(), &[Signal], "\"signal\""),
            ("activator.signal", self.signal.is_some(), &[Signal], "\"signal\""),
            ("activator.socket", self.socket.is_some(), &[Helper], "\"helper\""),
        ];
        match keys.into_iter().find(|(_, given, types, _)| *given && !types.contains(&self.r#type)) {
            Some((key, _, _, types)) => Err((key, format!("belongs to type = {types}"))),
            None => Ok(()),
        }
    }
}

pub(super) fn systemctl() -> String {
    "systemctl".to_owned()
}

/// A unit's name: nothing that `systemctl` would take for an option or a pattern.
pub(super) fn unit(key: &'static str, given: Option<String>) -> Result<String, Wrong> {
    let unit = given.ok_or((key, "is missing: the name of the unit, e.g. \"bcd.service\"".to_owned()))?;
    let fine = |c: char| c.is_ascii_alphanumeric() || ":-_.@\\".contains(c);
    if unit.is_empty() || unit.len() > 255 || unit.starts_with('-') || !unit.chars().all(fine) {
        return Err((key, format!("`{unit}` is not the name of a unit")));
    }
    Ok(unit)
}

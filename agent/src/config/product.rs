//! One `[product.NAME]` table: as it is typed, and as the device uses it.

use std::path::{Path, PathBuf};

use groundswell_core::install::{Counted, Manner};
use groundswell_core::text::Version;
use serde::Deserialize;

use super::activator::{Activator, ActivatorFile, CommandActivator};
use super::health::{HealthCheck, HealthConfig, HealthFile, UnitTarget};
use super::hooks::{HooksConfig, HooksFile};

/// How one product is installed, judged and held back on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProductConfig {
    /// What starts a version.
    pub activator: Activator,
    /// What says whether a version works.
    pub health: HealthConfig,
    /// Commands around the steps.
    pub hooks: HooksConfig,
    /// While one of these files exists nothing starts (`inhibited`), urgent rollouts included.
    pub inhibit: Vec<PathBuf>,
    /// Only this version may be installed.
    pub version_lock: Option<Version>,
    /// Something else delivers this product: observe only.
    pub observe_only: bool,
    /// How often a trial may be started before recovery reverts it, 1 to 16.
    pub trial_starts: u32,
}

impl ProductConfig {
    /// What the install machine needs to know of it.
    #[must_use]
    pub fn manner(&self) -> Manner {
        manner(&self.activator, self.trial_starts)
    }
}

/// What the install machine needs to know of a product that is started so.
pub(super) fn manner(activator: &Activator, trial_starts: u32) -> Manner {
    let (counted, restarts_machine) = match activator {
        // What the machine is to an operating system, the supervisor is to the agent.
        Activator::Agent => (Counted::Elsewhere, true),
        Activator::Command(CommandActivator { reboot: Some(_), .. }) => (Counted::Boots, true),
        // A child starts and ends with its agent.
        Activator::Supervise(_) => (Counted::Starts, false),
        _ => (Counted::Boots, false),
    };
    Manner { trial_starts, counted, restarts_machine }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ProductFile {
    activator: ActivatorFile,
    health: Option<HealthFile>,
    #[serde(default)]
    hooks: HooksFile,
    #[serde(default)]
    inhibit: Vec<PathBuf>,
    version_lock: Option<Version>,
    #[serde(default)]
    observe_only: bool,
    trial_starts: Option<u32>,
}

/// The default.
pub(super) fn trial_starts() -> u32 {
    3
}

pub(super) fn trial_starts_in_range(trial_starts: u32) -> Result<(), Wrong> {
    match trial_starts {
        1..=16 => Ok(()),
        _ => Err(("trial-starts", "must lie between 1 and 16".to_owned())),
    }
}

/// The key below the product, and what is wrong with it.
pub(super) type Wrong = (&'static str, String);

impl ProductFile {
    /// The table, checked; otherwise the key below the product and what is wrong.
    pub(super) fn check(self, folder: &Path) -> Result<ProductConfig, Wrong> {
        let (supervised, unit) = (self.activator.is_supervised(), self.activator.unit());
        let activator = self.activator.check(folder)?;
        let health = match (self.health, &activator) {
            (Some(health), _) => health.check(supervised, unit)?,
            (None, Activator::Supervise(_) | Activator::Agent) => HealthConfig::every(HealthCheck::Process),
            (None, Activator::Systemd(systemd)) => {
                let target = UnitTarget { unit: systemd.unit.clone(), systemctl: systemd.systemctl.clone() };
                HealthConfig::every(HealthCheck::Unit(target))
            }
            (None, _) => return Err(("health", "is missing: the agent must know whether a version works".to_owned())),
        };
        let hooks = self.hooks.check()?;
        if matches!(activator, Activator::Helper(_)) {
            let told = "belongs into the helper's own file: there the product is installed".to_owned();
            if !hooks.commands.is_empty() {
                return Err(("hooks", told));
            }
            if self.trial_starts.is_some() {
                return Err(("trial-starts", told));
            }
        }
        let trial_starts = self.trial_starts.unwrap_or_else(trial_starts);
        trial_starts_in_range(trial_starts)?;
        Ok(ProductConfig {
            activator,
            health,
            hooks,
            inhibit: self.inhibit.into_iter().map(|file| folder.join(file)).collect(),
            version_lock: self.version_lock,
            observe_only: self.observe_only,
            trial_starts,
        })
    }
}

/// Program and arguments, checked.
pub(super) fn command(key: &'static str, argv: Vec<String>) -> Result<Vec<String>, Wrong> {
    if argv.first().is_none_or(String::is_empty) {
        return Err((key, "must name a program".to_owned()));
    }
    if argv.iter().any(|word| word.contains('\0')) {
        return Err((key, "must not contain NUL".to_owned()));
    }
    Ok(argv)
}

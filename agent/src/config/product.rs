//! One `[product.NAME]` table: as it is typed, and as the device uses it.

use std::path::{Path, PathBuf};

use groundswell_core::install::Manner;
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
        let restarts_machine = matches!(&self.activator, Activator::Command(CommandActivator { reboot: Some(_), .. }));
        Manner { trial_starts: self.trial_starts, restarts_machine }
    }
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
    #[serde(default = "trial_starts")]
    trial_starts: u32,
}

fn trial_starts() -> u32 {
    3
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
            (None, Activator::Supervise(_)) => HealthConfig::every(HealthCheck::Process),
            (None, Activator::Systemd(systemd)) => {
                let target = UnitTarget { unit: systemd.unit.clone(), systemctl: systemd.systemctl.clone() };
                HealthConfig::every(HealthCheck::Unit(target))
            }
            (None, _) => return Err(("health", "is missing: the agent must know whether a version works".to_owned())),
        };
        if !(1..=16).contains(&self.trial_starts) {
            return Err(("trial-starts", "must lie between 1 and 16".to_owned()));
        }
        Ok(ProductConfig {
            activator,
            health,
            hooks: self.hooks.check()?,
            inhibit: self.inhibit.into_iter().map(|file| folder.join(file)).collect(),
            version_lock: self.version_lock,
            observe_only: self.observe_only,
            trial_starts: self.trial_starts,
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

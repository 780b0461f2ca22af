//! The `hooks` table of a product: the operator's commands before and after each step of an install.

use std::collections::BTreeMap;
use std::time::Duration;

use groundswell_core::install::Hook;
use serde::Deserialize;

use super::period::Period;
use super::product::{Wrong, command};

/// Commands around the steps of an install. Arguments may contain `{slot}`, `{binary}`, `{version}`, `{product}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HooksConfig {
    /// Program and arguments of each; no shell.
    pub commands: BTreeMap<Hook, Vec<String>>,
    /// How long each may take; then its process group is killed, and it has failed.
    pub timeout: Duration,
}

impl Default for HooksConfig {
    fn default() -> Self {
        Self { commands: BTreeMap::new(), timeout: Duration::from_secs(60) }
    }
}

impl HooksConfig {
    /// How long hooks may take from the start of a version to the decision about it, and before that is written down.
    #[must_use]
    pub fn in_a_trial(&self) -> Duration {
        let any = |hooks: &[Hook]| u32::from(hooks.iter().any(|hook| self.commands.contains_key(hook)));
        let in_turn = any(&[Hook::AfterActivate]) + any(&[Hook::BeforeConfirm, Hook::BeforeRevert]);
        self.timeout.saturating_mul(in_turn)
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct HooksFile {
    before_stage: Option<Vec<String>>,
    after_stage: Option<Vec<String>>,
    before_activate: Option<Vec<String>>,
    after_activate: Option<Vec<String>>,
    before_confirm: Option<Vec<String>>,
    after_confirm: Option<Vec<String>>,
    before_revert: Option<Vec<String>>,
    after_revert: Option<Vec<String>>,
    timeout: Option<Period>,
}

impl HooksFile {
    pub(super) fn check(self) -> Result<HooksConfig, Wrong> {
        let given = [
            (Hook::BeforeStage, "hooks.before-stage", self.before_stage),
            (Hook::AfterStage, "hooks.after-stage", self.after_stage),
            (Hook::BeforeActivate, "hooks.before-activate", self.before_activate),
            (Hook::AfterActivate, "hooks.after-activate", self.after_activate),
            (Hook::BeforeConfirm, "hooks.before-confirm", self.before_confirm),
            (Hook::AfterConfirm, "hooks.after-confirm", self.after_confirm),
            (Hook::BeforeRevert, "hooks.before-revert", self.before_revert),
            (Hook::AfterRevert, "hooks.after-revert", self.after_revert),
        ];
        let mut hooks = HooksConfig::default();
        for (hook, key, argv) in given {
            if let Some(argv) = argv {
                hooks.commands.insert(hook, command(key, argv)?);
            }
        }
        hooks.timeout = self.timeout.map_or(hooks.timeout, |timeout| timeout.0);
        Ok(hooks)
    }
}

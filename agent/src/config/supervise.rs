//! The `supervise` table: how `swell supervise` judges and restarts the agent.

use std::time::Duration;

use serde::Deserialize;

use super::period::Period;

/// How long things may take under `swell supervise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperviseConfig {
    /// From the agent's start to its first sign of life.
    pub ready_within: Duration,
    /// From one sign of life to the next; the agent gives three in this time.
    pub silence: Duration,
    /// From the request to stop to the kill.
    pub stop_timeout: Duration,
    /// The first pause before an agent that ended is started again.
    pub backoff: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// How long an agent must run for the next pause to be the first again.
    pub stable_after: Duration,
}

impl Default for SuperviseConfig {
    fn default() -> Self {
        Self {
            ready_within: Duration::from_secs(120),
            silence: Duration::from_secs(60),
            stop_timeout: Duration::from_secs(60),
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            stable_after: Duration::from_secs(60),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct SuperviseFile {
    ready_within: Period,
    silence: Period,
    stop_timeout: Period,
    backoff: Period,
    backoff_max: Period,
    stable_after: Period,
}

impl Default for SuperviseFile {
    fn default() -> Self {
        let SuperviseConfig { ready_within, silence, stop_timeout, backoff, backoff_max, stable_after } =
            SuperviseConfig::default();
        Self {
            ready_within: Period(ready_within),
            silence: Period(silence),
            stop_timeout: Period(stop_timeout),
            backoff: Period(backoff),
            backoff_max: Period(backoff_max),
            stable_after: Period(stable_after),
        }
    }
}

impl SuperviseFile {
    /// The table, checked; otherwise the key and what is wrong.
    pub(super) fn check(&self) -> Result<SuperviseConfig, (&'static str, String)> {
        if self.backoff.0 > self.backoff_max.0 {
            return Err(("supervise.backoff", "must not be longer than backoff-max".to_owned()));
        }
        Ok(SuperviseConfig {
            ready_within: self.ready_within.0,
            silence: self.silence.0,
            stop_timeout: self.stop_timeout.0,
            backoff: self.backoff.0,
            backoff_max: self.backoff_max.0,
            stable_after: self.stable_after.0,
        })
    }
}

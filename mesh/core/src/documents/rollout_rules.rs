//! The structural rules of a rollout that need no other document: waves (case W5), halt (W9), times, `forgiven`, state.

use alloc::format;

use super::rejection::{Reason, Rejection};
use super::rollout::{Forgiven, Rollout, State, Wave, Window};
use super::rule::{ascending, at_most, expiry, integer, listed_keys, positive};
use crate::limits::{FORGIVEN, LABEL_VALUE_BYTES, LABELS, NAME_BYTES, NODES, WAVES, WINDOWS};
use crate::number::{Generation, Ppm};

impl Rollout {
    /// The rules that need no other document.
    ///
    /// # Errors
    /// `malformed` or `too-large`, naming the field.
    pub fn validate(&self) -> Result<(), Rejection> {
        if (self.generation == Generation::FIRST) != self.previous.is_none() {
            return Err(Rejection::malformed(
                "previous",
                "null in generation 1, the digest of the generation before in later ones",
            ));
        }
        if self.rollback && self.state != State::Aborted {
            return Err(Rejection::malformed("rollback", "goes only with state aborted"));
        }
        positive(self.roster.version, "roster.version")?;
        positive(self.roster.size, "roster.size")?;
        at_most(self.scope.pools.len(), NODES, "scope.pools")?;
        ascending(&self.scope.pools, "scope.pools")?;
        at_most(self.scope.labels.len(), LABELS, "scope.match")?;
        at_most(self.wary.len(), LABELS, "wary")?;
        at_most(self.hash_attributes.len(), LABELS, "hashAttributes")?;
        for (index, attribute) in self.hash_attributes.iter().enumerate() {
            named(attribute, &format!("hashAttributes[{index}]"))?;
            if self.hash_attributes.iter().take(index).any(|earlier| earlier == attribute) {
                return Err(Rejection::malformed(format!("hashAttributes[{index}]"), "names an attribute twice"));
            }
        }
        self.validate_waves()?;
        self.validate_times()?;
        if self.halt.min_failures == 0 {
            return Err(Rejection::malformed("halt.minFailures", "at least 1"));
        }
        Window::validate_all(&self.windows, "windows")?;
        if let Some(promotion) = &self.promotion {
            named(&promotion.environment, "promotion.environment")?;
        }
        at_most(self.forgiven.len(), FORGIVEN, "forgiven")?;
        ascending(self.forgiven.iter().map(Forgiven::order), "forgiven")?;
        listed_keys(&self.keys)
    }

    fn validate_times(&self) -> Result<(), Rejection> {
        // A brake must equal its predecessor in every other field, and acts also when that has expired.
        if self.state == State::Running {
            expiry(self.issued_at, self.expires_at)?;
        }
        positive(self.confirm_after_seconds, "confirmAfterSeconds")?;
        positive(self.upgrade_timeout_seconds, "upgradeTimeoutSeconds")?;
        positive(self.revert_timeout_seconds, "revertTimeoutSeconds")?;
        positive(self.offline_after_seconds, "offlineAfterSeconds")?;
        integer(self.grace_seconds, "graceSeconds")?;
        if self.confirm_after_seconds >= self.upgrade_timeout_seconds {
            let detail = "must lie below upgradeTimeoutSeconds: a node confirms before its watchdog reverts it";
            return Err(Rejection::malformed("confirmAfterSeconds", detail));
        }
        Ok(())
    }

    fn validate_waves(&self) -> Result<(), Rejection> {
        if self.waves.is_empty() {
            return Err(Rejection::malformed("waves", "at least one"));
        }
        at_most(self.waves.len(), WAVES, "waves")?;
        let mut percent = Ppm::ZERO;
        for (index, wave) in self.waves.iter().enumerate() {
            wave.validate(&format!("waves[{index}]"))?;
            if let Some(next) = wave.percent_ppm {
                if next <= percent {
                    let detail = format!("{next} does not lie above {percent}: percentages are cumulative and rise from above 0");
                    return Err(Rejection::malformed(format!("waves[{index}].percentPpm"), detail));
                }
                percent = next;
            }
        }
        let last = self.waves.len().saturating_sub(1);
        let ends_with_all = self.waves.last().is_some_and(|wave| wave.percent_ppm == Some(Ppm::ALL));
        if percent > Ppm::ZERO && !ends_with_all {
            let detail = "a list that has percentages ends with 1000000, all nodes";
            return Err(Rejection::malformed(format!("waves[{last}].percentPpm"), detail));
        }
        if usize::try_from(self.open_waves).map_or(true, |open| open > self.waves.len()) {
            return Err(Rejection::malformed("openWaves", format!("runs past the {} waves", self.waves.len())));
        }
        Ok(())
    }
}

impl Wave {
    fn validate(&self, field: &str) -> Result<(), Rejection> {
        if self.hosts.is_none() && self.labels.is_none() && self.percent_ppm.is_none() {
            return Err(Rejection::malformed(field, "names nobody: give hosts, match or percentPpm"));
        }
        if let Some(hosts) = &self.hosts {
            named(&hosts.attribute, &format!("{field}.hosts.attribute"))?;
            at_most(hosts.values.len(), NODES, &format!("{field}.hosts.values"))?;
            for (index, value) in hosts.values.iter().enumerate() {
                if value.len() > LABEL_VALUE_BYTES {
                    let field = format!("{field}.hosts.values[{index}]");
                    return Err(Rejection::new(Reason::TooLarge, field, format!("at most {LABEL_VALUE_BYTES} bytes")));
                }
            }
        }
        at_most(self.labels.as_ref().map_or(0, |labels| labels.len()), LABELS, &format!("{field}.match"))?;
        integer(self.soak_seconds, &format!("{field}.soakSeconds"))?;
        integer(self.wait_seconds.unwrap_or(0), &format!("{field}.waitSeconds"))
    }
}

impl Forgiven {
    /// The order of entries: by node, an entry without a claim before those with one.
    #[must_use]
    pub fn order(&self) -> (crate::node_id::NodeId, Option<crate::record::ClaimName>) {
        (self.node, self.claim)
    }
}

impl Window {
    /// The rules of a list of windows under `field`. Whether `when` and `zone` mean something is checked by the tools.
    pub(super) fn validate_all(windows: &[Self], field: &str) -> Result<(), Rejection> {
        at_most(windows.len(), WINDOWS, field)?;
        for (index, window) in windows.iter().enumerate() {
            for (name, text) in [("when", &window.when), ("zone", &window.zone)] {
                if text.is_empty() || text.len() > LABEL_VALUE_BYTES {
                    let detail = format!("1 to {LABEL_VALUE_BYTES} bytes");
                    return Err(Rejection::malformed(format!("{field}[{index}].{name}"), detail));
                }
            }
            if let Some(length) = window.length_seconds {
                positive(length, &format!("{field}[{index}].lengthSeconds"))?;
            }
        }
        Ok(())
    }
}

fn named(text: &str, field: &str) -> Result<(), Rejection> {
    if text.is_empty() || text.len() > NAME_BYTES {
        return Err(Rejection::malformed(field, format!("a name of 1 to {NAME_BYTES} bytes")));
    }
    Ok(())
}

//! `roster.toml` in the fleet folder: the pools' policy and the meeting addresses, written by people, signed with the next roster.

use std::collections::BTreeMap;
use std::path::Path;

use groundswell_core::documents::roster::{PoolPolicy, Roster, Wardens};
use groundswell_core::text::Pool;
use serde::Deserialize;

use super::measure::{Period, Share};
use super::toml_file;
use crate::failure::Failure;

/// The file that `swell fleet init` writes.
pub(crate) const DEFAULT: &str = r#"# Policy of the pools, signed with the next roster that `swell rollout create` cuts.
# A pool that is not named here has the values shown.

# At most 16 addresses at which members are always found, e.g. "/dns4/mesh.example.com/tcp/7490".
meet = []

# [pool.edge]
# budget = "5%"                # of the pool's nodes may be disrupted at once; at least one always may
# urgent-budget = "5%"         # the same for urgent rollouts; not below budget
# start-within = "60s"         # from a claim to the start, else the claim is withdrawn; "40m" where nodes are lean
# presume-lost-after = "24h"   # a holder unheard of for this long is presumed lost; "0s": never
# wardens = "pool"             # or "fleet": whom a slot's wardens are drawn from
"#;

/// What `roster.toml` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RosterFile {
    pools: BTreeMap<Pool, PoolPolicy>,
    /// Meeting addresses.
    pub(crate) meet: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Typed {
    #[serde(default)]
    meet: Vec<String>,
    #[serde(default)]
    pool: BTreeMap<Pool, TypedPool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TypedPool {
    budget: Option<Share>,
    urgent_budget: Option<Share>,
    start_within: Option<Period>,
    presume_lost_after: Option<Period>,
    wardens: Option<Wardens>,
}

impl RosterFile {
    /// Reads the folder's `roster.toml`. Without one, as in a folder that was pulled, what the roster before signed goes on;
    /// pools that it does not list have the defaults.
    pub(crate) fn read(dir: &Path, before: Option<&Roster>) -> Result<Self, Failure> {
        let path = dir.join("roster.toml");
        if !path.exists() {
            return Ok(before.map(|roster| Self { pools: roster.pools.clone(), meet: roster.meet.clone() }).unwrap_or_default());
        }
        let typed: Typed = toml_file::read(&path)?;
        let pools = typed.pool.into_iter().map(|(pool, typed)| (pool, typed.policy())).collect();
        Ok(Self { pools, meet: typed.meet })
    }

    /// The policy of a pool.
    pub(crate) fn policy(&self, pool: &Pool) -> PoolPolicy {
        self.pools.get(pool).cloned().unwrap_or_default()
    }
}

impl TypedPool {
    fn policy(self) -> PoolPolicy {
        let default = PoolPolicy::default();
        let budget_ppm = self.budget.map_or(default.budget_ppm, |Share(share)| share);
        PoolPolicy {
            budget_ppm,
            // Left out, the urgent budget follows the ordinary one.
            urgent_budget_ppm: self.urgent_budget.map_or(budget_ppm, |Share(share)| share),
            start_within_seconds: self.start_within.map_or(default.start_within_seconds, |Period(seconds)| seconds),
            presume_lost_after_seconds: self
                .presume_lost_after
                .map_or(default.presume_lost_after_seconds, |Period(seconds)| seconds),
            wardens: self.wardens.unwrap_or(default.wardens),
            windows: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_file_says_what_leaving_it_out_says() {
        let typed: Typed = toml_file::parse(Path::new("roster.toml"), DEFAULT).unwrap();
        assert!(typed.pool.is_empty() && typed.meet.is_empty());
        let uncommented: String = DEFAULT
            .lines()
            .map(|line| line.strip_prefix("# ").filter(|rest| rest.starts_with('[') || rest.contains(" = ")).unwrap_or(line))
            .collect::<Vec<_>>()
            .join("\n");
        let typed: Typed = toml_file::parse(Path::new("roster.toml"), &uncommented).unwrap();
        assert_eq!(typed.pool.into_values().next().unwrap().policy(), PoolPolicy::default());
    }

    #[test]
    fn m5_an_unknown_key_is_told_with_line_and_nearest() {
        let error =
            toml_file::parse::<Typed>(Path::new("roster.toml"), "meet = []\n[pool.edge]\nbuget = \"5%\"\n").err().unwrap();
        assert_eq!(error.to_string(), "roster.toml:3: unknown key `buget`; did you mean `budget`?");
    }
}

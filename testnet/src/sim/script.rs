//! A run of the virtual world as data: fleet, rates, what happens when, and whether progress is demanded in the end.
//!
//! A script is written by a seed ([`super::draw`]), by hand (`testnet/scenarios`) or by a failure, and is played by
//! [`super::director`]. The same script does the same, to the last bit. In TOML it reads
//!
//! ```toml
//! seed = 17
//! pools = [{ name = "north", machines = 6, budget-ppm = 50000, presume-lost-after = "1d" }]
//! lasts = "30m"
//! acts = [
//!     { at = "5s", do = "publish", at-machine = 0 },
//!     { at = "1m30s", do = "power-off", machine = 3, for = "20m" },
//! ]
//! expect = [{ that = "all but one run it", at = "20m", runs = { "1.0.0" = 1, "2.0.0" = 5 } }]
//! ```

use std::fmt::Write as _;

use groundswell_core::number::Ppm;
use groundswell_core::text::Pool;
use serde::{Deserialize, Serialize};

use super::act::{Act, Terms, plain};
use super::expect::Expectation;
use super::span;
use super::world::Faults;

/// One run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Script {
    /// What it is about, in a sentence or two.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub story: String,
    /// Numbers of the cases that it tells, for example `D13`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<String>,
    /// From which delays, losses and the like are drawn.
    #[serde(default)]
    pub seed: u64,
    /// The fleet.
    pub pools: Vec<PoolPlan>,
    /// So many rollout keys must sign what goes; one is enough to brake. 1 or 2.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub rollout_keys: u32,
    /// So many more members of a pool may lie than the design tolerates: what a run shows then is no fault.
    #[serde(default, skip_serializing_if = "is_none")]
    pub beyond: usize,
    /// Share of messages lost.
    #[serde(default = "none")]
    pub loss_ppm: Ppm,
    /// What else goes wrong by itself.
    #[serde(default)]
    pub faults: Faults,
    /// How long it lasts before it ends, or is healed.
    #[serde(rename = "lasts", with = "span")]
    pub lasts_ms: u64,
    /// The world is healed then, and everybody must come to a last release under these terms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Terms>,
    /// What happens, in order of time.
    #[serde(default)]
    pub acts: Vec<Scheduled>,
    /// What must be so, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expect: Vec<Expectation>,
}

/// A pool of machines that are set up alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PoolPlan {
    /// Its name.
    pub name: Pool,
    /// How many.
    pub machines: u32,
    /// Its budget.
    #[serde(default = "five_percent")]
    pub budget_ppm: Ppm,
    /// When a holder that says nothing is presumed lost; never for 0.
    #[serde(rename = "presume-lost-after", default = "a_day", with = "span")]
    pub presume_lost_after_ms: u64,
    /// How long after its claim a holder may start.
    #[serde(rename = "start-within", default = "a_minute", with = "span")]
    pub start_within_ms: u64,
    /// Its machines are lean: they sync every 15 minutes and serve nobody.
    #[serde(default)]
    pub lean: bool,
}

/// Something that happens at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduled {
    /// Since the beginning.
    #[serde(rename = "at", with = "span")]
    pub at_ms: u64,
    /// What.
    #[serde(flatten)]
    pub act: Act,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_none(number: &usize) -> bool {
    *number == 0
}

fn none() -> Ppm {
    Ppm::ZERO
}

fn five_percent() -> Ppm {
    Ppm::new(50_000).expect("a share")
}

fn a_minute() -> u64 {
    60_000
}

fn a_day() -> u64 {
    86_400_000
}

impl Script {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// How many machines there are at the beginning.
    #[must_use]
    pub fn machines(&self) -> u32 {
        self.pools.iter().map(|pool| pool.machines).sum()
    }

    /// Its beginning: only what happens and is asked for by then; it ends, or is healed, no later.
    #[must_use]
    pub fn beginning(mut self, lasts_ms: u64) -> Self {
        self.lasts_ms = self.lasts_ms.min(lasts_ms);
        let lasts_ms = self.lasts_ms;
        self.acts.retain(|scheduled| scheduled.at_ms <= lasts_ms);
        self.expect.retain(|expectation| expectation.at_ms <= lasts_ms);
        self
    }

    /// Its text: one line per field and per act. [`Script::parse`] reads it.
    ///
    /// # Panics
    /// Never: everything in a script can be written.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let table = toml::Table::try_from(self).expect("a script is a table of plain values");
        let mut text = String::new();
        for (key, value) in table.iter().filter(|(key, _)| *key != "acts" && *key != "expect") {
            let _ = writeln!(text, "{key} = {value}");
        }
        for key in ["acts", "expect"] {
            let lines: Vec<&toml::Value> = table.get(key).and_then(toml::Value::as_array).into_iter().flatten().collect();
            if !lines.is_empty() {
                let _ = writeln!(text, "{key} = [");
                for line in lines.into_iter().filter_map(toml::Value::as_table) {
                    let _ = writeln!(text, "    {},", toml::Value::Table(plain(line.clone())));
                }
                text += "]\n";
            }
        }
        text
    }

    /// What happens, one line each, for people.
    #[must_use]
    pub fn tell(&self) -> String {
        let line = |scheduled: &Scheduled| format!("{:>12}  {}\n", span::tell(scheduled.at_ms), scheduled.act);
        self.acts.iter().map(line).collect()
    }
}

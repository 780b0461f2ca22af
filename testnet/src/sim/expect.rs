//! What a script expects of its fleet, by name: who runs what, who is halted, who holds why, at a moment or by then.
//!
//! A [`Sight`] is what a fleet looks like from outside at one instant. Expectations compare it with what they name, and
//! nothing else; a scenario's golden text prints all of it.

use std::collections::BTreeMap;
use std::fmt;

use groundswell_core::record::status::{HoldCode, Phase};
use groundswell_core::text::Pool;
use serde::{Deserialize, Serialize};

use super::act::maybe_span;
use super::machine::Machine;
use super::span;
use super::world::World;

/// Something that must be so. What is not named may be anything; a table that is named is meant whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Expectation {
    /// In words.
    pub that: String,
    /// When.
    #[serde(rename = "at", with = "span")]
    pub at_ms: u64,
    /// It may become so until then; at once when absent.
    #[serde(rename = "until", default, skip_serializing_if = "Option::is_none", with = "maybe_span")]
    pub until_ms: Option<u64>,
    /// So many machines run each version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<BTreeMap<String, u32>>,
    /// So many machines that are up see the newest rollout halted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<u32>,
    /// So many machines that are up hold, by code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<BTreeMap<HoldCode, u32>>,
    /// So many machines that are up stand in each phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<BTreeMap<Phase, u32>>,
    /// The most machines of each pool that were disrupted at once so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_disrupted: Option<BTreeMap<Pool, usize>>,
    /// Upgrades that machines have started so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<u64>,
    /// What single machines show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<Shown>,
}

/// What one machine shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Shown {
    /// Which.
    pub machine: u32,
    /// What runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<String>,
    /// Its phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Its hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldCode>,
}

/// What a fleet looks like from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Machines by version.
    pub runs: BTreeMap<String, u32>,
    /// Machines that are up.
    pub up: u32,
    /// Of those: who sees the newest rollout halted.
    pub halted: u32,
    /// Of those: who holds, by code.
    pub holds: BTreeMap<HoldCode, u32>,
    /// Of those: who stands in which phase.
    pub phases: BTreeMap<Phase, u32>,
    /// The most machines of each pool that were disrupted at once so far.
    pub most_disrupted: BTreeMap<Pool, usize>,
    /// Upgrades started so far.
    pub starts: u64,
}

fn counted<T: Ord>(items: impl Iterator<Item = T>) -> BTreeMap<T, u32> {
    let mut counts = BTreeMap::new();
    for item in items {
        *counts.entry(item).or_default() += 1;
    }
    counts
}

/// What a machine shows of itself while it is up.
fn shown(machine: &Machine, at_ms: u64) -> Option<(Phase, Option<HoldCode>, bool)> {
    let (node, now) = (machine.node.as_ref()?, machine.now(at_ms));
    let product = node.view(now).products.into_iter().next()?;
    let newest = node.rollouts(now).into_iter().max_by_key(|rollout| rollout.sequence);
    Some((product.phase, product.hold.map(|hold| hold.code), newest.is_some_and(|rollout| rollout.halted.is_some())))
}

fn version(machine: &Machine) -> String {
    machine.device.running().map_or_else(|| "nothing".to_string(), |running| running.version.to_string())
}

impl Sight {
    /// Looks at a world.
    #[must_use]
    pub fn of(world: &World) -> Self {
        let shown: Vec<_> = world.machines.iter().filter_map(|machine| shown(machine, world.now_ms)).collect();
        let count = |of: usize| u32::try_from(of).expect("few machines");
        Self {
            runs: counted(world.machines.iter().map(version)),
            up: count(world.machines.iter().filter(|machine| machine.node.is_some()).count()),
            halted: count(shown.iter().filter(|(_, _, halted)| *halted).count()),
            holds: counted(shown.iter().filter_map(|(_, hold, _)| *hold)),
            phases: counted(shown.iter().map(|(phase, _, _)| *phase)),
            most_disrupted: world.most_disrupted.clone(),
            starts: world.starts,
        }
    }
}

fn tell<K: fmt::Display, V: fmt::Display>(counts: &BTreeMap<K, V>) -> String {
    let parts: Vec<String> = counts.iter().map(|(what, count)| format!("{what} × {count}")).collect();
    if parts.is_empty() { "none".to_string() } else { parts.join(", ") }
}

/// A phase as records show it.
fn named(phases: &BTreeMap<Phase, u32>) -> BTreeMap<String, u32> {
    let name = |phase: &Phase| toml::Value::try_from(phase).expect("a phase is a word");
    phases.iter().map(|(phase, count)| (name(phase).as_str().unwrap_or_default().to_string(), *count)).collect()
}

impl fmt::Display for Sight {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, up, halted, holds, phases, most_disrupted, starts } = self;
        writeln!(formatter, "runs: {}", tell(runs))?;
        writeln!(formatter, "up: {up}, halted at {halted}, upgrades started: {starts}")?;
        writeln!(formatter, "phases: {}", tell(&named(phases)))?;
        writeln!(formatter, "holds: {}", tell(holds))?;
        write!(formatter, "most disrupted at once: {}", tell(most_disrupted))
    }
}

fn same<T: PartialEq + fmt::Debug>(what: &str, expected: Option<&T>, seen: &T) -> Result<(), String> {
    match expected {
        Some(expected) if expected != seen => Err(format!("{what} {seen:?}, expected {expected:?}")),
        _ => Ok(()),
    }
}

impl Expectation {
    /// Whether it is so.
    ///
    /// # Errors
    /// What is otherwise.
    pub fn judge(&self, world: &World) -> Result<(), String> {
        let sight = Sight::of(world);
        same("runs", self.runs.as_ref(), &sight.runs)?;
        same("halted at", self.halted.as_ref(), &sight.halted)?;
        same("holds", self.holds.as_ref(), &sight.holds)?;
        same("phases", self.phases.as_ref(), &sight.phases)?;
        same("most disrupted", self.most_disrupted.as_ref(), &sight.most_disrupted)?;
        same("upgrades started", self.starts.as_ref(), &sight.starts)?;
        for expected in &self.machines {
            let index = expected.machine;
            let Some(machine) = world.machines.iter().find(|machine| machine.index == index) else {
                return Err(format!("there is no machine {index}"));
            };
            same(&format!("machine {index} runs"), expected.runs.as_ref(), &version(machine))?;
            let seen = shown(machine, world.now_ms);
            if let Some(phase) = expected.phase {
                same(&format!("machine {index} is in phase"), Some(&Some(phase)), &seen.map(|(phase, _, _)| phase))?;
            }
            if let Some(hold) = expected.hold {
                same(&format!("machine {index} holds"), Some(&Some(hold)), &seen.and_then(|(_, hold, _)| hold))?;
            }
        }
        Ok(())
    }
}

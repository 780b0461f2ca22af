//! The Byzantine margin (design, section 7): as many of a slot's wardens as its pool tolerates lie, and one more.
//!
//! The worst that a warden can do is to stand in two places: each half of a parted pool sees one that keeps every rule and
//! promises the slot there. So a liar is a machine whose disk is copied while the halves are parted; one copy serves each.
//! With the tolerated number at most one half has a quorum. With one more both have, and S1 can break; when the halves
//! meet, two different records under one number convict the liars.

use std::collections::BTreeSet;

use groundswell_core::lease::budget::Slot;
use groundswell_core::lease::wardens::{Quorum, Wardens};
use groundswell_core::node::effect::Event;
use groundswell_core::node_id::NodeId;
use groundswell_core::number::Ppm;
use groundswell_core::text::Pool;

use super::act::{Act, Terms};
use super::device::Behaviour;
use super::director::play_out;
use super::script::{PoolPlan, Scheduled, Script};
use super::shrink::guarantee;
use super::world::{Faults, node_id};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;

/// What came of a number of worlds with so many liars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// Wardens of the slot that lied.
    pub liars: usize,
    /// Worlds.
    pub worlds: usize,
    /// In how many of them S1 broke.
    pub broken: usize,
    /// In how many of them an honest machine convicted a liar.
    pub convicted: usize,
    /// In how many of them somebody said that a liar is in two places: an honest machine that convicted it, or its own agent,
    /// which had found a newer record of its own.
    pub reported: usize,
    /// What else was otherwise than it should be.
    pub failures: Vec<String>,
}

/// How many of a slot's wardens may lie in a pool of so many nodes.
#[must_use]
pub fn tolerated(nodes: u32) -> usize {
    let count = usize::try_from(nodes).unwrap_or(0);
    Quorum::of(count).map_or(0, |quorum| quorum.may_lie)
}

/// Plays worlds of one pool in which so many wardens of its one slot lie.
#[must_use]
pub fn tried(nodes: u32, liars: usize, seeds: std::ops::Range<u64>) -> Tried {
    let mut tried = Tried { liars, ..Tried::default() };
    for seed in seeds {
        let (world, outcome) = play_out(&script(nodes, liars, seed));
        tried.worlds += 1;
        let lied: BTreeSet<NodeId> = world.machines.iter().filter(|machine| machine.liar).map(|machine| machine.id).collect();
        let convicted = world.events.iter().any(|(_, index, event)| match event {
            Event::Convicted { node, .. } => lied.contains(node) && !world.machine(*index).liar,
            _ => false,
        });
        let found_out =
            |(_, index, event): &(u64, u32, Event)| matches!(event, Event::SetBack { .. }) && world.machine(*index).liar;
        tried.convicted += usize::from(convicted);
        tried.reported += usize::from(convicted || world.events.iter().any(found_out));
        match outcome.failure {
            Some(failure) if guarantee(&failure) == "S1" => tried.broken += 1,
            Some(failure) => tried.failures.push(format!("seed {seed}: {failure}")),
            None => {}
        }
    }
    tried
}

/// One world: the halves part, the liars' disks are copied, a rollout is handed to both halves, the halves meet.
#[must_use]
pub fn script(nodes: u32, liars: usize, seed: u64) -> Script {
    let pool = Pool::new("north").expect("a plain name");
    let ids: Vec<NodeId> = (0..nodes).map(node_id).collect();
    let wardens = Wardens::draw(&Slot { pool: pool.clone(), number: 0 }, &ids).nodes;
    let is_warden = |index: &u32| wardens.contains(&node_id(*index));
    // Others in each world: who comes first in the rollout's order is the same in all of them.
    let mut lying: Vec<u32> = (0..nodes).filter(is_warden).collect();
    let first = usize::try_from(seed).unwrap_or(0).checked_rem(lying.len()).unwrap_or(0);
    lying.rotate_left(first);
    lying.truncate(liars);
    // Honest wardens are split evenly, whoever is none joins them in turn.
    let mut honest: Vec<u32> = (0..nodes).filter(|index| !lying.contains(index)).collect();
    honest.sort_by_key(|index| !is_warden(index));
    let here: Vec<u32> = honest.iter().copied().step_by(2).collect();
    let there: Vec<u32> = honest.iter().copied().skip(1).step_by(2).collect();
    let half = lying.iter().chain(&here).copied().collect();
    let terms =
        Terms { waves_ppm: vec![Ppm::ALL], confirm_after_ms: 40 * SECOND, upgrade_timeout_ms: 2 * MINUTE, ..Terms::default() };
    let at = |at_ms, act| Scheduled { at_ms, act };
    let mut acts = vec![at(MINUTE, Act::Partition { groups: vec![half] })];
    acts.extend(lying.iter().map(|machine| at(MINUTE + SECOND, Act::Clone { machine: *machine })));
    let at_machine = here.first().copied().unwrap_or(0);
    acts.push(at(4 * MINUTE, Act::Publish { at_machine, behaviour: Behaviour::Good, terms, odd: Vec::new() }));
    if let Some(at_machine) = there.first().copied() {
        acts.push(at(4 * MINUTE + SECOND, Act::Resume { at_machine }));
    }
    acts.push(at(30 * MINUTE, Act::Mend));
    Script {
        story: format!("{liars} of {} wardens lie, in a pool of {nodes}", wardens.len()),
        cases: Vec::new(),
        seed,
        pools: vec![PoolPlan {
            name: pool,
            machines: nodes,
            budget_ppm: Ppm::new(50_000).expect("a share"),
            presume_lost_after_ms: 24 * 60 * MINUTE,
            start_within_ms: MINUTE,
            lean: false,
        }],
        rollout_keys: 1,
        beyond: liars.saturating_sub(tolerated(nodes)),
        loss_ppm: Ppm::ZERO,
        faults: Faults::default(),
        lasts_ms: 60 * MINUTE,
        progress: None,
        acts,
        expect: Vec::new(),
    }
}

//! S1 to S7, each a function of its name: judged by what devices do and by what was really signed.
//!
//! What lies under S1 stands in [`super::leases`], one node's upgrade in [`super::upgrade`].

use std::collections::BTreeSet;

use groundswell_core::documents::rollout::Rollout;
use groundswell_core::node::Node;
use groundswell_core::node::effect::Install;
use groundswell_core::node::view::RolloutView;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::ClaimName;
use groundswell_core::record::status::{Outcome, Phase};

use super::super::machine::Machine;
use super::super::operator::product;
use super::super::world::World;
use super::leases::pool_under;
use super::truth::Truth;

/// S1: no pool has more nodes disrupted than its budget: that of the newest roster that one of them holds a slot under.
/// Machines that were made to lie count for themselves only.
///
/// # Errors
/// Who is disrupted.
pub fn s1_budget(world: &World) -> Result<(), String> {
    for (pool, most) in &world.budgets {
        let lost_after_ms =
            world.operator.policies.get(pool).map_or(86_400, |policy| policy.presume_lost_after_seconds).saturating_mul(1_000);
        let counts = |machine: &&Machine| {
            let Some(since) = machine.disruption.since_ms else { return false };
            // A warden may have heard its holder last when it claimed, up to a start time before, by a clock that is fast.
            let slack_ms = 60_000 + lost_after_ms / 100;
            let lost = lost_after_ms > 0 && world.now_ms.saturating_sub(since) + slack_ms >= lost_after_ms;
            machine.pool == *pool && !machine.liar && !machine.disruption.repair && !machine.disruption.written_off && !lost
        };
        let disrupted: Vec<&Machine> = world.machines.iter().filter(counts).collect();
        let held = disrupted.iter().filter_map(|machine| world.operator.rosters.get(&machine.disruption.roster?));
        let newest = held.map(|roster| (roster.version, pool_under(world, roster, pool).1));
        let budget = newest.max().map_or(*most, |(_, budget)| budget);
        if disrupted.len() > usize::from(budget) {
            let disrupted: Vec<u32> = disrupted.iter().map(|machine| machine.index).collect();
            return Err(format!("{disrupted:?} of pool {pool} are disrupted, its budget is {budget}"));
        }
    }
    Ok(())
}

/// S2: whoever starts has the evidence that its rollout asks for from every earlier wave: that many members have
/// really signed that they soaked. A member that lies may have signed it to some.
///
/// # Errors
/// Which wave lacks it.
pub fn s2_evidence(world: &World, node: &Node, id: NodeId, view: &RolloutView, rollout: &Rollout) -> Result<(), String> {
    let truth = &world.truth;
    let mine = view.nodes.iter().find(|row| row.node == id).map_or(u32::MAX, |row| row.wave);
    let liars: BTreeSet<NodeId> = world.machines.iter().filter(|machine| machine.liar).map(|machine| machine.id).collect();
    // Whoever came with more than this release stays with that, and says so once for all rollouts.
    let above = world.machines.iter().filter(|machine| machine.device.floor() > rollout.release.sequence && !machine.liar);
    let above: BTreeSet<NodeId> = above.map(|machine| machine.id).collect();
    for wave in view.waves.iter().filter(|wave| wave.index < mine && wave.members > 0) {
        let gone = |member: &NodeId| {
            above.contains(member)
                || truth.out_of_counts.contains(&(rollout.id.clone(), *member))
                || truth.retired.contains(member)
                || node.ledger().is_convicted(member)
        };
        let vouched = |member: &NodeId| truth.soaked.contains(&(rollout.id.clone(), *member)) || liars.contains(member);
        let members: Vec<NodeId> = view.nodes.iter().filter(|row| row.wave == wave.index).map(|row| row.node).collect();
        let soaked = members.iter().filter(|member| vouched(member)).count();
        let applicable = members.iter().filter(|member| !gone(member)).count();
        if soaked < rollout.min_soaked_ppm.ceil_of(applicable) {
            return Err(format!("wave {} has {soaked} soaked of {applicable}, and a node of wave {mine} starts", wave.index));
        }
    }
    Ok(())
}

/// S3: only what a threshold of keys signed is activated.
///
/// # Errors
/// What was not signed.
pub fn s3_trust(truth: &Truth, install: &Install) -> Result<(), String> {
    match truth.releases.get(&install.release) {
        _ if truth.releases.is_empty() => Ok(()),
        Some(sequence) if *sequence == install.sequence => Ok(()),
        _ => Err(format!("activates {install:?}, which nobody signed")),
    }
}

/// S4: nobody who can see that too many failed starts or grants: counted here from the records and documents alone, and from
/// what members who lie had owned up to before; fewer than a node counts, which knows silence too.
///
/// # Errors
/// Which wave is over its ratio.
pub fn s4_halt(machine: &Machine, node: &Node, view: &RolloutView, rollout: &Rollout) -> Result<(), String> {
    for wave in &view.waves {
        let failed = |member: &NodeId| {
            if node.ledger().is_convicted(member) || node.shelf().is_retired(member) {
                return false;
            }
            let verdicts = node.ledger().verdicts(member, &rollout.release.product);
            let forgiven = rollout.forgiven.iter().filter(|entry| entry.node == *member).map(|entry| entry.claim).max();
            let counts = |claim: Option<ClaimName>| forgiven.is_none_or(|upto| claim > upto);
            let mine = verdicts.iter().filter(|verdict| verdict.rollout == rollout.id && verdict.outcome != Outcome::Soaked);
            let before = machine.owned_up.iter().filter(|(id, node, _)| *id == rollout.id && node == member);
            mine.map(|verdict| verdict.claim).chain(before.map(|(_, _, claim)| *claim)).any(counts)
        };
        let rows: Vec<NodeId> = view.nodes.iter().filter(|row| row.wave == wave.index).map(|row| row.node).collect();
        let failures = rows.iter().filter(|member| failed(member)).count() as u64;
        let over = failures * 1_000_000 > u64::from(rollout.halt.max_failure_ppm.parts()) * rows.len() as u64;
        if over && failures >= u64::from(rollout.halt.min_failures) {
            return Err(format!("{failures} of {} failed in wave {}, in sight of this node", rows.len(), wave.index));
        }
    }
    Ok(())
}

/// S5: what runs is never below what was once confirmed.
///
/// # Errors
/// What runs below the floor.
pub fn s5_floor(truth: &Truth, machine: &Machine) -> Result<(), String> {
    let floor = truth.floors.get(&machine.index).copied().unwrap_or_default();
    match machine.device.running() {
        Some(running) if running.sequence < floor => Err(format!("runs {running:?} below its floor {floor}")),
        _ => Ok(()),
    }
}

/// S6: something runs at every instant, and a node that is not in the middle of an upgrade knows what, once its device
/// has told it: at the instant of its start it knows what its store says, which may have been set back.
///
/// # Errors
/// What it believes instead.
pub fn s6_runnable(machine: &Machine, at_ms: u64) -> Result<(), String> {
    let Some(running) = machine.device.running() else { return Err("nothing runs".to_string()) };
    let Some(node) = machine.node.as_ref().filter(|_| machine.booted_ms < at_ms) else { return Ok(()) };
    match node.believes(&product()) {
        Some((Some(believed), phase)) if phase != Phase::Activating && believed.version != running.version => {
            Err(format!("believes {} in phase {phase:?}, and {} runs", believed.version, running.version))
        }
        _ => Ok(()),
    }
}

/// S7: only members have records here, and only who lied is convicted.
///
/// # Errors
/// Whose record it is.
pub fn s7_members(world: &World, node: &Node) -> Result<(), String> {
    for (key, _) in node.ledger().entries() {
        let Some(machines) = world.by_id.get(&key.node) else {
            return Err(format!("keeps a record of {}, which is no member", key.node));
        };
        if node.ledger().is_convicted(&key.node) && !machines.iter().any(|index| world.machine(*index).liar) {
            return Err(format!("convicts {}, which has never lied", key.node));
        }
    }
    Ok(())
}

//! S1 at its roots: a start is held against what wardens really keep on their disks, a claim against true time, a node
//! against what its store went through. Slots, quorums and waits are counted here by tables of this file's own.

use std::collections::BTreeSet;

use groundswell_core::documents::roster::Roster;
use groundswell_core::lease::budget::Slot;
use groundswell_core::lease::wardens::Wardens;
use groundswell_core::node::promises_kept;
use groundswell_core::node_id::NodeId;
use groundswell_core::number::Ppm;
use groundswell_core::record::status::Claim;
use groundswell_core::text::Pool;

use super::super::machine::Machine;
use super::super::world::World;

/// Clocks that run up to a percent fast, and wall clocks that are read in whole seconds.
const CLOCK_SLACK_MS: u64 = 1_000;
/// How long a node whose store was set back waits where nobody is presumed lost, in milliseconds.
const DAY_MS: u64 = 86_400_000;

/// How many nodes of a pool with so many listed ones may be disrupted at once: their share, and never none.
#[must_use]
pub fn budget_of(listed: usize, share: Ppm) -> u16 {
    let allowed = listed as u64 * u64::from(share.parts()) / 1_000_000;
    u16::try_from(allowed.max(1)).unwrap_or(u16::MAX)
}

/// The members of a pool that a roster lists, and how many of them may be disrupted at once under it.
pub(super) fn pool_under(world: &World, roster: &Roster, pool: &Pool) -> (Vec<NodeId>, u16) {
    let is_in = |id: &NodeId| world.by_id.get(id).is_some_and(|at| at.iter().any(|index| world.machine(*index).pool == *pool));
    let members: Vec<NodeId> = roster.nodes.iter().map(|listed| listed.id).filter(is_in).collect();
    let share = roster.pools.get(pool).cloned().unwrap_or_default().budget_ppm;
    let budget = budget_of(members.len(), share);
    (members, budget)
}

/// The wardens of a claim's slot under its roster, and how many of them make a quorum.
fn wardens_of(world: &World, claim: &Claim) -> Option<(Vec<NodeId>, usize)> {
    let slot = Slot { pool: claim.pool.clone(), number: claim.slot? };
    let roster = world.operator.rosters.get(&claim.roster)?;
    let (of_pool, _) = pool_under(world, roster, &claim.pool);
    let quorum = match of_pool.len() {
        0..=2 => 1,
        3 => 2,
        4..=6 => 3,
        7 | 8 => 5,
        _ => 6,
    };
    Some((Wardens::draw(&slot, &of_pool).nodes, quorum))
}

/// S1: whoever starts on a slot has one that its pool has under its roster, and the promise of a quorum of the slot's wardens
/// for this very claim, durable on their disks. A warden that lies may have said anything.
///
/// # Errors
/// How many slots there are, or who is bound and how many it takes.
pub fn s1_quorum(world: &World, holder: NodeId, claim: &Claim) -> Result<(), String> {
    let slots = world.operator.rosters.get(&claim.roster).map(|roster| pool_under(world, roster, &claim.pool).1);
    if let (Some(slot), Some(slots)) = (claim.slot, slots)
        && slot >= slots
    {
        return Err(format!("starts on slot {slot} of {}, which has {slots}", claim.pool));
    }
    let Some((wardens, quorum)) = wardens_of(world, claim) else {
        return Err(format!("starts under roster {}, which nobody signed", claim.roster));
    };
    let keeps = |machine: &Machine| {
        machine.liar
            || promises_kept(&machine.disk).iter().any(|promise| {
                promise.holder == holder
                    && promise.claim == claim.name
                    && promise.pool == claim.pool
                    && Some(promise.slot) == claim.slot
            })
    };
    let bound = wardens.iter().filter(|id| world.machines.iter().any(|machine| machine.id == **id && keeps(machine)));
    let bound: Vec<String> = bound.map(|id| id.short()).collect();
    if bound.len() >= quorum {
        Ok(())
    } else {
        Err(format!("starts on slot {:?} of {}: {bound:?} are bound, it takes {quorum}", claim.slot, claim.pool))
    }
}

/// S1: a start follows its claim within the pool's start time, by true time, in the same run of the agent.
///
/// # Errors
/// How old the claim is.
pub fn s1_claim_age(world: &World, machine: &Machine, claim: &Claim) -> Result<(), String> {
    let Some(seen) = machine.claimed.filter(|seen| seen.name == claim.name) else {
        return Err(format!("starts on claim {}, which it has not published", claim.name));
    };
    if seen.life != machine.life {
        return Err(format!("starts on claim {}, which it made before it was restarted", claim.name));
    }
    let within_ms = world.operator.policies.get(&claim.pool).map_or(60, |policy| policy.start_within_seconds) * 1_000;
    let age_ms = world.now_ms - seen.at_ms;
    // Paused with its boot clock while its wall clock was set: neither can tell.
    let untold = machine.paused_ms > 0 && machine.clock_set_ms >= seen.at_ms;
    if age_ms <= within_ms + within_ms / 100 + CLOCK_SLACK_MS || untold {
        Ok(())
    } else {
        Err(format!("starts on claim {} that is {age_ms} ms old, {within_ms} ms are allowed", claim.name))
    }
}

/// S1: after a start a node takes part on a slot only once it has synced with `min(2, quorum − 1)` other wardens.
///
/// # Errors
/// With how many it has exchanged a turn of a sync.
pub fn s1_synced(world: &World, machine: &Machine, claim: &Claim) -> Result<(), String> {
    let Some((wardens, quorum)) = wardens_of(world, claim) else { return Ok(()) };
    let need = (quorum - 1).min(2);
    let with: BTreeSet<&NodeId> = wardens.iter().filter(|id| **id != machine.id && machine.sync_turns.contains(id)).collect();
    if with.len() >= need {
        Ok(())
    } else {
        Err(format!("takes part on slot {:?} of {} after syncing with {} of {need}", claim.slot, claim.pool, with.len()))
    }
}

/// S1: a node that has noticed that its store was set back takes no part until it has been up for the longest time after
/// which a holder of any pool is presumed lost.
///
/// # Errors
/// How long it waited.
pub fn s1_amnesia(world: &World, machine: &Machine) -> Result<(), String> {
    let Some(since_ms) = world.truth.set_back.get(&machine.index) else { return Ok(()) };
    let after_ms = |pool| match world.operator.policies.get(pool).map_or(86_400, |policy| policy.presume_lost_after_seconds) {
        0 => DAY_MS,
        seconds => seconds * 1_000,
    };
    let wait_ms = world.budgets.keys().map(after_ms).max().unwrap_or(DAY_MS);
    let waited_ms = machine.up_ms(world.now_ms) - since_ms;
    if waited_ms + wait_ms / 100 + CLOCK_SLACK_MS >= wait_ms {
        Ok(())
    } else {
        Err(format!("takes part {waited_ms} ms after it noticed that its store was set back, {wait_ms} ms are asked"))
    }
}

/// S1: an honest warden whose promise of a slot stands grants it to nobody else.
///
/// # Errors
/// To whom it had granted it.
pub fn s1_one_holder(world: &World, machine: &Machine, slot: (&Pool, u16)) -> Result<(), String> {
    let (pool, slot) = slot;
    match world.truth.grants.get(&(machine.id, pool.clone(), slot)) {
        Some(before) if !machine.liar => Err(format!("grants slot {slot} of {pool} again, and had granted it to {before:?}")),
        _ => Ok(()),
    }
}

/// S7: a store that was set back goes on under an incarnation that its node has never used.
///
/// # Errors
/// Which one it had used.
pub fn s7_incarnation(world: &World, machine: &Machine, incarnation: u64) -> Result<(), String> {
    let used = world.truth.signed_under.get(&machine.index).copied().unwrap_or(1);
    if incarnation > used || !world.is_one_place(machine) {
        Ok(())
    } else {
        Err(format!("goes on under incarnation {incarnation}, and has signed under {used}"))
    }
}

#[cfg(test)]
mod tests {
    use groundswell_core::record::status::Purpose;
    use groundswell_core::record::{ClaimName, Stamp};

    use super::super::super::director::first;
    use super::*;

    /// Counted here and not asked of the core: a core that counts one too many would be right by its own word.
    #[test]
    fn a_budget_is_its_share_of_the_listed_nodes_rounded_down_and_never_none() {
        let budget = |listed, parts| budget_of(listed, Ppm::new(parts).unwrap());
        assert_eq!([budget(39, 50_000), budget(40, 50_000), budget(50, 580_000), budget(5, 750_000)], [1, 2, 29, 3]);
        assert_eq!([budget(0, 1_000_000), budget(40, 0), budget(40, 1_000_000)], [1, 1, 40]);
    }

    #[test]
    fn a_slot_that_the_pool_does_not_have_is_no_slot_whatever_its_wardens_promise() {
        let world = World::new(1, &[("north", 4)], Some(first()));
        let roster = *world.operator.rosters.keys().next().unwrap();
        let name = ClaimName(Stamp { incarnation: 1, counter: 1 });
        let pool = Pool::new("north").unwrap();
        let claim =
            |slot| Claim { name, nonce: 0, pool: pool.clone(), slot: Some(slot), roster, purpose: Purpose::Rollout(roster) };
        let why = |slot| s1_quorum(&world, world.machine(0).id, &claim(slot)).unwrap_err();
        assert!(why(1).contains("which has 1"), "{}", why(1));
        assert!(why(0).contains("it takes 3"), "{}", why(0));
    }
}

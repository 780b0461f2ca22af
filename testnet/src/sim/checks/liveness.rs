//! L1 to L4: what must come to pass once faults have stopped. Asked after the world was healed.

use std::collections::BTreeSet;

use groundswell_core::digest::Digest;
use groundswell_core::node::Node;
use groundswell_core::record::status::Phase;
use groundswell_core::text::RolloutId;

use super::super::machine::Machine;
use super::super::operator::product;
use super::super::world::World;

/// Who is honest, not gone for good, and does not run the release or has not vouched for it.
fn late<'a>(world: &'a World, release: Digest, among: impl Fn(u32) -> bool + 'a) -> impl Iterator<Item = &'a Machine> + 'a {
    world.machines.iter().filter(move |machine| among(machine.index) && !machine.done_with(world, release))
}

fn nobody_late<'a>(world: &World, mut late: impl Iterator<Item = &'a Machine>) -> Result<(), String> {
    // To tell why takes longer than to see that somebody is late, and is asked for again and again: one is told of.
    let Some(first) = late.next() else { return Ok(()) };
    let others: Vec<u32> = late.map(|machine| machine.index).collect();
    Err(format!("{}; and machines {others:?}", first.tell(world)))
}

/// L1: everybody who is honest and not gone for good runs the release and has vouched for it.
///
/// # Errors
/// Who does not.
pub fn l1_everybody(world: &World, release: Digest) -> Result<(), String> {
    nobody_late(world, late(world, release, |_| true))
}

/// L2: so does everybody who was away when it was published.
///
/// # Errors
/// Who does not.
pub fn l2_returned(world: &World, release: Digest, away: &BTreeSet<u32>) -> Result<(), String> {
    nobody_late(world, late(world, release, |index| away.contains(&index)))
}

/// L3: everybody who is up knows this generation.
///
/// # Errors
/// Who does not.
pub fn l3_heard(world: &World, id: &RolloutId, generation: u64) -> Result<(), String> {
    let knows = |node: &Node| node.shelf().rollout(id).is_some_and(|known| known.rollout.generation.get() >= generation);
    let members = world.machines.iter().filter(|machine| !machine.liar && !world.truth.is_gone(&machine.id));
    let deaf = members.filter(|machine| machine.node.as_ref().is_some_and(|node| !knows(node)));
    let deaf: Vec<u32> = deaf.map(|machine| machine.index).collect();
    if deaf.is_empty() { Ok(()) } else { Err(format!("{deaf:?} have not heard of generation {generation} of {id}")) }
}

/// L3: a pause that everybody has heard of stands: nobody has started since.
///
/// # Errors
/// How many have.
pub fn l3_stands(world: &World, starts_before: u64) -> Result<(), String> {
    let liars = world.machines.iter().any(|machine| machine.liar);
    match world.starts - starts_before {
        started if started == 0 || liars => Ok(()),
        started => Err(format!("{started} machines started though everybody has heard of the pause")),
    }
}

/// L4: no slot is taken, at any honest warden, once everybody is done; but by convicts, until they are written off.
///
/// # Errors
/// Which slot is.
pub fn l4_slots(world: &World) -> Result<(), String> {
    for machine in world.machines.iter().filter(|machine| !machine.liar && !world.truth.is_gone(&machine.id)) {
        let Some(node) = &machine.node else { continue };
        for lease in node.leases(machine.now(world.now_ms)) {
            let excused = |holder: &_| {
                world.truth.lost.contains(holder) || world.machines.iter().any(|other| other.id == *holder && other.liar)
            };
            if let Some(holder) = lease.holder.filter(|holder| !excused(holder)) {
                return Err(format!("{}: slot {} of {} is still {holder}'s", machine.index, lease.slot, lease.pool));
            }
        }
    }
    Ok(())
}

impl Machine {
    fn done_with(&self, world: &World, release: Digest) -> bool {
        // Whoever came with more stays with that (S5).
        let above = world.truth.releases.get(&release).is_some_and(|sequence| self.device.floor() > *sequence);
        let excepted = self.liar || world.truth.is_gone(&self.id) || above;
        let runs = self.device.running().is_some_and(|running| running.release == release);
        excepted || (runs && self.phase() == Some(Phase::Soaked))
    }

    fn tell(&self, world: &World) -> String {
        let told = self.node.as_ref().and_then(|node| node.explain(self.now(world.now_ms), &product()));
        let told = told.map_or_else(|| "off".to_string(), |told| format!("{} {:?}", told.summary, told.facts));
        format!("machine {} runs {:?}: {told}", self.index, self.device.running().map(|running| running.version.to_string()))
    }
}

//! Machines that join a fleet that has a history: what they cannot know must not keep them waiting, nor hide them.

use crate::rollouts::{MINUTES, explain, first, phases, publish, running};
use groundswell_core::documents::rollout::Forgiven;
use groundswell_core::node::input::{Input, Source};
use groundswell_core::node::view::Standing;
use groundswell_core::record::status::Phase;
use groundswell_testnet::sim::device::Behaviour;
use groundswell_testnet::sim::world::World;

const POOL: &[(&str, u32)] = &[("north", 8)];

/// Adds a machine that no roster lists, switched on, and known to machine `at`.
fn join(world: &mut World, at: u32) -> u32 {
    let (index, certificate) = world.add("north", first());
    world.publish(at, &certificate);
    world.start(index);
    for bytes in [world.operator.fleet().to_vec(), certificate] {
        world.input(index, Input::Document { bytes, source: Source::Store });
    }
    index
}

/// Who is the only member of the first wave of the rollout to 2.0.0: that hangs on ids alone.
fn canary() -> u32 {
    let mut world = World::new(1, POOL, first());
    world.run_for(10_000);
    publish(&mut world, 0, "2.0.0", 2);
    let mut found = None;
    assert!(world.run_until(10 * MINUTES, |world| {
        found = world.machines.iter().find(|machine| machine.device.disrupted()).map(|machine| machine.index);
        found.is_some()
    }));
    found.expect("some machine starts first")
}

/// The swarm's seeds 18 and 21: a wave of members that are gone was no wave for those who had their records, and one
/// without evidence, for ever, for who came later.
#[test]
fn a_newcomer_does_not_wait_for_a_member_that_was_retired_before_it_came() {
    let gone = canary();
    let at = if gone == 0 { 1 } else { 0 };
    let mut world = World::new(20, POOL, first());
    world.run_for(10_000);
    world.stop(gone);
    let retirement = world.operator.retire(gone);
    world.truth.retired.insert(world.machine(gone).id);
    world.publish(at, &retirement.bytes);
    world.run_for(10_000);
    let newcomer = join(&mut world, at);
    world.run_for(MINUTES);
    let told = publish(&mut world, at, "2.0.0", 2);
    assert!(world.run_until(60 * MINUTES, |world| running(world, told.release) == 8), "{}", explain(&world));
    assert!(world.machine(newcomer).device.running().is_some_and(|running| running.release == told.release));
}

/// The swarm's seed 26: what failed at a machine that no roster lists halted the rollout and stood on no list of failures.
#[test]
fn a_failure_of_a_newcomer_is_seen_and_can_be_forgiven() {
    let mut world = World::new(21, POOL, first());
    world.run_for(10_000);
    let newcomer = join(&mut world, 3);
    world.run_for(MINUTES);
    let told = publish(&mut world, 0, "2.0.0", 2);
    world.machine_mut(newcomer).device.odd.insert(told.release, Behaviour::Unhealthy);
    let failed = |world: &World| phases(world).iter().filter(|phase| **phase == Phase::RolledBack).count() == 1;
    assert!(world.run_until(60 * MINUTES, failed), "{}", explain(&world));
    world.machine_mut(newcomer).device.odd.clear();
    world.run_for(MINUTES);
    let machine = world.machine(0);
    let view = machine.node.as_ref().unwrap().rollouts(machine.now(world.now_ms)).into_iter().next().unwrap();
    let id = world.machine(newcomer).id;
    let row = view.nodes.iter().find(|row| row.node == id).expect("a newcomer that takes part is shown");
    assert_eq!((row.standing, row.wave), (Standing::Failed, 3));
    let forgiven = Forgiven { node: id, claim: row.claim, retry: true };
    let next = world.operator.next(&told.rollout, |next| next.forgiven = vec![forgiven]);
    let signed = world.operator.sign_rollout(&next);
    world.publish(0, &signed.bytes);
    assert!(world.run_until(60 * MINUTES, |world| running(world, told.release) == 9), "{}", explain(&world));
}

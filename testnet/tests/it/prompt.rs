//! A node moves when what it waits for happens, not when it next looks by itself.

use groundswell_core::node::effect::Event;
use groundswell_core::record::status::Phase;
use groundswell_testnet::sim::device::Behaviour;
use groundswell_testnet::sim::world::World;

use super::rollouts::{MINUTES, explain, first, phases, publish};

/// A batch at each of a few hops, and their delays: less than half of the 5 s after which a node looks by itself.
const PROMPTLY_MS: u64 = 2_000;

/// When nodes came from one phase to another.
fn moves(world: &World, from: Phase, to: Phase) -> Vec<(u64, u32)> {
    let moved = |event: &Event| matches!(event, Event::PhaseChanged { from: was, to: is, .. } if (*was, *is) == (from, to));
    world.events.iter().filter(|(_, _, event)| moved(event)).map(|(at, index, _)| (*at, *index)).collect()
}

#[test]
fn a_halt_that_is_forgiven_moves_whoever_it_held_at_once() {
    let mut world = World::new(32, &[("edge", 20)], first());
    world.run_for(20_000);
    let told = publish(&mut world, 0, "2.0.0", 2);
    world.behaviours.insert(told.release, Behaviour::Unhealthy);
    assert!(world.run_until(20 * MINUTES, |world| phases(world).contains(&Phase::RolledBack)), "{}", explain(&world));
    world.behaviours.insert(told.release, Behaviour::Good);
    world.run_for(MINUTES);
    let failed = super::rollouts::failed(&world);
    assert_eq!(failed.len(), 1, "{}", explain(&world));
    let before = world.events.len();
    let forgiven = world.operator.next(&told.rollout, |next| {
        next.forgiven = failed;
        next.forgiven.iter_mut().for_each(|forgiven| forgiven.retry = false);
    });
    let signed = world.operator.sign_rollout(&forgiven);
    world.publish(0, &signed.bytes);
    world.run_for(30_000);
    world.events.drain(..before);
    let (claimed_at, claimant) = *moves(&world, Phase::Staged, Phase::Claiming).first().expect("the other of the first wave");
    let unhalted = |event: &Event| matches!(event, Event::Unhalted { .. });
    let heard = world.events.iter().find(|(_, index, event)| *index == claimant && unhalted(event));
    let (heard_at, ..) = heard.expect("it saw the halt and its end");
    assert!(claimed_at - heard_at <= PROMPTLY_MS, "after {} ms: {}", claimed_at - heard_at, explain(&world));
}

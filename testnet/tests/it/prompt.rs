//! A node moves when what it waits for happens, not when it next looks by itself.

use groundswell_core::node::effect::Event;
use groundswell_core::number::Ppm;
use groundswell_core::record::status::{Outcome, Phase};
use groundswell_core::text::Pool;
use groundswell_testnet::sim::device::Behaviour;
use groundswell_testnet::sim::operator::Operator;
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

#[test]
fn when_a_wave_opens_its_first_nodes_claim_at_once() {
    const SLOTS: usize = 5;
    let mut operator = Operator::new(|_| {});
    let budget = Ppm::new(250_000).expect("a share");
    let policy = operator.policies.entry(Pool::new("edge").expect("a plain name")).or_default();
    (policy.budget_ppm, policy.urgent_budget_ppm) = (budget, budget);
    let mut world = World::with_operator(33, &[("edge", 20)], first(), operator);
    world.run_for(20_000);
    publish(&mut world, 0, "2.0.0", 2);
    let done = |world: &World| phases(world).iter().all(|phase| *phase == Phase::Soaked);
    assert!(world.run_until(60 * MINUTES, done), "{}", explain(&world));
    let view = world.machine(0).node.as_ref().expect("it is up").rollouts(world.machine(0).now(world.now_ms)).remove(0);
    let last = view.nodes.iter().map(|row| row.wave).max().expect("there are waves");
    let of_last = |index: u32| view.nodes.iter().any(|row| row.node == world.machine(index).id && row.wave == last);
    let soaked = |event: &Event| matches!(event, Event::VerdictSigned { outcome: Outcome::Soaked, .. });
    let before = world.events.iter().filter(|(_, index, event)| soaked(event) && !of_last(*index));
    let opened_at = before.map(|(at, ..)| *at).max().expect("waves before the last");
    let claims = moves(&world, Phase::Staged, Phase::Claiming);
    let mut late: Vec<u64> = claims.iter().filter(|(_, index)| of_last(*index)).map(|(at, _)| at - opened_at).collect();
    late.sort_unstable();
    assert!(late.len() >= 2 * SLOTS, "the last wave has more nodes than slots: {late:?}");
    let first_ones: Vec<u64> = late.into_iter().take(SLOTS).collect();
    assert!(first_ones.iter().all(|late| *late <= PROMPTLY_MS), "claims after {first_ones:?} ms: {}", explain(&world));
}

//! A good rollout, a bad one, and what operators do about it.

use groundswell_core::digest::Digest;
use groundswell_core::documents::rollout::{Rollout, State};
use groundswell_core::node::view::Standing;
use groundswell_core::number::Sequence;
use groundswell_core::record::status::{Phase, Running};
use groundswell_core::text::{Reason, Version};
use groundswell_testnet::sim::device::Behaviour;
use groundswell_testnet::sim::world::World;

/// Twelve nodes in three pools.
const POOLS: &[(&str, u32)] = &[("north", 4), ("south", 4), ("west", 4)];
const MINUTES: u64 = 60_000;

struct Told {
    rollout: Rollout,
    release: Digest,
}

/// Publishes a release and a rollout of it at one node.
fn publish(world: &mut World, at: u32, version: &str, sequence: u64) -> Told {
    let content = version.as_bytes();
    let (release, body) = world.operator.release(version, sequence, content);
    let rollout = world.operator.rollout(&format!("rollout-{version}"), &release, &body);
    let signed = world.operator.sign_rollout(&rollout);
    world.give_blob(at, Digest::of(content));
    world.publish(at, &release.bytes);
    world.publish(at, &signed.bytes);
    Told { rollout, release: release.digest }
}

fn first() -> Option<Running> {
    Some(Running {
        version: Version::new("1.0.0").unwrap(),
        sequence: Sequence::new(1).unwrap(),
        release: Digest::of(b"the release that machines came with"),
    })
}

fn running(world: &World, release: Digest) -> usize {
    world.machines.iter().filter(|machine| machine.device.running().is_some_and(|running| running.release == release)).count()
}

fn phases(world: &World) -> Vec<Phase> {
    let views = world.machines.iter().filter_map(|machine| Some(machine.node.as_ref()?.view(machine.now(world.now_ms))));
    views.flat_map(|view| view.products).map(|product| product.phase).collect()
}

fn all_soaked(world: &World) -> bool {
    phases(world).iter().all(|phase| *phase == Phase::Soaked)
}

fn explain(world: &World) -> String {
    let mut text = String::new();
    for machine in &world.machines {
        if let Some(node) = &machine.node {
            let told = node.explain(machine.now(world.now_ms), &groundswell_testnet::sim::operator::product());
            text += &format!("{}: {:?}\n", machine.index, told.map(|told| (told.summary, told.facts)));
        }
    }
    for (at, index, event) in world.events.iter().rev().take(40).rev() {
        text += &format!("{at} {index} {event:?}\n");
    }
    text
}

#[test]
fn a_good_release_reaches_every_node_within_the_budget() {
    let mut world = World::new(1, POOLS, first());
    world.run_for(10_000);
    let told = publish(&mut world, 3, "2.0.0", 2);
    let done = world.run_until(30 * MINUTES, all_soaked);
    assert!(done, "{}", explain(&world));
    assert_eq!(running(&world, told.release), 12);
    assert!(world.most_disrupted.values().all(|most| *most == 1), "{:?}", world.most_disrupted);
    let _ = (told.rollout, State::Paused, Standing::Soaked, Behaviour::Good, Reason::none());
}

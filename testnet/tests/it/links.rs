//! The virtual network itself: what is on its way when the power is cut, what is lost on one way and offered on another, when
//! a mesh is one.

use crate::rollouts::{MINUTES, Told, first, publish};
use groundswell_testnet::sim::world::World;

/// So few that everybody is linked to everybody.
const POOL: &[(&str, u32)] = &[("north", 3)];

fn world(seed: u64) -> World {
    let mut world = World::new(seed, POOL, first());
    world.run_for(10_000);
    for index in 0..3 {
        assert_eq!(world.machine(index).links.len(), 2, "machine {index}");
    }
    world
}

fn knows(world: &World, index: u32, told: &Told) -> bool {
    world.machine(index).node.as_ref().is_some_and(|node| node.shelf().rollout(&told.rollout.id).is_some())
}

/// It was dropped with the link, and the peer noticed at once: no seed could show what a core sends too early.
#[test]
fn what_left_a_machine_before_its_power_was_cut_arrives() {
    let mut world = world(1);
    let told = publish(&mut world, 0, "2.0.0", 2);
    world.stop(0);
    world.run_for(1_000);
    assert!(knows(&world, 1, &told) && knows(&world, 2, &told));
    assert!(world.machine(1).links.keys().all(|other| *other != 0));
}

#[test]
fn what_waits_behind_a_clog_is_lost_with_the_power_of_its_sender() {
    let mut world = world(1);
    for other in [1, 2] {
        world.clog(0, other, 30_000);
    }
    let told = publish(&mut world, 0, "2.0.0", 2);
    world.stop(0);
    world.run_for(2 * MINUTES);
    assert!(!knows(&world, 1, &told) && !knows(&world, 2, &told));
}

#[test]
fn who_is_back_before_its_last_words_are_heard_is_linked_again_after_them() {
    let mut world = world(1);
    let told = publish(&mut world, 0, "2.0.0", 2);
    world.stop(0);
    world.start(0);
    world.run_for(5_000);
    assert!(knows(&world, 1, &told));
    let next = publish(&mut world, 1, "3.0.0", 3);
    world.run_for(1_000);
    assert!(knows(&world, 0, &next) && world.machine(1).links.contains_key(&0));
}

/// It counted as seen by whom it never reached, and nobody else offered it.
#[test]
fn what_is_lost_on_one_way_comes_on_another() {
    let mut world = world(1);
    world.deafen(0, 1);
    let told = publish(&mut world, 0, "2.0.0", 2);
    world.run_for(1_000);
    assert!(knows(&world, 1, &told));
}

#[test]
fn a_mesh_is_one_when_everybody_can_be_reached() {
    let mut world = World::new(19, &[("north", 6), ("south", 6)], first());
    world.run_for(10_000);
    assert!(world.is_one_mesh());
    world.partition(|index| u32::from(index >= 6));
    world.run_for(30 * MINUTES);
    assert!(!world.is_one_mesh());
    // Both halves are content with their own links: that they can meet again is not yet that they have.
    world.partition(|_| 0);
    assert!(!world.is_one_mesh());
    assert!(world.run_until(40 * MINUTES, World::is_one_mesh));
    // Who is off is missed by nobody.
    world.stop(3);
    assert!(world.run_until(MINUTES, World::is_one_mesh));
}

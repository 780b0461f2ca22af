//! What restarts, set-back stores and forged bytes lead to, in the virtual world.

use crate::rollouts::{MINUTES, POOLS, first};
use groundswell_core::record::{RecordKey, RecordKind, Stamp};
use groundswell_testnet::sim::world::World;

/// The stamp of the status of machine `of`, as machine `at` knows it.
fn stamp(world: &World, at: u32, of: u32) -> Option<Stamp> {
    let key = RecordKey { node: world.machine(of).id, kind: RecordKind::Status };
    world.machine(at).node.as_ref()?.ledger().stamp(&key)
}

#[test]
fn a_node_that_was_restarted_and_has_no_news_still_renews_its_record_within_a_day() {
    let mut world = World::new(15, POOLS, first());
    world.run_for(10_000);
    world.stop(5);
    world.start(5);
    world.run_for(10 * MINUTES);
    let before = stamp(&world, 0, 5);
    world.run_for(25 * 60 * MINUTES);
    assert!(stamp(&world, 0, 5) > before, "{before:?}");
}

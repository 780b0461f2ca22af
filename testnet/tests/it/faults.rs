//! What restarts, set-back stores and forged bytes lead to, in the virtual world.

use crate::rollouts::{MINUTES, POOLS, first};
use groundswell_core::documents::envelope::Envelope;
use groundswell_core::node::effect::Effect;
use groundswell_core::node::input::{Input, Source};
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

#[test]
fn a_roster_with_forged_signatures_is_asked_for_again() {
    let mut world = World::new(16, POOLS, first());
    world.run_for(10_000);
    let content = b"2.0.0";
    let (release, body) = world.operator.release("2.0.0", 2, content);
    let roster = world.operator.cut_roster();
    let rollout = world.operator.rollout("rollout-2.0.0", &release, &body);
    let signed = world.operator.sign_rollout(&rollout);
    let machine = &mut world.machines[1];
    let now = machine.now(world.now_ms);
    let node = machine.node.as_mut().unwrap();
    let mut asks = |bytes: &[u8], source: Source| {
        let bytes = bytes.to_vec();
        node.handle(
            now,
            if source == Source::Store { Input::Roster { bytes, source } } else { Input::Document { bytes, source } },
        );
        node.take_effects().iter().any(|effect| matches!(effect, Effect::FetchRoster { digest, .. } if *digest == roster.digest))
    };
    assert!(!asks(&release.bytes, Source::Local { ticket: 1 }));
    assert!(asks(&signed.bytes, Source::Local { ticket: 2 }));
    let mut forged = Envelope::parse(&roster.bytes).unwrap();
    forged.signatures.iter_mut().for_each(|entry| entry.sig = [1; 64]);
    assert!(asks(&forged.to_bytes(), Source::Store), "the digest is right, the signatures are not");
    assert!(!asks(&roster.bytes, Source::Store));
}

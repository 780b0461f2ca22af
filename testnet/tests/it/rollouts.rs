//! A good rollout, a bad one, and what operators do about it.

use std::collections::BTreeSet;

use groundswell_core::digest::Digest;
use groundswell_core::documents::rollout::{Hosts, Rollout, State, Wave};
use groundswell_core::node::effect::Effect;
use groundswell_core::node::input::{Input, Report};
use groundswell_core::node::view::Standing;
use groundswell_core::node_id::NodeId;
use groundswell_core::number::{Ppm, Sequence};
use groundswell_core::record::status::{HoldCode, Phase, Running};
use groundswell_core::text::{Pool, Reason, Version};
use groundswell_testnet::sim::device::Behaviour;
use groundswell_testnet::sim::operator::Operator;
use groundswell_testnet::sim::world::World;

/// Twelve nodes in three pools.
pub(crate) const POOLS: &[(&str, u32)] = &[("north", 4), ("south", 4), ("west", 4)];
pub(crate) const MINUTES: u64 = 60_000;

pub(crate) struct Told {
    pub(crate) rollout: Rollout,
    pub(crate) release: Digest,
}

/// Publishes a release and a rollout of it at one node.
pub(crate) fn publish(world: &mut World, at: u32, version: &str, sequence: u64) -> Told {
    let content = version.as_bytes();
    let (release, body) = world.operator.release(version, sequence, content);
    let rollout = world.operator.rollout(&format!("rollout-{version}"), &release, &body);
    let signed = world.operator.sign_rollout(&rollout);
    world.give_blob(at, Digest::of(content));
    world.publish(at, &release.bytes);
    world.publish(at, &signed.bytes);
    Told { rollout, release: release.digest }
}

pub(crate) fn first() -> Option<Running> {
    Some(Running {
        version: Version::new("1.0.0").expect("a plain version"),
        sequence: Sequence::new(1).expect("a small sequence"),
        release: Digest::of(b"the release that machines came with"),
    })
}

pub(crate) fn running(world: &World, release: Digest) -> usize {
    world.machines.iter().filter(|machine| machine.device.running().is_some_and(|running| running.release == release)).count()
}

pub(crate) fn phases(world: &World) -> Vec<Phase> {
    let views = world.machines.iter().filter_map(|machine| Some(machine.node.as_ref()?.view(machine.now(world.now_ms))));
    views.flat_map(|view| view.products).map(|product| product.phase).collect()
}

fn all_soaked(world: &World) -> bool {
    phases(world).iter().all(|phase| *phase == Phase::Soaked)
}

pub(crate) fn explain(world: &World) -> String {
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
}

#[test]
fn a_bad_release_reverts_its_canaries_halts_and_touches_nobody_else() {
    let mut world = World::new(2, POOLS, first());
    world.run_for(10_000);
    let bad = publish(&mut world, 0, "3.0.0", 3);
    world.behaviours.insert(bad.release, Behaviour::Unhealthy);
    world.run_for(20 * MINUTES);
    assert_eq!(running(&world, bad.release), 0, "{}", explain(&world));
    let rolled_back = phases(&world).iter().filter(|phase| **phase == Phase::RolledBack).count();
    assert!((1..=2).contains(&rolled_back), "{}", explain(&world));
    for machine in &world.machines {
        let halted =
            machine.node.as_ref().unwrap().rollouts(machine.now(world.now_ms)).iter().any(|rollout| rollout.halted.is_some());
        assert!(halted, "node {} does not see the halt", machine.index);
    }
    // Rolling forward with a higher sequence repairs it.
    let good = publish(&mut world, 7, "4.0.0", 4);
    assert!(world.run_until(30 * MINUTES, all_soaked), "{}", explain(&world));
    assert_eq!(running(&world, good.release), 12);
}

#[test]
fn d12_a_pause_stops_what_has_not_started_and_a_resume_goes_on() {
    let mut world = World::new(3, POOLS, first());
    world.run_for(10_000);
    let told = publish(&mut world, 0, "2.0.0", 2);
    assert!(world.run_until(10 * MINUTES, |world| running(world, told.release) == 2), "{}", explain(&world));
    let paused = world.operator.next(&told.rollout, |next| {
        next.state = State::Paused;
        next.reason = Reason::new("lunch").unwrap();
    });
    let signed = world.operator.sign_rollout(&paused);
    world.publish(5, &signed.bytes);
    world.run_for(5_000);
    let stood = running(&world, told.release);
    world.run_for(10 * MINUTES);
    assert!(running(&world, told.release) <= stood + 1, "{}", explain(&world));
    let resumed = world.operator.next(&paused, |next| {
        next.state = State::Running;
        next.reason = Reason::none();
    });
    let signed = world.operator.sign_rollout(&resumed);
    world.publish(9, &signed.bytes);
    assert!(world.run_until(30 * MINUTES, all_soaked), "{}", explain(&world));
}

/// Everybody who sees itself as failed, to be forgiven and to try again.
pub(crate) fn failed(world: &World) -> Vec<groundswell_core::documents::rollout::Forgiven> {
    world
        .machines
        .iter()
        .filter_map(|machine| {
            let view = machine.node.as_ref()?.rollouts(machine.now(world.now_ms));
            view.first()?.nodes.iter().find(|row| row.node == machine.id && row.standing == Standing::Failed)?;
            let status = machine.node.as_ref()?.ledger().status(&machine.id)?;
            let section = status.products.values().next()?;
            Some(groundswell_core::documents::rollout::Forgiven {
                node: machine.id,
                claim: section.verdicts.last()?.claim,
                retry: true,
            })
        })
        .collect()
}

#[test]
fn a_switch_that_never_answered_is_staged_again_when_it_is_forgiven() {
    let mut world = World::new(14, POOLS, first());
    world.run_for(10_000);
    let told = publish(&mut world, 0, "2.0.0", 2);
    world.behaviours.insert(told.release, Behaviour::Hangs);
    world.run_for(10 * MINUTES);
    assert!(phases(&world).contains(&Phase::RolledBack), "{}", explain(&world));
    world.behaviours.insert(told.release, Behaviour::Good);
    let failed = failed(&world);
    assert!(!failed.is_empty());
    let forgiven = world.operator.next(&told.rollout, |next| next.forgiven = failed);
    let signed = world.operator.sign_rollout(&forgiven);
    world.publish(0, &signed.bytes);
    assert!(world.run_until(30 * MINUTES, all_soaked), "{}", explain(&world));
}

#[test]
fn d8_g6_a_pause_does_not_heal_a_halt_and_forgiving_by_name_does() {
    let mut world = World::new(4, POOLS, first());
    world.run_for(10_000);
    let told = publish(&mut world, 0, "2.0.0", 2);
    world.behaviours.insert(told.release, Behaviour::Unhealthy);
    world.run_for(10 * MINUTES);
    world.behaviours.insert(told.release, Behaviour::Good);
    let paused = world.operator.next(&told.rollout, |next| next.state = State::Paused);
    let resumed = world.operator.next(&paused, |next| next.state = State::Running);
    for generation in [&paused, &resumed] {
        let signed = world.operator.sign_rollout(generation);
        world.publish(0, &signed.bytes);
        world.run_for(5 * MINUTES);
    }
    assert_eq!(running(&world, told.release), 0, "{}", explain(&world));
    let failed = failed(&world);
    assert!(!failed.is_empty());
    let forgiven = world.operator.next(&resumed, |next| next.forgiven = failed);
    let signed = world.operator.sign_rollout(&forgiven);
    world.publish(0, &signed.bytes);
    assert!(world.run_until(30 * MINUTES, all_soaked), "{}", explain(&world));
    assert_eq!(running(&world, told.release), 12);
}

#[test]
fn abort_with_rollback_sends_back_only_what_has_not_confirmed() {
    let mut world = World::new(5, POOLS, first());
    world.run_for(10_000);
    let told = publish(&mut world, 0, "2.0.0", 2);
    world.behaviours.insert(told.release, Behaviour::Mute);
    assert!(world.run_until(10 * MINUTES, |world| running(world, told.release) >= 1), "{}", explain(&world));
    let aborted = world.operator.next(&told.rollout, |next| {
        next.state = State::Aborted;
        next.rollback = true;
    });
    let signed = world.operator.sign_rollout(&aborted);
    world.publish(0, &signed.bytes);
    assert!(world.run_until(30_000, |world| running(world, told.release) == 0), "{}", explain(&world));
    world.run_for(10 * MINUTES);
    assert_eq!(running(&world, told.release), 0, "{}", explain(&world));
}

/// Design, section 8: network loss alone never rolls a product back.
#[test]
fn i6_a_version_that_no_check_can_judge_waits_on_and_is_silent_to_others_until_it_can() {
    let mut world = World::new(15, POOLS, first());
    world.run_for(10_000);
    let told = publish(&mut world, 0, "2.0.0", 2);
    world.behaviours.insert(told.release, Behaviour::UnclearFor(40 * MINUTES));
    let mut went_back = false;
    let mut watch = |world: &World| {
        went_back |= phases(world).iter().any(|phase| matches!(phase, Phase::RolledBack | Phase::Failed));
        false
    };
    world.run_until(20 * MINUTES, &mut watch);
    let canaries: Vec<u32> = world
        .machines
        .iter()
        .filter(|machine| machine.device.trial() == Some(told.release))
        .map(|machine| machine.index)
        .collect();
    assert!((1..=2).contains(&canaries.len()), "the wave of two: {}", explain(&world));
    assert!(explain(&world).contains("waits on in its trial: status 429"), "{}", explain(&world));
    // Twenty times its upgrade timeout: the others count it as silent, and stop.
    for machine in world.machines.iter().filter(|machine| !canaries.contains(&machine.index)) {
        let view = machine.node.as_ref().unwrap().rollouts(machine.now(world.now_ms));
        let rollout = view.first().expect("it knows the rollout");
        assert!(rollout.halted.is_some(), "node {}: {}", machine.index, explain(&world));
        for canary in &canaries {
            let row = rollout.nodes.iter().find(|row| row.node == world.machine(*canary).id).expect("a member");
            assert_eq!(
                (row.standing, row.phase, row.hold, row.outcome),
                (Standing::Failed, Some(Phase::Activating), Some(HoldCode::Unhealthy), None)
            );
        }
    }
    // Its check can judge again: it confirms, soaks, and what it vouches for retracts the silence.
    world.behaviours.insert(told.release, Behaviour::Good);
    let mut done = |world: &World| watch(world) || all_soaked(world);
    assert!(world.run_until(80 * MINUTES, &mut done), "{}", explain(&world));
    assert!(!went_back, "{}", explain(&world));
    assert_eq!(running(&world, told.release), 12);
}

#[test]
fn l2_g3_a_node_that_was_off_is_excused_and_converges_when_it_returns() {
    let mut world = World::new(6, POOLS, first());
    world.run_for(10_000);
    world.stop(11);
    let told = publish(&mut world, 0, "2.0.0", 2);
    let others = |world: &World| running(world, told.release) == 11;
    assert!(world.run_until(60 * MINUTES, others), "{}", explain(&world));
    world.start(11);
    assert!(world.run_until(30 * MINUTES, all_soaked), "{}", explain(&world));
    assert_eq!(running(&world, told.release), 12);
}

#[test]
fn power_lost_in_the_middle_of_an_upgrade_ends_on_the_new_version() {
    let mut world = World::new(7, POOLS, first());
    world.run_for(10_000);
    let told = publish(&mut world, 0, "2.0.0", 2);
    let mut hit = None;
    assert!(world.run_until(10 * MINUTES, |world| {
        hit = world.machines.iter().find(|machine| machine.device.disrupted()).map(|machine| machine.index);
        hit.is_some()
    }));
    let hit = hit.unwrap();
    world.stop(hit);
    world.run_for(20_000);
    world.start(hit);
    assert!(world.run_until(60 * MINUTES, all_soaked), "{}", explain(&world));
    assert_eq!(running(&world, told.release), 12);
}

#[test]
fn the_side_without_a_quorum_waits_and_goes_on_when_the_partition_heals() {
    let mut world = World::new(8, &[("edge", 12)], first());
    world.run_for(20_000);
    world.partition(|index| u32::from(index >= 9));
    let told = publish(&mut world, 0, "2.0.0", 2);
    world.run_for(30 * MINUTES);
    let small_side =
        world.machines.iter().skip(9).filter(|machine| machine.device.running().is_some_and(|r| r.release == told.release));
    assert_eq!(small_side.count(), 0, "{}", explain(&world));
    world.partition(|_| 0);
    assert!(world.run_until(90 * MINUTES, all_soaked), "{}", explain(&world));
    assert!(world.most_disrupted.values().all(|most| *most == 1));
}

#[test]
fn ten_percent_of_all_messages_lost_slows_a_rollout_and_breaks_nothing() {
    let mut world = World::new(9, POOLS, first());
    world.loss = Ppm::new(100_000).unwrap();
    world.run_for(10_000);
    let told = publish(&mut world, 0, "2.0.0", 2);
    assert!(world.run_until(60 * MINUTES, all_soaked), "{}", explain(&world));
    assert_eq!(running(&world, told.release), 12);
}

#[test]
fn d17_fleets_of_one_two_and_three_nodes_upgrade_themselves() {
    for count in 1..=3 {
        let mut world = World::new(10, &[("home", count)], first());
        world.run_for(10_000);
        let told = publish(&mut world, 0, "2.0.0", 2);
        assert!(world.run_until(30 * MINUTES, all_soaked), "{count} nodes: {}", explain(&world));
        assert_eq!(running(&world, told.release), usize::try_from(count).unwrap());
    }
}

#[test]
fn d42_a_one_node_site_that_is_cut_off_uses_its_own_slot() {
    let mut world = World::new(11, &[("fleet", 8), ("lighthouse", 1)], first());
    world.run_for(10_000);
    let content = b"2.0.0";
    let (release, body) = world.operator.release("2.0.0", 2, content);
    let mut rollout = world.operator.rollout("rollout-2.0.0", &release, &body);
    let hosts = Hosts { attribute: "pool".to_string(), values: vec!["lighthouse".to_string()] };
    rollout.waves.insert(0, Wave { hosts: Some(hosts), soak_seconds: 30, ..Wave::default() });
    rollout.prefetch = true;
    let signed = world.operator.sign_rollout(&rollout);
    world.give_blob(8, Digest::of(content));
    world.partition(|index| u32::from(index == 8));
    world.publish(8, &release.bytes);
    world.publish(8, &signed.bytes);
    let alone = |world: &World| world.machine(8).device.running().is_some_and(|running| running.release == release.digest);
    assert!(world.run_until(5 * MINUTES, alone), "{}", explain(&world));
    assert_eq!(running(&world, release.digest), 1);
}

#[test]
fn a12_a_first_wave_beyond_what_root_allows_starts_nowhere() {
    // Of 12 nodes both shares allow one, as the tools count it; the wave of 10 % holds two.
    for most in [50_000, 100_000] {
        let mut world = World::with_limits(12, POOLS, first(), |limits| {
            limits.max_first_wave_ppm = Ppm::new(most).expect("a share");
        });
        world.run_for(10_000);
        let told = publish(&mut world, 0, "2.0.0", 2);
        world.run_for(10 * MINUTES);
        assert_eq!(running(&world, told.release), 0, "{}", explain(&world));
        assert!(explain(&world).contains("the first wave holds 2 nodes, the fleet document allows 1"), "{}", explain(&world));
    }
}

/// Silence would have said that its holder is lost while its upgrade may still have gone on.
#[test]
fn where_a_roster_does_not_say_a_pools_policy_no_upgrade_takes_longer_than_the_default_one_allows() {
    // With 60 s to start and 30 s to go back, half a day.
    for (upgrade_timeout_seconds, upgraded) in [(43_110, 4), (43_111, 0)] {
        let mut operator = Operator::new(|_| {});
        operator.unsaid.insert(Pool::new("edge").unwrap());
        let mut world = World::with_operator(15, &[("edge", 4)], first(), operator);
        world.run_for(10_000);
        let (release, body) = world.operator.release("2.0.0", 2, b"2.0.0");
        let rollout = world.operator.rollout("rollout-2.0.0", &release, &body);
        let signed = world.operator.sign_rollout(&Rollout { upgrade_timeout_seconds, ..rollout });
        world.give_blob(0, Digest::of(b"2.0.0"));
        world.publish(0, &release.bytes);
        world.publish(0, &signed.bytes);
        world.run_for(30 * MINUTES);
        assert_eq!(running(&world, release.digest), upgraded, "{}", explain(&world));
    }
}

#[test]
fn a_retired_member_is_shown_the_door_and_leaves_every_count() {
    let mut world = World::new(13, POOLS, first());
    world.run_for(10_000);
    let retired = world.operator.retire(11);
    world.publish(0, &retired.bytes);
    assert!(world.run_until(MINUTES, |world| world.machine(11).links.is_empty()), "{}", explain(&world));
    let told = publish(&mut world, 0, "2.0.0", 2);
    let others = |world: &World| running(world, told.release) == 11;
    assert!(world.run_until(30 * MINUTES, others), "{}", explain(&world));
    let rollouts = world.machine(0).node.as_ref().unwrap().rollouts(world.machine(0).now(world.now_ms));
    let not_applicable: u32 = rollouts.iter().flat_map(|rollout| &rollout.waves).map(|wave| wave.not_applicable).sum();
    assert_eq!(not_applicable, 1, "{rollouts:#?}");
}

#[test]
fn b16_a_release_that_a_newer_one_blocks_is_not_started() {
    let mut world = World::new(14, POOLS, first());
    world.run_for(10_000);
    let (release, _) = world.operator.release("2.0.0", 2, b"2.0.0");
    let (_, mut newer) = world.operator.release("2.0.1", 3, b"2.0.1");
    let reason = Reason::new("it eats data").unwrap();
    newer.blocks = vec![groundswell_core::documents::release::Block { digest: release.digest, reason }];
    let newer = world.operator.sign_release(&newer);
    world.publish(4, &newer.bytes);
    let told = publish(&mut world, 0, "2.0.0", 2);
    world.run_for(10 * MINUTES);
    assert_eq!(told.release, release.digest);
    assert_eq!(running(&world, told.release), 0, "{}", explain(&world));
    assert!(explain(&world).contains("a newer release blocks this one: it eats data"), "{}", explain(&world));
}

/// To whom a node sends something at once when this happens to it.
fn tells(world: &mut World, phase: Phase, input: impl FnOnce(Digest) -> Input, release: Digest) -> (BTreeSet<NodeId>, u32) {
    let now_ms = world.now_ms;
    let found = world.machines.iter_mut().find_map(|machine| {
        let now = machine.now(now_ms);
        let node = machine.node.as_mut()?;
        node.view(now).products.iter().any(|product| product.phase == phase).then_some((node, now))
    });
    let (node, now) = found.expect("one is in that phase");
    node.take_effects();
    node.handle(now, input(release));
    let told = node.take_effects().into_iter().filter_map(|effect| match effect {
        Effect::Send { peer, .. } => Some(peer),
        _ => None,
    });
    (told.collect(), node.view(now).peers)
}

#[test]
fn l4_a_node_that_stops_in_order_tells_every_peer_its_last_word_at_once() {
    let mut world = World::new(11, POOLS, first());
    world.run_for(10_000);
    let released = publish(&mut world, 0, "2.0.0", 2).release;
    assert!(world.run_until(10 * MINUTES, |world| phases(world).contains(&Phase::Confirmed)), "{}", explain(&world));
    let (told, peers) = tells(&mut world, Phase::Confirmed, |_| Input::Stopping, released);
    assert_eq!(told.len(), usize::try_from(peers).unwrap());
}

#[test]
fn l4_a_slot_that_is_given_back_is_told_to_its_wardens_at_once() {
    let mut world = World::new(12, POOLS, first());
    world.run_for(10_000);
    let released = publish(&mut world, 0, "2.0.0", 2).release;
    assert!(world.run_until(10 * MINUTES, |world| running(world, released) == 1), "{}", explain(&world));
    let product = groundswell_testnet::sim::operator::product();
    let confirmed = |release| Input::Device { product, report: Report::Confirmed { release } };
    let (told, _) = tells(&mut world, Phase::Activating, confirmed, released);
    assert!(told.len() >= 2, "the wardens that it synced with: {told:?}");
}

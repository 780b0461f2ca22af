//! What restarts, set-back stores and forged bytes lead to, in the virtual world.

use crate::rollouts::{MINUTES, POOLS, explain, first, phases, publish, running};
use groundswell_core::crypto::SoftwareCrypto;
use groundswell_core::digest::Digest;
use groundswell_core::documents::envelope::Envelope;
use groundswell_core::node::effect::{Effect, Event};
use groundswell_core::node::input::{Input, Source};
use groundswell_core::number::Ppm;
use groundswell_core::record::signed::{RecordBody, SignedRecord};
use groundswell_core::record::status::Phase;
use groundswell_core::record::{RecordKey, RecordKind, Stamp};
use groundswell_testnet::sim::director::{Outcome, play};
use groundswell_testnet::sim::machine::Machine;
use groundswell_testnet::sim::operator::node_secret;
use groundswell_testnet::sim::script::Script;
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
fn what_a_warden_kept_and_did_not_say_before_it_lost_power_it_says_after_the_start() {
    let mut world = World::new(17, &[("edge", 1)], first());
    world.run_for(10_000);
    publish(&mut world, 0, "2.0.0", 2);
    assert!(world.run_until(30 * MINUTES, |world| phases(world) == [Phase::Soaked]), "{}", explain(&world));
    world.stop(0);
    // The power failed when its promises and its numbers were on disk, and its record was not.
    let id = world.machine(0).id;
    let is_own_grants = |key: &[u8]| key.windows(32).any(|part| part == id.0) && key.last() == Some(&1);
    let before = world.machine(0).disk.len();
    world.machine_mut(0).disk.retain(|key, _| !is_own_grants(key));
    assert_eq!(world.machine(0).disk.len(), before - 1);
    world.start(0);
    world.run_for(10_000);
    let said = world.machine(0).node.as_ref().unwrap().ledger().grants(&id);
    assert!(said.is_some_and(|grants| grants.declared.is_some()), "{said:?}");
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

#[test]
fn d34_a_store_found_set_back_between_claim_and_start_starts_nothing() {
    let mut world = World::new(17, POOLS, first());
    world.run_for(10_000);
    let told = publish(&mut world, 0, "2.0.0", 2);
    let mut claimant = None;
    assert!(world.run_until(10 * MINUTES, |world| {
        claimant = phases(world).iter().position(|phase| *phase == Phase::Claiming);
        claimant.is_some()
    }));
    let claimant = u32::try_from(claimant.unwrap()).unwrap();
    let (machine, fleet) = (world.machine(claimant), world.operator.fleet_id());
    let ledger = machine.node.as_ref().unwrap().ledger();
    let (status, known) = (ledger.status(&machine.id).unwrap().clone(), stamp(&world, claimant, claimant).unwrap());
    let newer = Stamp { counter: known.counter + 50, ..known };
    let crypto = SoftwareCrypto::from_secret(&node_secret(claimant));
    let record = SignedRecord::sign(&fleet, newer, RecordBody::Status(status), &crypto).unwrap();
    let peer = world.machine(*machine.links.keys().next().unwrap()).id;
    // A frame of version 1: `Direct`, no documents, no proofs, one record.
    let mut bytes = vec![1, 1, 0, 0, 1];
    let length = record.bytes().len();
    bytes.extend([u8::try_from(length % 128).unwrap() | 0x80, u8::try_from(length / 128).unwrap()]);
    bytes.extend(record.bytes());
    world.machines[usize::try_from(claimant).unwrap()].liar = true;
    world.input(claimant, Input::Frame { peer, bytes });
    world.run_for(5 * MINUTES);
    let device = &world.machine(claimant).device;
    assert!(device.running().is_none_or(|running| running.release != told.release), "{}", explain(&world));
    let set_back = |event: &Event| matches!(event, Event::SetBack { .. });
    assert!(world.events.iter().any(|(_, index, event)| *index == claimant && set_back(event)));
}

#[test]
fn a_trial_that_a_store_set_back_has_forgotten_is_taken_back() {
    let mut world = World::new(18, POOLS, first());
    world.run_for(10_000);
    let before: Vec<_> = world.machines.iter().map(|machine| machine.disk.clone()).collect();
    let told = publish(&mut world, 0, "2.0.0", 2);
    let mut hit = None;
    assert!(world.run_until(10 * MINUTES, |world| {
        hit = world.machines.iter().position(|machine| machine.device.disrupted());
        hit.is_some()
    }));
    let hit = hit.unwrap();
    let index = u32::try_from(hit).unwrap();
    world.stop(index);
    world.machines[hit].disk.clone_from(&before[hit]);
    world.machines[hit].liar = true;
    world.run_for(20_000);
    world.start(index);
    world.run_for(MINUTES);
    assert!(!world.machine(index).device.disrupted(), "{}", explain(&world));
    assert_eq!(world.machine(index).device.running().cloned(), first());
    // After its amnesia it takes part again.
    assert!(world.run_until(40 * 60 * MINUTES, |world| running(world, told.release) == 12), "{}", explain(&world));
}

#[test]
fn two_halves_that_were_parted_for_long_meet_again() {
    let mut world = World::new(19, &[("north", 6), ("south", 6)], first());
    world.run_for(10_000);
    world.partition(|index| u32::from(index >= 6));
    world.run_for(30 * MINUTES);
    world.partition(|_| 0);
    world.run_for(40 * MINUTES);
    let told = publish(&mut world, 0, "2.0.0", 2);
    world.run_for(MINUTES);
    let heard = world.machines.iter().filter(|machine| {
        let node = machine.node.as_ref().unwrap();
        node.shelf().rollout(&told.rollout.id).is_some()
    });
    assert_eq!(heard.count(), 12, "{}", explain(&world));
}

#[test]
fn power_that_fails_in_the_middle_of_a_sleep_takes_back_none_of_the_time_awake() {
    for pause in [World::suspend, World::freeze] {
        let mut world = World::new(18, POOLS, first());
        world.run_for(MINUTES);
        let up_ms = |world: &World| world.machine(1).up_ms(world.now_ms);
        let before_ms = up_ms(&world);
        pause(&mut world, 1, 10 * MINUTES);
        world.run_for(2 * MINUTES);
        assert_eq!(up_ms(&world), before_ms, "asleep");
        world.stop(1);
        assert_eq!(up_ms(&world), before_ms, "off");
        world.run_for(MINUTES);
        world.start(1);
        world.run_for(MINUTES);
        assert_eq!(up_ms(&world), before_ms + MINUTES, "up again");
    }
}

/// Rivals, and a roster that settles them, after which nothing is published: the rollout of one of the rivals waits until its
/// operators sign one that names the roster by which they are settled.
#[test]
fn what_waits_for_a_rival_roster_is_published_anew_once_the_rivals_are_settled() {
    let script = r#"
faults = { delay-ms = [20, 60], power-in-effects-ppm = 0, power-in-steps-ppm = 0, repeated-ppm = 0, staging-ppm = 0 }
lasts = "12m"
loss-ppm = 0
pools = [{ budget-ppm = 500000, lean = false, machines = 4, name = "north", presume-lost-after = "1d", start-within = "1m" }]
progress = { confirm-after = "1s", expires-after = "30d", max-failure-ppm = 50000, min-soaked-ppm = 500000, offline-after = "5m", pools = [], prefetch = false, soak = "31s", upgrade-timeout = "1m", waves-ppm = [100000, 500000, 1000000] }
rollout-keys = 2
seed = 145
acts = [
    { at = "1m", at-machine = 3, do = "join", pool = "north" },
    { and-machine = 4, at = "4m", at-machine = 7, budget-ppm = 750000, do = "rivals", pool = "north" },
    { at = "8m", do = "cut-roster" },
]
"#;
    let played = playing(script);
    assert_eq!(played.failure, None);
}

fn playing(script: &str) -> Outcome {
    play(&Script::parse(script).unwrap_or_else(|error| panic!("{error}: {script}")))
}

/// Halves that were parted until their only rollout was aborted: nobody has sought a warden in the other half since, and they meet
/// when one of their nodes exchanges a link. Here all clocks are slow and all links young, so that none does in the time that it takes to heal
/// the world: whoever asked then whether everybody has heard would ask for luck.
#[test]
fn halves_that_nothing_drives_to_each_other_have_met_before_it_is_asked_who_has_heard() {
    let away = [3, 8];
    let slow = (0..12).filter(|machine| !away.contains(machine));
    let slow: String =
        slow.map(|machine| format!("{{ at = \"10s\", do = \"drift\", machine = {machine}, ppm = -500000 }},\n")).collect();
    for seed in 0..2 {
        let played = playing(&format!(
            r#"
seed = {seed}
lasts = "12m30s"
pools = [{{ name = "north", machines = 6 }}, {{ name = "south", machines = 6 }}]
progress = {{}}
acts = [
    {{ at = "6s", do = "lose", machine = 3 }},
    {{ at = "6s", do = "lose", machine = 8 }},
    {slow}
    {{ at = "1m", do = "site-power-off", pool = "north", for = "5s" }},
    {{ at = "1m", do = "site-power-off", pool = "south", for = "5s" }},
    {{ at = "1m30s", do = "part-pools" }},
    {{ at = "1m40s", at-machine = 0, do = "publish" }},
    {{ at = "1m50s", at-machine = 0, do = "abort" }},
]
"#
        ));
        assert_eq!(played.failure, None, "seed {seed}");
    }
}

/// Others that hear that a holder is done go on, though its power failed right after it had said so.
#[test]
fn a_holder_whose_power_fails_with_its_last_word_on_the_way_is_counted_no_more() {
    let mut went_on = 0;
    for seed in 0..12 {
        let mut world = World::new(seed, &[("north", 4)], first());
        world.run_for(10_000);
        let (release, body) = world.operator.release("2.0.0", 2, b"2.0.0");
        let mut rollout = world.operator.rollout("rollout-2.0.0", &release, &body);
        // One wave of everybody: nobody waits for a soak.
        rollout.waves.drain(..2);
        rollout.open_waves = 1;
        let signed = world.operator.sign_rollout(&rollout);
        world.give_blob(0, Digest::of(b"2.0.0"));
        world.publish(0, &release.bytes);
        world.publish(0, &signed.bytes);
        // Its device is done, and it has not said so yet.
        let is_done = |machine: &Machine| machine.disruption.since_ms.is_some() && !machine.device.disrupted();
        let done = |world: &World| world.machines.iter().find(|machine| is_done(machine)).map(|machine| machine.index);
        assert!(world.run_until(10 * MINUTES, |world| done(world).is_some()), "{}", explain(&world));
        let holder = done(&world).expect("it was just seen");
        world.faults.power_in_words = Ppm::ALL;
        assert!(world.run_until(2_000, |world| world.machine(holder).node.is_none()), "seed {seed}: it says that it is done");
        world.faults.power_in_words = Ppm::ZERO;
        let starts = world.starts;
        for index in (0..4).filter(|index| *index != holder) {
            world.start(index);
        }
        world.run_for(5 * MINUTES);
        went_on += u32::from(world.starts > starts);
    }
    assert!(went_on > 0, "its word was on the way nowhere");
}

#[test]
fn a_failure_that_a_member_has_shown_and_takes_back_halts_all_the_same() {
    let played = playing(
        r#"
seed = 1
lasts = "10m"
pools = [{ name = "north", machines = 6 }]
acts = [
    { at = "10s", at-machine = 0, do = "publish", terms = { waves-ppm = [1000000] } },
    { at = "16s", do = "lie", machine = 5, how = "recant", for = "2m" },
]
"#,
    );
    assert_eq!(played.failure, None);
    assert!((1..5).contains(&played.starts), "some wait when it is shown: {} started", played.starts);
}

//! The supervisor's decisions, played against a world of random agents, torn files, full disks and crashes at any place.

mod stops;
mod unfit;
mod world;

use groundswell_core::digest::Digest;
use groundswell_core::install::supervision::{Announcement, Build, Facts, Input, Reading};
use proptest::prelude::*;

use self::world::{MOST_BOOTS, TERMS, TRIAL_MS, World};

#[test]
fn a_build_on_trial_that_is_confirmed_stays() {
    let mut world = World::settled();
    let trial = world.upgrade();
    assert!(matches!(&world.child, Some(Build::Trial { boots: 1, .. })));
    world.feed(Input::Ready);
    world.disk.confirmed = Reading::Said(trial.build.clone());
    for _ in 0..100 {
        world.pass(20_000);
        world.feed(Input::Alive);
    }
    assert_eq!(world.machine.runs(), Some(&Build::Confirmed(trial.build.clone())));
    world.end_child(1, false);
    assert_eq!(world.runs(), Build::Confirmed(trial.build), "a crash after that is a crash of a confirmed build");
    assert_eq!(world.starts.values().sum::<u32>(), 1);
}

#[test]
fn a_build_that_crashes_at_start_is_tried_three_times_and_left() {
    let mut world = World::settled();
    let before = world.confirmed().unwrap();
    let trial = world.upgrade();
    for boot in 1..=MOST_BOOTS {
        assert!(matches!(&world.child, Some(Build::Trial { boots, .. }) if *boots == boot));
        world.end_child(101, false);
        if boot < MOST_BOOTS {
            world.pass(TERMS.backoff_ms);
        }
    }
    assert_eq!(world.child, Some(Build::Confirmed(before)), "at once, without a pause");
    let Reading::Said(boots) = &world.disk.boots else { panic!("it is written down") };
    assert_eq!((&boots.trial, boots.boots), (&trial.name, MOST_BOOTS));
    assert!(boots.given_up.as_ref().is_some_and(|why| why.contains("it ended 3 times")));
}

#[test]
fn a_build_that_hangs_at_its_start_is_left_after_its_first_boot_and_one_that_falls_silent_later_after_three() {
    let mut silent_from_the_start = World::settled();
    let before = silent_from_the_start.confirmed().unwrap();
    silent_from_the_start.upgrade();
    silent_from_the_start.pass(TERMS.ready_within_ms);
    assert_eq!(silent_from_the_start.child, Some(Build::Confirmed(before.clone())));

    let mut silent_later = World::settled();
    silent_later.upgrade();
    for boot in 1..=MOST_BOOTS {
        assert!(matches!(&silent_later.child, Some(Build::Trial { boots, .. }) if *boots == boot), "{:?}", silent_later.child);
        silent_later.feed(Input::Ready);
        silent_later.pass(TERMS.silence_ms);
        if boot < MOST_BOOTS {
            silent_later.pass(TERMS.backoff_ms);
        }
    }
    assert_eq!(silent_later.child, Some(Build::Confirmed(before)));
    let Reading::Said(boots) = &silent_later.disk.boots else { panic!("it is written down") };
    assert!(boots.given_up.as_ref().is_some_and(|why| why.contains("no sign of life for 60 s")), "{boots:?}");
}

#[test]
fn a_build_that_is_never_confirmed_is_left_even_if_it_lives_and_does_not_listen() {
    let mut world = World::settled();
    let before = world.confirmed().unwrap();
    world.upgrade();
    world.deaf = true;
    world.feed(Input::Ready);
    for _ in 0..TRIAL_MS / 20_000 + 5 {
        world.feed(Input::Alive);
        world.pass(20_000);
    }
    assert_eq!(world.child, Some(Build::Confirmed(before)));
    assert_eq!(world.starts.values().copied().collect::<Vec<_>>(), [1]);
}

#[test]
fn a_build_on_trial_has_the_rest_of_its_time_when_the_machine_wakes() {
    let mut world = World::settled();
    let before = world.confirmed().unwrap();
    world.upgrade();
    world.feed(Input::Ready);
    world.pass(20_000);
    world.slept_ms += 10 * TRIAL_MS;
    world.feed(Input::Alive);
    world.feed(Input::Wake);
    assert!(matches!(world.child, Some(Build::Trial { boots: 1, .. })), "{:?}", world.child);
    for _ in 0..TRIAL_MS / 20_000 {
        world.feed(Input::Alive);
        world.pass(20_000);
    }
    assert_eq!(world.child, Some(Build::Confirmed(before)));
}

#[test]
fn i2_power_cycles_of_a_confirmed_build_count_for_nothing() {
    let mut world = World::settled();
    let before = world.confirmed().unwrap();
    for _ in 0..20 {
        world.kill_supervisor();
        assert_eq!(world.child, Some(Build::Confirmed(before.clone())));
    }
    for _ in 0..20 {
        world.end_child(1, false);
        assert_eq!(world.runs(), Build::Confirmed(before.clone()));
    }
    assert_eq!(world.disk.boots, Reading::Absent);
}

#[test]
fn a_confirmed_build_that_ends_again_and_again_is_started_with_growing_pauses() {
    let mut world = World::settled();
    let mut pauses = Vec::new();
    for _ in 0..9 {
        world.end_child(1, false);
        pauses.push(world.machine.wait_ms(world.now()).unwrap() / 1000);
        world.pass(TERMS.backoff_longest_ms);
        world.child.as_ref().expect("it runs again");
        world.now_ms = world.now_ms.saturating_sub(TERMS.backoff_longest_ms);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    world.feed(Input::Ready);
    for _ in 0..4 {
        world.pass(30_000);
        world.feed(Input::Alive);
    }
    world.end_child(1, false);
    assert_eq!(world.machine.wait_ms(world.now()), Some(TERMS.backoff_ms), "it had run well");
}

#[test]
fn a_trial_is_not_made_where_its_boots_cannot_be_counted() {
    let mut world = World::settled();
    let before = world.confirmed().unwrap();
    world.writes_fail = true;
    world.upgrade();
    assert_eq!(world.child, Some(Build::Confirmed(before)));
    assert!(world.starts.is_empty());
}

#[test]
fn a_damaged_confirmed_build_gives_way_to_the_supervisors_own_and_comes_back_when_it_is_whole() {
    let mut world = World::settled();
    let before = world.confirmed().unwrap();
    world.damaged.insert(before.sha256);
    world.end_child(1, false);
    assert_eq!(world.runs(), Build::Own);
    world.damaged.clear();
    world.end_child(1, false);
    assert_eq!(world.runs(), Build::Confirmed(before));
}

#[test]
fn a_request_to_stop_ends_it_with_the_agents_code_and_kills_what_does_not_listen() {
    let mut world = World::settled();
    world.feed(Input::Stop);
    assert_eq!(world.said.last(), Some(&Announcement::Stopping));
    world.end_child(3, false);
    assert_eq!(world.ended, Some(3));

    let mut world = World::settled();
    world.feed(Input::Stop);
    world.pass(TERMS.stop_within_ms);
    assert_eq!(world.ended, Some(137));

    let mut world = World::settled();
    world.end_child(1, false);
    world.feed(Input::Stop);
    assert_eq!(world.ended, Some(0), "nothing ran");
}

#[test]
fn the_service_manager_hears_ready_once_and_life_only_while_there_is_some() {
    let mut world = World::settled();
    world.feed(Input::Alive);
    let heard = std::mem::take(&mut world.said);
    assert_eq!(heard, [Announcement::Alive, Announcement::Ready, Announcement::Alive]);
    world.pass(TERMS.silence_ms - 1);
    assert_eq!(world.said, [], "an agent that is silent is not spoken for");
    world.pass(1 + TERMS.backoff_ms);
    assert_eq!(world.said, [Announcement::Alive], "it was started again");
    world.feed(Input::Alive);
    assert_eq!(world.said.len(), 1, "a sign of life before it is up is none");
    world.feed(Input::Ready);
    assert_eq!(world.said.len(), 1, "ready is said once");
}

/// Every place of a trial at which the supervisor can be killed, made from what it does: a new step cannot be forgotten.
#[test]
fn s6_a_kill_at_every_step_of_a_trial_ends_on_the_build_that_is_right() {
    // What the build on trial does with each of its boots.
    for (name, confirms, crashes) in [("good", true, false), ("crashing", false, true), ("hanging", false, false)] {
        let mut steps = 0;
        for place in 0.. {
            let mut world = World::settled();
            let before = world.confirmed().unwrap();
            world.killed_in = Some(place);
            let first = world.all.len();
            let trial = world.upgrade();
            for _ in 0..4 * MOST_BOOTS {
                match world.machine.runs().cloned() {
                    Some(Build::Trial { .. }) if confirms => {
                        world.feed(Input::Ready);
                        world.disk.confirmed = Reading::Said(trial.build.clone());
                        world.pass(10_000);
                        world.feed(Input::Alive);
                    }
                    Some(Build::Trial { .. }) if crashes => {
                        world.end_child(101, false);
                        world.pass(TERMS.backoff_ms);
                    }
                    Some(Build::Trial { .. }) => world.pass(TERMS.ready_within_ms),
                    Some(_) => {
                        world.feed(Input::Ready);
                        world.feed(Input::Alive);
                        world.pass(10_000);
                    }
                    None => world.pass(TERMS.backoff_longest_ms),
                }
            }
            let right = if confirms { trial.build } else { before };
            assert_eq!(world.runs(), Build::Confirmed(right), "{name}, killed before action {place}");
            if world.killed_in.is_some() {
                steps = world.all.len() - first;
                break;
            }
        }
        assert!(steps > 5, "{name}: {steps} places");
    }
}

#[derive(Clone, Debug)]
enum Op {
    Ready,
    Alive,
    End(bool),
    Upgrade,
    Confirm,
    Revert,
    Pass(u64),
    Kill(usize),
    Tear(u8),
    Mend,
    WritesFail(bool),
    Damage,
    Fail(u32),
    Deaf(bool),
    Restart,
    Oversleep(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        Just(Op::Ready),
        Just(Op::Alive),
        any::<bool>().prop_map(Op::End),
        Just(Op::Upgrade),
        Just(Op::Upgrade),
        Just(Op::Confirm),
        Just(Op::Revert),
        prop_oneof![Just(500u64), Just(5_000), Just(70_000), Just(1_000_000)].prop_map(Op::Pass),
        (0usize..8).prop_map(Op::Kill),
        (0u8..4).prop_map(Op::Tear),
        Just(Op::Mend),
        any::<bool>().prop_map(Op::WritesFail),
        Just(Op::Damage),
        (1u32..9).prop_map(Op::Fail),
        any::<bool>().prop_map(Op::Deaf),
        Just(Op::Restart),
        (0u64..200_000).prop_map(Op::Oversleep),
    ]
}

fn play(world: &mut World, op: Op) {
    let on_trial = match &world.child {
        Some(Build::Trial { trial, .. }) => Some(trial.clone()),
        _ => None,
    };
    match op {
        Op::Ready if world.child.is_some() => world.feed(Input::Ready),
        Op::Alive if world.child.is_some() => world.feed(Input::Alive),
        Op::End(asked) => world.end_child(if asked { 85 } else { 1 }, asked),
        // An agent of a damaged slot, or one whose files are torn, has other things to do first.
        Op::Upgrade if world.child.is_some() && on_trial.is_none() && world.builds < 250 && world.confirmed().is_some() => {
            world.upgrade();
        }
        Op::Confirm => {
            if let Some(trial) = on_trial.filter(|_| !world.writes_fail) {
                world.disk.confirmed = Reading::Said(trial.build);
            }
        }
        Op::Revert if on_trial.is_some() => {
            world.disk.trial = Reading::Absent;
            world.end_child(85, true);
        }
        Op::Pass(ms) => world.pass(ms),
        Op::Kill(0) => world.kill_supervisor(),
        Op::Kill(place) => world.killed_in = Some(place),
        Op::Tear(0) if on_trial.is_none() => world.disk.confirmed = Reading::Unreadable,
        Op::Tear(1) => world.disk.trial = Reading::Unreadable,
        Op::Tear(2) => world.disk.boots = Reading::Unreadable,
        Op::Tear(3) => world.disk.remembered = Reading::Unreadable,
        Op::Mend => {
            // A confirm writes the file anew; the floor keeps what it names.
            if let (Reading::Unreadable, Reading::Said(known)) = (&world.disk.confirmed, world.disk.remembered.clone()) {
                world.disk.confirmed = Reading::Said(known);
            }
            world.damaged.clear();
        }
        Op::WritesFail(fail) => world.writes_fail = fail,
        Op::Damage => world.damaged.extend(world.disk.confirmed_sha256()),
        Op::Fail(starts) => world.failing = starts,
        Op::Deaf(deaf) => world.deaf = deaf,
        Op::Restart if world.child.is_some() && world.killed_in.is_none() => {
            world.stops += u32::from(on_trial.is_some());
            world.restart();
        }
        Op::Oversleep(ms) => {
            world.now_ms += ms;
            world.feed(Input::Overslept(ms));
        }
        _ => {}
    }
}

trait Known {
    fn confirmed_sha256(&self) -> Option<Digest>;
}

impl Known for Facts {
    fn confirmed_sha256(&self) -> Option<Digest> {
        match &self.confirmed {
            Reading::Said(named) => Some(named.sha256),
            _ => None,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// S6: whatever happens, a build runs, trials are bounded and counted, and confirmed builds are never burnt. What the
    /// world asserts on the way (`World::start`) is the greater part of it.
    #[test]
    fn s6_there_is_always_a_build_to_run_and_it_is_the_right_one(ops in proptest::collection::vec(op(), 0..60)) {
        let mut world = World::settled();
        for op in ops {
            play(&mut world, op);
        }
        world.killed_in = None;
        world.writes_fail = false;
        world.damaged.clear();
        world.failing = 0;
        // A trial under way ends, one way or the other, within its own time, its boots and one kill each.
        world.pass(TRIAL_MS + u64::from(MOST_BOOTS) * (TERMS.ready_within_ms + TERMS.stop_within_ms));
        let runs = world.runs();
        let on_trial = matches!(runs, Build::Trial { .. });
        prop_assert!(!on_trial, "a trial has an end: {runs:?}");
        if let Some(confirmed) = world.confirmed() {
            world.end_child(1, false);
            prop_assert_eq!(world.runs(), Build::Confirmed(confirmed));
        }
    }
}

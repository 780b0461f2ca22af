//! Builds that cannot be started: for a while, for ever, or until somebody mends their file.

use groundswell_core::digest::Digest;
use groundswell_core::install::supervision::{Action, Build, Input, Notice, Reading};

use super::world::{MOST_BOOTS, MOST_TRIES, TERMS, World};

const HOUR_MS: u64 = 3_600_000;

/// Lets time pass with an agent that is well.
fn live(world: &mut World, ms: u64) {
    let until = world.now_ms + ms;
    while world.now_ms < until {
        if world.child.is_some() {
            world.feed(Input::Ready);
            world.feed(Input::Alive);
        }
        world.pass(20_000);
    }
}

fn ends_of_own(world: &World) -> usize {
    world.all.iter().filter(|action| matches!(action, Action::Say(Notice::GivesWay(_)))).count()
}

#[test]
fn s5_a_confirmed_build_that_cannot_be_started_for_a_while_is_tried_again_and_none_takes_its_place() {
    for failing in 1..MOST_TRIES {
        let mut world = World::settled();
        let before = world.confirmed().unwrap();
        world.failing = failing;
        world.end_child(1, false);
        world.pass(2 * TERMS.backoff_longest_ms);
        assert_eq!(world.child, Some(Build::Confirmed(before)), "{failing} failed starts");
        assert!(!world.all.contains(&Action::Start(Build::Own)), "{failing} failed starts");
    }
}

#[test]
fn s6_a_confirmed_build_that_cannot_be_started_gives_way_to_the_supervisors_own_and_takes_its_place_back() {
    let mut world = World::settled();
    let before = world.confirmed().unwrap();
    world.failing = MOST_TRIES;
    world.end_child(1, false);
    world.pass(2 * TERMS.backoff_longest_ms);
    assert_eq!(world.child, Some(Build::Own));
    // Nobody ends it but the supervisor.
    live(&mut world, 120_000);
    assert_eq!(world.child, Some(Build::Confirmed(before)));
    assert_eq!(ends_of_own(&world), 1);
    live(&mut world, HOUR_MS);
    assert_eq!(ends_of_own(&world), 1, "and stays");
}

#[test]
fn s5_the_supervisors_own_build_runs_only_until_the_confirmed_one_is_whole_again() {
    let mut world = World::settled();
    let before = world.confirmed().unwrap();
    world.damaged.insert(before.sha256);
    world.end_child(1, false);
    assert_eq!(world.runs(), Build::Own);
    live(&mut world, 3 * HOUR_MS);
    assert_eq!(world.child, Some(Build::Own), "one that is damaged is not tried");
    assert_eq!(ends_of_own(&world), 0);
    world.damaged.clear();
    live(&mut world, 2 * HOUR_MS);
    assert_eq!(world.child, Some(Build::Confirmed(before)));
}

#[test]
fn the_confirmed_build_is_found_when_its_disk_comes_late() {
    let mut world = World::new();
    world.feed(Input::Begin);
    assert_eq!(world.child, Some(Build::Own));
    let confirmed = world.build(groundswell_core::install::Slot::A);
    live(&mut world, HOUR_MS);
    world.disk.confirmed = Reading::Said(confirmed.clone());
    live(&mut world, HOUR_MS);
    assert_eq!(world.child, Some(Build::Confirmed(confirmed)));
}

#[test]
fn i2_a_confirmed_build_is_not_on_trial_again_when_the_file_that_names_it_is_lost() {
    let mut world = World::settled();
    let trial = world.upgrade();
    world.feed(Input::Ready);
    world.disk.confirmed = Reading::Said(trial.build.clone());
    world.pass(10_000);
    world.disk.confirmed = Reading::Absent;
    for _ in 0..2 * MOST_BOOTS {
        world.end_child(1, false);
        assert_eq!(world.runs(), Build::Confirmed(trial.build.clone()));
    }
}

#[test]
fn one_seen_last_gives_way_to_the_one_that_is_named_once_that_is_whole() {
    let mut world = World::settled();
    let old = world.confirmed().unwrap();
    let new = world.build(old.slot.other());
    world.disk.confirmed = Reading::Said(new.clone());
    world.disk.remembered = Reading::Said(old.clone());
    world.damaged.insert(new.sha256);
    world.end_child(1, false);
    assert_eq!(world.runs(), Build::Confirmed(old));
    live(&mut world, HOUR_MS);
    world.damaged.clear();
    live(&mut world, 2 * HOUR_MS);
    assert_eq!(world.child, Some(Build::Confirmed(new)));
}

#[test]
fn s5_a_confirmed_build_gives_way_when_the_file_names_another_one() {
    let mut world = World::settled();
    let old = world.confirmed().unwrap();
    let new = world.build(old.slot.other());
    live(&mut world, HOUR_MS);
    assert_eq!(world.child, Some(Build::Confirmed(old)), "and to no other reason");
    // An agent finished the confirm of a build that it is not.
    world.disk.confirmed = Reading::Said(new.clone());
    live(&mut world, 2 * TERMS.backoff_longest_ms);
    assert_eq!(world.child, Some(Build::Confirmed(new)));
}

/// A whole file that the machine cannot run, as when a library that it needs is gone.
#[test]
fn a_confirmed_build_that_never_starts_disturbs_the_one_in_its_place_once_an_hour_at_most() {
    let mut world = World::settled();
    world.confirmed_fails = true;
    world.end_child(1, false);
    world.pass(2 * TERMS.backoff_longest_ms);
    live(&mut world, 24 * HOUR_MS);
    let ends = ends_of_own(&world);
    assert!((20..=32).contains(&ends), "{ends} times in a day");
    world.confirmed_fails = false;
    live(&mut world, 2 * HOUR_MS);
    assert_eq!(world.child, world.confirmed().map(Build::Confirmed));
}

#[test]
fn a_start_of_a_trial_that_executes_nothing_is_not_counted_and_not_blamed_on_the_build() {
    for failing in 1..MOST_TRIES {
        let mut world = World::settled();
        world.failing = failing;
        let trial = world.upgrade();
        let mut pauses = Vec::new();
        while world.child.is_none() {
            let Reading::Said(boots) = &world.disk.boots else { panic!("it is written down") };
            assert_eq!((boots.boots, &boots.given_up), (0, &None));
            let pause_ms = world.machine.wait_ms(world.now()).unwrap();
            pauses.push(pause_ms / 1_000);
            world.pass(pause_ms);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16][..pauses.len()], "as those of a confirmed build");
        assert_eq!(pauses.len(), usize::try_from(failing).unwrap());
        assert!(matches!(&world.child, Some(Build::Trial { trial: tried, boots: 1 }) if tried.name == trial.name));
    }

    let mut world = World::settled();
    let before = world.confirmed().unwrap();
    world.failing = MOST_TRIES;
    world.upgrade();
    world.pass(TERMS.backoff_longest_ms);
    assert_eq!(world.child, Some(Build::Confirmed(before)));
    let Reading::Said(boots) = &world.disk.boots else { panic!("it is written down") };
    let why = boots.given_up.as_deref().unwrap();
    assert!(boots.boots == 0 && why.contains("too many processes"), "{boots:?}");
}

#[test]
fn only_the_starts_of_a_trial_that_executed_something_are_blamed_on_it() {
    let mut world = World::settled();
    world.upgrade();
    world.end_child(101, false);
    world.failing = MOST_TRIES;
    world.pass(2 * TERMS.backoff_longest_ms);
    let Reading::Said(boots) = &world.disk.boots else { panic!("it is written down") };
    assert!(boots.boots == 1 && boots.given_up.is_some(), "{boots:?}");
}

#[test]
fn a_trial_whose_file_rots_after_it_was_staged_was_never_tried() {
    let mut world = World::settled();
    let before = world.confirmed().unwrap();
    world.damaged.insert(Digest([world.builds + 1; 32]));
    world.upgrade();
    assert_eq!(world.child, Some(Build::Confirmed(before)), "at once");
    let Reading::Said(boots) = &world.disk.boots else { panic!("it is written down") };
    assert!(boots.boots == 0 && boots.given_up.is_some(), "{boots:?}");
}

#[test]
fn a_build_that_the_kernel_cannot_run_is_to_blame() {
    let mut world = World::settled();
    let before = world.confirmed().unwrap();
    world.unrunnable.insert(Digest([world.builds + 1; 32]));
    world.upgrade();
    world.pass(u64::from(MOST_BOOTS) * TERMS.backoff_ms);
    assert_eq!(world.child, Some(Build::Confirmed(before)));
    let Reading::Said(boots) = &world.disk.boots else { panic!("it is written down") };
    assert!(boots.boots == MOST_BOOTS && boots.given_up.as_ref().is_some_and(|why| why.contains("exec format")), "{boots:?}");
}

#[test]
fn a_request_to_stop_between_two_tries_ends_it() {
    let mut world = World::settled();
    world.failing = 3;
    world.end_child(1, false);
    world.feed(Input::Stop);
    assert_eq!(world.ended, Some(0));
}

//! Orderly stops, and times in which supervisor and agent were stopped together.

use groundswell_core::install::supervision::{Action, Announcement, Build, End, Input, Reading};

use super::world::{MOST_BOOTS, TERMS, TRIAL_MS, World};

/// So many orderly stops of one trial are not counted.
const MOST_STOPS: u32 = 10;

#[test]
fn restarts_of_the_machine_use_up_no_boots_of_a_trial_that_is_well() {
    let mut world = World::settled();
    let trial = world.upgrade();
    for restart in 1..=MOST_STOPS {
        assert!(matches!(&world.child, Some(Build::Trial { boots: 1, .. })), "restart {restart}");
        world.feed(Input::Ready);
        world.stops += 1;
        world.restart();
    }
    world.feed(Input::Ready);
    world.disk.confirmed = Reading::Said(trial.build.clone());
    world.pass(10_000);
    assert_eq!(world.machine.runs(), Some(&Build::Confirmed(trial.build)));
}

#[test]
fn a_trial_that_has_its_machine_restarted_for_ever_comes_to_an_end() {
    let mut world = World::settled();
    let before = world.confirmed().unwrap();
    world.upgrade();
    let mut restarts = 0;
    while world.child != Some(Build::Confirmed(before.clone())) {
        world.feed(Input::Ready);
        world.stops += 1;
        world.restart();
        restarts += 1;
        assert!(restarts <= MOST_STOPS + MOST_BOOTS);
    }
    assert_eq!(restarts, MOST_STOPS + MOST_BOOTS);
}

#[test]
fn a_trial_that_is_not_up_when_it_is_stopped_has_had_its_boot() {
    let mut world = World::settled();
    world.upgrade();
    world.restart();
    assert!(matches!(&world.child, Some(Build::Trial { boots: 2, .. })));
}

#[test]
fn a_trial_whose_supervisor_was_stopped_for_longer_than_its_time_is_tried_on() {
    for (well, boots) in [(true, 1), (false, 2)] {
        let mut world = World::settled();
        world.upgrade();
        if well {
            world.feed(Input::Ready);
            world.stops += 1;
        }
        world.restart_after(10 * TRIAL_MS);
        assert!(matches!(&world.child, Some(Build::Trial { boots: now, .. }) if *now == boots), "{:?}", world.child);
        // It ends once, which is no end of the trial.
        world.end_child(101, false);
        world.pass(TERMS.backoff_ms);
        assert!(matches!(&world.child, Some(Build::Trial { boots: now, .. }) if *now == boots + 1), "{:?}", world.child);
    }
}

#[test]
fn a_trial_that_was_killed_for_its_silence_has_had_its_boot_whatever_is_asked_then() {
    let mut world = World::settled();
    world.upgrade();
    world.feed(Input::Ready);
    world.now_ms += TERMS.silence_ms;
    world.feed(Input::Wake);
    world.feed(Input::Stop);
    world.end_child(137, false);
    let Reading::Said(boots) = &world.disk.boots else { panic!("it is written down") };
    assert_eq!((boots.boots, boots.stops), (1, 0));
}

#[test]
fn a_boot_that_a_stop_came_before_is_written_back() {
    let mut world = World::settled();
    let trial = world.ask().name;
    let (now, end) = (world.now(), End { code: 85, asked: true, said: "it ended".to_owned() });
    assert_eq!(world.machine.handle(now, Input::Ended(end)), [Action::Look]);
    let facts = world.facts();
    let counts = |boots| Action::Count { trial: trial.clone(), boots, stops: 0 };
    assert_eq!(world.machine.handle(now, Input::Found(facts)), [counts(1)]);
    assert_eq!(world.machine.handle(now, Input::Stop), []);
    let stopping = Action::Announce(Announcement::Stopping);
    assert_eq!(world.machine.handle(now, Input::Written(true)), [stopping, counts(0)]);
    assert_eq!(world.machine.handle(now, Input::Written(true)), [Action::End(0)]);
}

#[test]
fn a_supervisor_that_is_told_to_stop_before_it_begins_starts_nothing() {
    let mut world = World::new();
    world.feed(Input::Stop);
    assert_eq!((world.ended, world.all.as_slice()), (Some(0), &[Action::End(0)][..]));
}

#[test]
fn time_in_which_nothing_ran_is_no_silence_of_the_agent() {
    let mut world = World::settled();
    let runs = world.child.clone();
    // Both were stopped for ten minutes, right after a sign of life.
    world.now_ms += 600_000;
    world.feed(Input::Overslept(600_000));
    world.feed(Input::Wake);
    assert!(!world.all.contains(&Action::Kill));
    // What it owed before it owes still.
    world.pass(TERMS.silence_ms - 1);
    assert!(!world.all.contains(&Action::Kill));
    world.pass(1);
    assert!(world.all.contains(&Action::Kill), "{runs:?}");

    let mut starting = World::settled();
    starting.upgrade();
    starting.now_ms += 600_000;
    starting.feed(Input::Overslept(600_000));
    starting.pass(TERMS.ready_within_ms - 1);
    assert!(matches!(&starting.child, Some(Build::Trial { .. })));

    let mut ending = World::settled();
    ending.feed(Input::Stop);
    ending.now_ms += 600_000;
    ending.feed(Input::Overslept(600_000));
    ending.feed(Input::Wake);
    assert!(!ending.all.contains(&Action::Kill), "it could not end meanwhile");
}

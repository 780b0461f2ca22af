//! What counts as a start of a version on trial, and what the way back of a machine that has to be restarted waits for.

use groundswell_core::install::machine::{self, Cause, Plan};
use groundswell_core::install::recovery::{Ending, give_up, recover, try_again};
use groundswell_core::install::{Boot, Counted, Entry, Found, Manner, Mark, Operation, Slot, Starts, Way};
use groundswell_core::limits::{RESTARTS_BACK, TRIAL_STOPS, TRIES_BACK};

use super::install_recovery::{MANNER, RESTARTS, cause, contents, first, found, upgrade};

/// A child of the agent.
const CHILD: Manner = Manner { counted: Counted::Starts, ..MANNER };
/// The agent itself.
const AGENT: Manner = Manner { trial_starts: 1, counted: Counted::Elsewhere, restarts_machine: true };

fn boot(name: &str) -> Boot {
    Boot(name.to_owned())
}

fn on_trial(starts: Starts, this: &str) -> Found {
    Found { boot: boot(this), ..found(Slot::B, upgrade(Mark::Watch(starts))) }
}

/// The journal after these operations.
fn journal(found: &Found, operations: &[Operation]) -> Option<Entry> {
    let last = operations.iter().rev().find_map(|operation| match operation {
        Operation::Note(entry) => Some(entry.clone()),
        _ => None,
    });
    last.or_else(|| found.entry.clone())
}

/// A start of the agent in this run of the machine, and what it comes to.
fn start(found: Found, this: &str, manner: Manner) -> (Found, Ending) {
    let found = Found { boot: boot(this), ..found };
    let recovery = recover(&found, manner);
    (Found { entry: journal(&found, &recovery.operations), ..found }, recovery.ending)
}

/// An orderly end of the agent.
fn stop(found: Found, manner: Manner) -> Found {
    let noted: Vec<_> = machine::stop(&found, manner).into_iter().collect();
    Found { entry: journal(&found, &noted), ..found }
}

fn is_on_trial(ending: &Ending) -> bool {
    matches!(ending, Ending::Trial(release) if *release == contents(2).release)
}

#[test]
fn i2_an_orderly_end_of_the_agent_takes_the_start_before_it_back() {
    for manner in [CHILD, MANNER, RESTARTS] {
        let mut disk = on_trial(first(), "this");
        for run in 0..5 {
            disk = stop(disk, manner);
            let (next, ending) = start(disk, &format!("run {run}"), manner);
            assert!(is_on_trial(&ending), "{manner:?}, run {run}: {ending:?}");
            disk = next;
        }
        let Some(Entry { mark: Mark::Watch(starts), .. }) = disk.entry.clone() else { panic!("on trial") };
        assert_eq!((starts.count, starts.stops), (1, 5));
        // In the middle of a start, where that is repeated.
        let mut disk = Found { entry: upgrade(Mark::Activate(first())), ..disk };
        for run in 0..5 {
            disk = stop(disk, manner);
            let (_, ending) = start(disk.clone(), &format!("run {run}"), manner);
            assert!(is_on_trial(&ending), "{manner:?}, run {run}: {ending:?}");
        }
    }
}

#[test]
fn a_version_that_has_its_machine_restarted_each_time_is_not_tried_for_ever() {
    let mut disk = on_trial(first(), "this");
    for run in 0..TRIAL_STOPS + 8 {
        let (next, ending) = start(stop(disk, MANNER), &format!("run {run}"), MANNER);
        if !is_on_trial(&ending) {
            assert_eq!(run, TRIAL_STOPS + 2, "three that count");
            return;
        }
        disk = next;
    }
    panic!("it is");
}

#[test]
fn a_restart_of_the_agent_is_no_start_of_what_it_does_not_start() {
    for manner in [MANNER, RESTARTS] {
        let mut disk = on_trial(first(), "this");
        for _ in 0..10 {
            let (next, ending) = start(disk, "this", manner);
            assert!(is_on_trial(&ending), "{ending:?}");
            disk = next;
        }
        assert_eq!(disk, on_trial(first(), "this"), "and nothing is written for it");
        for run in ["second", "third"] {
            let (next, ending) = start(disk, run, manner);
            assert!(is_on_trial(&ending), "{run}: {ending:?}");
            disk = next;
        }
        let (left, ending) = start(disk, "fourth", manner);
        let noted = left.entry.expect("an entry").mark;
        let said = match (&ending, &noted) {
            (Ending::Reverted(_, reason, true), Mark::Closed) if !manner.restarts_machine => reason,
            (Ending::Restarting, Mark::Revert { reason, at_fault: true, .. }) if manner.restarts_machine => reason,
            other => panic!("{other:?}"),
        };
        assert!(said.as_str().contains("3 times"), "{said}");
    }
}

#[test]
fn an_agent_that_ends_again_and_again_has_no_product_of_its_own_or_anothers_blamed() {
    let (mut child, mut service) = (on_trial(first(), "this"), on_trial(first(), "this"));
    for end in 1..=3 {
        let (next, ending) = start(service, "this", MANNER);
        assert!(is_on_trial(&ending), "end {end}: {ending:?}");
        service = next;
        let (next, ending) = start(child, "this", CHILD);
        child = next;
        if end < 3 {
            assert!(is_on_trial(&ending), "end {end}: {ending:?}");
        } else {
            // It was started anew each time, and may be what ends the agent: it goes back, and nothing is known of it.
            assert!(matches!(&ending, Ending::Reverted(_, reason, false) if reason.as_str().contains("3 times")), "{ending:?}");
        }
    }
}

/// Goes through starts of a child of the agent in these runs of the machine, and says what each comes to: `None` while the trial
/// goes on, otherwise whether the release is to blame.
fn ends_in(disk: Found, runs: &[&str]) -> Vec<Option<bool>> {
    let mut disk = disk;
    let starts = runs.iter().map(|run| {
        let (next, ending) = start(disk.clone(), run, CHILD);
        disk = next;
        match ending {
            Ending::Trial(_) => None,
            Ending::Reverted(_, _, at_fault) => Some(at_fault),
            other => panic!("{other:?}"),
        }
    });
    starts.collect()
}

#[test]
fn a_power_cut_among_ends_of_the_agent_denies_no_build() {
    let disk = || on_trial(Starts::first(boot("1")), "1");
    assert_eq!(ends_in(disk(), &["1", "1", "2"]), [None; 3], "twice the agent, once the machine");
    assert_eq!(ends_in(disk(), &["1", "1", "2", "2"]), [None, None, None, Some(false)], "three times the agent");
    assert_eq!(ends_in(disk(), &["2", "2", "3", "3"]), [None; 4], "twice each");
    // A machine that goes down each time may have been taken down by it, whatever befell the agent meanwhile.
    assert_eq!(ends_in(disk(), &["2", "3", "4"]), [None, None, Some(true)]);
    assert_eq!(ends_in(disk(), &["2", "2", "3", "3", "4"]), [None, None, None, None, Some(true)]);
}

#[test]
fn what_an_older_build_counted_as_one_blames_no_build_for_the_agent() {
    let of_old = |count| on_trial(Starts { count, boots: 0, ..Starts::first(boot("1")) }, "1");
    assert_eq!(ends_in(of_old(3), &["1"]), [Some(false)]);
    assert_eq!(ends_in(of_old(3), &["2", "3", "4"]), [None, None, Some(true)], "of no machine is it known that it went down");
    assert_eq!(ends_in(of_old(2), &["1", "1"]), [None, Some(false)]);
    // Where only runs of the machine were counted they count on.
    let (_, ending) = start(of_old(3), "2", MANNER);
    assert!(matches!(ending, Ending::Reverted(_, _, true)), "{ending:?}");
}

#[test]
fn the_starts_of_the_agent_itself_are_counted_by_its_supervisor_alone() {
    let mut disk = on_trial(first(), "this");
    for run in 0..10 {
        let disk_before = disk.clone();
        let (next, ending) = start(disk, &format!("process {run}"), AGENT);
        assert!(is_on_trial(&ending), "run {run}: {ending:?}");
        assert_eq!(next.entry, disk_before.entry, "nothing is written down");
        assert_eq!(machine::stop(&next, AGENT), None);
        disk = next;
    }
}

#[test]
fn a_start_of_which_no_run_of_the_machine_is_known_counts() {
    for (noted, this) in [("", "this"), ("", "")] {
        let noted = |count| Starts { count, boots: count, boot: boot(noted), ..first() };
        let (_, ending) = start(on_trial(noted(3), this), this, MANNER);
        assert!(matches!(ending, Ending::Reverted(..)), "{ending:?}");
        let (next, ending) = start(on_trial(noted(2), this), this, MANNER);
        assert!(is_on_trial(&ending));
        let Some(Entry { mark: Mark::Watch(starts), .. }) = next.entry else { panic!("on trial") };
        assert_eq!((starts.count, starts.boot), (3, boot(this)));
    }
}

/// Handed over in the run of the machine that was to end, and found to run in that other one.
fn handed_over(starts: u32, ended: &str, last: &str) -> Mark {
    Mark::Reboot { starts, boot: boot(ended), last: boot(last) }
}

#[test]
fn a_system_that_takes_its_machine_down_before_it_is_on_trial_goes_back_and_is_to_blame() {
    // Also where the agent ended while it handed the system over, and nothing but the machine says that it was.
    for mark in [handed_over(1, "before", ""), Mark::Activate(Starts::first(boot("before")))] {
        goes_back_after_three_runs(found(Slot::B, upgrade(mark)));
    }
}

fn goes_back_after_three_runs(mut disk: Found) {
    // Its hook restarts the machine each time, say; a restart of the agent is none.
    for (run, starts) in [("first", 1), ("first", 1), ("second", 2), ("third", 3), ("third", 3)] {
        disk.boot = boot(run);
        let recovery = recover(&disk, RESTARTS);
        assert!(is_on_trial(&recovery.ending), "{run}: {recovery:?}");
        let notes: Vec<_> = recovery.operations.iter().filter(|operation| matches!(operation, Operation::Note(_))).collect();
        let [.., Operation::Note(Entry { mark: Mark::Watch(on_trial), .. })] = notes[..] else { panic!("{notes:?}") };
        assert_eq!(on_trial.count, starts, "{run}");
        if let [Operation::Note(entry), _] = notes[..] {
            assert_eq!(entry.mark, handed_over(starts, "before", run));
            disk.entry = Some(entry.clone());
        }
        // It goes down before it is on trial.
    }
    disk.boot = boot("fourth");
    let recovery = recover(&disk, RESTARTS);
    assert_eq!(recovery.ending, Ending::Restarting);
    let noted = journal(&disk, &recovery.operations).expect("an entry").mark;
    let told = "started 3 times without being confirmed";
    assert!(matches!(&noted, Mark::Revert { reason, at_fault: true, .. } if reason.as_str() == told), "{noted:?}");
    assert!(is_on_trial(&recover(&disk, AGENT).ending), "a supervisor counts for itself");
}

#[test]
fn a_machine_whose_runs_have_no_name_is_asked_what_it_runs_and_is_not_restarted_for_ever() {
    let reboot = Found { boot: boot(""), ..found(Slot::B, upgrade(handed_over(1, "", ""))) };
    let recovery = recover(&reboot, RESTARTS);
    assert_eq!(recovery.operations.first(), Some(&Operation::Booted(Slot::B, contents(2))));
    assert!(is_on_trial(&recovery.ending));
    let way = Way::Restarting { boot: boot(""), missed: 0, unset: false };
    let mark = Mark::Revert { reason: cause().reason, at_fault: true, way, tries: 0 };
    let recovery = recover(&Found { boot: boot(""), ..found(Slot::A, upgrade(mark)) }, RESTARTS);
    assert_eq!(recovery.operations.get(1), Some(&Operation::Booted(Slot::A, contents(1))));
}

#[test]
fn a_system_whose_hand_over_was_cut_short_did_not_fail_to_come_up() {
    let booted = Operation::Booted(Slot::B, contents(2));
    let blamed = |mark: Mark, manner, answered| {
        let recovery = give_up(&found(Slot::B, upgrade(mark)), &cause(), manner, &booted, answered);
        let entry = recovery.operations.iter().find_map(|operation| match operation {
            Operation::Note(Entry { mark: Mark::Revert { at_fault, .. }, .. }) => Some(*at_fault),
            _ => None,
        });
        entry.expect("it goes back")
    };
    let reboot = || handed_over(1, "before", "");
    assert!(!blamed(Mark::Activate(first()), RESTARTS, true), "nothing says that it was ever handed over");
    assert!(blamed(reboot(), RESTARTS, true));
    assert!(blamed(Mark::Watch(first()), RESTARTS, true));
    // Nobody could say what the machine runs.
    for mark in [Mark::Activate(first()), reboot(), Mark::Watch(first())] {
        assert!(!blamed(mark, RESTARTS, false));
    }
    assert!(blamed(Mark::Activate(first()), AGENT, true), "a supervisor knows whether it started it");
}

/// The way back by a restart of the machine, which was to end with this run of it.
fn going_back(way: Way, tries: u32) -> Found {
    found(Slot::A, upgrade(Mark::Revert { reason: cause().reason, at_fault: true, way, tries }))
}

/// The machine was restarted, and did not come up with the old version so often.
fn restarting(missed: u32, unset: bool) -> Way {
    Way::Restarting { boot: boot("before"), missed, unset }
}

/// The ways back that a list notes, with how often each was begun.
fn noted(operations: &[Operation]) -> Vec<(Way, u32)> {
    let noted = operations.iter().filter_map(|operation| match operation {
        Operation::Note(Entry { mark: Mark::Revert { way, tries, .. }, .. }) => Some((way.clone(), *tries)),
        _ => None,
    });
    noted.collect()
}

#[test]
fn s6_a_way_back_by_a_restart_ends_only_once_the_machine_runs_the_old_version() {
    let recovery = recover(&going_back(restarting(0, false), 0), RESTARTS);
    assert_eq!(noted(&recovery.operations), [(restarting(0, false), 1)], "before anything else");
    assert_eq!(recovery.operations.get(1), Some(&Operation::Booted(Slot::A, contents(1))));
    // It is made the next one again, and the machine restarted, so often and no more.
    for missed in 0..RESTARTS_BACK {
        let again = try_again(&going_back(restarting(missed, false), 0), RESTARTS, true);
        let this = Way::Restarting { boot: boot("this"), missed: missed + 1, unset: false };
        assert_eq!(noted(&again.operations), [(restarting(missed, false), 1), (this, 0)]);
        assert_eq!(again.operations.get(1), Some(&Operation::Start(Slot::A, contents(1))));
        assert_eq!(again.operations.last(), Some(&Operation::Restart(Slot::A, contents(1))));
    }
    for answered in [true, false] {
        let over = going_back(restarting(RESTARTS_BACK, false), TRIES_BACK);
        assert_eq!(try_again(&over, RESTARTS, answered), recover(&over, RESTARTS));
    }
    // The agent itself knows where it runs from.
    assert_eq!(
        recover(&going_back(restarting(0, false), 0), AGENT).operations.first(),
        Some(&Operation::Keep(Slot::A, contents(1)))
    );
}

#[test]
fn s6_what_never_makes_the_old_version_the_next_one_restarts_the_machine_all_the_same_and_so_often_in_all() {
    let cause = cause();
    let mut found = going_back(Way::Restart, 0);
    // Each start of the agent, and each try of one, is one more.
    for tries in 1..TRIES_BACK {
        let Plan::Do(back) = machine::revert(&found, contents(2).release, &cause, RESTARTS) else { panic!("under way") };
        let this = Way::Restarting { boot: boot("this"), missed: 0, unset: false };
        assert_eq!(noted(&back), [(Way::Restart, tries), (this, 0)]);
        found = going_back(Way::Restart, tries);
        assert_eq!(back, recover(&going_back(Way::Restart, tries - 1), RESTARTS).operations);
    }
    for missed in 1..=RESTARTS_BACK {
        let last = if missed == 1 { recover(&found, RESTARTS) } else { try_again(&found, RESTARTS, true) };
        let this = Way::Restarting { boot: boot("this"), missed, unset: true };
        assert_eq!(noted(&last.operations).last(), Some(&(this, 0)), "a restart that counts, whatever happened before it");
        assert_eq!(last.ending, Ending::Restarting);
        found = going_back(restarting(missed, true), TRIES_BACK);
    }
    assert_eq!(try_again(&found, RESTARTS, true), recover(&found, RESTARTS), "no further restart");
    // The boot loader goes back by itself: now that has to last.
    let back = recover(&found, RESTARTS);
    assert_eq!(noted(&back.operations), [(restarting(RESTARTS_BACK, true), TRIES_BACK)]);
    assert_eq!(
        back.operations[1..4],
        [Operation::Booted(Slot::A, contents(1)), Operation::Start(Slot::A, contents(1)), Operation::Keep(Slot::A, contents(1))]
    );
    // Its supervisor goes back by itself, and is not asked.
    let Plan::Do(own) = machine::revert(&going_back(Way::Restart, TRIES_BACK), contents(2).release, &cause, AGENT) else {
        panic!("under way")
    };
    assert!(own.iter().all(|operation| !matches!(operation, Operation::Booted(..))));
}

#[test]
fn s6_a_machine_that_never_says_what_it_runs_is_taken_for_one_that_does_not_run_the_old_version() {
    let silent = |tries| try_again(&going_back(restarting(0, false), tries), RESTARTS, false);
    for tries in 1..=TRIES_BACK {
        let again = silent(tries - 1);
        assert_eq!(noted(&again.operations), [(restarting(0, false), tries)]);
        assert_eq!(again.operations[1..], recover(&going_back(restarting(0, false), 0), RESTARTS).operations[1..]);
        // Each start of the agent is one more, for it may end before it can try again.
        assert_eq!(recover(&going_back(restarting(0, false), tries - 1), RESTARTS), again);
    }
    let last = silent(TRIES_BACK);
    let this = Way::Restarting { boot: boot("this"), missed: 1, unset: true };
    assert_eq!((&last.ending, noted(&last.operations).last()), (&Ending::Restarting, Some(&(this, 0))));
    assert_eq!(recover(&going_back(restarting(0, false), TRIES_BACK), RESTARTS), last);
    let agent = going_back(restarting(0, false), TRIES_BACK);
    assert_eq!(try_again(&agent, AGENT, false), recover(&agent, AGENT));
}

#[test]
fn s6_a_first_install_that_goes_back_is_not_over_while_the_machine_still_runs_it() {
    let first = |way, tries| {
        let found = going_back(way, tries);
        let mut entry = found.entry.expect("an entry");
        entry.transaction.from = None;
        Found { entry: Some(entry), current: None, a: None, confirmed: None, ..super::install_starts::found(Slot::B, None) }
    };
    let recovery = recover(&first(restarting(0, false), 0), RESTARTS);
    assert_eq!(recovery.operations.get(1), Some(&Operation::Left(Slot::B, contents(2))));
    let again = try_again(&first(restarting(0, false), 0), RESTARTS, true);
    assert_eq!(again.operations.get(1), Some(&Operation::Stop(Slot::B, contents(2))));
    assert_eq!(again.ending, Ending::Restarting);
    let over = first(restarting(RESTARTS_BACK, true), 0);
    assert_eq!(try_again(&over, RESTARTS, true), recover(&over, RESTARTS));
}

#[test]
fn a_first_install_that_goes_back_before_it_was_started_stops_nothing() {
    let entry = |mark| {
        let mut entry = upgrade(mark).expect("an entry");
        entry.transaction.from = None;
        Some(entry)
    };
    let stops = |mark| {
        let found = Found { entry: entry(mark), current: None, a: None, confirmed: None, ..found(Slot::B, None) };
        let Plan::Do(back) = machine::revert(&found, contents(2).release, &cause(), MANNER) else { panic!("under way") };
        back.iter().any(|operation| matches!(operation, Operation::Stop(..)))
    };
    assert!(!stops(Mark::Switch));
    assert!(stops(Mark::Activate(first())) && stops(Mark::Watch(first())));
}

#[test]
fn what_was_left_and_turns_out_to_be_to_blame_later_is_written_down_once() {
    let mut left = found(Slot::A, upgrade(Mark::Closed));
    left.b.as_mut().expect("described").state = groundswell_core::install::SlotState::Failed;
    let blame = |found: &Found, at_fault| machine::revert(found, contents(2).release, &Cause { at_fault, ..cause() }, MANNER);
    assert_eq!(blame(&left, false), Plan::Done);
    let Plan::Do(operations) = blame(&left, true) else { panic!("it is news") };
    let [Operation::Deny(denied)] = &operations[..] else { panic!("{operations:?}") };
    assert!(denied.names(&contents(2)));
    let known = Found { denied: vec![denied.clone()], ..left };
    assert_eq!(blame(&known, true), Plan::Done);
    assert_eq!(known.denied_last(), Some(denied), "the device can say so again");
}

#[test]
fn s6_a_switch_that_did_not_come_to_its_end_goes_back_whatever_is_to_be_left() {
    let left = |mark, release| machine::revert(&found(Slot::B, upgrade(mark)), contents(release).release, &cause(), MANNER);
    for mark in [Mark::Switch, Mark::Activate(first())] {
        assert!(matches!(left(mark.clone(), 3), Plan::Do(_)), "{mark:?}");
        assert_eq!(left(mark.clone(), 3), left(mark, 2));
    }
    assert_eq!(left(Mark::Watch(first()), 3), Plan::Done, "a trial is left only by whoever knows it");
}

//! What start-up and orders make of a disk on which files are lost, damaged, or contradict one another: whatever runs runs on,
//! and no slot that may be the only good one is overwritten.

use groundswell_core::digest::Digest;
use groundswell_core::install::machine::{self, Cause, Plan, Refusal};
use groundswell_core::install::recovery::{Ending, give_up, recover, try_again};
use groundswell_core::install::{
    Boot, Confirmed, Contents, Counted, Denied, Described, Entry, Found, Manner, Mark, Operation, Part, Slot, SlotState, Starts,
    Transaction, Way,
};
use groundswell_core::limits::DENIED;
use groundswell_core::number::Sequence;
use groundswell_core::record::{ClaimName, Stamp};
use groundswell_core::text::{Reason, Version};

pub(crate) const MANNER: Manner = Manner { trial_starts: 3, counted: Counted::Boots, restarts_machine: false };
pub(crate) const RESTARTS: Manner = Manner { trial_starts: 3, counted: Counted::Boots, restarts_machine: true };

pub(crate) fn contents(sequence: u64) -> Contents {
    Contents {
        release: Digest::of(format!("release {sequence}").as_bytes()),
        version: Version::new(format!("{sequence}.0")).unwrap(),
        sequence: Sequence::new(sequence).unwrap(),
        sha256: Digest::of(format!("binary {sequence}").as_bytes()),
        size_bytes: 6,
    }
}

pub(crate) fn described(sequence: u64) -> Option<Described> {
    Some(Described { contents: contents(sequence), state: SlotState::Staged })
}

pub(crate) fn claim() -> ClaimName {
    ClaimName(Stamp { incarnation: 1, counter: 7 })
}

/// Version 2 in slot b, from version 1 in slot a.
pub(crate) fn upgrade(mark: Mark) -> Option<Entry> {
    Some(Entry {
        transaction: Transaction { contents: contents(2), to: Slot::B, from: Some(Slot::A), claim: Some(claim()) },
        mark,
    })
}

/// Version 1 is confirmed in slot a, version 2 is in slot b.
pub(crate) fn found(current: Slot, entry: Option<Entry>) -> Found {
    Found {
        entry,
        current: Some(current),
        a: described(1),
        b: described(2),
        confirmed: Some(Confirmed { slot: Slot::A, contents: contents(1) }),
        boot: Boot("this".to_owned()),
        ..Found::default()
    }
}

/// Started for the first time in this run of the machine.
pub(crate) fn first() -> Starts {
    Starts::first(Boot("this".to_owned()))
}

fn damaged(found: Found) -> Found {
    Found { confirmed: None, damaged: true, ..found }
}

pub(crate) fn cause() -> Cause {
    Cause { reason: Reason::lossy("unhealthy"), at_fault: true }
}

#[test]
fn s6_a_journal_that_closed_on_a_confirm_blesses_it_and_denies_nothing() {
    let found = found(Slot::B, upgrade(Mark::Closed));
    assert_eq!(found.idle(), None, "until they are one, neither slot is idle");
    let recovery = recover(&found, MANNER);
    let blessed = Confirmed { slot: Slot::B, contents: contents(2) };
    assert_eq!(recovery.operations, [Operation::Keep(Slot::B, contents(2)), Operation::Bless(blessed)]);
    assert_eq!(recovery.ending, Ending::Settled);
}

#[test]
fn s6_a_decided_confirm_runs_before_it_is_written_down() {
    let operations = recover(&found(Slot::B, upgrade(Mark::Confirm)), MANNER).operations;
    let place = |wanted: fn(&Operation) -> bool| operations.iter().position(wanted).unwrap();
    let (keeps, blesses) = (place(|it| matches!(it, Operation::Keep(..))), place(|it| matches!(it, Operation::Bless(_))));
    assert!(keeps < blesses && blesses < operations.len() - 1, "{operations:?}");
}

#[test]
fn s6_a_machine_that_left_what_was_being_confirmed_is_believed_and_one_that_says_nothing_is_not() {
    let manner = RESTARTS;
    let deciding = found(Slot::B, upgrade(Mark::Confirm));
    let asks = Operation::Booted(Slot::B, contents(2));
    let blessed = Operation::Bless(Confirmed { slot: Slot::B, contents: contents(2) });
    let operations = recover(&deciding, manner).operations;
    assert_eq!(operations.first(), Some(&asks), "before anything is written");
    assert!(operations.contains(&blessed));
    let untold = try_again(&deciding, manner, false);
    assert_eq!(untold.ending, Ending::Settled);
    assert!(untold.operations.contains(&blessed) && !untold.operations.contains(&asks));
    let left = try_again(&deciding, manner, true);
    assert!(matches!(&left.ending, Ending::Reverted(release, _, true) if release == &contents(2).release), "{left:?}");
    assert!(!left.operations.contains(&blessed) && left.operations.contains(&Operation::Start(Slot::A, contents(1))));
    // Once it is written the floor is passed, and nothing goes back.
    let recorded = Found { confirmed: Some(Confirmed { slot: Slot::B, contents: contents(2) }), ..deciding };
    assert!(!recover(&recorded, manner).operations.contains(&asks));
    assert_eq!(try_again(&recorded, manner, true).ending, Ending::Settled);
}

#[test]
fn s6_the_way_back_is_known_by_the_slot_itself() {
    let loses: [fn(Found) -> Found; 2] = [damaged, |found| Found { confirmed: None, unread: [Part::Confirmed].into(), ..found }];
    for lose in loses {
        let found = lose(found(Slot::B, upgrade(Mark::Watch(first()))));
        assert_eq!(found.floor(), contents(1).sequence);
        let Plan::Do(operations) = machine::revert(&found, contents(2).release, &cause(), MANNER) else { panic!("on trial") };
        assert!(operations.contains(&Operation::Point(Some(Slot::A))));
        assert!(operations.contains(&Operation::Start(Slot::A, contents(1))), "{operations:?}");
        assert!(!operations.iter().any(|operation| matches!(operation, Operation::Stop(..))));
    }
}

#[test]
fn s6_no_start_up_removes_current_or_stops_what_it_leads_to() {
    let entries = [None, upgrade(Mark::Closed), upgrade(Mark::Stage)];
    let lose_descriptions: [fn(Found) -> Found; 3] =
        [|found| found, |found| Found { a: None, ..found }, |found| Found { a: None, b: None, ..found }];
    let lose_confirmed: [fn(Found) -> Found; 3] = [
        damaged,
        |found| Found { confirmed: None, ..found },
        |found| Found { confirmed: None, unread: [Part::Confirmed].into(), ..found },
    ];
    for entry in entries {
        for lose in lose_descriptions {
            for lose_more in lose_confirmed {
                let found = lose_more(lose(found(Slot::A, entry.clone())));
                let recovery = recover(&found, MANNER);
                let leaves = |operation: &Operation| {
                    matches!(
                        operation,
                        Operation::Point(None) | Operation::Stop(..) | Operation::Empty(Slot::A) | Operation::Deny(_)
                    )
                };
                assert!(!recovery.operations.iter().any(leaves), "{found:?}: {recovery:?}");
                assert_ne!(found.idle(), Some(Slot::A), "{found:?}");
            }
        }
    }
}

#[test]
fn s6_a_confirmed_version_is_no_first_trial_because_its_file_is_damaged() {
    let found = damaged(found(Slot::A, None));
    let recovery = recover(&found, MANNER);
    assert_eq!(recovery.operations, [Operation::Keep(Slot::A, contents(1))]);
    assert_eq!(recovery.ending, Ending::Settled);
    assert!(found.is_lost() && found.idle().is_none());
}

#[test]
fn s6_nothing_moves_before_the_disk_tells_and_what_runs_is_kept() {
    for part in [Part::Confirmed, Part::Current, Part::Slot(Slot::A), Part::Slot(Slot::B), Part::Denied] {
        let found = Found { unread: [part].into(), ..found(Slot::A, None) };
        let install = contents(3);
        assert_eq!(machine::reclaim(&found), []);
        assert_eq!(recover(&found, MANNER).operations, [Operation::Keep(Slot::A, contents(1))], "{part}");
        let refused = machine::confirm(&found, install.release);
        assert_eq!(refused, Err(Refusal::NotOnTrial), "{part}");
        assert!(Refusal::Unread(part).is_of_the_device());
    }
    // `current` that cannot be read did not go back.
    let found = Found { current: None, unread: [Part::Current].into(), ..found(Slot::B, upgrade(Mark::Watch(first()))) };
    assert_eq!(recover(&found, MANNER).ending, Ending::Trial(contents(2).release));
}

#[test]
fn a_way_back_under_way_keeps_its_own_cause_whatever_fails_beside_it() {
    let own = Reason::lossy("unhealthy");
    let entry = upgrade(Mark::Revert { reason: own.clone(), at_fault: false, way: Way::Start, tries: 0 });
    let other = Cause { reason: Reason::lossy("the disk is full"), at_fault: true };
    let failed = Operation::Keep(Slot::B, contents(2));
    let recovery = give_up(&found(Slot::B, entry), &other, MANNER, &failed, false);
    assert_eq!(recovery.ending, Ending::Reverted(contents(2).release, own, false));
}

#[test]
fn only_an_answer_tells_that_the_machine_runs_the_old_version() {
    let other_boot = Boot("earlier".to_owned());
    for mark in
        [Mark::Reboot { starts: 1, boot: other_boot, last: Boot::default() }, Mark::Activate(first()), Mark::Watch(first())]
    {
        let booted = Operation::Booted(Slot::B, contents(2));
        let ways = [true, false].map(|answered| {
            let recovery = give_up(&found(Slot::B, upgrade(mark.clone())), &cause(), RESTARTS, &booted, answered);
            recovery.operations.iter().any(|operation| matches!(operation, Operation::Restart(..)))
        });
        assert_eq!(ways, [false, true], "{mark:?}: restarts only where it may run the new one");
    }
}

#[test]
fn s6_an_old_file_of_the_confirmed_version_is_not_believed() {
    // Version 2 was confirmed in slot b, version 3 staged into slot a; then a repair of the disk brought an old file back.
    let staged = Transaction { contents: contents(3), to: Slot::A, from: Some(Slot::B), claim: None };
    let entries = [
        Some(Entry { transaction: staged.clone(), mark: Mark::Closed }),
        Some(Entry { transaction: staged.clone(), mark: Mark::Stage }),
        None,
    ];
    let filled = [described(3), None];
    for (entry, a) in entries.iter().flat_map(|entry| filled.iter().map(move |a| (entry, a))) {
        let found = Found { a: a.clone(), ..found(Slot::B, entry.clone()) };
        let (is_known, told) = (entry.is_some(), format!("{entry:?}, {a:?}"));
        if entry.is_none() && a.is_none() {
            // Nothing tells it from a first version that is confirmed again.
            continue;
        }
        let recovery = recover(&found, MANNER);
        assert_eq!(recovery.ending, Ending::Settled, "{told}");
        assert!(recovery.operations.contains(&Operation::Keep(Slot::B, contents(2))), "{told}: {recovery:?}");
        let touches = |operation: &Operation| {
            matches!(operation, Operation::Point(_) | Operation::Start(..) | Operation::Stop(..) | Operation::Deny(_))
        };
        assert!(!recovery.operations.iter().any(touches), "{told}: {recovery:?}");
        if is_known {
            assert_eq!((found.floor(), found.idle()), (contents(2).sequence, Some(Slot::A)), "{told}");
        } else {
            assert_eq!(found.idle(), None, "{told}");
        }
    }
    let closed = Found { a: described(3), ..found(Slot::B, entries[0].clone()) };
    let blessed = Operation::Bless(Confirmed { slot: Slot::B, contents: contents(2) });
    assert!(recover(&closed, MANNER).operations.contains(&blessed));
    // A trial of it leads back to version 2.
    let trial = Transaction { claim: Some(claim()), ..staged };
    let entry = Some(Entry { transaction: trial, mark: Mark::Watch(first()) });
    let found = Found { a: described(3), ..found(Slot::A, entry) };
    let Plan::Do(back) = machine::revert(&found, contents(3).release, &cause(), MANNER) else { panic!("on trial") };
    assert!(back.contains(&Operation::Start(Slot::B, contents(2))), "{back:?}");
}

#[test]
fn s5_an_old_description_of_the_confirmed_slot_lowers_no_floor() {
    let confirmed = Some(Confirmed { slot: Slot::B, contents: contents(2) });
    let found = Found { confirmed, b: described(1), ..found(Slot::B, upgrade(Mark::Closed)) };
    assert_eq!(found.floor(), contents(2).sequence);
    assert_eq!(recover(&found, MANNER).operations, [Operation::Keep(Slot::B, contents(2))]);
}

#[test]
fn s6_what_was_merely_staged_is_not_confirmed_because_current_leads_there() {
    let staged = Transaction { contents: contents(2), to: Slot::B, from: Some(Slot::A), claim: None };
    let found = found(Slot::B, Some(Entry { transaction: staged, mark: Mark::Closed }));
    let recovery = recover(&found, MANNER);
    assert_eq!(recovery.operations, [Operation::Point(Some(Slot::A)), Operation::Start(Slot::A, contents(1))]);
    assert_eq!(recovery.ending, Ending::Settled);
    assert_eq!(recover(&damaged(found), MANNER).operations.iter().find(|it| matches!(it, Operation::Bless(_))), None);
}

#[test]
fn a_journal_that_is_lost_in_a_trial_is_not_the_versions_fault() {
    let recovery = recover(&found(Slot::B, None), MANNER);
    assert!(matches!(recovery.ending, Ending::Reverted(release, _, false) if release == contents(2).release), "{recovery:?}");
    assert!(!recovery.operations.iter().any(|operation| matches!(operation, Operation::Deny(_))));
}

#[test]
fn an_agent_overwrites_no_slot_that_it_runs_from() {
    // The confirmed build in slot b could not be started, so its supervisor runs the one before.
    let confirmed = Some(Confirmed { slot: Slot::B, contents: contents(2) });
    let found = Found { confirmed, ..found(Slot::B, upgrade(Mark::Closed)) };
    assert_eq!(found.idle(), Some(Slot::A));
    let found = Found { origin: Some(Slot::A), ..found };
    assert_eq!((found.idle(), machine::reclaim(&found)), (None, Vec::new()));
    assert!(Refusal::InUse(Slot::A).is_of_the_device());
    let found = Found { origin: Some(Slot::B), ..found };
    assert_eq!(found.idle(), Some(Slot::A));
}

#[test]
fn what_failed_is_listed_once_and_the_oldest_gives_way() {
    let denied = |sequence| {
        let Contents { version, sha256, release, .. } = contents(sequence);
        Denied { version, sha256, release, reason: Reason::lossy("unhealthy"), claim: None }
    };
    let full = (1..=DENIED as u64 + 2).fold(Vec::new(), |list, sequence| denied(sequence).joining(list));
    assert_eq!((full.len(), full.first().cloned()), (DENIED, Some(denied(3))));
    let again = denied(4).joining(full.clone());
    assert_eq!((again.len(), again.last().cloned()), (DENIED, Some(denied(4))));
}

//! What start-up and orders make of a disk on which files are lost, damaged, or contradict one another: whatever runs runs on,
//! and no slot that may be the only good one is overwritten.

use groundswell_core::digest::Digest;
use groundswell_core::install::machine::{self, Cause, Plan, Refusal};
use groundswell_core::install::recovery::{Ending, give_up, recover};
use groundswell_core::install::{
    Boot, Confirmed, Contents, Denied, Described, Entry, Found, Manner, Mark, Operation, Part, Slot, SlotState, Transaction, Way,
};
use groundswell_core::limits::DENIED;
use groundswell_core::number::Sequence;
use groundswell_core::record::{ClaimName, Stamp};
use groundswell_core::text::{Reason, Version};

const MANNER: Manner = Manner { trial_starts: 3, restarts_machine: false };
const RESTARTS: Manner = Manner { trial_starts: 3, restarts_machine: true };

fn contents(sequence: u64) -> Contents {
    Contents {
        release: Digest::of(format!("release {sequence}").as_bytes()),
        version: Version::new(format!("{sequence}.0")).unwrap(),
        sequence: Sequence::new(sequence).unwrap(),
        sha256: Digest::of(format!("binary {sequence}").as_bytes()),
        size_bytes: 6,
    }
}

fn described(sequence: u64) -> Option<Described> {
    Some(Described { contents: contents(sequence), state: SlotState::Staged })
}

fn claim() -> ClaimName {
    ClaimName(Stamp { incarnation: 1, counter: 7 })
}

/// Version 2 in slot b, from version 1 in slot a.
fn upgrade(mark: Mark) -> Option<Entry> {
    Some(Entry {
        transaction: Transaction { contents: contents(2), to: Slot::B, from: Some(Slot::A), claim: Some(claim()) },
        mark,
    })
}

/// Version 1 is confirmed in slot a, version 2 is in slot b.
fn found(current: Slot, entry: Option<Entry>) -> Found {
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

fn damaged(found: Found) -> Found {
    Found { confirmed: None, damaged: true, ..found }
}

fn cause() -> Cause {
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
fn s6_the_way_back_is_known_by_the_slot_itself() {
    let loses: [fn(Found) -> Found; 2] = [damaged, |found| Found { confirmed: None, unread: [Part::Confirmed].into(), ..found }];
    for lose in loses {
        let found = lose(found(Slot::B, upgrade(Mark::Watch { starts: 1 })));
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
    let found = Found { current: None, unread: [Part::Current].into(), ..found(Slot::B, upgrade(Mark::Watch { starts: 1 })) };
    assert_eq!(recover(&found, MANNER).ending, Ending::Trial(contents(2).release));
}

#[test]
fn a_way_back_under_way_keeps_its_own_cause_whatever_fails_beside_it() {
    let own = Reason::lossy("unhealthy");
    let entry = upgrade(Mark::Revert { reason: own.clone(), at_fault: false, way: Way::Start });
    let other = Cause { reason: Reason::lossy("the disk is full"), at_fault: true };
    let failed = Operation::Keep(Slot::B, contents(2));
    let recovery = give_up(&found(Slot::B, entry), &other, MANNER, &failed, false);
    assert_eq!(recovery.ending, Ending::Reverted(contents(2).release, own, false));
}

#[test]
fn only_an_answer_tells_that_the_machine_runs_the_old_version() {
    let other_boot = Boot("earlier".to_owned());
    for mark in [Mark::Reboot { starts: 1, boot: other_boot }, Mark::Activate { starts: 1 }, Mark::Watch { starts: 1 }] {
        let booted = Operation::Booted(Slot::B, contents(2));
        let ways = [true, false].map(|answered| {
            let recovery = give_up(&found(Slot::B, upgrade(mark.clone())), &cause(), RESTARTS, &booted, answered);
            recovery.operations.iter().any(|operation| matches!(operation, Operation::Restart(..)))
        });
        assert_eq!(ways, [false, true], "{mark:?}: restarts only where it may run the new one");
    }
}

#[test]
fn what_failed_is_listed_once_and_the_oldest_gives_way() {
    let denied = |sequence| {
        let Contents { version, sha256, release, .. } = contents(sequence);
        Denied { version, sha256, release, reason: Reason::lossy("unhealthy") }
    };
    let full = (1..=DENIED as u64 + 2).fold(Vec::new(), |list, sequence| denied(sequence).joining(list));
    assert_eq!((full.len(), full.first().cloned()), (DENIED, Some(denied(3))));
    let again = denied(4).joining(full.clone());
    assert_eq!((again.len(), again.last().cloned()), (DENIED, Some(denied(4))));
}

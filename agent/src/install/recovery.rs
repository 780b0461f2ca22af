//! What start-up does about what it finds: finish, or take back. Pure, like `machine`.
//!
//! Without an open journal entry `current` must lead to the confirmed slot. A lost or torn journal is safe because
//! the confirmed slot is written down apart from it, in one atomic file (S6).

use groundswell_core::digest::Digest;
use groundswell_core::text::Reason;

use super::machine::{
    Confirmed, Contents, Described, Entry, Found, Mark, Operation, SlotState, Transaction, back, blessing, forward,
};

/// What start-up does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// In order.
    pub operations: Vec<Operation>,
    /// Where that leads when nothing fails.
    pub ending: Ending,
}

/// Where a recovery leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The confirmed version runs, or nothing is installed.
    Settled,
    /// This release runs on trial.
    Trial(Digest),
    /// This release was left.
    Reverted(Digest, Reason),
}

/// Decides what to do about `found`; a trial may be started `trial_starts` times in all.
#[must_use]
pub fn recover(found: &Found, trial_starts: u32) -> Recovery {
    match found.open() {
        Some(Entry { transaction, mark }) => open(found, transaction, mark, trial_starts),
        None => closed(found),
    }
}

/// The way back after a step of a recovered trial failed.
#[must_use]
pub fn give_up(found: &Found, reason: &Reason) -> Recovery {
    match found.open() {
        Some(Entry { transaction, mark }) => {
            let disturbed = !matches!(mark, Mark::Stage | Mark::Switch);
            reverted(found, transaction, reason, disturbed)
        }
        None => settled(Vec::new()),
    }
}

fn open(found: &Found, transaction: &Transaction, mark: &Mark, trial_starts: u32) -> Recovery {
    let (to, contents) = (transaction.to, &transaction.contents);
    let note = |mark| Operation::Note(Entry { transaction: transaction.clone(), mark });
    let trial = |operations| Recovery { operations, ending: Ending::Trial(contents.release) };
    let moved_back = found.current != Some(to);
    match mark {
        Mark::Stage => {
            let whole = found.described(to).is_some_and(|slot| slot.state == SlotState::Staged && slot.contents == *contents);
            let mut operations = Vec::new();
            if !whole {
                operations.push(Operation::Empty(to));
            }
            operations.push(note(Mark::Closed));
            operations.extend(keep_confirmed(found));
            settled(operations)
        }
        Mark::Switch => trial(forward(transaction)),
        // `current` went back although the journal could not be written (a full disk): the revert is what happened.
        Mark::Activate { .. } | Mark::Watch { .. } if moved_back => {
            reverted(found, transaction, &Reason::lossy("reverted; the journal could not be written"), true)
        }
        Mark::Activate { starts } | Mark::Watch { starts } if *starts >= trial_starts => {
            let reason = format!("started {starts} times without being confirmed");
            reverted(found, transaction, &Reason::lossy(&reason), true)
        }
        Mark::Activate { starts } => {
            let starts = starts.saturating_add(1);
            trial(vec![
                note(Mark::Activate { starts }),
                Operation::Verify(to, contents.clone()),
                Operation::Start(to, contents.clone()),
                note(Mark::Watch { starts }),
            ])
        }
        Mark::Watch { starts } => trial(vec![
            note(Mark::Watch { starts: starts.saturating_add(1) }),
            Operation::Verify(to, contents.clone()),
            Operation::Keep(to, contents.clone()),
        ]),
        Mark::Confirm => {
            let mut operations = blessing(transaction);
            operations.push(Operation::Point(Some(to)));
            operations.push(Operation::Keep(to, contents.clone()));
            settled(operations)
        }
        Mark::Revert { reason, disturbed } => reverted(found, transaction, reason, *disturbed),
        Mark::Closed => closed(found),
    }
}

fn closed(found: &Found) -> Recovery {
    match (&found.confirmed, found.current) {
        (Some(confirmed), Some(current)) if confirmed.slot == current => settled(keep_confirmed(found)),
        // The journal was lost in the middle of a trial.
        (Some(confirmed), Some(current)) => match found.described(current) {
            Some(Described { contents, .. }) => {
                let transaction =
                    Transaction { contents: contents.clone(), to: current, from: Some(confirmed.slot), claim: None };
                reverted(found, &transaction, &Reason::lossy("the journal was lost while this version was on trial"), true)
            }
            None => settled(restart(confirmed)),
        },
        // `current` was lost.
        (Some(confirmed), None) => settled(restart(confirmed)),
        // The journal was lost in the middle of the first trial: there is nothing to go back to.
        (None, Some(current)) => match found.described(current) {
            Some(described) => {
                let contents = described.contents.clone();
                let transaction = Transaction { contents: contents.clone(), to: current, from: None, claim: None };
                let note = Operation::Note(Entry { transaction, mark: Mark::Watch { starts: 1 } });
                let release = contents.release;
                Recovery { operations: vec![note, Operation::Keep(current, contents)], ending: Ending::Trial(release) }
            }
            None => settled(vec![Operation::Point(None)]),
        },
        (None, None) => settled(Vec::new()),
    }
}

fn restart(confirmed: &Confirmed) -> Vec<Operation> {
    let Confirmed { slot, contents } = confirmed.clone();
    vec![Operation::Point(Some(slot)), Operation::Start(slot, contents)]
}

fn keep_confirmed(found: &Found) -> Vec<Operation> {
    let keep = |confirmed: &Confirmed| Operation::Keep(confirmed.slot, confirmed.contents.clone());
    found.confirmed.as_ref().map(keep).into_iter().collect()
}

fn settled(operations: Vec<Operation>) -> Recovery {
    Recovery { operations, ending: Ending::Settled }
}

fn reverted(found: &Found, transaction: &Transaction, reason: &Reason, disturbed: bool) -> Recovery {
    let Contents { release, .. } = transaction.contents;
    Recovery { operations: back(found, transaction, reason, disturbed), ending: Ending::Reverted(release, reason.clone()) }
}

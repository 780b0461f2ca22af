//! What start-up does about what it finds: finish, or take back. Pure, like `machine`.
//!
//! Without an open journal entry `current` must lead to the confirmed slot. A lost or torn journal is safe because
//! the confirmed slot is written down apart from it, in one atomic file (S6).

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::machine::{Cause, back, blessed, blessing, forward, staged, start, way};
use super::operation::{Hook, Operation};
use super::state::{Confirmed, Contents, Described, Entry, Found, Manner, Mark, Part, Slot, SlotState, Transaction, Way};
use crate::digest::Digest;
use crate::text::Reason;

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
    /// This release was left, and whether it is to blame.
    Reverted(Digest, Reason, bool),
    /// The machine restarts first; the next start of the agent goes on. Where that fails, [`give_up`] says how.
    Restarting,
}

/// Decides what to do about `found`.
#[must_use]
pub fn recover(found: &Found, manner: Manner) -> Recovery {
    match found.open() {
        Some(Entry { transaction, mark }) => open(found, transaction, mark, manner),
        None => closed(found, manner),
    }
}

/// The way back after a step of a recovered trial failed; `failed` is the one that did. `answered`: what was asked whether the
/// machine runs the new version said that it does not, and was not merely unable to say anything.
#[must_use]
pub fn give_up(found: &Found, cause: &Cause, manner: Manner, failed: &Operation, answered: bool) -> Recovery {
    let Some(Entry { transaction, mark }) = found.open() else { return settled(Vec::new()) };
    // A way back that is under way goes on for its own cause.
    if let Mark::Revert { reason, at_fault, way } = mark {
        return reverted(found, transaction, &Cause { reason: reason.clone(), at_fault: *at_fault }, way);
    }
    let way = match (failed, mark) {
        // The machine did not start from the new version: the old one runs already, and has to be started the next time too.
        (Operation::Booted(..), _) if answered => Way::Next { boot: found.boot.clone() },
        // Handed over, and it runs, or nothing tells whether it does: one restart too many is the price.
        (Operation::Booted(..) | Operation::Keep(..) | Operation::Hook(..), Mark::Activate { .. })
        | (Operation::Note(Entry { mark: Mark::Watch { .. }, .. }), Mark::Activate { .. })
            if manner.restarts_machine =>
        {
            Way::Restart
        }
        _ => way(found, mark, manner),
    };
    reverted(found, transaction, cause, &way)
}

fn open(found: &Found, transaction: &Transaction, mark: &Mark, manner: Manner) -> Recovery {
    let (to, contents) = (transaction.to, &transaction.contents);
    let note = |mark| Operation::Note(Entry { transaction: transaction.clone(), mark });
    let trial = |operations| Recovery { operations, ending: Ending::Trial(contents.release) };
    let give_back = |reason: &str, at_fault| {
        let cause = Cause { reason: Reason::lossy(reason), at_fault };
        // Nothing tells whether the machine was restarted since the version was handed over: one restart too many is the price.
        let unknown = manner.restarts_machine && matches!(mark, Mark::Activate { .. });
        let way = if unknown { Way::Restart } else { way(found, mark, manner) };
        reverted(found, transaction, &cause, &way)
    };
    let moved_back = found.current != Some(to) && !found.unread.contains(&Part::Current);
    match mark {
        // Whether the slot is whole will be seen when the disk tells.
        Mark::Stage if found.unread.contains(&Part::Slot(to)) => settled(keep_confirmed(found)),
        Mark::Stage => {
            let whole = found.described(to).is_some_and(|slot| slot.state == SlotState::Staged && slot.contents == *contents);
            let mut operations = Vec::new();
            if whole {
                operations.extend(staged(transaction));
            } else {
                operations.extend([Operation::Empty(to), note(Mark::Closed)]);
            }
            operations.extend(keep_confirmed(found));
            settled(operations)
        }
        Mark::Switch => {
            let operations = forward(found, transaction, manner);
            if manner.restarts_machine { restarting(operations) } else { trial(operations) }
        }
        // `current` went back although the journal could not be written (a full disk): the revert is what happened.
        // Whether the release was to blame is not written here; the node's own store says so.
        Mark::Activate { .. } | Mark::Watch { .. } | Mark::Reboot { .. } if moved_back => {
            give_back("reverted; the journal could not be written", false)
        }
        Mark::Activate { starts } | Mark::Watch { starts } if *starts >= manner.trial_starts => {
            give_back(&format!("started {starts} times without being confirmed"), true)
        }
        // Handing a version over again could overwrite the system that runs: only what the machine runs now tells
        // whether it got that far.
        Mark::Activate { starts } if manner.restarts_machine => trial(after_boot(transaction, *starts)),
        Mark::Activate { starts } => {
            let mut operations = vec![Operation::Verify(to, contents.clone())];
            operations.extend(start(found, transaction, manner, starts.saturating_add(1)));
            trial(operations)
        }
        Mark::Reboot { boot, .. } if *boot == found.boot => restarting(vec![Operation::Restart(to, contents.clone())]),
        Mark::Reboot { starts, .. } => trial(after_boot(transaction, *starts)),
        Mark::Watch { starts } => {
            let mut operations =
                vec![note(Mark::Watch { starts: starts.saturating_add(1) }), Operation::Verify(to, contents.clone())];
            if manner.restarts_machine {
                operations.push(Operation::Booted(to, contents.clone()));
            }
            operations.push(Operation::Keep(to, contents.clone()));
            trial(operations)
        }
        // It is decided, so it runs first: a disk that takes no writes only keeps it from being told.
        Mark::Confirm => {
            let mut operations = vec![Operation::Point(Some(to)), Operation::Keep(to, contents.clone())];
            operations.extend(blessing(found, transaction));
            operations.extend(blessed(transaction));
            settled(operations)
        }
        Mark::Revert { reason, at_fault, way } => {
            reverted(found, transaction, &Cause { reason: reason.clone(), at_fault: *at_fault }, way)
        }
        Mark::Closed => closed(found, manner),
    }
}

/// The machine was restarted, for this or by accident: a trial, if it started from the new version.
fn after_boot(transaction: &Transaction, starts: u32) -> Vec<Operation> {
    let (to, contents) = (transaction.to, &transaction.contents);
    vec![
        Operation::Booted(to, contents.clone()),
        Operation::Keep(to, contents.clone()),
        Operation::Hook(Hook::AfterActivate, to, contents.clone()),
        Operation::Note(Entry { transaction: transaction.clone(), mark: Mark::Watch { starts } }),
    ]
}

fn closed(found: &Found, manner: Manner) -> Recovery {
    // Nothing is started, pointed or written by what the disk does not tell; what is known to run goes on.
    if found.is_unsure() {
        return settled(keep_confirmed(found));
    }
    match (&found.confirmed, found.current) {
        (Some(confirmed), Some(current)) if confirmed.slot == current => settled(keep_confirmed(found)),
        (Some(confirmed), Some(current)) => match found.described(current) {
            // A journal that was closed on this very version closed on its confirm: only the file that says so is the old one.
            Some(Described { contents, state: SlotState::Staged }) if was_confirmed(found, current, contents) => {
                let confirmed = Confirmed { slot: current, contents: contents.clone() };
                settled(vec![Operation::Keep(current, contents.clone()), Operation::Bless(confirmed)])
            }
            // The journal was lost in the middle of a trial.
            Some(Described { contents, .. }) => {
                let transaction =
                    Transaction { contents: contents.clone(), to: current, from: Some(confirmed.slot), claim: None };
                let reason = Reason::lossy("the journal was lost while this version was on trial");
                let cause = Cause { reason, at_fault: true };
                // Nothing tells which of the two the machine runs: one restart too many is the price.
                let way = if manner.restarts_machine { Way::Restart } else { Way::Start };
                reverted(found, &transaction, &cause, &way)
            }
            None => settled(restart(confirmed)),
        },
        // `current` was lost.
        (Some(confirmed), None) => settled(restart(confirmed)),
        // The journal is closed, so `current` leads to what was confirmed: only the file that says so was lost or damaged.
        (None, Some(_)) if found.good().is_some() => {
            let mut operations = keep_confirmed(found);
            operations.extend(found.good().map(Operation::Bless));
            settled(operations)
        }
        // The journal was lost in the middle of the first trial: there is nothing to go back to.
        (None, Some(current)) if !found.is_lost() && found.described(current).is_some() => {
            let trial = |described: &Described| {
                let contents = described.contents.clone();
                let transaction = Transaction { contents: contents.clone(), to: current, from: None, claim: None };
                let note = Operation::Note(Entry { transaction, mark: Mark::Watch { starts: 1 } });
                let release = contents.release;
                Recovery { operations: vec![note, Operation::Keep(current, contents)], ending: Ending::Trial(release) }
            };
            found.described(current).map_or_else(|| settled(Vec::new()), trial)
        }
        // A confirmed version or one on trial, nothing tells: it runs on, `current` stays, and no slot is overwritten.
        (None, _) => settled(keep_confirmed(found)),
    }
}

fn was_confirmed(found: &Found, current: Slot, contents: &Contents) -> bool {
    found.entry.as_ref().is_some_and(|Entry { transaction, mark }| {
        let Transaction { to, claim, .. } = transaction;
        *mark == Mark::Closed && *to == current && claim.is_some() && transaction.contents == *contents
    })
}

fn restart(confirmed: &Confirmed) -> Vec<Operation> {
    let Confirmed { slot, contents } = confirmed.clone();
    vec![Operation::Point(Some(slot)), Operation::Start(slot, contents)]
}

/// What was confirmed, or else what `current` leads to.
fn keep_confirmed(found: &Found) -> Vec<Operation> {
    let good = found.good().map(|good| (good.slot, good.contents));
    let current = || found.current.and_then(|slot| Some((slot, found.contents(slot)?.clone())));
    good.or_else(current).map(|(slot, contents)| Operation::Keep(slot, contents)).into_iter().collect()
}

fn settled(operations: Vec<Operation>) -> Recovery {
    Recovery { operations, ending: Ending::Settled }
}

fn restarting(operations: Vec<Operation>) -> Recovery {
    Recovery { operations, ending: Ending::Restarting }
}

fn reverted(found: &Found, transaction: &Transaction, cause: &Cause, way: &Way) -> Recovery {
    let operations = back(found, transaction, cause, way);
    if matches!(operations.last(), Some(Operation::Restart(..))) {
        return restarting(operations);
    }
    let Contents { release, .. } = transaction.contents;
    Recovery { operations, ending: Ending::Reverted(release, cause.reason.clone(), cause.at_fault) }
}

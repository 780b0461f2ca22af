//! What start-up does about what it finds: finish, or take back. Pure, like `machine`.
//!
//! Without an open journal entry `current` must lead to the confirmed slot. A lost or torn journal is safe because
//! the confirmed slot is written down apart from it, in one atomic file (S6).

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::machine::{Cause, back, back_again, blessed, blessing, forward, is_asked, reverting, staged, start, tries, way};
use super::operation::{Hook, Operation};
use super::state::{
    Boot, Confirmed, Contents, Counted, Described, Entry, Found, Manner, Mark, Part, Slot, SlotState, Starts, Transaction, Way,
};
use crate::digest::Digest;
use crate::limits::{RESTARTS_BACK, TRIES_BACK};
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
    if let Mark::Revert { reason, at_fault, way, .. } = mark {
        return reverted(found, transaction, &Cause { reason: reason.clone(), at_fault: *at_fault }, way, manner);
    }
    let way = match (failed, mark) {
        // In an earlier run, after which the machine may have come up with what `current` leads to.
        (_, Mark::Switch) if !manner.restarts_machine && found.current == Some(transaction.to) => Way::Start,
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
    // A version that is not known to have been handed over did not fail to come up; nor did one of which nothing tells that.
    let was_tried = match failed {
        Operation::Booted(..) => answered && (manner.counted == Counted::Elsewhere || !matches!(mark, Mark::Activate(_))),
        _ => true,
    };
    reverted(found, transaction, &Cause { at_fault: cause.at_fault && was_tried, ..cause.clone() }, &way, manner)
}

/// The next try after a way back, or a confirm, could not be finished. `answered`: what was asked whether the machine runs the old version
/// said that it does not. Then that is made the next one again and the machine restarted, [`RESTARTS_BACK`] times; so it is
/// where it was asked [`TRIES_BACK`] times, whether nothing was said or the agent ended before it could act on that. Beyond that
/// it is only asked again: the transaction stays open until the old version runs.
#[must_use]
pub fn try_again(found: &Found, manner: Manner, answered: bool) -> Recovery {
    if let Some(Entry { transaction, mark: Mark::Confirm }) = found.open() {
        return confirm_again(found, transaction, manner, answered);
    }
    if let Some(Entry { transaction, mark: Mark::Revert { reason, at_fault, way, .. } }) = found.open()
        && let Way::Restarting { boot, missed, .. } = way
        && (answered || is_asked(manner))
        && !boot.is(&found.boot)
        && *missed < RESTARTS_BACK
    {
        let cause = Cause { reason: reason.clone(), at_fault: *at_fault };
        if !answered {
            return asked_again(found, transaction, &cause, way, manner);
        }
        let again = back_again(found, transaction, &cause, way, missed.saturating_add(1)).map(restarting);
        return again.unwrap_or_else(|| reverted(found, transaction, &cause, way, manner));
    }
    recover(found, manner)
}

/// A machine that was restarted for a way back is asked what it runs. That is written down first, for an agent that ends soon
/// after each start has to come to an end too.
fn asked_again(found: &Found, transaction: &Transaction, cause: &Cause, way: &Way, manner: Manner) -> Recovery {
    let counted = match way {
        Way::Restarting { boot, missed, .. } if is_asked(manner) && !boot.is(&found.boot) => {
            Some(*missed).filter(|missed| *missed < RESTARTS_BACK)
        }
        _ => None,
    };
    let mut recovery = reverted(found, transaction, cause, way, manner);
    let Some(missed) = counted else { return recovery };
    let tries = tries(found).saturating_add(1);
    if tries > TRIES_BACK
        && let Some(again) = back_again(found, transaction, cause, way, missed.saturating_add(1))
    {
        return restarting(again);
    }
    recovery.operations.retain(|operation| !matches!(operation, Operation::Note(entry) if entry.is_open()));
    recovery.operations.insert(0, reverting(transaction, cause, way.clone(), tries));
    recovery
}

/// A confirm that could not be finished. `answered`: the machine does not run what was being confirmed, which goes back then. Where
/// nothing can be said of that, what was decided stands.
fn confirm_again(found: &Found, transaction: &Transaction, manner: Manner, answered: bool) -> Recovery {
    if !answered || !is_asked(manner) || is_blessed(found, transaction) {
        return settled(confirmed(found, transaction));
    }
    let reason = format!("the machine did not start from {} when that was being confirmed", transaction.contents.version);
    let cause = Cause { reason: Reason::lossy(&reason), at_fault: true };
    reverted(found, transaction, &cause, &Way::Next { boot: found.boot.clone() }, manner)
}

/// Whether the file that says so is written.
fn is_blessed(found: &Found, transaction: &Transaction) -> bool {
    found.confirmed.as_ref().is_some_and(|confirmed| confirmed.contents == transaction.contents)
}

fn confirmed(found: &Found, transaction: &Transaction) -> Vec<Operation> {
    let (to, contents) = (transaction.to, &transaction.contents);
    let mut operations = vec![Operation::Point(Some(to)), Operation::Keep(to, contents.clone())];
    operations.extend(blessing(found, transaction));
    operations.extend(blessed(transaction));
    operations
}

fn open(found: &Found, transaction: &Transaction, mark: &Mark, manner: Manner) -> Recovery {
    let (to, contents) = (transaction.to, &transaction.contents);
    let note = |mark| Operation::Note(Entry { transaction: transaction.clone(), mark });
    let trial = |operations| Recovery { operations, ending: Ending::Trial(contents.release) };
    let give_back = |reason: &str, at_fault| {
        let cause = Cause { reason: Reason::lossy(reason), at_fault };
        // Nothing tells whether the machine was restarted since the version was handed over: one restart too many is the price.
        let unknown = manner.restarts_machine && matches!(mark, Mark::Activate(_));
        let way = if unknown { Way::Restart } else { way(found, mark, manner) };
        reverted(found, transaction, &cause, &way, manner)
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
        Mark::Activate(_) | Mark::Watch(_) | Mark::Reboot { .. } if moved_back => {
            give_back("reverted; the journal could not be written", false)
        }
        // Handing a version over again could overwrite the system that runs: only what the machine runs now tells
        // whether it got that far.
        Mark::Activate(starts) if manner.restarts_machine => {
            let mut operations = after_boot(found, transaction, starts.count);
            // Where the machine was restarted and runs it, it got that far: from here on its runs count.
            if manner.counted != Counted::Elsewhere && !starts.boot.is(&found.boot) {
                let (starts, boot) = (starts.count, starts.boot.clone());
                operations.insert(1, note(Mark::Reboot { starts, boot, last: found.boot.clone() }));
            }
            trial(operations)
        }
        Mark::Activate(starts) | Mark::Watch(starts) if is_over(found, mark, starts, manner) => {
            let times = |starts: u32| format!("started {starts} times without being confirmed");
            // An agent that ended says nothing of what it had started; a machine that went down may have been taken down by it.
            match starts.boot.is(&found.boot) {
                true => give_back(&format!("{}, for this agent ended each time", times(starts.count)), false),
                false => give_back(&times(starts.runs(manner.counted)), true),
            }
        }
        Mark::Activate(starts) => {
            let mut operations = vec![Operation::Verify(to, contents.clone())];
            operations.extend(start(found, transaction, manner, &starts.again(true, &found.boot, manner.counted)));
            trial(operations)
        }
        Mark::Reboot { boot, .. } if boot.is(&found.boot) => restarting(vec![Operation::Restart(to, contents.clone())]),
        // It takes the machine down before it is on trial.
        Mark::Reboot { starts, last, .. }
            if manner.counted != Counted::Elsewhere && *starts >= manner.trial_starts && is_another(last, found) =>
        {
            give_back(&format!("started {starts} times without being confirmed"), true)
        }
        Mark::Reboot { starts, boot, last } => {
            let now = starts.saturating_add(u32::from(is_another(last, found)));
            let mut operations = after_boot(found, transaction, now);
            if manner.counted != Counted::Elsewhere && *last != found.boot {
                let noted = Mark::Reboot { starts: now, boot: boot.clone(), last: found.boot.clone() };
                operations.insert(1, note(noted));
            }
            trial(operations)
        }
        Mark::Watch(starts) => {
            let mut operations = Vec::new();
            let now = starts.again(counts(found, mark, starts, manner), &found.boot, manner.counted);
            if manner.counted != Counted::Elsewhere && now != *starts {
                operations.push(note(Mark::Watch(now)));
            }
            operations.push(Operation::Verify(to, contents.clone()));
            if manner.restarts_machine {
                operations.push(Operation::Booted(to, contents.clone()));
            }
            operations.push(Operation::Keep(to, contents.clone()));
            trial(operations)
        }
        // It is decided, so it runs first: a disk that takes no writes only keeps it from being told.
        Mark::Confirm => {
            let mut operations = Vec::new();
            // Nothing was told of it yet, and its boot loader may have left it since.
            if is_asked(manner) && !is_blessed(found, transaction) {
                operations.push(Operation::Booted(to, contents.clone()));
            }
            operations.extend(confirmed(found, transaction));
            settled(operations)
        }
        Mark::Revert { reason, at_fault, way, .. } => {
            asked_again(found, transaction, &Cause { reason: reason.clone(), at_fault: *at_fault }, way, manner)
        }
        Mark::Closed => closed(found, manner),
    }
}

/// Whether the present start of the agent is one more of the version on trial.
fn counts(found: &Found, mark: &Mark, starts: &Starts, manner: Manner) -> bool {
    match (mark, manner.counted) {
        // It is started anew, whoever counts.
        (Mark::Activate(_), _) | (_, Counted::Starts) => true,
        (_, Counted::Boots) => !starts.boot.is(&found.boot),
        (_, Counted::Elsewhere) => false,
    }
}

/// Whether it would be one too many. What ended the last start is counted apart: by the machine, or by the agent in this run of
/// it. A power cut does not make a build guilty of what befell the agent.
fn is_over(found: &Found, mark: &Mark, starts: &Starts, manner: Manner) -> bool {
    let ended = match starts.boot.is(&found.boot) {
        true => starts.ends(manner.counted).saturating_add(1),
        false => starts.runs(manner.counted),
    };
    ended >= manner.trial_starts && !starts.stopped && counts(found, mark, starts, manner)
}

/// Whether the machine was restarted once more since it was last found to run the new version.
fn is_another(last: &Boot, found: &Found) -> bool {
    *last != Boot::default() && !last.is(&found.boot)
}

/// The machine was restarted, for this or by accident: a trial, if it started from the new version.
fn after_boot(found: &Found, transaction: &Transaction, count: u32) -> Vec<Operation> {
    let (to, contents) = (transaction.to, &transaction.contents);
    let starts = Starts { count, boots: count, ..Starts::first(found.boot.clone()) };
    vec![
        Operation::Booted(to, contents.clone()),
        Operation::Keep(to, contents.clone()),
        Operation::Hook(Hook::AfterActivate, to, contents.clone()),
        Operation::Note(Entry { transaction: transaction.clone(), mark: Mark::Watch(starts) }),
    ]
}

fn closed(found: &Found, manner: Manner) -> Recovery {
    // Nothing is started, pointed or written by what the disk does not tell; what is known to run goes on.
    if found.is_unsure() {
        return settled(keep_confirmed(found));
    }
    match (found.standing(), found.current) {
        (Some(confirmed), Some(current)) if confirmed.slot == current => settled(keep_confirmed(found)),
        (Some(confirmed), Some(current)) => match found.described(current) {
            // A journal that was closed on this very version closed on its confirm: only the file that says so is the old one.
            Some(Described { contents, state: SlotState::Staged }) if was_confirmed(found, current, contents) => {
                let confirmed = Confirmed { slot: current, contents: contents.clone() };
                settled(vec![Operation::Keep(current, contents.clone()), Operation::Bless(confirmed)])
            }
            // The journal was lost in the middle of a trial, which is not the version's fault.
            Some(Described { contents, .. }) if found.entry.is_none() => {
                let transaction =
                    Transaction { contents: contents.clone(), to: current, from: Some(confirmed.slot), claim: None };
                let reason = Reason::lossy("the journal was lost while this version was on trial");
                let cause = Cause { reason, at_fault: false };
                // Nothing tells which of the two the machine runs: one restart too many is the price.
                let way = if manner.restarts_machine { Way::Restart } else { Way::Start };
                reverted(found, &transaction, &cause, &way, manner)
            }
            // It is on no trial: `current` alone is wrong.
            _ => settled(restart(confirmed)),
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
                let starts = Starts::first(found.boot.clone());
                let note = Operation::Note(Entry { transaction, mark: Mark::Watch(starts) });
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

fn reverted(found: &Found, transaction: &Transaction, cause: &Cause, way: &Way, manner: Manner) -> Recovery {
    let operations = back(found, transaction, cause, way, manner);
    if matches!(operations.last(), Some(Operation::Restart(..))) {
        return restarting(operations);
    }
    let Contents { release, .. } = transaction.contents;
    Recovery { operations, ending: Ending::Reverted(release, cause.reason.clone(), cause.at_fault) }
}

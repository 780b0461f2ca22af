//! What is done in which order: each order of a node's life becomes a list of operations, or a refusal.
//!
//! Every operation may be repeated, and a crash before, inside or after any of them leaves something that `recovery`
//! can finish or take back. Words of the journal: [`Mark`].
//!
//! ```text
//!        stage                    activate                                         confirm
//! Closed ─────► Stage ─► Closed ─────────► Switch ─► Activate (─► Reboot) ─► Watch ───────► Confirm ─► Closed
//!                                             └─────────┴────────────┴─────────┴──► Revert ─► Closed
//! ```
//!
//! With what recovery repeats and takes back it is drawn in `docs/INSTALL.md`.

use alloc::vec;
use alloc::vec::Vec;

use super::operation::{Hook, Operation};
use super::state::{
    Boot, Confirmed, Contents, Counted, Denied, Described, Entry, Found, Manner, Mark, Part, Slot, SlotState, Starts,
    Transaction, Way,
};
use crate::digest::Digest;
use crate::limits::TRIES_BACK;
use crate::node::effect::Install;
use crate::number::Sequence;
use crate::record::ClaimName;
use crate::text::{Reason, Version};

/// Why an order is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Case I4.
    #[error("version {0} is not confirmed yet")]
    Unconfirmed(Version),
    /// S5.
    #[error("sequence {sequence} lies below this node's floor {floor}")]
    BelowFloor {
        /// Of what was asked for.
        sequence: Sequence,
        /// The floor.
        floor: Sequence,
    },
    /// S6: the files that tell are lost, or contradict one another.
    #[error(
        "nothing tells which slot holds the confirmed version: let `current` or confirmed.json name it, and restart the agent"
    )]
    Lost,
    /// The disk does not tell at present what this says.
    #[error("the disk does not tell what {0} says")]
    Unread(Part),
    /// It would overwrite what runs.
    #[error("this agent itself runs from slot {}, which is not the confirmed one: nothing is written there", .0.name())]
    InUse(Slot),
    /// The idle slot does not hold it.
    #[error("the idle slot does not hold this release")]
    NotStaged,
    /// The release is not on trial.
    #[error("this release is not on trial")]
    NotOnTrial,
}

impl Refusal {
    /// Whether it is this device's own trouble, of which no release is to blame.
    #[must_use]
    pub fn is_of_the_device(&self) -> bool {
        matches!(self, Self::Lost | Self::Unread(_) | Self::InUse(_))
    }
}

/// What an order comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// These operations, in order.
    Do(Vec<Operation>),
    /// It is done already.
    Done,
    /// Only for a revert: the release is confirmed, and that is the point of no return.
    TooLate,
}

/// A way back that does not end, because the old version does not start or what is left does not stop: what comes in place of
/// both of them need not wait for it. Nothing else is touched any more, and `current` has gone back. A machine that is restarted
/// for it runs what is left, and what it would go back to is all that it has beside that.
#[must_use]
pub fn held_up(found: &Found) -> Option<&Entry> {
    found.open().filter(|open| {
        let lasts = matches!(open.mark, Mark::Revert { way: Way::Start, tries, .. } if tries >= TRIES_BACK);
        lasts && found.current == open.transaction.from && found.unread.is_empty()
    })
}

fn may_begin(found: &Found, install: &Install) -> Result<(), Refusal> {
    let gives_way = |open: &Entry| {
        // A stage that could not even be given back (a full disk) touched the idle slot alone: it is begun again.
        let is_stage = open.mark == Mark::Stage;
        let is_another = open.transaction.contents.build() != Contents::of(install).build();
        // What could not be tried, and is not to blame, may be tried once more.
        is_stage || (held_up(found).is_some() && (is_another || matches!(open.mark, Mark::Revert { at_fault: false, .. })))
    };
    if let Some(open) = found.open().filter(|open| !gives_way(open)) {
        return Err(Refusal::Unconfirmed(open.transaction.contents.version.clone()));
    }
    if let Some(part) = found.unread.first() {
        return Err(Refusal::Unread(*part));
    }
    let floor = found.floor();
    if install.sequence < floor {
        return Err(Refusal::BelowFloor { sequence: install.sequence, floor });
    }
    Ok(())
}

fn transaction(found: &Found, install: &Install, claim: Option<ClaimName>) -> Result<Transaction, Refusal> {
    Ok(Transaction {
        contents: Contents::of(install),
        to: found.idle().ok_or_else(|| found.spare().map_or(Refusal::Lost, Refusal::InUse))?,
        from: found.good().map(|confirmed| confirmed.slot),
        claim,
    })
}

/// What the way back leads to is written down before anything else, where the file that names it was lost meanwhile.
fn grounded(found: &Found) -> Vec<Operation> {
    found.good().filter(|good| found.confirmed.as_ref() != Some(good)).map(Operation::Bless).into_iter().collect()
}

fn note(transaction: &Transaction, mark: Mark) -> Operation {
    Operation::Note(Entry { transaction: transaction.clone(), mark })
}

fn hook(hook: Hook, transaction: &Transaction) -> Operation {
    Operation::Hook(hook, transaction.to, transaction.contents.clone())
}

/// Copies a release into the idle slot.
///
/// # Errors
/// While a version is unconfirmed, below the floor, and where nothing tells which slot may be overwritten.
pub fn stage(found: &Found, install: &Install) -> Result<Plan, Refusal> {
    may_begin(found, install)?;
    let transaction = transaction(found, install, None)?;
    let mut operations = grounded(found);
    let fills = [
        hook(Hook::BeforeStage, &transaction),
        Operation::Empty(transaction.to),
        Operation::Fill(transaction.to, transaction.contents.clone()),
    ];
    if held_up(found).is_some() {
        // The journal goes on to say that the old version does not run.
        operations.extend(fills);
        operations.push(hook(Hook::AfterStage, &transaction));
        return Ok(Plan::Do(operations));
    }
    operations.push(note(&transaction, Mark::Stage));
    operations.extend(fills);
    operations.extend(staged(&transaction));
    Ok(Plan::Do(operations))
}

/// The slot is whole: also what recovery does when it finds [`Mark::Stage`] and the slot described.
pub(super) fn staged(transaction: &Transaction) -> [Operation; 2] {
    [hook(Hook::AfterStage, transaction), note(transaction, Mark::Closed)]
}

/// Gives back what a failed stage took.
#[must_use]
pub fn unstage(found: &Found) -> Vec<Operation> {
    let Some(Entry { transaction, mark: Mark::Stage }) = found.open() else { return Vec::new() };
    vec![Operation::Empty(transaction.to), note(transaction, Mark::Closed)]
}

/// Gives back the space of a version that can never run again: what failed, and what an upgrade left behind. The floor
/// lies above both, so nothing is lost; the running, the confirmed and a staged version are never touched.
#[must_use]
pub fn reclaim(found: &Found) -> Vec<Operation> {
    let at_rest = found.open().is_none() && found.current == found.confirmed.as_ref().map(|confirmed| confirmed.slot);
    let Some(idle) = found.idle().filter(|_| found.unread.is_empty()) else { return Vec::new() };
    if !at_rest || found.staged().is_some() || found.described(idle).is_none() {
        return Vec::new();
    }
    vec![Operation::Empty(idle)]
}

/// Switches to the staged release and starts it on trial.
///
/// # Errors
/// While another version is unconfirmed, below the floor, and when it is not staged.
pub fn activate(found: &Found, install: &Install, claim: ClaimName, manner: Manner) -> Result<Plan, Refusal> {
    if let Some(Entry { transaction, mark: Mark::Watch(_) }) = found.open()
        && transaction.contents == Contents::of(install)
    {
        return Ok(Plan::Done);
    }
    may_begin(found, install)?;
    let transaction = transaction(found, install, Some(claim))?;
    if let Some(open) = held_up(found) {
        let is_staged = found
            .described(transaction.to)
            .is_some_and(|slot| slot.state == SlotState::Staged && slot.contents == transaction.contents);
        return if is_staged { Ok(Plan::Do(overtake(found, open, &transaction, manner))) } else { Err(Refusal::NotStaged) };
    }
    if found.staged() != Some(&Contents::of(install)) {
        return Err(Refusal::NotStaged);
    }
    let mut operations = grounded(found);
    operations.extend(forward(found, &transaction, manner));
    Ok(Plan::Do(operations))
}

/// Out of a way back that does not end. Until the new version may have been started the journal says that the old one does not
/// run, and from then on that it has to be started again should this go back too.
fn overtake(found: &Found, open: &Entry, transaction: &Transaction, manner: Manner) -> Vec<Operation> {
    let mut operations = grounded(found);
    if let Mark::Revert { reason, at_fault: true, .. } = &open.mark {
        operations.push(Operation::Deny(Denied::of(&open.transaction, reason.clone())));
    }
    operations.push(Operation::Verify(transaction.to, transaction.contents.clone()));
    operations.push(hook(Hook::BeforeActivate, transaction));
    let mut starts = start(found, transaction, manner, &Starts::first(found.boot.clone()));
    starts.insert(1, Operation::Point(Some(transaction.to)));
    operations.extend(starts);
    operations
}

/// From a checked claim to a trial: also what recovery does when it finds [`Mark::Switch`].
pub(super) fn forward(found: &Found, transaction: &Transaction, manner: Manner) -> Vec<Operation> {
    let (to, contents) = (transaction.to, &transaction.contents);
    let mut operations = vec![
        note(transaction, Mark::Switch),
        Operation::Verify(to, contents.clone()),
        hook(Hook::BeforeActivate, transaction),
        Operation::Point(Some(to)),
    ];
    operations.extend(start(found, transaction, manner, &Starts::first(found.boot.clone())));
    operations
}

/// Starts the version on trial, as the last of `starts`: also what recovery does when it finds [`Mark::Activate`].
pub(super) fn start(found: &Found, transaction: &Transaction, manner: Manner, starts: &Starts) -> Vec<Operation> {
    let (to, contents) = (transaction.to, &transaction.contents);
    let mut operations = vec![note(transaction, Mark::Activate(starts.clone())), Operation::Start(to, contents.clone())];
    if manner.restarts_machine {
        operations
            .push(note(transaction, Mark::Reboot { starts: starts.count, boot: found.boot.clone(), last: Boot::default() }));
        operations.push(Operation::Restart(to, contents.clone()));
    } else {
        operations.push(hook(Hook::AfterActivate, transaction));
        operations.push(note(transaction, Mark::Watch(starts.clone())));
    }
    operations
}

/// Before an orderly end of the agent: what it had started did not fail for that, and its next start does not count. Nothing
/// where no start counts, or it has happened too often.
#[must_use]
pub fn stop(found: &Found, manner: Manner) -> Option<Operation> {
    let Entry { transaction, mark } = found.open()?;
    match mark {
        Mark::Activate(starts) if !manner.restarts_machine => Some(note(transaction, Mark::Activate(starts.stop()?))),
        Mark::Watch(starts) if manner.counted != Counted::Elsewhere => Some(note(transaction, Mark::Watch(starts.stop()?))),
        _ => None,
    }
}

/// Makes the version on trial the good one.
///
/// # Errors
/// When this release is not on trial.
pub fn confirm(found: &Found, release: Digest) -> Result<Plan, Refusal> {
    let is_confirmed = found.confirmed.as_ref().is_some_and(|confirmed| confirmed.contents.release == release);
    match found.open() {
        Some(Entry { transaction, mark: Mark::Watch(_) }) if transaction.contents.release == release => {
            let mut operations = vec![hook(Hook::BeforeConfirm, transaction)];
            operations.extend(blessing(found, transaction));
            operations.extend(blessed(transaction));
            Ok(Plan::Do(operations))
        }
        Some(Entry { transaction, mark: Mark::Confirm }) if transaction.contents.release == release => {
            Ok(Plan::Do(blessing(found, transaction).into_iter().chain(blessed(transaction)).collect()))
        }
        None if is_confirmed => Ok(Plan::Done),
        _ => Err(Refusal::NotOnTrial),
    }
}

/// The point of no return: also what recovery does when it finds [`Mark::Confirm`].
pub(super) fn blessing(found: &Found, transaction: &Transaction) -> Vec<Operation> {
    let confirmed = Confirmed { slot: transaction.to, contents: transaction.contents.clone() };
    let mut operations = vec![note(transaction, Mark::Confirm), Operation::Bless(confirmed)];
    // A forgiven build that turned out well is no longer one that failed.
    if found.denied.iter().any(|denied| denied.names(&transaction.contents)) {
        operations.push(Operation::Forgive(transaction.contents.clone()));
    }
    operations
}

/// What follows it.
pub(super) fn blessed(transaction: &Transaction) -> [Operation; 2] {
    [hook(Hook::AfterConfirm, transaction), note(transaction, Mark::Closed)]
}

/// Why a version is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// In words.
    pub reason: Reason,
    /// Whether the release is to blame, and so denied from then on.
    pub at_fault: bool,
}

/// Goes back to the last confirmed version. A revert that is under way goes on for its own cause. Of what was left already, and
/// turns out only now to be to blame, the build is written down.
#[must_use]
pub fn revert(found: &Found, release: Digest, cause: &Cause, manner: Manner) -> Plan {
    let is_confirmed = found.confirmed.as_ref().is_some_and(|confirmed| confirmed.contents.release == release);
    // What could not come in place of a way back goes back by that one; the confirmed release too, which is where it leads. A switch
    // that is still open when something else is to be left has failed, and who ordered it knows no more of it.
    let goes_back =
        |entry: &Entry| matches!(entry.mark, Mark::Switch | Mark::Activate(_) | Mark::Reboot { .. } | Mark::Revert { .. });
    let is_of_it = |entry: &&Entry| entry.transaction.contents.release == release || goes_back(entry);
    let Some(Entry { transaction, mark }) = found.open().filter(is_of_it) else {
        return if is_confirmed { Plan::TooLate } else { blame(found, release, cause) };
    };
    match mark {
        Mark::Confirm => Plan::TooLate,
        Mark::Closed => Plan::Done,
        Mark::Revert { reason, at_fault, way, .. } => {
            Plan::Do(back(found, transaction, &Cause { reason: reason.clone(), at_fault: *at_fault }, way, manner))
        }
        _ => Plan::Do(back(found, transaction, cause, &way(found, mark, manner), manner)),
    }
}

fn blame(found: &Found, release: Digest, cause: &Cause) -> Plan {
    let left = found.entry.as_ref().filter(|entry| !entry.is_open()).map(|entry| &entry.transaction);
    let left = left.filter(|left| left.contents.release == release && left.claim.is_some() && cause.at_fault);
    let is_news = |left: &&Transaction| {
        let is_whole = found.described(left.to).is_some_and(|slot| slot.state == SlotState::Staged);
        !is_whole && !found.denied.iter().any(|denied| denied.names(&left.contents))
    };
    left.filter(is_news).map_or(Plan::Done, |left| Plan::Do(vec![Operation::Deny(Denied::of(left, cause.reason.clone()))]))
}

/// What it takes to have the old version running again when a transaction has come as far as `mark`.
pub(super) fn way(found: &Found, mark: &Mark, manner: Manner) -> Way {
    match mark {
        Mark::Stage | Mark::Switch | Mark::Confirm | Mark::Closed => Way::Keep,
        Mark::Reboot { boot, .. } if !boot.is(&found.boot) => Way::Restart,
        Mark::Watch(_) if manner.restarts_machine => Way::Restart,
        Mark::Activate(_) | Mark::Reboot { .. } if manner.restarts_machine => Way::Next { boot: found.boot.clone() },
        Mark::Activate(_) | Mark::Reboot { .. } | Mark::Watch(_) => Way::Start,
        Mark::Revert { way, .. } => way.clone(),
    }
}

/// The way back: also what recovery does when it finds [`Mark::Revert`].
pub(super) fn back(found: &Found, transaction: &Transaction, cause: &Cause, way: &Way, manner: Manner) -> Vec<Operation> {
    let way = match way {
        Way::Next { boot } if !boot.is(&found.boot) => &Way::Restart,
        way => way,
    };
    let tries = match way {
        Way::Keep | Way::Restarting { .. } => tries(found),
        Way::Start | Way::Next { .. } | Way::Restart => tries(found).saturating_add(1),
    };
    let old = found.behind(transaction);
    let (slot, contents) = next(old.as_ref(), transaction);
    if let Way::Restarting { boot, unset, .. } = way {
        if boot.is(&found.boot) {
            return vec![Operation::Restart(slot, contents)];
        }
        let mut operations = Vec::new();
        if *unset {
            // What follows is the way back still, and may be begun again.
            operations.push(reverting(transaction, cause, way.clone(), tries));
        }
        // An agent knows from which slot it runs, and its supervisor goes back by itself.
        if is_asked(manner) {
            operations.extend(match &old {
                Some(Confirmed { slot, contents }) => Some(Operation::Booted(*slot, contents.clone())),
                None if transaction.from.is_none() => Some(Operation::Left(slot, contents)),
                // No file says any more what the old version is.
                None => None,
            });
        }
        if *unset {
            // Its boot loader went back by itself, for this once or for good.
            operations.extend(made_next(old.as_ref(), transaction));
        }
        operations.extend(old.map(|Confirmed { slot, contents }| Operation::Keep(slot, contents)));
        operations.extend(returned(transaction, cause));
        return operations;
    }
    let mut operations = vec![
        reverting(transaction, cause, way.clone(), tries),
        hook(Hook::BeforeRevert, transaction),
        Operation::Point(transaction.from),
    ];
    match (&old, way) {
        (Some(_), Way::Keep) => operations.push(Operation::Keep(slot, contents.clone())),
        // Nothing was started: what runs is somebody else's.
        (None, Way::Keep) => {}
        _ => operations.extend(made_next(old.as_ref(), transaction)),
    }
    if matches!(way, Way::Restart) {
        // A supervisor goes back by itself, and is not asked how often.
        let unset = is_asked(manner) && tries >= TRIES_BACK;
        operations.extend(restarted(found, transaction, cause, u32::from(unset), unset));
        return operations;
    }
    operations.extend(returned(transaction, cause));
    operations
}

/// Whether the machine is asked which version it runs.
#[must_use]
pub fn is_asked(manner: Manner) -> bool {
    manner.restarts_machine && manner.counted != Counted::Elsewhere
}

/// How often the way back that is under way was begun.
pub(super) fn tries(found: &Found) -> u32 {
    match found.open() {
        Some(Entry { mark: Mark::Revert { tries, .. }, .. }) => *tries,
        _ => 0,
    }
}

pub(super) fn reverting(transaction: &Transaction, cause: &Cause, way: Way, tries: u32) -> Operation {
    let Cause { reason, at_fault } = cause.clone();
    note(transaction, Mark::Revert { reason, at_fault, way, tries })
}

/// What the machine is to run: the old version, or without one whatever was there before the first install.
fn next(old: Option<&Confirmed>, transaction: &Transaction) -> (Slot, Contents) {
    old.map_or_else(|| (transaction.to, transaction.contents.clone()), |old| (old.slot, old.contents.clone()))
}

/// Has it started, or made what the machine starts from.
fn made_next(old: Option<&Confirmed>, transaction: &Transaction) -> Option<Operation> {
    let (slot, contents) = next(old, transaction);
    match old {
        Some(_) => Some(Operation::Start(slot, contents)),
        None if transaction.from.is_none() => Some(Operation::Stop(slot, contents)),
        // No file says any more what the old version is: `current` leads to it, and nothing that runs is stopped.
        None => None,
    }
}

/// The restart behind that; `unset`: whether or not that works.
fn restarted(found: &Found, transaction: &Transaction, cause: &Cause, missed: u32, unset: bool) -> [Operation; 2] {
    let (slot, contents) = next(found.behind(transaction).as_ref(), transaction);
    let way = Way::Restarting { boot: found.boot.clone(), missed, unset };
    [reverting(transaction, cause, way, 0), Operation::Restart(slot, contents)]
}

/// The machine was restarted for the way back `missed` times and does not run the old version: it is made the next one once
/// more. `None` where nothing tells what that is.
pub(super) fn back_again(
    found: &Found,
    transaction: &Transaction,
    cause: &Cause,
    way: &Way,
    missed: u32,
) -> Option<Vec<Operation>> {
    let tries = tries(found).saturating_add(1);
    let mut operations = vec![reverting(transaction, cause, way.clone(), tries)];
    operations.push(made_next(found.behind(transaction).as_ref(), transaction)?);
    // The first was to ask.
    operations.extend(restarted(found, transaction, cause, missed, tries > TRIES_BACK));
    Some(operations)
}

/// The old version runs again: what was left is written down in its slot, and what failed apart from it too.
fn returned(transaction: &Transaction, cause: &Cause) -> Vec<Operation> {
    let contents = &transaction.contents;
    let mut operations = Vec::new();
    if cause.at_fault {
        operations.push(Operation::Deny(Denied::of(transaction, cause.reason.clone())));
    }
    operations.extend([
        Operation::Describe(transaction.to, Described { contents: contents.clone(), state: SlotState::Failed }),
        hook(Hook::AfterRevert, transaction),
        note(transaction, Mark::Closed),
    ]);
    operations
}

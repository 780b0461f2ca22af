//! What is done in which order: each order of the core becomes a list of operations, or a refusal.
//!
//! Pure: no file, no process, no clock. `recovery` is the same for start-up. Every operation may be repeated, and a
//! crash before, inside or after any of them leaves something that `recovery` can finish or take back; the crash
//! tests are generated from these lists, so a new operation cannot be forgotten. Words of the journal: [`Mark`].
//!
//! ```text
//!        stage                    activate                              confirm
//! Closed ─────► Stage ─► Closed ─────────► Switch ─► Activate ─► Watch ─────────► Confirm ─► Closed
//!                                             └─────────┴──────────┴────► Revert ─► Closed
//! ```

use std::fmt;

use groundswell_core::digest::Digest;
use groundswell_core::node::effect::Install;
use groundswell_core::number::Sequence;
use groundswell_core::record::ClaimName;
use groundswell_core::record::status::Running;
use groundswell_core::text::{Reason, Version};
use serde::{Deserialize, Serialize};

/// One of the two slots of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slot {
    /// `slots/a`.
    A,
    /// `slots/b`.
    B,
}

impl Slot {
    /// The one that this is not.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// Its folder's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

/// Which release a slot holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Contents {
    /// Body digest of the release.
    pub release: Digest,
    /// Its version.
    pub version: Version,
    /// Its sequence.
    pub sequence: Sequence,
    /// SHA-256 of the binary.
    pub sha256: Digest,
    /// Its size in bytes.
    pub size_bytes: u64,
}

impl Contents {
    /// What `install` puts into a slot.
    #[must_use]
    pub fn of(install: &Install) -> Self {
        Self {
            release: install.release,
            version: install.version.clone(),
            sequence: install.sequence,
            sha256: install.artifact.sha256.into(),
            size_bytes: install.artifact.size,
        }
    }

    /// The form that reports carry.
    #[must_use]
    pub fn running(&self) -> Running {
        Running { version: self.version.clone(), sequence: self.sequence, release: self.release }
    }
}

/// One upgrade: what moves into which slot, and where the way back leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Transaction {
    /// What is installed.
    pub contents: Contents,
    /// Into which slot.
    pub to: Slot,
    /// The last confirmed slot; `None` for the first install.
    pub from: Option<Slot>,
    /// The claim under which it is activated, once it is.
    pub claim: Option<ClaimName>,
}

/// How far a transaction has got: each is durable before what it names begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// The idle slot is emptied and filled.
    Stage,
    /// The staged file is checked and `current` swapped. The old version still runs.
    Switch,
    /// The new version is started, for the `starts`-th time.
    Activate {
        /// How often it has been started on trial, this time included.
        starts: u32,
    },
    /// The new version runs on trial.
    Watch {
        /// How often it has been started on trial.
        starts: u32,
    },
    /// The new version is good: the point of no return.
    Confirm,
    /// The old version comes back.
    Revert {
        /// Why.
        reason: Reason,
        /// Whether the running process was touched, so that the old version must be started again.
        disturbed: bool,
    },
    /// Nothing is in progress.
    Closed,
}

/// One journal entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Of what.
    pub transaction: Transaction,
    /// How far.
    pub mark: Mark,
}

impl Entry {
    /// Whether something is in progress.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.mark != Mark::Closed
    }
}

/// What a slot's own description says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotState {
    /// Whole, checked and synced.
    Staged,
    /// Was on trial and was left.
    Failed,
}

/// A described slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// What is in it.
    #[serde(flatten)]
    pub contents: Contents,
    /// How it fared.
    pub state: SlotState,
}

/// The last confirmed version: where it is, and the floor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    /// Its slot.
    pub slot: Slot,
    /// What it is; its sequence is the floor.
    #[serde(flatten)]
    pub contents: Contents,
}

/// Everything that the disk says of a product.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The journal's last whole entry.
    pub entry: Option<Entry>,
    /// Where `current` points.
    pub current: Option<Slot>,
    /// Slot a.
    pub a: Option<Described>,
    /// Slot b.
    pub b: Option<Described>,
    /// The last confirmed version.
    pub confirmed: Option<Confirmed>,
}

impl Found {
    /// The description of a slot.
    #[must_use]
    pub fn described(&self, slot: Slot) -> Option<&Described> {
        match slot {
            Slot::A => self.a.as_ref(),
            Slot::B => self.b.as_ref(),
        }
    }

    /// The transaction in progress.
    #[must_use]
    pub fn open(&self) -> Option<&Entry> {
        self.entry.as_ref().filter(|entry| entry.is_open())
    }

    /// The floor kept with the slots.
    #[must_use]
    pub fn floor(&self) -> Sequence {
        self.confirmed.as_ref().map(|confirmed| confirmed.contents.sequence).unwrap_or_default()
    }

    /// The slot that may be overwritten: never the current one, never the confirmed one.
    #[must_use]
    pub fn idle(&self) -> Slot {
        self.confirmed.as_ref().map(|confirmed| confirmed.slot).or(self.current).map_or(Slot::A, Slot::other)
    }

    /// What `current` leads to.
    #[must_use]
    pub fn running(&self) -> Option<Running> {
        let current = self.current?;
        let confirmed = self.confirmed.as_ref().filter(|confirmed| confirmed.slot == current);
        confirmed
            .map(|confirmed| &confirmed.contents)
            .or_else(|| self.described(current).map(|described| &described.contents))
            .map(Contents::running)
    }

    /// The release that waits in the idle slot; not the old version that an upgrade left there.
    #[must_use]
    pub fn staged(&self) -> Option<&Contents> {
        if self.open().is_some() {
            return None;
        }
        let left_behind = |contents: &Contents| {
            self.confirmed.as_ref().is_some_and(|confirmed| contents.sequence <= confirmed.contents.sequence)
        };
        let slot = self.described(self.idle()).filter(|slot| slot.state == SlotState::Staged)?;
        (!left_behind(&slot.contents)).then_some(&slot.contents)
    }
}

/// One thing to do, on disk or with the running version. Each may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Flush a journal entry.
    Note(Entry),
    /// Take a slot's description away, then its content.
    Empty(Slot),
    /// Copy the artifact into a slot, checking size and digest of the copy, and describe it.
    Fill(Slot, Contents),
    /// Check size and digest of a slot's file on the open descriptor.
    Verify(Slot, Contents),
    /// Swap `current`; `None` removes it.
    Point(Option<Slot>),
    /// Start the version in a slot, in place of the one that runs.
    Start(Slot, Contents),
    /// See that the version in a slot runs, where the agent itself keeps it running.
    Keep(Slot, Contents),
    /// Stop what runs; nothing takes its place.
    Stop(Slot, Contents),
    /// Describe a slot anew.
    Describe(Slot, Described),
    /// Make a slot the confirmed one, and its sequence the floor.
    Bless(Confirmed),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Note(_) => f.write_str("write the journal"),
            Self::Empty(slot) => write!(f, "empty slot {}", slot.name()),
            Self::Fill(slot, contents) => write!(f, "copy {} into slot {}", contents.version, slot.name()),
            Self::Verify(slot, contents) => write!(f, "check {} in slot {}", contents.version, slot.name()),
            Self::Point(Some(slot)) => write!(f, "point current to slot {}", slot.name()),
            Self::Point(None) => f.write_str("remove current"),
            Self::Start(_, contents) | Self::Keep(_, contents) => write!(f, "start {}", contents.version),
            Self::Stop(_, contents) => write!(f, "stop {}", contents.version),
            Self::Describe(slot, _) => write!(f, "describe slot {}", slot.name()),
            Self::Bless(confirmed) => write!(f, "record {} as confirmed", confirmed.contents.version),
        }
    }
}

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
    /// The idle slot does not hold it.
    #[error("the idle slot does not hold this release")]
    NotStaged,
    /// The release is not on trial.
    #[error("this release is not on trial")]
    NotOnTrial,
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

fn may_begin(found: &Found, install: &Install) -> Result<(), Refusal> {
    if let Some(open) = found.open() {
        return Err(Refusal::Unconfirmed(open.transaction.contents.version.clone()));
    }
    let floor = found.floor();
    if install.sequence < floor {
        return Err(Refusal::BelowFloor { sequence: install.sequence, floor });
    }
    Ok(())
}

fn transaction(found: &Found, install: &Install, claim: Option<ClaimName>) -> Transaction {
    Transaction {
        contents: Contents::of(install),
        to: found.idle(),
        from: found.confirmed.as_ref().map(|confirmed| confirmed.slot),
        claim,
    }
}

/// Copies a release into the idle slot.
///
/// # Errors
/// While a version is unconfirmed, and below the floor.
pub fn stage(found: &Found, install: &Install) -> Result<Plan, Refusal> {
    may_begin(found, install)?;
    let transaction = transaction(found, install, None);
    let (to, contents) = (transaction.to, transaction.contents.clone());
    let note = |mark| Operation::Note(Entry { transaction: transaction.clone(), mark });
    Ok(Plan::Do(vec![note(Mark::Stage), Operation::Empty(to), Operation::Fill(to, contents), note(Mark::Closed)]))
}

/// Gives back what a failed stage took.
#[must_use]
pub fn unstage(found: &Found) -> Vec<Operation> {
    let Some(Entry { transaction, mark: Mark::Stage }) = found.open() else { return Vec::new() };
    let closed = Operation::Note(Entry { transaction: transaction.clone(), mark: Mark::Closed });
    vec![Operation::Empty(transaction.to), closed]
}

/// Switches to the staged release and starts it on trial.
///
/// # Errors
/// While another version is unconfirmed, below the floor, and when it is not staged.
pub fn activate(found: &Found, install: &Install, claim: ClaimName) -> Result<Plan, Refusal> {
    if let Some(Entry { transaction, mark: Mark::Watch { .. } }) = found.open()
        && transaction.contents == Contents::of(install)
    {
        return Ok(Plan::Done);
    }
    may_begin(found, install)?;
    if found.staged() != Some(&Contents::of(install)) {
        return Err(Refusal::NotStaged);
    }
    let transaction = transaction(found, install, Some(claim));
    Ok(Plan::Do(forward(&transaction)))
}

/// From a checked claim to a trial: also what recovery does when it finds [`Mark::Switch`].
pub(super) fn forward(transaction: &Transaction) -> Vec<Operation> {
    let (to, contents) = (transaction.to, &transaction.contents);
    let note = |mark| Operation::Note(Entry { transaction: transaction.clone(), mark });
    vec![
        note(Mark::Switch),
        Operation::Verify(to, contents.clone()),
        Operation::Point(Some(to)),
        note(Mark::Activate { starts: 1 }),
        Operation::Start(to, contents.clone()),
        note(Mark::Watch { starts: 1 }),
    ]
}

/// Makes the version on trial the good one.
///
/// # Errors
/// When this release is not on trial.
pub fn confirm(found: &Found, release: Digest) -> Result<Plan, Refusal> {
    let is_confirmed = found.confirmed.as_ref().is_some_and(|confirmed| confirmed.contents.release == release);
    match found.open() {
        Some(Entry { transaction, mark: Mark::Watch { .. } | Mark::Confirm }) if transaction.contents.release == release => {
            Ok(Plan::Do(blessing(transaction)))
        }
        None if is_confirmed => Ok(Plan::Done),
        _ => Err(Refusal::NotOnTrial),
    }
}

/// The point of no return and what follows it: also what recovery does when it finds [`Mark::Confirm`].
pub(super) fn blessing(transaction: &Transaction) -> Vec<Operation> {
    let note = |mark| Operation::Note(Entry { transaction: transaction.clone(), mark });
    let confirmed = Confirmed { slot: transaction.to, contents: transaction.contents.clone() };
    vec![note(Mark::Confirm), Operation::Bless(confirmed), note(Mark::Closed)]
}

/// Goes back to the last confirmed version.
#[must_use]
pub fn revert(found: &Found, release: Digest, reason: &Reason) -> Plan {
    let is_confirmed = found.confirmed.as_ref().is_some_and(|confirmed| confirmed.contents.release == release);
    let Some(Entry { transaction, mark }) = found.open().filter(|entry| entry.transaction.contents.release == release) else {
        return if is_confirmed { Plan::TooLate } else { Plan::Done };
    };
    match mark {
        Mark::Confirm => Plan::TooLate,
        // Nothing of the running version was touched yet.
        Mark::Stage | Mark::Switch => Plan::Do(back(found, transaction, reason, false)),
        Mark::Activate { .. } | Mark::Watch { .. } => Plan::Do(back(found, transaction, reason, true)),
        Mark::Revert { reason, disturbed } => Plan::Do(back(found, transaction, reason, *disturbed)),
        Mark::Closed => Plan::Done,
    }
}

/// The way back: also what recovery does when it finds [`Mark::Revert`].
pub(super) fn back(found: &Found, transaction: &Transaction, reason: &Reason, disturbed: bool) -> Vec<Operation> {
    let (to, contents) = (transaction.to, &transaction.contents);
    let note = |mark| Operation::Note(Entry { transaction: transaction.clone(), mark });
    let mut operations = vec![note(Mark::Revert { reason: reason.clone(), disturbed }), Operation::Point(transaction.from)];
    match found.confirmed.as_ref().filter(|confirmed| Some(confirmed.slot) == transaction.from) {
        Some(Confirmed { slot, contents }) if disturbed => operations.push(Operation::Start(*slot, contents.clone())),
        Some(Confirmed { slot, contents }) => operations.push(Operation::Keep(*slot, contents.clone())),
        None => operations.push(Operation::Stop(to, contents.clone())),
    }
    operations.push(Operation::Describe(to, Described { contents: contents.clone(), state: SlotState::Failed }));
    operations.push(note(Mark::Closed));
    operations
}

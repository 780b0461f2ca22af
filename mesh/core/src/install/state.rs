//! What the disk says of a product: slots, journal, confirmed version, and what failed here.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::limits::{DENIED, TRIAL_STOPS};
use crate::node::effect::Install;
use crate::node::input::WentBack;
use crate::number::Sequence;
use crate::record::ClaimName;
use crate::record::status::Running;
use crate::text::{Reason, Version};

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

    /// Names the build, whichever release brings it.
    #[must_use]
    pub fn build(&self) -> Digest {
        build(&self.version, &self.sha256)
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

/// One run of the machine's kernel: the text of `/proc/sys/kernel/random/boot_id`. Empty where nothing names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Boot(pub String);

impl Boot {
    /// Whether both are known to be the same run. A run without a name is none that is known.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        !self.0.is_empty() && self == other
    }
}

/// How often a version on trial was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starts {
    /// Those that count, the present one included.
    #[serde(rename = "starts")]
    pub count: u32,
    /// How many of them were the first in a run of the machine: what ends a run may be the version, whoever ended the other
    /// starts. Entries of older builds have none, which counts as by [`Starts::runs`].
    #[serde(default)]
    pub boots: u32,
    /// The run of the machine in which it was started last. Entries of older builds have none, which counts as another one.
    #[serde(default)]
    pub boot: Boot,
    /// How often the agent ended in an orderly way since the first start, at most [`TRIAL_STOPS`].
    #[serde(default)]
    pub stops: u32,
    /// It has done so since the last start: the next one takes its place, and does not count.
    #[serde(default)]
    pub stopped: bool,
}

impl Starts {
    /// The first start, in this run of the machine.
    #[must_use]
    pub fn first(boot: Boot) -> Self {
        Self { count: 1, boots: 1, boot, stops: 0, stopped: false }
    }

    /// One more, in this run of the machine.
    #[must_use]
    pub fn again(&self, counts: bool, boot: &Boot, counted: Counted) -> Self {
        let counts = counts && !self.stopped;
        let count = self.count.saturating_add(u32::from(counts));
        let boots = self.runs(counted).saturating_add(u32::from(counts && !self.boot.is(boot)));
        Self { count, boots, boot: boot.clone(), stops: self.stops, stopped: false }
    }

    /// In how many runs of the machine it was started. Where an older build counted starts of both kinds as one, they were the
    /// agent's: no machine is said to have gone down of which that is not known.
    #[must_use]
    pub fn runs(&self, counted: Counted) -> u32 {
        match (self.boots, counted) {
            (0, Counted::Starts) => self.count.min(1),
            (0, Counted::Boots | Counted::Elsewhere) => self.count,
            (boots, _) => boots,
        }
    }

    /// How many starts of it ended without the machine.
    #[must_use]
    pub fn ends(&self, counted: Counted) -> u32 {
        self.count.saturating_sub(self.runs(counted))
    }

    /// The agent ends in an orderly way; `None` where that has happened too often to excuse anything.
    pub(super) fn stop(&self) -> Option<Self> {
        let excused = !self.stopped && self.stops < TRIAL_STOPS;
        excused.then(|| Self { stops: self.stops.saturating_add(1), stopped: true, ..self.clone() })
    }
}

/// How far a transaction has got: each is durable before what it names begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// The idle slot is emptied and filled.
    Stage,
    /// The staged file is checked and `current` swapped. The old version still runs.
    Switch,
    /// The new version is started, for so many times.
    Activate(Starts),
    /// The new version was handed over and runs after the machine has been restarted.
    Reboot {
        /// How often it has been started on trial, this time included.
        starts: u32,
        /// The run of the machine that is to end.
        boot: Boot,
        /// The run that it was found to run in before it was on trial. Entries of older builds have none.
        #[serde(default)]
        last: Boot,
    },
    /// The new version runs on trial.
    Watch(Starts),
    /// The new version is good: the point of no return.
    Confirm,
    /// The old version comes back.
    Revert {
        /// Why.
        reason: Reason,
        /// Whether the release is to blame, and so denied from then on. An abort that takes a good one back is not.
        #[serde(rename = "atFault", default = "to_blame")]
        at_fault: bool,
        /// What that takes.
        way: Way,
        /// How often that was begun, since the machine came up where it takes a restart of it. Entries of older builds have
        /// none.
        #[serde(default, skip_serializing_if = "is_none")]
        tries: u32,
    },
    /// Nothing is in progress.
    Closed,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

/// What an entry without the field meant.
fn to_blame() -> bool {
    true
}

/// What it takes to have the old version running again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The running process was not touched: nothing but to see that it runs.
    Keep,
    /// The old version must be started again.
    Start,
    /// The machine still runs it in this run and would come up with the new one: it must be made the next one again.
    /// If the machine was restarted before that was done, it runs the new one, and has to be restarted once more.
    Next {
        /// The run of the machine in which that was decided.
        boot: Boot,
    },
    /// It must be started again, and runs after the machine has been restarted.
    Restart,
    /// That was done, and the machine is to be restarted.
    Restarting {
        /// The run of the machine that is to end.
        boot: Boot,
        /// How often it came up with the version that is left all the same, or had to be restarted although nothing else had
        /// worked. Entries of older builds have none.
        #[serde(default)]
        missed: u32,
        /// The old version may not be the next one: only the machine's own way back can lead to it.
        #[serde(default)]
        unset: bool,
    },
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

/// A build that failed on this device: version and digest, and why. It outlives the slot that held it (case I1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Denied {
    /// Its version.
    pub version: Version,
    /// SHA-256 of the binary.
    pub sha256: Digest,
    /// Body digest of the release that brought it.
    pub release: Digest,
    /// Why it was left.
    pub reason: Reason,
    /// Under which claim. Entries of older builds have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimName>,
}

impl Denied {
    /// The build that `transaction` brought.
    #[must_use]
    pub fn of(transaction: &Transaction, reason: Reason) -> Self {
        let Contents { version, sha256, release, .. } = transaction.contents.clone();
        Self { version, sha256, release, reason, claim: transaction.claim }
    }

    /// The upgrade that brought it, where it is known under which claim.
    #[must_use]
    pub fn went_back(&self) -> Option<WentBack> {
        Some(WentBack { claim: self.claim?, release: self.release, reason: self.reason.clone() })
    }

    /// Whether this is the build in `contents`.
    #[must_use]
    pub fn names(&self, contents: &Contents) -> bool {
        self.version == contents.version && self.sha256 == contents.sha256
    }

    /// What reports name: the release that brought it, and the build itself ([`Contents::build`]).
    #[must_use]
    pub fn named(&self) -> [Digest; 2] {
        [self.release, build(&self.version, &self.sha256)]
    }

    /// `list` with this build as its last, the oldest giving way beyond [`DENIED`].
    #[must_use]
    pub fn joining(self, mut list: Vec<Self>) -> Vec<Self> {
        list.retain(|denied| (&denied.version, denied.sha256) != (&self.version, self.sha256));
        list.push(self);
        let surplus = list.len().saturating_sub(DENIED);
        list.drain(..surplus);
        list
    }
}

/// A digest of version and bytes, so that a build stands where digests of releases stand: no release has this one.
fn build(version: &Version, sha256: &Digest) -> Digest {
    Digest::of(format!("build {version} {sha256}").as_bytes())
}

/// One thing that the disk says of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Where `current` leads.
    Current,
    /// The last confirmed version.
    Confirmed,
    /// What a slot says of itself.
    Slot(Slot),
    /// What failed here.
    Denied,
}

impl fmt::Display for Part {
    /// The file that says it, from the product's folder on.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current => f.write_str("current"),
            Self::Confirmed => f.write_str("confirmed.json"),
            Self::Slot(slot) => write!(f, "slots/{}/slot.json", slot.name()),
            Self::Denied => f.write_str("denied.json"),
        }
    }
}

/// Which starts of a trial count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Those of the agent: each starts the version.
    Starts,
    /// Those of the machine: the version runs on while the agent is restarted.
    Boots,
    /// None: whoever starts the version counts them, and knows why it went back.
    Elsewhere,
}

/// How versions of a product are started on this device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// How often a trial may be started before recovery reverts it.
    pub trial_starts: u32,
    /// Which starts those are.
    pub counted: Counted,
    /// Whether a version runs only after the machine has been restarted (an update of the operating system).
    pub restarts_machine: bool,
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
    /// The file that names it is there, and cannot be understood.
    pub damaged: bool,
    /// What failed here, oldest first.
    pub denied: Vec<Denied>,
    /// What the disk does not tell at present. What is missing for that is not absent: nothing is overwritten by it.
    pub unread: BTreeSet<Part>,
    /// The present run of the machine.
    pub boot: Boot,
    /// The slot that this very agent runs from, where the product is the agent itself.
    pub origin: Option<Slot>,
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

    /// Whether it is unknown what runs, or what may run: the disk does not tell at present.
    #[must_use]
    pub fn is_unsure(&self) -> bool {
        self.unread.contains(&Part::Current) || self.unread.contains(&Part::Confirmed)
    }

    /// What confirmed.json says, unless it is older than what was done since: its slot holds something newer, by that slot's
    /// own description or by the journal. A repair of the file system can bring an old file back.
    #[must_use]
    pub fn standing(&self) -> Option<&Confirmed> {
        let confirmed = self.confirmed.as_ref()?;
        let newer = |contents: &Contents| contents.sequence > confirmed.contents.sequence;
        let refilled = self.described(confirmed.slot).is_some_and(|slot| newer(&slot.contents));
        let moved_into = self.entry.as_ref().is_some_and(|Entry { transaction, .. }| {
            transaction.to == confirmed.slot && transaction.from.is_some() && newer(&transaction.contents)
        });
        (!refilled && !moved_into).then_some(confirmed)
    }

    /// The last confirmed version, also where the file that names it is lost or an old one: then what an upgrade under way leads
    /// back to, or what `current` leads to, as long as a closed journal says that it is on no trial.
    #[must_use]
    pub fn good(&self) -> Option<Confirmed> {
        if let Some(confirmed) = self.standing() {
            return Some(confirmed.clone());
        }
        let Entry { transaction, .. } = self.entry.as_ref()?;
        let slot = match self.open() {
            Some(_) => transaction.from?,
            // What was merely staged there was never on trial.
            None => self.current.filter(|current| *current != transaction.to || transaction.claim.is_some())?,
        };
        self.as_good(slot)
    }

    /// What a transaction's way back leads to.
    #[must_use]
    pub fn behind(&self, transaction: &Transaction) -> Option<Confirmed> {
        let slot = transaction.from?;
        self.standing().filter(|confirmed| confirmed.slot == slot).cloned().or_else(|| self.as_good(slot))
    }

    fn as_good(&self, slot: Slot) -> Option<Confirmed> {
        let described = self.described(slot).filter(|described| described.state == SlotState::Staged)?;
        Some(Confirmed { slot, contents: described.contents.clone() })
    }

    /// The floor kept with the slots.
    #[must_use]
    pub fn floor(&self) -> Sequence {
        self.good().map(|confirmed| confirmed.contents.sequence).unwrap_or_default()
    }

    /// Whether a version was or may have been confirmed here, and nothing tells which slot holds it.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        if self.good().is_some() {
            return false;
        }
        let was_confirmed = |entry: &Entry| {
            let Transaction { to, from, claim, .. } = &entry.transaction;
            let stayed = self.described(*to).is_some_and(|slot| slot.state == SlotState::Staged);
            from.is_some() || (claim.is_some() && !entry.is_open() && stayed)
        };
        // Something runs, and it is not the first install with its journal lost.
        let of_nobody = self
            .current
            .is_some_and(|current| self.open().is_none() && (self.entry.is_some() || self.described(current).is_none()));
        let of_old = self.confirmed.is_some();
        self.damaged || self.is_unsure() || of_nobody || of_old || self.entry.as_ref().is_some_and(was_confirmed)
    }

    /// The slot that may be overwritten: never the current one, never the confirmed one, never the one that this agent runs
    /// from. None where it is not known which is which, for either may be the only one that runs.
    #[must_use]
    pub fn idle(&self) -> Option<Slot> {
        self.spare().filter(|spare| self.origin != Some(*spare))
    }

    /// The same, wherever this agent runs from.
    pub(super) fn spare(&self) -> Option<Slot> {
        let kept = self.good().map(|confirmed| confirmed.slot);
        // With nothing in progress they are one: where they are not, each is the only word of something.
        let differ = self.open().is_none() && kept.is_some() && self.current.is_some() && kept != self.current;
        if differ || self.is_lost() {
            return None;
        }
        Some(kept.or(self.current).map_or(Slot::A, Slot::other))
    }

    /// What a slot that was started holds, by whichever file still says it.
    #[must_use]
    pub fn contents(&self, slot: Slot) -> Option<&Contents> {
        let confirmed = self.standing().filter(|confirmed| confirmed.slot == slot).map(|confirmed| &confirmed.contents);
        let described = || self.described(slot).map(|described| &described.contents);
        let journaled = || {
            let was_started =
                |entry: &&Entry| entry.mark != Mark::Stage && entry.transaction.to == slot && self.current == Some(slot);
            self.entry.as_ref().filter(was_started).map(|entry| &entry.transaction.contents)
        };
        confirmed.or_else(described).or_else(journaled)
    }

    /// What `current` leads to.
    #[must_use]
    pub fn running(&self) -> Option<Running> {
        self.running_from(self.current?)
    }

    /// What a process that was started from this slot is.
    #[must_use]
    pub fn running_from(&self, slot: Slot) -> Option<Running> {
        self.contents(slot).map(Contents::running)
    }

    /// The build that the last upgrade left behind, where that was to blame for its end: what was told of it may be lost.
    #[must_use]
    pub fn denied_last(&self) -> Option<&Denied> {
        let Entry { transaction, .. } = self.entry.as_ref().filter(|entry| !entry.is_open())?;
        let claim = transaction.claim?;
        self.denied.iter().find(|denied| denied.claim == Some(claim) && denied.names(&transaction.contents))
    }

    /// The release that waits in the idle slot; not the old version that an upgrade left there.
    #[must_use]
    pub fn staged(&self) -> Option<&Contents> {
        if self.open().is_some() {
            return None;
        }
        let left_behind =
            |contents: &Contents| self.good().is_some_and(|confirmed| contents.sequence <= confirmed.contents.sequence);
        let slot = self.described(self.idle()?).filter(|slot| slot.state == SlotState::Staged)?;
        (!left_behind(&slot.contents)).then_some(&slot.contents)
    }
}

//! The things that a plan is made of: one closed enum, each of which may be repeated.

use core::fmt;

use super::state::{Confirmed, Contents, Denied, Described, Entry, Slot};

/// One thing to do, on disk or with the running version. Each may be repeated: a crash inside it leaves what doing it
/// again makes right.
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
    /// Run the operator's command of this place, if there is one.
    Hook(Hook, Slot, Contents),
    /// Swap `current`; `None` removes it.
    Point(Option<Slot>),
    /// Start the version in a slot, in place of the one that runs.
    Start(Slot, Contents),
    /// See that the version in a slot runs, where the agent itself keeps it running.
    Keep(Slot, Contents),
    /// Stop what runs; nothing takes its place.
    Stop(Slot, Contents),
    /// Restart the machine, and wait for that. It is never done: the next start of the agent goes on.
    Restart(Slot, Contents),
    /// Check that the machine has started from the version in a slot.
    Booted(Slot, Contents),
    /// Check that the machine does not run the version in a slot any more.
    Left(Slot, Contents),
    /// Describe a slot anew.
    Describe(Slot, Described),
    /// Make a slot the confirmed one, and its sequence the floor.
    Bless(Confirmed),
    /// Write down one more build that failed here.
    Deny(Denied),
    /// Take a build off what failed here.
    Forgive(Contents),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Note(_) => f.write_str("write the journal"),
            Self::Empty(slot) => write!(f, "empty slot {}", slot.name()),
            Self::Fill(slot, contents) => write!(f, "copy {} into slot {}", contents.version, slot.name()),
            Self::Verify(slot, contents) => write!(f, "check {} in slot {}", contents.version, slot.name()),
            Self::Hook(hook, ..) => write!(f, "run the hook {}", hook.name()),
            Self::Point(Some(slot)) => write!(f, "point current to slot {}", slot.name()),
            Self::Point(None) => f.write_str("remove current"),
            Self::Start(_, contents) | Self::Keep(_, contents) => write!(f, "start {}", contents.version),
            Self::Stop(_, contents) => write!(f, "stop {}", contents.version),
            Self::Restart(_, contents) => write!(f, "restart the machine for {}", contents.version),
            Self::Booted(_, contents) => write!(f, "see whether the machine runs {}", contents.version),
            Self::Left(_, contents) => write!(f, "see whether the machine has left {}", contents.version),
            Self::Describe(slot, _) => write!(f, "describe slot {}", slot.name()),
            Self::Bless(confirmed) => write!(f, "record {} as confirmed", confirmed.contents.version),
            Self::Deny(denied) => write!(f, "record that {} failed", denied.version),
            Self::Forgive(contents) => write!(f, "take {} off what failed", contents.version),
        }
    }
}

/// A place in an install at which a command of the operator's is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    /// Before the idle slot is emptied.
    BeforeStage,
    /// The slot is whole and described. It may run again after a restart.
    AfterStage,
    /// The staged file is checked; `current` and the running version are untouched.
    BeforeActivate,
    /// The new version was started; the trial has not begun.
    AfterActivate,
    /// Health has held; the version is still on trial.
    BeforeConfirm,
    /// The version is good, for ever.
    AfterConfirm,
    /// The version is left; it still runs.
    BeforeRevert,
    /// The old version was started again.
    AfterRevert,
}

impl Hook {
    /// All of them, in the order of a life.
    pub const ALL: [Self; 8] = [
        Self::BeforeStage,
        Self::AfterStage,
        Self::BeforeActivate,
        Self::AfterActivate,
        Self::BeforeConfirm,
        Self::AfterConfirm,
        Self::BeforeRevert,
        Self::AfterRevert,
    ];

    /// As it is written in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BeforeStage => "before-stage",
            Self::AfterStage => "after-stage",
            Self::BeforeActivate => "before-activate",
            Self::AfterActivate => "after-activate",
            Self::BeforeConfirm => "before-confirm",
            Self::AfterConfirm => "after-confirm",
            Self::BeforeRevert => "before-revert",
            Self::AfterRevert => "after-revert",
        }
    }

    /// Whether its failure fails the step. From the decision to confirm or to go back on, nothing may stand in the way.
    #[must_use]
    pub fn may_refuse(self) -> bool {
        matches!(self, Self::BeforeStage | Self::BeforeActivate | Self::AfterActivate)
    }
}

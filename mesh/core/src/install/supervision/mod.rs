//! What `swell supervise` does about the agent: which build runs next, when it has failed, where the way back leads.
//!
//! Pure, like the machine of installs: it is told what happened ([`Input`]) and says what to do ([`Action`]). Only boots of a
//! build on trial are counted, and each before it happens; a confirmed build is started again for ever, with a growing pause.
//! A start that executed nothing, and one that an orderly stop ended while the build was well, are taken back.
//! When a trial ends [`Trial::most_boots`] times (a kill for its silence, once it was up, counts as one), is not up in time, or is
//! not confirmed in time, the last confirmed build comes back. What cannot be read or written leads to that build too, and where that is damaged, or cannot be started for a
//! while, to the build that the supervisor is itself: there is always one to run (S6). While that one runs the confirmed one
//! is looked for again, and takes its place back. Drawn in `docs/INSTALL.md`.

mod decide;
mod running;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub use self::decide::Supervision;
use super::state::Slot;
use crate::digest::Digest;

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// From the start of a build to its first sign of life, by awake time.
    pub ready_within_ms: u64,
    /// From one sign of life to the next, by awake time.
    pub silence_ms: u64,
    /// From the request to stop to the kill.
    pub stop_within_ms: u64,
    /// The first pause before what ended is started again.
    pub backoff_ms: u64,
    /// The longest pause.
    pub backoff_longest_ms: u64,
    /// A build that ran for so long started well: the next pause is the first again.
    pub stable_after_ms: u64,
}

/// A build that a file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its slot.
    pub slot: Slot,
    /// SHA-256 of the binary.
    pub sha256: Digest,
    /// Its size in bytes.
    pub size_bytes: u64,
}

/// A build to be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Names this trial, and no other one of the same build.
    pub name: String,
    /// What is tried.
    pub build: Named,
    /// How often it may be started, at least 1.
    pub most_boots: u32,
    /// How long it may still take to be confirmed, in milliseconds of awake time.
    pub left_ms: u64,
}

/// How a trial has fared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boots {
    /// Which trial.
    pub trial: String,
    /// How often it was started.
    pub boots: u32,
    /// How often it was well when the supervisor was told to stop; such a start is not among its boots.
    pub stops: u32,
    /// Why it was given up, once it was.
    pub given_up: Option<String>,
}

/// A file, as far as it can be understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reading<T> {
    /// It is not there.
    #[default]
    Absent,
    /// It is there, and torn or of an unknown form.
    Unreadable,
    /// What it says.
    Said(T),
}

impl<T> Reading<T> {
    fn said(&self) -> Option<&T> {
        match self {
            Self::Said(said) => Some(said),
            Self::Absent | Self::Unreadable => None,
        }
    }
}

/// What the disk says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The last confirmed build, as the agent wrote it down.
    pub confirmed: Reading<Named>,
    /// The same, as the supervisor last saw it.
    pub remembered: Reading<Named>,
    /// The build to be tried.
    pub trial: Reading<Trial>,
    /// How a trial has fared.
    pub boots: Reading<Boots>,
}

impl Facts {
    fn confirmed(&self) -> Option<&Named> {
        match &self.confirmed {
            Reading::Said(named) => Some(named),
            // Nothing was ever confirmed, or the file was lost: what was seen of it then is better than nothing.
            Reading::Absent | Reading::Unreadable => self.remembered.said(),
        }
    }

    /// The confirmed builds that are known, in the order in which they are to be run.
    #[must_use]
    pub fn choices(&self) -> Vec<&Named> {
        let mut choices: Vec<&Named> = self.confirmed().into_iter().collect();
        choices.extend(self.remembered.said().filter(|named| !choices.contains(named)));
        choices
    }
}

/// What to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Build {
    /// A build on trial: its `boots`-th boot.
    Trial {
        /// The trial.
        trial: Trial,
        /// Counting this one.
        boots: u32,
    },
    /// The last confirmed build.
    Confirmed(Named),
    /// The build that the supervisor is itself.
    Own,
}

impl Build {
    /// Where it is; `None` for the supervisor's own.
    #[must_use]
    pub fn named(&self) -> Option<&Named> {
        match self {
            Self::Trial { trial, .. } => Some(&trial.build),
            Self::Confirmed(named) => Some(named),
            Self::Own => None,
        }
    }

    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Trial { trial: one, .. }, Self::Trial { trial: other, .. }) => one.name == other.name,
            (one, other) => one == other,
        }
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trial { trial, boots } => {
                write!(f, "the build on trial in slot {}, boot {boots} of {}", trial.build.slot.name(), trial.most_boots)
            }
            Self::Confirmed(named) => write!(f, "the confirmed build in slot {}", named.slot.name()),
            Self::Own => write!(f, "the supervisor's own build"),
        }
    }
}

/// How a child ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Its exit code as a shell has it: 128 and the number for a signal.
    pub code: u8,
    /// It asked to be started again, from what the files then say.
    pub asked: bool,
    /// How it ended in words, with its last lines of output where they are known.
    pub said: String,
}

/// Why a build was not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotStarted {
    /// Its file is not the one that is named: no later try helps.
    Damaged(String),
    /// The kernel cannot run the file, whole as it is: it is another machine's, or what is to interpret it is missing. Of a
    /// build on trial this is the build's own fault.
    Refused(String),
    /// Anything else, which may pass: too many processes, too little memory, a disk that does not answer or is not mounted.
    Failed(String),
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Input {
    /// The supervisor starts.
    Begin,
    /// Answer to [`Action::Look`].
    Found(Facts),
    /// Answer to [`Action::Count`] and [`Action::GiveUp`]: whether it is durable.
    Written(bool),
    /// Answer to [`Action::Start`]; why not, otherwise.
    Started(Result<(), NotStarted>),
    /// Answer to [`Action::Check`]: whether the file is whole.
    Checked(bool),
    /// The child says that it is up.
    Ready,
    /// The child gives a sign of life.
    Alive,
    /// So many milliseconds of awake time the supervisor did not run although it wanted to, and its child most likely did
    /// not either: both were stopped, or their machine was.
    Overslept(u64),
    /// The child ended.
    Ended(End),
    /// Whoever runs the supervisor wants it to end. The signal itself has gone to the child already, if there is one.
    Stop,
    /// Time passed.
    Wake,
}

/// What to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the files.
    Look,
    /// Write down how often this trial is started, durably: before each boot, and after one that does not count.
    Count {
        /// The trial.
        trial: String,
        /// Counting the one to come.
        boots: u32,
        /// How many of its starts ended with an orderly stop, and are not counted.
        stops: u32,
    },
    /// Write down that this trial is over, durably.
    GiveUp {
        /// The trial.
        trial: String,
        /// How often it was started.
        boots: u32,
        /// Why.
        reason: String,
    },
    /// Write down which build is the confirmed one. It is not answered, and no harm when it fails.
    Remember(Named),
    /// Check the file of the build against its digest and start it.
    Start(Build),
    /// Check the file of a build against its digest, and start nothing.
    Check(Named),
    /// Ask the child to end.
    Terminate,
    /// Kill the child.
    Kill,
    /// Tell whoever started the supervisor.
    Announce(Announcement),
    /// Tell people.
    Say(Notice),
    /// End with this exit code.
    End(u8),
}

/// What a service manager is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// The agent is up, for the first time.
    Ready,
    /// The agent gave a sign of life, or was just started.
    Alive,
    /// It is coming to an end.
    Stopping,
}

/// What people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A build is started.
    Starts(Build),
    /// A build cannot be started; why.
    CannotStart(Build, String),
    /// The same, and it is tried again.
    TriesAgain {
        /// The build.
        build: Build,
        /// Why not.
        why: String,
        /// After which pause.
        pause_ms: u64,
    },
    /// A confirmed build that could not be run can be run again: what runs in its place is asked to end.
    GivesWay(Build),
    /// The child ended and is started again after a pause.
    Ended {
        /// How it ended.
        said: String,
        /// The pause.
        pause_ms: u64,
    },
    /// The child is killed; why.
    Kills(String),
    /// The build on trial was confirmed.
    Confirmed(Slot),
    /// The trial is over, and the last confirmed build comes back; why.
    GoesBack(String),
    /// A boot could not be counted, so the trial is over.
    CannotCount,
    /// The file that names the confirmed build cannot be read.
    Forgotten,
}

impl Notice {
    /// Whether it wakes a person; otherwise it is one line per change.
    #[must_use]
    pub fn is_grave(&self) -> bool {
        match self {
            Self::CannotStart(..)
            | Self::TriesAgain { .. }
            | Self::Kills(_)
            | Self::GoesBack(_)
            | Self::CannotCount
            | Self::Forgotten => true,
            Self::Starts(_) | Self::GivesWay(_) | Self::Ended { .. } | Self::Confirmed(_) => false,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starts(build) => write!(f, "starting {build}"),
            Self::CannotStart(build, why) => write!(f, "{build} cannot be started: {why}"),
            Self::TriesAgain { build, why, pause_ms } => {
                write!(f, "{build} cannot be started: {why}; tried again in {} s", pause_ms.div_ceil(1000))
            }
            Self::GivesWay(build) => write!(f, "the confirmed build can be run again: {build} gives way to it"),
            Self::Ended { said, pause_ms } => write!(f, "{said}; started again in {} s", pause_ms.div_ceil(1000)),
            Self::Kills(why) => write!(f, "{why}: the agent is killed"),
            Self::Confirmed(slot) => write!(f, "the build in slot {} is confirmed", slot.name()),
            Self::GoesBack(why) => write!(f, "going back to the last confirmed build: {why}"),
            Self::CannotCount => write!(f, "the boot of a build on trial cannot be written down: it is not tried"),
            Self::Forgotten => write!(f, "the file that names the confirmed build cannot be read; the last one seen counts"),
        }
    }
}

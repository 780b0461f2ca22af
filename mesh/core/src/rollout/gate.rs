//! The gate of a wave: when it has passed, and when the next one is open (design, section 6).
//!
//! Wave k passes when every applicable member is soaked, failed, forgiven or excused, at least `minSoakedPpm` of the
//! applicable members soaked, and the rollout is not halted. Zero evidence is a hold, neither success nor failure.
//! A wave whose members are all not applicable or forgiven passes at once and says so.

use core::fmt;

use super::tally::WaveCounts;
use crate::node::hold::Hold;
use crate::number::Ppm;

/// Whether a node of some wave may start, as far as waves go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It may.
    Open,
    /// It may not; why.
    Shut(Hold),
}

/// What a wave's counts say, halts aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Enough members soaked, and nobody is left.
    Passed,
    /// It has no member at all.
    Empty,
    /// All its members are not applicable or forgiven.
    NobodyApplies,
    /// Some members are not done: this many.
    NotDone(u32),
    /// Nobody is left to wait for, yet nobody has soaked or failed either.
    NoEvidence,
    /// Everybody is done, and too few of them soaked.
    TooFewSoaked {
        /// How many did.
        soaked: u32,
        /// How many the descriptor asks for.
        needed: u32,
    },
}

impl Verdict {
    /// Whether the wave has passed.
    #[must_use]
    pub fn passed(self) -> bool {
        matches!(self, Self::Passed | Self::Empty | Self::NobodyApplies)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => write!(f, "passed"),
            Self::Empty => write!(f, "passed at once: it has no member"),
            Self::NobodyApplies => write!(f, "passed at once: it applies to none of its members"),
            Self::NotDone(open) => write!(f, "{open} not done"),
            Self::NoEvidence => write!(f, "no evidence yet: nobody of it has soaked or failed"),
            Self::TooFewSoaked { soaked, needed } => write!(f, "only {soaked} soaked, {needed} needed"),
        }
    }
}

/// Judges a wave by its counts.
#[must_use]
pub fn judge(counts: &WaveCounts, min_soaked: Ppm) -> Verdict {
    let applicable = counts.applicable();
    if counts.members == 0 {
        return Verdict::Empty;
    }
    if applicable == 0 {
        return Verdict::NobodyApplies;
    }
    if counts.blocking > 0 {
        return Verdict::NotDone(counts.blocking);
    }
    if counts.soaked == 0 && counts.failed == 0 {
        return Verdict::NoEvidence;
    }
    let needed = min_soaked.ceil_of(usize::try_from(applicable).unwrap_or(usize::MAX));
    let needed = u32::try_from(needed).unwrap_or(u32::MAX);
    if counts.soaked < needed {
        return Verdict::TooFewSoaked { soaked: counts.soaked, needed };
    }
    Verdict::Passed
}

//! The halt: too many of a wave failed (design, section 6; case W9).
//!
//! For any wave, open or not: `failures ≥ minFailures` and `failures · 10^6 > maxFailurePpm · applicable members`.
//! A pure function of the counts: no latch, no vote, no message. It converges as the records do.

use super::tally::WaveCounts;
use crate::documents::rollout::Halt;

/// A wave whose failure ratio is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halted {
    /// The wave, from 0; the number of waves for the implicit last one.
    pub wave: u32,
    /// Its failures: failed, rolled back, or silent, and not forgiven.
    pub failures: u32,
    /// Its members to which the rollout applies, without the forgiven.
    pub applicable: u32,
}

/// The first wave that halts the rollout.
#[must_use]
pub fn halted<'a>(rule: &Halt, waves: impl IntoIterator<Item = &'a WaveCounts>) -> Option<Halted> {
    (0_u32..).zip(waves).find_map(|(wave, counts)| {
        let (failures, applicable) = (counts.failed, counts.applicable());
        let exceeded = u128::from(failures) * 1_000_000 > u128::from(rule.max_failure_ppm.parts()) * u128::from(applicable);
        (exceeded && failures >= rule.min_failures).then_some(Halted { wave, failures, applicable })
    })
}

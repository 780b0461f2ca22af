//! What a rollout means: who is in which wave, when a gate opens, when it halts, which rollout counts.
//!
//! Pure functions over plain data, one to a file: [`wave`], [`applies`], [`gate`], [`halt`], [`counts`], [`plan`].
//! The [`tally`] is the only state, and it is a cache of the records and of when this observer saw them change;
//! [`progress`] ties one rollout's waves, tally, gates and memory together for the node.
//! Nothing here reads a ledger, a shelf or a clock. Start at `docs/ROLLOUTS.md`.

pub mod applies;
pub mod counts;
pub mod forgiveness;
mod front;
pub mod gate;
pub mod halt;
pub mod member;
pub mod plan;
pub mod progress;
pub mod report;
mod standing;
pub mod tally;
pub mod wave;

/// What waves and tally need to know of a pool's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolTerms {
    /// How many of its nodes may be disrupted at once, at least 1.
    pub slots: u32,
    /// How long a holder may take from its claim to its start, in seconds.
    pub start_within_seconds: u64,
}

impl Default for PoolTerms {
    /// What a pool without a policy gets: one slot, a minute.
    fn default() -> Self {
        Self { slots: 1, start_within_seconds: 60 }
    }
}

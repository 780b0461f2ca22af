//! What a rollout means: who is in which wave, when a gate opens, when it halts, which rollout counts.
//!
//! Pure functions over plain data, one to a file; the tally is the only state, and it is a cache of the records.

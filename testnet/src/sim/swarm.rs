//! The swarm: each seed draws a fleet, fault rates and what happens, plays it, heals the world and demands progress.
//!
//! After TigerBeetle's VOPR. A failure names the guarantee and the seed.

use super::director::{self, Outcome};
use super::draw::draw;

/// Runs one seed to its end.
#[must_use]
pub fn run(seed: u64) -> Outcome {
    director::play(&draw(seed))
}

/// The line that runs a seed again.
#[must_use]
pub fn reproduction(seed: u64) -> String {
    format!("groundswell-testnet sim run --seed {seed}")
}

//! The swarm: each seed draws a fleet, fault rates and what happens, plays it, heals the world and demands progress.
//!
//! After TigerBeetle's VOPR. A failure names the guarantee and the seed.

use super::director::{self, Outcome};
use super::draw::draw;
use super::script::Script;

/// How much of each seed is played. A part is how the whole begins, step by step: what breaks in it breaks in the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Faults stop after so many milliseconds, if they have not before.
    pub beginning_ms: Option<u64>,
    /// It ends where the world would be healed: safety alone is asked for.
    pub unhealed: bool,
}

impl Part {
    /// The whole of each seed.
    pub const WHOLE: Self = Self { beginning_ms: None, unhealed: false };

    /// This part of what a seed draws.
    #[must_use]
    pub fn of(self, seed: u64) -> Script {
        let mut script = draw(seed);
        if let Some(beginning_ms) = self.beginning_ms {
            script = script.beginning(beginning_ms);
        }
        if self.unhealed {
            script.progress = None;
        }
        script
    }
}

/// Runs this part of one seed to its end.
#[must_use]
pub fn run(seed: u64, part: Part) -> Outcome {
    director::play(&part.of(seed))
}

/// The line that runs a seed again.
#[must_use]
pub fn reproduction(seed: u64) -> String {
    format!("groundswell-testnet sim run --seed {seed}")
}

//! A seed's script: fleet, rates and what happens, drawn once and then data.
//!
//! How each kind of fault is drawn stands in [`super::faults`].

use std::ops::RangeInclusive;

use groundswell_core::number::Ppm;
use groundswell_core::text::Pool;
use rand_chacha::ChaCha8Rng;

use super::act::{Act, Terms};
use super::faults::{self, FAULTS};
use super::script::{PoolPlan, Scheduled, Script};
use super::world::{Faults, World, roll};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;

/// What operators have signed last, as far as a script can know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Paused,
    Aborted,
}

/// A script in the making.
pub(super) struct Drawing {
    dice: ChaCha8Rng,
    pub(super) pools: Vec<Pool>,
    /// The pool with the most machines.
    pub(super) largest: Pool,
    pub(super) machines: u64,
    pub(super) now_ms: u64,
    pub(super) lossy: bool,
    pub(super) state: State,
    /// Copies of disks that were laid aside.
    pub(super) snapshots: Vec<u32>,
    /// Whoever lies in this seed lies again and again.
    pub(super) liars: Vec<u32>,
    pub(super) acts: Vec<Scheduled>,
}

/// The script of one seed.
#[must_use]
pub fn draw(seed: u64) -> Script {
    let mut dice = World::dice(seed ^ 0x6472_6177);
    let pools = pools(&mut dice);
    let rollout_keys = 1 + u32::try_from(roll(&mut dice, 2)).expect("below 2");
    let loss_ppm = often(&mut dice, 120_000);
    let mut faults = Faults {
        power_in_words: Ppm::ZERO,
        power_in_claims: Ppm::ZERO,
        delay_ms: (1 + roll(&mut dice, 50), 1 + roll(&mut dice, 400)),
        repeated: often(&mut dice, 50_000),
        power_in_effects: often(&mut dice, 600),
        power_in_steps: often(&mut dice, 120_000),
        staging: often(&mut dice, 200_000),
    };
    let mean_pause_ms = 5 * SECOND + roll(&mut dice, 90 * SECOND);
    let lasts_ms = 5 * SECOND + 5 * MINUTE + roll(&mut dice, 50 * MINUTE);
    let weights: Vec<u64> = FAULTS.iter().map(|fault| within(&mut dice, &fault.weights)).collect();
    let mut drawing = Drawing {
        pools: pools.iter().map(|pool| pool.name.clone()).collect(),
        largest: pools.iter().max_by_key(|pool| pool.machines).map(|pool| pool.name.clone()).expect("one pool at least"),
        machines: pools.iter().map(|pool| u64::from(pool.machines)).sum(),
        now_ms: 5 * SECOND,
        lossy: loss_ppm > Ppm::ZERO,
        state: State::Running,
        snapshots: Vec::new(),
        liars: Vec::new(),
        acts: Vec::new(),
        dice,
    };
    faults::publish(&mut drawing);
    loop {
        drawing.now_ms += 500 + drawing.roll(2 * mean_pause_ms);
        if drawing.now_ms >= lasts_ms {
            break;
        }
        let mut at = drawing.roll(weights.iter().sum());
        for (fault, weight) in FAULTS.iter().zip(&weights) {
            if at < *weight {
                (fault.draw)(&mut drawing);
                break;
            }
            at -= weight;
        }
    }
    let progress = Some(Terms { min_soaked_ppm: share(500_000), ..drawing.terms() });
    // What must meet to matter, and seldom does by itself. It has dice of its own: the rest of a seed is what it was before.
    drawing.dice = World::dice(seed ^ 0x6d75_7461);
    faults.power_in_claims = often(&mut drawing.dice, 100_000);
    faults::meet(&mut drawing, lasts_ms);
    faults.power_in_words = often(&mut drawing.dice, 20_000);
    drawing.dice = World::dice(seed ^ 0x7265_6361);
    faults::meet_again(&mut drawing, lasts_ms);
    let mut acts = drawing.acts;
    acts.sort_by_key(|scheduled| scheduled.at_ms);
    let (story, cases, expect) = (String::new(), Vec::new(), Vec::new());
    Script { story, cases, seed, pools, rollout_keys, beyond: 0, loss_ppm, faults, lasts_ms, progress, acts, expect }
}

fn pools(dice: &mut ChaCha8Rng) -> Vec<PoolPlan> {
    let count = usize::try_from(1 + roll(dice, 3)).expect("a few pools");
    let names = ["north", "south", "west"].into_iter().take(count);
    let plan = |name: &str| PoolPlan {
        name: Pool::new(name).expect("a plain name"),
        machines: u32::try_from(1 + one_of(&[roll(dice, 8), roll(dice, 8), roll(dice, 8), roll(dice, 12)], roll(dice, 4)))
            .expect("few machines"),
        budget_ppm: share(one_of(&[50_000, 50_000, 250_000, 500_000], roll(dice, 4))),
        presume_lost_after_ms: 1_000 * one_of(&[86_400, 600, 600, 0], roll(dice, 4)),
        start_within_ms: MINUTE,
        lean: false,
    };
    names.map(plan).collect()
}

pub(super) fn share(parts: u64) -> Ppm {
    Ppm::new(u32::try_from(parts).unwrap_or(0)).expect("drawn below a million")
}

/// A rate below `most`; none in a third of the seeds.
fn often(dice: &mut ChaCha8Rng, most: u64) -> Ppm {
    let rolled = roll(dice, 1_000_000);
    if rolled.is_multiple_of(3) { Ppm::ZERO } else { share(rolled % most) }
}

pub(super) fn one_of<T: Copy + Default>(these: &[T], pick: u64) -> T {
    usize::try_from(pick).ok().and_then(|pick| these.get(pick)).copied().unwrap_or_default()
}

fn within(dice: &mut ChaCha8Rng, range: &RangeInclusive<u64>) -> u64 {
    range.start() + roll(dice, range.end() - range.start() + 1)
}

impl Drawing {
    pub(super) fn roll(&mut self, bound: u64) -> u64 {
        roll(&mut self.dice, bound)
    }

    pub(super) fn anybody(&mut self) -> u32 {
        u32::try_from(self.roll(self.machines)).expect("few machines")
    }

    pub(super) fn happens(&mut self, act: Act) {
        self.acts.push(Scheduled { at_ms: self.now_ms, act });
    }

    pub(super) fn happens_after(&mut self, after_ms: u64, act: Act) {
        self.acts.push(Scheduled { at_ms: self.now_ms + after_ms, act });
    }

    /// How long a machine stays off.
    pub(super) fn outage_ms(&mut self) -> u64 {
        let pick = self.roll(3);
        let most = one_of(&[5 * SECOND, MINUTE, 20 * MINUTE], pick);
        self.roll(most)
    }

    pub(super) fn terms(&mut self) -> Terms {
        Terms {
            prefetch: self.roll(2) == 0,
            min_soaked_ppm: share(if self.roll(2) == 0 { 500_000 } else { 900_000 }),
            max_failure_ppm: share(if self.roll(2) == 0 { 50_000 } else { 300_000 }),
            soak_ms: (5 + self.roll(60)) * SECOND,
            confirm_after_ms: (1 + self.roll(8)) * SECOND,
            ..Terms::default()
        }
    }

    /// Some machines, each with the same chance.
    pub(super) fn some(&mut self) -> Vec<u32> {
        let salt = self.roll(u64::MAX);
        let everybody = 0..u32::try_from(self.machines).expect("few machines");
        everybody.filter(|index| (salt >> (index % 60)) & 1 == 1).collect()
    }

    pub(super) fn a_pool(&mut self) -> Option<Pool> {
        let pick = self.roll(self.pools.len() as u64);
        usize::try_from(pick).ok().and_then(|pick| self.pools.get(pick)).cloned()
    }
}

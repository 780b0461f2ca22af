//! A seed's script: fleet, rates and what happens, drawn once and then data.
//!
//! To add a fault, add a variant to [`Act`], do it in [`super::director`], and give it a line in [`FAULTS`].

use std::ops::RangeInclusive;

use groundswell_core::number::Ppm;
use groundswell_core::text::Pool;
use rand_chacha::ChaCha8Rng;

use super::act::{Act, Odd, Terms};
use super::device::Behaviour;
use super::script::{PoolPlan, Scheduled, Script};
use super::world::{Faults, World, roll};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;

/// A kind of fault.
struct Fault {
    /// Each seed draws a weight from these; the larger, the more often it happens beside the others.
    weights: RangeInclusive<u64>,
    /// Draws one.
    draw: fn(&mut Drawing),
}

/// Everything that may happen to a seed's fleet.
const FAULTS: &[Fault] = &[
    Fault { weights: 0..=7, draw: power },
    Fault { weights: 0..=1, draw: site_power },
    Fault { weights: 0..=3, draw: suspend },
    Fault { weights: 0..=3, draw: partition },
    Fault { weights: 0..=2, draw: deaf },
    Fault { weights: 0..=2, draw: clock },
    Fault { weights: 0..=1, draw: breakage },
    Fault { weights: 1..=8, draw: operator },
    Fault { weights: 0..=1, draw: lie },
    Fault { weights: 0..=1, draw: retire },
    Fault { weights: 0..=1, draw: join },
];

/// What operators have signed last, as far as a script can know.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Paused,
    Aborted,
}

struct Drawing {
    dice: ChaCha8Rng,
    pools: Vec<Pool>,
    machines: u64,
    now_ms: u64,
    lossy: bool,
    state: State,
    clones: bool,
    snapshots: Vec<u32>,
    acts: Vec<Scheduled>,
}

/// The script of one seed.
#[must_use]
pub fn draw(seed: u64) -> Script {
    let mut dice = World::dice(seed ^ 0x6472_6177);
    let pools = pools(&mut dice);
    let loss_ppm = often(&mut dice, 120_000);
    let faults = Faults {
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
        machines: pools.iter().map(|pool| u64::from(pool.machines)).sum(),
        now_ms: 5 * SECOND,
        lossy: loss_ppm > Ppm::ZERO,
        state: State::Running,
        clones: roll(&mut dice, 2) == 0,
        snapshots: Vec::new(),
        acts: Vec::new(),
        dice,
    };
    publish(&mut drawing);
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
    let mut acts = drawing.acts;
    acts.sort_by_key(|scheduled| scheduled.at_ms);
    let (story, cases, expect) = (String::new(), Vec::new(), Vec::new());
    Script { story, cases, seed, pools, loss_ppm, faults, lasts_ms, progress, acts, expect }
}

fn pools(dice: &mut ChaCha8Rng) -> Vec<PoolPlan> {
    let count = usize::try_from(1 + roll(dice, 3)).expect("a few pools");
    let names = ["north", "south", "west"].into_iter().take(count);
    let plan = |name: &str| PoolPlan {
        name: Pool::new(name).expect("a plain name"),
        machines: u32::try_from(1 + roll(dice, 8)).expect("few machines"),
        budget_ppm: share(one_of(&[50_000, 50_000, 250_000, 500_000], roll(dice, 4))),
        presume_lost_after_ms: 1_000 * one_of(&[86_400, 600, 600, 0], roll(dice, 4)),
        start_within_ms: MINUTE,
        lean: false,
    };
    names.map(plan).collect()
}

fn share(parts: u64) -> Ppm {
    Ppm::new(u32::try_from(parts).unwrap_or(0)).expect("drawn below a million")
}

/// A rate below `most`; none in a third of the seeds.
fn often(dice: &mut ChaCha8Rng, most: u64) -> Ppm {
    let rolled = roll(dice, 1_000_000);
    if rolled.is_multiple_of(3) { Ppm::ZERO } else { share(rolled % most) }
}

fn one_of<T: Copy + Default>(these: &[T], pick: u64) -> T {
    usize::try_from(pick).ok().and_then(|pick| these.get(pick)).copied().unwrap_or_default()
}

fn within(dice: &mut ChaCha8Rng, range: &RangeInclusive<u64>) -> u64 {
    range.start() + roll(dice, range.end() - range.start() + 1)
}

impl Drawing {
    fn roll(&mut self, bound: u64) -> u64 {
        roll(&mut self.dice, bound)
    }

    fn anybody(&mut self) -> u32 {
        u32::try_from(self.roll(self.machines)).expect("few machines")
    }

    fn happens(&mut self, act: Act) {
        self.acts.push(Scheduled { at_ms: self.now_ms, act });
    }

    fn happens_after(&mut self, after_ms: u64, act: Act) {
        self.acts.push(Scheduled { at_ms: self.now_ms + after_ms, act });
    }

    /// How long a machine stays off.
    fn outage_ms(&mut self) -> u64 {
        let pick = self.roll(3);
        let most = one_of(&[5 * SECOND, MINUTE, 20 * MINUTE], pick);
        self.roll(most)
    }

    fn terms(&mut self) -> Terms {
        Terms {
            prefetch: self.roll(2) == 0,
            min_soaked_ppm: share(if self.roll(2) == 0 { 500_000 } else { 900_000 }),
            max_failure_ppm: share(if self.roll(2) == 0 { 50_000 } else { 300_000 }),
            soak_ms: (5 + self.roll(60)) * SECOND,
            ..Terms::default()
        }
    }
}

fn power(drawing: &mut Drawing) {
    let (machine, for_ms) = (drawing.anybody(), Some(drawing.outage_ms()));
    drawing.happens(Act::PowerOff { machine, for_ms });
}

fn site_power(drawing: &mut Drawing) {
    let pick = drawing.roll(drawing.pools.len() as u64);
    let Some(pool) = usize::try_from(pick).ok().and_then(|pick| drawing.pools.get(pick)).cloned() else { return };
    let (for_ms, apart_ms) = (drawing.outage_ms(), drawing.roll(MINUTE));
    drawing.happens(Act::SitePowerOff { pool, for_ms, apart_ms });
}

fn suspend(drawing: &mut Drawing) {
    let (machine, for_ms) = (drawing.anybody(), 1 + drawing.roll(10 * MINUTE));
    drawing.happens(Act::Suspend { machine, for_ms });
}

fn partition(drawing: &mut Drawing) {
    let everybody = 0..u32::try_from(drawing.machines).expect("few machines");
    let act = match drawing.roll(4) {
        0 => Act::Mend,
        1 => Act::Partition { groups: vec![(0..drawing.anybody()).collect()] },
        2 => Act::PartPools,
        _ => {
            let salt = drawing.roll(u64::MAX);
            Act::Partition { groups: vec![everybody.filter(|index| (salt >> (index % 60)) & 1 == 1).collect()] }
        }
    };
    drawing.happens(act);
}

fn deaf(drawing: &mut Drawing) {
    let (from, to) = (drawing.anybody(), drawing.anybody());
    let act = if drawing.roll(3) == 0 { Act::Undeafen } else { Act::Deafen { from, to } };
    drawing.happens(act);
}

fn clock(drawing: &mut Drawing) {
    let (machine, pick) = (drawing.anybody(), drawing.roll(6));
    let skew_seconds = one_of(&[0_i64, -3_600, 3_600, -1_795_000_000, 86_400 * 400, 30], pick);
    drawing.happens(Act::Clock { machine, skew_seconds });
}

fn breakage(drawing: &mut Drawing) {
    let machine = drawing.anybody();
    let act = if drawing.roll(2) == 0 { Act::Break { machine } } else { Act::Repair { machine } };
    drawing.happens(act);
}

fn operator(drawing: &mut Drawing) {
    let at_machine = drawing.anybody();
    match (drawing.roll(10), drawing.state) {
        (0 | 1, _) | (_, State::Aborted) => publish(drawing),
        (2 | 3, State::Running) => {
            drawing.state = State::Paused;
            drawing.happens(Act::Pause { at_machine });
        }
        (4..=6, State::Paused) => {
            drawing.state = State::Running;
            drawing.happens(Act::Resume { at_machine });
        }
        (7, _) => {
            drawing.state = State::Aborted;
            let rollback = drawing.roll(2) == 0;
            drawing.happens(Act::Abort { at_machine, rollback });
        }
        (8, State::Running) => {
            drawing.state = State::Paused;
            let and_machine = drawing.anybody();
            drawing.happens(Act::Disagree { at_machine, and_machine });
        }
        _ => drawing.happens(Act::Forgive { at_machine }),
    }
}

/// A new release, perhaps a bad one, and a rollout of it.
fn publish(drawing: &mut Drawing) {
    let at_machine = drawing.anybody();
    let behaviour = match drawing.roll(8) {
        0 => Behaviour::Unhealthy,
        1 => Behaviour::Mute,
        2 => Behaviour::DegradesAfter(1_000 + drawing.roll(60_000)),
        3 => Behaviour::WontStart,
        _ => Behaviour::Good,
    };
    let terms = drawing.terms();
    let mut odd = Vec::new();
    // Some machines have their own ideas of a good one.
    if behaviour == Behaviour::Good && drawing.lossy {
        for machine in 0..u32::try_from(drawing.machines).expect("few machines") {
            if drawing.roll(20) == 0 {
                let behaviour = if drawing.roll(2) == 0 { Behaviour::Unhealthy } else { Behaviour::Hangs };
                odd.push(Odd { machine, behaviour });
            }
        }
    }
    drawing.state = State::Running;
    drawing.happens(Act::Publish { at_machine, behaviour, terms, odd });
}

/// Somebody is cloned, or set back to an older store.
fn lie(drawing: &mut Drawing) {
    let machine = drawing.anybody();
    if drawing.clones {
        // The copy is one machine more, that everything may happen to.
        drawing.machines += 1;
        drawing.happens(Act::Clone { machine });
    } else if let Some(taken) = drawing.snapshots.pop() {
        let for_ms = drawing.outage_ms();
        let device = drawing.roll(2) == 0;
        drawing.happens(Act::SetBack { machine: taken, device, for_ms });
    } else {
        drawing.snapshots.push(machine);
        drawing.happens(Act::Snapshot { machine });
    }
}

/// Somebody is retired, and sometimes switched on again all the same.
fn retire(drawing: &mut Drawing) {
    let (machine, at_machine, back_ms) = (drawing.anybody(), drawing.anybody(), drawing.outage_ms());
    drawing.happens(Act::Retire { machine, at_machine });
    if drawing.roll(2) == 0 {
        drawing.happens_after(back_ms, Act::PowerOn { machine });
    }
}

/// A machine more, that no roster lists.
fn join(drawing: &mut Drawing) {
    let pick = drawing.roll(drawing.pools.len() as u64);
    let Some(pool) = usize::try_from(pick).ok().and_then(|pick| drawing.pools.get(pick)).cloned() else { return };
    let at_machine = drawing.anybody();
    drawing.machines += 1;
    drawing.happens(Act::Join { pool, at_machine });
}

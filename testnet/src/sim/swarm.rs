//! The swarm: each seed draws a fleet, fault rates and what operators do; then the world heals and progress is demanded.
//!
//! After TigerBeetle's VOPR. [`run`] is a pure function of its seed; a failure names the guarantee and the seed.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use groundswell_core::digest::Digest;
use groundswell_core::number::{Ppm, Sequence};
use groundswell_core::record::status::Running;
use groundswell_core::text::{Pool, Version};

use super::campaign::Campaign;
use super::checks::{l1_everybody, l2_returned, l3_heard, l4_slots};
use super::device::Behaviour;
use super::operator::Operator;
use super::world::{Faults, World};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// What became of one seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Machines.
    pub machines: u32,
    /// Inputs handled.
    pub steps: u64,
    /// Virtual time that passed, in milliseconds.
    pub virtual_ms: u64,
    /// Upgrades that machines started.
    pub starts: u64,
    /// A hash over everything that happened.
    pub trace: String,
    /// The guarantee that did not hold, and how.
    pub failure: Option<String>,
}

impl Outcome {
    /// One line that runs it again.
    #[must_use]
    pub fn reproduction(&self) -> String {
        format!("groundswell-testnet sim run --seed {}", self.seed)
    }
}

/// Runs one seed to its end.
#[must_use]
pub fn run(seed: u64) -> Outcome {
    let mut outcome = Outcome { seed, machines: 0, steps: 0, virtual_ms: 0, starts: 0, trace: String::new(), failure: None };
    let mut drill = Drill::draw(seed);
    let failure = catch_unwind(AssertUnwindSafe(|| drill.play()));
    let world = &drill.world;
    outcome.machines = world.count();
    outcome.steps = world.steps;
    outcome.virtual_ms = world.now_ms;
    outcome.starts = world.starts;
    outcome.trace = world.trace_hash();
    outcome.failure = match failure {
        Ok(result) => result.err(),
        Err(panic) => Some(told_by(panic.as_ref())),
    };
    outcome
}

/// The world of one seed, played to its end, for looking into: what happened, and how it ended.
#[must_use]
pub fn replay(seed: u64) -> (World, Option<String>) {
    let mut drill = Drill::draw(seed);
    let result = catch_unwind(AssertUnwindSafe(|| drill.play()));
    let failure = match result {
        Ok(result) => result.err(),
        Err(panic) => Some(told_by(panic.as_ref())),
    };
    (drill.world, failure)
}

fn told_by(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_string()
}

/// What may happen to a seed's world, each as a weight.
#[derive(Clone, Copy, Debug)]
struct Weights {
    power: u64,
    site_power: u64,
    suspend: u64,
    partition: u64,
    deaf: u64,
    clock: u64,
    breakage: u64,
    operator: u64,
    liar: u64,
    retire: u64,
}

struct Drill {
    world: World,
    campaign: Campaign,
    weights: Weights,
    mean_pause_ms: u64,
    fault_ms: u64,
    /// When machines that are off come back.
    off: Vec<(u64, u32)>,
    snapshots: Vec<(u32, Snapshot)>,
    clones: bool,
}

struct Snapshot {
    disk: std::collections::BTreeMap<Vec<u8>, Vec<u8>>,
    device: super::device::Device,
}

/// What machines of a swarm are set up with.
pub(super) fn first() -> Running {
    Running {
        version: Version::new("1.0.0").expect("a plain version"),
        sequence: Sequence::new(1).expect("a small sequence"),
        release: Digest::of(b"the release that machines came with"),
    }
}

fn share(parts: u64) -> Ppm {
    Ppm::new(u32::try_from(parts).unwrap_or(0)).expect("drawn below a million")
}

fn one_of<T: Copy + Default>(these: &[T], pick: u64) -> T {
    usize::try_from(pick).ok().and_then(|pick| these.get(pick)).copied().unwrap_or_default()
}

impl Drill {
    /// Draws fleet, rates and weights.
    fn draw(seed: u64) -> Self {
        let mut dice = World::dice(seed ^ 0x6472_6177);
        let mut roll = |bound: u64| super::world::roll(&mut dice, bound);
        let names = ["north", "south", "west"];
        let pools: Vec<(&str, u32)> = names
            .iter()
            .take(usize::try_from(1 + roll(3)).expect("a few pools"))
            .map(|name| (*name, u32::try_from(1 + roll(8)).expect("few machines")))
            .collect();
        let mut operator = Operator::new(|_| {});
        for (pool, _) in &pools {
            let policy = operator.policies.entry(Pool::new(*pool).expect("a plain name")).or_default();
            policy.budget_ppm = share(one_of(&[50_000, 50_000, 250_000, 500_000], roll(4)));
            policy.urgent_budget_ppm = policy.budget_ppm;
            policy.presume_lost_after_seconds = one_of(&[86_400, 600, 600, 0], roll(4));
        }
        let mut world = World::with_operator(seed, &pools, Some(first()), operator);
        let often = |rolled: u64, most: u64| if rolled.is_multiple_of(3) { Ppm::ZERO } else { share(rolled % most) };
        world.loss = often(roll(1_000_000), 120_000);
        world.faults = Faults {
            delay_ms: (1 + roll(50), 1 + roll(400)),
            repeated: often(roll(1_000_000), 50_000),
            power_in_effects: often(roll(1_000_000), 600),
            power_in_steps: often(roll(1_000_000), 120_000),
            staging: often(roll(1_000_000), 200_000),
        };
        let weights = Weights {
            power: roll(8),
            site_power: roll(2),
            suspend: roll(4),
            partition: roll(4),
            deaf: roll(3),
            clock: roll(3),
            breakage: roll(2),
            operator: 1 + roll(8),
            liar: roll(2),
            retire: u64::from(roll(4) == 0),
        };
        let campaign = Campaign::default();
        Self {
            world,
            campaign,
            weights,
            mean_pause_ms: 5 * SECOND + roll(90 * SECOND),
            fault_ms: 5 * MINUTE + roll(50 * MINUTE),
            off: Vec::new(),
            snapshots: Vec::new(),
            clones: roll(2) == 0,
        }
    }

    fn play(&mut self) -> Result<(), String> {
        self.world.run_for(5 * SECOND);
        self.campaign.publish(&mut self.world);
        let end = self.world.now_ms + self.fault_ms;
        while self.world.now_ms < end {
            let pause = 500 + self.world.random(2 * self.mean_pause_ms);
            self.world.run_for(pause);
            self.bring_back(false);
            self.something_happens();
        }
        self.heal();
        self.progress()
    }

    fn something_happens(&mut self) {
        let Weights { power, site_power, suspend, partition, deaf, clock, breakage, operator, liar, retire } = self.weights;
        let weights = [power, site_power, suspend, partition, deaf, clock, breakage, operator, liar, retire];
        let mut at = self.world.random(weights.iter().sum());
        let which = weights.iter().position(|weight| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        });
        let index = self.anybody();
        match which {
            Some(0) => self.power_off(index),
            Some(1) => {
                let pool = self.world.machine(index).pool.clone();
                let site: Vec<u32> = self.world.machines.iter().filter(|it| it.pool == pool).map(|it| it.index).collect();
                for index in site {
                    self.power_off(index);
                }
            }
            Some(2) => {
                let for_ms = 1 + self.world.random(10 * MINUTE);
                self.world.suspend(index, for_ms);
            }
            Some(3) => self.partition(),
            Some(4) => {
                let other = self.anybody();
                if self.world.random(3) == 0 { self.world.undeafen() } else { self.world.deafen(index, other) }
            }
            Some(5) => {
                let pick = self.world.random(6);
                let jump = one_of(&[0_i64, -3_600, 3_600, -1_795_000_000, 86_400 * 400, 30], pick);
                self.world.machine_mut(index).wall_skew = jump;
            }
            Some(6) => {
                let broken = self.world.random(2) == 0;
                self.world.machine_mut(index).device.broken = broken && !self.world.machine(index).device.disrupted();
                self.world.probe(index);
            }
            Some(7) => self.campaign.act(&mut self.world),
            Some(8) => self.lie(index),
            Some(9) => self.campaign.retire(&mut self.world, index),
            _ => {}
        }
    }

    fn anybody(&mut self) -> u32 {
        let count = u64::from(self.world.count());
        u32::try_from(self.world.random(count)).expect("few machines")
    }

    fn power_off(&mut self, index: u32) {
        if self.world.machine(index).node.is_some() {
            self.world.stop(index);
        }
    }

    /// Machines that are off, by hand or because their power failed, come back after a while.
    fn bring_back(&mut self, now: bool) {
        for index in 0..self.world.count() {
            if self.world.machine(index).node.is_some() {
                self.off.retain(|(_, other)| *other != index);
            } else if !self.off.iter().any(|(_, other)| *other == index) {
                let pick = self.world.random(3);
                let most = one_of(&[5 * SECOND, MINUTE, 20 * MINUTE], pick);
                let back = self.world.now_ms + self.world.random(most);
                self.off.push((back, index));
            }
        }
        let due: Vec<u32> = self.off.iter().filter(|(at, _)| now || *at <= self.world.now_ms).map(|(_, index)| *index).collect();
        for index in due {
            self.world.start(index);
        }
        self.off.retain(|(at, _)| !now && *at > self.world.now_ms);
    }

    fn partition(&mut self) {
        match self.world.random(4) {
            0 => self.world.partition(|_| 0),
            1 => {
                let cut = u32::try_from(self.world.random(u64::from(self.world.count()))).expect("few machines");
                self.world.partition(|index| u32::from(index >= cut));
            }
            2 => {
                let pools: Vec<Pool> = self.world.machines.iter().map(|machine| machine.pool.clone()).collect();
                let first = pools.first().cloned();
                self.world.partition(|index| {
                    let pool = usize::try_from(index).ok().and_then(|index| pools.get(index));
                    u32::from(pool != first.as_ref())
                });
            }
            _ => {
                let salt = self.world.random(u64::MAX);
                self.world.partition(|index| u32::from((salt >> (index % 60)) & 1 == 1));
            }
        }
    }

    /// Somebody of a pool that tolerates it is cloned, or set back to an older store.
    fn lie(&mut self, index: u32) {
        let pool = self.world.machine(index).pool.clone();
        let of_pool = || self.world.machines.iter().filter(|machine| machine.pool == pool);
        let listed = of_pool().filter(|machine| machine.key == machine.index && !self.world.truth.retired.contains(&machine.id));
        let tolerated = match listed.count() {
            0..4 => 0,
            4..7 => 1,
            _ => 2,
        };
        let liars: BTreeSet<u32> = of_pool().filter(|machine| machine.liar).map(|machine| machine.key).collect();
        let known = liars.contains(&self.world.machine(index).key);
        if !known && liars.len() >= tolerated {
            return;
        }
        if self.clones && self.world.machine(index).key == index && !known {
            let copy = self.world.clone_machine(index);
            self.world.start(copy);
            return;
        }
        let taken = self.snapshots.iter().position(|(of, _)| *of == index);
        if let Some((_, snapshot)) = taken.map(|at| self.snapshots.remove(at)) {
            self.world.stop(index);
            let machine = self.world.machine_mut(index);
            machine.liar = true;
            machine.disk = snapshot.disk;
            machine.device = snapshot.device;
        } else if !self.world.machine(index).device.disrupted() {
            let machine = self.world.machine(index);
            let snapshot = Snapshot { disk: machine.disk.clone(), device: machine.device.clone() };
            self.snapshots.push((index, snapshot));
        }
    }

    /// Faults stop, everybody is up and has the right time; a few days of grace are not needed.
    fn heal(&mut self) {
        let world = &mut self.world;
        world.loss = Ppm::ZERO;
        world.faults = Faults::default();
        world.partition(|_| 0);
        world.undeafen();
        for index in 0..world.count() {
            world.machine_mut(index).wall_skew = 0;
            world.machine_mut(index).device.broken = false;
            world.machine_mut(index).device.odd.clear();
        }
        self.bring_back(true);
        for behaviour in self.world.behaviours.values_mut() {
            *behaviour = Behaviour::Good;
        }
        // The longest sleep drawn, and every wait of a pool that has one.
        self.world.run_for(12 * MINUTE);
        for index in 0..self.world.count() {
            self.world.probe(index);
        }
        self.world.run_for(SECOND);
    }

    fn progress(&mut self) -> Result<(), String> {
        // What is under way comes to its end once operators forgive what failed.
        if let Some(release) = self.campaign.under_way(&self.world) {
            self.campaign.resume(&mut self.world);
            self.until(2 * HOUR, "L1", |world| l1_everybody(world, release))?;
        }
        let away: BTreeSet<u32> = (0..self.world.count()).filter(|index| index % 5 == 3).collect();
        for index in &away {
            self.world.stop(*index);
        }
        // Whoever had links to those only finds others first.
        self.world.run_for(2 * MINUTE);
        let Some(release) = self.campaign.publish_good(&mut self.world) else { return Err("nobody is up".to_string()) };
        self.world.run_for(10 * SECOND);
        let (id, generation) = self.campaign.newest().expect("one was published");
        l3_heard(&self.world, &id, generation).map_err(|why| format!("L3: {why}"))?;
        self.world.run_for(20 * MINUTE);
        for index in &away {
            self.world.start(*index);
        }
        self.until(2 * HOUR, "L2", |world| l2_returned(world, release, &away))?;
        self.until(2 * HOUR, "L1", |world| l1_everybody(world, release))?;
        self.until(5 * MINUTE, "L4", l4_slots)
    }

    /// Lets time pass until it holds; every five minutes operators forgive what failed.
    fn until(&mut self, limit_ms: u64, name: &str, holds: impl Fn(&World) -> Result<(), String>) -> Result<(), String> {
        let end = self.world.now_ms + limit_ms;
        loop {
            if self.world.run_until(5 * MINUTE, |world| world.now_ms.is_multiple_of(7) && holds(world).is_ok())
                || holds(&self.world).is_ok()
            {
                return Ok(());
            }
            if self.world.now_ms >= end {
                let why = holds(&self.world).err().unwrap_or_default();
                return Err(format!("{name} not within {} virtual minutes of healing: {why}", limit_ms / MINUTE));
            }
            self.campaign.forgive(&mut self.world);
        }
    }
}

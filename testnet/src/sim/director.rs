//! Plays a [`Script`]: lets virtual time pass, does what the script says and asks for what it expects, when it says so;
//! then heals the world and demands progress, where the script does.
//!
//! What an act does stands in [`super::acting`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use groundswell_core::number::{Ppm, Sequence};
use groundswell_core::record::status::Running;
use groundswell_core::text::{Pool, RolloutId, Version};

use super::act::Terms;
use super::campaign::Campaign;
use super::checks::liveness::{l1_everybody, l2_returned, l3_heard, l3_stands, l4_slots};
use super::device::{Behaviour, Device};
use super::expect::{Expectation, Sight};
use super::measure::{copies, signed};
use super::operator::{Operator, product};
use super::script::{Scheduled, Script};
use super::span;
use super::world::{Faults, World};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
/// How often it is looked whether a machine lost power by itself.
const LOOK_MS: u64 = 5 * SECOND;
/// Longer than a node keeps all its own links, and finds somebody in place of one.
const MEET_MS: u64 = 20 * MINUTE;

/// What became of a script.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The script's seed.
    pub seed: u64,
    /// Machines, copies included.
    pub machines: u32,
    /// Inputs handled.
    pub steps: u64,
    /// Virtual time that passed, in milliseconds.
    pub virtual_ms: u64,
    /// Upgrades that machines started.
    pub starts: u64,
    /// Records that machines signed.
    pub records: u64,
    /// By the machine that signed most.
    pub published_most: u64,
    /// Records that a machine received ÷ those that were new to it, in the mean over those that are up in the end, since
    /// their last start.
    pub copies: f64,
    /// Frames that machines sent.
    pub frames: u64,
    /// Their bytes.
    pub frame_bytes: u64,
    /// The most machines of each pool that were disrupted at once.
    pub most_disrupted: BTreeMap<Pool, usize>,
    /// A hash over everything that happened.
    pub trace: String,
    /// What was expected and came true, with what the fleet looked like.
    pub told: String,
    /// The guarantee that did not hold, and how.
    pub failure: Option<String>,
}

/// A world, and what is done to it.
#[derive(Debug)]
pub(super) struct Director {
    pub(super) world: World,
    pub(super) campaign: Campaign,
    acts: VecDeque<Scheduled>,
    expected: VecDeque<Expectation>,
    /// What may still become so.
    open: Vec<Expectation>,
    told: String,
    lasts_ms: u64,
    progress: Option<Terms>,
    /// Machines that are off, and when they come back; never by themselves where nothing is said.
    pub(super) off: BTreeMap<u32, Option<u64>>,
    pub(super) snapshots: BTreeMap<u32, Snapshot>,
    /// So many more members of a pool may lie than it tolerates.
    pub(super) beyond: usize,
    forgiven: u32,
}

/// What a machine keeps when its power fails.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) disk: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) device: Device,
}

/// What the machines of a script are set up with.
pub(super) fn first() -> Running {
    Running {
        version: Version::new("1.0.0").expect("a plain version"),
        sequence: Sequence::new(1).expect("a small sequence"),
        release: Digest::of(b"the release that machines came with"),
    }
}

/// What a machine comes with that somebody has set up with more than operators have: it is never to go back from that.
pub(super) fn newest() -> Running {
    Running {
        version: Version::new("1000.0.0").expect("a plain version"),
        sequence: Sequence::new(1_000).expect("a small sequence"),
        release: Digest::of(b"a release that operators do not have"),
    }
}

/// Plays a script to its end.
#[must_use]
pub fn play(script: &Script) -> Outcome {
    play_out(script).1
}

/// The same, with the world as it was in the end: what happened, and how.
#[must_use]
pub fn play_out(script: &Script) -> (World, Outcome) {
    let mut director = Director::new(script);
    let failure = match catch_unwind(AssertUnwindSafe(|| director.play())) {
        Ok(result) => result.err(),
        Err(panic) => Some(told_by(panic.as_ref())),
    };
    let (world, told) = (director.world, director.told);
    let outcome = Outcome {
        seed: script.seed,
        machines: world.count(),
        steps: world.steps,
        virtual_ms: world.now_ms,
        starts: world.starts,
        records: world.machines.iter().map(signed).sum(),
        published_most: world.machines.iter().map(signed).max().unwrap_or(0),
        copies: copies(&world),
        frames: world.frames,
        frame_bytes: world.frame_bytes,
        most_disrupted: world.most_disrupted.clone(),
        trace: world.trace_hash(),
        told,
        failure: failure.or_else(|| world.broken.clone()),
    };
    (world, outcome)
}

fn told_by(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_string()
}

fn unmet(expectation: &Expectation, world: &World) -> String {
    let why = expectation.judge(world).err().unwrap_or_else(|| "the script ends before it is asked for".to_string());
    format!("expected at {}: {}: {why}", span::tell(world.now_ms), expectation.that)
}

impl Director {
    /// The world at the beginning of a script.
    fn new(script: &Script) -> Self {
        let mut operator = Operator::with_rollout_keys(|_| {}, script.rollout_keys);
        for plan in &script.pools {
            let policy = operator.policies.entry(plan.name.clone()).or_default();
            policy.budget_ppm = plan.budget_ppm;
            policy.urgent_budget_ppm = plan.budget_ppm;
            policy.presume_lost_after_seconds = plan.presume_lost_after_ms / SECOND;
            policy.start_within_seconds = plan.start_within_ms / SECOND;
        }
        let pools: Vec<(&str, u32)> = script.pools.iter().map(|plan| (plan.name.as_str(), plan.machines)).collect();
        let mut world = World::with_operator(script.seed, &pools, Some(first()), operator);
        world.loss = script.loss_ppm;
        world.faults = script.faults;
        world.beyond_margin = script.beyond > 0;
        for plan in script.pools.iter().filter(|plan| plan.lean) {
            for index in 0..world.count() {
                if world.machine(index).pool == plan.name {
                    world.machine_mut(index).lean = true;
                    world.stop(index);
                    world.start(index);
                }
            }
        }
        let mut acts = script.acts.clone();
        acts.sort_by_key(|scheduled| scheduled.at_ms);
        let mut expected = script.expect.clone();
        expected.sort_by_key(|expectation| expectation.at_ms);
        Self {
            world,
            campaign: Campaign::default(),
            acts: acts.into(),
            expected: expected.into(),
            open: Vec::new(),
            told: String::new(),
            lasts_ms: script.lasts_ms,
            progress: script.progress.clone(),
            off: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            beyond: script.beyond,
            forgiven: 0,
        }
    }

    fn play(&mut self) -> Result<(), String> {
        loop {
            let act_at = self.acts.front().map_or(u64::MAX, |scheduled| scheduled.at_ms);
            let asked_at = self.expected.front().map_or(u64::MAX, |expectation| expectation.at_ms);
            if act_at.min(asked_at) > self.lasts_ms {
                break;
            }
            // What is expected of an instant is asked for before anything happens then.
            if act_at < asked_at {
                self.pass_until(act_at)?;
                if let Some(Scheduled { act, .. }) = self.acts.pop_front() {
                    self.apply(&act);
                }
            } else {
                self.pass_until(asked_at)?;
                self.open.extend(self.expected.pop_front());
                self.ask()?;
            }
        }
        self.pass_until(self.lasts_ms)?;
        if let Some(left) = self.open.first() {
            return Err(unmet(left, &self.world));
        }
        match self.progress.take() {
            Some(terms) => {
                self.heal();
                self.progress(&terms)
            }
            None => Ok(()),
        }
    }

    /// Lets time pass; machines come back when they are due.
    fn pass_until(&mut self, at_ms: u64) -> Result<(), String> {
        while self.world.now_ms < at_ms {
            let look_ms = if !self.open.is_empty() { SECOND } else { LOOK_MS };
            let look = self.world.now_ms.saturating_add(look_ms);
            let back = self.off.values().flatten().copied().min().unwrap_or(at_ms);
            self.world.run_for(at_ms.min(look).min(back).saturating_sub(self.world.now_ms));
            self.notice_power_losses();
            self.bring_back();
            self.ask()?;
        }
        Ok(())
    }

    /// Asks for what is expected now.
    fn ask(&mut self) -> Result<(), String> {
        let now_ms = self.world.now_ms;
        for expectation in std::mem::take(&mut self.open) {
            if expectation.judge(&self.world).is_ok() {
                self.note(&expectation);
            } else if expectation.until_ms.is_some_and(|until| until > now_ms) {
                self.open.push(expectation);
            } else {
                return Err(unmet(&expectation, &self.world));
            }
        }
        Ok(())
    }

    /// Keeps what came true, for the scenario's golden text: what may become so at any time with the minutes that it
    /// took, what is so at a moment with what the fleet looked like.
    fn note(&mut self, expectation: &Expectation) {
        let Expectation { that, at_ms, until_ms, .. } = expectation;
        if until_ms.is_some() {
            let minutes = (self.world.now_ms - at_ms).div_ceil(MINUTE);
            self.told += &format!("{}: {that}, within {minutes} min\n", span::tell(*at_ms));
        } else {
            self.told += &format!("{}: {that}\n", span::tell(*at_ms));
            for line in Sight::of(&self.world).to_string().lines() {
                self.told += &format!("    {line}\n");
            }
        }
    }

    /// Whoever lost power by itself comes back after a while.
    fn notice_power_losses(&mut self) {
        for index in 0..self.world.count() {
            if self.world.machine(index).node.is_none() && !self.off.contains_key(&index) {
                let most = match self.world.random(3) {
                    0 => 5 * SECOND,
                    1 => MINUTE,
                    _ => 20 * MINUTE,
                };
                let back = self.world.now_ms + self.world.random(most);
                self.off.insert(index, Some(back));
            }
        }
    }

    fn bring_back(&mut self) {
        let now_ms = self.world.now_ms;
        let due = self.off.iter().filter(|(_, at)| at.is_some_and(|at| at <= now_ms)).map(|(index, _)| *index);
        for index in due.collect::<Vec<_>>() {
            self.start(index);
        }
    }

    pub(super) fn start(&mut self, index: u32) {
        if self.world.truth.lost.contains(&self.world.machine(index).id) {
            // It is due no more: time would stand still until it came back.
            self.off.insert(index, None);
            return;
        }
        self.off.remove(&index);
        self.world.start(index);
    }

    /// Faults stop, everybody is up and has the right time; a few days of grace are not needed.
    fn heal(&mut self) {
        self.campaign.heal();
        let world = &mut self.world;
        world.loss = Ppm::ZERO;
        world.faults = Faults::default();
        world.partition(|_| 0);
        world.undeafen();
        world.unclog();
        for index in 0..world.count() {
            world.machine_mut(index).wall_skew = 0;
            world.machine_mut(index).clock_set_ms = world.now_ms;
            world.machine_mut(index).device.broken = false;
            world.machine_mut(index).device.odd.clear();
        }
        for behaviour in world.behaviours.values_mut() {
            *behaviour = Behaviour::Good;
        }
        for index in 0..self.world.count() {
            self.start(index);
        }
        // A crash that was on its way when the world was healed still comes, and nobody is told.
        self.world.run_for(MINUTE);
        for index in 0..self.world.count() {
            self.start(index);
        }
        // The longest sleep drawn, and every wait of a pool that has one.
        self.world.run_for(11 * MINUTE);
        for index in 0..self.world.count() {
            self.world.probe(index);
        }
        self.world.run_for(SECOND);
    }

    /// Machines whose disk is gone, but for those that the mesh can judge by their silence: they said that they are in the
    /// middle of something under the newest rollout.
    fn bury(&mut self, all: bool) {
        let newest = self.campaign.newest().map(|(id, _)| id);
        let silent = |world: &World, id: &NodeId| {
            let machine = world.machines.iter().find(|machine| machine.node.is_some() && !machine.liar);
            let node = machine.and_then(|machine| machine.node.as_ref());
            let section = node.and_then(|node| node.ledger().status(id)?.products.get(&product()));
            section.is_some_and(|section| {
                section.claim.is_some() && section.rollout.as_ref().map(|seen| &seen.id) == newest.as_ref()
            })
        };
        for index in 0..self.world.count() {
            let id = self.world.machine(index).id;
            if self.world.truth.lost.contains(&id) && (all || !silent(&self.world, &id)) {
                self.campaign.bury(&mut self.world, index, 0);
            }
        }
    }

    fn progress(&mut self, terms: &Terms) -> Result<(), String> {
        self.bury(false);
        // While rivals are open wardens may have declared different ones: only a later roster, and a rollout that names it,
        // goes on from there.
        if self.campaign.settle_rivals(&mut self.world) {
            self.campaign.publish(&mut self.world, 0, Behaviour::Good, terms, &[]);
        }
        // What is under way comes to its end once operators forgive what failed.
        if let Some(release) = self.campaign.under_way() {
            self.campaign.resume(&mut self.world, 0);
            self.until(2 * HOUR, "L1", |world| l1_everybody(world, release))?;
        }
        self.bury(true);
        let is_lost = |index: &u32| self.world.truth.lost.contains(&self.world.machine(*index).id);
        let away: BTreeSet<u32> = (0..self.world.count()).filter(|index| index % 5 == 3 && !is_lost(index)).collect();
        for index in &away {
            self.world.stop(*index);
        }
        // Whoever had links to those only finds others first. Halves that were parted until a rollout was aborted, so that
        // nobody has sought a warden in the other one since, meet when one of their nodes exchanges a link.
        self.world.run_for(2 * MINUTE);
        self.world.run_until(MEET_MS, World::is_one_mesh);
        let Some(release) = self.campaign.publish(&mut self.world, 0, Behaviour::Good, terms, &[]) else {
            return Err("nobody is up".to_string());
        };
        self.world.run_for(10 * SECOND);
        let (id, generation) = self.campaign.newest().expect("one was published");
        l3_heard(&self.world, &id, generation).map_err(|why| format!("L3: {why}"))?;
        self.brake(&id)?;
        self.world.run_for(20 * MINUTE);
        for index in &away {
            self.world.start(*index);
        }
        self.until(2 * HOUR, "L2", |world| l2_returned(world, release, &away))?;
        self.until(2 * HOUR, "L1", |world| l1_everybody(world, release))?;
        self.until(5 * MINUTE, "L4", l4_slots)
    }

    /// A pause is heard of by everybody within seconds and stands until what is paused is resumed.
    fn brake(&mut self, id: &RolloutId) -> Result<(), String> {
        self.world.run_for(20 * SECOND);
        self.campaign.pause(&mut self.world, 1);
        self.world.run_for(10 * SECOND);
        let generation = self.campaign.newest().map_or(0, |(_, generation)| generation);
        l3_heard(&self.world, id, generation).map_err(|why| format!("L3: {why}"))?;
        let starts = self.world.starts;
        self.world.run_for(MINUTE);
        l3_stands(&self.world, starts).map_err(|why| format!("L3: {why}"))?;
        self.campaign.resume(&mut self.world, 2);
        Ok(())
    }

    /// Lets time pass until it holds; every five minutes operators forgive what failed, at one machine after the other.
    fn until(&mut self, limit_ms: u64, name: &str, holds: impl Fn(&World) -> Result<(), String>) -> Result<(), String> {
        let end = self.world.now_ms + limit_ms;
        loop {
            if self.world.run_until(5 * MINUTE, |world| world.now_ms.is_multiple_of(19) && holds(world).is_ok())
                || holds(&self.world).is_ok()
            {
                return Ok(());
            }
            if self.world.now_ms >= end {
                let why = holds(&self.world).err().unwrap_or_default();
                return Err(format!("{name} not within {} virtual minutes of healing: {why}", limit_ms / MINUTE));
            }
            self.forgiven = (self.forgiven + 7) % self.world.count();
            self.campaign.forgive(&mut self.world, self.forgiven);
        }
    }
}

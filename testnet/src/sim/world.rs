//! The virtual world: one queue of events, virtual time, machines that run the agents' own core, and S checked after
//! each step. [`super::effects`] does what cores ask for, [`super::network`] carries messages, [`super::checks`] says what
//! must hold.

use std::collections::{BTreeMap, BTreeSet};

use groundswell_core::crypto::{Crypto as _, SoftwareCrypto};
use groundswell_core::digest::Digest;
use groundswell_core::documents::fleet::Limits;
use groundswell_core::documents::rejection::Rejection;
use groundswell_core::limits::PEERS;
use groundswell_core::node::effect::{Accepted, Event};
use groundswell_core::node::input::{Input, Report, Source};
use groundswell_core::node_id::NodeId;
use groundswell_core::number::Ppm;
use groundswell_core::record::status::Running;
use groundswell_core::text::Pool;
use groundswell_core::trust::shelf::Shelf;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

use super::checks::leases::budget_of;
use super::checks::truth::Truth;
use super::device::Behaviour;
use super::liar::Lie;
use super::machine::Machine;
use super::memo::{MemoCrypto, Memory};
use super::operator::{Operator, node_secret, product};
use super::queue::{Coming, Queue};

/// Documents that are kept for who replays them.
const HANDED: usize = 256;
/// Who sleeps for so long, in milliseconds, has not been healthy meanwhile: more than a core needs to notice, whatever its clocks.
const NO_NAP_MS: u64 = 2_000;
/// What the second byte of a frame says: see `docs/PROTOCOL.md`.
pub(super) const FRAME_KINDS: [&str; 6] = ["records", "direct", "announce", "graft", "prune", "sync"];

/// What will happen to a machine.
#[derive(Debug)]
pub(super) enum Due {
    Wake,
    Input(Box<Input>),
    Message { from: u32, connection: u64, input: Box<Input> },
    Gone { from: u32, connection: u64 },
    Connect(u32),
    Roster(Digest),
    Blob(Digest),
    Awake,
    PowerLoss,
    Lie { how: Lie, until_ms: u64, round: u64 },
}

/// Rates of what goes wrong by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Faults {
    /// Least and additional delay of a message, in milliseconds.
    pub delay_ms: (u64, u64),
    /// Share of messages that arrive twice.
    #[serde(rename = "repeated-ppm")]
    pub repeated: Ppm,
    /// Share of inputs after which the power fails between two effects.
    #[serde(rename = "power-in-effects-ppm")]
    pub power_in_effects: Ppm,
    /// Share of device steps before or after which the power fails.
    #[serde(rename = "power-in-steps-ppm")]
    pub power_in_steps: Ppm,
    /// Share of inputs that have a record signed, between whose effects the power fails.
    #[serde(rename = "power-in-words-ppm")]
    pub power_in_words: Ppm,
    /// Share of claims after whose publication the power fails.
    #[serde(rename = "power-in-claims-ppm")]
    pub power_in_claims: Ppm,
    /// Share of stagings that fail.
    #[serde(rename = "staging-ppm")]
    pub staging: Ppm,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            delay_ms: (20, 60),
            repeated: Ppm::ZERO,
            power_in_effects: Ppm::ZERO,
            power_in_steps: Ppm::ZERO,
            power_in_words: Ppm::ZERO,
            power_in_claims: Ppm::ZERO,
            staging: Ppm::ZERO,
        }
    }
}

/// The virtual world.
#[derive(Debug)]
pub struct World {
    /// The fleet's operator.
    pub operator: Operator,
    /// All machines.
    pub machines: Vec<Machine>,
    /// Milliseconds since the beginning.
    pub now_ms: u64,
    /// How releases behave once started, by body digest; good where nothing is said.
    pub behaviours: BTreeMap<Digest, Behaviour>,
    /// Share of messages lost.
    pub loss: Ppm,
    /// What else goes wrong.
    pub faults: Faults,
    /// What was told, with time and machine.
    pub events: Vec<(u64, u32, Event)>,
    /// The most nodes that were disrupted at once, per pool.
    pub most_disrupted: BTreeMap<Pool, usize>,
    /// Answers to what was published here.
    pub answers: Vec<Result<Accepted, Rejection>>,
    /// What really happened, for the checkers.
    pub truth: Truth,
    /// Inputs handled so far.
    pub steps: u64,
    /// Frames sent so far.
    pub frames: u64,
    /// Their bytes.
    pub frame_bytes: u64,
    /// How many of each kind.
    pub(super) frames_by_kind: [u64; FRAME_KINDS.len()],
    /// Times that cores woke by their own wish.
    pub(super) woken: u64,
    /// Dials so far.
    pub(super) dials: u64,
    /// Only what a measurement needs: no trace, no disks, no events, and of the guarantees the budget alone.
    pub(super) quiet: bool,
    /// Machines by the key that they prove: several for copies.
    pub(super) by_id: BTreeMap<NodeId, Vec<u32>>,
    /// Upgrades started so far.
    pub starts: u64,
    seed: u64,
    /// How many machines there were at the beginning.
    founders: u32,
    rng: ChaCha8Rng,
    pub(super) trace: blake3::Hasher,
    pub(super) memory: Memory,
    /// Looks at signatures at the doors of all machines.
    pub(super) verifier: MemoCrypto,
    pub(super) sequence: u64,
    pub(super) queue: Queue,
    /// What is scheduled happens no earlier: before, everybody has been.
    pub(super) not_before_ms: u64,
    /// A measurement: on so many threads.
    abreast: Option<usize>,
    pub(super) wakes: BTreeMap<u32, u64>,
    /// Machines in different groups cannot reach each other.
    pub(super) groups: Vec<u32>,
    /// From, to: nothing arrives, and nobody is told.
    pub(super) deaf: BTreeSet<(u32, u32)>,
    /// When the last message of a link arrives: links are ordered streams.
    pub(super) arrivals: BTreeMap<(u32, u32), u64>,
    /// From, to: the link on which the last arrives that a machine sent before its power was off.
    pub(super) last_words: BTreeMap<(u32, u32), u64>,
    pub(super) budgets: BTreeMap<Pool, u16>,
    pub(super) tickets: BTreeMap<u64, Vec<u8>>,
    /// Machines whose every message takes longer: by how much, until when.
    pub(super) slow: BTreeMap<u32, (u64, u64)>,
    /// Ways on which nothing arrives before this instant.
    pub(super) clogs: BTreeMap<(u32, u32), u64>,
    /// Documents that were handed to some machine, for who replays them.
    pub(super) handed: Vec<Vec<u8>>,
    /// More lie than the design tolerates: a budget that breaks is noted in `broken`, and the run goes on.
    pub(super) beyond_margin: bool,
    pub(super) broken: Option<String>,
    /// Records that a liar keeps to say them again.
    pub(super) kept_records: BTreeMap<u32, Vec<Vec<u8>>>,
    /// Machines whose power fails once the effects under way are run.
    pub(super) power_fails: BTreeSet<u32>,
}

impl World {
    /// A fleet with these pools, everybody on `running`, listed in roster 1.
    #[must_use]
    pub fn new(seed: u64, pools: &[(&str, u32)], running: Option<Running>) -> Self {
        Self::with_limits(seed, pools, running, |_| {})
    }

    /// The same under other guard rails.
    #[must_use]
    pub fn with_limits(seed: u64, pools: &[(&str, u32)], running: Option<Running>, limit: impl FnOnce(&mut Limits)) -> Self {
        Self::with_operator(seed, pools, running, Operator::new(limit))
    }

    /// The same under an operator that has set the pools' policies.
    #[must_use]
    pub fn with_operator(seed: u64, pools: &[(&str, u32)], running: Option<Running>, operator: Operator) -> Self {
        Self::build(seed, pools, running, operator, false)
    }

    /// The same for a measurement: nothing is restarted in it, nothing traced, and of the guarantees S1 is checked.
    #[must_use]
    /// It is played on so many threads; what comes of it does not depend on how many.
    pub fn measured(seed: u64, pools: &[(&str, u32)], running: Option<Running>, operator: Operator, threads: usize) -> Self {
        Self { abreast: Some(threads), ..Self::build(seed, pools, running, operator, true) }
    }

    fn build(seed: u64, pools: &[(&str, u32)], running: Option<Running>, mut operator: Operator, quiet: bool) -> Self {
        let mut machines = Vec::new();
        let mut documents = vec![operator.fleet().to_vec()];
        for (pool, count) in pools {
            for _ in 0..*count {
                let index = u32::try_from(machines.len()).expect("few machines");
                documents.push(operator.admit(index, pool).bytes);
                machines.push(Machine::new(index, index, Pool::new(*pool).expect("a plain name"), running.clone()));
            }
        }
        documents.push(operator.cut_roster().bytes);
        let groups = vec![0; machines.len()];
        let founders = u32::try_from(machines.len()).expect("few machines");
        let memory = Memory::default();
        let mut world = Self {
            operator,
            machines,
            now_ms: 0,
            behaviours: BTreeMap::new(),
            loss: Ppm::ZERO,
            faults: Faults::default(),
            events: Vec::new(),
            most_disrupted: BTreeMap::new(),
            answers: Vec::new(),
            truth: Truth::default(),
            steps: 0,
            quiet,
            by_id: BTreeMap::new(),
            starts: 0,
            frames: 0,
            frame_bytes: 0,
            frames_by_kind: [0; FRAME_KINDS.len()],
            woken: 0,
            dials: 0,
            seed,
            founders,
            rng: Self::dice(seed),
            trace: blake3::Hasher::new(),
            verifier: MemoCrypto::new(&node_secret(0), memory.clone()),
            memory,
            sequence: 0,
            queue: Queue::default(),
            not_before_ms: 0,
            abreast: None,
            wakes: BTreeMap::new(),
            groups,
            deaf: BTreeSet::new(),
            arrivals: BTreeMap::new(),
            last_words: BTreeMap::new(),
            budgets: BTreeMap::new(),
            tickets: BTreeMap::new(),
            slow: BTreeMap::new(),
            clogs: BTreeMap::new(),
            handed: Vec::new(),
            beyond_margin: false,
            broken: None,
            kept_records: BTreeMap::new(),
            power_fails: BTreeSet::new(),
        };
        world.list_everybody();
        for index in 0..world.count() {
            world.by_id.entry(world.machine(index).id).or_default().push(index);
        }
        world.found(documents);
        world
    }

    /// Starts everybody. The first machine verifies the documents, the others begin with what it has verified.
    fn found(&mut self, documents: Vec<Vec<u8>>) {
        if self.founders == 0 {
            return;
        }
        self.start(0);
        let before = self.machine(0).disk.clone();
        for bytes in documents {
            self.input(0, Input::Document { bytes, source: Source::Store });
        }
        let first = self.machine(0);
        let kept = first.disk.iter().filter(|(key, _)| !before.contains_key(*key));
        let kept: Vec<(Vec<u8>, Vec<u8>)> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        let shelf = first.node.as_ref().map(|node| node.shelf().clone());
        for index in 1..self.founders {
            self.start_on(index, shelf.clone());
            self.machine_mut(index).disk.extend(kept.iter().cloned());
        }
    }

    /// A roster lists every machine that there is now, copies aside. While an older one may still count somewhere, a
    /// pool's budget is the larger of both.
    pub(super) fn list_everybody(&mut self) {
        for pool in self.machines.iter().map(|machine| machine.pool.clone()).collect::<BTreeSet<_>>() {
            let listed = self.machines.iter().filter(|machine| machine.pool == pool && machine.key == machine.index).count();
            let policy = self.operator.policies.get(&pool).cloned().unwrap_or_default();
            let budget = self.budgets.entry(pool).or_default();
            *budget = budget_of(listed, policy.budget_ppm).max(*budget);
        }
    }

    /// How many machines there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.machines.len()).expect("few machines")
    }

    /// Adds a machine that no roster lists, with a certificate of its own; switched off.
    pub fn add(&mut self, pool: &str, running: Option<Running>) -> (u32, Vec<u8>) {
        let index = self.count();
        let certificate = self.operator.admit(index, pool).bytes;
        self.machines.push(Machine::new(index, index, Pool::new(pool).expect("a plain name"), running));
        self.by_id.entry(self.machine(index).id).or_default().push(index);
        self.groups.push(0);
        (index, certificate)
    }

    /// Copies a machine with its disk and its device: two live places of one identity. The copy is switched off.
    pub fn clone_machine(&mut self, original: u32) -> u32 {
        let index = self.count();
        let of = self.machine(original);
        let mut copy = Machine::new(index, of.key, of.pool.clone(), None);
        copy.disk = of.disk.clone();
        copy.device = of.device.clone();
        copy.blobs = of.blobs.clone();
        copy.liar = true;
        self.by_id.entry(copy.id).or_default().push(index);
        self.machines.push(copy);
        self.groups.push(0);
        self.machine_mut(original).liar = true;
        index
    }

    /// Switches a machine on; no effect when it is.
    pub fn start(&mut self, index: u32) {
        self.start_on(index, None);
    }

    fn start_on(&mut self, index: u32, documents: Option<Shelf>) {
        if self.machine(index).node.is_some() {
            return;
        }
        // Whoever comes later is told more than one address: by then a machine may be gone for good.
        let addresses = if index < self.founders { 1 } else { 3 };
        let others = (0..self.founders).filter(|other| *other != index).take(addresses);
        // Nobody takes in a whole large fleet: there each is told three others. The next one is among them, so that everybody
        // can be reached from everywhere.
        let scattered = (0..3).map(|step| (index + 1 + step * (self.founders / 3)) % self.founders.max(1));
        let large = usize::try_from(self.founders).is_ok_and(|founders| founders > PEERS);
        let told: Vec<u32> = if large { scattered.collect() } else { others.collect() };
        let bootstrap = told.into_iter().map(|other| format!("sim/{other}")).collect();
        let (fleet, seed, at, memory) = (self.operator.fleet_id(), self.seed, self.now_ms, self.memory.clone());
        let machine = self.machine_mut(index);
        machine.start(fleet, bootstrap, seed, at, memory, documents);
        let address = machine.address();
        let behaviours = self.behaviours.clone();
        let reports = self.machine_mut(index).device.start(&behaviours);
        self.crash_later(index);
        self.run_effects(index);
        self.input(index, Input::Addresses(vec![address]));
        self.later(index, reports);
    }

    /// A version on trial that takes the machine down with it does so again.
    pub(super) fn crash_later(&mut self, index: u32) {
        if let Some(after_ms) = self.machine(index).device.crashes_after(&self.behaviours) {
            self.soon(index, after_ms, Due::PowerLoss);
        }
    }

    /// Power off: the core and everything on its way to it are gone, the disk stays.
    pub fn stop(&mut self, index: u32) {
        let now_ms = self.now_ms;
        let machine = self.machine_mut(index);
        machine.up_before_ms = machine.up_ms(now_ms);
        machine.node = None;
        machine.life += 1;
        machine.asleep_until_ms = 0;
        self.fall_silent(index);
        self.wakes.remove(&index);
    }

    /// The machine sleeps for a while: nothing reaches its agent, its awake clock stands still, its links stay.
    pub fn suspend(&mut self, index: u32, for_ms: u64) {
        if self.machine(index).is_awake() {
            let until = self.now_ms + for_ms;
            let machine = self.machine_mut(index);
            machine.asleep_until_ms = until;
            machine.slept_ms += for_ms;
            // Nobody looks meanwhile.
            if for_ms >= NO_NAP_MS {
                machine.health.healthy_since_ms = machine.health.healthy_since_ms.map(|since| since + for_ms);
            }
            self.schedule(until, index, Due::Awake);
        }
    }

    /// The machine's host pauses it for a while: nothing reaches its agent, and only its wall clock goes on.
    pub fn freeze(&mut self, index: u32, for_ms: u64) {
        if self.machine(index).is_awake() {
            let until = self.now_ms + for_ms;
            let machine = self.machine_mut(index);
            machine.asleep_until_ms = until;
            machine.paused_ms += for_ms;
            self.schedule(until, index, Due::Awake);
        }
    }

    /// Hands a document to one machine's local interface.
    pub fn publish(&mut self, index: u32, bytes: &[u8]) {
        if self.handed.len() < HANDED {
            self.handed.push(bytes.to_vec());
        }
        self.sequence += 1;
        let ticket = self.sequence;
        self.input(index, Input::Document { bytes: bytes.to_vec(), source: Source::Local { ticket } });
    }

    /// Gives one machine an artifact.
    pub fn give_blob(&mut self, index: u32, blob: Digest) {
        self.machine_mut(index).blobs.insert(blob);
        let serves = self.machine(index).blobs.clone();
        self.input(index, Input::Serves(serves));
    }

    /// What the health check of a machine finds now.
    pub fn probe(&mut self, index: u32) {
        let reports = self.machine(index).device.health(500, &self.behaviours);
        self.later(index, reports);
    }

    /// Lets time pass until `done`, asked every 100 ms, at most `limit_ms`. Whether it was done.
    pub fn run_until(&mut self, limit_ms: u64, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now_ms.saturating_add(limit_ms);
        let mut ask_at = self.now_ms;
        loop {
            if self.now_ms >= ask_at {
                if done(self) {
                    return true;
                }
                ask_at = self.now_ms + 100;
            }
            let next = self.queue.first().map(|coming| (coming.at, coming.due.is_own()));
            let Some((at, is_own)) = next.filter(|(at, _)| *at <= end) else {
                self.now_ms = end;
                return done(self);
            };
            self.now_ms = self.now_ms.max(at);
            if let Some(threads) = self.abreast.filter(|_| is_own) {
                self.play_window(at, end, threads);
            } else if let Some(Coming { index, life, due, .. }) = self.queue.take_first()
                && self.machine(index).life == life
                && self.machine(index).node.is_some()
            {
                self.happen(index, due);
            }
        }
    }

    /// Lets `ms` milliseconds pass.
    pub fn run_for(&mut self, ms: u64) {
        self.run_until(ms, |_| false);
    }

    /// One machine.
    #[must_use]
    pub fn machine(&self, index: u32) -> &Machine {
        usize::try_from(index).ok().and_then(|index| self.machines.get(index)).expect("an index of this world")
    }

    /// One machine, to change.
    pub fn machine_mut(&mut self, index: u32) -> &mut Machine {
        usize::try_from(index).ok().and_then(|index| self.machines.get_mut(index)).expect("an index of this world")
    }

    /// A hash over everything that happened so far: equal for equal seeds.
    #[must_use]
    pub fn trace_hash(&self) -> String {
        self.trace.finalize().to_hex().to_string()
    }

    pub(super) fn happen(&mut self, index: u32, due: Due) {
        let asleep_until = self.machine(index).asleep_until_ms;
        if asleep_until > 0 && !matches!(due, Due::Awake) {
            return self.schedule(asleep_until, index, due);
        }
        match due {
            Due::Awake => {
                self.machine_mut(index).asleep_until_ms = 0;
                self.input(index, Input::Wake);
            }
            Due::Wake => {
                if self.wakes.get(&index).is_some_and(|at| *at <= self.now_ms) {
                    self.wakes.remove(&index);
                    self.woken += 1;
                    let now_ms = self.now_ms;
                    self.machine_mut(index).watch_for_spinning(now_ms);
                    self.input(index, Input::Wake);
                }
            }
            Due::Message { from, connection, input } => {
                if self.is_heard(index, from, connection) {
                    self.input(index, *input);
                }
            }
            Due::Gone { from, connection } => self.hears_no_more(index, from, connection),
            Due::Input(input) => self.input(index, *input),
            Due::Connect(other) => self.link(index, other),
            Due::PowerLoss => self.stop(index),
            Due::Lie { how, until_ms, round } => self.lie(index, how, until_ms, round),
            Due::Roster(digest) => self.fetch_roster(index, digest),
            Due::Blob(blob) => self.fetch_blob(index, blob),
        }
    }

    /// Gives one machine's core an input and runs what it asks for.
    pub fn input(&mut self, index: u32, input: Input) {
        let at = self.now_ms;
        if self.machine_mut(index).take(at, input) {
            self.run_effects(index);
        }
    }

    pub(super) fn later(&mut self, index: u32, reports: Vec<(u64, Report)>) {
        for (after, report) in reports {
            self.soon(index, after, Due::Input(Box::new(Input::Device { product: product(), report })));
        }
    }

    pub(super) fn soon(&mut self, index: u32, after_ms: u64, due: Due) {
        self.schedule(self.now_ms + after_ms, index, due);
    }

    pub(super) fn schedule(&mut self, at: u64, index: u32, due: Due) {
        self.sequence += 1;
        let life = self.machine(index).life;
        self.queue.put(Coming { at: at.max(self.not_before_ms), sequence: self.sequence, index, life, due });
    }

    /// Dice of their own, for what is drawn before there is a world.
    pub(super) fn dice(seed: u64) -> ChaCha8Rng {
        let mut seeds = [0; 32];
        seeds[..8].copy_from_slice(&seed.to_le_bytes());
        ChaCha8Rng::from_seed(seeds)
    }

    /// A random number below `bound`; 0 for 0.
    pub fn random(&mut self, bound: u64) -> u64 {
        roll(&mut self.rng, bound)
    }

    /// Whether something with this probability happens.
    pub fn chance(&mut self, share: Ppm) -> bool {
        share > Ppm::ZERO && self.random(1_000_000) < u64::from(share.parts())
    }
}

/// A random number below `bound`; 0 for 0.
pub(super) fn roll(dice: &mut ChaCha8Rng, bound: u64) -> u64 {
    dice.next_u64().checked_rem(bound).unwrap_or(0)
}

/// The id of the machine with the secret number `key`.
pub(super) fn node_id(key: u32) -> NodeId {
    SoftwareCrypto::from_secret(&node_secret(key)).node()
}

//! The virtual world: one queue of events, virtual time, links that delay, lose and part, and S1 checked at every start.

use std::collections::{BTreeMap, BTreeSet};

use groundswell_core::crypto::{Crypto as _, SoftwareCrypto};
use groundswell_core::digest::Digest;
use groundswell_core::documents::fleet::Limits;
use groundswell_core::documents::rejection::Rejection;
use groundswell_core::lease::budget::slots;
use groundswell_core::node::Node;
use groundswell_core::node::admission::admit;
use groundswell_core::node::effect::{Accepted, Effect, Event, Step};
use groundswell_core::node::input::{Input, Report, Source};
use groundswell_core::node_id::NodeId;
use groundswell_core::number::Ppm;
use groundswell_core::record::status::Running;
use groundswell_core::text::Pool;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

use super::device::{Behaviour, Device};
use super::machine::Machine;
use super::operator::{Operator, node_secret, product};

/// Something that will happen to a machine, if it is still in the same life.
#[derive(Debug)]
enum Due {
    Wake,
    Input(Box<Input>),
    Connect(u32),
    Roster(Digest),
    Blob(Digest),
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
    /// What was told, with time and machine.
    pub events: Vec<(u64, u32, Event)>,
    /// The most nodes that were disrupted at once, per pool.
    pub most_disrupted: BTreeMap<Pool, usize>,
    /// Answers to what was published here.
    pub answers: Vec<Result<Accepted, Rejection>>,
    seed: u64,
    rng: ChaCha8Rng,
    sequence: u64,
    queue: BTreeMap<(u64, u64), (u32, u32, Due)>,
    wakes: BTreeMap<u32, u64>,
    /// Machines in different groups cannot reach each other.
    groups: Vec<u32>,
    budgets: BTreeMap<Pool, u16>,
    dialled: BTreeSet<(u32, u32)>,
    tickets: BTreeMap<u64, Vec<u8>>,
}

impl World {
    /// A fleet with these pools, everybody on `running`, listed in roster 1 but not started yet.
    #[must_use]
    pub fn new(seed: u64, pools: &[(&str, u32)], running: Option<Running>) -> Self {
        Self::with_limits(seed, pools, running, |_| {})
    }

    /// The same under other guard rails.
    #[must_use]
    pub fn with_limits(seed: u64, pools: &[(&str, u32)], running: Option<Running>, limit: impl FnOnce(&mut Limits)) -> Self {
        let mut operator = Operator::new(limit);
        let mut machines = Vec::new();
        let mut documents = vec![operator.fleet().to_vec()];
        for (pool, count) in pools {
            for _ in 0..*count {
                let index = u32::try_from(machines.len()).expect("few machines");
                documents.push(operator.admit(index, pool).bytes);
                machines.push(Machine {
                    index,
                    id: node_id(index),
                    pool: Pool::new(*pool).expect("a plain name"),
                    disk: BTreeMap::new(),
                    device: Device::with(running.clone()),
                    blobs: BTreeSet::new(),
                    node: None,
                    life: 0,
                    booted_ms: 0,
                    wall_skew: 0,
                    gossip_seen: BTreeSet::new(),
                    links: BTreeSet::new(),
                });
            }
        }
        let roster = operator.cut_roster();
        documents.push(roster.bytes);
        let groups = vec![0; machines.len()];
        let mut seeds = [0; 32];
        seeds[..8].copy_from_slice(&seed.to_le_bytes());
        let mut world = Self {
            operator,
            machines,
            now_ms: 0,
            behaviours: BTreeMap::new(),
            loss: Ppm::ZERO,
            events: Vec::new(),
            most_disrupted: BTreeMap::new(),
            answers: Vec::new(),
            seed,
            rng: ChaCha8Rng::from_seed(seeds),
            sequence: 0,
            queue: BTreeMap::new(),
            wakes: BTreeMap::new(),
            groups,
            budgets: BTreeMap::new(),
            dialled: BTreeSet::new(),
            tickets: BTreeMap::new(),
        };
        for (pool, count) in pools {
            let pool = Pool::new(*pool).expect("a plain name");
            let policy = world.operator.policies.get(&pool).cloned().unwrap_or_default();
            world.budgets.insert(pool, slots(usize::try_from(*count).expect("few machines"), policy.budget_ppm));
        }
        for index in 0..world.machines.len() {
            let index = u32::try_from(index).expect("few machines");
            world.start(index);
            for bytes in documents.clone() {
                world.input(index, Input::Document { bytes, source: Source::Store });
            }
        }
        world
    }

    /// Switches a machine on.
    pub fn start(&mut self, index: u32) {
        let bootstrap = if index == 0 { vec!["sim/1".to_string()] } else { vec!["sim/0".to_string()] };
        let bootstrap = if self.machines.len() == 1 { Vec::new() } else { bootstrap };
        let (fleet, seed, at) = (self.operator.fleet_id(), self.seed, self.now_ms);
        let machine = self.machine_mut(index);
        machine.start(fleet, bootstrap, seed, at);
        let address = machine.address();
        let device = machine.device.clone();
        let reports = device.start(&self.behaviours);
        self.run_effects(index);
        self.input(index, Input::Addresses(vec![address]));
        self.later(index, reports);
    }

    /// Power off: the core and everything in flight are gone, the disk stays.
    pub fn stop(&mut self, index: u32) {
        let links: Vec<u32> = self.machine(index).links.iter().copied().collect();
        for other in links {
            self.unlink(index, other);
        }
        let machine = self.machine_mut(index);
        machine.node = None;
        machine.life += 1;
        self.wakes.remove(&index);
    }

    /// Puts machines into groups that cannot reach each other.
    pub fn partition(&mut self, group_of: impl Fn(u32) -> u32) {
        self.groups = (0..self.machines.len()).map(|index| group_of(u32::try_from(index).expect("few machines"))).collect();
        let pairs: Vec<(u32, u32)> =
            self.machines.iter().flat_map(|machine| machine.links.iter().map(|other| (machine.index, *other))).collect();
        for (one, other) in pairs {
            if !self.reachable(one, other) {
                self.unlink(one, other);
            }
        }
    }

    /// Hands a document to one machine's local interface.
    pub fn publish(&mut self, index: u32, bytes: &[u8]) {
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
            let Some((&(at, _), _)) = self.queue.first_key_value() else { return done(self) };
            if at > end {
                self.now_ms = end;
                return done(self);
            }
            let ((at, _), (index, life, due)) = self.queue.pop_first().expect("an event was just seen");
            self.now_ms = self.now_ms.max(at);
            if self.machine(index).life == life && self.machine(index).node.is_some() {
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

    fn machine_mut(&mut self, index: u32) -> &mut Machine {
        usize::try_from(index).ok().and_then(|index| self.machines.get_mut(index)).expect("an index of this world")
    }

    fn happen(&mut self, index: u32, due: Due) {
        match due {
            Due::Wake => {
                if self.wakes.get(&index).is_some_and(|at| *at <= self.now_ms) {
                    self.wakes.remove(&index);
                    self.input(index, Input::Wake);
                }
            }
            Due::Input(input) => {
                if let Input::Frame { peer, .. } | Input::Document { source: Source::Gossip { peer, .. }, .. } = &*input {
                    let linked = self.machine(index).links.iter().any(|other| self.machine(*other).id == *peer);
                    if !linked {
                        return;
                    }
                }
                self.input(index, *input);
            }
            Due::Connect(other) => self.link(index, other),
            Due::Roster(digest) => self.fetch_roster(index, digest),
            Due::Blob(blob) => self.fetch_blob(index, blob),
        }
    }

    /// Gives one machine's core an input and runs what it asks for.
    pub fn input(&mut self, index: u32, input: Input) {
        let at = self.now_ms;
        let machine = self.machine_mut(index);
        let now = machine.now(at);
        let Some(node) = &mut machine.node else { return };
        node.handle(now, input);
        self.run_effects(index);
    }

    fn run_effects(&mut self, index: u32) {
        let Some(node) = &mut self.machine_mut(index).node else { return };
        let effects = node.take_effects();
        for effect in effects {
            self.run_effect(index, effect);
        }
        let booted = self.machine(index).booted_ms;
        let Some(node) = &self.machine(index).node else { return };
        if let Some(wakeup) = node.next_wakeup() {
            let at = booted.saturating_add(wakeup.0).max(self.now_ms + 1);
            if self.wakes.get(&index).is_none_or(|known| at < *known) {
                self.wakes.insert(index, at);
                self.schedule(at, index, Due::Wake);
            }
        }
    }

    fn run_effect(&mut self, index: u32, effect: Effect) {
        match effect {
            Effect::Persist { key, value } => {
                let disk = &mut self.machine_mut(index).disk;
                match value {
                    Some(value) => disk.insert(key, value),
                    None => disk.remove(&key),
                };
            }
            Effect::Gossip { bytes } => self.gossip(index, &bytes),
            Effect::Answer { ticket, outcome } => match self.tickets.remove(&ticket) {
                Some(bytes) if outcome.is_ok() => self.gossip(index, &bytes),
                Some(_) => {}
                None => self.answers.push(outcome),
            },
            Effect::Send { peer, bytes } => {
                let Some(other) = self.index_of(&peer) else { return };
                if self.machine(index).links.contains(&other) {
                    let me = self.machine(index).id;
                    self.send(other, Input::Frame { peer: me, bytes });
                }
            }
            Effect::Dial { peer, addresses } => self.dial(index, peer, &addresses),
            Effect::Hangup { peer, .. } => {
                if let Some(other) = self.index_of(&peer) {
                    self.unlink(index, other);
                }
            }
            Effect::FetchRoster { digest, .. } => self.soon(index, 50, Due::Roster(digest)),
            Effect::Device { step, .. } => self.device_step(index, &step),
            Effect::Event(event) => {
                let at = self.now_ms;
                self.events.push((at, index, event));
            }
        }
    }

    fn device_step(&mut self, index: u32, step: &Step) {
        if let Step::Fetch { artifact, .. } = step {
            self.soon(index, 200, Due::Blob(artifact.sha256.into()));
            return;
        }
        let behaviours = self.behaviours.clone();
        let reports = self.machine_mut(index).device.run(step, &behaviours);
        self.check_budget();
        self.later(index, reports);
    }

    /// S1, judged by what the devices do.
    fn check_budget(&mut self) {
        for (pool, budget) in &self.budgets {
            let disrupted = self.machines.iter().filter(|machine| machine.pool == *pool && machine.device.disrupted()).count();
            assert!(disrupted <= usize::from(*budget), "S1: {disrupted} of pool {pool} are disrupted, its budget is {budget}");
            let most = self.most_disrupted.entry(pool.clone()).or_default();
            *most = disrupted.max(*most);
        }
    }

    fn later(&mut self, index: u32, reports: Vec<(u64, Report)>) {
        for (after, report) in reports {
            self.soon(index, after, Due::Input(Box::new(Input::Device { product: product(), report })));
        }
    }

    fn soon(&mut self, index: u32, after_ms: u64, due: Due) {
        self.schedule(self.now_ms + after_ms, index, due);
    }

    fn schedule(&mut self, at: u64, index: u32, due: Due) {
        self.sequence += 1;
        let life = self.machine(index).life;
        self.queue.insert((at, self.sequence), (index, life, due));
    }

    fn gossip(&mut self, index: u32, bytes: &[u8]) {
        let content = Digest::of(bytes);
        self.machine_mut(index).gossip_seen.insert(content);
        let (me, links) = (self.machine(index).id, self.machine(index).links.clone());
        for other in links {
            if self.machine_mut(other).gossip_seen.insert(content) {
                self.sequence += 1;
                let ticket = self.sequence;
                self.tickets.insert(ticket, bytes.to_vec());
                self.send(other, Input::Document { bytes: bytes.to_vec(), source: Source::Gossip { peer: me, ticket } });
            }
        }
    }

    fn send(&mut self, to: u32, input: Input) {
        if self.rng.next_u32() % 1_000_000 < self.loss.parts() {
            return;
        }
        let delay = 20 + u64::from(self.rng.next_u32() % 60);
        self.soon(to, delay, Due::Input(Box::new(input)));
    }

    fn reachable(&self, one: u32, other: u32) -> bool {
        let group = |index: u32| usize::try_from(index).ok().and_then(|index| self.groups.get(index));
        group(one) == group(other) && self.machine(one).node.is_some() && self.machine(other).node.is_some()
    }

    fn dial(&mut self, index: u32, peer: Option<NodeId>, addresses: &[String]) {
        let by_address = || addresses.iter().find_map(|address| address.strip_prefix("sim/")?.parse::<u32>().ok());
        let Some(other) = peer.and_then(|peer| self.index_of(&peer)).or_else(by_address) else { return };
        self.soon(index, 30, Due::Connect(other));
    }

    fn link(&mut self, index: u32, other: u32) {
        if index == other || !self.reachable(index, other) || self.machine(index).links.contains(&other) {
            return;
        }
        if !self.admits(index, other) || !self.admits(other, index) {
            return;
        }
        self.dialled.insert((index, other));
        for (me, you, dialled) in [(index, other, true), (other, index, false)] {
            self.machine_mut(me).links.insert(you);
            let (peer, address) = (self.machine(you).id, dialled.then(|| self.machine(you).address()));
            self.input(me, Input::PeerUp { peer, dialled, address });
        }
    }

    /// Whether one machine lets the other in: the same judgement as at the real door.
    fn admits(&self, index: u32, other: u32) -> bool {
        let (machine, peer) = (self.machine(index), self.machine(other));
        let (Some(node), Some(proof)) = (&machine.node, peer.node.as_ref().and_then(Node::own_proof)) else { return false };
        let crypto = SoftwareCrypto::from_secret(&node_secret(index));
        admit(node.shelf(), &peer.id, proof, machine.now(self.now_ms).wall, &crypto).is_ok()
    }

    fn unlink(&mut self, index: u32, other: u32) {
        for (me, you) in [(index, other), (other, index)] {
            if self.machine_mut(me).links.remove(&you) {
                let peer = self.machine(you).id;
                self.input(me, Input::PeerDown { peer });
            }
        }
    }

    fn fetch_roster(&mut self, index: u32, digest: Digest) {
        let links = self.machine(index).links.clone();
        let found = links.iter().find_map(|other| {
            let node = self.machine(*other).node.as_ref()?;
            Some((self.machine(*other).id, node.shelf().envelope(&digest)?.to_vec()))
        });
        match found {
            Some((peer, bytes)) => self.send(index, Input::Roster { bytes, source: Source::Peer(peer) }),
            None => self.soon(index, 1_000, Due::Roster(digest)),
        }
    }

    fn fetch_blob(&mut self, index: u32, blob: Digest) {
        let held = self.machine(index).blobs.contains(&blob);
        let near = self.machine(index).links.iter().any(|other| self.machine(*other).blobs.contains(&blob));
        if !held && !near {
            return self.soon(index, 1_000, Due::Blob(blob));
        }
        self.give_blob(index, blob);
        self.input(index, Input::Device { product: product(), report: Report::Fetched { sha256: blob } });
    }

    fn index_of(&self, id: &NodeId) -> Option<u32> {
        self.machines.iter().find(|machine| machine.id == *id).map(|machine| machine.index)
    }
}

fn node_id(index: u32) -> NodeId {
    SoftwareCrypto::from_secret(&node_secret(index)).node()
}

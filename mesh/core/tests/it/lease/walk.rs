//! A random walk over a small world: loss, delay, duplication, partitions, crashes, sleep, and lying wardens.
//!
//! After every step: no slot has two holders in `activating`. When the faults stop: everybody gets through.
//! The checker is shown to find something when the quorum is broken on purpose.

use std::collections::BTreeMap;

use groundswell_core::digest::Digest;
use groundswell_core::documents::roster::PoolPolicy;
use groundswell_core::lease::budget::{PoolMap, Slot};
use groundswell_core::lease::claim::SeenClaim;
use groundswell_core::lease::governing::Rosters;
use groundswell_core::lease::presence::{Part, Presence};
use groundswell_core::lease::queue::{Queue, Turn};
use groundswell_core::lease::start::{MadeAt, Start, StartFacts, may_start};
use groundswell_core::lease::synced::Synced;
use groundswell_core::lease::view::{free_slots, slots_of};
use groundswell_core::lease::warden::{Facts, Warden};
use groundswell_core::lease::wardens::Wardens;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::grants::Grants;
use groundswell_core::record::status::{Claim, Phase, Purpose, Status};
use groundswell_core::record::{ClaimName, Stamp};
use groundswell_core::time::{Now, Time, Timestamp};

use super::mesh::{Mesh, edge, node, policy, pool_map, roster, status};

const START_WITHIN_S: u64 = 10;
const PRESUME_LOST_AFTER_S: u64 = 100;
/// An upgrade ends, and a crashed node comes back, within this: start and upgrade stay below half of presumed loss.
const OVER_WITHIN_MS: u64 = 30_000;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }
    fn one_in(&mut self, times: u64) -> bool {
        self.next().is_multiple_of(times)
    }
}

#[derive(Clone)]
enum Body {
    Status(Status),
    Grants(Grants),
}

#[derive(Clone)]
struct Message {
    from: usize,
    to: usize,
    stamp: Stamp,
    body: Body,
}

/// One machine: what survives a crash, and what does not.
struct Machine {
    id: NodeId,
    liar: bool,
    done: bool,
    // Durable.
    own: (Stamp, Status),
    promises: Vec<u8>,
    presence_saved: BTreeMap<Part, Vec<u8>>,
    // In memory.
    down_since: Option<u64>,
    started_at: u64,
    awake_ms: u64,
    warden: Warden,
    grants_stamp: Stamp,
    mesh: Mesh,
    heard_grants: BTreeMap<NodeId, Stamp>,
    presence: Presence,
    synced: Synced,
    queue: Queue,
    made: Option<MadeAt>,
}

struct World {
    random: Random,
    machines: Vec<Machine>,
    air: Vec<Message>,
    map: PoolMap,
    slots: u16,
    clock_ms: u64,
    /// Machines on the same side reach each other.
    side: Vec<bool>,
    /// Broken on purpose: holders start with this many grants too few.
    quorum_cut: usize,
    healing: bool,
    starts: usize,
}

impl World {
    fn new(seed: u64, quorum_cut: usize) -> Self {
        let mut random = Random(seed);
        let count = u8::try_from(4 + random.below(6)).unwrap();
        let slots = u16::try_from(1 + random.below(3)).unwrap();
        let policy = PoolPolicy {
            start_within_seconds: START_WITHIN_S,
            presume_lost_after_seconds: PRESUME_LOST_AFTER_S,
            ..policy(slots, count)
        };
        let map = pool_map(count, policy);
        let mut machines: Vec<Machine> = (0..count).map(|number| Machine::new(node(number))).collect();
        // Liars are drawn from the whole pool, so no slot has more of them among its wardens than may lie.
        let may_lie = map.wardens(&Slot { pool: edge(), number: 0 }).unwrap().may_lie;
        for _ in 0..may_lie {
            let liar = random.below(machines.len());
            machines[liar].liar = true;
        }
        let side = vec![true; machines.len()];
        Self { random, machines, air: Vec::new(), map, slots, clock_ms: 1, side, quorum_cut, healing: false, starts: 0 }
    }

    fn now(&self, at: usize) -> Now {
        Now {
            awake_ms: self.machines[at].awake_ms,
            boot: Time(self.clock_ms),
            wall: Timestamp::from_seconds(self.clock_ms / 1_000),
        }
    }

    fn up(&self, at: usize) -> bool {
        self.machines[at].down_since.is_none()
    }

    fn pass_time(&mut self, ms: u64, asleep: Option<usize>) {
        self.clock_ms += ms;
        for at in 0..self.machines.len() {
            let machine = &mut self.machines[at];
            if asleep != Some(at) && machine.down_since.is_none() {
                machine.awake_ms += ms;
                machine.presence.tick(machine.awake_ms);
                for save in machine.presence.take_saves() {
                    machine.presence_saved.insert(save.part, save.value.unwrap_or_default());
                }
            }
            // The watchdog decides in time, whatever else happens.
            if machine.down_since.is_some_and(|since| self.clock_ms >= since + OVER_WITHIN_MS / 2) {
                self.restart(at);
            }
            let machine = &self.machines[at];
            if machine.activating() && self.clock_ms >= machine.started_at + OVER_WITHIN_MS && self.up(at) {
                self.finish(at);
            }
        }
    }

    fn crash(&mut self, at: usize) {
        self.machines[at].down_since.get_or_insert(self.clock_ms);
    }

    fn restart(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        let mut fresh = Machine::new(machine.id);
        (fresh.liar, fresh.done, fresh.started_at) = (machine.liar, machine.done, machine.started_at);
        fresh.own = machine.own.clone();
        fresh.grants_stamp = machine.grants_stamp;
        fresh.awake_ms = 0;
        fresh.presence_saved = std::mem::take(&mut machine.presence_saved);
        fresh.presence = Presence::restore(0, fresh.presence_saved.clone());
        fresh.promises = machine.promises.clone();
        fresh.warden = if fresh.promises.is_empty() { Warden::default() } else { Warden::from_bytes(&fresh.promises).unwrap() };
        for promise in fresh.warden.promises().cloned().collect::<Vec<_>>() {
            fresh.presence.known(promise.holder, Stamp::default());
        }
        fresh.mesh.statuses.insert(fresh.id, fresh.own.clone());
        fresh.mesh.grants.insert(fresh.id, fresh.warden.record());
        *machine = fresh;
    }

    /// Writes the status of `at`, makes it durable, sends it to everybody.
    fn publish_status(&mut self, at: usize, phase: Phase, claim: Option<Claim>) {
        let machine = &mut self.machines[at];
        machine.own = (next(machine.own.0), status(phase, claim));
        machine.mesh.statuses.insert(machine.id, machine.own.clone());
        let (stamp, status) = machine.own.clone();
        self.send(at, stamp, &Body::Status(status));
    }

    fn send(&mut self, from: usize, stamp: Stamp, body: &Body) {
        for to in 0..self.machines.len() {
            if to != from {
                self.air.push(Message { from, to, stamp, body: body.clone() });
            }
        }
        // Old ones are lost in the end, else the walk delivers nothing but the past.
        let surplus = self.air.len().saturating_sub(100);
        self.air.drain(..surplus);
    }

    fn deliver(&mut self) {
        if self.air.is_empty() {
            return;
        }
        let pick = self.random.below(self.air.len());
        let message = if self.random.one_in(8) { self.air[pick].clone() } else { self.air.swap_remove(pick) };
        let lost = self.random.one_in(5);
        if !lost && self.up(message.to) && self.side[message.from] == self.side[message.to] {
            self.receive(message);
        }
    }

    fn receive(&mut self, message: Message) {
        let liar = self.machines[message.from].liar;
        let from = self.machines[message.from].id;
        let machine = &mut self.machines[message.to];
        match message.body {
            Body::Status(status) => {
                let newer = machine.mesh.statuses.get(&from).is_none_or(|(stamp, _)| *stamp < message.stamp);
                if newer {
                    machine.presence.heard(from, message.stamp);
                    if machine.warden.has_promised(&from) {
                        machine.save_silence_of(&from);
                    }
                    machine.mesh.statuses.insert(from, (message.stamp, status));
                }
            }
            Body::Grants(mut grants) => {
                if liar {
                    // It tells every claimant what that one wants to hear.
                    let claims = SeenClaim::standing(machine.id, &machine.own.1);
                    grants.promises = claims.map(|claim| claim.promise()).collect();
                }
                let newer = machine.heard_grants.get(&from).is_none_or(|stamp| *stamp < message.stamp);
                if newer || liar {
                    machine.heard_grants.insert(from, message.stamp);
                    machine.mesh.grants.insert(from, grants);
                }
            }
        }
    }

    /// Both tell each other all that they know of themselves and of others' status.
    fn sync(&mut self, a: usize, b: usize) {
        if a == b || !self.up(a) || !self.up(b) || self.side[a] != self.side[b] {
            return;
        }
        for (from, to) in [(a, b), (b, a)] {
            let known: Vec<(NodeId, (Stamp, Status))> =
                self.machines[from].mesh.statuses.iter().map(|(id, record)| (*id, record.clone())).collect();
            for (id, (stamp, status)) in known {
                let origin = self.machines.iter().position(|machine| machine.id == id).unwrap();
                if origin != to {
                    self.receive(Message { from: origin, to, stamp, body: Body::Status(status) });
                }
            }
            let body = Body::Grants(self.machines[from].warden.record());
            let stamp = self.machines[from].grants_stamp;
            self.receive(Message { from, to, stamp, body });
            let peer = self.machines[from].id;
            self.machines[to].synced.note(peer);
        }
    }

    fn step_warden(&mut self, at: usize) {
        let rosters = Rosters::new([&self.map]);
        let machine = &mut self.machines[at];
        machine.refresh_silence();
        let claims = machine.mesh.candidates();
        let facts = Facts {
            me: machine.id,
            rosters: &rosters,
            claims: &claims,
            sight: &machine.mesh,
            synced: &machine.synced,
            up_ms: machine.presence.up_ms(),
        };
        let considered = machine.warden.consider(&facts);
        if considered.decisions.is_empty() && !machine.liar {
            return;
        }
        machine.promises = machine.warden.to_bytes();
        let saves: Vec<_> = machine.warden.promises().map(|promise| promise.holder).collect();
        for holder in saves {
            machine.save_silence_of(&holder);
        }
        machine.grants_stamp = next(machine.grants_stamp);
        machine.mesh.grants.insert(machine.id, machine.warden.record());
        let (stamp, body) = (machine.grants_stamp, Body::Grants(machine.warden.record()));
        self.send(at, stamp, &body);
    }

    fn step_holder(&mut self, at: usize) {
        self.machines[at].refresh_silence();
        let now = self.now(at);
        let machine = &self.machines[at];
        let standing = SeenClaim::standing(machine.id, &machine.own.1).next();
        match standing {
            Some(claim) if claim.active => {
                let over = self.healing || self.random.one_in(20);
                over.then(|| self.finish(at));
            }
            Some(claim) => {
                let wardens = self.map.wardens(&claim.slot).unwrap();
                let wardens = Wardens { quorum: wardens.quorum - self.quorum_cut.min(wardens.quorum - 1), ..wardens.clone() };
                let facts = StartFacts {
                    made: machine.made,
                    now,
                    start_within_ms: START_WITHIN_S * 1_000,
                    stopped: false,
                    older_generation: false,
                    wardens: Some(&wardens),
                    synced: machine.synced.enough(&machine.id, &wardens),
                };
                match may_start(&claim, &facts, &machine.mesh) {
                    Start::Yes => {
                        let claim = machine.own.1.products.values().find_map(|section| section.claim.clone());
                        self.machines[at].started_at = self.clock_ms;
                        self.machines[at].queue.won();
                        self.starts += 1;
                        self.publish_status(at, Phase::Activating, claim);
                    }
                    Start::Wait { .. } => {}
                    Start::Withdraw(why) => {
                        let random = self.random.next();
                        if why.pauses() {
                            self.machines[at].queue.lost(now.boot, random);
                        }
                        self.machines[at].made = None;
                        self.publish_status(at, Phase::Staged, None);
                    }
                }
            }
            None if !machine.done => self.try_to_claim(at, now),
            None => {}
        }
    }

    fn try_to_claim(&mut self, at: usize, now: Now) {
        let slot = Slot { pool: edge(), number: 0 };
        let machine = &mut self.machines[at];
        if machine.synced.enough(&machine.id, self.map.wardens(&slot).unwrap()).is_err() {
            return;
        }
        let claims: Vec<SeenClaim> = machine.mesh.candidates().into_iter().map(|candidate| candidate.claim).collect();
        let views = slots_of(&self.map, &edge(), &claims, &machine.mesh);
        let free = free_slots(&views, self.map.pool(&edge()).unwrap(), false);
        assert!(free.iter().all(|number| *number < self.slots));
        let place = machine.id.0[31];
        let ready = |(_, status): &(Stamp, Status)| status.products.values().any(|section| section.phase == Phase::Staged);
        let ahead = machine.mesh.statuses.iter().filter(|(id, record)| id.0[31] < place && ready(record)).count();
        // Safety must not rest on good manners: while faults last, half of the claims ignore how slots look.
        let rude = !self.healing && self.random.one_in(2);
        let any = u16::try_from(self.random.below(usize::from(self.slots))).unwrap();
        let machine = &mut self.machines[at];
        let turn = if rude { Turn::Claim(any) } else { machine.queue.turn(now.boot, ahead, &free) };
        if let Turn::Claim(number) = turn {
            machine.queue.leave();
            machine.made = Some(MadeAt::now(&now));
            let name = ClaimName(next(machine.own.0));
            let purpose = Purpose::Rollout(Digest([9; 32]));
            let nonce = self.random.next();
            let claim = Claim { name, nonce, pool: edge(), slot: Some(number), roster: roster(), purpose };
            self.publish_status(at, Phase::Claiming, Some(claim));
        }
    }

    fn finish(&mut self, at: usize) {
        self.machines[at].done = true;
        self.publish_status(at, Phase::Confirmed, None);
    }

    fn random_step(&mut self) {
        let (at, other) = (self.random.below(self.machines.len()), self.random.below(self.machines.len()));
        match self.random.below(100) {
            0..=59 => self.deliver(),
            60..=71 if self.up(at) => self.step_warden(at),
            72..=83 if self.up(at) => self.step_holder(at),
            84..=90 => self.sync(at, other),
            91..=94 => {
                let ms = self.random.next() % 500;
                let asleep = self.random.one_in(2).then_some(at);
                self.pass_time(ms, asleep);
            }
            95 if self.random.one_in(4) => {
                let ms = self.random.next() % 25_000;
                self.pass_time(ms, None);
            }
            96 => self.crash(at),
            97 => {
                let down: Vec<usize> = (0..self.machines.len()).filter(|at| !self.up(*at)).collect();
                down.into_iter().for_each(|at| self.restart(at));
            }
            98 if self.random.one_in(3) => self.side[at] = !self.side[at],
            99 => self.side.fill(true),
            _ => {}
        }
    }

    /// The slot that two machines are disrupted on, if any.
    fn doubly_held(&self) -> Option<Slot> {
        let mut held: Vec<Slot> = Vec::new();
        for machine in &self.machines {
            for claim in SeenClaim::standing(machine.id, &machine.own.1).filter(|claim| claim.active) {
                if held.contains(&claim.slot) {
                    return Some(claim.slot);
                }
                held.push(claim.slot);
            }
        }
        None
    }

    /// Faults stop: everybody is up and connected. Returns whether all got through.
    fn heals(&mut self) -> bool {
        self.healing = true;
        self.side.fill(true);
        self.air.clear();
        for at in 0..self.machines.len() {
            if !self.up(at) {
                self.restart(at);
            }
        }
        for _ in 0..600 {
            for at in 0..self.machines.len() {
                for other in 0..at {
                    self.sync(at, other);
                }
            }
            for at in 0..self.machines.len() {
                self.step_warden(at);
                self.step_holder(at);
                assert_eq!(self.doubly_held(), None, "while healing");
            }
            self.air.clear();
            self.pass_time(500, None);
            if self.machines.iter().all(|machine| machine.done) {
                return true;
            }
        }
        false
    }
}

impl Machine {
    fn new(id: NodeId) -> Self {
        let own = (Stamp { incarnation: 1, counter: 1 }, status(Phase::Staged, None));
        let mut mesh = Mesh::default();
        mesh.statuses.insert(id, own.clone());
        Self {
            id,
            liar: false,
            done: false,
            own,
            promises: Vec::new(),
            presence_saved: BTreeMap::new(),
            down_since: None,
            started_at: 0,
            awake_ms: 0,
            warden: Warden::default(),
            grants_stamp: Stamp { incarnation: 1, counter: 0 },
            mesh,
            heard_grants: BTreeMap::new(),
            presence: Presence::new(0),
            synced: Synced::default(),
            queue: Queue::default(),
            made: None,
        }
    }

    fn activating(&self) -> bool {
        SeenClaim::standing(self.id, &self.own.1).any(|claim| claim.active)
    }

    fn save_silence_of(&mut self, node: &NodeId) {
        let saves = self.presence.save_now(node).into_iter();
        self.presence_saved.extend(saves.map(|save| (save.part, save.value.unwrap_or_default())));
    }

    fn refresh_silence(&mut self) {
        let nodes: Vec<NodeId> = self.mesh.statuses.keys().copied().collect();
        for node in nodes.into_iter().chain(self.warden.promises().map(|promise| promise.holder)) {
            if let Some(unheard) = self.presence.unheard_ms(&node) {
                self.mesh.unheard_ms.insert(node, unheard);
            }
        }
    }
}

fn next(stamp: Stamp) -> Stamp {
    Stamp { counter: stamp.counter + 1, ..stamp }
}

/// Walks; returns the slot held twice and the step, and how many starts there were.
fn walk(seed: u64, steps: usize, quorum_cut: usize) -> (World, Option<(Slot, usize)>) {
    let mut world = World::new(seed, quorum_cut);
    for step in 0..steps {
        world.random_step();
        if let Some(slot) = world.doubly_held() {
            return (world, Some((slot, step)));
        }
    }
    (world, None)
}

#[test]
fn no_slot_ever_has_two_holders_and_when_faults_stop_everybody_gets_through() {
    let mut starts = 0;
    for seed in 0..150 {
        let (mut world, violation) = walk(seed, 1_500, 0);
        assert_eq!(violation, None, "seed {seed}");
        starts += world.starts;
        assert!(world.heals(), "seed {seed}: somebody never got through");
    }
    assert!(starts > 150, "the walk itself must see starts, not only the healing: {starts}");
}

#[test]
fn the_checker_finds_a_broken_quorum() {
    let found = (0..150).filter(|seed| walk(*seed, 1_500, 1).1.is_some()).count();
    assert!(found > 0, "a quorum that is one short must show");
}

//! A random walk over a small world: loss, delay, duplication, partitions, crashes, sleep, set-back stores, lying wardens,
//! and rosters that change under running leases.
//!
//! After every step: no slot has two holders in `activating`, and nobody starts beside one whose slot its roster lost. When
//! the faults stop: everybody gets through. The checker is shown to find something when a rule is broken on purpose.

mod charter;
mod judge;
mod machine;

use std::collections::BTreeSet;

use groundswell_core::digest::Digest;
use groundswell_core::lease::budget::Slot;
use groundswell_core::lease::claim::SeenClaim;
use groundswell_core::lease::governing::Rosters;
use groundswell_core::lease::handover::{Handover, Reader};
use groundswell_core::lease::queue::Turn;
use groundswell_core::lease::sight::Gone;
use groundswell_core::lease::start::{MadeAt, Start, StartFacts, may_start};
use groundswell_core::lease::view::{free_slots, slots_of};
use groundswell_core::lease::warden::Facts;
use groundswell_core::lease::wardens::Wardens;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::grants::Grants;
use groundswell_core::record::status::{Claim, Phase, Purpose, Status};
use groundswell_core::record::{ClaimName, Stamp};
use groundswell_core::time::{Now, Time, Timestamp};

use self::charter::{Charter, Kind};
use self::machine::{Machine, next};
use super::mesh::{edge, node, status};

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

/// What a walk is about, and what is broken in it on purpose.
#[derive(Clone, Copy, Default)]
struct Plan {
    /// Rosters change.
    changes: bool,
    /// Holders start with this many grants too few.
    quorum_cut: usize,
    /// Liars beyond what a slot tolerates.
    more_liars: usize,
    /// Rosters call settled what is not.
    careless: bool,
}

struct World {
    random: Random,
    plan: Plan,
    machines: Vec<Machine>,
    air: Vec<Message>,
    charter: Charter,
    clock_ms: u64,
    /// Machines on the same side reach each other.
    side: Vec<bool>,
    healing: bool,
    starts: usize,
}

impl World {
    fn new(seed: u64, plan: Plan) -> Self {
        let mut random = Random(seed);
        let count = u8::try_from(4 + random.below(if plan.changes { 9 } else { 6 })).unwrap();
        let slots = u16::try_from(1 + random.below(3)).unwrap();
        let mut machines: Vec<Machine> = (0..count).map(|number| Machine::new(node(number))).collect();
        let listed = if plan.changes { usize::from(count).div_ceil(2).max(4) } else { usize::from(count) };
        let ids: Vec<NodeId> = machines.iter().take(listed).map(|machine| machine.id).collect();
        // As many liars as every roster of the walk tolerates, drawn from all machines.
        let (liars, least) = if ids.len() >= 7 && random.one_in(2) { (2, 7) } else { (1, 4) };
        for _ in 0..liars + plan.more_liars {
            let liar = random.below(machines.len());
            machines[liar].liar = true;
        }
        let charter = Charter::first(&ids, slots, least, plan.careless);
        let first = charter.cuts[0].map.roster();
        for machine in &mut machines {
            machine.rosters.insert(first);
        }
        let side = vec![true; machines.len()];
        Self { random, plan, machines, air: Vec::new(), charter, clock_ms: 1, side, healing: false, starts: 0 }
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
            if machine.down_since.is_some_and(|since| self.clock_ms >= since + OVER_WITHIN_MS / 2) && !machine.retired {
                machine.restart();
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

    /// Its promises go back to an older state. It notices, for whoever heard its later records tells it, and waits.
    fn set_back(&mut self, at: usize) {
        let machine = &self.machines[at];
        let Some((stamp, promises)) = machine.backup.clone() else { return };
        let id = machine.id;
        let heard = self.machines.iter().enumerate().filter(|(other, _)| *other != at);
        let newest = heard.filter_map(|(_, other)| Some((*other.heard_grants.get(&id)?, other.mesh.grants.get(&id)?.clone())));
        let Some((newer, grants)) = newest.max_by_key(|(stamp, _)| *stamp).filter(|(newer, _)| *newer > stamp) else { return };
        if machine.activating() || machine.liar {
            return;
        }
        let machine = &mut self.machines[at];
        machine.promises = promises;
        machine.restart();
        machine.warden.set_back(Some(&grants), machine.presence.up_ms(), Some(PRESUME_LOST_AFTER_S * 1_000));
        machine.promises = machine.warden.to_bytes();
        machine.grants_stamp = Stamp { incarnation: newer.incarnation + 1, counter: 0 };
        self.publish_status(at, Phase::Staged, None);
        self.publish_grants(at);
    }

    /// Writes the status of `at`, makes it durable, sends it to everybody.
    fn publish_status(&mut self, at: usize, phase: Phase, claim: Option<Claim>) {
        let machine = &mut self.machines[at];
        machine.own = (next(machine.own.0), status(phase, claim));
        machine.mesh.statuses.insert(machine.id, machine.own.clone());
        let (stamp, status) = machine.own.clone();
        self.send(at, stamp, &Body::Status(status));
    }

    fn publish_grants(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        machine.grants_stamp = next(machine.grants_stamp);
        machine.mesh.grants.insert(machine.id, machine.warden.record());
        let (stamp, body) = (machine.grants_stamp, Body::Grants(machine.warden.record()));
        self.send(at, stamp, &body);
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
        let any = self.random.below(self.charter.cuts.len());
        let some = self.charter.cuts[any].map.roster();
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
                    // It tells every claimant what that one wants to hear, and declares whatever suits.
                    let claims = SeenClaim::standing(machine.id, &machine.own.1);
                    grants.promises = claims.map(|claim| claim.promise()).collect();
                    grants.declared = machine.warden.declared().filter(|_| any.is_multiple_of(2)).or(Some(some));
                }
                let newer = machine.heard_grants.get(&from).is_none_or(|stamp| *stamp < message.stamp);
                if newer || liar {
                    machine.heard_grants.insert(from, message.stamp);
                    machine.mesh.grants.insert(from, grants);
                }
            }
        }
    }

    /// Both tell each other all that they know of themselves, of others' status, and of rosters.
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
            for roster in self.machines[from].rosters.clone() {
                self.learn(to, roster);
            }
        }
    }

    /// A roster arrives.
    fn learn(&mut self, at: usize, roster: Digest) {
        let machine = &mut self.machines[at];
        if !machine.rosters.insert(roster) {
            return;
        }
        let known = self.charter.cuts.iter().filter(|cut| machine.rosters.contains(&cut.map.roster()));
        let newest = known.max_by_key(|cut| (cut.map.version(), cut.map.roster())).unwrap();
        let up_ms = machine.presence.up_ms();
        for gone in &newest.removed {
            machine.mesh.gone.insert(*gone, Gone::Removed);
            machine.departed.entry(*gone).or_insert(up_ms);
        }
    }

    /// What `ask` makes of the rosters that `at` knows.
    fn with_rosters<T>(&self, at: usize, ask: impl FnOnce(&Machine, &Rosters<'_>) -> T) -> T {
        let machine = &self.machines[at];
        let known = self.charter.cuts.iter().map(|cut| &cut.map).filter(|map| machine.rosters.contains(&map.roster()));
        ask(machine, &Rosters::new(known))
    }

    /// An operator cuts one more roster and brings it to one machine.
    fn cut(&mut self, kind: Kind) {
        let at = self.random.below(self.machines.len());
        let newest = self.charter.newest()[0].map.roster();
        if !self.up(at) || !self.machines[at].rosters.contains(&newest) {
            return;
        }
        self.machines[at].refresh_silence();
        let under = self.charter.newest()[0].map.clone();
        let settled = self.with_rosters(at, |machine, rosters| {
            let own = machine.warden.record();
            let reader = Reader { me: machine.id, own: &own, rosters, sight: &machine.mesh, synced: &machine.synced };
            Handover::to(&under, reader).settled().0
        });
        // Of rivals the lower answer would count; this operator asks only where there is one body.
        let settled = (self.charter.newest().len() == 1).then_some(settled);
        let spare: Vec<NodeId> = self.machines.iter().filter(|machine| !machine.retired).map(|machine| machine.id).collect();
        let leaves = self.random.below(self.machines.len());
        let may = !self.charter.has_rivals() && matches!(kind, Kind::Next { .. }) && leaves != at && !self.machines[leaves].liar;
        let leaves = Some(leaves)
            .filter(|leaves| may && !self.healing && self.random.one_in(3) && self.charter.may_leave(&self.machines[*leaves].id));
        let retired = leaves.map(|leaves| self.machines[leaves].id);
        let Some(cut) = self.charter.cut(&mut self.random, kind, settled, &spare, retired) else { return };
        if let Some(leaves) = leaves {
            // Only a machine that is off is retired.
            self.crash(leaves);
            self.machines[leaves].retired = true;
        }
        self.learn(at, cut);
    }

    fn step_warden(&mut self, at: usize) {
        self.machines[at].refresh_silence();
        let mut warden = std::mem::take(&mut self.machines[at].warden);
        let considered = self.with_rosters(at, |machine, rosters| {
            let claims = machine.mesh.candidates();
            let facts = Facts {
                me: machine.id,
                rosters,
                claims: &claims,
                sight: &machine.mesh,
                synced: &machine.synced,
                up_ms: machine.presence.up_ms(),
            };
            warden.consider(&facts)
        });
        let machine = &mut self.machines[at];
        machine.warden = warden;
        if considered.decisions.is_empty() && !machine.liar {
            return;
        }
        machine.promises = machine.warden.to_bytes();
        let saves: Vec<_> = machine.warden.promises().map(|promise| promise.holder).collect();
        for holder in saves {
            machine.save_silence_of(&holder);
        }
        self.publish_grants(at);
    }

    fn step_holder(&mut self, at: usize) {
        self.machines[at].refresh_silence();
        let now = self.now(at);
        let machine = &self.machines[at];
        let waits = machine.warden.holder_waits_ms(machine.presence.up_ms()).is_some();
        let done = machine.done;
        let standing = SeenClaim::standing(machine.id, &machine.own.1).next();
        match standing {
            Some(claim) if claim.active => {
                let over = self.healing || self.random.one_in(20);
                over.then(|| self.finish(at));
            }
            Some(_) if waits => self.publish_status(at, Phase::Staged, None),
            Some(claim) => self.go_on(at, now, &claim),
            None if !done && !waits => self.try_to_claim(at, now),
            None => {}
        }
    }

    /// Starts, waits, or withdraws.
    fn go_on(&mut self, at: usize, now: Now, claim: &SeenClaim) {
        let map = self.charter.get(&claim.roster).map(|cut| cut.map.clone()).unwrap();
        let Some(wardens) = map.wardens(&claim.slot) else { return self.publish_status(at, Phase::Staged, None) };
        let wardens = Wardens { quorum: wardens.quorum - self.plan.quorum_cut.min(wardens.quorum - 1), ..wardens.clone() };
        let start = self.with_rosters(at, |machine, rosters| {
            let newest = rosters.to_claim_under(&edge(), machine.warden.declared(), &machine.mesh);
            let facts = StartFacts {
                made: machine.made,
                now,
                start_within_ms: START_WITHIN_S * 1_000,
                stopped: false,
                older_generation: false,
                roster_moved: newest.is_some_and(|newest| newest.roster() != claim.roster),
                wardens: Some(&wardens),
                synced: machine.synced.enough(&machine.id, &wardens),
            };
            may_start(claim, &facts, &machine.mesh)
        });
        match start {
            Start::Yes => {
                let claim = self.machines[at].own.1.products.values().find_map(|section| section.claim.clone());
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

    fn try_to_claim(&mut self, at: usize, now: Now) {
        let claims: Vec<SeenClaim> = self.machines[at].mesh.candidates().into_iter().map(|candidate| candidate.claim).collect();
        let found = self.with_rosters(at, |machine, rosters| {
            let map = rosters.to_claim_under(&edge(), machine.warden.declared(), &machine.mesh)?;
            machine.synced.enough(&machine.id, map.wardens(&Slot { pool: edge(), number: 0 })?).ok()?;
            let views = slots_of(map, &edge(), &claims, &machine.mesh);
            let mut free = free_slots(&views, map.pool(&edge())?, false);
            let own = machine.warden.record();
            let reader = Reader { me: machine.id, own: &own, rosters, sight: &machine.mesh, synced: &machine.synced };
            let handover = Handover::to(map, reader);
            free.retain(|number| handover.opens(&Slot { pool: edge(), number: *number }).is_ok());
            Some((map.roster(), free))
        });
        // Safety must not rest on good manners: while faults last, many claims ignore how slots look, or under which roster.
        let rude = !self.healing && self.random.one_in(if self.plan.changes { 4 } else { 2 });
        let any_roster = self.charter.cuts[self.random.below(self.charter.cuts.len())].map.roster();
        let any_slot = u16::try_from(self.random.below(3)).unwrap();
        let machine = &mut self.machines[at];
        let place = machine.id.0[31];
        let ready = |(_, status): &(Stamp, Status)| status.products.values().any(|section| section.phase == Phase::Staged);
        let ahead = machine.mesh.statuses.iter().filter(|(id, record)| id.0[31] < place && ready(record)).count();
        let (turn, roster) = match found {
            _ if rude => (Turn::Claim(any_slot), any_roster),
            Some((roster, free)) => (machine.queue.turn(now.boot, ahead, &free), roster),
            None => return,
        };
        if let Turn::Claim(number) = turn {
            machine.queue.leave();
            machine.made = Some(MadeAt::now(&now));
            let name = ClaimName(next(machine.own.0));
            let purpose = Purpose::Rollout(Digest([9; 32]));
            let nonce = self.random.next();
            let claim = Claim { name, nonce, pool: edge(), slot: Some(number), roster, purpose };
            self.publish_status(at, Phase::Claiming, Some(claim));
        }
    }

    fn finish(&mut self, at: usize) {
        self.machines[at].done = true;
        self.publish_status(at, Phase::Confirmed, None);
    }

    fn random_step(&mut self) {
        let (at, other) = (self.random.below(self.machines.len()), self.random.below(self.machines.len()));
        match self.random.below(104) {
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
                let down = self.machines.iter_mut().filter(|machine| machine.down_since.is_some() && !machine.retired);
                down.for_each(Machine::restart);
            }
            98 if self.random.one_in(3) => self.side[at] = !self.side[at],
            99 => self.side.fill(true),
            100 if self.up(at) => {
                let machine = &mut self.machines[at];
                machine.backup = Some((machine.grants_stamp, machine.promises.clone()));
            }
            101 if self.random.one_in(4) => self.set_back(at),
            102..=103 if self.plan.changes && self.random.one_in(10) => {
                let kind = if self.random.one_in(4) { Kind::Rival } else { Kind::Next { all: !self.random.one_in(5) } };
                self.cut(kind);
            }
            _ => {}
        }
    }

    /// Faults stop: everybody is up and connected, and of rivals the next roster names both. Whether all got through.
    fn heals(&mut self) -> bool {
        self.healing = true;
        self.side.fill(true);
        self.air.clear();
        for machine in self.machines.iter_mut().filter(|machine| machine.down_since.is_some() && !machine.retired) {
            machine.restart();
        }
        for round in 0..1_200 {
            for at in 0..self.machines.len() {
                for other in 0..at {
                    self.sync(at, other);
                }
            }
            if round > 5 && self.charter.newest().len() > 1 {
                self.cut(Kind::Next { all: true });
            }
            for at in (0..self.machines.len()).filter(|at| self.machines[*at].down_since.is_none()).collect::<Vec<_>>() {
                self.step_warden(at);
                self.step_holder(at);
                assert_eq!(self.violation(), None, "while healing");
            }
            self.air.clear();
            self.pass_time(500, None);
            if self.machines.iter().all(|machine| machine.done || machine.retired) {
                return true;
            }
        }
        false
    }
}

/// Walks; returns what broke the budget, and at which step.
fn walk(seed: u64, steps: usize, plan: Plan) -> (World, Option<(String, usize)>) {
    let mut world = World::new(seed, plan);
    for step in 0..steps {
        world.random_step();
        if let Some(what) = world.violation() {
            return (world, Some((what, step)));
        }
    }
    (world, None)
}

fn found(seeds: std::ops::Range<u64>, plan: Plan) -> usize {
    seeds.filter(|seed| walk(*seed, 1_500, plan).1.is_some()).count()
}

#[test]
fn no_slot_ever_has_two_holders_and_when_faults_stop_everybody_gets_through() {
    let mut starts = 0;
    for seed in 0..150 {
        let (mut world, violation) = walk(seed, 1_500, Plan::default());
        assert_eq!(violation, None, "seed {seed}");
        starts += world.starts;
        assert!(world.heals(), "seed {seed}: somebody never got through");
    }
    assert!(starts > 150, "the walk itself must see starts, not only the healing: {starts}");
}

#[test]
fn nor_while_rosters_change_with_rivals_joins_leaves_and_budgets() {
    let (mut starts, mut cuts, mut under_newer) = (0, 0, BTreeSet::new());
    for seed in 0..300 {
        let (mut world, violation) = walk(seed, 2_500, Plan { changes: true, ..Plan::default() });
        assert_eq!(violation, None, "seed {seed}");
        starts += world.starts;
        cuts += world.charter.cuts.len();
        let claims = world.machines.iter().filter_map(|machine| SeenClaim::standing(machine.id, &machine.own.1).next());
        under_newer.extend(claims.filter_map(|claim| Some(world.charter.get(&claim.roster)?.map.version())));
        // Whoever declared a rival that the next version leaves out is stuck: an operator's error, and no progress is owed.
        let through = world.charter.left_out || world.heals();
        assert!(through, "seed {seed}: somebody never got through\n{}", world.standing());
    }
    assert!(starts > 300 && cuts > 900, "the walk must see starts and changes: {starts} starts, {cuts} rosters");
    assert!(under_newer.len() >= 4, "and claims under many versions: {under_newer:?}");
}

#[test]
fn the_checker_finds_a_broken_quorum_one_liar_too_many_and_a_careless_settled() {
    assert!(found(0..150, Plan { quorum_cut: 1, ..Plan::default() }) > 0, "a quorum that is one short must show");
    assert!(found(0..150, Plan { more_liars: 2, ..Plan::default() }) > 0, "as must liars beyond the bound");
    let careless = Plan { changes: true, careless: true, ..Plan::default() };
    assert!(found(0..400, careless) > 0, "and a roster that calls settled what is not (case D27)");
}

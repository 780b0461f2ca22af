//! What operators do in a script: publish, pause, resume, forgive, abort, supersede, retire, each at one machine.

use std::collections::BTreeSet;

use groundswell_core::digest::Digest;
use groundswell_core::documents::rollout::{Forgiven, Rollout, State};
use groundswell_core::node::input::{Input, Source};
use groundswell_core::node::view::{NodeRow, Standing};
use groundswell_core::number::Ppm;
use groundswell_core::text::{Pool, Reason, RolloutId};
use groundswell_core::time::Timestamp;

use super::act::{Odd, Terms};
use super::device::Behaviour;
use super::operator::{BEGINNING, Published};
use super::world::World;

/// For how long at least a rollout goes on that is resumed, in seconds.
const EXTENDED_SECONDS: u64 = 30 * 86_400;

/// Rosters that are cut before the world is healed: well within what may lie between a roster and the settled one.
const MOST_ROSTERS: usize = 12;

/// One rollout with everything that was signed for it.
#[derive(Clone, Debug)]
struct Signed {
    rollout: Rollout,
    release: Vec<u8>,
    artifact: Digest,
    generations: Vec<Vec<u8>>,
}

/// Everything that the operators have signed.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    rollouts: Vec<Signed>,
    retirements: Vec<Vec<u8>>,
    /// Every roster but the fleet's first, oldest first.
    rosters: Vec<Published>,
    /// Two rosters of one version are out, and no later one names both.
    rivals_open: bool,
    /// The rosters that ever had a rival: nobody declares them.
    undeclared: BTreeSet<Digest>,
    /// The world was healed: operators also give up those that lied.
    last: bool,
}

impl Campaign {
    /// The newest rollout and its newest generation.
    #[must_use]
    pub fn newest(&self) -> Option<(RolloutId, u64)> {
        self.rollouts.last().map(|signed| (signed.rollout.id.clone(), signed.rollout.generation.get()))
    }

    /// The release of the newest rollout, unless it was aborted.
    #[must_use]
    pub fn under_way(&self) -> Option<Digest> {
        let newest = self.rollouts.last().filter(|signed| signed.rollout.state != State::Aborted)?;
        Some(newest.rollout.release.digest)
    }

    /// The world is being healed: from now on operators also give up those that lied.
    pub fn heal(&mut self) {
        self.last = true;
    }

    /// A new release, and a rollout of it; the release's digest, unless nobody is up to take it.
    pub fn publish(
        &mut self,
        world: &mut World,
        at_machine: u32,
        behaviour: Behaviour,
        terms: &Terms,
        odd: &[Odd],
    ) -> Option<Digest> {
        let at = somebody(world, at_machine)?;
        self.set_clock(world);
        let sequence = self.rollouts.len() as u64 + 2;
        let version = format!("{sequence}.0.0");
        let (release, body) = world.operator.release(&version, sequence, version.as_bytes());
        let mut rollout = world.operator.rollout(&format!("rollout-{sequence}"), &release, &body);
        terms.apply(&mut rollout);
        world.behaviours.insert(release.digest, behaviour);
        world.truth.releases.insert(release.digest, body.sequence);
        let count = world.count();
        for Odd { machine, behaviour } in odd.iter().filter(|odd| odd.machine < count) {
            world.machine_mut(*machine).device.odd.insert(release.digest, *behaviour);
        }
        let artifact = Digest::of(version.as_bytes());
        let signed = world.operator.sign_rollout(&rollout);
        let signed = Signed { rollout, release: release.bytes, artifact, generations: vec![signed.bytes] };
        self.rollouts.push(signed);
        self.bring(world, at);
        Some(release.digest)
    }

    /// Hands everything of the newest rollout to one machine.
    fn bring(&self, world: &mut World, at: u32) {
        let Some(signed) = self.rollouts.last().cloned() else { return };
        world.give_blob(at, signed.artifact);
        world.publish(at, &signed.release);
        for generation in signed.generations.iter().rev().take(2).rev() {
            world.publish(at, generation);
        }
        // The one that it names, with all that came before that one.
        let mut named = BTreeSet::from([signed.rollout.roster.digest]);
        for roster in self.rosters.iter().rev() {
            if let Some(body) = world.operator.rosters.get(&roster.digest).filter(|_| named.contains(&roster.digest)) {
                named.extend(&body.previous);
            }
        }
        for Published { bytes, digest } in self.rosters.clone() {
            if named.contains(&digest) {
                world.input(at, Input::Roster { bytes, source: Source::Store });
            }
        }
        for retirement in self.retirements.clone() {
            world.publish(at, &retirement);
        }
    }

    /// Pauses what runs.
    pub fn pause(&mut self, world: &mut World, at_machine: u32) {
        if self.state() == Some(State::Running) {
            self.next(world, at_machine, |next| {
                next.state = State::Paused;
                next.reason = Reason::lossy("lunch");
            });
        }
    }

    /// Resumes what is paused; hands everything to somebody again.
    pub fn resume(&mut self, world: &mut World, at_machine: u32) {
        if self.state() != Some(State::Aborted) {
            self.next(world, at_machine, |next| next.state = State::Running);
        }
    }

    /// Aborts what is not aborted yet.
    pub fn abort(&mut self, world: &mut World, at_machine: u32, rollback: bool) {
        if self.state() != Some(State::Aborted) {
            self.next(world, at_machine, |next| {
                next.state = State::Aborted;
                next.rollback = rollback;
            });
        }
    }

    /// Two operators sign the next generation at once: two bodies under one number (case D7). One pauses; so does the other,
    /// unless it lets the rollout go on. The generation after that names either.
    pub fn disagree(&mut self, world: &mut World, at_machine: u32, and_machine: u32, goes_on: bool) {
        let Some(signed) = self.rollouts.last().filter(|signed| signed.rollout.state == State::Running) else { return };
        let one_key = world.operator.one_key();
        let other = world.operator.next(&signed.rollout, |next| {
            if !goes_on {
                next.keys = one_key;
                next.state = State::Paused;
            }
            next.reason = Reason::lossy("the other operator's lunch");
        });
        let bytes = world.operator.sign_rollout(&other).bytes;
        if let Some(at) = somebody(world, and_machine) {
            world.publish(at, &bytes);
        }
        self.pause(world, at_machine);
    }

    fn state(&self) -> Option<State> {
        Some(self.rollouts.last()?.rollout.state)
    }

    /// Forgives, by name, what some machine sees as failed; those nodes try again.
    pub fn forgive(&mut self, world: &mut World, at_machine: u32) {
        let Some((id, _)) = self.newest() else { return };
        let Some(at) = somebody(world, at_machine) else { return };
        let views = world.machine(at).node.as_ref().map(|node| node.rollouts(world.machine(at).now(world.now_ms)));
        let Some(view) = views.unwrap_or_default().into_iter().find(|view| view.id == id.to_string()) else {
            return self.bring(world, at);
        };
        let failed = view.nodes.iter().filter(|row| row.standing == Standing::Failed);
        let mut failed: Vec<Forgiven> = failed.map(|row| Forgiven { node: row.node, claim: row.claim, retry: true }).collect();
        if self.last {
            self.give_up(world, at, &view.nodes, &mut failed);
        }
        let aborted = self.rollouts.last().is_some_and(|signed| signed.rollout.state == State::Aborted);
        if failed.is_empty() || aborted {
            return self.bring(world, at);
        }
        for machine in &mut world.machines {
            let named = failed.iter().filter(|entry| entry.node == machine.id).filter_map(|entry| entry.claim).max();
            let Some(named) = named else { continue };
            machine.disruption.written_off |= machine.kept_claim().is_none_or(|claim| claim <= named);
        }
        for entry in &failed {
            world.truth.out_of_counts.insert((id.clone(), entry.node));
        }
        self.next(world, at, |next| {
            next.state = State::Running;
            for entry in failed {
                next.forgiven.retain(|known| known.node != entry.node || known.claim != entry.claim);
                next.forgiven.push(entry);
            }
            next.forgiven.sort_by_key(|entry| (entry.node, entry.claim));
        });
    }

    /// Names those who lied and those whose disk is gone with the newest claim that is known of them: their slots are free
    /// again (section 7, rule 5), and whatever they have not done is out of the counts.
    fn give_up(&self, world: &World, at: u32, rows: &[NodeRow], failed: &mut Vec<Forgiven>) {
        let Some(node) = &world.machine(at).node else { return };
        let named = self.rollouts.last().map(|signed| signed.rollout.forgiven.as_slice()).unwrap_or_default();
        for machine in world.machines.iter().filter(|it| (it.liar || world.truth.lost.contains(&it.id)) && it.key == it.index) {
            let row = rows.iter().find(|row| row.node == machine.id);
            let sections = node.ledger().statuses_kept(&machine.id).flat_map(|status| status.products.values());
            let newest = sections.filter_map(|section| Some(section.claim.as_ref()?.name)).max();
            let claim = newest.max(row.and_then(|row| row.claim));
            let over = |row: &NodeRow| matches!(row.standing, Standing::Soaked | Standing::Forgiven | Standing::Failed);
            let undone = row.is_some_and(|row| !over(row));
            let unnamed = claim.is_some() && !named.iter().any(|entry| entry.node == machine.id && entry.claim >= claim);
            // The mesh finds out by itself that a machine is silent.
            let names = if machine.liar { undone || unnamed } else { unnamed && !undone };
            if names {
                failed.retain(|entry| entry.node != machine.id);
                failed.push(Forgiven { node: machine.id, claim, retry: true });
            }
        }
    }

    /// Cuts the next roster from every certificate.
    pub fn cut_roster(&mut self, world: &mut World) {
        // The tools would ask for older ones to be settled first; here none ever is.
        if self.rosters.len() >= MOST_ROSTERS && !self.last {
            return;
        }
        self.set_clock(world);
        self.rosters.push(world.operator.cut_roster());
        self.rivals_open = false;
        world.list_everybody();
    }

    /// A pool's budget changes, and the next roster is cut with it.
    pub fn rebudget(&mut self, world: &mut World, pool: &Pool, budget_ppm: Ppm) {
        if world.machines.iter().any(|machine| machine.pool == *pool) {
            let policy = world.operator.policies.entry(pool.clone()).or_default();
            (policy.budget_ppm, policy.urgent_budget_ppm) = (budget_ppm, budget_ppm);
            self.cut_roster(world);
        }
    }

    /// Two operators cut the next roster at once, with different budgets, and each publishes a release under its own.
    pub fn rivals(&mut self, world: &mut World, at_machine: u32, and_machine: u32, pool: &Pool, budget_ppm: Ppm) {
        if self.rosters.len() + 2 > MOST_ROSTERS {
            return;
        }
        let terms = Terms::default();
        self.cut_roster(world);
        self.publish(world, at_machine, Behaviour::Good, &terms, &[]);
        let before = world.operator.policies.entry(pool.clone()).or_default().clone();
        let policy = world.operator.policies.entry(pool.clone()).or_default();
        (policy.budget_ppm, policy.urgent_budget_ppm) = (budget_ppm, budget_ppm);
        if *policy == before {
            return;
        }
        self.undeclared.extend(self.newest_roster());
        self.rosters.push(world.operator.cut_rival());
        self.undeclared.extend(self.newest_roster());
        world.list_everybody();
        self.rivals_open = true;
        self.publish(world, and_machine, Behaviour::Good, &terms, &[]);
    }

    fn newest_roster(&self) -> Option<Digest> {
        self.rosters.last().map(|roster| roster.digest)
    }

    /// Cuts a roster that names both rivals, where there are any that none names yet. Whether what is under way waits for another
    /// roster: then it takes a rollout that names it.
    pub fn settle_rivals(&mut self, world: &mut World) -> bool {
        let open = self.rivals_open;
        if open {
            self.cut_roster(world);
        }
        open || self.rollouts.last().is_some_and(|signed| self.undeclared.contains(&signed.rollout.roster.digest))
    }

    /// Retires a machine whose disk is gone.
    pub fn bury(&mut self, world: &mut World, index: u32, at_machine: u32) {
        let id = world.machine(index).id;
        if world.truth.retired.insert(id) {
            self.set_clock(world);
            self.hand_out_retirement(world, index, at_machine);
        }
    }

    /// Hands a newcomer its certificate and the fleet document, and its certificate to one machine.
    pub fn admit(&self, world: &mut World, index: u32, certificate: Vec<u8>, at_machine: u32) {
        if let Some(at) = somebody(world, at_machine) {
            world.publish(at, &certificate);
        }
        for bytes in [world.operator.fleet().to_vec(), certificate] {
            world.input(index, Input::Document { bytes, source: Source::Store });
        }
    }

    /// Retires a machine that its pool can do without, unless it is in the middle of an upgrade; it is switched off for
    /// good. Whether it was.
    pub fn retire(&mut self, world: &mut World, index: u32, at_machine: u32) -> bool {
        let machine = world.machine(index);
        if machine.device.disrupted() {
            return false;
        }
        let id = machine.id;
        self.set_clock(world);
        world.stop(index);
        world.truth.retired.insert(id);
        self.hand_out_retirement(world, index, at_machine);
        true
    }

    /// A grant to it ends with that (section 7, rule 5), though it may not have signed that it is back.
    fn hand_out_retirement(&mut self, world: &mut World, index: u32, at_machine: u32) {
        world.machine_mut(index).disruption.written_off = true;
        let retirement = world.operator.retire(index).bytes;
        if let Some(at) = somebody(world, at_machine) {
            world.publish(at, &retirement);
        }
        self.retirements.push(retirement);
    }

    fn next(&mut self, world: &mut World, at_machine: u32, change: impl FnOnce(&mut Rollout)) {
        self.set_clock(world);
        let Some(signed) = self.rollouts.last_mut() else { return };
        let (wall, one_key) = (world.operator.wall, world.operator.one_key());
        let next = world.operator.next(&signed.rollout, |next| {
            next.reason = Reason::none();
            change(next);
            if next.state == State::Running {
                next.expires_at = next.expires_at.max(wall.plus_seconds(EXTENDED_SECONDS));
            } else if !next.rollback {
                next.keys = one_key;
            }
        });
        signed.generations.push(world.operator.sign_rollout(&next).bytes);
        signed.rollout = next;
        if let Some(at) = somebody(world, at_machine) {
            self.bring(world, at);
        }
    }

    fn set_clock(&self, world: &mut World) {
        world.operator.wall = Timestamp::from_seconds(BEGINNING + world.now_ms / 1_000);
    }
}

/// This machine, or the next one that is up; none that lied: nobody has to link to the copy of a neighbour.
fn somebody(world: &World, at_machine: u32) -> Option<u32> {
    let fit = |index: &u32| {
        let machine = world.machine(*index);
        !machine.liar && !world.truth.retired.contains(&machine.id)
    };
    let up = world.up();
    up.range(at_machine..).chain(up.range(..at_machine)).copied().find(fit)
}

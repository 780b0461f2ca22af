//! What operators do in a script: publish, pause, resume, forgive, abort, supersede, retire, each at one machine.

use groundswell_core::digest::Digest;
use groundswell_core::documents::rollout::{Forgiven, Rollout, State};
use groundswell_core::node::input::{Input, Source};
use groundswell_core::node::view::{NodeRow, Standing};
use groundswell_core::text::{Reason, RolloutId};
use groundswell_core::time::Timestamp;

use super::act::{Odd, Terms};
use super::device::Behaviour;
use super::operator::BEGINNING;
use super::world::World;

/// One rollout with everything that was signed for it.
#[derive(Clone, Debug)]
struct Signed {
    rollout: Rollout,
    release: Vec<u8>,
    artifact: Digest,
    /// The roster that it names, unless that is the fleet's first.
    roster: Option<Vec<u8>>,
    generations: Vec<Vec<u8>>,
}

/// Everything that the operators have signed.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    rollouts: Vec<Signed>,
    retirements: Vec<Vec<u8>>,
    /// The newest roster, unless that is the fleet's first.
    roster: Option<Vec<u8>>,
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
        let roster = self.roster.clone();
        let signed = Signed { rollout, release: release.bytes, artifact, roster, generations: vec![signed.bytes] };
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
        if let Some(bytes) = signed.roster {
            world.input(at, Input::Roster { bytes, source: Source::Store });
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

    /// Two operators pause at once: two bodies under one generation (case D7). The next generation names either.
    pub fn disagree(&mut self, world: &mut World, at_machine: u32, and_machine: u32) {
        let Some(signed) = self.rollouts.last().filter(|signed| signed.rollout.state == State::Running) else { return };
        let other = world.operator.next(&signed.rollout, |next| {
            next.state = State::Paused;
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
        let liars: Vec<_> = world.machines.iter().filter(|machine| machine.liar && self.last).map(|machine| machine.id).collect();
        let given_up =
            |row: &NodeRow| liars.contains(&row.node) && !matches!(row.standing, Standing::Soaked | Standing::Forgiven);
        let failed = view.nodes.into_iter().filter(|row| row.standing == Standing::Failed || given_up(row));
        let failed: Vec<Forgiven> = failed.map(|row| Forgiven { node: row.node, claim: row.claim, retry: true }).collect();
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

    /// Cuts the next roster from every certificate.
    pub fn cut_roster(&mut self, world: &mut World) {
        self.set_clock(world);
        self.roster = Some(world.operator.cut_roster().bytes);
        world.list_everybody();
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

    /// Retires a machine, which is switched off for good. Whether its pool can do without it, and it was.
    pub fn retire(&mut self, world: &mut World, index: u32, at_machine: u32) -> bool {
        let machine = world.machine(index);
        let of_pool = world.machines.iter().filter(|other| other.pool == machine.pool);
        let left = of_pool.filter(|other| !world.truth.retired.contains(&other.id) && other.key == other.index).count();
        let one_is_enough =
            world.machines.iter().any(|other| other.pool == machine.pool && world.truth.retired.contains(&other.id));
        if left < 7 || one_is_enough || machine.liar || machine.key != index || machine.device.disrupted() {
            return false;
        }
        let id = machine.id;
        self.set_clock(world);
        world.stop(index);
        // A grant to it ends with that (section 7, rule 5), though it may not have signed that it is back.
        world.machine_mut(index).disruption.written_off = true;
        let retirement = world.operator.retire(index).bytes;
        world.truth.retired.insert(id);
        if let Some(at) = somebody(world, at_machine) {
            world.publish(at, &retirement);
        }
        self.retirements.push(retirement);
        true
    }

    fn next(&mut self, world: &mut World, at_machine: u32, change: impl FnOnce(&mut Rollout)) {
        self.set_clock(world);
        let Some(signed) = self.rollouts.last_mut() else { return };
        let next = world.operator.next(&signed.rollout, |next| {
            next.reason = Reason::none();
            change(next);
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

//! What operators do in a swarm: publish, pause, resume, forgive, abort, supersede, retire, at whichever machine is up.

use groundswell_core::digest::Digest;
use groundswell_core::documents::rollout::{Forgiven, Rollout, State};
use groundswell_core::node::view::{NodeRow, Standing};
use groundswell_core::number::Ppm;
use groundswell_core::text::{Reason, RolloutId};
use groundswell_core::time::Timestamp;

use super::device::Behaviour;
use super::operator::BEGINNING;
use super::world::World;

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
    pub fn under_way(&self, _world: &World) -> Option<Digest> {
        let newest = self.rollouts.last().filter(|signed| signed.rollout.state != State::Aborted)?;
        Some(newest.rollout.release.digest)
    }

    /// A new release, perhaps a bad one, and a rollout of it.
    pub fn publish(&mut self, world: &mut World) {
        let behaviour = match world.random(8) {
            0 => Behaviour::Unhealthy,
            1 => Behaviour::Mute,
            2 => Behaviour::DegradesAfter(1_000 + world.random(60_000)),
            3 => Behaviour::WontStart,
            _ => Behaviour::Good,
        };
        self.publish_as(world, behaviour);
    }

    /// A new good release, and a rollout of it.
    pub fn publish_good(&mut self, world: &mut World) -> Option<Digest> {
        self.last = true;
        self.publish_as(world, Behaviour::Good)
    }

    fn publish_as(&mut self, world: &mut World, behaviour: Behaviour) -> Option<Digest> {
        let at = somebody(world)?;
        self.set_clock(world);
        let sequence = self.rollouts.len() as u64 + 2;
        let version = format!("{sequence}.0.0");
        let (release, body) = world.operator.release(&version, sequence, version.as_bytes());
        let mut rollout = world.operator.rollout(&format!("rollout-{sequence}"), &release, &body);
        rollout.prefetch = world.random(2) == 0;
        rollout.min_soaked_ppm = Ppm::new(if self.last || world.random(2) == 0 { 500_000 } else { 900_000 }).expect("a share");
        rollout.halt.max_failure_ppm = Ppm::new(if world.random(2) == 0 { 50_000 } else { 300_000 }).expect("a share");
        let soak = 5 + world.random(60);
        for wave in &mut rollout.waves {
            wave.soak_seconds = soak;
        }
        world.behaviours.insert(release.digest, behaviour);
        world.truth.releases.insert(release.digest, body.sequence);
        // Some machines have their own ideas of it.
        for index in 0..world.count() {
            if behaviour == Behaviour::Good && world.random(20) == 0 && world.loss > Ppm::ZERO {
                let odd = if world.random(2) == 0 { Behaviour::Unhealthy } else { Behaviour::Hangs };
                world.machine_mut(index).device.odd.insert(release.digest, odd);
            }
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
        for retirement in self.retirements.clone() {
            world.publish(at, &retirement);
        }
    }

    /// Something that operators do at a random moment.
    pub fn act(&mut self, world: &mut World) {
        let state = self.rollouts.last().map(|signed| signed.rollout.state);
        match (world.random(10), state) {
            (0 | 1, _) | (_, None | Some(State::Aborted)) => self.publish(world),
            (2 | 3, Some(State::Running)) => self.next(world, |next| {
                next.state = State::Paused;
                next.reason = Reason::lossy("lunch");
            }),
            (4..=6, Some(State::Paused)) => self.next(world, |next| next.state = State::Running),
            (7, _) => {
                let rollback = world.random(2) == 0;
                self.next(world, |next| {
                    next.state = State::Aborted;
                    next.rollback = rollback;
                });
            }
            (8, Some(State::Running)) => self.disagree(world),
            _ => self.forgive(world),
        }
    }

    /// Resumes what is paused; hands everything to somebody again.
    pub fn resume(&mut self, world: &mut World) {
        self.last = true;
        self.next(world, |next| next.state = State::Running);
    }

    /// Two operators pause at once: two bodies under one generation (case D7). The next generation names either.
    fn disagree(&mut self, world: &mut World) {
        let Some(signed) = self.rollouts.last().cloned() else { return };
        let other = world.operator.next(&signed.rollout, |next| {
            next.state = State::Paused;
            next.reason = Reason::lossy("the other operator's lunch");
        });
        let bytes = world.operator.sign_rollout(&other).bytes;
        if let Some(at) = somebody(world) {
            world.publish(at, &bytes);
        }
        self.next(world, |next| {
            next.state = State::Paused;
            next.reason = Reason::lossy("lunch");
        });
    }

    /// Forgives, by name, what some machine sees as failed; those nodes try again.
    pub fn forgive(&mut self, world: &mut World) {
        let Some((id, _)) = self.newest() else { return };
        let Some(at) = somebody(world) else { return };
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
        self.next(world, |next| {
            next.state = State::Running;
            for entry in failed {
                next.forgiven.retain(|known| known.node != entry.node || known.claim != entry.claim);
                next.forgiven.push(entry);
            }
            next.forgiven.sort_by_key(|entry| (entry.node, entry.claim));
        });
    }

    /// Retires a machine, which is switched off for good.
    pub fn retire(&mut self, world: &mut World, index: u32) {
        let machine = world.machine(index);
        let of_pool = world.machines.iter().filter(|other| other.pool == machine.pool);
        let left = of_pool.filter(|other| !world.truth.retired.contains(&other.id) && other.key == other.index).count();
        let one_is_enough =
            world.machines.iter().any(|other| other.pool == machine.pool && world.truth.retired.contains(&other.id));
        if left < 7 || one_is_enough || machine.liar || machine.key != index || machine.device.disrupted() {
            return;
        }
        let id = machine.id;
        self.set_clock(world);
        world.stop(index);
        let retirement = world.operator.retire(index).bytes;
        world.truth.retired.insert(id);
        if let Some(at) = somebody(world) {
            world.publish(at, &retirement);
        }
        self.retirements.push(retirement);
    }

    fn next(&mut self, world: &mut World, change: impl FnOnce(&mut Rollout)) {
        self.set_clock(world);
        let Some(signed) = self.rollouts.last_mut() else { return };
        let next = world.operator.next(&signed.rollout, |next| {
            next.reason = Reason::none();
            change(next);
        });
        signed.generations.push(world.operator.sign_rollout(&next).bytes);
        signed.rollout = next;
        if let Some(at) = somebody(world) {
            self.bring(world, at);
        }
    }

    fn set_clock(&self, world: &mut World) {
        world.operator.wall = Timestamp::from_seconds(BEGINNING + world.now_ms / 1_000);
    }
}

/// A machine that is up, at random; none that lied: nobody has to link to the copy of a neighbour.
fn somebody(world: &mut World) -> Option<u32> {
    let fit = |world: &World, index: u32| {
        let machine = world.machine(index);
        !machine.liar && !world.truth.retired.contains(&machine.id)
    };
    let up: Vec<u32> = world.up().into_iter().filter(|index| fit(world, *index)).collect();
    let at = world.random(up.len() as u64);
    usize::try_from(at).ok().and_then(|at| up.get(at)).copied()
}

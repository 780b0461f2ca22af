//! What each [`Act`] does to the world. An act that has nothing to do does nothing.

use std::collections::BTreeSet;

use groundswell_core::node_id::NodeId;
use groundswell_core::record::status::Phase;
use groundswell_core::text::Pool;

use super::act::Act;
use super::director::{Director, Snapshot, first, newest};
use super::machine::Machine;
use super::world::World;

impl Director {
    /// Does one thing.
    pub(super) fn apply(&mut self, act: &Act) {
        let count = self.world.count();
        let is_there = |machine: u32| machine < count;
        let Self { world, campaign, .. } = self;
        match act {
            Act::PowerOff { machine, for_ms } => self.power_off(*machine, *for_ms),
            Act::PowerOn { machine } if is_there(*machine) => self.start(*machine),
            Act::SitePowerOff { pool, for_ms, apart_ms } => {
                let site: Vec<u32> = world.machines.iter().filter(|it| it.pool == *pool).map(|it| it.index).collect();
                for (place, index) in (0_u64..).zip(site) {
                    self.power_off(index, Some(for_ms + place * apart_ms));
                }
            }
            Act::Suspend { machine, for_ms } if is_there(*machine) => self.world.suspend(*machine, *for_ms),
            Act::Freeze { machine, for_ms } if is_there(*machine) => self.world.freeze(*machine, *for_ms),
            Act::Partition { groups } => {
                let group =
                    |index| groups.iter().zip(1..).find(|(group, _)| group.contains(&index)).map_or(0, |(_, number)| number);
                world.partition(group);
            }
            Act::PartPools => {
                let pools: Vec<Pool> = world.machines.iter().map(|machine| machine.pool.clone()).collect();
                let names: BTreeSet<&Pool> = pools.iter().collect();
                world.partition(|index| {
                    let pool = usize::try_from(index).ok().and_then(|index| pools.get(index));
                    (0..).zip(&names).find(|(_, name)| pool == Some(**name)).map_or(0, |(number, _)| number)
                });
            }
            Act::Mend => world.partition(|_| 0),
            Act::Deafen { from, to } => world.deafen(*from, *to),
            Act::OneWay { from, to } => {
                for (from, to) in from.iter().flat_map(|from| to.iter().map(move |to| (*from, *to))) {
                    world.deafen(from, to);
                }
            }
            Act::Undeafen => world.undeafen(),
            Act::Slow { machine, by_ms, for_ms } => world.slow(*machine, *by_ms, *for_ms),
            Act::Clog { from, to, for_ms } => world.clog(*from, *to, *for_ms),
            Act::Drift { machine, ppm } if is_there(*machine) => self.world.machine_mut(*machine).drift_ppm = *ppm,
            Act::Clock { machine, skew_seconds } if is_there(*machine) => {
                let now_ms = self.world.now_ms;
                let machine = self.world.machine_mut(*machine);
                machine.wall_skew = *skew_seconds;
                machine.clock_set_ms = now_ms;
            }
            Act::Break { machine } if is_there(*machine) => {
                let device = &mut self.world.machine_mut(*machine).device;
                device.broken = !device.disrupted();
                self.world.probe(*machine);
            }
            Act::Repair { machine } if is_there(*machine) => {
                self.world.machine_mut(*machine).device.broken = false;
                self.world.probe(*machine);
            }
            Act::Publish { at_machine, behaviour, terms, odd } => {
                campaign.publish(world, *at_machine, *behaviour, terms, odd);
            }
            Act::Pause { at_machine } => campaign.pause(world, *at_machine),
            Act::Resume { at_machine } => campaign.resume(world, *at_machine),
            Act::Forgive { at_machine } => campaign.forgive(world, *at_machine),
            Act::Abort { at_machine, rollback } => campaign.abort(world, *at_machine, *rollback),
            Act::Disagree { at_machine, and_machine, goes_on } => {
                campaign.disagree(world, *at_machine, *and_machine, *goes_on);
            }
            Act::CutRoster => campaign.cut_roster(world),
            Act::Rebudget { pool, budget_ppm } => campaign.rebudget(world, pool, *budget_ppm),
            Act::Rivals { at_machine, and_machine, pool, budget_ppm } => {
                campaign.rivals(world, *at_machine, *and_machine, pool, *budget_ppm);
            }
            Act::Clone { machine } => {
                if self.may_lie(*machine) && self.world.machine(*machine).key == *machine && !self.world.machine(*machine).liar {
                    let copy = self.world.clone_machine(*machine);
                    self.world.start(copy);
                }
            }
            Act::Snapshot { machine } if is_there(*machine) => {
                let machine = self.world.machine(*machine);
                if !machine.device.disrupted() {
                    let snapshot = Snapshot { disk: machine.disk.clone(), device: machine.device.clone() };
                    self.snapshots.insert(machine.index, snapshot);
                }
            }
            Act::SetBack { machine, device, for_ms } => {
                if self.may_lie(*machine)
                    && let Some(snapshot) = self.snapshots.remove(machine)
                {
                    self.power_off(*machine, Some(*for_ms));
                    let index = *machine;
                    let machine = self.world.machine_mut(index);
                    machine.liar = true;
                    machine.disk = snapshot.disk;
                    if *device {
                        machine.device = snapshot.device;
                        let floor = machine.device.floor();
                        self.world.truth.set_back(index, floor);
                    }
                }
            }
            Act::Join { pool, at_machine, newer } => {
                let running = if *newer { newest() } else { first() };
                let (index, certificate) = world.add(pool.as_str(), Some(running));
                self.start(index);
                self.campaign.admit(&mut self.world, index, certificate, *at_machine);
            }
            Act::Lie { machine, how, for_ms } => {
                if self.may_lie(*machine) {
                    self.world.begin_to_lie(*machine, *how, *for_ms);
                }
            }
            Act::Lose { machine } => self.lose(*machine),
            Act::LoseHolder { from } => {
                let holder = self.holder(*from, |index| self.may_go(index));
                holder.into_iter().for_each(|index| self.lose(index));
            }
            Act::PowerOffHolder { from, for_ms } => {
                let holder = self.holder(*from, |_| true);
                holder.into_iter().for_each(|index| self.power_off(index, Some(*for_ms)));
            }
            Act::Retire { machine, at_machine } => {
                if self.may_go(*machine) && self.campaign.retire(&mut self.world, *machine, *at_machine) {
                    self.off.insert(*machine, None);
                }
            }
            // Whom the act names does not exist: a copy that was never made.
            Act::PowerOn { .. }
            | Act::Suspend { .. }
            | Act::Freeze { .. }
            | Act::Drift { .. }
            | Act::Clock { .. }
            | Act::Break { .. }
            | Act::Repair { .. }
            | Act::Snapshot { .. } => {}
        }
    }

    fn is_there(&self, index: u32) -> bool {
        index < self.world.count()
    }

    fn power_off(&mut self, index: u32, for_ms: Option<u64>) {
        if !self.is_there(index) {
            return;
        }
        if self.world.machine(index).node.is_some() {
            self.world.stop(index);
            self.off.insert(index, for_ms.map(|for_ms| self.world.now_ms + for_ms));
        }
    }

    /// The first machine from this one on that claims a slot or holds one, by its own word, of those that are `fit`.
    fn holder(&self, from: u32, fit: impl Fn(u32) -> bool) -> Option<u32> {
        let count = self.world.count();
        let holds = |index: &u32| matches!(self.world.machine(*index).phase(), Some(Phase::Claiming | Phase::Activating));
        (from..count).chain(0..from.min(count)).filter(holds).find(|index| fit(*index))
    }

    /// The disk is gone. The record of a claim that it made stays with the others.
    fn lose(&mut self, index: u32) {
        if !self.may_go(index) {
            return;
        }
        self.world.stop(index);
        self.off.insert(index, None);
        let machine = self.world.machine_mut(index);
        machine.disk.clear();
        let id = machine.id;
        self.world.truth.lost.insert(id);
    }

    /// Whether the pool of this machine tolerates that it lies (design, section 2, S1), and can do without it later on.
    fn may_lie(&self, index: u32) -> bool {
        if !self.is_there(index) {
            return false;
        }
        let machine = self.world.machine(index);
        let Some(fewest) = self.world.fewest_listed(&machine.pool) else { return false };
        let tolerated = match fewest {
            0..4 => 0,
            4..7 => 1,
            _ => 2,
        };
        let liars = self.world.missing(&machine.pool, true);
        liars.contains(&machine.id) || liars.len() < tolerated + self.beyond && (self.can_spare(index) || self.beyond > 0)
    }

    /// Whether this machine may leave for good: honest, not in the middle of an upgrade, and its slots keep a quorum of
    /// wardens without it.
    fn may_go(&self, index: u32) -> bool {
        if !self.is_there(index) {
            return false;
        }
        let machine = self.world.machine(index);
        let gone = machine.liar || self.world.truth.is_gone(&machine.id) || machine.key != index;
        !gone && self.can_spare(index)
    }

    /// Whether a quorum of every slot's wardens is left when this machine is no more, under any roster that may govern.
    fn can_spare(&self, index: u32) -> bool {
        let machine = self.world.machine(index);
        let Some(fewest) = self.world.fewest_listed(&machine.pool) else { return false };
        let spare = match fewest {
            0..3 => 0,
            3..7 => 1,
            7..9 => 2,
            _ => 3,
        };
        let mut missing = self.world.missing(&machine.pool, false);
        missing.insert(machine.id);
        missing.len() <= spare
    }
}

impl World {
    /// How many machines of a pool the roster lists that lists the fewest; `None` for a pool that none lists.
    fn fewest_listed(&self, pool: &Pool) -> Option<usize> {
        let of_pool = |id: &NodeId| self.machines.iter().any(|machine| machine.id == *id && machine.pool == *pool);
        let counts = self.operator.rosters.values().map(|roster| roster.nodes.iter().filter(|it| of_pool(&it.id)).count());
        counts.filter(|count| *count > 0).min()
    }

    /// Nodes of a pool that lie, and those that are gone for good unless only liars are asked for.
    fn missing(&self, pool: &Pool, only_liars: bool) -> BTreeSet<NodeId> {
        let missing = |machine: &&Machine| machine.liar || (!only_liars && self.truth.is_gone(&machine.id));
        self.machines.iter().filter(|machine| machine.pool == *pool).filter(missing).map(|machine| machine.id).collect()
    }
}

//! What each [`Act`] does to the world. An act that has nothing to do does nothing.

use std::collections::BTreeSet;

use groundswell_core::text::Pool;

use super::act::Act;
use super::director::{Director, Snapshot, first};

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
            Act::Undeafen => world.undeafen(),
            Act::Clock { machine, skew_seconds } if is_there(*machine) => {
                self.world.machine_mut(*machine).wall_skew = *skew_seconds;
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
            Act::Disagree { at_machine, and_machine } => campaign.disagree(world, *at_machine, *and_machine),
            Act::CutRoster => campaign.cut_roster(world),
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
            Act::Join { pool, at_machine } => {
                let (index, certificate) = world.add(pool.as_str(), Some(first()));
                self.start(index);
                self.campaign.admit(&mut self.world, index, certificate, *at_machine);
            }
            Act::Retire { machine, at_machine } => {
                if is_there(*machine) && self.campaign.retire(&mut self.world, *machine, *at_machine) {
                    self.off.insert(*machine, None);
                }
            }
            // Whom the act names does not exist: a copy that was never made.
            Act::PowerOn { .. }
            | Act::Suspend { .. }
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

    /// Whether the pool of this machine tolerates that it lies (design, section 2, S1).
    fn may_lie(&self, index: u32) -> bool {
        if !self.is_there(index) {
            return false;
        }
        let machine = self.world.machine(index);
        let of_pool = || self.world.machines.iter().filter(|other| other.pool == machine.pool);
        let listed = of_pool().filter(|other| other.key == other.index && !self.world.truth.retired.contains(&other.id));
        let tolerated = match listed.count() {
            0..4 => 0,
            4..7 => 1,
            _ => 2,
        };
        let liars: BTreeSet<u32> = of_pool().filter(|other| other.liar).map(|other| other.key).collect();
        liars.contains(&machine.key) || liars.len() < tolerated
    }
}

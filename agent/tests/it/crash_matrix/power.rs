//! The power fails, or the agent is killed, at every call of every order and of the start that follows it, and again at every
//! call of what puts it right.
//!
//! The cells are made from the plans themselves: an operation that is added is in the matrix, and so is each call that
//! it makes. A cell is: an order, a place in it, what the disk loses; then a start that must end well.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use groundswell_core::install::recovery::Ending;
use groundswell_core::install::{Counted, Manner, Operation};
use groundswell_core::node::effect::Install;

use super::Report;
use super::device::{Device, Machine, Order, Seen, reason};
use super::fate::{Fate, Phase};
use super::memory::{Loss, Memory, Syncs, Tree};
use crate::workshop::Workshop;

/// How far the matrix goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// One crash each.
    Once,
    /// And a second one in what puts the first right.
    Twice,
}

/// What the second crash may lose.
const SECOND: [Loss; 3] = [Loss::Nothing, Loss::Everything, Loss::Drawn(4)];
/// A machine that restarts more often than this to come to rest never does.
const RESTARTS: u32 = 4;

struct Stage {
    workshop: Workshop,
    syncs: Syncs,
    manner: Manner,
    old: Option<Install>,
    new: Install,
    next: Install,
    seen: Seen,
}

#[derive(Clone)]
struct State {
    tree: Tree,
    machine: Machine,
}

/// Where an order was cut short.
#[derive(Clone, Copy, Debug)]
struct Cut {
    at: u64,
    phase: Phase,
    loss: Loss,
}

/// The whole matrix. An operation or a mark of the journal that is cut short in no cell of it is a failure of its own.
pub(crate) fn matrix(depth: Depth) -> Report {
    let seen = Seen::default();
    let lives = [(false, false), (true, false), (false, true), (true, true)];
    let mut report = cells_of(&lives, depth, Syncs::Honest, &seen);
    report.failures.extend(seen.missing().into_iter().map(|kind| format!("{kind} is cut short in no cell")));
    report
}

/// The matrix of some lives (first install or not, restarts of the machine or not) on a disk of which some syncs may lie.
pub(crate) fn matrix_of(lives: &[(bool, bool)], depth: Depth, syncs: Syncs) -> Report {
    cells_of(lives, depth, syncs, &Seen::default())
}

fn cells_of(lives: &[(bool, bool)], depth: Depth, syncs: Syncs, seen: &Seen) -> Report {
    let mut report = Report::default();
    for (first, restarts_machine) in lives.iter().copied() {
        let stage = Stage::new(first, restarts_machine, syncs, seen.clone());
        for order in Order::ALL {
            let before = stage.before(order);
            let (calls, steps) = stage.measure(order, &before);
            let (cells, failures) = (report.cells, report.failures.len());
            stage.cells(order, &before, calls, depth, &mut report);
            stage.next_start(order, &before, &mut report);
            report.lines.push(format!(
                "{}, {}: {order:?}: {steps} steps, {calls} calls, {} cells, {} failed",
                if first { "first install" } else { "upgrade" },
                if restarts_machine { "machine restarts" } else { "process restarts" },
                report.cells - cells,
                report.failures.len() - failures,
            ));
        }
    }
    report
}

impl Stage {
    fn new(first: bool, restarts_machine: bool, syncs: Syncs, seen: Seen) -> Self {
        let workshop = Workshop::noting_starts();
        let old = (!first).then(|| workshop.release(1, "echo one"));
        let (new, next) = (workshop.release(2, "echo two"), workshop.release(3, "echo three"));
        // More than a life with two crashes can use up, so that what ends a trial is never their number.
        let counted = if restarts_machine { Counted::Boots } else { Counted::Starts };
        let manner = Manner { trial_starts: 9, counted, restarts_machine };
        Self { workshop, syncs, manner, old, new, next, seen }
    }

    fn installs(&self) -> Vec<&Install> {
        self.old.iter().chain([&self.new, &self.next]).collect()
    }

    fn device(&self, state: State, fate: &Fate) -> (Option<Device>, Memory) {
        let memory = Memory::new(state.tree, fate.clone(), self.syncs);
        let files = Arc::new(memory.clone());
        let device = Device::new(&self.workshop, files, fate.clone(), self.manner, state.machine, self.seen.clone());
        (device, memory)
    }

    /// Starts without a crash until the device is at rest; how that ended.
    fn settle(&self, mut state: State) -> (Ending, Device, Memory) {
        for _ in 0..RESTARTS {
            let (device, memory) = self.device(state, &Fate::kind(false));
            let mut device = device.expect("nothing is cut short");
            if let Some(ending) = device.recover() {
                return (ending, device, memory);
            }
            state = State { tree: memory.tree(), machine: device.machine };
        }
        panic!("the machine restarts for ever");
    }

    /// Carries an order out, restarts of the machine included.
    fn live_through(&self, order: Order, install: &Install, mut device: Device, memory: Memory) -> (Device, Memory) {
        if !device.carry_out(order, install) {
            return (device, memory);
        }
        let (_, device, memory) = self.settle(State { tree: memory.tree(), machine: device.machine });
        (device, memory)
    }

    /// Everything before `order`.
    fn before(&self, order: Order) -> State {
        let (_, mut device, mut memory) = self.settle(State { tree: Tree::empty(), machine: Machine::default() });
        let of_old = self.old.iter().flat_map(|old| [Order::Stage, Order::Activate, Order::Confirm].map(|order| (order, old)));
        for (order, install) in of_old.chain(order.earlier().iter().map(|order| (*order, &self.new))) {
            (device, memory) = self.live_through(order, install, device, memory);
        }
        if order == Order::Unstage {
            device.fail_to_stage(&self.new);
        }
        State { tree: memory.tree(), machine: device.machine }
    }

    /// How many calls and steps an order has.
    fn measure(&self, order: Order, before: &State) -> (u64, usize) {
        let fate = Fate::kind(false);
        let mut device = self.device(before.clone(), &fate).0.expect("nothing is cut short");
        let steps = device.plan(order, &self.new);
        let hooks = steps.iter().filter(|operation| matches!(operation, Operation::Hook(..))).count();
        assert!(hooks >= 1 || !order.has_hooks(), "{order:?} has its hooks in the matrix");
        fate.count_anew();
        device.carry_out(order, &self.new);
        (fate.calls(), steps.len())
    }

    fn cells(&self, order: Order, before: &State, calls: u64, depth: Depth, report: &mut Report) {
        let places = (0..calls).flat_map(|at| Phase::of(at).iter().map(move |phase| (at, *phase)));
        for (at, phase) in places {
            for loss in Loss::ALL {
                let cut = Cut { at, phase, loss };
                let state = report.cell(&format!("{order:?} {cut:?}"), || self.first_crash(order, before, cut));
                let Some(state) = state else { continue };
                let done = at + 1 == calls && phase == Phase::After;
                let deep = phase == Phase::After && matches!(loss, Loss::Nothing | Loss::Everything);
                if depth == Depth::Twice && deep {
                    self.second_crashes(order, cut, done, &state, report);
                }
                report.cell_again(&format!("{order:?} {cut:?}"), || self.judge(order, done, state));
            }
        }
    }

    fn first_crash(&self, order: Order, before: &State, cut: Cut) -> State {
        let fate = Fate::kind(false);
        let (device, memory) = self.device(before.clone(), &fate);
        let mut device = device.expect("nothing is cut short");
        fate.set(cut.at, cut.phase);
        device.carry_out(order, &self.new);
        assert!(fate.has_ended(), "the order has fewer calls than were counted");
        self.off_and_on(memory.tree(), device.machine, cut.loss)
    }

    /// The machine as the next start of the agent finds it.
    fn off_and_on(&self, tree: Tree, mut machine: Machine, loss: Loss) -> State {
        let tree = tree.after(loss);
        if loss != Loss::Nothing {
            machine.restart();
            if !self.manner.restarts_machine {
                // What starts the service at boot follows `current`.
                let state = State { tree: tree.clone(), machine: machine.clone() };
                let device = self.device(state, &Fate::kind(false)).0.expect("nothing is cut short");
                machine.runs = device.current(&self.installs());
            }
        }
        State { tree, machine }
    }

    /// Crashes of the start after an order that was done, where nothing is to be put right: where the machine restarts for an
    /// order, this is the rest of it.
    fn next_start(&self, order: Order, before: &State, report: &mut Report) {
        let (device, memory) = self.device(before.clone(), &Fate::kind(false));
        let mut device = device.expect("nothing is cut short");
        device.carry_out(order, &self.new);
        let state = State { tree: memory.tree(), machine: device.machine };
        self.crashes_at_start(&format!("{order:?}, the start after it"), order, true, &state, &Loss::ALL, report);
    }

    fn second_crashes(&self, order: Order, first: Cut, done: bool, state: &State, report: &mut Report) {
        self.crashes_at_start(&format!("{order:?} {first:?}"), order, done, state, &SECOND, report);
    }

    /// A crash at every call of a start.
    fn crashes_at_start(&self, name: &str, order: Order, done: bool, state: &State, losses: &[Loss], report: &mut Report) {
        for at in 0.. {
            let mut reached = false;
            for phase in [Phase::Inside, Phase::After] {
                for loss in losses.iter().copied() {
                    let cut = Cut { at, phase, loss };
                    let (fate, mut machine) = (Fate::kind(false), state.machine.clone());
                    fate.set(at, phase);
                    let (device, memory) = self.device(state.clone(), &fate);
                    if let Some(mut device) = device {
                        device.recover();
                        machine = device.machine;
                    }
                    if fate.has_ended() {
                        reached = true;
                        let name = format!("{name}, then {cut:?}");
                        report.cell(&name, || self.judge(order, done, self.off_and_on(memory.tree(), machine, loss)));
                    }
                }
            }
            if !reached {
                return;
            }
        }
    }

    /// The next start ends on a version that runs, with the right verdict, and the device goes on.
    fn judge(&self, order: Order, done: bool, state: State) {
        let installs = self.installs();
        let old = self.old.as_ref().map_or(0, |old| old.sequence.get());
        let new = self.new.sequence.get();
        // S6 at the very instant of the crash.
        let device = self.device(state.clone(), &Fate::kind(false)).0.expect("nothing is cut short");
        let current = device.current(&installs);
        assert!(current == old || current == new, "current leads to {current}");
        drop(device);

        let (ending, device, memory) = self.settle(state);
        let found = device.found();
        let was_denied = found.denied.iter().any(|denied| denied.release == self.new.release);
        let told = format!("{ending:?}, {:?}, floor {}, denied {was_denied}", device.machine, found.floor());
        let (runs, floor) = (device.machine.runs, found.floor().get());
        let on_old = runs == old && floor == old && device.current(&installs) == old;
        let on_trial =
            runs == new && floor == old && device.current(&installs) == new && ending == Ending::Trial(self.new.release);
        let on_new = runs == new && floor == new && device.current(&installs) == new && ending == Ending::Settled;
        let denied_if_blamed = was_denied == order.blames();
        let reverted = on_old && denied_if_blamed && ending == Ending::Reverted(self.new.release, reason(), order.blames());
        let is_new = |release| release == self.new.release;
        let untried = on_old && !was_denied && matches!(&ending, Ending::Reverted(release, _, false) if is_new(*release));
        let left = on_old && denied_if_blamed && ending == Ending::Settled;
        let untouched = on_old && !was_denied && ending == Ending::Settled;
        let staged = found.staged().is_some_and(|contents| contents.release == self.new.release);
        let fine = match (order, done) {
            (Order::Stage, true) => untouched && staged,
            (Order::Stage, false) => untouched,
            (Order::Unstage, _) => untouched && !staged,
            (Order::Activate, true) => on_trial,
            // Where only the machine can tell how far a version was handed over, the old one may come back; nobody is to blame.
            (Order::Activate, false) => untouched || on_trial || (self.manner.restarts_machine && untried),
            // An orderly end is no start that failed.
            (Order::Leave, _) => on_trial,
            (Order::Confirm, true) => on_new,
            (Order::Confirm, false) => on_new || on_trial,
            // What turned out well is no longer among what failed.
            (Order::Forgiven, true) => on_new && !was_denied,
            (Order::Forgiven, false) => (on_new && !was_denied) || (on_trial && was_denied),
            (Order::Revert | Order::Abort, true) => reverted || left,
            (Order::Revert | Order::Abort, false) => reverted || left || on_trial,
            // What gives the space of a failed build back does not forget that it failed.
            (Order::Reclaim, _) => left && !staged,
        };
        assert!(fine, "{told}");
        self.assert_goes_on(&ending, device, memory);
    }

    fn assert_goes_on(&self, ending: &Ending, mut device: Device, mut memory: Memory) {
        if matches!(ending, Ending::Trial(_)) {
            (device, memory) = self.live_through(Order::Confirm, &self.new, device, memory);
        }
        for order in [Order::Stage, Order::Activate, Order::Confirm] {
            (device, memory) = self.live_through(order, &self.next, device, memory);
        }
        drop(memory);
        assert_eq!(device.current(&self.installs()), self.next.sequence.get(), "the device goes on");
        assert_eq!(device.machine.runs, self.next.sequence.get(), "the device goes on");
    }
}

impl Report {
    /// One cell, counted; what it made.
    pub(super) fn cell<T>(&mut self, name: &str, run: impl FnOnce() -> T) -> Option<T> {
        self.cells += 1;
        self.cell_again(name, run)
    }

    /// More of the same cell.
    fn cell_again<T>(&mut self, name: &str, run: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(made) => Some(made),
            Err(panic) => {
                let why = panic.downcast_ref::<String>().cloned();
                let why = why.or_else(|| panic.downcast_ref::<&str>().map(|why| (*why).to_owned())).unwrap_or_default();
                self.failures.push(format!("{name}: {why}"));
                None
            }
        }
    }
}

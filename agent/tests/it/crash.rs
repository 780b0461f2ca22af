//! A crash before and after every operation of every plan, and again inside the recovery from it.
//!
//! The cells are made from the plans themselves, so a new operation cannot be forgotten. A crash is an executor that
//! is dropped; what the kernel had not written is the business of the power-loss matrix.

use std::fs;

use groundswell_agent::install::executor::{Executor, Outcome};
use groundswell_core::digest::Digest;
use groundswell_core::install::machine::{self, Cause, Plan};
use groundswell_core::install::recovery::recover;
use groundswell_core::install::{Boot, Counted, Manner, Operation, Slot};
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Recovered, Report, WentBack};
use groundswell_core::text::Reason;

use crate::workshop::{Workshop, claim};

/// The order in whose plan the crash comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Stage,
    Activate,
    Confirm,
    Revert,
}

const ORDERS: [Order; 4] = [Order::Stage, Order::Activate, Order::Confirm, Order::Revert];

struct Cell {
    workshop: Workshop,
    old: Option<Install>,
    new: Install,
}

const MANNER: Manner = Manner { trial_starts: 3, counted: Counted::Boots, restarts_machine: false };

async fn start_up(executor: &mut Executor) -> Recovered {
    executor.recover().await.expect("the device is not stopped")
}

fn cause() -> Cause {
    Cause { reason: reason(), at_fault: true }
}

fn reason() -> Reason {
    Reason::lossy("unhealthy")
}

fn step(order: Order, install: &Install) -> Step {
    match order {
        Order::Stage => Step::Stage { install: install.clone() },
        Order::Activate => Step::Activate { install: install.clone(), claim: claim(), within_ms: 900_000 },
        Order::Confirm => Step::Confirm { release: install.release },
        Order::Revert => Step::Revert { release: install.release, reason: reason(), at_fault: true },
    }
}

async fn carry_out(executor: &mut Executor, order: Order, install: &Install) {
    let outcome = executor.execute(&step(order, install)).await;
    let Outcome::Report(report) = &outcome else { panic!("{order:?}: {outcome:?}") };
    let fine = matches!(
        (order, report),
        (Order::Stage, Report::Staged { .. })
            | (Order::Activate, Report::Activated { .. })
            | (Order::Confirm, Report::Confirmed { .. })
            | (Order::Revert, Report::Reverted { .. })
    );
    assert!(fine, "{order:?}: {report:?}");
}

async fn plan(executor: &Executor, order: Order, install: &Install) -> Vec<Operation> {
    let found = executor.found().await.unwrap();
    let plan = match order {
        Order::Stage => machine::stage(&found, install),
        Order::Activate => machine::activate(&found, install, claim(), MANNER),
        Order::Confirm => machine::confirm(&found, install.release),
        Order::Revert => Ok(machine::revert(&found, install.release, &cause(), MANNER)),
    };
    match plan {
        Ok(Plan::Do(operations)) => operations,
        other => panic!("{order:?}: {other:?}"),
    }
}

impl Cell {
    /// Version 1 confirmed (or nothing, for a first install), and everything done that comes before `order`.
    async fn before(order: Order, first: bool) -> (Self, Executor) {
        let workshop = Workshop::noting_starts();
        let old = (!first).then(|| workshop.release(1, "echo one"));
        let new = workshop.release(2, "echo two");
        let mut executor = workshop.executor().await;
        start_up(&mut executor).await;
        if let Some(old) = &old {
            for order in [Order::Stage, Order::Activate, Order::Confirm] {
                carry_out(&mut executor, order, old).await;
            }
        }
        let earlier: &[Order] = match order {
            Order::Stage => &[],
            Order::Activate => &[Order::Stage],
            Order::Confirm | Order::Revert => &[Order::Stage, Order::Activate],
        };
        for order in earlier {
            carry_out(&mut executor, *order, &new).await;
        }
        (Self { workshop, old, new }, executor)
    }

    /// S6: `current` leads to a whole version, the old one or the new one; to nothing only in a first install.
    fn assert_runnable(&self, when: &str) {
        match self.workshop.current_script() {
            Some(script) => assert!(script.contains("release 1\n") || script.contains("release 2\n"), "{when}: {script}"),
            None => assert!(self.old.is_none(), "{when}: current leads nowhere"),
        }
    }

    fn assert_recovered(&self, order: Order, done: usize, of: usize, recovered: &Recovered) {
        let when = format!("{order:?} {done}/{of}");
        self.assert_runnable(&when);
        let release = self.new.release;
        let old = self.old.as_ref().map(|old| old.release);
        let running = recovered.running.as_ref().map(|running| running.release);
        let expected: (Option<Digest>, Option<Digest>, bool) = match order {
            // What runs, the trial, whether it was reverted.
            Order::Stage => (old, None, false),
            Order::Activate if done == 0 => (old, None, false),
            Order::Activate => (Some(release), Some(release), false),
            Order::Confirm if done <= 1 => (Some(release), Some(release), false),
            Order::Confirm => (Some(release), None, false),
            Order::Revert if done == 0 => (Some(release), Some(release), false),
            // The last operation closes the journal: then it is an ordinary start.
            Order::Revert => (old, None, done < of),
        };
        let reverted = recovered.reverted.as_ref();
        assert_eq!((running, recovered.trial, reverted.is_some()), expected, "{when}: {recovered:?}");
        if let Some((left, why)) = reverted {
            assert_eq!((*left, why), (release, &reason()), "{when}");
        }
        let floor = if order == Order::Confirm && done > 1 { 2 } else { u64::from(self.old.is_some()) };
        assert_eq!(recovered.floor.get(), floor, "{when}");
        // Whole and described means staged, whether or not what follows was done.
        let staged = match order {
            Order::Stage => done >= of - 2,
            Order::Activate => done == 0,
            _ => false,
        };
        let expected = staged.then_some(release);
        // An idle slot that was not touched yet may still hold nothing; it never holds anything else.
        assert_eq!(recovered.staged, expected, "{when}");
    }

    /// Whatever happened, the node can still be upgraded.
    async fn assert_goes_on(self, mut executor: Executor, recovered: &Recovered) {
        if recovered.trial.is_some() {
            carry_out(&mut executor, Order::Confirm, &self.new).await;
        }
        let next = self.workshop.release(3, "echo three");
        for order in [Order::Stage, Order::Activate, Order::Confirm] {
            carry_out(&mut executor, order, &next).await;
        }
        assert!(self.workshop.current_script().unwrap().contains("release 3\n"));
    }
}

async fn crash_everywhere(first: bool) {
    let mut cells = 0;
    for order in ORDERS {
        let mut done = 0;
        loop {
            let (cell, mut executor) = Cell::before(order, first).await;
            let operations = plan(&executor, order, &cell.new).await;
            for operation in &operations[..done] {
                executor.perform_one(operation).await.unwrap();
                cell.assert_runnable(&format!("{order:?} after {operation}"));
            }
            drop(executor);
            let mut executor = cell.workshop.executor().await;
            let recovered = start_up(&mut executor).await;
            cell.assert_recovered(order, done, operations.len(), &recovered);
            cell.assert_goes_on(executor, &recovered).await;
            cells += 1;
            done += 1;
            if done > operations.len() {
                break;
            }
        }
    }
    assert!(cells > 20, "{cells} cells");
}

#[tokio::test]
async fn s6_a_crash_between_any_two_operations_ends_on_a_version_that_runs() {
    crash_everywhere(false).await;
}

#[tokio::test]
async fn s6_a_crash_in_a_first_install_ends_on_the_trial_or_on_nothing() {
    crash_everywhere(true).await;
}

#[tokio::test]
async fn s6_a_second_crash_inside_the_recovery_changes_nothing_of_its_end() {
    for order in ORDERS {
        let mut done = 0;
        loop {
            let mut recovery_done = 0;
            let (mut operations_count, mut recovery_count);
            loop {
                let (cell, mut executor) = Cell::before(order, false).await;
                let operations = plan(&executor, order, &cell.new).await;
                operations_count = operations.len();
                for operation in &operations[..done] {
                    executor.perform_one(operation).await.unwrap();
                }
                drop(executor);
                let mut executor = cell.workshop.executor().await;
                let recovery = recover(&executor.found().await.unwrap(), MANNER);
                recovery_count = recovery.operations.len();
                for operation in &recovery.operations[..recovery_done] {
                    executor.perform_one(operation).await.unwrap();
                    cell.assert_runnable(&format!("{order:?} {done}, recovery after {operation}"));
                }
                drop(executor);
                let mut executor = cell.workshop.executor().await;
                let recovered = start_up(&mut executor).await;
                cell.assert_runnable(&format!("{order:?} {done} {recovery_done}"));
                let release = recovered.running.as_ref().map(|running| running.release);
                let forward = match order {
                    Order::Stage => false,
                    Order::Activate | Order::Revert => recovered.trial.is_some(),
                    Order::Confirm => true,
                };
                let expected = if forward { Some(cell.new.release) } else { cell.old.as_ref().map(|old| old.release) };
                assert_eq!(release, expected, "{order:?} {done} {recovery_done}: {recovered:?}");
                cell.assert_goes_on(executor, &recovered).await;
                recovery_done += 1;
                if recovery_done > recovery_count {
                    break;
                }
            }
            done += 1;
            if done > operations_count {
                break;
            }
        }
    }
}

#[tokio::test]
async fn leftovers_of_half_done_writes_are_harmless() {
    let (cell, executor) = Cell::before(Order::Stage, false).await;
    drop(executor);
    let folder = cell.workshop.product_folder();
    std::os::unix::fs::symlink("slots/b", folder.join(".current.new")).unwrap();
    fs::create_dir_all(folder.join("slots/b")).unwrap();
    fs::write(folder.join("slots/b/.incoming"), "half").unwrap();
    fs::write(folder.join("slots/b/.slot.json.new"), "{").unwrap();
    fs::write(folder.join(".journal.new"), "half").unwrap();
    fs::write(folder.join(".confirmed.json.new"), "{").unwrap();
    let mut executor = cell.workshop.executor().await;
    let recovered = start_up(&mut executor).await;
    assert_eq!(recovered.running.as_ref().map(|running| running.release), cell.old.as_ref().map(|old| old.release));
    cell.assert_goes_on(executor, &recovered).await;
}

#[tokio::test]
async fn a_lost_or_damaged_journal_in_a_trial_leads_back_to_the_confirmed_version() {
    for damage in ["", "0000000000000000 {}\n", "garbage without end", "\u{0}\u{0}\u{0}\n\n\n"] {
        let (cell, executor) = Cell::before(Order::Confirm, false).await;
        drop(executor);
        fs::write(cell.workshop.product_folder().join("journal"), damage).unwrap();
        let mut executor = cell.workshop.executor().await;
        let recovered = start_up(&mut executor).await;
        assert_eq!(recovered.reverted.as_ref().map(|reverted| reverted.0), Some(cell.new.release), "{damage:?}");
        assert!(cell.workshop.current_script().unwrap().contains("release 1\n"));
        cell.assert_goes_on(executor, &recovered).await;
    }
}

#[tokio::test]
async fn a_damaged_description_of_the_running_slot_costs_nothing() {
    let (cell, executor) = Cell::before(Order::Stage, false).await;
    let current = executor.found().await.unwrap().current.unwrap();
    drop(executor);
    let slot = if current == Slot::A { "a" } else { "b" };
    fs::write(cell.workshop.product_folder().join("slots").join(slot).join("slot.json"), "{ torn").unwrap();
    let mut executor = cell.workshop.executor().await;
    let recovered = start_up(&mut executor).await;
    assert_eq!(recovered.running.as_ref().map(|running| running.release), cell.old.as_ref().map(|old| old.release));
    assert_eq!(recovered.floor.get(), 1);
    cell.assert_goes_on(executor, &recovered).await;
}

#[tokio::test]
async fn a_lost_current_is_made_again() {
    let (cell, executor) = Cell::before(Order::Stage, false).await;
    drop(executor);
    fs::remove_file(cell.workshop.product_folder().join("current")).unwrap();
    let mut executor = cell.workshop.executor().await;
    let recovered = start_up(&mut executor).await;
    assert!(cell.workshop.current_script().unwrap().contains("release 1\n"));
    cell.assert_goes_on(executor, &recovered).await;
}

#[tokio::test]
async fn i2_restarts_on_a_good_slot_change_nothing_and_those_of_the_machine_in_a_trial_are_counted() {
    let (mut cell, mut executor) = Cell::before(Order::Confirm, false).await;
    for start in 1..=4 {
        drop(executor);
        executor = cell.workshop.executor().await;
        let recovered = start_up(&mut executor).await;
        assert_eq!(recovered.trial, Some(cell.new.release), "start {start} of the agent alone");
    }
    for start in 1..=2 {
        drop(executor);
        cell.workshop.boot = Boot(format!("boot {start}"));
        executor = cell.workshop.executor().await;
        let recovered = start_up(&mut executor).await;
        assert_eq!(recovered.trial, Some(cell.new.release), "start {start}");
    }
    drop(executor);
    cell.workshop.boot = Boot("boot 3".to_owned());
    executor = cell.workshop.executor().await;
    let recovered = start_up(&mut executor).await;
    let (release, reason) = recovered.reverted.expect("three starts are enough");
    assert_eq!(release, cell.new.release);
    assert!(reason.contains("3 times"), "{reason}");
    assert!(recovered.denied.contains(&release));
    assert_eq!(recovered.claim, Some(claim()));
    for _ in 0..10 {
        drop(executor);
        executor = cell.workshop.executor().await;
        let recovered = start_up(&mut executor).await;
        assert_eq!(recovered.running.map(|running| running.release), cell.old.as_ref().map(|old| old.release));
        assert_eq!((recovered.trial, recovered.reverted), (None, None));
        let went_back = WentBack { claim: claim(), release: cell.new.release, reason: reason.clone() };
        assert_eq!(recovered.failed, Some(Box::new(went_back)), "for a node that could not write it down");
    }
}

#[tokio::test]
async fn i2_a_supervised_trial_outlives_orderly_stops_and_goes_back_unblamed_when_its_agent_is_killed_again_and_again() {
    let workshop = Workshop::supervising();
    let script = "exec sleep 1000";
    let (one, two) = (workshop.release(1, script), workshop.release(2, script));
    let (mut bench, _) = workshop.device().await;
    bench.upgrade(&one, &two).await;
    for stop in 1..=5 {
        bench.shutdown().await;
        let (next, recovered) = workshop.device().await;
        assert_eq!(recovered.trial, Some(two.release), "after stop {stop}");
        bench = next;
    }
    bench.shutdown().await;
    for kill in 0..=2 {
        let mut executor = workshop.executor().await;
        let recovered = start_up(&mut executor).await;
        assert_eq!(recovered.trial, Some(two.release), "after kill {kill}");
    }
    let mut executor = workshop.executor().await;
    let recovered = start_up(&mut executor).await;
    assert_eq!(recovered.reverted.map(|reverted| reverted.0), Some(two.release));
    assert!(!recovered.at_fault && recovered.denied.is_empty());
    assert_eq!(recovered.running.map(|running| running.release), Some(one.release));
    executor.shutdown().await;
}

#[tokio::test]
async fn s3_a_trial_whose_file_changed_is_not_started_again_after_a_crash() {
    let (cell, executor) = Cell::before(Order::Confirm, false).await;
    drop(executor);
    let binary = cell.workshop.product_folder().join("current/bcd");
    let target = fs::canonicalize(&binary).unwrap();
    fs::remove_file(&target).unwrap();
    fs::write(&target, "#!/bin/sh\necho evil\n").unwrap();
    let mut executor = cell.workshop.executor().await;
    let recovered = start_up(&mut executor).await;
    assert_eq!(recovered.reverted.map(|reverted| reverted.0), Some(cell.new.release));
    assert!(cell.workshop.current_script().unwrap().contains("release 1\n"));
}

//! A disk that refuses single writes, or does not tell what single files hold: whatever depends on nothing else goes on, a way
//! back above all, and what was decided is not undone.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use groundswell_agent::install::ending::Grace;
use groundswell_agent::install::executor::{Executor, Outcome};
use groundswell_agent::install::{Device, Settings};
use groundswell_core::install::machine::{self, Plan};
use groundswell_core::install::{Boot, Mark, Operation, Slot};
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Fault, Report};
use groundswell_core::record::status::HoldCode;
use groundswell_core::text::Reason;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::full_disk::on_one;
use crate::scarce::{PLENTY, Scarce};
use crate::workshop::{PATIENCE, Workshop, claim, product};

/// Version 1 confirmed, version 2 on trial.
async fn on_trial() -> (Workshop, Scarce, Executor, Install, Install) {
    let (workshop, scarce, mut executor, one, two) = on_one().await;
    assert_eq!(stage(&mut executor, &two).await, Outcome::Report(Report::Staged { release: two.release }));
    assert_eq!(activate(&mut executor, &two).await, Outcome::Report(Report::Activated { release: two.release }));
    (workshop, scarce, executor, one, two)
}

async fn stage(executor: &mut Executor, install: &Install) -> Outcome {
    executor.execute(&Step::Stage { install: install.clone() }).await
}

async fn activate(executor: &mut Executor, install: &Install) -> Outcome {
    executor.execute(&Step::Activate { install: install.clone(), claim: claim(), within_ms: 900_000 }).await
}

async fn revert(executor: &mut Executor, install: &Install) -> Outcome {
    let reason = Reason::lossy("unhealthy");
    executor.execute(&Step::Revert { release: install.release, reason, at_fault: true }).await
}

async fn again(workshop: &Workshop, scarce: &Scarce) -> Executor {
    workshop.executor_on(workshop.disk_on(Arc::new(scarce.clone()))).await
}

fn runs(outcome: &Outcome, install: &Install) -> bool {
    matches!(outcome, Outcome::Report(Report::Reverted { running: Some(running), .. }) if running.release == install.release)
}

#[tokio::test]
async fn a_confirm_that_cannot_be_recorded_stays_open_and_is_never_taken_back() {
    let (workshop, scarce, mut executor, _, two) = on_trial().await;
    let Ok(Plan::Do(operations)) = machine::confirm(&executor.found().await.unwrap(), two.release) else { panic!("on trial") };
    let decided = |operation: &Operation| matches!(operation, Operation::Note(entry) if entry.mark == Mark::Confirm);
    let note = operations.iter().find(|operation| decided(operation)).unwrap();
    executor.perform_one(note).await.unwrap();
    drop(executor);
    scarce.stick(Some("confirmed.json"));
    let mut executor = again(&workshop, &scarce).await;
    let told = timeout(Duration::from_millis(300), executor.recover()).await;
    assert!(told.is_err(), "it is not written down, so it is not told: {told:?}");
    assert_eq!(executor.found().await.unwrap().open().map(|entry| entry.mark.clone()), Some(Mark::Confirm));
    drop(executor);
    scarce.stick(None);
    let mut executor = again(&workshop, &scarce).await;
    let recovered = executor.recover().await.unwrap();
    assert_eq!(recovered.running.map(|running| running.release), Some(two.release));
    assert_eq!((recovered.floor.get(), recovered.trial, recovered.reverted), (2, None, None));
    assert_eq!(recovered.denied, []);
}

#[tokio::test]
async fn a_way_back_does_not_wait_for_what_it_does_not_need() {
    for name in ["denied.json", "slot.json", "confirmed.json"] {
        let (workshop, scarce, mut executor, one, two) = on_trial().await;
        fs::write(workshop.product_folder().join("denied.json"), "{\"spec\":1,\"denied\":[]}").unwrap();
        scarce.mute(Some(name));
        let outcome = revert(&mut executor, &two).await;
        assert!(runs(&outcome, &one), "{name}: {outcome:?}");
        assert_eq!(workshop.lines("started").last().map(String::as_str), Some("start 1.0"), "{name}");
        let three = workshop.release(3, "echo three");
        let staged = stage(&mut executor, &three).await;
        assert!(matches!(&staged, Outcome::Report(Report::StageFailed { .. })), "{name}: {staged:?}");
        scarce.mute(None);
        executor.settle().await;
        let found = executor.found().await.unwrap();
        assert!(found.open().is_none(), "{name}: {found:?}");
        assert!(found.denied.iter().any(|denied| denied.release == two.release), "{name}: what failed is written down");
        assert_eq!(stage(&mut executor, &three).await, Outcome::Report(Report::Staged { release: three.release }), "{name}");
    }
}

#[tokio::test]
async fn a_trial_that_fails_again_and_again_goes_back_at_start_up_beside_a_file_that_cannot_be_read() {
    for name in ["denied.json", "confirmed.json"] {
        let (mut workshop, scarce, mut executor, one, two) = on_trial().await;
        fs::write(workshop.product_folder().join("denied.json"), "{\"spec\":1,\"denied\":[]}").unwrap();
        scarce.mute(Some(name));
        let mut reverted = None;
        for boot in 1..=3 {
            drop(executor);
            workshop.boot = Boot(format!("boot {boot}"));
            executor = again(&workshop, &scarce).await;
            let recovered = timeout(PATIENCE, executor.recover()).await.expect("it does not wait").unwrap();
            reverted = recovered.reverted.map(|(release, _)| release);
            if reverted.is_some() {
                assert_eq!(recovered.running.map(|running| running.release), Some(one.release), "{name}");
            }
        }
        assert_eq!(reverted, Some(two.release), "{name}");
        assert!(workshop.current_script().unwrap().contains("release 1\n"), "{name}");
    }
}

#[tokio::test]
async fn the_way_back_is_known_although_the_file_that_names_it_is_damaged() {
    for during_trial in [true, false] {
        let (workshop, scarce, mut executor, one, two) = on_one().await;
        let damage = || fs::write(workshop.product_folder().join("confirmed.json"), "torn").unwrap();
        if !during_trial {
            damage();
        }
        stage(&mut executor, &two).await;
        assert_eq!(activate(&mut executor, &two).await, Outcome::Report(Report::Activated { release: two.release }));
        if during_trial {
            damage();
        }
        let outcome = revert(&mut executor, &two).await;
        assert!(runs(&outcome, &one), "during the trial {during_trial}: {outcome:?}");
        assert!(workshop.current_script().unwrap().contains("release 1\n"));
        assert_eq!(workshop.lines("started").last().map(String::as_str), Some("start 1.0"));
        drop(executor);
        let mut executor = again(&workshop, &scarce).await;
        let recovered = executor.recover().await.unwrap();
        assert_eq!((recovered.running.map(|running| running.release), recovered.floor.get()), (Some(one.release), 1));
        let three = workshop.release(3, "echo three");
        assert_eq!(stage(&mut executor, &three).await, Outcome::Report(Report::Staged { release: three.release }));
        assert_eq!(activate(&mut executor, &three).await, Outcome::Report(Report::Activated { release: three.release }));
    }
}

#[tokio::test]
async fn a_damaged_confirmed_version_with_its_journal_lost_runs_on_and_no_slot_is_overwritten() {
    let (workshop, scarce, executor, one, _) = on_one().await;
    drop(executor);
    fs::write(workshop.product_folder().join("confirmed.json"), "torn").unwrap();
    fs::remove_file(workshop.product_folder().join("journal")).unwrap();
    for _ in 0..4 {
        let mut executor = again(&workshop, &scarce).await;
        let recovered = executor.recover().await.unwrap();
        assert_eq!(recovered.running.map(|running| running.release), Some(one.release));
        assert_eq!((recovered.trial, recovered.reverted), (None, None));
        let two = workshop.release(2, "echo two");
        let staged = stage(&mut executor, &two).await;
        assert!(matches!(&staged, Outcome::Report(Report::StageFailed { .. })), "{staged:?}");
        assert!(workshop.current_script().unwrap().contains("release 1\n"));
    }
}

#[tokio::test]
async fn a_start_does_not_wait_for_a_link_that_is_right_already() {
    let (workshop, scarce, mut executor, _, two) = on_trial().await;
    let Ok(Plan::Do(operations)) = machine::confirm(&executor.found().await.unwrap(), two.release) else { panic!("on trial") };
    for operation in &operations[..operations.len() - 1] {
        executor.perform_one(operation).await.unwrap();
    }
    drop(executor);
    scarce.stick(Some("current"));
    let mut executor = again(&workshop, &scarce).await;
    let recovered = timeout(PATIENCE, executor.recover()).await.expect("it does not wait").unwrap();
    assert_eq!(recovered.running.map(|running| running.release), Some(two.release));
}

#[tokio::test]
async fn a_supervised_version_comes_back_although_current_cannot_be_swapped() {
    let workshop = Workshop::supervising();
    let scarce = Scarce::new();
    let mut executor = again(&workshop, &scarce).await;
    executor.recover().await.unwrap();
    let runs_on = |name: &str| format!("echo {name} >> {}\nexec sleep 1000", workshop.path("ran").display());
    let (one, two) = (workshop.release(1, &runs_on("one")), workshop.release(2, &runs_on("two")));
    for install in [&one, &two] {
        stage(&mut executor, install).await;
        assert_eq!(activate(&mut executor, install).await, Outcome::Report(Report::Activated { release: install.release }));
        if install == &one {
            executor.execute(&Step::Confirm { release: one.release }).await;
        }
    }
    let ran = |times: usize| {
        let workshop = &workshop;
        async move {
            while workshop.lines("ran").len() < times {
                sleep(Duration::from_millis(5)).await;
            }
        }
    };
    timeout(PATIENCE, ran(2)).await.unwrap();
    scarce.stick(Some("current"));
    assert_eq!(revert(&mut executor, &two).await, Outcome::Again, "it is told once it is so");
    timeout(PATIENCE, ran(3)).await.unwrap();
    assert_eq!(workshop.lines("ran"), ["one", "two", "one"]);
    scarce.stick(None);
    let outcome = revert(&mut executor, &two).await;
    assert!(runs(&outcome, &one), "{outcome:?}");
    executor.shutdown().await;
}

#[tokio::test]
async fn what_the_journal_says_is_what_is_on_the_disk_whatever_fails() {
    let (workshop, scarce, mut executor, _, two) = on_one().await;
    stage(&mut executor, &two).await;
    scarce.lose_folders(true);
    let outcome = activate(&mut executor, &two).await;
    assert!(matches!(&outcome, Outcome::Report(Report::ActivateFailed { at_fault: false, .. })), "{outcome:?}");
    scarce.lose_folders(false);
    let known = executor.found().await.unwrap().entry;
    assert_eq!(known, workshop.disk().found().unwrap().entry);
    assert!(matches!(revert(&mut executor, &two).await, Outcome::Report(Report::Reverted { .. })));
    assert!(executor.found().await.unwrap().open().is_none());
}

#[tokio::test]
async fn b2_what_a_revert_on_a_full_disk_owes_is_written_as_soon_as_there_is_space() {
    let (workshop, scarce, mut executor, _, two) = on_trial().await;
    fs::remove_file(workshop.product_folder().join("reserve")).unwrap();
    scarce.leave(2);
    assert!(matches!(revert(&mut executor, &two).await, Outcome::Report(Report::Reverted { .. })));
    assert!(executor.found().await.unwrap().open().is_some(), "there was no space to close it");
    // Nothing is written before it that it could be written over.
    let three = workshop.release(3, "echo three");
    let staged = stage(&mut executor, &three).await;
    assert!(
        matches!(&staged, Outcome::Report(Report::StageFailed { fault: Fault::DiskFull, reason, .. }) if reason.contains("the end of the last upgrade")),
        "{staged:?}"
    );
    let activated = activate(&mut executor, &three).await;
    assert!(
        matches!(&activated, Outcome::Report(Report::ActivateFailed { at_fault: false, reason, .. }) if reason.contains("the end of the last upgrade")),
        "{activated:?}"
    );
    scarce.leave(PLENTY);
    assert_eq!(stage(&mut executor, &three).await, Outcome::Report(Report::Staged { release: three.release }));
    let found = executor.found().await.unwrap();
    assert!(found.open().is_none());
    assert_eq!((found.current, found.denied.len()), (Some(Slot::A), 1));
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_is_a_fault_of_that_product_and_waited_for() {
    let workshop = Workshop::noting_starts();
    fs::write(workshop.product_folder(), "in its place").unwrap();
    let settings = Settings {
        product: product(),
        folder: workshop.product_folder(),
        config: workshop.config.clone(),
        room: workshop.room,
        boot: workshop.boot.clone(),
        own: None,
        block_interval: Duration::from_millis(20),
        grace: Grace::default(),
    };
    let (sender, mut reports) = mpsc::channel(16);
    let device = Device::start(settings, workshop.shelf(), sender).unwrap();
    let (_, first) = timeout(PATIENCE, reports.recv()).await.unwrap().unwrap();
    assert!(matches!(&first, Report::Blocked(holds) if holds.iter().any(|hold| hold.code == HoldCode::DeviceFault)), "{first:?}");
    fs::remove_file(workshop.product_folder()).unwrap();
    let (_, next) = timeout(PATIENCE, reports.recv()).await.unwrap().unwrap();
    assert!(matches!(&next, Report::Recovered(_)), "{next:?}");
    device.shutdown().await;
}

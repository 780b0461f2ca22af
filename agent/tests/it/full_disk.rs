//! Each step of an install on a disk without space: said as `disk-full`, or finished from what is held in reserve.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use groundswell_agent::install::executor::{Executor, Outcome};
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Fault, Report};
use groundswell_core::text::Reason;

use crate::scarce::{PLENTY, Scarce};
use crate::workshop::{PATIENCE, Workshop, claim};

/// Version 1 confirmed, version 2 not yet staged.
pub(crate) async fn on_one() -> (Workshop, Scarce, Executor, Install, Install) {
    let workshop = Workshop::noting_starts();
    let scarce = Scarce::new();
    let mut executor = workshop.executor_on(workshop.disk_on(Arc::new(scarce.clone()))).await;
    executor.recover().await.unwrap();
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    executor.execute(&Step::Stage { install: one.clone() }).await;
    executor.execute(&Step::Activate { install: one.clone(), claim: claim(), within_ms: 900_000 }).await;
    executor.execute(&Step::Confirm { release: one.release }).await;
    (workshop, scarce, executor, one, two)
}

#[tokio::test]
async fn b2_staging_at_any_lack_of_space_says_disk_full_gives_back_what_it_took_and_goes_on_later() {
    let (workshop, scarce, mut executor, _, two) = on_one().await;
    let mut refused = 0;
    for left in (0..).step_by(61) {
        scarce.leave(left);
        let outcome = executor.execute(&Step::Stage { install: two.clone() }).await;
        assert!(workshop.current_script().unwrap().contains("release 1\n"), "the old version is untouched");
        assert!(workshop.product_folder().join("reserve").exists(), "staging does not live on the reserve");
        let Outcome::Report(Report::StageFailed { fault, reason, .. }) = &outcome else {
            assert_eq!(outcome, Outcome::Report(Report::Staged { release: two.release }), "{left} bytes");
            break;
        };
        assert_eq!(*fault, Fault::DiskFull, "{left} bytes: {reason}");
        assert!(reason.starts_with("disk-full: "), "{reason}");
        assert!(!workshop.product_folder().join("slots/b").exists(), "{left} bytes: what it took is given back");
        refused += 1;
    }
    assert!(refused >= 10, "{refused} were refused");
    scarce.leave(PLENTY);
    let outcome = executor.execute(&Step::Stage { install: two.clone() }).await;
    assert_eq!(outcome, Outcome::Report(Report::Staged { release: two.release }));
}

#[tokio::test]
async fn b2_an_upgrade_under_way_is_finished_from_the_reserve_when_the_disk_runs_full() {
    for confirm in [true, false] {
        let (workshop, scarce, mut executor, one, two) = on_one().await;
        executor.execute(&Step::Stage { install: two.clone() }).await;
        scarce.leave(0);
        let outcome = executor.execute(&Step::Activate { install: two.clone(), claim: claim(), within_ms: 900_000 }).await;
        assert_eq!(outcome, Outcome::Report(Report::Activated { release: two.release }));
        scarce.leave(scarce.left().min(80 * 1024));
        let last = if confirm {
            Step::Confirm { release: two.release }
        } else {
            Step::Revert { release: two.release, reason: Reason::lossy("unhealthy"), at_fault: true }
        };
        let outcome = executor.execute(&last).await;
        let script = workshop.current_script().unwrap();
        if confirm {
            assert_eq!(outcome, Outcome::Report(Report::Confirmed { release: two.release }));
            assert!(script.contains("release 2\n"));
        } else {
            assert!(
                matches!(&outcome, Outcome::Report(Report::Reverted { running: Some(running), .. }) if running.release == one.release)
            );
            assert!(script.contains("release 1\n"));
        }
        assert!(!workshop.product_folder().join("reserve").exists(), "it was used");
        scarce.leave(PLENTY);
        drop(executor);
        let mut executor = workshop.executor().await;
        executor.recover().await.unwrap();
        let reserve = fs::read(workshop.product_folder().join("reserve")).expect("and is taken again");
        let (least, most) = (reserve.iter().min(), reserve.iter().max());
        assert!(least == Some(&0) && most == Some(&255), "and does not shrink on a file system that packs what it stores");
    }
}

#[tokio::test]
async fn b2_without_any_space_a_confirm_is_never_given_up_and_a_revert_starts_the_old_version() {
    let (workshop, scarce, mut executor, _, two) = on_one().await;
    executor.execute(&Step::Stage { install: two.clone() }).await;
    executor.execute(&Step::Activate { install: two.clone(), claim: claim(), within_ms: 900_000 }).await;
    fs::remove_file(workshop.product_folder().join("reserve")).unwrap();
    scarce.leave(0);
    assert_eq!(executor.execute(&Step::Confirm { release: two.release }).await, Outcome::Again);
    scarce.leave(PLENTY);
    let outcome = executor.execute(&Step::Confirm { release: two.release }).await;
    assert_eq!(outcome, Outcome::Report(Report::Confirmed { release: two.release }));

    let three = workshop.release(3, "echo three");
    executor.execute(&Step::Stage { install: three.clone() }).await;
    executor.execute(&Step::Activate { install: three.clone(), claim: claim(), within_ms: 900_000 }).await;
    scarce.leave(2);
    let revert = Step::Revert { release: three.release, reason: Reason::lossy("unhealthy"), at_fault: true };
    let outcome = executor.execute(&revert).await;
    assert!(matches!(outcome, Outcome::Report(Report::Reverted { .. })), "two names are enough to swap a symlink: {outcome:?}");
    assert_eq!(workshop.lines("started").last().map(String::as_str), Some("start 2.0"));
    drop(executor);
    scarce.leave(PLENTY);
    let recovered = workshop.executor().await.recover().await.unwrap();
    assert_eq!(recovered.running.map(|running| running.release), Some(two.release));
}

#[tokio::test]
async fn what_can_never_run_again_is_given_back_and_nothing_else() {
    let (workshop, _, mut executor, _, two) = on_one().await;
    executor.execute(&Step::Stage { install: two.clone() }).await;
    assert!(!executor.reclaim().await, "what is staged stays");
    executor.execute(&Step::Activate { install: two.clone(), claim: claim(), within_ms: 900_000 }).await;
    assert!(!executor.reclaim().await, "the way back stays as long as the trial lasts");
    executor.execute(&Step::Confirm { release: two.release }).await;
    assert!(executor.reclaim().await, "below the floor nothing runs again");
    assert!(!workshop.product_folder().join("slots/a").exists());
    assert!(workshop.current_script().unwrap().contains("release 2\n"));
    assert!(!executor.reclaim().await);
}

#[tokio::test]
async fn s6_a_disk_that_does_not_tell_what_it_holds_is_not_taken_for_an_empty_one() {
    for name in ["confirmed.json", "current", "slot.json", "denied.json"] {
        let unsure = ["confirmed.json", "current"].contains(&name);
        let (workshop, scarce, mut executor, one, two) = on_one().await;
        executor.execute(&Step::Stage { install: two.clone() }).await;
        let three = workshop.release(3, "echo three");
        let binaries =
            || ["a", "b"].map(|slot| fs::read(workshop.product_folder().join("slots").join(slot).join("bcd")).unwrap());
        let before = binaries();
        fs::write(workshop.product_folder().join("denied.json"), "{\"spec\":1,\"denied\":[]}").unwrap();
        scarce.mute(Some(name));
        let staged = executor.execute(&Step::Stage { install: three }).await;
        assert!(matches!(&staged, Outcome::Report(Report::StageFailed { fault: Fault::Broken, .. })), "{name}: {staged:?}");
        let activated = executor.execute(&Step::Activate { install: two.clone(), claim: claim(), within_ms: 900_000 }).await;
        assert!(
            matches!(&activated, Outcome::Report(Report::ActivateFailed { at_fault: false, .. })),
            "{name}: the release is not to blame: {activated:?}"
        );
        let revert = Step::Revert { release: two.release, reason: Reason::lossy("no"), at_fault: false };
        if unsure {
            assert_eq!(executor.execute(&Step::Confirm { release: two.release }).await, Outcome::Again, "{name}");
            assert_eq!(executor.execute(&revert).await, Outcome::Again, "{name}");
        }
        assert!(!executor.reclaim().await);
        drop(executor);
        let mut executor = workshop.executor_on(workshop.disk_on(Arc::new(scarce.clone()))).await;
        let limit = if unsure { Duration::from_millis(300) } else { PATIENCE };
        let told = tokio::time::timeout(limit, executor.recover()).await;
        assert_eq!(told.is_err(), unsure, "{name}: it tells nothing that is not so, and what it knows: {told:?}");
        if let Ok(recovered) = told {
            let recovered = recovered.unwrap();
            assert_eq!(recovered.running.map(|running| running.release), Some(one.release), "{name}");
            assert_eq!((recovered.floor.get(), recovered.staged), (1, None), "{name}");
        }
        drop(executor);
        scarce.mute(None);
        let mut executor = workshop.executor_on(workshop.disk_on(Arc::new(scarce.clone()))).await;
        let recovered = executor.recover().await.unwrap();
        assert_eq!(recovered.running.map(|running| running.release), Some(one.release), "{name}");
        assert_eq!((recovered.floor.get(), recovered.staged), (1, Some(two.release)), "{name}");
        assert_eq!(binaries(), before, "{name}: nothing was overwritten");
    }
}

#[tokio::test]
async fn s6_where_nothing_tells_which_slot_was_confirmed_none_is_overwritten_until_somebody_says() {
    for (damaged, staged) in [(true, false), (false, false), (false, true)] {
        let (workshop, scarce, mut executor, one, two) = on_one().await;
        if staged {
            executor.execute(&Step::Stage { install: two.clone() }).await;
        }
        drop(executor);
        let at = |name: &str| workshop.product_folder().join(name);
        fs::remove_file(at("current")).unwrap();
        if damaged {
            fs::write(at("confirmed.json"), "torn").unwrap();
        } else {
            fs::remove_file(at("confirmed.json")).unwrap();
        }
        let again = || async { workshop.executor_on(workshop.disk_on(Arc::new(scarce.clone()))).await };
        let mut executor = again().await;
        let recovered = executor.recover().await.unwrap();
        assert_eq!((recovered.running, recovered.staged), (None, None), "damaged {damaged}, staged {staged}");
        let three = workshop.release(3, "echo three");
        let outcome = executor.execute(&Step::Stage { install: three.clone() }).await;
        let Outcome::Report(Report::StageFailed { reason, .. }) = &outcome else { panic!("it must be refused: {outcome:?}") };
        assert!(reason.contains("nothing tells which slot"), "{reason}");
        assert!(!executor.reclaim().await && at("slots/a/bcd").exists());
        drop(executor);

        symlink("slots/a", at("current")).unwrap();
        let mut executor = again().await;
        let recovered = executor.recover().await.unwrap();
        assert_eq!(recovered.running.map(|running| running.release), Some(one.release));
        assert_eq!(recovered.floor.get(), 1);
        assert_eq!(
            executor.execute(&Step::Stage { install: three.clone() }).await,
            Outcome::Report(Report::Staged { release: three.release })
        );
    }
}

//! The device with real small processes: commands and supervised ones.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use groundswell_agent::config::{Activator, HealthCheck};
use groundswell_agent::install::ending::Grace;
use groundswell_agent::install::files::OnDisk;
use groundswell_agent::install::journal::Journal;
use groundswell_agent::install::slots::Room;
use groundswell_agent::install::{Device, DeviceError, Settings};
use groundswell_core::install::{Contents, Entry, Mark, Way};
use groundswell_core::node::effect::Step;
use groundswell_core::node::input::{Fault, Health, LocalPolicy, Report};
use groundswell_core::record::status::HoldCode;
use groundswell_core::text::{Reason, Version};
use tokio::sync::mpsc;

use crate::workshop::{TOO_LONG, Workshop, claim, content, product};

#[tokio::test]
async fn a_release_is_staged_activated_and_confirmed() {
    let workshop = Workshop::noting_starts();
    workshop.touch("healthy");
    let (mut bench, recovered) = workshop.device().await;
    assert_eq!((recovered.running, recovered.floor.get(), recovered.staged), (None, 0, None));
    assert_eq!(bench.next().await, Report::Policy(LocalPolicy::default()));
    assert_eq!(bench.next().await, Report::Blocked(Vec::new()));
    let one = workshop.release(1, "echo one");
    bench.install(&one).await;
    bench.until_health(|health| *health == Health::Healthy).await;
    let binary = workshop.product_folder().join("current/bcd");
    assert_eq!(fs::metadata(binary).unwrap().permissions().mode() & 0o777, 0o555);
    assert_eq!(workshop.lines("started"), ["start 1.0"]);
    bench.shutdown().await;

    let (bench, recovered) = workshop.device().await;
    assert_eq!(recovered.running.map(|running| running.release), Some(one.release));
    assert_eq!(recovered.floor.get(), 1);
    assert_eq!(workshop.lines("started"), ["start 1.0"], "a restart of the agent starts nothing again");
    bench.shutdown().await;
}

#[tokio::test]
async fn i7_a_failed_activation_carries_the_reason_and_the_last_lines_and_the_old_version_returns() {
    let workshop = Workshop::noting_starts();
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo checking; echo 'bad database' >&2; exit 3"));
    let Report::ActivateFailed { release, reason, .. } = bench.upgrade(&one, &two).await else { panic!("it must fail") };
    assert_eq!(release, two.release);
    assert!(reason.contains("ended with status 3") && reason.contains("bad database"), "{reason}");
    let Report::Reverted { running, output, .. } = bench.revert(&two).await else { panic!("it must go back") };
    assert_eq!(running.map(|running| running.release), Some(one.release));
    assert!(output.contains("bad database"), "{output}");
    assert_eq!(workshop.lines("started"), ["start 1.0", "start 2.0", "start 1.0"]);
    assert!(workshop.current_script().unwrap().contains("release 1\n"));
    bench.shutdown().await;
}

#[tokio::test]
async fn a_first_install_that_fails_leaves_nothing_and_is_stopped() {
    let workshop = Workshop::noting_starts();
    let (mut bench, _) = workshop.device().await;
    let one = workshop.release(1, "exit 1");
    bench.stage(&one).await;
    assert!(matches!(bench.activate(&one).await, Report::ActivateFailed { .. }));
    let Report::Reverted { running, .. } = bench.revert(&one).await else { panic!("it must go back") };
    assert_eq!(running, None);
    assert_eq!(workshop.current_script(), None);
    assert_eq!(workshop.lines("started"), ["start 1.0", "stop 1.0"]);
    bench.shutdown().await;
}

#[tokio::test]
async fn s6_a_confirmed_version_stays_that_when_the_file_that_says_so_is_lost_or_damaged() {
    for damage in [None, Some(""), Some("{\"spec\":1,\"slot\":"), Some("{\"spec\":99}")] {
        let workshop = Workshop::noting_starts();
        let (mut bench, _) = workshop.device().await;
        let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
        bench.install(&one).await;
        bench.install(&two).await;
        bench.shutdown().await;
        let file = workshop.product_folder().join("confirmed.json");
        let said = fs::read(&file).unwrap();
        match damage {
            None => fs::remove_file(&file).unwrap(),
            Some(text) => fs::write(&file, text).unwrap(),
        }
        let (mut bench, recovered) = workshop.device().await;
        assert_eq!(recovered.running.map(|running| running.release), Some(two.release), "{damage:?}");
        assert_eq!((recovered.trial, recovered.reverted), (None, None), "{damage:?}");
        assert_eq!(fs::read(&file).unwrap(), said, "{damage:?}: it is written down again");
        // An order to leave it comes too late, and leaves it where it is.
        let report = bench.revert(&two).await;
        assert!(matches!(report, Report::Confirmed { .. }), "{damage:?}: {report:?}");
        assert!(workshop.current_script().is_some_and(|script| script.contains("two")), "{damage:?}");
        bench.shutdown().await;
    }
}

#[tokio::test]
async fn i1_after_a_revert_the_failed_build_is_neither_running_nor_staged_after_a_restart() {
    let workshop = Workshop::noting_starts();
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    bench.upgrade(&one, &two).await;
    bench.revert(&two).await;
    bench.shutdown().await;
    let (bench, recovered) = workshop.device().await;
    assert_eq!(recovered.running.map(|running| running.release), Some(one.release));
    assert_eq!((recovered.staged, recovered.trial, recovered.reverted), (None, None, None));
    bench.shutdown().await;
}

#[tokio::test]
async fn i1_what_failed_here_is_remembered_beyond_its_slot_until_it_turns_out_well() {
    let workshop = Workshop::noting_starts();
    let (mut bench, _) = workshop.device().await;
    let (one, two, three) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"), workshop.release(3, "echo three"));
    bench.upgrade(&one, &two).await;
    bench.revert(&two).await;
    // The next release takes the slot of what failed.
    bench.stage(&three).await;
    bench.shutdown().await;
    let (mut bench, recovered) = workshop.device().await;
    assert_eq!(recovered.denied, [two.release, Contents::of(&two).build()]);
    let list = fs::read_to_string(workshop.product_folder().join("denied.json")).unwrap();
    assert!(list.contains(&two.artifact.sha256.to_string()) && list.contains("unhealthy"), "{list}");
    // A generation forgave it, and this time it works.
    bench.install(&two).await;
    bench.shutdown().await;
    let (bench, recovered) = workshop.device().await;
    assert_eq!(recovered.denied, []);
    bench.shutdown().await;
}

#[tokio::test]
async fn a_release_that_an_order_took_back_is_not_among_those_that_failed() {
    let workshop = Workshop::noting_starts();
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    bench.upgrade(&one, &two).await;
    let Report::Reverted { running, .. } = bench.abort(&two).await else { panic!("it must go back") };
    assert_eq!(running.map(|running| running.release), Some(one.release));
    bench.shutdown().await;
    let (mut bench, recovered) = workshop.device().await;
    assert_eq!((recovered.denied, recovered.staged), (Vec::new(), None));
    // The next rollout may bring it again.
    bench.install(&two).await;
    bench.shutdown().await;
}

#[tokio::test]
async fn a_way_back_that_was_cut_off_still_knows_whether_the_release_was_to_blame() {
    for at_fault in [false, true] {
        let workshop = Workshop::noting_starts();
        let (mut bench, _) = workshop.device().await;
        let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
        bench.upgrade(&one, &two).await;
        bench.shutdown().await;
        let folder = workshop.product_folder();
        let mut journal = Journal::open(Arc::new(OnDisk), &folder).unwrap();
        let transaction = journal.last().unwrap().transaction.clone();
        let mark = Mark::Revert { reason: Reason::lossy("told before the power failed"), at_fault, way: Way::Start, tries: 0 };
        journal.note(&Entry { transaction, mark }).unwrap();
        let (bench, recovered) = workshop.device().await;
        assert_eq!(recovered.reverted.map(|(release, _)| release), Some(two.release));
        assert_eq!(recovered.denied.contains(&two.release), at_fault);
        bench.shutdown().await;
    }
}

#[tokio::test]
async fn t5_a_staged_release_gives_way_to_the_one_that_supersedes_it() {
    let workshop = Workshop::noting_starts();
    let (mut bench, _) = workshop.device().await;
    let (one, two, three) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"), workshop.release(3, "echo three"));
    bench.install(&one).await;
    // It waits for its window.
    bench.stage(&two).await;
    bench.stage(&three).await;
    let Report::ActivateFailed { reason, .. } = bench.activate(&two).await else { panic!("it is gone") };
    assert!(reason.contains("does not hold this release"), "{reason}");
    assert_eq!(bench.activate(&three).await, Report::Activated { release: three.release });
    bench.confirm(&three).await;
    assert_eq!(workshop.lines("started"), ["start 1.0", "start 3.0"]);
    bench.shutdown().await;
}

#[tokio::test]
async fn i3_once_confirmed_a_version_stays_even_if_nobody_hears_of_it() {
    let workshop = Workshop::noting_starts();
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    bench.upgrade(&one, &two).await;
    bench.confirm(&two).await;
    // The core never heard of it and asks to go back: the point of no return is on disk.
    assert_eq!(bench.revert(&two).await, Report::Confirmed { release: two.release });
    bench.shutdown().await;
    let (bench, recovered) = workshop.device().await;
    assert_eq!(recovered.running.map(|running| running.release), Some(two.release));
    assert_eq!(recovered.floor.get(), 2);
    bench.shutdown().await;
}

#[tokio::test]
async fn what_is_not_on_trial_is_not_confirmed_and_the_core_hears_so() {
    let workshop = Workshop::noting_starts();
    let (mut bench, _) = workshop.device().await;
    let one = workshop.release(1, "echo one");
    bench.stage(&one).await;
    assert!(matches!(bench.confirm(&one).await, Report::ConfirmFailed { release, .. } if release == one.release));
    bench.shutdown().await;
}

#[tokio::test]
async fn i4_a_second_upgrade_waits_while_the_first_is_unconfirmed_and_the_running_slot_is_not_touched() {
    let workshop = Workshop::noting_starts();
    let (mut bench, _) = workshop.device().await;
    let [one, two, three] = [1, 2, 3].map(|sequence| workshop.release(sequence, "echo it"));
    bench.upgrade(&one, &two).await;
    let Report::StageFailed { reason, .. } = bench.stage(&three).await else { panic!("it must wait") };
    assert!(reason.contains("2.0 is not confirmed yet"), "{reason}");
    assert!(workshop.current_script().unwrap().contains("release 2\n"));
    bench.confirm(&two).await;
    bench.stage(&three).await;
    assert!(workshop.current_script().unwrap().contains("release 2\n"), "staging never touches what runs");
    bench.shutdown().await;
}

#[tokio::test]
async fn a_slot_is_a_file_of_its_own_that_nobody_changes_through_the_artifacts_name() {
    let workshop = Workshop::noting_starts();
    let (mut bench, _) = workshop.device().await;
    let one = workshop.release(1, "echo one");
    bench.install(&one).await;
    let artifact = workshop.path("artifacts").join(one.artifact.sha256.to_string());
    let staged = fs::metadata(workshop.product_folder().join("current/bcd")).unwrap();
    assert_eq!((staged.nlink(), fs::metadata(&artifact).unwrap().nlink()), (1, 1), "no hard link");
    let content = fs::read(&artifact).unwrap();
    fs::write(&artifact, vec![0; content.len()]).unwrap();
    assert_eq!(fs::read(workshop.product_folder().join("current/bcd")).unwrap(), content);
    bench.shutdown().await;
}

#[tokio::test]
async fn an_artifact_that_is_not_what_was_signed_is_not_staged_and_its_keeper_is_told_to_look_at_it() {
    let workshop = Workshop::noting_starts();
    let (mut bench, _) = workshop.device().await;
    let one = workshop.release(1, "echo one");
    let artifact = workshop.path("artifacts").join(one.artifact.sha256.to_string());
    let content = fs::read(&artifact).unwrap();
    fs::write(&artifact, vec![0; content.len()]).unwrap();
    let Report::StageFailed { reason, .. } = bench.stage(&one).await else { panic!("it must be refused") };
    assert!(reason.contains("digest"), "{reason}");
    assert_eq!(fs::read_to_string(workshop.path("artifacts").join("doubted")).unwrap(), one.artifact.sha256.to_string());
    fs::write(&artifact, content).unwrap();
    assert!(matches!(bench.stage(&one).await, Report::Staged { .. }));
    bench.shutdown().await;
}

#[tokio::test]
async fn i5_current_leads_to_the_old_or_the_new_version_at_every_instant() {
    let workshop = Workshop::noting_starts();
    let (mut bench, _) = workshop.device().await;
    bench.install(&workshop.release(1, "echo one")).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (folder, watching) = (workshop.product_folder(), Arc::clone(&stop));
    let watcher = std::thread::spawn(move || {
        let mut looks = 0_u64;
        while !watching.load(Ordering::Relaxed) {
            let target = fs::read_link(folder.join("current")).expect("current is always there");
            assert!(target.ends_with("slots/a") || target.ends_with("slots/b"), "{target:?}");
            fs::metadata(folder.join("current/bcd")).expect("and leads to a binary");
            looks += 1;
        }
        looks
    });
    for sequence in 2..8 {
        let release = workshop.release(sequence, "echo next");
        bench.stage(&release).await;
        bench.activate(&release).await;
        if sequence % 2 == 0 {
            bench.revert(&release).await
        } else {
            bench.confirm(&release).await
        };
    }
    stop.store(true, Ordering::Relaxed);
    assert!(watcher.join().unwrap() > 0);
    bench.shutdown().await;
}

#[tokio::test]
async fn s5_nothing_below_the_floor_is_staged_or_activated() {
    let workshop = Workshop::noting_starts();
    let (mut bench, _) = workshop.device().await;
    bench.install(&workshop.release(5, "echo five")).await;
    let old = workshop.release(4, "echo four");
    let Report::StageFailed { reason, .. } = bench.stage(&old).await else { panic!("it must be refused") };
    assert!(reason.contains("below this node's floor 5"), "{reason}");
    assert!(matches!(bench.activate(&old).await, Report::ActivateFailed { .. }));
    bench.shutdown().await;
}

#[tokio::test]
async fn s3_a_staged_file_that_was_changed_is_not_activated() {
    let workshop = Workshop::noting_starts();
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    bench.install(&one).await;
    bench.stage(&two).await;
    let staged = workshop.product_folder().join("slots/b/bcd");
    let evil = fs::read_to_string(&staged).unwrap().replace("echo two", "echo bad");
    fs::remove_file(&staged).unwrap();
    fs::write(&staged, evil).unwrap();
    let Report::ActivateFailed { reason, .. } = bench.activate(&two).await else { panic!("it must be refused") };
    assert!(reason.contains("digest is sha256/"), "{reason}");
    assert!(matches!(bench.revert(&two).await, Report::Reverted { .. }));
    assert_eq!(workshop.lines("started"), ["start 1.0"], "the running version was not touched");
    bench.shutdown().await;
}

#[tokio::test]
async fn b1_short_long_and_missing_artifacts_are_never_staged() {
    let workshop = Workshop::noting_starts();
    let (mut bench, _) = workshop.device().await;
    for (sequence, change) in [(1, Some("")), (2, Some("#!/bin/sh\n")), (3, None)] {
        let release = workshop.release(sequence, "echo it");
        let file = workshop.path("artifacts").join(release.artifact.sha256.to_string());
        match change {
            Some(text) => fs::write(&file, text).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let Report::StageFailed { fault, .. } = bench.stage(&release).await else { panic!("it must be refused") };
        assert_eq!(fault, Fault::Broken);
    }
    let mut release = workshop.release(4, "echo it");
    release.artifact.size -= 1;
    assert!(matches!(bench.stage(&release).await, Report::StageFailed { .. }));
    assert!(!workshop.product_folder().join("slots/a").exists(), "what it took is given back");
    bench.shutdown().await;
}

#[tokio::test]
async fn b2_a_full_disk_is_said_and_staging_goes_on_when_space_returns() {
    let mut workshop = Workshop::noting_starts();
    workshop.room.keep_free_bytes = u64::MAX / 2;
    let (mut bench, _) = workshop.device().await;
    let blocked = bench.until(|report| if let Report::Blocked(blocked) = report { Some(blocked) } else { None }).await;
    assert_eq!(blocked.iter().map(|hold| hold.code).collect::<Vec<_>>(), [HoldCode::DiskFull]);
    let one = workshop.release(1, "echo one");
    let Report::StageFailed { fault, reason, .. } = bench.stage(&one).await else { panic!("there is no space") };
    assert_eq!(fault, Fault::DiskFull);
    assert!(reason.starts_with("disk-full: "), "{reason}");
    assert!(!workshop.product_folder().join("slots/a").exists(), "what it took is given back");
    bench.shutdown().await;
    workshop.room.keep_free_bytes = 0;
    let (mut bench, _) = workshop.device().await;
    assert_eq!(bench.stage(&one).await, Report::Staged { release: one.release });
    bench.shutdown().await;
}

#[tokio::test]
async fn b2_the_slots_keep_to_their_quota_and_give_back_what_can_never_run_again() {
    let mut workshop = Workshop::noting_starts();
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    let both = one.artifact.size + two.artifact.size;
    workshop.room.slot_bytes = both - 1;
    let (mut bench, _) = workshop.device().await;
    bench.install(&one).await;
    let Report::StageFailed { fault, reason, .. } = bench.stage(&two).await else { panic!("both are too much") };
    assert_eq!(fault, Fault::DiskFull);
    assert!(reason.contains("limits.slots"), "{reason}");
    bench.shutdown().await;
    workshop.room.slot_bytes = both;
    let (mut bench, _) = workshop.device().await;
    bench.install(&two).await;
    assert!(workshop.product_folder().join("slots/a").exists(), "the old version stays while there is room");
    bench.shutdown().await;
    workshop.room.slot_bytes = both - 1;
    let (bench, recovered) = workshop.device().await;
    assert_eq!(recovered.running.map(|running| running.release), Some(two.release));
    while workshop.product_folder().join("slots/a").exists() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(workshop.current_script().unwrap().contains("release 2\n"));
    bench.shutdown().await;
}

#[tokio::test]
async fn l3_an_inhibit_file_is_reported_when_it_comes_and_when_it_goes() {
    let mut workshop = Workshop::noting_starts();
    workshop.config.inhibit = vec![workshop.path("hold")];
    workshop.config.version_lock = Some(Version::new("1.4").unwrap());
    let (mut bench, _) = workshop.device().await;
    assert_eq!(bench.next().await, Report::Policy(LocalPolicy { version_lock: Some("1.4".to_owned()), observe_only: false }));
    assert_eq!(bench.next().await, Report::Blocked(Vec::new()));
    workshop.touch("hold");
    let Report::Blocked(blocked) = bench.next().await else { panic!("only this can come") };
    assert_eq!(blocked.iter().map(|hold| (hold.code, hold.until)).collect::<Vec<_>>(), [(HoldCode::Inhibited, None)]);
    fs::remove_file(workshop.path("hold")).unwrap();
    assert_eq!(bench.next().await, Report::Blocked(Vec::new()));
    bench.shutdown().await;
}

#[tokio::test]
async fn two_agents_do_not_share_a_folder() {
    let workshop = Workshop::noting_starts();
    let (bench, _) = workshop.device().await;
    let settings = Settings {
        product: product(),
        folder: workshop.product_folder(),
        config: workshop.config.clone(),
        room: Room::ENDLESS,
        boot: workshop.boot.clone(),
        own: None,
        block_interval: std::time::Duration::from_secs(1),
        grace: Grace::default(),
    };
    let (sender, _reports) = mpsc::channel(1);
    let refused = Device::start(settings, workshop.shelf(), sender).expect_err("the folder is in use");
    assert!(matches!(refused, DeviceError::InUse { .. }), "{refused}");
    bench.shutdown().await;
}

#[tokio::test]
async fn a_stop_in_the_middle_of_an_activation_is_finished_by_the_next_start() {
    let workshop = Workshop::with_command("echo start $GROUNDSWELL_VERSION >> started; test -e go || exec sleep 1000");
    workshop.touch("go");
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    bench.install(&one).await;
    bench.stage(&two).await;
    fs::remove_file(workshop.path("go")).unwrap();
    bench.device.step(Step::Activate { install: two.clone(), claim: claim(), within_ms: 900_000 }).unwrap();
    while workshop.lines("started").len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    bench.shutdown().await;
    workshop.touch("go");
    let (mut bench, recovered) = workshop.device().await;
    assert_eq!(recovered.trial, Some(two.release));
    bench.confirm(&two).await;
    bench.shutdown().await;
}

#[tokio::test]
async fn a_supervised_process_runs_from_its_slot_and_stops_with_the_agent() {
    let workshop = Workshop::supervising();
    let (mut bench, _) = workshop.device().await;
    let pid = workshop.path("pid");
    let script = format!("echo $$ > {}; echo hello; exec sleep 1000", pid.display());
    let one = workshop.release(1, &script);
    bench.install(&one).await;
    bench.until_health(|health| *health == Health::Healthy).await;
    let first = content(&pid).await;
    assert_eq!(content(&workshop.product_folder().join("log/output.log")).await, "hello");
    bench.shutdown().await;
    assert!(!fs::exists(format!("/proc/{first}")).unwrap(), "nothing is left behind");

    fs::remove_file(&pid).unwrap();
    let (mut bench, recovered) = workshop.device().await;
    assert_eq!(recovered.running.map(|running| running.release), Some(one.release));
    bench.until_health(|health| *health == Health::Healthy).await;
    assert_ne!(content(&pid).await, first);
    bench.shutdown().await;
}

#[tokio::test]
async fn i7_a_supervised_process_that_keeps_exiting_is_failing_and_its_last_lines_are_in_the_revert() {
    let workshop = Workshop::supervising();
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "exec sleep 1000"), workshop.release(2, "echo 'no such table' >&2; exit 9"));
    assert_eq!(bench.upgrade(&one, &two).await, Report::Activated { release: two.release });
    let Health::Failing(why) = bench.until_health(|health| matches!(health, Health::Failing(_))).await else { unreachable!() };
    assert!(why.contains("ended with status 9") && why.contains("no such table"), "{why}");
    let Report::Reverted { output, running, .. } = bench.revert(&two).await else { panic!("it must go back") };
    assert!(output.contains("no such table"), "{output}");
    assert_eq!(running.map(|running| running.release), Some(one.release));
    bench.until_health(|health| *health == Health::Healthy).await;
    bench.shutdown().await;
}

#[tokio::test]
async fn the_last_health_of_the_old_version_is_never_told_of_the_new_one() {
    let workshop = Workshop::supervising();
    let (mut bench, _) = workshop.device().await;
    let broken = workshop.path("broken");
    let old = format!("while [ ! -e {} ]; do sleep 0.02; done; exit 1", broken.display());
    let (one, two) = (workshop.release(1, &old), workshop.release(2, "exec sleep 1000"));
    bench.install(&one).await;
    bench.until_health(|health| *health == Health::Healthy).await;
    fs::write(&broken, "").unwrap();
    bench.until_health(|health| matches!(health, Health::Failing(_))).await;
    bench.stage(&two).await;
    bench.activate(&two).await;
    let first = bench.until_health(|_| true).await;
    assert_eq!(first, Health::Healthy);
    bench.shutdown().await;
}

#[tokio::test]
async fn a_program_that_cannot_be_run_fails_its_activation() {
    let workshop = Workshop::supervising();
    let (mut bench, _) = workshop.device().await;
    let one = workshop.release(1, "exec sleep 1000");
    bench.install(&one).await;
    let mut two = workshop.release(2, "");
    let bytes = b"\x7fELF but not really".to_vec();
    let sha256 = groundswell_core::digest::Digest::of(&bytes);
    fs::write(workshop.path("artifacts").join(sha256.hex().to_string()), &bytes).unwrap();
    (two.artifact.sha256, two.artifact.size) = (sha256.hex(), bytes.len() as u64);
    bench.stage(&two).await;
    let Report::ActivateFailed { reason, .. } = bench.activate(&two).await else { panic!("it cannot run") };
    assert!(reason.contains("cannot run"), "{reason}");
    let Report::Reverted { running, .. } = bench.revert(&two).await else { panic!("it must go back") };
    assert_eq!(running.map(|running| running.release), Some(one.release));
    bench.shutdown().await;
}

#[tokio::test]
async fn a_process_left_over_by_an_agent_that_died_is_stopped_before_anything_starts() {
    let workshop = Workshop::supervising();
    let pid = workshop.path("pid");
    let script = format!("sleep 1000 & echo $$ > {}; trap '' TERM; while :; do sleep 1; done", pid.display());
    let one = workshop.release(1, &script);
    let mut executor = workshop.executor().await;
    executor.recover().await.unwrap();
    for step in [
        Step::Stage { install: one.clone() },
        Step::Activate { install: one.clone(), claim: claim(), within_ms: 900_000 },
        Step::Confirm { release: one.release },
    ] {
        executor.execute(&step).await;
    }
    let orphan = content(&pid).await;
    // As with kill -9 of the agent: nobody stops the child.
    drop(executor);
    assert!(fs::exists(format!("/proc/{orphan}")).unwrap());
    fs::remove_file(&pid).unwrap();
    let (mut bench, recovered) = workshop.device().await;
    assert_eq!(recovered.running.map(|running| running.release), Some(one.release));
    bench.until_health(|health| *health == Health::Healthy).await;
    assert_ne!(content(&pid).await, orphan);
    let stat = fs::read_to_string(format!("/proc/{orphan}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    bench.shutdown().await;
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_with_everything_it_started() {
    let mut workshop = Workshop::with_command("sleep 1000 & echo $! > child; echo waiting; wait");
    let Activator::Command(command) = &mut workshop.config.activator else { unreachable!() };
    command.timeout = TOO_LONG;
    let (mut bench, _) = workshop.device().await;
    let one = workshop.release(1, "echo one");
    bench.stage(&one).await;
    let Report::ActivateFailed { reason, .. } = bench.activate(&one).await else { panic!("it takes too long") };
    assert!(reason.contains("took longer than") && reason.contains("waiting"), "{reason}");
    let child = content(&workshop.path("child")).await;
    let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    bench.shutdown().await;
}

#[tokio::test]
async fn i6_a_health_command_that_cannot_tell_is_unknown() {
    let mut workshop = Workshop::noting_starts();
    workshop.config.health.check = HealthCheck::Command(["sh", "-c", "echo no route; exit 75"].map(str::to_owned).to_vec());
    let (mut bench, _) = workshop.device().await;
    bench.install(&workshop.release(1, "echo one")).await;
    let health = bench.until_health(|_| true).await;
    assert!(matches!(&health, Health::Unknown(why) if why.contains("no route")), "{health:?}");
    bench.shutdown().await;
}

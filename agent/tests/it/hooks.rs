//! The operator's commands around the steps of an install, as real processes.

use std::time::Duration;

use groundswell_core::install::Hook;
use groundswell_core::node::input::{Fault, Report};

use crate::workshop::{Workshop, content};

/// A workshop whose hooks all write their name and what they know of the version.
fn noting() -> Workshop {
    let mut workshop = Workshop::noting_starts();
    let note = workshop.shell("echo $GROUNDSWELL_HOOK $GROUNDSWELL_VERSION $GROUNDSWELL_REASON >> hooks");
    for hook in Hook::ALL {
        workshop.config.hooks.commands.insert(hook, note.clone());
    }
    workshop
}

#[tokio::test]
async fn hooks_run_before_and_after_each_step_and_know_the_version() {
    let workshop = noting();
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    bench.install(&one).await;
    let happy = ["before-stage", "after-stage", "before-activate", "after-activate", "before-confirm", "after-confirm"];
    assert_eq!(workshop.lines("hooks"), happy.map(|hook| format!("{hook} 1.0")));
    bench.stage(&two).await;
    bench.activate(&two).await;
    bench.revert(&two).await;
    let told = workshop.lines("hooks").split_off(happy.len());
    let sad = ["before-stage 2.0", "after-stage 2.0", "before-activate 2.0", "after-activate 2.0"];
    assert_eq!(told[..4], sad);
    assert_eq!(told[4..], ["before-revert 2.0 unhealthy", "after-revert 2.0 unhealthy"]);
    bench.shutdown().await;
}

#[tokio::test]
async fn i7_a_hook_that_refuses_an_activation_leaves_the_running_version_alone_and_its_last_lines_are_in_the_verdict() {
    let mut workshop = Workshop::noting_starts();
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    bench.install(&one).await;
    bench.shutdown().await;
    let refuse = workshop.shell("echo the line is busy; exit 4");
    workshop.config.hooks.commands.insert(Hook::BeforeActivate, refuse);
    let (mut bench, _) = workshop.device().await;
    bench.stage(&two).await;
    let Report::ActivateFailed { reason, .. } = bench.activate(&two).await else { panic!("the hook refuses") };
    assert!(reason.contains("hook before-activate: sh ended with status 4: the line is busy"), "{reason}");
    let Report::Reverted { running, .. } = bench.revert(&two).await else { panic!("it goes back") };
    assert_eq!(running.map(|running| running.release), Some(one.release));
    assert_eq!(workshop.lines("started"), ["start 1.0"], "the running version was not touched");
    assert!(workshop.current_script().unwrap().contains("release 1\n"));
    bench.shutdown().await;
}

#[tokio::test]
async fn a_hook_that_finds_fault_with_the_new_version_sends_it_back() {
    let mut workshop = Workshop::noting_starts();
    let smoke = workshop.shell("test $GROUNDSWELL_VERSION != 2.0 || { echo smoke; exit 1; }");
    workshop.config.hooks.commands.insert(Hook::AfterActivate, smoke);
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    bench.install(&one).await;
    bench.stage(&two).await;
    let Report::ActivateFailed { reason, .. } = bench.activate(&two).await else { panic!("the hook refuses") };
    assert!(reason.contains("hook after-activate") && reason.contains("smoke"), "{reason}");
    bench.revert(&two).await;
    assert_eq!(workshop.lines("started"), ["start 1.0", "start 2.0", "start 1.0"]);
    bench.shutdown().await;
}

#[tokio::test]
async fn a_hook_that_refuses_staging_leaves_the_slot_empty_and_staging_can_be_tried_again() {
    let mut workshop = Workshop::noting_starts();
    let gate = workshop.shell("test -e open");
    workshop.config.hooks.commands.insert(Hook::BeforeStage, gate);
    let (mut bench, _) = workshop.device().await;
    let one = workshop.release(1, "echo one");
    let Report::StageFailed { fault, reason, .. } = bench.stage(&one).await else { panic!("the hook refuses") };
    assert_eq!(fault, Fault::Broken);
    assert!(reason.contains("hook before-stage"), "{reason}");
    assert!(!workshop.product_folder().join("slots/a").exists());
    workshop.touch("open");
    assert_eq!(bench.stage(&one).await, Report::Staged { release: one.release });
    bench.shutdown().await;
}

#[tokio::test]
async fn i3_from_the_decision_on_no_hook_stands_in_the_way() {
    let mut workshop = Workshop::noting_starts();
    let fail = workshop.shell("echo the office is closed; exit 1");
    for hook in [Hook::AfterStage, Hook::BeforeConfirm, Hook::AfterConfirm, Hook::BeforeRevert, Hook::AfterRevert] {
        workshop.config.hooks.commands.insert(hook, fail.clone());
    }
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    bench.install(&one).await;
    bench.stage(&two).await;
    bench.activate(&two).await;
    let Report::Reverted { running, output, .. } = bench.revert(&two).await else { panic!("it goes back") };
    assert_eq!(running.map(|running| running.release), Some(one.release));
    assert!(output.contains("hook after-revert") && output.contains("the office is closed"), "{output}");
    bench.shutdown().await;
}

#[tokio::test]
async fn a_hook_that_takes_too_long_is_killed_with_what_it_started() {
    let mut workshop = Workshop::noting_starts();
    let hang = workshop.shell("sleep 1000 & echo $! > child; echo hanging; wait");
    workshop.config.hooks.commands.insert(Hook::BeforeActivate, hang);
    workshop.config.hooks.timeout = Duration::from_millis(400);
    let (mut bench, _) = workshop.device().await;
    let one = workshop.release(1, "echo one");
    bench.stage(&one).await;
    let Report::ActivateFailed { reason, .. } = bench.activate(&one).await else { panic!("it takes too long") };
    assert!(reason.contains("took longer than") && reason.contains("hanging"), "{reason}");
    let child = content(&workshop.path("child")).await;
    let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    bench.shutdown().await;
}

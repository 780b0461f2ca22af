//! The operator's commands around the steps of an install, as real processes.

use groundswell_core::install::Hook;
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Fault, Report};
use groundswell_core::record::status::HoldCode;
use groundswell_core::text::Reason;

use crate::workshop::{Bench, TOO_LONG, Workshop, claim, content};

/// A workshop whose hooks all write their name and what they know of the version.
fn noting() -> Workshop {
    let mut workshop = Workshop::noting_starts();
    let note = workshop.shell("echo $GROUNDSWELL_HOOK $GROUNDSWELL_VERSION $GROUNDSWELL_REASON >> hooks");
    for hook in Hook::ALL {
        workshop.config.hooks.commands.insert(hook, note.clone());
    }
    workshop
}

/// Release 1 is installed, release 2 activated and taken back: the device, and what it told of that.
async fn taken_back(workshop: &Workshop) -> (Bench, Reason) {
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    bench.upgrade(&one, &two).await;
    let Report::Reverted { running, output, .. } = bench.revert(&two).await else { panic!("it goes back") };
    assert_eq!(running.map(|running| running.release), Some(one.release));
    (bench, output)
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
    let Report::ActivateFailed { reason, .. } = bench.upgrade(&one, &two).await else { panic!("the hook refuses") };
    assert!(reason.contains("hook after-activate") && reason.contains("smoke"), "{reason}");
    bench.revert(&two).await;
    assert_eq!(workshop.lines("started"), ["start 1.0", "start 2.0", "start 1.0"]);
    bench.shutdown().await;
}

#[tokio::test]
async fn a_hook_that_refuses_staging_leaves_the_slot_empty_and_staging_can_be_tried_again() {
    let mut workshop = Workshop::noting_starts();
    let gate = workshop.shell("test -e open || { echo the gate is shut; exit 1; }");
    workshop.config.hooks.commands.insert(Hook::BeforeStage, gate);
    let (mut bench, _) = workshop.device().await;
    let one = workshop.release(1, "echo one");
    let Report::StageFailed { fault, reason, .. } = bench.stage(&one).await else { panic!("the hook refuses") };
    assert_eq!(fault, Fault::Broken);
    assert!(reason.contains("hook before-stage: sh ended with status 1: the gate is shut"), "{reason}");
    assert!(!workshop.product_folder().join("slots/a").exists());
    workshop.touch("open");
    assert_eq!(bench.stage(&one).await, Report::Staged { release: one.release });
    bench.shutdown().await;
}

#[tokio::test]
async fn i3_from_the_decision_on_no_hook_stands_in_the_way() {
    let mut workshop = Workshop::noting_starts();
    let fail = workshop.shell("echo the office of $GROUNDSWELL_HOOK is closed; exit 1");
    for hook in [Hook::AfterStage, Hook::BeforeConfirm, Hook::AfterConfirm, Hook::BeforeRevert, Hook::AfterRevert] {
        workshop.config.hooks.commands.insert(hook, fail.clone());
    }
    let (bench, output) = taken_back(&workshop).await;
    for hook in ["before-revert", "after-revert"] {
        let told = format!("hook {hook}: sh ended with status 1: the office of {hook} is closed");
        assert!(output.contains(&told), "{output}");
    }
    bench.shutdown().await;
}

#[tokio::test]
async fn i7_neither_a_hook_nor_the_old_versions_start_hides_that_another_failed_on_the_way_back() {
    let mut workshop = Workshop::noting_starts();
    let babble = workshop.shell("head -c 5000 /dev/zero | tr '\\0' x; exit 3");
    for hook in [Hook::BeforeRevert, Hook::AfterRevert] {
        workshop.config.hooks.commands.insert(hook, babble.clone());
    }
    let (mut bench, _) = workshop.device().await;
    let script = format!("test ! -e {}", workshop.path("broken").display());
    let (one, two) = (workshop.release(1, &script), workshop.release(2, "echo two"));
    bench.upgrade(&one, &two).await;
    workshop.touch("broken");
    let reason = Reason::lossy("unhealthy");
    bench.device.step(Step::Revert { release: two.release, reason, at_fault: true }).unwrap();
    let is_fault =
        |report| matches!(&report, Report::Blocked(holds) if holds.iter().any(|hold| hold.code == HoldCode::DeviceFault));
    bench.until(|report| is_fault(report).then_some(())).await;
    std::fs::remove_file(workshop.path("broken")).unwrap();
    let output = bench
        .until(|report| match report {
            Report::Reverted { output, .. } => Some(output),
            _ => None,
        })
        .await;
    for told in
        ["hook before-revert: sh ended with status 3", "; sh ended with status 1", "; hook after-revert: sh ended with status 3"]
    {
        assert!(output.contains(told), "{output} does not say {told}");
    }
    bench.shutdown().await;
}

/// What one hook found in its environment, and whether the binary was there.
fn environment(workshop: &Workshop, hook: Hook) -> (Vec<String>, bool) {
    let inherited = |line: &String| line.split_once('=').is_some_and(|(name, _)| std::env::var_os(name).is_some());
    let (there, found) = workshop
        .lines(&format!("environment-{}", hook.name()))
        .split_last()
        .map_or_else(|| panic!("{} was not run", hook.name()), |(there, found)| (there == "there", found.to_vec()));
    (found.into_iter().filter(|line| !inherited(line)).collect(), there)
}

#[tokio::test]
async fn each_hook_gets_the_documented_environment_and_nothing_else() {
    let mut workshop = Workshop::noting_starts();
    let dump = workshop.shell(
        "{ env | grep ^GROUNDSWELL_ | sort; if test -e $GROUNDSWELL_BINARY; then echo there; else echo missing; fi; } \
            > environment-$GROUNDSWELL_HOOK",
    );
    for hook in Hook::ALL {
        workshop.config.hooks.commands.insert(hook, dump.clone());
    }
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    let check = |install: &Install, slot: &str, hooks: &[Hook]| {
        let slot = workshop.product_folder().join("slots").join(slot);
        for hook in hooks {
            let staging = matches!(hook, Hook::BeforeStage | Hook::AfterStage);
            let reverting = matches!(hook, Hook::BeforeRevert | Hook::AfterRevert);
            let mut expected = vec![format!("GROUNDSWELL_BINARY={}", slot.join("bcd").display())];
            expected.extend((!staging).then(|| format!("GROUNDSWELL_CLAIM={}", claim())));
            expected.push(format!("GROUNDSWELL_HOOK={}", hook.name()));
            expected.push("GROUNDSWELL_PRODUCT=bcd".to_owned());
            expected.extend(reverting.then(|| "GROUNDSWELL_REASON=unhealthy".to_owned()));
            expected.push(format!("GROUNDSWELL_RELEASE={}", install.release));
            expected.push(format!("GROUNDSWELL_SEQUENCE={}", install.sequence));
            expected.push(format!("GROUNDSWELL_SLOT={}", slot.display()));
            expected.push(format!("GROUNDSWELL_VERSION={}", install.version));
            let is_there = *hook != Hook::BeforeStage;
            assert_eq!(environment(&workshop, *hook), (expected, is_there), "{}", hook.name());
        }
    };
    bench.install(&one).await;
    let happy =
        [Hook::BeforeStage, Hook::AfterStage, Hook::BeforeActivate, Hook::AfterActivate, Hook::BeforeConfirm, Hook::AfterConfirm];
    check(&one, "a", &happy);
    bench.stage(&two).await;
    bench.activate(&two).await;
    check(&two, "b", &happy[..4]);
    bench.revert(&two).await;
    check(&two, "b", &[Hook::BeforeRevert, Hook::AfterRevert]);
    assert_eq!(happy.len() + 2, Hook::ALL.len(), "every hook is here");
    bench.shutdown().await;
}

#[tokio::test]
async fn i3_hooks_that_hang_hold_up_neither_a_confirm_nor_a_revert_for_longer_than_their_limit() {
    let mut workshop = Workshop::noting_starts();
    let hang = workshop.shell("echo $GROUNDSWELL_HOOK >> hung; exec sleep 1000");
    let hanging = [Hook::BeforeConfirm, Hook::AfterConfirm, Hook::BeforeRevert, Hook::AfterRevert];
    for hook in hanging {
        workshop.config.hooks.commands.insert(hook, hang.clone());
    }
    workshop.config.hooks.timeout = TOO_LONG;
    let (bench, output) = taken_back(&workshop).await;
    for hook in ["before-revert", "after-revert"] {
        assert!(output.contains(&format!("hook {hook}: sh took longer than")), "{output}");
    }
    assert_eq!(workshop.lines("hung"), hanging.map(Hook::name));
    assert_eq!(workshop.lines("started"), ["start 1.0", "start 2.0", "start 1.0"]);
    bench.shutdown().await;
}

#[tokio::test]
async fn a_hook_that_takes_too_long_is_killed_with_what_it_started() {
    let mut workshop = Workshop::noting_starts();
    let hang = workshop.shell("sleep 1000 & echo $! > child; echo hanging; wait");
    workshop.config.hooks.commands.insert(Hook::BeforeActivate, hang);
    workshop.config.hooks.timeout = TOO_LONG;
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

//! The device's own trouble, one row for each cause: an upgrade that meets it goes back, and no build is denied for it.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Duration;

use groundswell_agent::config::{Activator, CommandActivator, HealthCheck, Reboot};
use groundswell_agent::install::executor::{Executor, Outcome};
use groundswell_agent::install::forks;
use groundswell_core::install::{Boot, Hook};
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Health, Report};
use groundswell_core::text::Reason;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::{sleep, timeout};

use crate::workshop::{PATIENCE, TOO_LONG, Workshop, claim};

/// What is wrong with the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    RestartRefused,
    RestartCannotRun,
    RestartDoesNotCome,
    BootedTakesTooLong,
    BootedCannotRun,
}

const ALL: [Trouble; 5] = [
    Trouble::RestartRefused,
    Trouble::RestartCannotRun,
    Trouble::RestartDoesNotCome,
    Trouble::BootedTakesTooLong,
    Trouble::BootedCannotRun,
];

fn machine(trouble: Trouble) -> Workshop {
    let mut workshop = Workshop::noting_starts();
    let nowhere = || vec!["/nowhere/at/all".to_owned()];
    let (run, booted) = match trouble {
        Trouble::RestartRefused => (workshop.shell("echo 'Operation inhibited by \"backup\"' >&2; exit 1"), Vec::new()),
        Trouble::RestartCannotRun => (nowhere(), Vec::new()),
        Trouble::RestartDoesNotCome => (workshop.shell("true"), workshop.shell("false")),
        Trouble::BootedTakesTooLong => (workshop.shell("echo reboot >> reboots"), workshop.shell("exec sleep 3600")),
        Trouble::BootedCannotRun => (workshop.shell("echo reboot >> reboots"), nowhere()),
    };
    workshop.config.activator = Activator::Command(CommandActivator {
        run: workshop.shell("echo $GROUNDSWELL_VERSION > next"),
        back: Some(workshop.shell("echo $GROUNDSWELL_VERSION > next")),
        stop: Some(workshop.shell("echo none > next")),
        timeout: if trouble == Trouble::BootedTakesTooLong { TOO_LONG } else { PATIENCE },
        reboot: Some(Reboot { run, booted, timeout: Duration::from_millis(100) }),
    });
    workshop
}

fn activate(install: &Install) -> Step {
    Step::Activate { install: install.clone(), claim: claim(), within_ms: 900_000 }
}

/// Leaves a release as the node does after a switch that failed so.
fn leave(install: &Install, at_fault: bool) -> Step {
    Step::Revert { release: install.release, reason: Reason::lossy("the switch failed"), at_fault }
}

async fn switch_fails(executor: &mut Executor, install: &Install) -> (Reason, bool) {
    match executor.execute(&activate(install)).await {
        Outcome::Report(Report::ActivateFailed { reason, at_fault, .. }) => (reason, at_fault),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn no_build_is_denied_for_what_the_device_itself_could_not_do() {
    for trouble in ALL {
        let mut workshop = machine(trouble);
        let one = workshop.release(1, "a system");
        let mut executor = workshop.executor().await;
        executor.recover().await.unwrap();
        executor.execute(&Step::Stage { install: one.clone() }).await;
        let (reason, at_fault) = switch_fails(&mut executor, &one).await;
        assert!(!at_fault, "{trouble:?}: {reason}");
        if !matches!(trouble, Trouble::BootedTakesTooLong | Trouble::BootedCannotRun) {
            let outcome = executor.execute(&leave(&one, at_fault)).await;
            assert!(matches!(&outcome, Outcome::Report(Report::Reverted { .. })), "{trouble:?}: {outcome:?}");
            drop(executor);
            let recovered = workshop.executor().await.recover().await.unwrap();
            assert_eq!(recovered.denied, [], "{trouble:?}");
            continue;
        }
        drop(executor);
        workshop.boot = Boot("the second".to_owned());
        let mut executor = workshop.executor().await;
        let restarts = || workshop.lines("reboots").len();
        let restarted = async {
            let recovering = executor.recover();
            let mut recovering = std::pin::pin!(recovering);
            while restarts() < 2 {
                tokio::select! {
                    recovered = &mut recovering => panic!("{trouble:?}: the machine has to restart first: {recovered:?}"),
                    () = sleep(Duration::from_millis(10)) => {}
                }
            }
        };
        timeout(PATIENCE, restarted).await.unwrap();
        drop(executor);
        assert_eq!(workshop.lines("next"), ["none"], "{trouble:?}");
        // Until something says that the machine does not run it any more, it is not left.
        let no = workshop.shell("exit 1");
        let Activator::Command(command) = &mut workshop.config.activator else { panic!("{trouble:?}") };
        command.reboot.as_mut().unwrap().booted = no;
        workshop.boot = Boot("the third".to_owned());
        let recovered = workshop.executor().await.recover().await.unwrap();
        let (release, reason) = recovered.reverted.expect("it is over");
        assert_eq!((release, recovered.at_fault, recovered.denied), (one.release, false, Vec::new()), "{trouble:?}");
        assert!(reason.contains("nothing tells whether the machine started from 1.0"), "{trouble:?}: {reason}");
    }
}

/// What starts a version, or stands in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Run,
    Supervised,
    Before,
    After,
}

const PLACES: [Place; 4] = [Place::Run, Place::Supervised, Place::Before, Place::After];

/// A workshop in which this program is run at this place.
fn running(place: Place, argv: Vec<String>) -> Workshop {
    let mut workshop = if place == Place::Supervised { Workshop::supervising() } else { Workshop::with_command("true") };
    match (place, &mut workshop.config.activator) {
        (Place::Run, Activator::Command(command)) => command.run = argv,
        (Place::Supervised, Activator::Supervise(supervise)) => supervise.run = argv,
        (Place::Before, _) => drop(workshop.config.hooks.commands.insert(Hook::BeforeActivate, argv)),
        (Place::After, _) => drop(workshop.config.hooks.commands.insert(Hook::AfterActivate, argv)),
        other => panic!("{other:?}"),
    }
    workshop
}

/// Whether a build is to blame that cannot be started at this place.
async fn blamed(place: Place, workshop: &Workshop, install: &Install) -> bool {
    let mut executor = workshop.executor().await;
    executor.recover().await.unwrap();
    executor.execute(&Step::Stage { install: install.clone() }).await;
    let (reason, at_fault) = switch_fails(&mut executor, install).await;
    assert!(reason.contains("cannot run"), "{place:?}: {reason}");
    let outcome = executor.execute(&leave(install, at_fault)).await;
    assert!(matches!(&outcome, Outcome::Report(Report::Reverted { .. })), "{place:?}: {outcome:?}");
    executor.shutdown().await;
    assert_eq!(!workshop.disk().found().unwrap().denied.is_empty(), at_fault, "{place:?}");
    at_fault
}

#[tokio::test]
async fn no_build_is_denied_because_a_program_of_the_configuration_is_missing_or_may_not_be_run() {
    let folder = tempfile::tempdir().unwrap();
    let forbidden = folder.path().join("forbidden");
    fs::write(&forbidden, "#!/bin/sh\n").unwrap();
    for place in PLACES {
        for program in ["/nowhere/at/all", "no-such-program-anywhere", &forbidden.display().to_string()] {
            let workshop = running(place, vec![program.to_owned()]);
            let one = workshop.release(1, "exec sleep 1000");
            assert!(!blamed(place, &workshop, &one).await, "{place:?}: {program}");
        }
    }
}

#[tokio::test]
async fn a_build_that_the_kernel_does_not_run_is_to_blame_wherever_it_is_run() {
    for place in PLACES {
        for bytes in [&b"#!/nowhere/interpreter\n"[..], b"\x7fELF but not really"] {
            let workshop = running(place, vec!["{binary}".to_owned()]);
            let one = workshop.release_of(1, bytes);
            assert!(blamed(place, &workshop, &one).await, "{place:?}: {}", String::from_utf8_lossy(bytes));
        }
    }
}

#[tokio::test]
async fn a_health_command_that_is_missing_decides_nothing_unless_it_is_the_build_that_does_not_run() {
    for (program, decides) in [("/nowhere/at/all", false), ("{binary}", true)] {
        let mut workshop = Workshop::with_command("true");
        workshop.config.health.check = HealthCheck::Command(vec![program.to_owned()]);
        let one = workshop.release_of(1, b"#!/nowhere/interpreter\n");
        let (mut bench, _) = workshop.device().await;
        bench.stage(&one).await;
        assert!(matches!(bench.activate(&one).await, Report::Activated { .. }));
        let health = bench.until_health(|_| true).await;
        match health {
            Health::Failing(why) if decides => assert!(why.contains("cannot be run"), "{why}"),
            Health::Unknown(why) if !decides => assert!(why.contains("cannot be run"), "{why}"),
            other => panic!("{program}: {other:?}"),
        }
        bench.shutdown().await;
    }
}

/// In the environment of the process that has no files left: what starts a version.
const STARTER: &str = "GROUNDSWELL_NO_FILES_LEFT";

/// Holds all open files that this process may have but a few, too few for a child.
fn hold_files() -> Vec<File> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(128), ..limit }).unwrap();
    let mut held = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        held.push(file);
    }
    held.truncate(held.len() - 3);
    held
}

/// Not a test of its own: the process that has no files left.
#[tokio::test]
#[ignore = "run by no_build_is_denied_because_the_agent_has_no_files_or_processes_left as a child process"]
async fn child_without_files() {
    let Ok(starter) = std::env::var(STARTER) else { return };
    let mut workshop = if starter == "supervise" { Workshop::supervising() } else { Workshop::noting_starts() };
    if starter == "hook" {
        let hook = workshop.shell("true");
        workshop.config.hooks.commands.insert(Hook::BeforeActivate, hook);
    }
    let script = if starter == "supervise" { "exec sleep 1000" } else { "echo up" };
    let (one, two) = (workshop.release(1, script), workshop.release(2, script));
    let mut executor = workshop.executor().await;
    executor.recover().await.unwrap();
    // A supervised process that is replaced gives back files enough for the next one: there is none.
    let old = (starter != "supervise").then_some(one.release);
    if old.is_some() {
        for step in [Step::Stage { install: one.clone() }, activate(&one), Step::Confirm { release: one.release }] {
            executor.execute(&step).await;
        }
    }
    executor.execute(&Step::Stage { install: two.clone() }).await;
    let held = hold_files();
    let (reason, at_fault) = switch_fails(&mut executor, &two).await;
    drop(held);
    assert!(reason.contains("cannot run") && reason.contains("os error 24"), "{reason}");
    let outcome = executor.execute(&leave(&two, at_fault)).await;
    let Outcome::Report(Report::Reverted { running, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(running.map(|running| running.release), old);
    executor.shutdown().await;
    assert_eq!(workshop.disk().found().unwrap().denied, []);
    fs::write(std::env::var("GROUNDSWELL_DONE").unwrap(), "done").unwrap();
}

#[test]
fn no_build_is_denied_because_the_agent_has_no_files_or_processes_left() {
    let folder = tempfile::tempdir().unwrap();
    for starter in ["command", "hook", "supervise"] {
        let done = folder.path().join(starter);
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "device_trouble::child_without_files", "--ignored", "--nocapture"]);
        child.env(STARTER, starter).env("GROUNDSWELL_DONE", &done).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = forks::starting(|| child.spawn()).unwrap().wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && done.exists(), "{starter}: {said}");
    }
}

#[tokio::test]
async fn a_way_back_that_is_asked_for_again_and_again_while_it_runs_keeps_nothing_else_out() {
    let mut workshop = Workshop::noting_starts();
    let script =
        "echo start $GROUNDSWELL_VERSION >> started; while test $GROUNDSWELL_VERSION = 1.0 -a -e hangs; do sleep 0.02; done";
    let run = workshop.shell(script);
    let Activator::Command(command) = &mut workshop.config.activator else { panic!("a command starts it") };
    command.run = run;
    let (one, two, three) = (workshop.release(1, "one"), workshop.release(2, "two"), workshop.release(3, "three"));
    let (mut bench, _) = workshop.device().await;
    bench.upgrade(&one, &two).await;
    workshop.touch("hangs");
    let before = workshop.lines("started").len();
    // More than may wait for a device.
    for _ in 0..12 {
        bench.device.step(leave(&two, true)).expect("it runs or waits already");
    }
    let looks = async {
        while workshop.lines("started")[before..].iter().all(|line| line != "start 1.0") {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, looks).await.expect("it is under way");
    for _ in 0..12 {
        bench.device.step(leave(&two, true)).expect("it runs or waits already");
    }
    bench.device.step(Step::Stage { install: three.clone() }).expect("there is room");
    fs::remove_file(workshop.path("hangs")).unwrap();
    bench.until(|report| matches!(report, Report::Reverted { .. }).then_some(())).await;
    let report = bench.until(|report| matches!(report, Report::Staged { .. } | Report::Reverted { .. }).then_some(report)).await;
    assert_eq!(report, Report::Staged { release: three.release }, "next");
    // It may be asked for once more then.
    bench.activate(&three).await;
    bench.revert(&three).await;
    bench.shutdown().await;
}

//! Activators other than commands and children: systemd, by a stand-in for `systemctl`, and signals to a real process.
//!
//! The stand-in does what systemd does with a unit that failed: it reloads nothing that is not active, and starts nothing that
//! was started four times without `reset-failed` in between. With `slow` a restart takes longer than anybody waits for it, once;
//! with `unloaded` it knows nothing that could be stopped; with `stuck` it stops nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use groundswell_agent::config::{Activator, HealthCheck, SignalActivator, SystemdActivator, TellSignal, UnitAction, UnitTarget};
use groundswell_agent::install::executor::Outcome;
use groundswell_agent::install::forks;
use groundswell_agent::install::way_back::Pauses;
use groundswell_core::install::{Boot, Contents, Hook};
use groundswell_core::limits::TRIES_BACK;
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Health, Report};
use groundswell_core::record::status::HoldCode;
use groundswell_core::text::Reason;

use crate::workshop::{Bench, PATIENCE, Workshop, claim, content};

/// A `systemctl` that starts what `current` leads to, and tells of the unit what the file `state` says.
const SYSTEMCTL: &str = r#"#!/bin/sh
cd HOME
case "$1" in
  reset-failed) echo "$@" >> asked; rm -f starts ;;
  restart|reload)
    echo "$@" >> asked
    if [ "$1" = reload ] && [ "$(cat state 2> /dev/null)" = failed ]; then echo "Unit $2 is not active." >&2; exit 1; fi
    if [ -e refuses ]; then echo "Job for $2 canceled." >&2; exit 1; fi
    if [ "$1" = restart ]; then echo start >> invocations; fi
    if [ -e slow ]; then mv slow state; echo "Job for $2 timed out." >&2; exit 1; fi
    echo start >> starts
    if [ "$(wc -l < starts)" -gt 4 ]; then echo "Start request repeated too quickly." > journal; exit 1; fi
    if bcd/current/bcd > journal 2>&1; then echo active > state; else echo failed > state; echo "Job for $2 failed." >&2; exit 1; fi ;;
  start) echo "$@" >> asked; echo active > state ;;
  stop)
    echo "$@" >> asked
    if [ -e unloaded ]; then echo "Failed to stop $2: Unit $2 not loaded." >&2; exit 5; fi
    if [ -e stuck ]; then echo "Job for $2 canceled." >&2; exit 1; fi
    echo inactive > state ;;
  status) cat journal; exit 3 ;;
  show)
    printf 'LoadState=loaded\nActiveState=%s\nSubState=x\nResult=x\nNRestarts=0\n' "$(cat state)"
    if [ -e invocations ]; then echo "InvocationID=$(wc -l < invocations)"; fi ;;
esac
"#;

fn with_systemd(action: UnitAction) -> Workshop {
    let mut workshop = Workshop::noting_starts();
    let systemctl = workshop.path("systemctl");
    fs::write(&systemctl, SYSTEMCTL.replace("HOME", &workshop.home().display().to_string())).unwrap();
    fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).unwrap();
    let (unit, systemctl) = ("bcd.service".to_owned(), systemctl.display().to_string());
    workshop.config.health.check = HealthCheck::Unit(UnitTarget { unit: unit.clone(), systemctl: systemctl.clone() });
    workshop.config.activator =
        Activator::Systemd(SystemdActivator { unit, action, systemctl, timeout: Duration::from_secs(20) });
    workshop
}

#[tokio::test]
async fn a_unit_is_restarted_into_the_new_version_and_its_state_is_the_health() {
    let workshop = with_systemd(UnitAction::Restart);
    let (mut bench, _) = workshop.device().await;
    bench.install(&workshop.release(1, "echo one")).await;
    bench.until_health(|health| *health == Health::Healthy).await;
    fs::write(workshop.path("state"), "activating\n").unwrap();
    let health = bench.until_health(|health| *health != Health::Healthy).await;
    assert!(matches!(&health, Health::Unknown(why) if why.contains("bcd.service is activating")), "on its way: {health:?}");
    fs::write(workshop.path("state"), "failed\n").unwrap();
    let health = bench.until_health(|health| matches!(health, Health::Failing(_))).await;
    assert!(matches!(&health, Health::Failing(why) if why.contains("bcd.service is failed")), "{health:?}");
    assert_eq!(workshop.lines("asked"), ["restart bcd.service"]);
    bench.shutdown().await;
}

#[tokio::test]
async fn i7_a_unit_that_does_not_start_is_reverted_with_the_last_lines_of_its_log() {
    let workshop = with_systemd(UnitAction::Reload);
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo no license; exit 1"));
    let Report::ActivateFailed { reason, .. } = bench.upgrade(&one, &two).await else { panic!("it does not start") };
    assert!(reason.contains("systemctl reload bcd.service") && reason.contains("no license"), "{reason}");
    let Report::Reverted { running, .. } = bench.revert(&two).await else { panic!("it goes back") };
    assert_eq!(running.map(|running| running.release), Some(one.release));
    bench.until_health(|health| *health == Health::Healthy).await;
    let unit = |verb: &str| format!("{verb} bcd.service");
    assert_eq!(workshop.lines("asked"), ["reload", "reload", "reset-failed", "restart"].map(unit));
    bench.shutdown().await;
}

#[tokio::test]
async fn s6_a_unit_that_systemd_refuses_to_start_again_comes_back_all_the_same() {
    let workshop = with_systemd(UnitAction::Restart);
    let mut executor = workshop.executor().await;
    executor.recover().await.unwrap();
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    let activate = |install: &Install| Step::Activate { install: install.clone(), claim: claim(), within_ms: 900_000 };
    for install in [&one, &two] {
        executor.execute(&Step::Stage { install: install.clone() }).await;
        assert!(matches!(executor.execute(&activate(install)).await, Outcome::Report(Report::Activated { .. })));
        if install == &one {
            executor.execute(&Step::Confirm { release: one.release }).await;
        }
    }
    // It crashed and was started until systemd had enough of that.
    fs::write(workshop.path("starts"), "start\n".repeat(4)).unwrap();
    fs::write(workshop.path("state"), "failed\n").unwrap();
    let outcome = executor.execute(&leave(&two)).await;
    assert!(
        matches!(&outcome, Outcome::Report(Report::Reverted { running: Some(running), .. }) if running.release == one.release),
        "{outcome:?}"
    );
    assert_eq!(fs::read_to_string(workshop.path("state")).unwrap(), "active\n", "it runs");
    assert!(fs::read_to_string(workshop.path("journal")).unwrap().contains("one"));
}

#[tokio::test]
async fn s6_nothing_says_reverted_before_the_old_version_has_started() {
    let workshop = with_systemd(UnitAction::Reload);
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    bench.upgrade(&one, &two).await;
    workshop.touch("refuses");
    bench.device.step(leave(&two)).unwrap();
    let fault =
        |report: &Report| matches!(report, Report::Blocked(holds) if holds.iter().any(|hold| hold.code == HoldCode::DeviceFault));
    let first = bench.until(|report| (fault(&report) || matches!(report, Report::Reverted { .. })).then_some(report)).await;
    assert!(fault(&first), "the device says that it is stuck, and nothing else: {first:?}");
    fs::remove_file(workshop.path("refuses")).unwrap();
    let (mut reverted, mut is_clear) = (None, false);
    while reverted.is_none() || !is_clear {
        match bench.next().await {
            Report::Reverted { running, output, .. } => reverted = Some((running, output)),
            Report::Blocked(holds) => is_clear = holds.is_empty(),
            _ => {}
        }
    }
    let (running, output) = reverted.expect("it was told");
    assert_eq!(running.map(|running| running.release), Some(one.release));
    assert!(output.contains("restart bcd.service"), "what went badly is told: {output}");
    assert!(fs::read_to_string(workshop.path("journal")).unwrap().contains("one"), "it runs");
    bench.shutdown().await;
    let (bench, recovered) = workshop.device().await;
    assert_eq!(recovered.denied, [two.release, Contents::of(&two).build()], "the verdict stands");
    bench.shutdown().await;
}

/// Release 2 runs on trial in place of release 1.
async fn on_trial(workshop: &Workshop) -> (Bench, Install, Install) {
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    assert!(matches!(bench.upgrade(&one, &two).await, Report::Activated { .. }));
    fs::remove_file(workshop.path("asked")).unwrap();
    (bench, one, two)
}

#[tokio::test]
async fn a_unit_that_came_up_after_all_is_not_restarted_again_on_the_way_back() {
    for (state, asked) in [("active", vec![]), ("activating", vec!["start"]), ("failed", vec!["reset-failed", "restart"])] {
        let workshop = with_systemd(UnitAction::Restart);
        let (mut bench, one, two) = on_trial(&workshop).await;
        fs::write(workshop.path("slow"), format!("{state}\n")).unwrap();
        bench.device.step(leave(&two)).unwrap();
        let report = bench.until(|report| matches!(report, Report::Reverted { .. }).then_some(report)).await;
        let Report::Reverted { running, .. } = report else { panic!("{report:?}") };
        assert_eq!(running.map(|running| running.release), Some(one.release), "{state}");
        let mut all = vec!["reset-failed", "restart"];
        all.extend(if state == "activating" { vec!["reset-failed"] } else { vec![] });
        all.extend(&asked);
        assert_eq!(workshop.lines("asked"), all.iter().map(|verb| format!("{verb} bcd.service")).collect::<Vec<_>>(), "{state}");
        bench.shutdown().await;
    }
}

#[tokio::test]
async fn a_first_unit_that_systemd_has_nothing_of_to_stop_is_stopped_and_one_that_still_runs_is_not() {
    for (trouble, state, ends) in [("unloaded", "inactive\n", true), ("stuck", "active\n", false)] {
        let workshop = with_systemd(UnitAction::Restart);
        let (mut bench, _) = workshop.device().await;
        let one = workshop.release(1, "echo one");
        bench.stage(&one).await;
        bench.activate(&one).await;
        workshop.touch(trouble);
        fs::write(workshop.path("state"), state).unwrap();
        bench.device.step(leave(&one)).unwrap();
        let told = |report| match report {
            Report::Reverted { output, .. } => Some(Some(output)),
            Report::Blocked(holds) if holds.iter().any(|hold| hold.code == HoldCode::DeviceFault) => Some(None),
            _ => None,
        };
        let output = bench.until(told).await;
        assert_eq!(output.is_some(), ends, "{trouble}");
        if let Some(output) = output {
            assert!(output.contains("going back: ") && output.contains("stop bcd.service"), "what went badly is told: {output}");
        }
        bench.shutdown().await;
    }
}

#[tokio::test]
async fn a_command_that_never_stops_a_first_version_does_not_hold_the_node_for_ever() {
    let mut workshop = Workshop::noting_starts();
    let stop = workshop.shell("echo stop >> stops; echo no such process; exit 1");
    let Activator::Command(command) = &mut workshop.config.activator else { panic!("a command starts it") };
    command.stop = Some(stop);
    let one = workshop.release(1, "echo one");
    let pause = Duration::from_millis(10);
    let hasty = async || workshop.executor().await.pausing(Pauses { start: pause, first: pause, longest: pause });
    let mut executor = hasty().await;
    executor.recover().await.unwrap();
    executor.execute(&Step::Stage { install: one.clone() }).await;
    executor.execute(&Step::Activate { install: one.clone(), claim: claim(), within_ms: 900_000 }).await;
    for tries in 1..TRIES_BACK {
        assert_eq!(executor.execute(&leave(&one)).await, Outcome::Again, "{tries}");
        assert_eq!(workshop.lines("stops").len(), 3 * tries as usize);
    }
    // A start of the agent is one more try.
    drop(executor);
    let recovered = hasty().await.recover().await.unwrap();
    let (release, reason) = recovered.reverted.expect("it is over");
    assert_eq!((release, recovered.running), (one.release, None));
    assert!(reason.contains("unhealthy") && reason.contains("going back: sh ended with status 1: no such process"), "{reason}");
    assert_eq!(workshop.lines("stops").len(), 3 * TRIES_BACK as usize);
}

#[tokio::test]
async fn i7_a_way_back_at_start_up_tells_the_last_lines_and_what_went_badly() {
    let mut workshop = with_systemd(UnitAction::Restart);
    let fail = workshop.shell("echo the office is closed; exit 1");
    workshop.config.hooks.commands.insert(Hook::AfterRevert, fail);
    let mut executor = workshop.executor().await;
    executor.recover().await.unwrap();
    let one = workshop.release(1, "echo no license");
    executor.execute(&Step::Stage { install: one.clone() }).await;
    executor.execute(&Step::Activate { install: one.clone(), claim: claim(), within_ms: 900_000 }).await;
    let mut reverted = None;
    for boot in 0..3 {
        // The machine goes down again and again.
        drop(executor);
        workshop.boot = Boot(format!("boot {boot}"));
        executor = workshop.executor().await;
        reverted = executor.recover().await.unwrap().reverted;
    }
    let (release, reason) = reverted.expect("three starts are enough");
    assert_eq!(release, one.release);
    for told in ["started 3 times", "no license", "hook after-revert: sh ended with status 1: the office is closed"] {
        assert!(reason.contains(told), "{reason} does not say {told}");
    }
}

#[tokio::test]
async fn a_systemd_that_does_not_answer_denies_no_version() {
    let workshop = with_systemd(UnitAction::Restart);
    fs::write(workshop.path("systemctl"), "#!/bin/sh\necho 'Failed to connect to bus: No such file or directory' >&2; exit 1\n")
        .unwrap();
    let (mut bench, _) = workshop.device().await;
    let one = workshop.release(1, "echo one");
    bench.stage(&one).await;
    let report = bench.activate(&one).await;
    assert!(
        matches!(&report, Report::ActivateFailed { at_fault: false, reason, .. } if reason.contains("connect to bus")),
        "{report:?}"
    );
    bench.shutdown().await;
}

fn leave(install: &Install) -> Step {
    Step::Revert { release: install.release, reason: Reason::lossy("unhealthy"), at_fault: true }
}

#[tokio::test]
async fn a_first_unit_that_fails_is_stopped() {
    let workshop = with_systemd(UnitAction::Restart);
    let (mut bench, _) = workshop.device().await;
    let one = workshop.release(1, "exit 1");
    bench.stage(&one).await;
    assert!(matches!(bench.activate(&one).await, Report::ActivateFailed { .. }));
    bench.revert(&one).await;
    assert_eq!(workshop.lines("asked"), ["restart bcd.service", "stop bcd.service"]);
    bench.shutdown().await;
}

/// A process that notes what `current` leads to each time it is told.
struct Told(Child);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where the tests run under `nohup`, SIGHUP is ignored for good in all that they start, unless it is taken back.
async fn with_process(signal: TellSignal) -> (Workshop, Told, PathBuf) {
    let mut workshop = Workshop::noting_starts();
    let pid_file = workshop.path("pid");
    let note = |name: &str| format!("trap 'echo {name} $(tail -n 1 bcd/current/bcd) >> taken' {name}");
    let traps = ["HUP", "USR1", "USR2", "TERM"].map(note).join("; ");
    let argv = workshop.shell(&format!("{traps}; echo $$ > pid; while :; do sleep 0.02; done"));
    let mut process = Command::new("env");
    process.arg("--default-signal=HUP").args(&argv);
    let told = Told(forks::starting(|| process.spawn()).unwrap());
    content(&pid_file).await;
    workshop.config.activator = Activator::Signal(SignalActivator { pid_file: pid_file.clone(), signal });
    (workshop, told, pid_file)
}

async fn taken(workshop: &Workshop, lines: usize) -> Vec<String> {
    let look = async {
        while workshop.lines("taken").len() < lines {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.expect("it is told");
    workshop.lines("taken")
}

#[tokio::test]
async fn a_process_is_told_by_each_signal_to_take_up_each_version_and_the_old_one_again() {
    let signals = [(TellSignal::Hup, "HUP"), (TellSignal::Usr1, "USR1"), (TellSignal::Usr2, "USR2"), (TellSignal::Term, "TERM")];
    for (signal, name) in signals {
        let (workshop, told, _) = with_process(signal).await;
        let (mut bench, _) = workshop.device().await;
        let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
        bench.install(&one).await;
        taken(&workshop, 1).await;
        bench.stage(&two).await;
        bench.activate(&two).await;
        taken(&workshop, 2).await;
        let Report::Reverted { running, .. } = bench.revert(&two).await else { panic!("it goes back") };
        assert_eq!(running.map(|running| running.release), Some(one.release));
        assert_eq!(taken(&workshop, 3).await, ["echo one", "echo two", "echo one"].map(|said| format!("{name} {said}")));
        bench.shutdown().await;
        drop(told);
    }
}

#[tokio::test]
async fn a_process_that_is_gone_or_no_process_fails_the_activation_and_no_version_is_to_blame() {
    let (workshop, told, pid_file) = with_process(TellSignal::Hup).await;
    let (mut bench, _) = workshop.device().await;
    let one = workshop.release(1, "echo one");
    drop(told);
    for (text, said) in
        [(None, "cannot be signalled"), (Some("1\n"), "does not hold a process id"), (Some("-7\n"), "does not hold")]
    {
        if let Some(text) = text {
            fs::write(&pid_file, text).unwrap();
        }
        bench.stage(&one).await;
        let Report::ActivateFailed { reason, at_fault, .. } = bench.activate(&one).await else { panic!("nobody is told") };
        assert!(reason.contains(said) && !at_fault, "{reason}");
        // A first install leaves nobody to be told.
        bench.abort(&one).await;
    }
    bench.shutdown().await;
}

#[tokio::test]
async fn a_number_that_is_another_s_by_now_and_a_file_behind_a_symlink_tell_nobody() {
    let (mut workshop, told, pid_file) = with_process(TellSignal::Term).await;
    let one = workshop.release(1, "echo one");
    let link = workshop.path("link");
    std::os::unix::fs::symlink(&pid_file, &link).unwrap();
    let earlier = std::time::SystemTime::now() - Duration::from_secs(60);
    for (file, said) in [(&link, "cannot read the process id"), (&pid_file, "was started after the file was written")] {
        fs::File::options().write(true).open(&pid_file).unwrap().set_modified(earlier).unwrap();
        workshop.config.activator = Activator::Signal(SignalActivator { pid_file: file.clone(), signal: TellSignal::Term });
        let (mut bench, _) = workshop.device().await;
        bench.stage(&one).await;
        let Report::ActivateFailed { reason, at_fault, .. } = bench.activate(&one).await else { panic!("nobody is told") };
        assert!(reason.contains(said) && !at_fault, "{reason}");
        bench.abort(&one).await;
        bench.shutdown().await;
    }
    assert_eq!(workshop.lines("taken"), [""; 0], "nobody was told");
    drop(told);
}

#[tokio::test]
async fn a_way_back_waits_for_a_file_that_says_who_is_to_be_told() {
    let (workshop, told, pid_file) = with_process(TellSignal::Hup).await;
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    bench.install(&one).await;
    taken(&workshop, 1).await;
    bench.stage(&two).await;
    bench.activate(&two).await;
    taken(&workshop, 2).await;
    fs::write(&pid_file, "half writ").unwrap();
    bench.device.step(leave(&two)).unwrap();
    let fault =
        |report: &Report| matches!(report, Report::Blocked(holds) if holds.iter().any(|hold| hold.code == HoldCode::DeviceFault));
    let first = bench.until(|report| (fault(&report) || matches!(report, Report::Reverted { .. })).then_some(report)).await;
    assert!(fault(&first), "the new version may run: {first:?}");
    fs::write(&pid_file, format!("{}\n", told.0.id())).unwrap();
    bench.until(|report| matches!(report, Report::Reverted { .. }).then_some(())).await;
    assert_eq!(taken(&workshop, 3).await.last().map(String::as_str), Some("HUP echo one"));
    bench.shutdown().await;
    drop(told);
}

#[tokio::test]
async fn a_way_back_on_which_nobody_is_left_to_be_told_is_over_and_says_so() {
    for is_there in [true, false] {
        let (workshop, told, pid_file) = with_process(TellSignal::Hup).await;
        let (mut bench, _) = workshop.device().await;
        let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
        bench.install(&one).await;
        taken(&workshop, 1).await;
        bench.stage(&two).await;
        bench.activate(&two).await;
        taken(&workshop, 2).await;
        // It died of the new version, and may have taken its file along.
        drop(told);
        if !is_there {
            fs::remove_file(&pid_file).unwrap();
        }
        let Report::Reverted { running, output, .. } = bench.revert(&two).await else { panic!("it goes back") };
        assert_eq!(running.map(|running| running.release), Some(one.release));
        assert!(output.contains("going back: nobody is there to be told of 1.0: "), "{output}");
        assert!(workshop.current_script().unwrap().contains("release 1\n"), "whatever starts it starts the old version");
        bench.shutdown().await;
    }
}

#[tokio::test]
async fn who_was_not_told_of_the_new_version_need_not_be_told_of_the_old_one() {
    let (workshop, told, pid_file) = with_process(TellSignal::Hup).await;
    let (mut bench, _) = workshop.device().await;
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    bench.install(&one).await;
    taken(&workshop, 1).await;
    bench.shutdown().await;
    // This run of the agent has told nobody yet.
    let (mut bench, _) = workshop.device().await;
    bench.stage(&two).await;
    // As `daemon` leaves it where nothing is masked; the shell does not run from the product's folder.
    fs::set_permissions(&pid_file, fs::Permissions::from_mode(0o666)).unwrap();
    let Report::ActivateFailed { reason, at_fault: false, .. } = bench.activate(&two).await else { panic!("nobody is told") };
    assert!(reason.contains("anybody may write the file"), "{reason}");
    let Report::Reverted { running, output, .. } = bench.abort(&two).await else { panic!("it goes back") };
    assert_eq!(running.map(|running| running.release), Some(one.release));
    assert!(output.contains("anybody may write the file"), "{output}");
    assert_eq!(workshop.lines("taken").len(), 1);
    bench.shutdown().await;
    drop(told);
}

#[tokio::test]
async fn the_log_of_a_process_that_prints_more_than_its_bound_stays_within_it_and_ends_with_its_last_lines() {
    let mut workshop = Workshop::supervising();
    let bound = 40_000;
    let Activator::Supervise(supervise) = &mut workshop.config.activator else { panic!("it supervises") };
    supervise.log_bytes = bound;
    let script = "i=0; while test $i -lt 5000; do i=$((i+1)); echo this is line $i of many; done; exec sleep 1000";
    let (mut bench, _) = workshop.device().await;
    bench.install(&workshop.release(1, script)).await;
    let logs = ["output.log", "output.log.1"].map(|name| workshop.product_folder().join("log").join(name));
    let mut largest = [0; 2];
    let whole = async {
        while !fs::read_to_string(&logs[0]).is_ok_and(|text| text.ends_with("this is line 5000 of many\n")) {
            for (log, largest) in logs.iter().zip(&mut largest) {
                *largest = fs::metadata(log).map_or(0, |log| log.len()).max(*largest);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, whole).await.expect("the last line is logged");
    for (log, largest) in logs.iter().zip(largest) {
        let length = fs::metadata(log).unwrap().len();
        assert!(length > 0 && length.max(largest) <= bound, "{}: {length}, at most {largest}", log.display());
    }
    bench.shutdown().await;
}

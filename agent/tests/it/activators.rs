//! Activators other than commands and children: systemd, by a stand-in for `systemctl`, and signals to a real process.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use groundswell_agent::config::{Activator, HealthCheck, SignalActivator, SystemdActivator, TellSignal, UnitAction, UnitTarget};
use groundswell_agent::install::forks;
use groundswell_core::node::input::{Health, Report};

use crate::workshop::{Workshop, content};

/// A `systemctl` that starts what `current` leads to, and tells of the unit what the file `state` says.
const SYSTEMCTL: &str = r#"#!/bin/sh
cd HOME
case "$1" in
  restart|reload)
    echo "$@" >> asked
    if bcd/current/bcd > journal 2>&1; then echo active > state; else echo failed > state; echo "Job for $2 failed." >&2; exit 1; fi ;;
  stop) echo "$@" >> asked; echo inactive > state ;;
  status) cat journal; exit 3 ;;
  show) printf 'LoadState=loaded\nActiveState=%s\nSubState=x\nResult=x\nNRestarts=0\n' "$(cat state)" ;;
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
    bench.install(&one).await;
    bench.stage(&two).await;
    let Report::ActivateFailed { reason, .. } = bench.activate(&two).await else { panic!("it does not start") };
    assert!(reason.contains("systemctl reload bcd.service") && reason.contains("no license"), "{reason}");
    let Report::Reverted { running, .. } = bench.revert(&two).await else { panic!("it goes back") };
    assert_eq!(running.map(|running| running.release), Some(one.release));
    bench.until_health(|health| *health == Health::Healthy).await;
    assert_eq!(workshop.lines("asked").len(), 3);
    bench.shutdown().await;
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

/// By SIGUSR1: where the tests run under `nohup`, SIGHUP is ignored for good in all that they start.
async fn with_process() -> (Workshop, Told, PathBuf) {
    let mut workshop = Workshop::noting_starts();
    let pid_file = workshop.path("pid");
    let script = "trap 'tail -n 1 bcd/current/bcd >> taken' USR1; echo $$ > pid; while :; do sleep 0.02; done";
    let argv = workshop.shell(script);
    let told = Told(forks::starting(|| Command::new(&argv[0]).args(&argv[1..]).spawn()).unwrap());
    content(&pid_file).await;
    workshop.config.activator = Activator::Signal(SignalActivator { pid_file: pid_file.clone(), signal: TellSignal::Usr1 });
    (workshop, told, pid_file)
}

#[tokio::test]
async fn a_process_is_told_by_a_signal_to_take_up_the_new_version() {
    let (workshop, told, _) = with_process().await;
    let (mut bench, _) = workshop.device().await;
    bench.install(&workshop.release(1, "echo one")).await;
    assert_eq!(content(&workshop.path("taken")).await, "echo one");
    bench.shutdown().await;
    drop(told);
}

#[tokio::test]
async fn a_process_that_is_gone_or_no_process_fails_the_activation() {
    let (workshop, told, pid_file) = with_process().await;
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
        let Report::ActivateFailed { reason, .. } = bench.activate(&one).await else { panic!("nobody is told") };
        assert!(reason.contains(said), "{reason}");
        bench.revert(&one).await;
    }
    bench.shutdown().await;
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
    tokio::time::timeout(Duration::from_secs(60), whole).await.expect("the last line is logged");
    for (log, largest) in logs.iter().zip(largest) {
        let length = fs::metadata(log).unwrap().len();
        assert!(length > 0 && length.max(largest) <= bound, "{}: {length}, at most {largest}", log.display());
    }
    bench.shutdown().await;
}

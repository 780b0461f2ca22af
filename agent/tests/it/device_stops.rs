//! A device that is told to stop while a command or a hook runs: nothing is cut off in the middle of a write.

use std::fs;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::poll;
use groundswell_agent::config::{Activator, Config, HooksConfig};
use groundswell_agent::install::device::Settings;
use groundswell_agent::install::ending::Grace;
use groundswell_agent::install::executor::{Executor, Outcome};
use groundswell_agent::install::files::OnDisk;
use groundswell_core::install::Hook;
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::Report;
use groundswell_core::text::Product;
use tokio::sync::watch;

use crate::workshop::{TOO_LONG, Workshop, claim, content, runs};

/// Longer than a test waits.
const LONG: Duration = Duration::from_secs(3600);
/// Goes on until it is let go.
const WRITES: &str = "echo $$ > up; while ! test -e go; do sleep 0.01; done; echo written >> started";

/// Where a script stands: everything that an orderly stop may find at work.
const PLACES: [&str; 3] = ["run", "stop", "hook"];

fn with(place: &str, script: &str) -> Workshop {
    let mut workshop = Workshop::with_command(if place == "run" { script } else { "echo start >> started" });
    let commanded = workshop.shell(script);
    match (&mut workshop.config.activator, place) {
        (_, "hook") => {
            workshop.config.hooks =
                HooksConfig { commands: [(Hook::BeforeActivate, commanded)].into(), ..HooksConfig::default() };
        }
        (Activator::Command(command), "stop") => command.stop = Some(commanded),
        _ => {}
    }
    workshop
}

/// An executor that can be told to stop, with a release staged; what brings it to the script.
async fn ready(workshop: &Workshop, place: &str, grace: Grace) -> (Executor, watch::Sender<bool>, Step) {
    let (stop, stopping) = watch::channel(false);
    let mut executor = workshop.executor_until(workshop.disk_on(Arc::new(OnDisk)), stopping).await.ending_within(grace);
    executor.recover().await.unwrap();
    let one: Install = workshop.release(1, "echo one");
    executor.execute(&Step::Stage { install: one.clone() }).await;
    let activate = Step::Activate { install: one.clone(), claim: claim(), within_ms: 900_000 };
    if place != "stop" {
        return (executor, stop, activate);
    }
    // The first release has no version behind it to go back to: it is stopped.
    executor.execute(&activate).await;
    let reason = groundswell_core::text::Reason::lossy("unhealthy");
    (executor, stop, Step::Revert { release: one.release, reason, at_fault: true })
}

/// Waits until the script runs.
async fn is_at_work(workshop: &Workshop) {
    content(&workshop.path("up")).await;
}

#[tokio::test]
async fn a_stop_lets_the_command_or_hook_that_runs_end_by_itself() {
    for place in PLACES {
        let workshop = with(place, WRITES);
        let (mut executor, stop, step) = ready(&workshop, place, Grace { by_itself: LONG, told: LONG }).await;
        let mut executing = pin!(executor.execute(&step));
        tokio::select! {
            outcome = &mut executing => panic!("{place}: {outcome:?}"),
            () = is_at_work(&workshop) => {}
        }
        stop.send_replace(true);
        assert!(poll!(&mut executing).is_pending(), "{place}: it is not given up");
        workshop.touch("go");
        executing.await;
        assert_eq!(workshop.lines("started").last().map(String::as_str), Some("written"), "{place}");
    }
}

#[tokio::test]
async fn what_takes_longer_than_a_stop_allows_is_told_to_end_with_all_that_it_started() {
    // The leader of the group ends at once; what it started notes its end.
    let script = "(trap 'sleep 0.1; echo noted >> started; exit' TERM; echo $$ > up; while :; do sleep 0.01; done) & wait";
    for place in PLACES {
        let workshop = with(place, script);
        let (mut executor, stop, step) = ready(&workshop, place, Grace { by_itself: Duration::ZERO, told: LONG }).await;
        let mut executing = pin!(executor.execute(&step));
        tokio::select! {
            outcome = &mut executing => panic!("{place}: {outcome:?}"),
            () = is_at_work(&workshop) => {}
        }
        stop.send_replace(true);
        assert_eq!(executing.await, Outcome::Stopping, "{place}: what a stop cuts short has not failed");
        assert_eq!(workshop.lines("started").last().map(String::as_str), Some("noted"), "{place}");
    }
}

#[tokio::test]
async fn what_does_not_end_when_it_is_told_to_is_killed() {
    let workshop = with("run", "trap '' TERM; echo $$ > up; while :; do sleep 0.01; done");
    let grace = Grace { by_itself: Duration::ZERO, told: Duration::from_millis(50) };
    let (mut executor, stop, step) = ready(&workshop, "run", grace).await;
    let mut executing = Box::pin(executor.execute(&step));
    tokio::select! {
        outcome = &mut executing => panic!("{outcome:?}"),
        () = is_at_work(&workshop) => {}
    }
    stop.send_replace(true);
    assert_eq!(executing.await, Outcome::Stopping);
    let process = content(&workshop.path("up")).await;
    while runs(&process) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The device is to stop while the step's command is at work, and that ends by itself then.
async fn is_stopped_at_work(mut executor: Executor, step: &Step, stop: &watch::Sender<bool>, workshop: &Workshop) {
    let mut executing = Box::pin(executor.execute(step));
    tokio::select! {
        outcome = &mut executing => panic!("{outcome:?}"),
        () = is_at_work(workshop) => {}
    }
    stop.send_replace(true);
    workshop.touch("go");
    assert_eq!(executing.await, Outcome::Stopping);
    executor.shutdown().await;
}

#[tokio::test]
async fn a_command_that_fails_during_a_stop_tells_nothing_of_the_release() {
    let workshop = with("run", "echo $$ > up; while ! test -e go; do sleep 0.01; done; exit 3");
    let (executor, stop, step) = ready(&workshop, "run", Grace { by_itself: LONG, told: LONG }).await;
    is_stopped_at_work(executor, &step, &stop, &workshop).await;
    // The next start does it again.
    fs::remove_file(workshop.path("go")).unwrap();
    let again = with_script_of(&workshop, "echo again >> started");
    let recovered = again.executor().await.recover().await.unwrap();
    assert!(recovered.trial.is_some(), "{recovered:?}");
    assert_eq!(workshop.lines("started"), ["again"]);
}

/// The same folder, with another command in the configuration.
fn with_script_of(workshop: &Workshop, script: &str) -> Workshop {
    Workshop::commanding(workshop.home(), script)
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_told_to_end_before_it_is_killed() {
    let mut workshop = Workshop::with_command("trap 'echo noted >> started; exit 1' TERM; while :; do sleep 0.01; done");
    let Activator::Command(command) = &mut workshop.config.activator else { unreachable!() };
    command.timeout = TOO_LONG;
    let (mut bench, _) = workshop.device().await;
    let one = workshop.release(1, "echo one");
    bench.stage(&one).await;
    let Report::ActivateFailed { reason, .. } = bench.activate(&one).await else { panic!("it takes too long") };
    assert!(reason.contains("took longer than"), "{reason}");
    assert_eq!(workshop.lines("started"), ["noted"]);
    bench.shutdown().await;
}

#[tokio::test]
async fn a_way_back_stops_between_two_of_its_steps_and_the_next_start_goes_on() {
    let mut workshop = Workshop::with_command("echo start $GROUNDSWELL_VERSION >> started");
    let hook = workshop.shell("echo $$ > up; while ! test -e go; do sleep 0.01; done");
    workshop.config.hooks = HooksConfig { commands: [(Hook::BeforeRevert, hook)].into(), ..HooksConfig::default() };
    let (stop, stopping) = watch::channel(false);
    let grace = Grace { by_itself: LONG, told: LONG };
    let mut executor = workshop.executor_until(workshop.disk_on(Arc::new(OnDisk)), stopping).await.ending_within(grace);
    executor.recover().await.unwrap();
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    for install in [&one, &two] {
        executor.execute(&Step::Stage { install: install.clone() }).await;
        executor.execute(&Step::Activate { install: install.clone(), claim: claim(), within_ms: 900_000 }).await;
        if install == &one {
            executor.execute(&Step::Confirm { release: one.release }).await;
        }
    }
    let reason = groundswell_core::text::Reason::lossy("unhealthy");
    let leave = Step::Revert { release: two.release, reason, at_fault: true };
    is_stopped_at_work(executor, &leave, &stop, &workshop).await;
    assert_eq!(workshop.lines("started"), ["start 1.0", "start 2.0"], "each of them may take as long as a stop allows");
    let recovered = workshop.executor().await.recover().await.unwrap();
    assert_eq!(recovered.reverted.map(|(release, _)| release), Some(two.release));
    assert_eq!(workshop.lines("started").last().map(String::as_str), Some("start 1.0"));
}

#[test]
fn what_is_under_way_in_an_agent_that_gives_way_ends_before_its_supervisor_takes_it_for_silent() {
    let product = Product::new("bcd").unwrap();
    let grace = |supervise: &str| {
        let fleet = format!("sha256/{}", "0".repeat(64));
        let text = format!(
            "data-dir = \"data\"\nfleet = \"{fleet}\"\nkey-file = \"node.key\"\n[supervise]\n{supervise}\n\
             [product.bcd]\nactivator = {{ type = \"supervise\" }}\n"
        );
        let config = Config::parse(Path::new("/etc/groundswell/agent.toml"), &text).unwrap();
        Settings::from_config(&config, &product, None).unwrap().grace
    };
    let seconds = Duration::from_secs;
    assert_eq!(grace("stop-timeout = \"30s\""), Grace { by_itself: seconds(15), told: seconds(5) });
    // It says nothing more while it ends, and may have been silent for a third of that time already.
    for silence in [3, 60, 600] {
        let Grace { by_itself, told } = grace(&format!("stop-timeout = \"1h\"\nsilence = \"{silence}s\""));
        assert!(by_itself + told <= seconds(silence) - seconds(silence) / 3, "{silence} s: {by_itself:?}, {told:?}");
        assert!(by_itself >= seconds(silence) / 3, "{silence} s: {by_itself:?}");
    }
}

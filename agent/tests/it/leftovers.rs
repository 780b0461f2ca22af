//! Processes that an agent which died left behind, and those that only look like it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use groundswell_agent::install::activate::leftover::{MARK, stop};
use groundswell_agent::install::forks;

use crate::workshop::{PATIENCE, not_tested};

/// A shell that carries the mark of the product in `folder`.
fn marked(folder: &Path, mut command: Command) -> Child {
    command.env(MARK, folder).env("FOLDER", folder).stdin(Stdio::null()).stdout(Stdio::null());
    forks::starting(|| command.spawn()).unwrap()
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// In a mount namespace of its own, where this machine allows that.
fn elsewhere(script: &str) -> Option<Command> {
    let ways: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let runs = |way: &[&str]| forks::starting(|| Command::new("unshare").args(way).arg("true").status());
    let allowed = |way: &&&[&str]| runs(way).is_ok_and(|status| status.success());
    let Some(way) = ways.iter().find(allowed) else {
        not_tested("this machine gives no mount namespace");
        return None;
    };
    let mut command = Command::new("unshare");
    command.args(*way).args(["sh", "-c", script]);
    Some(command)
}

fn until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "not seen: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test]
async fn what_an_agent_left_is_asked_to_end_all_at_once() {
    let folder = tempfile::tempdir().unwrap();
    // Each ends once the other was asked too.
    let script = |own: &str, other: &str| {
        let ends =
            format!("touch $FOLDER/{own}; while ! [ -e $FOLDER/{other} ]; do sleep 0.05; done; touch $FOLDER/{own}.ended; exit");
        shell(&format!("trap '{ends}' TERM; touch $FOLDER/{own}.up; while :; do sleep 0.05; done"))
    };
    let mut strays = [script("a", "b"), script("b", "a")].map(|command| marked(folder.path(), command));
    let there = |name: &str| folder.path().join(name).exists();
    until("both are up", || there("a.up") && there("b.up"));
    stop(folder.path(), PATIENCE).await;
    for stray in &mut strays {
        stray.wait().unwrap();
    }
    assert!(there("a.ended") && there("b.ended"), "they were killed");
}

#[tokio::test]
async fn a_process_to_which_the_folder_is_another_one_is_not_ours() {
    let folder = tempfile::tempdir().unwrap();
    let hides = "mount -t tmpfs none $FOLDER && touch $FOLDER/up && exec sleep 3600";
    let (Some(other), Some(same)) = (elsewhere(hides), elsewhere("touch $FOLDER/up && exec sleep 3600")) else { return };
    let (mut other, mut same) = (marked(folder.path(), other), marked(folder.path(), same));
    for stray in [&other, &same] {
        let up = format!("/proc/{}/root{}/up", stray.id(), folder.path().display());
        until("it is up", || fs::exists(&up).unwrap_or(false));
    }
    stop(folder.path(), PATIENCE).await;
    same.wait().unwrap();
    assert_eq!(other.try_wait().unwrap(), None, "what another container runs goes on");
    other.kill().unwrap();
    other.wait().unwrap();
}

//! An agent that is killed in the middle of a command: whatever the command would still do, it does not do it later.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use groundswell_agent::config::HealthCheck;
use groundswell_agent::install::forks;
use groundswell_core::install::Hook;
use groundswell_core::node::effect::Step;
use groundswell_core::node::input::Health;

use crate::workshop::{Workshop, claim, content, runs};

/// In the environment of the process that is killed: the place of the command, and the folder.
const WHERE: &str = "GROUNDSWELL_KILLED_COMMAND";
/// Says who it is, and does its work much later, in a child of its own.
const SLOW: &str = "echo $$ > pid; sleep 1000 & wait; echo late >> started";

fn with(place: &str, home: &Path, script: &str) -> Workshop {
    let mut workshop = Workshop::commanding(home, if place == "run" { script } else { "echo start >> started" });
    if place == "hook" {
        let hook = workshop.shell(script);
        workshop.config.hooks.commands.insert(Hook::AfterActivate, hook);
    }
    if place == "health" {
        workshop.config.health.check = HealthCheck::Command(workshop.shell(script));
        workshop.config.health.timeout = Duration::from_secs(3600);
    }
    workshop
}

/// Not a test of its own: the agent that is killed.
#[tokio::test]
#[ignore = "run by s6_a_command_of_an_agent_that_was_killed_ends_before_anything_else_runs as a child process"]
async fn child_that_is_killed() {
    let Ok(told) = std::env::var(WHERE) else { return };
    let (place, home) = told.split_once(' ').unwrap();
    let workshop = with(place, Path::new(home), SLOW);
    let one = workshop.release(1, "echo one");
    if place == "health" {
        let (mut bench, _) = workshop.device().await;
        bench.stage(&one).await;
        bench.activate(&one).await;
        return std::future::pending().await;
    }
    let mut executor = workshop.executor().await;
    executor.recover().await.unwrap();
    executor.execute(&Step::Stage { install: one.clone() }).await;
    executor.execute(&Step::Activate { install: one.clone(), claim: claim(), within_ms: 900_000 }).await;
}

fn agent(place: &str, home: &Path) -> Child {
    let mut agent = Command::new(std::env::current_exe().unwrap());
    agent.args(["--exact", "killed_command::child_that_is_killed", "--ignored"]);
    agent.env(WHERE, format!("{place} {}", home.display())).stdout(Stdio::null()).stderr(Stdio::null());
    forks::starting(|| agent.spawn()).unwrap()
}

#[tokio::test]
async fn s6_a_command_of_an_agent_that_was_killed_ends_before_anything_else_runs() {
    for place in ["run", "hook"] {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("artifacts")).unwrap();
        let mut agent = agent(place, folder.path());
        let command = content(&folder.path().join("pid")).await;
        let note = folder.path().join("bcd/command.json");
        while !note.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        agent.kill().unwrap();
        agent.wait().unwrap();
        assert!(runs(&command), "{place}: nobody has ended it yet");
        let mut children = String::new();
        while children.trim().is_empty() {
            children = fs::read_to_string(format!("/proc/{command}/task/{command}/children")).unwrap();
        }
        let all: Vec<&str> = children.split_whitespace().chain([command.as_str()]).collect();
        assert_eq!(all.len(), 2, "{place}: the command and what it waits for");

        // What runs next sees nothing of it.
        let look = "for p in PROCESSES; do if test -e /proc/$p && ! grep -q ') Z ' /proc/$p/stat; then echo $p >> overlap; fi; done; \
                    echo again >> started";
        let workshop = with(place, folder.path(), &look.replace("PROCESSES", &all.join(" ")));
        let recovered = workshop.executor().await.recover().await.unwrap();
        assert!(recovered.trial.is_some(), "{place}: {recovered:?}");
        assert_eq!(workshop.lines("overlap"), [""; 0], "{place}");
        assert_eq!(workshop.lines("started").last().map(String::as_str), Some("again"), "{place}");
        assert!(all.iter().all(|process| !runs(process)), "{place}");
        assert!(!note.exists(), "{place}");
    }
}

#[tokio::test]
async fn a_health_command_of_an_agent_that_was_killed_ends_before_the_next_one_runs() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("artifacts")).unwrap();
    let mut agent = agent("health", folder.path());
    let command = content(&folder.path().join("pid")).await;
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert!(runs(&command), "nobody has ended it yet");
    let look = format!("test -e /proc/{command} && ! grep -q ') Z ' /proc/{command}/stat && exit 1; exit 0");
    let mut workshop = with("health", folder.path(), &look);
    workshop.config.health.unhealthy_after = 1;
    let (mut bench, _) = workshop.device().await;
    assert_eq!(bench.until_health(|_| true).await, Health::Healthy);
    bench.shutdown().await;
}

//! Real agents that are off, or are killed in the middle of their upgrade; and a demo that is ended.

use std::path::PathBuf;
use std::process::Stdio;

use groundswell_core::record::status::Phase;
use groundswell_testnet::fleet::plan::RolloutPlan;
use groundswell_testnet::fleet::processes::strays;
use groundswell_testnet::fleet::service::Behaviour;
use groundswell_testnet::fleet::wait::until;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::system_stage::{PATIENCE, Stage, program, swell, which};

#[tokio::test]
async fn g3_an_agent_that_was_off_is_not_waited_for_and_gets_the_release_when_it_returns() {
    let mut stage = Stage::on_version_1(4).await;
    stage.fleet.agent_mut("edge-3").expect("it exists").stop().await.expect("it stops");
    let plan = RolloutPlan { offline_after_seconds: 3, ..RolloutPlan::waves(&[(50, 0), (100, 0)]) };
    let signed = stage.roll("2.0.0", 2, Behaviour::Good, &plan, "edge-1").await;
    stage.everywhere("2.0.0").await;
    stage.rollout_is("edge-1", &signed.id, "it is complete without the one that is off", |rollout| rollout.complete).await;

    stage.fleet.start_one("edge-3").await.expect("it starts");
    stage.everywhere("2.0.0").await;
    let rollout = stage.rollout_is("edge-1", &signed.id, "all have soaked", |rollout| {
        rollout.waves.iter().map(|wave| wave.soaked).sum::<u32>() == 4
    });
    assert!(rollout.await.halted.is_none());
    stage.end().await;
}

#[tokio::test]
async fn an_agent_killed_in_the_middle_of_its_upgrade_goes_on_when_it_is_back() {
    let mut stage = Stage::on_version_1(4).await;
    let plan = RolloutPlan { confirm_after_seconds: 4, upgrade_timeout_seconds: 40, ..RolloutPlan::waves(&[(25, 1), (100, 0)]) };
    let signed = stage.roll("2.0.0", 2, Behaviour::Good, &plan, "edge-1").await;
    let activating = |sample: &super::system_stage::Sample| {
        let moving = which(sample, |product| product.phase == Phase::Activating && product.version.as_deref() == Some("2.0.0"));
        if moving.is_empty() { Err("nobody is activating".to_owned()) } else { Ok(()) }
    };
    let sample = stage.sees("the canary is in the middle of its upgrade", activating).await;
    let canary = which(&sample, |product| product.phase == Phase::Activating).remove(0);

    stage.fleet.agent_mut(&canary).expect("it exists").crash().await.expect("it is killed");
    stage.fleet.start_one(&canary).await.expect("it starts again");
    stage.everywhere("2.0.0").await;
    let rollout = stage.rollout(&canary, &signed.id).await;
    assert!(rollout.halted.is_none(), "{rollout:?}");
    // What the killed agent left running is gone: each node has one service, and it works.
    let healthy = stage.fleet.witness().healthy();
    assert!(healthy.len() == 4 && healthy.values().all(|version| version == "2.0.0"), "{healthy:?}");
    assert_eq!(stage.fleet.witness().pids().len(), 4);
    stage.stayed_within_budget();
    stage.end().await;
}

/// Starts the demo and waits until its agents run; the process, and its folder.
async fn demo() -> (tokio::process::Child, PathBuf) {
    let mut command = Command::new(program());
    command.args(["demo", "--plain"]).env("SWELL", swell().path()).stdout(Stdio::piped()).stdin(Stdio::null());
    let mut demo = command.process_group(0).kill_on_drop(true).spawn().expect("the demo starts");
    let mut lines = BufReader::new(demo.stdout.take().expect("it is piped")).lines();
    let mut folder = None;
    while let Some(line) = lines.next_line().await.expect("it can be read") {
        if let Some(path) = line.strip_prefix("Everything is in ") {
            folder = Some(PathBuf::from(path.trim_end_matches('.')));
        }
        // A node runs version 1: agents and services are there.
        if line.contains("activating") {
            break;
        }
    }
    // Whatever it says from here on is read, or it would wait for a reader.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (demo, folder.expect("it says where everything is"))
}

async fn nothing_left(folder: &std::path::Path) {
    let gone = until("no process of the demo is left", PATIENCE, async || {
        let left = strays(folder);
        Ok(if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) })
    });
    gone.await.expect("nothing is left");
}

#[tokio::test]
async fn ctrl_c_ends_the_demo_with_all_its_agents_and_services() {
    let (mut demo, folder) = demo().await;
    assert!(strays(&folder).len() >= 12);
    let pid = demo.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).expect("it runs");
    kill_process(pid, Signal::INT).expect("it is there");
    let ended = tokio::time::timeout(PATIENCE, demo.wait()).await.expect("it ends").expect("it can be waited for");
    assert_eq!(ended.code(), Some(130));
    assert!(strays(&folder).is_empty(), "{:?}", strays(&folder));
    assert!(!folder.exists(), "its folder is removed");
}

#[tokio::test]
async fn a_demo_that_is_killed_leaves_no_process_either() {
    let (mut demo, folder) = demo().await;
    demo.kill().await.expect("it is killed");
    nothing_left(&folder).await;
    std::fs::remove_dir_all(&folder).expect("nobody uses it any more");
}

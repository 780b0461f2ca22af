//! Real agents, real files, real sockets: a good release, a bad one, and what operators do about it.

use groundswell_core::record::status::{HoldCode, Phase};
use groundswell_testnet::fleet::plan::{Links, RolloutPlan};
use groundswell_testnet::fleet::service::Behaviour;

use super::system_stage::{Stage, all, which};

#[tokio::test]
async fn a_release_handed_to_one_end_of_a_line_reaches_all_in_waves() {
    let mut stage = Stage::running(5, Links::Line).await;
    stage.roll("1.0.0", 1, Behaviour::Good, &RolloutPlan::waves(&[(100, 0)]), "edge-5").await;
    stage.everywhere("1.0.0").await;
    stage.fleet.witness().count();

    let signed = stage.roll("2.0.0", 2, Behaviour::Good, &RolloutPlan::waves(&[(20, 1), (100, 1)]), "edge-1").await;
    stage.everywhere("2.0.0").await;
    let rollout = stage.rollout_is("edge-5", &signed.id, "it is complete", |rollout| rollout.complete).await;
    let canary = rollout.nodes.iter().find(|node| node.wave == 0).expect("there is a first wave");
    let others = rollout.nodes.iter().filter(|node| node.wave == 1);
    assert!(others.clone().count() == 4 && others.clone().all(|node| node.started_at >= canary.soaked_at), "{rollout:?}");
    stage.stayed_within_budget();
    stage.end().await;
}

#[tokio::test]
async fn i1_a_bad_release_halts_the_fleet_and_is_not_tried_again_after_a_restart() {
    let mut stage = Stage::on_version_1(4).await;
    let signed = stage.roll("2.0.0", 2, Behaviour::Unhealthy, &RolloutPlan::waves(&[(25, 1), (100, 1)]), "edge-2").await;
    for node in ["edge-1", "edge-2", "edge-3", "edge-4"] {
        stage.rollout_is(node, &signed.id, "it is halted", |rollout| rollout.halted.is_some()).await;
    }
    let sample = stage.sees("all are on version 1", |sample| all(sample, |it| it.version.as_deref() == Some("1.0.0"))).await;
    let canaries = which(&sample, |product| product.phase == Phase::RolledBack);
    let [canary] = canaries.as_slice() else { panic!("one canary went back, not {canaries:?}\n{}", stage.logs()) };
    assert_eq!(stage.starts(canary, "2.0.0"), 1);

    stage.fleet.agent_mut(canary).expect("it exists").stop().await.expect("it stops");
    stage.fleet.start_one(canary).await.expect("it starts");
    let stays = |sample: &super::system_stage::Sample| {
        let status = sample.get(canary).ok_or("it does not run")?;
        let back = status.node.peers > 0 && status.node.members == 4;
        if back { Ok(()) } else { Err(format!("{} peers", status.node.peers)) }
    };
    stage.sees("the canary is back in the mesh", stays).await;
    stage
        .node_is(canary, "rolled back on version 1", |it| it.phase == Phase::RolledBack && it.version.as_deref() == Some("1.0.0"))
        .await;
    // It has read its rollout, and the service of version 1 works: had it tried again, it would have done so by now.
    let healthy = groundswell_testnet::fleet::wait::until("its service works", super::system_stage::PATIENCE, async || {
        let healthy = stage.fleet.witness().healthy();
        Ok(if healthy.get(canary).map(String::as_str) == Some("1.0.0") { Ok(()) } else { Err(format!("{healthy:?}")) })
    });
    healthy.await.expect("version 1 runs again");
    assert_eq!(stage.starts(canary, "2.0.0"), 1, "{}", stage.logs());
    for node in ["edge-1", "edge-2", "edge-3", "edge-4"].into_iter().filter(|node| node != canary) {
        assert_eq!(stage.starts(node, "2.0.0"), 0, "{node}");
    }

    stage.roll("3.0.0", 3, Behaviour::Good, &RolloutPlan::waves(&[(25, 0), (100, 0)]), "edge-4").await;
    stage.everywhere("3.0.0").await;
    stage.end().await;
}

#[tokio::test]
async fn a_pause_stops_what_has_not_started_and_a_resume_goes_on() {
    let mut stage = Stage::on_version_1(4).await;
    let signed = stage.roll("2.0.0", 2, Behaviour::Good, &RolloutPlan::waves(&[(25, 4), (100, 0)]), "edge-1").await;
    let one_confirmed = |sample: &super::system_stage::Sample| {
        let moved = which(sample, |product| {
            matches!(product.phase, Phase::Confirmed | Phase::Soaked) && product.version.as_deref() == Some("2.0.0")
        });
        if moved.is_empty() { Err("nobody has confirmed".to_owned()) } else { Ok(()) }
    };
    stage.sees("the canary has confirmed", one_confirmed).await;
    stage.steer("pause", &signed.id, &["--reason", "lunch"], "edge-3").await;
    let paused = |sample: &super::system_stage::Sample| {
        all(sample, |product| {
            product.version.as_deref() == Some("2.0.0") && product.phase == Phase::Soaked
                || product.version.as_deref() == Some("1.0.0")
                    && product.hold.as_ref().is_some_and(|hold| hold.code == HoldCode::Paused)
        })
    };
    let sample = stage.sees("the canary soaks on while the others are paused", paused).await;
    assert_eq!(which(&sample, |product| product.version.as_deref() == Some("2.0.0")).len(), 1);

    stage.steer("resume", &signed.id, &[], "edge-2").await;
    stage.everywhere("2.0.0").await;
    stage.stayed_within_budget();
    stage.end().await;
}

#[tokio::test]
async fn an_abort_with_rollback_sends_back_who_has_not_confirmed() {
    let mut stage = Stage::on_version_1(4).await;
    let plan = RolloutPlan { confirm_after_seconds: 30, upgrade_timeout_seconds: 50, ..RolloutPlan::waves(&[(25, 1), (100, 1)]) };
    let signed = stage.roll("2.0.0", 2, Behaviour::Good, &plan, "edge-1").await;
    let started = |sample: &super::system_stage::Sample| {
        let moved = which(sample, |product| product.version.as_deref() == Some("2.0.0"));
        if moved.is_empty() { Err("nobody has started".to_owned()) } else { Ok(()) }
    };
    let sample = stage.sees("the canary runs version 2", started).await;
    let canary = which(&sample, |product| product.version.as_deref() == Some("2.0.0")).remove(0);

    stage.steer("abort", &signed.id, &["--rollback", "--reason", "wrong build"], "edge-2").await;
    stage
        .node_is(&canary, "back on version 1", |it| it.phase == Phase::RolledBack && it.version.as_deref() == Some("1.0.0"))
        .await;
    let aborted = |sample: &super::system_stage::Sample| all(sample, |product| product.version.as_deref() == Some("1.0.0"));
    stage.sees("all run version 1", aborted).await;
    for node in ["edge-1", "edge-2", "edge-3", "edge-4"] {
        let rollout = stage.rollout_is(node, &signed.id, "it is aborted", |rollout| rollout.state == "aborted").await;
        assert_eq!(rollout.generation, 2);
        assert_eq!(stage.starts(node, "2.0.0"), usize::from(node == canary), "{node}");
    }
    stage.stayed_within_budget();
    stage.end().await;
}

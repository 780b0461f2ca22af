//! Bad input to real agents and the real `swell`: a clear error that names what is wrong, and the agents run on.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use groundswell_core::node::view::ProductView;
use groundswell_core::record::status::HoldCode;
use groundswell_testnet::fleet::operator::Signed;
use groundswell_testnet::fleet::plan::{Links, RolloutPlan};
use groundswell_testnet::fleet::service::Behaviour;
use groundswell_testnet::fleet::swell::Ran;

use super::system_stage::{Stage, all, swell};

/// Starts the agent of `node`, which must end by itself with a failure that says all of `words`.
async fn refuses_to_start(stage: &mut Stage, node: &str, words: &[&str]) {
    stage.fleet.spawn(node).expect("the process starts");
    let agent = stage.fleet.agent_mut(node).expect("it exists");
    let status = agent.ends().await.expect("it ends");
    let log = agent.log();
    assert!(!status.success(), "{log}");
    let last = log.lines().last().unwrap_or_default();
    for word in words {
        assert!(last.contains(word), "`{word}` is not in: {last}");
    }
}

#[tokio::test]
async fn an_agent_says_what_is_missing_or_in_the_way_and_starts_once_that_is_mended() {
    let mut stage = Stage::built(1, Links::Hub).await;
    let (folder, data, address) = {
        let agent = stage.fleet.agent("edge-1").expect("it exists");
        (agent.folder().to_path_buf(), agent.data(), agent.address())
    };

    let (key, aside) = (folder.join("node.key"), folder.join("aside.key"));
    std::fs::rename(&key, &aside).expect("renamed");
    refuses_to_start(&mut stage, "edge-1", &["node.key", "swell node init"]).await;
    std::fs::rename(&aside, &key).expect("renamed");

    let port: u16 = address.rsplit('/').next().and_then(|port| port.parse().ok()).expect("a port");
    let holder = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    refuses_to_start(&mut stage, "edge-1", &[&address, "in use"]).await;
    drop(holder);

    stage.fleet.start_one("edge-1").await.expect("nothing is in its way");
    stage.fleet.agent_mut("edge-1").expect("it exists").stop().await.expect("it stops");

    // The key is in the store by now: a store that cannot be read is a lost identity, and never taken for a new one.
    let database = data.join("store").join("db");
    let good = std::fs::read(&database).expect("the store's database");
    std::fs::write(&database, vec![0x5a; good.len()]).expect("written");
    refuses_to_start(&mut stage, "edge-1", &["store"]).await;
    std::fs::write(&database, &good).expect("written");
    stage.fleet.start_one("edge-1").await.expect("its store is back");
    stage.end().await;
}

/// Changes one character in the middle of a file.
fn tamper(path: &Path) {
    let mut bytes = std::fs::read(path).expect("it can be read");
    let middle = bytes.len() / 2;
    let byte = bytes.get_mut(middle).expect("it is not empty");
    *byte = if *byte == b'A' { b'B' } else { b'A' };
    std::fs::write(path, bytes).expect("it can be written");
}

fn refused(ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, Some(code), "{}", ran.stderr);
    for word in words {
        assert!(ran.stderr.contains(word), "`{word}` is not in: {}", ran.stderr);
    }
}

#[tokio::test]
async fn what_is_tampered_with_or_comes_from_a_stranger_is_refused_and_the_agents_run_on() {
    let mut stage = Stage::on_version_1(3).await;
    let operator = stage.fleet.operator().clone();
    let plan = RolloutPlan::waves(&[(100, 0)]);

    // An artifact whose bytes are not those that were signed.
    operator.release("2.0.0", 2, Behaviour::Good).await.expect("signed");
    let signed: Signed = operator.rollout("2.0.0", &plan, "a test").await.expect("signed");
    let folder = operator.release_folder("2.0.0");
    let artifact = std::fs::read_dir(&folder).expect("read").flatten().map(|entry| entry.path());
    let artifact = artifact.into_iter().find(|path| path.extension().is_none()).expect("the binary");
    let good = std::fs::read(&artifact).expect("read");
    tamper(&artifact);
    let name = artifact.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    refused(&stage.fleet.try_publish("edge-1", Some(&folder), &signed).await.expect("it runs"), 2, &[&name]);
    std::fs::write(&artifact, good).expect("written");

    // A manifest that was changed after it was signed.
    let manifest = folder.join("manifest.json");
    let good = std::fs::read(&manifest).expect("read");
    tamper(&manifest);
    refused(&stage.fleet.try_publish("edge-1", Some(&folder), &signed).await.expect("it runs"), 4, &["manifest.json"]);
    std::fs::write(&manifest, good).expect("written");

    // A stranger: an observer's key that nobody admitted.
    let home = stage.fleet.folder().join("stranger");
    let made = swell().text(["node", "init", "--dir", &home.display().to_string(), "--name", "stranger", "--observer"]).await;
    made.expect("a key");
    let (fleet, key) = (operator.fleet_folder().display().to_string(), home.join("node.key").display().to_string());
    let address = stage.fleet.agent("edge-1").expect("it exists").address();
    let paths = [folder.display().to_string(), signed.rollout.file.display().to_string()];
    let arguments = ["publish", &paths[0], &paths[1], "--fleet", &fleet, "--key", &key, "--to", &address];
    refused(&swell().run(arguments).await.expect("it runs"), 2, &["certificate"]);

    // Nothing of it moved anybody; the real thing does.
    for node in ["edge-1", "edge-2", "edge-3"] {
        assert_eq!(stage.starts(node, "2.0.0"), 0, "{node}");
    }
    stage.fleet.publish("edge-2", "2.0.0", &signed).await.expect("it is published");
    stage.everywhere("2.0.0").await;
    stage.end().await;
}

#[tokio::test]
async fn k2_a_rollout_that_has_expired_moves_nobody_and_says_so() {
    let mut stage = Stage::on_version_1(3).await;
    let operator = stage.fleet.operator().clone();
    operator.release("2.0.0", 2, Behaviour::Good).await.expect("signed");
    let plan = RolloutPlan { expires_after_seconds: 1, ..RolloutPlan::waves(&[(100, 0)]) };
    let signed = operator.rollout("2.0.0", &plan, "a test").await.expect("signed");
    // Expiry is a matter of the wall clock: there is no event to wait for.
    tokio::time::sleep(Duration::from_secs(2)).await;
    stage.fleet.publish("edge-2", "2.0.0", &signed).await.expect("documents travel, expired or not");
    let held = |product: &ProductView| product.hold.as_ref().is_some_and(|hold| hold.code == HoldCode::Expired);
    stage.sees("everybody holds an expired rollout", |sample| all(sample, held)).await;
    for node in ["edge-1", "edge-2", "edge-3"] {
        assert_eq!(stage.starts(node, "2.0.0"), 0, "{node}");
    }
    stage.end().await;
}

//! Whole agents that fetch and give: publishers that help each other and leave, metered ones, what is shown meanwhile.

use groundswell_agent::config::Config;
use groundswell_agent::events::{Entry, Told};
use groundswell_agent::handle::{BlobView, StatusView};
use groundswell_core::digest::Digest;
use groundswell_core::node::view::Explanation;
use groundswell_core::record::status::HoldCode;
use groundswell_net::pieces::{Rate, Rates, Terms};

use crate::agents::{Running, start};
use crate::fleet::{World, free_port};

/// A program of 3 MiB: 48 pieces.
fn program() -> Vec<u8> {
    let head = b"#!/bin/sh\nexec sleep 1000\n";
    let padding = (0..3 * 1024 * 1024 - head.len()).map(|at| b'a' + u8::try_from(at / 7 % 26).unwrap());
    head.iter().copied().chain(padding).collect()
}

/// The release of that program with its rollout to everybody, at these agents' disposal.
struct Published {
    sha256: Digest,
    file: std::path::PathBuf,
    documents: Vec<Vec<u8>>,
}

fn publication(world: &World) -> Published {
    let program = program();
    let file = world.folder.path().join("svc");
    std::fs::write(&file, &program).unwrap();
    let (release, body) = world.release("1.0.0", 1, &program);
    let (roster, named_roster) = world.roster();
    let rollout = world.rollout("r1", &release, &body, &named_roster);
    let documents = [release, roster, rollout].map(|document| document.bytes).into();
    Published { sha256: body.artifacts[0].sha256.into(), file, documents }
}

fn slow(config: Config, bytes_per_second: u64) -> Config {
    let swarm = Terms { rates: Rates::new(Rate::bytes_per_second(bytes_per_second), Rate::UNBOUNDED), ..config.swarm };
    Config { swarm, ..config }
}

fn installed(status: &StatusView) -> bool {
    status.node.products.iter().any(|it| it.version.as_deref() == Some("1.0.0"))
}

async fn connected(agents: &[&Running], peers: u32) {
    for agent in agents {
        agent.until("connected", |status| status.node.peers >= peers).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_publishers_of_one_release_both_give_and_status_explain_and_events_show_it() {
    let mut world = World::new();
    let ports = [free_port(), free_port(), free_port()];
    let publishers = [world.machine("p1", ports[0], &[]), world.machine("p2", ports[1], &[ports[0]])];
    let taker = world.machine("n1", ports[2], &ports[..2]);
    let [one, other] = publishers.map(|config| start(slow(config, 300_000)));
    let taker = start(taker);
    connected(&[&one, &other, &taker], 2).await;
    let published = publication(&world);
    assert_eq!(one.client.put_blob(published.sha256, &published.file).await.unwrap(), Some(3 * 1024 * 1024));
    assert_eq!(other.client.put_blob(published.sha256, &published.file).await.unwrap(), Some(3 * 1024 * 1024));
    for document in published.documents {
        one.client.publish(document).await.unwrap();
    }
    let status = taker
        .until("fetching at some rate", |status| {
            status.agent.downloads.iter().any(|it| it.bytes_per_second > 0 && it.held > 0 && it.near_peers > 0)
        })
        .await;
    let download = &status.agent.downloads[0];
    assert_eq!((download.sha256, download.size_bytes, download.pieces), (published.sha256, 3 * 1024 * 1024, 48));
    assert!(download.copies_ppm >= 1_000_000, "a publisher has all of it: {download}");
    let explained =
        |all: &Vec<Explanation>| all[0].facts.iter().any(|fact| fact.contains("of 48 pieces") && fact.contains("copies"));
    taker.sees("/v1/explain", explained).await;
    let gives = |status: &StatusView| status.agent.uploads.iter().any(|upload| upload.peers > 0 && upload.bytes_per_second > 0);
    one.until("giving", gives).await;
    taker.until("installed", installed).await;
    for publisher in [&one, &other] {
        let status = publisher.until("up", |_| true).await;
        assert!(status.agent.counters["pieces_sent_bytes"] > 0, "both publishers give");
    }
    let events: Vec<Entry> = taker.client.get("/v1/events").await.unwrap();
    let told = events
        .iter()
        .filter(|entry| matches!(&entry.told, Told::BlobFetching { sha256, pieces: 48, .. } if *sha256 == published.sha256));
    assert!((1..=11).contains(&told.count()), "a tenth at a time");
    for agent in [one, other, taker] {
        agent.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_the_others_have_one_copy_together_they_complete_without_their_publisher() {
    let mut world = World::new();
    let ports = [free_port(), free_port(), free_port()];
    let publisher = world.machine("p1", ports[0], &[]);
    let takers = [world.machine("n1", ports[1], &ports[..1]), world.machine("n2", ports[2], &ports[..2])];
    let publisher = start(slow(publisher, 500_000));
    let takers = takers.map(start);
    connected(&[&publisher, &takers[0], &takers[1]], 2).await;
    let published = publication(&world);
    publisher.client.put_blob(published.sha256, &published.file).await.unwrap();
    for document in published.documents {
        publisher.client.publish(document).await.unwrap();
    }
    let has_left_copy =
        |blobs: &Vec<BlobView>| blobs.iter().any(|blob| blob.sha256 == published.sha256 && blob.copies_ppm >= 1_000_000);
    let blobs = publisher.sees("/v1/blobs", has_left_copy).await;
    let blob = blobs.iter().find(|blob| blob.sha256 == published.sha256).unwrap();
    assert_eq!((blob.takers, blob.pieces, blob.held), (Some(2), 48, 48));
    publisher.end().await;
    for taker in &takers {
        taker.until("whole", |status| status.agent.blobs.contains(&published.sha256)).await;
    }
    for taker in takers {
        taker.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c2_a_metered_node_gives_nobody_anything() {
    let mut world = World::new();
    let ports = [free_port(), free_port()];
    let metered = world.machine("m1", ports[0], &[]);
    let metered = Config { lean: true, swarm: Terms { serves: false, ..metered.swarm }, ..metered };
    let other = world.machine("n1", ports[1], &ports[..1]);
    let (metered, other) = (start(metered), start(other));
    connected(&[&metered, &other], 1).await;
    let published = publication(&world);
    metered.client.put_blob(published.sha256, &published.file).await.unwrap();
    for document in published.documents {
        other.client.publish(document).await.unwrap();
    }
    let no_source = |status: &StatusView| {
        status.node.products.iter().any(|it| it.hold.as_ref().is_some_and(|hold| hold.code == HoldCode::NoSource))
    };
    let status = other.until("without a source", no_source).await;
    assert!(status.agent.downloads.iter().all(|download| download.held == 0));
    let status = metered.until("up", |_| true).await;
    assert_eq!((status.agent.counters["pieces_sent_bytes"], status.agent.uploads.len()), (0, 0));
    assert!(status.agent.blobs.contains(&published.sha256), "it has it, and keeps it to itself");
    for agent in [metered, other] {
        agent.end().await;
    }
}

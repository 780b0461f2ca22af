//! What a helper has once seen or denied counts for good: damaged files, forgiveness and restarts do not set it back.

use std::fs;
use std::path::PathBuf;

use groundswell_agent::helper::wire::{Order, Outcome, Reply, Why};
use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::fleet::Fleet;
use groundswell_core::documents::rollout::{Forgiven, Rollout};
use groundswell_core::record::{ClaimName, Stamp};
use groundswell_core::text::Reason;

use super::bench::{Bench, Client, claim, outcome, refused};
use super::world::{Papers, digest, next, product, program, sign};

fn file_of(bench: &Bench, digest: &Digest) -> PathBuf {
    bench.path(&format!("data/documents/{}.json", digest.hex()))
}

/// A version under which the third of the makers signs releases alone.
fn with_the_third_maker(bench: &Bench, before: &Fleet) -> Fleet {
    let mut fleet = bench.world.next_fleet(before);
    let role = fleet.roles.release.get_mut(&product()).unwrap();
    role.keys.retain(|key| *key == *bench.world.makers[2].public());
    role.threshold = 1;
    fleet
}

#[tokio::test]
async fn a_fleet_document_whose_file_is_damaged_lets_no_older_one_count() {
    let mut bench = Bench::running();
    let old = bench.world.papers(1);
    let second = with_the_third_maker(&bench, &old.fleet);
    let third = bench.world.next_fleet(&second);
    let versions = [&old.fleet, &second, &third].map(|fleet| bench.world.sign_fleet(fleet));
    let new = sign(&Body::Release(old.release.clone()), &[&bench.world.makers[2]]);
    let mut client = bench.client().await;
    let published = bench.world.published(&old);
    for document in versions.iter().chain([&new, &published[1], &published[2], &published[4]]) {
        assert!(matches!(client.document(document).await, Reply::Taken { .. }));
    }
    bench.kill();
    let damaged = file_of(&bench, &digest(&Body::Fleet(second.clone())));
    fs::write(&damaged, "garbage").unwrap();
    bench.start();

    // By the first version the release of old keys would be good; nothing that the lost ones vouch for is gone.
    for _ in 0..2 {
        refused(&bench.stage(&published, old.id(), &program(1)).await, Why::Held, "was in force here");
        for kept in [digest(&Body::Fleet(third.clone())), old.id()] {
            assert!(file_of(&bench, &kept).exists());
        }
        bench.restart();
    }
    let mut client = bench.client().await;
    let artifact = bench.file("artifact", &program(1));
    for (shown, version) in [(&versions[1], 2), (&versions[2], 3)] {
        refused(&client.stage(old.id(), Some(&artifact)).await, Why::Held, "was in force here");
        assert!(matches!(client.document(shown).await, Reply::Taken { fresh: true, .. }), "version {version}");
    }
    refused(&bench.stage(&published, old.id(), &program(1)).await, Why::Held, "release");
    let reply = bench.stage(&[new, published[4].clone()], old.id(), &program(1)).await;
    assert_eq!(outcome(&reply), &Outcome::Staged);
    bench.restart();
    assert_eq!(bench.client().await.state().await.staged, Some(old.id()), "all is whole again");
}

#[tokio::test]
async fn what_warranted_a_release_warrants_it_no_more_after_a_newer_fleet_document_however_often_it_is_shown() {
    let mut bench = Bench::running();
    let papers = bench.world.papers(1);
    let published = bench.world.published(&papers);
    let mut client = bench.staged(&papers, &program(1)).await;
    let newer = with_the_third_maker(&bench, &papers.fleet);
    assert!(matches!(client.document(&bench.world.sign_fleet(&newer)).await, Reply::Taken { .. }));
    for _ in 0..2 {
        let mut client = bench.client().await;
        for document in &published {
            client.document(document).await;
        }
        refused(&client.activate(papers.id()).await, Why::Held, "release");
        let artifact = bench.file("again", &program(1));
        refused(&client.stage(papers.id(), Some(&artifact)).await, Why::Held, "release");
        bench.restart();
    }
    assert!(bench.started().is_empty() && bench.current().is_none());
}

async fn activate_under(client: &mut Client, papers: &Papers, claim: ClaimName) -> Reply {
    client.order(&Order::Activate { product: product(), release: papers.id(), claim }, None).await
}

/// The generation after `before` that lets the node try again what failed under `claim`.
fn forgiving(bench: &Bench, before: &Rollout, claim: ClaimName) -> Rollout {
    Rollout { forgiven: vec![Forgiven { node: bench.world.node(), claim: Some(claim), retry: true }], ..next(before) }
}

#[tokio::test]
async fn forgiveness_lets_a_build_be_tried_once_more_and_not_for_ever() {
    let mut bench = Bench::running();
    let papers = bench.world.papers(1);
    let at = |counter| ClaimName(Stamp { incarnation: 1, counter });
    let first = claim();
    let mut client = bench.staged(&papers, &program(1)).await;
    assert_eq!(outcome(&activate_under(&mut client, &papers, first).await), &Outcome::Activated);
    client.revert(papers.id()).await;
    let forgiving = forgiving(&bench, &papers.rollout, first);
    client.document(&bench.world.sign_rollout(&forgiving)).await;
    let artifact = bench.file("again", &program(1));
    assert_eq!(outcome(&client.stage(papers.id(), Some(&artifact)).await), &Outcome::Staged);
    // Under the claim that is forgiven its next failure would be forgiven beforehand.
    refused(&activate_under(&mut client, &papers, first).await, Why::Denied, "under a later claim");
    assert_eq!(outcome(&activate_under(&mut client, &papers, at(8)).await), &Outcome::Activated);
    client.revert(papers.id()).await;
    for _ in 0..2 {
        let mut client = bench.client().await;
        refused(&client.stage(papers.id(), Some(&artifact)).await, Why::Denied, "failed here before");
        refused(&activate_under(&mut client, &papers, at(9)).await, Why::Denied, "failed here before");
        bench.restart();
    }
    assert_eq!(bench.started(), ["release 1", "stop", "release 1", "stop"], "it was tried twice");
}

#[tokio::test]
async fn what_a_start_took_back_is_told_until_it_is_tried_anew() {
    let mut bench = Bench::prepare("", "trial-starts = 1");
    let wait = "touch HOME/there; until test -e HOME/go; do sleep 0.01; done".replace("HOME", &bench.home());
    bench.append(&format!("[product.bcd.hooks]\nafter-activate = [\"/bin/sh\", \"-c\", \"{wait}\"]\n"));
    bench.start();
    let papers = bench.world.papers(1);
    let mut client = bench.staged(&papers, &program(1)).await;
    let there = bench.path("there");
    tokio::select! {
        _ = client.activate(papers.id()) => panic!("the hook was not reached"),
        () = super::bench::appears(&there) => {}
    }
    // The one start that a trial has is used up.
    bench.restart();
    fs::write(bench.path("go"), "").unwrap();
    let mut client = bench.client().await;
    let taken = client.state().await.reverted.expect("the start took it back");
    assert_eq!(taken.release, papers.id());
    let reason = Reason::lossy("unhealthy");
    client.order(&Order::Revert { product: product(), release: papers.id(), reason, at_fault: true }, None).await;
    assert!(client.state().await.reverted.is_some(), "it is told until the release is tried anew");
    client.document(&bench.world.sign_rollout(&forgiving(&bench, &papers.rollout, claim()))).await;
    let artifact = bench.file("again", &program(1));
    assert_eq!(outcome(&client.stage(papers.id(), Some(&artifact)).await), &Outcome::Staged);
    assert_eq!(client.state().await.reverted, None, "what is tried anew is not blamed for what was forgiven");
}

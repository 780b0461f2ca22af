//! Papers that do not warrant an install: forged, short of signatures, old, stopped, or about something else.
//!
//! Each test shows the helper what an agent that was broken into could show, with the right bytes at hand, and finds that
//! nothing was written.

use std::collections::BTreeMap;

use groundswell_agent::helper::wire::{Outcome, Reply, Why};
use groundswell_core::documents::Body;
use groundswell_core::documents::release::Block;
use groundswell_core::documents::rollout::{Mode, Rollout, State};
use groundswell_core::number::Sequence;
use groundswell_core::text::{LabelKey, LabelValue, Platform, Pool, Product, Reason};

use super::bench::{Bench, outcome, refused};
use super::world::{Papers, World, next, program, sign};

/// Shows these documents and asks for the release, with its right bytes; it must be refused, and nothing written.
async fn refuses(documents: impl FnOnce(&World) -> (Papers, Vec<Vec<u8>>), why: Why, says: &str) {
    let bench = Bench::running();
    let (papers, documents) = documents(&bench.world);
    let reply = bench.stage(&documents, papers.id(), &program(1)).await;
    refused(&reply, why, says);
    assert!(bench.holds_nothing());
}

/// The same with the papers bent and then signed as they should be.
async fn refuses_bent(bend: impl FnOnce(&World, &mut Papers), why: Why, says: &str) {
    let bent = |world: &World| {
        let mut papers = world.papers(1);
        bend(world, &mut papers);
        let papers = papers.tied();
        let documents = world.published(&papers);
        (papers, documents)
    };
    refuses(bent, why, says).await;
}

/// The same with one more document after the right ones.
async fn refuses_after(more: impl FnOnce(&World, &Papers) -> Vec<Vec<u8>>, why: Why, says: &str) {
    let after = |world: &World| {
        let papers = world.papers(1);
        let mut documents = world.published(&papers);
        documents.extend(more(world, &papers));
        (papers, documents)
    };
    refuses(after, why, says).await;
}

/// The same with the manifest signed otherwise.
async fn refuses_manifest(forge: impl FnOnce(&World, &Body) -> Vec<u8>) {
    let forged = |world: &World| {
        let papers = world.papers(1);
        let mut documents = world.published(&papers);
        documents[3] = forge(world, &Body::Release(papers.release.clone()));
        (papers, documents)
    };
    refuses(forged, Why::Held, "release").await;
}

/// The same with the rollout signed otherwise.
async fn refuses_rollout(forge: impl FnOnce(&World, &Body) -> Vec<u8>) {
    let forged = |world: &World| {
        let papers = world.papers(1);
        let mut documents = world.published(&papers);
        documents[4] = forge(world, &Body::Rollout(papers.rollout.clone()));
        (papers, documents)
    };
    refuses(forged, Why::Warrant, "no rollout of bcd").await;
}

#[tokio::test]
async fn right_papers_and_right_bytes_are_installed() {
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.installed(&papers, &program(1)).await;
    assert_eq!(bench.current(), Some(program(1)));
    assert_eq!(bench.started(), ["release 1"]);
    assert_eq!(client.state().await.floor.get(), 1);
}

#[tokio::test]
async fn nothing_shown_at_all() {
    refuses(|world| (world.papers(1), Vec::new()), Why::Held, "no fleet document").await;
}

#[tokio::test]
async fn a_manifest_without_signatures() {
    refuses_manifest(|_, body| sign(body, &[])).await;
}

#[tokio::test]
async fn a_manifest_with_one_signature_of_two() {
    refuses_manifest(|world, body| sign(body, &[&world.makers[0]])).await;
}

#[tokio::test]
async fn a_manifest_that_one_key_signed_twice() {
    refuses_manifest(|world, body| sign(body, &[&world.makers[0], &world.makers[0]])).await;
}

#[tokio::test]
async fn a_manifest_signed_by_a_stranger_and_one_key() {
    refuses_manifest(|world, body| sign(body, &[&world.stranger, &world.makers[1]])).await;
}

#[tokio::test]
async fn a_manifest_signed_by_the_keys_of_another_role() {
    refuses_manifest(|world, body| sign(body, &[&world.movers[0], &world.movers[1]])).await;
}

#[tokio::test]
async fn a_manifest_whose_body_was_changed_after_it_was_signed() {
    refuses_manifest(|world, body| {
        let Body::Release(release) = body else { panic!("a release") };
        let mut changed = release.clone();
        changed.notes = Some("changed".to_owned());
        let mut envelope = groundswell_core::documents::envelope::Envelope::parse(&world.sign_release(release)).unwrap();
        envelope.body = Body::Release(changed).encode();
        envelope.to_bytes()
    })
    .await;
}

#[tokio::test]
async fn a_rollout_without_signatures() {
    refuses_rollout(|_, body| sign(body, &[])).await;
}

#[tokio::test]
async fn a_running_rollout_by_one_key_of_two() {
    refuses_rollout(|world, body| sign(body, &[&world.movers[0]])).await;
}

#[tokio::test]
async fn a_rollout_signed_by_those_who_make_releases() {
    refuses_rollout(|world, body| sign(body, &[&world.makers[0], &world.makers[1]])).await;
}

#[tokio::test]
async fn a_release_that_no_rollout_moves_to() {
    let without = |world: &World| {
        let papers = world.papers(1);
        let mut documents = world.published(&papers);
        documents.truncate(4);
        (papers, documents)
    };
    refuses(without, Why::Warrant, "no rollout of bcd").await;
}

#[tokio::test]
async fn a_rollout_without_its_roster() {
    let without = |world: &World| {
        let papers = world.papers(1);
        let mut documents = world.published(&papers);
        documents.remove(1);
        (papers, documents)
    };
    refuses(without, Why::Held, "is not here").await;
}

#[tokio::test]
async fn a_roster_without_signatures() {
    let forged = |world: &World| {
        let papers = world.papers(1);
        let mut documents = world.published(&papers);
        documents[1] = sign(&Body::Roster(papers.roster.clone()), &[]);
        (papers, documents)
    };
    refuses(forged, Why::Held, "is not here").await;
}

#[tokio::test]
async fn a_certificate_signed_by_a_stranger() {
    let forged = |world: &World| {
        let papers = world.papers(1);
        let mut documents = world.published(&papers);
        documents[2] = sign(&Body::Node(papers.certificate.clone()), &[&world.stranger]);
        (papers, documents)
    };
    refuses(forged, Why::Warrant, "no certificate").await;
}

#[tokio::test]
async fn the_certificate_of_another_node() {
    let other = |world: &World| {
        let mut papers = world.papers(1);
        papers.certificate.node = groundswell_agent::identity::node_id(&[77; 32]);
        let documents = world.published(&papers);
        (papers, documents)
    };
    refuses(other, Why::Warrant, "no certificate").await;
}

#[tokio::test]
async fn documents_of_another_fleet() {
    let other = |world: &World| {
        let mut foreign = World::new();
        foreign.now = world.now.plus_seconds(1);
        let papers = foreign.papers(1);
        let documents = foreign.published(&papers);
        (papers, documents)
    };
    refuses(other, Why::Held, "no fleet document").await;
}

#[tokio::test]
async fn a_release_of_another_product() {
    let other = |_: &World, papers: &mut Papers| papers.release.product = Product::new("other").unwrap();
    refuses_bent(other, Why::Held, "release").await;
}

#[tokio::test]
async fn a_release_for_another_platform_only() {
    let other = |_: &World, papers: &mut Papers| {
        papers.release.artifacts[0].platform = Some(Platform::new("plan9-mips").unwrap());
    };
    refuses_bent(other, Why::Warrant, "no artifact for platform").await;
}

#[tokio::test]
async fn a_rollout_whose_scope_has_another_pool() {
    let other = |_: &World, papers: &mut Papers| papers.rollout.scope.pools = vec![Pool::new("elsewhere").unwrap()];
    refuses_bent(other, Why::Warrant, "no rollout of bcd").await;
}

#[tokio::test]
async fn a_rollout_whose_scope_asks_for_a_label() {
    let other = |_: &World, papers: &mut Papers| {
        let (key, value) = (LabelKey::new("channel").unwrap(), LabelValue::new("beta").unwrap());
        papers.rollout.scope.labels = BTreeMap::from([(key, value)]);
    };
    refuses_bent(other, Why::Warrant, "no rollout of bcd").await;
}

#[tokio::test]
async fn a_certificate_without_a_pool() {
    refuses_bent(|_, papers| papers.certificate.pool = None, Why::Warrant, "no rollout of bcd").await;
}

#[tokio::test]
async fn a_rehearsal() {
    refuses_bent(|_, papers| papers.rollout.mode = Mode::Rehearse, Why::Warrant, "no rollout of bcd").await;
}

#[tokio::test]
async fn a_rollout_that_has_expired() {
    let old = |world: &World, papers: &mut Papers| {
        papers.rollout.issued_at = groundswell_core::time::Timestamp::from_seconds(world.now.seconds() - 7_200);
        papers.rollout.expires_at = papers.rollout.issued_at.plus_seconds(3_600);
    };
    refuses_bent(old, Why::Held, "rollout").await;
}

#[tokio::test]
async fn a_release_that_has_expired() {
    let old = |world: &World, papers: &mut Papers| {
        papers.release.issued_at = groundswell_core::time::Timestamp::from_seconds(world.now.seconds() - 7_200);
        papers.release.expires_at = papers.release.issued_at.plus_seconds(3_600);
    };
    refuses_bent(old, Why::Held, "release").await;
}

#[tokio::test]
async fn a_paused_rollout() {
    let paused = |world: &World, papers: &Papers| {
        let generation = Rollout { state: State::Paused, ..next(&papers.rollout) };
        vec![sign(&Body::Rollout(generation), &[&world.movers[2]])]
    };
    refuses_after(paused, Why::Held, "paused").await;
}

#[tokio::test]
async fn an_aborted_rollout() {
    let aborted = |world: &World, papers: &Papers| {
        let generation = Rollout { state: State::Aborted, ..next(&papers.rollout) };
        vec![sign(&Body::Rollout(generation), &[&world.movers[2]])]
    };
    refuses_after(aborted, Why::Warrant, "aborted").await;
}

#[tokio::test]
async fn two_bodies_of_one_generation() {
    let rivals = |world: &World, papers: &Papers| {
        let body = |text: &str| Rollout { reason: Reason::new(text).unwrap(), ..next(&papers.rollout) };
        vec![world.sign_rollout(&body("one")), world.sign_rollout(&body("other"))]
    };
    refuses_after(rivals, Why::Held, "generation").await;
}

#[tokio::test]
async fn two_bodies_of_one_release() {
    let rival = |world: &World, papers: &Papers| {
        let mut rival = papers.release.clone();
        rival.notes = Some("another body".to_owned());
        vec![world.sign_release(&rival)]
    };
    refuses_after(rival, Why::Held, "release").await;
}

#[tokio::test]
async fn two_bodies_of_one_fleet_version() {
    let rivals = |world: &World, papers: &Papers| {
        let second = world.next_fleet(&papers.fleet);
        let mut rival = second.clone();
        rival.expires_at = rival.expires_at.plus_seconds(1);
        vec![world.sign_fleet(&second), world.sign_fleet(&rival)]
    };
    refuses_after(rivals, Why::Held, "fleet version").await;
}

#[tokio::test]
async fn two_rollouts_of_one_release_over_one_scope() {
    let rival = |world: &World, papers: &Papers| {
        vec![world.sign_rollout(&world.rollout("rollout_other", &papers.release, &papers.roster))]
    };
    refuses_after(rival, Why::Held, "overlap").await;
}

#[tokio::test]
async fn a_rollout_that_a_newer_one_took_over() {
    let newer = |world: &World, papers: &Papers| {
        let release = world.release(2, &program(2));
        let rollout = world.rollout("rollout_2", &release, &papers.roster);
        vec![world.sign_release(&release), world.sign_rollout(&rollout)]
    };
    refuses_after(newer, Why::Warrant, "moves to release").await;
}

#[tokio::test]
async fn a_release_that_a_newer_one_blocks() {
    let newer = |world: &World, papers: &Papers| {
        let mut release = world.release(2, &program(2));
        release.blocks = vec![Block { digest: papers.id(), reason: Reason::new("eats disks").unwrap() }];
        vec![world.sign_release(&release)]
    };
    refuses_after(newer, Why::Warrant, "eats disks").await;
}

#[tokio::test]
async fn a_node_that_root_revoked() {
    let revoked = |world: &World, papers: &Papers| {
        let mut fleet = world.next_fleet(&papers.fleet);
        fleet.revoked = vec![world.node()];
        vec![world.sign_fleet(&fleet)]
    };
    refuses_after(revoked, Why::Warrant, "revoked").await;
}

#[tokio::test]
async fn a_node_that_was_retired() {
    let retired = |world: &World, papers: &Papers| {
        let mut certificate = papers.certificate.clone();
        (certificate.serial, certificate.retired) = (2, true);
        vec![world.sign_certificate(&certificate)]
    };
    refuses_after(retired, Why::Warrant, "retired").await;
}

#[tokio::test]
async fn a_node_that_the_newest_roster_removed() {
    let removed = |world: &World, papers: &Papers| {
        let mut roster = papers.roster.clone();
        roster.version = 2;
        roster.previous = vec![super::world::digest(&Body::Roster(papers.roster.clone()))];
        roster.nodes.clear();
        roster.removed = vec![world.node()];
        vec![world.sign_roster(&roster)]
    };
    refuses_after(removed, Why::Warrant, "removed").await;
}

#[tokio::test]
async fn an_older_generation_after_a_newer_one_was_seen_even_over_a_restart() {
    let mut bench = Bench::running();
    let papers = bench.world.papers(1);
    let right = bench.world.published(&papers);
    let paused = Rollout { state: State::Paused, ..next(&papers.rollout) };
    let mut client = bench.client().await;
    for document in right.iter().chain([&bench.world.sign_rollout(&paused)]) {
        assert!(matches!(client.document(document).await, Reply::Taken { .. }));
    }
    for _ in 0..2 {
        refused(&bench.stage(&right, papers.id(), &program(1)).await, Why::Held, "paused");
        bench.restart();
    }
    assert!(bench.holds_nothing());
}

#[tokio::test]
async fn an_older_fleet_after_a_newer_one_was_seen_even_over_a_restart() {
    let mut bench = Bench::running();
    let papers = bench.world.papers(1);
    // Version 2 lets go of two of the keys that made the release.
    let mut second = bench.world.next_fleet(&papers.fleet);
    let role = second.roles.release.get_mut(&super::world::product()).unwrap();
    role.keys.retain(|key| *key == *bench.world.makers[2].public());
    role.threshold = 1;
    let mut client = bench.client().await;
    assert!(matches!(client.document(&bench.world.sign_fleet(&papers.fleet)).await, Reply::Taken { .. }));
    assert!(matches!(client.document(&bench.world.sign_fleet(&second)).await, Reply::Taken { .. }));
    for _ in 0..2 {
        let reply = bench.stage(&bench.world.published(&papers), papers.id(), &program(1)).await;
        refused(&reply, Why::Held, "release");
        bench.restart();
    }
    assert!(bench.holds_nothing());
}

#[tokio::test]
async fn an_older_release_with_its_own_rollout_after_a_newer_one_was_installed() {
    let bench = Bench::running();
    bench.installed(&bench.world.papers(2), &program(2)).await;
    let old = bench.world.papers(1);
    let reply = bench.stage(&bench.world.published(&old), old.id(), &program(1)).await;
    refused(&reply, Why::Warrant, "moves to release");
    assert_eq!(bench.current(), Some(program(2)));
}

/// Installs release 2, ends the helper, damages something, and asks for release 1 with all its papers.
async fn refuses_the_older_release_after(damage: impl FnOnce(&Bench)) {
    let mut bench = Bench::running();
    bench.installed(&bench.world.papers(2), &program(2)).await;
    bench.kill();
    damage(&bench);
    bench.start();
    let old = bench.world.papers(1);
    let reply = bench.stage(&bench.world.published(&old), old.id(), &program(1)).await;
    refused(&reply, Why::Warrant, "below the floor");
}

#[tokio::test]
async fn a_release_below_the_floor_even_when_the_documents_were_lost() {
    refuses_the_older_release_after(|bench| std::fs::remove_dir_all(bench.path("data/documents")).unwrap()).await;
}

#[tokio::test]
async fn a_release_below_the_floor_even_when_the_slots_do_not_tell_it_any_more() {
    let damage = |bench: &Bench| {
        std::fs::write(bench.path("data/products/bcd/confirmed.json"), "torn").unwrap();
        for entry in std::fs::read_dir(bench.path("data/documents")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "json") {
                std::fs::remove_file(path).unwrap();
            }
        }
    };
    refuses_the_older_release_after(damage).await;
}

#[tokio::test]
async fn a_release_that_skips_a_barrier() {
    let bench = Bench::running();
    bench.installed(&bench.world.papers(1), &program(1)).await;
    let mut papers = bench.world.papers(3);
    papers.release.upgrade_from = Some(Sequence::new(2).unwrap());
    let papers = papers.tied();
    let reply = bench.stage(&bench.world.published(&papers), papers.id(), &program(3)).await;
    refused(&reply, Why::Warrant, "at least sequence 2");
}

#[tokio::test]
async fn a_build_that_failed_here_before() {
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.staged(&papers, &program(1)).await;
    assert_eq!(outcome(&client.activate(papers.id()).await), &Outcome::Activated);
    assert!(matches!(outcome(&client.revert(papers.id()).await), Outcome::Reverted { running: None, .. }));
    let file = bench.file("again", &program(1));
    refused(&client.stage(papers.id(), Some(&file)).await, Why::Denied, "failed here before");
    refused(&client.activate(papers.id()).await, Why::Denied, "failed here before");
    assert_eq!(bench.started(), ["release 1", "stop"]);
}

#[tokio::test]
async fn fewer_signatures_than_the_helpers_own_configuration_asks_for() {
    let bench = Bench::start_with("trust.release.bcd = { threshold = 3 }", "");
    let papers = bench.world.papers(1);
    let documents = bench.world.published(&papers);
    refused(&bench.stage(&documents, papers.id(), &program(1)).await, Why::Warrant, "configuration asks");
    let [a, b, c] = &bench.world.makers;
    let all = sign(&Body::Release(papers.release.clone()), &[a, b, c]);
    let reply = bench.stage(&[all], papers.id(), &program(1)).await;
    assert_eq!(outcome(&reply), &Outcome::Staged, "with the third signature it is");
}

#[tokio::test]
async fn signatures_of_other_keys_than_the_helper_pins() {
    let pin = World::new().movers[2].pin();
    let bench = Bench::start_with(&format!("trust.rollout = {{ pins = [\"{pin}\"] }}"), "");
    let papers = bench.world.papers(1);
    let reply = bench.stage(&bench.world.published(&papers), papers.id(), &program(1)).await;
    refused(&reply, Why::Warrant, "configuration asks");
}

#[tokio::test]
async fn a_version_other_than_the_locked_one() {
    let bench = Bench::start_with("", "version-lock = \"7.0\"");
    let papers = bench.world.papers(1);
    let reply = bench.stage(&bench.world.published(&papers), papers.id(), &program(1)).await;
    refused(&reply, Why::Warrant, "locked to 7.0");
}

#[tokio::test]
async fn an_artifact_larger_than_the_helper_installs() {
    let bench = Bench::start_with("limits.artifact = \"10B\"", "");
    let papers = bench.world.papers(1);
    let reply = bench.stage(&bench.world.published(&papers), papers.id(), &program(1)).await;
    refused(&reply, Why::Warrant, "limits.artifact");
}

//! Rosters that are shown to a helper: only one that is verified takes the place of others.

use std::fs;

use groundswell_agent::helper::archive::ROSTERS_BYTES;
use groundswell_agent::helper::wire::{Reply, Why};
use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::roster::{Listed, Roster};
use groundswell_core::limits::ROSTERS;
use groundswell_core::node_id::NodeId;

use super::bench::{Bench, refused};
use super::world::{Papers, digest, sign};

fn kept(bench: &Bench) -> usize {
    fs::read_dir(bench.path("data/documents")).unwrap().count()
}

fn version(papers: &Papers, version: u64) -> Roster {
    Roster { version, previous: vec![digest(&Body::Roster(papers.roster.clone()))], ..papers.roster.clone() }
}

#[tokio::test]
async fn a_roster_that_is_not_verified_or_is_known_already_drives_no_other_out() {
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.client().await;
    for document in bench.world.published(&papers) {
        client.document(&document).await;
    }
    let half = u64::try_from(ROSTERS / 2).unwrap();
    for number in 2..=half {
        let reply = client.document(&bench.world.sign_roster(&version(&papers, number))).await;
        assert!(matches!(reply, Reply::Taken { fresh: true, .. }), "{number}: {reply:?}");
    }
    let before = kept(&bench);
    let next = version(&papers, half + 1);
    for _ in 0..3 {
        let unsigned = sign(&Body::Roster(next.clone()), &[]);
        refused(&client.document(&unsigned).await, Why::Document, "no valid signature");
        let again = client.document(&bench.world.sign_roster(&version(&papers, 2))).await;
        assert!(matches!(again, Reply::Taken { fresh: false, .. }), "{again:?}");
    }
    assert_eq!(kept(&bench), before, "they cost nobody a place");
    // One that is verified does: what stays is it, the newest, and the one that the rollout names.
    let reply = client.document(&bench.world.sign_roster(&next)).await;
    assert!(matches!(reply, Reply::Taken { fresh: true, .. }), "{reply:?}");
    assert_eq!(kept(&bench), before + 1 - (ROSTERS / 2 - 1));
}

#[tokio::test]
async fn large_rosters_are_kept_by_their_bytes() {
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.client().await;
    for document in bench.world.published(&papers) {
        client.document(&document).await;
    }
    let id = |number: u32| {
        let mut id = [0; 32];
        id[..4].copy_from_slice(&number.to_be_bytes());
        NodeId(id)
    };
    let nodes: Vec<_> = (0..20_000).map(|n| Listed { id: id(n), certificate: Digest([7; 32]), dormant: false }).collect();
    let bytes = || {
        let files = fs::read_dir(bench.path("data/documents")).unwrap();
        files.map(|file| usize::try_from(file.unwrap().metadata().unwrap().len()).unwrap()).sum::<usize>()
    };
    for number in 2..=8 {
        let large = bench.world.sign_roster(&Roster { nodes: nodes.clone(), ..version(&papers, number) });
        assert!(large.len() > ROSTERS_BYTES / 7, "all seven are too many: {}", large.len());
        let reply = client.document(&large).await;
        assert!(matches!(reply, Reply::Taken { fresh: true, .. }), "{number}: {reply:?}");
        assert!(bytes() > large.len() && bytes() < ROSTERS_BYTES, "{number}: {} bytes", bytes());
    }
    let file = bench.file("artifact", &super::world::program(1));
    assert!(matches!(client.stage(papers.id(), Some(&file)).await, Reply::Done { .. }), "what a rollout names is here");
}

#[tokio::test]
async fn an_old_roster_that_has_just_come_stays_until_the_rollout_that_names_it_is_there() {
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let [fleet, roster, certificate, release, rollout] = <[Vec<u8>; 5]>::try_from(bench.world.published(&papers)).unwrap();
    let mut client = bench.client().await;
    client.document(&fleet).await;
    for number in 2..=u64::try_from(ROSTERS / 2 + 1).unwrap() {
        client.document(&bench.world.sign_roster(&version(&papers, number))).await;
    }
    for document in [roster, certificate, release, rollout] {
        let reply = client.document(&document).await;
        assert!(matches!(reply, Reply::Taken { .. }), "{reply:?}");
    }
    let file = bench.file("artifact", &super::world::program(1));
    let reply = client.stage(papers.id(), Some(&file)).await;
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
}

#[tokio::test]
async fn whatever_lies_in_the_place_of_a_document_the_helper_starts() {
    let mut bench = Bench::running();
    let papers = bench.world.papers(1);
    bench.staged(&papers, &super::world::program(1)).await;
    bench.kill();
    let folder = bench.path("data/documents");
    let name = |number: u8| folder.join(format!("{}.json", Digest([number; 32]).hex()));
    rustix::fs::mkfifoat(rustix::fs::CWD, name(1), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    fs::write(name(2), "no document").unwrap();
    let long = fs::File::create(name(3)).unwrap();
    long.set_len(1 << 30).unwrap();
    std::os::unix::fs::symlink("/dev/zero", name(4)).unwrap();
    bench.start();
    let state = bench.client().await.state().await;
    assert_eq!(state.staged, Some(papers.id()), "the others are still here");
    for number in 1..=4 {
        assert!(name(number).symlink_metadata().is_err(), "what is no document is removed: {number}");
    }
}

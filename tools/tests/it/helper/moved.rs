//! A machine that is of another fleet now: what the one that it has left had in force does not bind it.

use std::fs;
use std::path::PathBuf;

use groundswell_agent::helper::wire::{Outcome, Reply, Why};
use groundswell_core::documents::Body;
use groundswell_core::trust::signing::SecretKey;

use super::bench::{Bench, outcome, refused};
use super::world::{World, digest, product, program};

/// The file that says which fleet document is in force.
fn in_force(bench: &Bench) -> PathBuf {
    bench.path("data/documents").join(format!("fleet-in-force-of-{}", bench.world.fleet_id().hex()))
}

/// The one file for all fleets, in which older helpers wrote it.
fn old_in_force(bench: &Bench) -> PathBuf {
    bench.path("data/documents/fleet-in-force")
}

/// A helper that has installed a release under the second version of its fleet, and stands still.
async fn settled() -> Bench {
    let mut bench = Bench::running();
    let papers = bench.world.papers(1);
    let second = bench.world.next_fleet(&papers.fleet);
    let mut client = bench.installed(&papers, &program(1)).await;
    assert!(matches!(client.document(&bench.world.sign_fleet(&second)).await, Reply::Taken { .. }));
    bench.kill();
    bench
}

/// Its configuration names a fleet of another root key, whose first version is in force.
fn move_it(bench: &mut Bench) {
    let root = SecretKey::generate(&[77; 32]).unwrap();
    let (before, other) = (bench.world.fleet_id().to_string(), World { root, ..World::new() });
    bench.configure(&before, &other.fleet_id().to_string());
    bench.world = other;
}

#[tokio::test]
async fn a_machine_that_was_moved_to_another_fleet_is_not_held_by_the_version_of_the_old_one() {
    for written_by_an_older_one in [false, true] {
        let mut bench = settled().await;
        if written_by_an_older_one {
            fs::rename(in_force(&bench), old_in_force(&bench)).unwrap();
        }
        move_it(&mut bench);
        for _ in 0..2 {
            bench.restart();
            refused(&bench.stage(&[], bench.world.papers(2).id(), &program(2)).await, Why::Held, "no fleet document is known");
        }
        bench.installed(&bench.world.papers(2), &program(2)).await;
        assert!(in_force(&bench).exists());
        assert!(!old_in_force(&bench).exists());
    }
}

#[tokio::test]
async fn what_an_older_helper_wrote_down_counts_and_is_written_anew() {
    let mut bench = settled().await;
    fs::rename(in_force(&bench), old_in_force(&bench)).unwrap();
    bench.start();
    let written = fs::read_to_string(in_force(&bench)).unwrap();
    assert!(written.starts_with("2 sha256/") && !old_in_force(&bench).exists(), "at the start, whatever comes later");
    let (two, second) = (bench.world.papers(2), bench.world.next_fleet(&bench.world.fleet()));
    assert_eq!(outcome(&bench.stage(&bench.world.published(&two), two.id(), &program(2)).await), &Outcome::Staged);
    let third = bench.world.next_fleet(&second);
    let mut client = bench.client().await;
    assert!(matches!(client.document(&bench.world.sign_fleet(&third)).await, Reply::Taken { .. }));
    assert!(fs::read_to_string(in_force(&bench)).unwrap().starts_with("3 sha256/"));
    assert!(!old_in_force(&bench).exists());
}

#[tokio::test]
async fn nothing_that_was_ended_comes_back_where_an_older_helper_wrote_down_what_is_in_force() {
    let mut bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.client().await;
    let published = bench.world.published(&papers);
    for document in &published {
        assert!(matches!(client.document(document).await, Reply::Taken { .. }));
    }
    let documents = bench.path("data/documents");
    let release = documents.join(format!("{}.json", papers.id().hex()));
    let ended = fs::read(&release).unwrap();
    let mut second = bench.world.next_fleet(&papers.fleet);
    let role = second.roles.release.get_mut(&product()).unwrap();
    role.keys.retain(|key| *key == *bench.world.makers[2].public());
    role.threshold = 1;
    assert!(matches!(client.document(&bench.world.sign_fleet(&second)).await, Reply::Taken { .. }));
    assert!(!release.exists(), "its keys are not the makers' any more");
    bench.kill();
    fs::rename(in_force(&bench), old_in_force(&bench)).unwrap();
    let second = documents.join(format!("{}.json", digest(&Body::Fleet(second)).hex()));
    let newest = fs::read(&second).unwrap();
    for with_the_newest in [false, true] {
        // As after a power cut that undid the removal; and once the disk has lost the document by which it was ended.
        fs::write(&release, &ended).unwrap();
        let says = if with_the_newest {
            fs::write(&second, &newest).unwrap();
            "release"
        } else {
            fs::remove_file(&second).unwrap();
            "was in force here"
        };
        bench.start();
        assert_eq!(old_in_force(&bench).exists(), !with_the_newest, "it goes once what it names is there");
        let refusal = bench.stage(&published, papers.id(), &program(1)).await;
        refused(&refusal, Why::Held, says);
        assert!(bench.holds_nothing());
        bench.kill();
    }
    assert!(!release.exists() && in_force(&bench).exists());
}

#[tokio::test]
async fn what_an_older_helper_wrote_down_holds_where_nothing_tells_of_which_fleet_it_is() {
    let mut bench = settled().await;
    fs::rename(in_force(&bench), old_in_force(&bench)).unwrap();
    let second = digest(&Body::Fleet(bench.world.next_fleet(&bench.world.fleet())));
    fs::remove_file(bench.path(&format!("data/documents/{}.json", second.hex()))).unwrap();
    move_it(&mut bench);
    bench.start();
    let two = bench.world.papers(2);
    refused(&bench.stage(&bench.world.published(&two), two.id(), &program(2)).await, Why::Held, "was in force here");
    // A person says that the machine has left it.
    bench.kill();
    fs::remove_file(old_in_force(&bench)).unwrap();
    bench.start();
    bench.installed(&two, &program(2)).await;
}

//! What keeps a helper from installing anything new keeps it from nothing else: a version on trial goes back all the same.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use groundswell_agent::helper::wire::{Outcome, Reply, Why};
use tokio::time::{sleep, timeout};

use super::bench::{Bench, PATIENCE, appears, outcome, refused};
use super::world::program;

/// A helper that was ended while the second release was on its only start, the first being confirmed.
async fn ended_in_a_trial(more: &str) -> Bench {
    let mut bench = Bench::prepare("", "trial-starts = 1");
    let wait = "touch HOME/there; until test -e HOME/go; do sleep 0.01; done".replace("HOME", &bench.home());
    bench.append(&format!(
        "[product.bcd.hooks]\ntimeout = \"100s\"\nafter-activate = [\"/bin/sh\", \"-c\", \"{wait}\"]\n{}",
        more.replace("HOME", &bench.home())
    ));
    fs::write(bench.path("go"), "").unwrap();
    bench.start();
    bench.installed(&bench.world.papers(1), &program(1)).await;
    for name in ["go", "there"] {
        let _ = fs::remove_file(bench.path(name));
    }
    let two = bench.world.papers(2);
    let mut client = bench.staged(&two, &program(2)).await;
    let there = bench.path("there");
    tokio::select! {
        _ = client.activate(two.id()) => panic!("the hook was not reached"),
        () = appears(&there) => {}
    }
    bench.kill();
    assert_eq!(bench.current(), Some(program(2)));
    fs::write(bench.path("go"), "").unwrap();
    bench
}

/// Takes the place of what lies at `path`; what lay there is brought back by [`restore`].
fn damage(path: &PathBuf) -> PathBuf {
    let aside = path.with_file_name("aside");
    fs::rename(path, &aside).unwrap();
    fs::write(path, "torn").unwrap();
    aside
}

fn restore(path: &PathBuf, aside: &PathBuf) {
    fs::remove_file(path).unwrap();
    fs::rename(aside, path).unwrap();
}

async fn goes_back_with_damaged(name: &str) {
    let mut bench = ended_in_a_trial("").await;
    let name = name.replace("FLEET", &bench.world.fleet_id().hex().to_string());
    let path = bench.path("data").join(&name);
    let aside = damage(&path);
    bench.start();
    let two = bench.world.papers(2);
    let mut client = bench.client().await;
    let state = client.state().await;
    assert_eq!(state.reverted.map(|taken| taken.release), Some(two.id()), "{name}");
    assert_eq!(bench.current(), Some(program(1)), "{name}");
    // Nothing new, and whoever asks learns the file and the way out.
    let three = bench.world.papers(3);
    let documents = bench.world.published(&three);
    refused(&client.document(&documents[3]).await, Why::Disk, "nothing new is installed");
    let artifact = bench.file("three", &program(3));
    let told = client.stage(three.id(), Some(&artifact)).await;
    refused(&told, Why::Disk, &name);
    refused(&told, Why::Disk, if name == "documents" { "repair the file system" } else { "put back what it said" });
    assert!(bench.path("data").join(&name).is_file(), "what is damaged is not written over");
    // What a person has brought back counts without a new start.
    restore(&path, &aside);
    let opens = async {
        while let Reply::Refused { .. } = client.document(&documents[3]).await {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, opens).await.unwrap_or_else(|_| panic!("{name}: it stays shut"));
    assert_eq!(bench.installed(&three, &program(3)).await.state().await.floor.get(), 3, "{name}");
}

#[tokio::test]
async fn s6_a_trial_goes_back_and_nothing_new_begins_while_the_memory_cannot_be_read() {
    tokio::join!(
        goes_back_with_damaged("documents/floor-of-bcd"),
        goes_back_with_damaged("documents/floor-time"),
        goes_back_with_damaged("documents/fleet-in-force-of-FLEET"),
        goes_back_with_damaged("documents"),
    );
}

#[tokio::test]
async fn s6_a_trial_goes_back_although_the_helper_cannot_open_its_socket() {
    let mut bench = ended_in_a_trial("").await;
    let open = bench.path("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    bench.configure("/helper.sock", "/open/helper.sock");
    let told = bench.refuses_to_start();
    assert!(told.contains("the folder of socket must be changed by nobody else"), "{told}");
    assert_eq!(bench.current(), Some(program(1)));
}

#[tokio::test]
async fn a_socket_that_can_be_opened_after_all_is_opened_while_a_way_back_is_under_way() {
    let until = "touch HOME/leaves; until test -e HOME/left; do sleep 0.01; done";
    let mut bench = ended_in_a_trial(&format!("before-revert = [\"/bin/sh\", \"-c\", \"{until}\"]\n")).await;
    let open = bench.path("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    bench.configure("/helper.sock", "/open/helper.sock");
    let [leaves, left] = ["leaves", "left"].map(|name| bench.path(name));
    let mended = tokio::spawn(async move {
        appears(&leaves).await;
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        let opened = timeout(PATIENCE / 2, appears(&open.join("helper.sock"))).await.is_ok();
        fs::write(left, "").unwrap();
        opened
    });
    let bench = tokio::task::spawn_blocking(move || {
        bench.start();
        bench
    });
    let bench = bench.await.unwrap();
    assert!(mended.await.unwrap(), "while the hook still waits");
    let gone_back = async {
        while bench.current() != Some(program(1)) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, gone_back).await.expect("the way back ends");
}

#[tokio::test]
async fn s6_a_trial_goes_back_although_the_helper_does_not_find_the_agents_account() {
    let mut bench = ended_in_a_trial("").await;
    let (uid, _) = super::bench::own_account();
    bench.configure(&format!("user = \"{uid}\""), "user = \"nobody-of-that-name\"");
    let told = bench.refuses_to_start();
    assert!(told.contains("there is no user `nobody-of-that-name`"), "{told}");
    assert_eq!(bench.current(), Some(program(1)));
}

#[tokio::test]
async fn s6_a_trial_goes_back_although_the_folder_of_another_product_cannot_be_used() {
    let more = "[product.other]\nactivator = { type = \"command\", run = [\"true\"], stop = [\"true\"] }\n";
    let bench = ended_in_a_trial(more).await;
    let other = bench.path("data/products/other");
    fs::remove_dir_all(&other).unwrap();
    fs::write(&other, "").unwrap();
    let told = bench.refuses_to_start();
    assert!(told.contains("product other: cannot use its folder"), "{told}");
    assert_eq!(bench.current(), Some(program(1)));
    fs::remove_file(&other).unwrap();
    let mut bench = bench;
    bench.start();
    let three = bench.world.papers(3);
    assert_eq!(outcome(&bench.stage(&bench.world.published(&three), three.id(), &program(3)).await), &Outcome::Staged);
}

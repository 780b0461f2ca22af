//! What the helper stands on: a configuration or a folder that others can change is refused, and nothing is followed.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use super::bench::{Bench, not_tested, own_account};
use super::world::program;

/// Bends something before the first start; the helper must not start, and say what and how to mend it.
fn does_not_start(bend: impl FnOnce(&mut Bench), says: &[&str]) {
    let mut bench = Bench::prepare("", "");
    bend(&mut bench);
    let told = bench.refuses_to_start();
    for says in says {
        assert!(told.contains(says), "`{told}` does not say `{says}`");
    }
    assert!(!bench.path("helper.sock").exists());
}

#[test]
fn a_configuration_that_others_can_write() {
    let bend = |bench: &mut Bench| fs::set_permissions(bench.path("helper.toml"), Permissions::from_mode(0o666)).unwrap();
    does_not_start(bend, &["helper.toml", "written by others", "chmod go-w"]);
}

#[test]
fn a_configuration_in_a_folder_that_others_can_write() {
    does_not_start(
        |bench| fs::set_permissions(bench.path(""), Permissions::from_mode(0o777)).unwrap(),
        &["written by others", "chmod go-w"],
    );
}

#[test]
fn a_configuration_that_is_a_symlink() {
    let bend = |bench: &mut Bench| {
        fs::rename(bench.path("helper.toml"), bench.path("real.toml")).unwrap();
        symlink("real.toml", bench.path("helper.toml")).unwrap();
    };
    does_not_start(bend, &["helper.toml", "not a regular file"]);
}

#[test]
fn a_configuration_that_belongs_to_the_agent() {
    if own_account().0 != 0 {
        not_tested("only root can give files away");
        return;
    }
    let bend = |bench: &mut Bench| chown(bench.path("helper.toml"), Some(65_534), None).unwrap();
    does_not_start(bend, &["belongs to user 65534"]);
}

#[test]
fn a_data_folder_that_is_a_symlink() {
    let bend = |bench: &mut Bench| {
        fs::create_dir(bench.path("elsewhere")).unwrap();
        symlink("elsewhere", bench.path("data")).unwrap();
    };
    does_not_start(bend, &["data-dir", "name the real path"]);
}

#[test]
fn a_data_folder_below_a_symlink() {
    let bend = |bench: &mut Bench| {
        fs::create_dir(bench.path("elsewhere")).unwrap();
        symlink("elsewhere", bench.path("way")).unwrap();
        let home = bench.home();
        bench.configure(&format!("data-dir = \"{home}/data\""), &format!("data-dir = \"{home}/way/data\""));
    };
    does_not_start(bend, &["data-dir", "name the real path"]);
}

#[test]
fn a_data_folder_that_leads_back_up() {
    let bend = |bench: &mut Bench| {
        let home = bench.home();
        bench.configure(&format!("data-dir = \"{home}/data\""), &format!("data-dir = \"{home}/data/../data\""));
    };
    does_not_start(bend, &["without `..`"]);
}

#[test]
fn a_data_folder_that_others_can_write() {
    let bend = |bench: &mut Bench| {
        fs::create_dir(bench.path("data")).unwrap();
        fs::set_permissions(bench.path("data"), Permissions::from_mode(0o777)).unwrap();
    };
    does_not_start(bend, &["data-dir", "written by others"]);
}

#[test]
fn a_data_folder_that_belongs_to_the_agent() {
    if own_account().0 != 0 {
        not_tested("only root can give files away");
        return;
    }
    let bend = |bench: &mut Bench| {
        fs::create_dir(bench.path("data")).unwrap();
        chown(bench.path("data"), Some(65_534), Some(65_534)).unwrap();
    };
    does_not_start(bend, &["data-dir", "belongs to user 65534"]);
}

/// Puts the socket into a folder of its own, which is bent.
fn does_not_start_with_a_socket_in(bend: impl FnOnce(&std::path::Path), says: &[&str]) {
    let moved = |bench: &mut Bench| {
        let home = bench.home();
        fs::create_dir(bench.path("run")).unwrap();
        bench.configure(&format!("socket = \"{home}/helper.sock\""), &format!("socket = \"{home}/run/helper.sock\""));
        bend(&bench.path("run"));
    };
    let mut bench = Bench::prepare("", "");
    moved(&mut bench);
    let told = bench.refuses_to_start();
    for says in says.iter().chain(&["the folder of socket"]) {
        assert!(told.contains(says), "`{told}` does not say `{says}`");
    }
    assert_eq!(fs::read_dir(bench.path("run")).unwrap().count(), 0, "nothing was made there");
}

#[test]
fn a_folder_of_the_socket_that_others_can_write() {
    for mode in [0o777, 0o775, 0o1777] {
        let bend = |folder: &std::path::Path| fs::set_permissions(folder, Permissions::from_mode(mode)).unwrap();
        does_not_start_with_a_socket_in(bend, &["written by others", "chmod go-w"]);
    }
}

#[test]
fn a_folder_of_the_socket_that_belongs_to_the_agent() {
    if own_account().0 != 0 {
        not_tested("only root can give files away");
        return;
    }
    let bend = |folder: &std::path::Path| chown(folder, Some(65_534), Some(65_534)).unwrap();
    does_not_start_with_a_socket_in(bend, &["belongs to user 65534"]);
}

#[test]
fn a_folder_of_the_socket_that_is_a_symlink() {
    let bend = |folder: &std::path::Path| {
        fs::rename(folder, folder.with_extension("real")).unwrap();
        symlink(folder.with_extension("real"), folder).unwrap();
    };
    does_not_start_with_a_socket_in(bend, &["name the real path"]);
}

#[test]
fn a_slots_folder_that_leads_elsewhere() {
    let bend = |bench: &mut Bench| {
        fs::create_dir_all(bench.path("data/products/bcd")).unwrap();
        fs::create_dir(bench.path("elsewhere")).unwrap();
        symlink(bench.path("elsewhere"), bench.path("data/products/bcd/slots")).unwrap();
    };
    let mut bench = Bench::prepare("", "");
    bend(&mut bench);
    // Whether it starts or not: nothing is ever written through the symlink.
    let runs = bench.command().arg("--check").status().unwrap().success();
    assert!(runs);
    bench.start();
    let papers = bench.world.papers(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reply = runtime.block_on(bench.stage(&bench.world.published(&papers), papers.id(), &program(1)));
    let failed = matches!(
        &reply,
        groundswell_agent::helper::wire::Reply::Done {
            outcome: groundswell_agent::helper::wire::Outcome::StageFailed { .. },
            ..
        }
    );
    assert!(failed, "{reply:?}");
    assert_eq!(fs::read_dir(bench.path("elsewhere")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_symlink_in_the_place_of_the_file_that_is_written() {
    let bench = Bench::running();
    let slot = bench.path("data/products/bcd/slots/a");
    fs::create_dir_all(&slot).unwrap();
    fs::write(bench.path("victim"), "untouched").unwrap();
    for name in [".incoming", "bcd", "slot.json", ".slot.json.new"] {
        symlink(bench.path("victim"), slot.join(name)).unwrap();
    }
    let papers = bench.world.papers(1);
    bench.installed(&papers, &program(1)).await;
    assert_eq!(fs::read_to_string(bench.path("victim")).unwrap(), "untouched");
    assert_eq!(bench.current(), Some(program(1)));
}

#[test]
fn something_else_in_the_place_of_the_socket() {
    let bench = Bench::prepare("", "");
    fs::write(bench.path("helper.sock"), "").unwrap();
    let told = bench.refuses_to_start();
    assert!(told.contains("is in the way and is not a socket"), "{told}");
}

#[test]
fn a_second_helper_on_the_same_folder() {
    let bench = Bench::running();
    let told = bench.refuses_to_start();
    assert!(told.contains("another helper may be running"), "{told}");
}

#[test]
fn what_is_wrong_in_the_file_is_told_with_file_field_and_way_out() {
    let told = |top: &str, of_product: &str| {
        let bench = Bench::prepare(top, of_product);
        bench.refuses_to_start()
    };
    let supervise = {
        let mut bench = Bench::prepare("", "");
        let home = bench.home();
        let from = format!(
            "activator = {{ type = \"command\", run = [\"/bin/sh\", \"-c\", \"{{binary}} >> {home}/started\"], stop = [\"/bin/sh\", \"-c\", \"echo stop >> {home}/started\"] }}"
        );
        bench.configure(&from, "activator = { type = \"supervise\" }");
        bench.refuses_to_start()
    };
    assert!(
        supervise.contains("helper.toml: product.bcd.activator.type: ") && supervise.contains("use \"systemd\""),
        "{supervise}"
    );
    let unknown = told("sockets = \"x\"", "");
    assert!(unknown.contains("unknown key `sockets`; did you mean `socket`?"), "{unknown}");
    let starts = told("", "trial-starts = 99");
    assert!(starts.contains("product.bcd.trial-starts: must lie between 1 and 16"), "{starts}");
    let health = told("", "health = { type = \"process\" }");
    assert!(health.contains("unknown key `health`"), "{health}");
}

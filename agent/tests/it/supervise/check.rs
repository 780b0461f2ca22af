//! What a check says a supervisor would do, and that it does nothing.

use std::fs;
use std::path::Path;

use groundswell_agent::supervise::check::{Check, check};
use groundswell_agent::supervise::settings::Settings;
use groundswell_core::install::Slot;
use groundswell_core::install::supervision::{Boots, Build, Named};

use super::faults::confirmed;
use super::machine::{Machine, PRODUCT, trial_of};

/// A machine with a configuration that an agent can read, but for a key of years to come.
fn ready(machine: Machine) -> Machine {
    let path = machine.folder.path().join("agent.toml");
    let text = fs::read_to_string(&path).unwrap();
    let fleet = format!("fleet = \"sha256/{}\"\nkey-file = \"node.key\"\n", "0".repeat(64));
    fs::write(path, format!("{fleet}{text}")).unwrap();
    machine
}

fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        found.push(path.display().to_string());
        if path.is_dir() {
            found.extend(files(&path));
        }
    }
    found.sort();
    found
}

fn checked(machine: &Machine) -> Check {
    let before = files(machine.folder.path());
    let found = check(&Settings::load(&machine.folder.path().join("agent.toml")).unwrap());
    assert_eq!(files(machine.folder.path()), before, "a check leaves nothing behind");
    found
}

fn says(lines: &[String], what: &str) {
    assert!(lines.iter().any(|line| line.contains(what)), "`{what}` is not in {lines:#?}");
}

#[test]
fn a_check_of_a_machine_that_is_well_finds_nothing_wrong() {
    let machine = ready(confirmed(""));
    let Check { build, why, says: lines, wrong } = checked(&machine);
    assert!(matches!(build, Build::Confirmed(Named { slot: Slot::A, .. })), "{build}");
    assert_eq!((why.as_str(), wrong), ("confirmed.json names it", Vec::new()));
    says(&lines, "confirmed.json: slot a");
    says(&lines, "a-key-of-years-to-come");
    says(&lines, "no agent of a supervisor runs");

    let fresh = ready(Machine::new(""));
    fs::remove_dir_all(fresh.data()).unwrap();
    let Check { build, why, wrong, .. } = checked(&fresh);
    assert_eq!((build, why.as_str(), wrong), (Build::Own, "no confirmed build is known", Vec::new()));
}

#[test]
fn a_check_names_each_thing_that_is_wrong() {
    let machine = ready(confirmed(""));
    let binary = machine.data().join("products").join(PRODUCT).join("slots/a").join(PRODUCT);
    fs::write(&binary, "damaged").unwrap();
    fs::create_dir_all(machine.data().join("supervise/lock")).unwrap();
    fs::write(machine.data().join("supervise/boots.json"), "torn").unwrap();
    let Check { build, why, says: lines, wrong } = checked(&machine);
    assert_eq!((build, why.as_str()), (Build::Own, "no confirmed build can be run"));
    says(&lines, "boots.json: cannot be read");
    for what in ["the confirmed build in slot a cannot be started", "lock: is not a regular file"] {
        says(&wrong, what);
    }
    fs::remove_dir_all(machine.data()).unwrap();
    fs::write(machine.data(), "no folder").unwrap();
    let Check { build, wrong, .. } = checked(&machine);
    assert_eq!(build, Build::Own);
    assert!(!wrong.is_empty());
}

#[test]
fn a_check_names_each_thing_that_is_wrong_with_the_configuration() {
    let machine = ready(confirmed(
        "[turst]\nrollout = 2\n[log]\nformat = \"loud\"\ncolour = \"red\"\n[limits]\nuploads = 0\nblobs = \"much\"\n",
    ));
    let Check { build, says: lines, wrong, .. } = checked(&machine);
    assert!(matches!(build, Build::Confirmed(_)), "{build}");
    for what in ["log.format", "limits.uploads", "limits.blobs"] {
        says(&wrong, what);
    }
    assert_eq!(wrong.len(), 3, "{wrong:#?}");
    for what in ["unknown key `turst`", "unknown key `log.colour`", "unknown key `a-key-of-years-to-come`"] {
        says(&lines, what);
    }

    let machine = ready(confirmed("[turst]\nrollout = 2\n"));
    let Check { says: lines, wrong, .. } = checked(&machine);
    assert_eq!(wrong, Vec::<String>::new());
    says(&lines, &format!("{PRODUCT} is only observed"));
}

#[test]
fn a_check_names_each_file_and_each_build_that_is_wrong() {
    let machine = ready(confirmed(""));
    let mark = trial_of(machine.fill(Slot::B, "fine"));
    machine.marks().write_trial(&mark).unwrap();
    let binary = machine.data().join("products").join(PRODUCT).join("slots/a").join(PRODUCT);
    fs::write(&binary, "damaged").unwrap();
    fs::write(machine.data().join("supervise/remembered.json"), "torn").unwrap();
    let Check { build, wrong, .. } = checked(&machine);
    assert!(matches!(build, Build::Trial { .. }), "{build}");
    says(&wrong, "slots/a");
    says(&wrong, "remembered.json cannot be read");
    assert_eq!(wrong.len(), 2, "{wrong:#?}");
}

#[test]
fn a_check_tells_of_a_trial_and_of_the_agent_that_runs() {
    let mut machine = ready(confirmed(""));
    let mark = trial_of(machine.fill(Slot::B, "fine"));
    machine.marks().write_trial(&mark).unwrap();
    machine.marks().write_boots(&Boots { trial: "1.1".to_owned(), boots: 1, stops: 0, given_up: None }).unwrap();
    let found = checked(&machine);
    assert!(matches!(found.build, Build::Trial { boots: 2, .. }), "{found:?}");
    machine.marks().write_boots(&Boots { trial: "1.1".to_owned(), boots: 3, stops: 0, given_up: None }).unwrap();
    let found = checked(&machine);
    assert!(matches!(found.build, Build::Confirmed(_)), "{found:?}");
    says(&found.wrong, "started 3 times without being confirmed");
    machine.start();
    machine.sees("the confirmed build is up", |noted| noted.ends_with("up\n"));
    // Its supervisor writes that down once it was started.
    let settings = Settings::load(&machine.folder.path().join("agent.toml")).unwrap();
    let runs = |_: &str| check(&settings).says.iter().any(|line| line.starts_with("an agent runs as process"));
    machine.sees("the check finds the agent", runs);
}

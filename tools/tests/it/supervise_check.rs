//! `swell supervise --check`, as a person types it.

use std::fs;
use std::process::{Command, Output};

fn check(folder: &std::path::Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_swell"));
    command.args(["supervise", "--check", "--config"]).arg(folder.join("agent.toml"));
    command.output().unwrap()
}

#[test]
fn a_check_says_what_would_be_started_and_ends_with_1_when_anything_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("data-dir = \"data\"\nfleet = \"sha256/{}\"\nkey-file = \"node.key\"\n", "0".repeat(64));
    fs::write(folder.path().join("agent.toml"), &config).unwrap();
    let output = check(folder.path());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.starts_with("would start the supervisor's own build: no confirmed build is known\n"), "{said}");

    fs::write(folder.path().join("data"), "no folder").unwrap();
    let output = check(folder.path());
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("\nwrong: "), "{said}");

    fs::write(folder.path().join("agent.toml"), "no configuration").unwrap();
    assert_eq!(check(folder.path()).status.code(), Some(2));
}

//! The proofs that `groundswell-testnet` runs: what people and scripts go by is its exit code.

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};

/// Runs the testnet's own binary as one that no cargo started: the proofs lie beside it, built with the workspace's tests.
fn testnet(arguments: &[&str], (variable, value): (&str, &OsStr)) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_groundswell-testnet"));
    command.args(arguments).env_remove("CARGO").env(variable, value).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

#[test]
fn the_crash_matrix_fails_when_a_cell_does() {
    for (syncs, code) in [("honest", 0), ("no-files", 1), ("no-folders", 1)] {
        let upgrade = ("GROUNDSWELL_CRASH_MATRIX_UPGRADE", OsStr::new(syncs));
        let (ended, said) = testnet(&["crash-matrix", "--once"], upgrade);
        assert_eq!(ended, Some(code), "{syncs}: {said}");
        assert_eq!(said.contains("FAILED"), code == 1, "{syncs}: {said}");
    }
}

#[test]
fn the_proof_of_full_disks_fails_where_nobody_may_mount() {
    let folder = tempfile::tempdir().expect("a folder");
    // Neither `mount` nor `unshare` is found.
    let (ended, said) = testnet(&["full-disk"], ("PATH", folder.path().as_os_str()));
    assert_eq!(ended, Some(1), "{said}");
    assert!(said.contains("needs the right to mount"), "{said}");
}

//! What is hashed is what is started.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use groundswell_agent::install::forks;
use groundswell_agent::supervise::program::Program;
use groundswell_core::digest::Digest;
use sha2::Digest as _;

use super::machine::Machine;

fn checked(path: &Path) -> std::io::Result<Program> {
    let bytes = fs::read(path).unwrap();
    Program::checked(path, bytes.len() as u64, Digest(sha2::Sha256::digest(&bytes).into()))
}

fn output(mut command: Command) -> String {
    forks::wait();
    let output = forks::starting(|| command.output()).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn s3_a_file_that_takes_the_name_of_a_checked_one_is_not_what_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("build"), folder.path().join("other"));
    let script = |path: &Path, says: &str| {
        fs::write(path, format!("#!/bin/sh\necho {says} $1\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    script(&path, "signed");
    script(&other, "other");
    {
        let program = checked(&path).unwrap();
        fs::rename(&other, &path).unwrap();
        let mut command = program.command().unwrap();
        command.arg("agent");
        assert_eq!(output(command), "signed agent\n");
    }

    // A binary too; it is known by its name in the slot.
    fs::copy("/bin/sh", &path).unwrap();
    let program = checked(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "no program").unwrap();
    let mut command = program.command().unwrap();
    command.args(["-c", "echo $0 $1; ls -l /proc/$$/fd", "first", "second"]);
    let said = output(command);
    assert!(said.starts_with("first second\n"), "{said}");
    assert!(!said.contains("/build"), "the binary is not left open: {said}");
}

#[test]
fn a_file_that_is_not_what_is_named_is_never_opened_to_be_started() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("build");
    fs::write(&path, "bytes").unwrap();
    let size = |program: std::io::Result<Program>| program.map(|_| ()).unwrap_err().kind();
    assert_eq!(size(Program::checked(&path, 4, Digest::of(b"bytes"))), std::io::ErrorKind::InvalidData);
    assert_eq!(size(Program::checked(&path, 5, Digest::of(b"other"))), std::io::ErrorKind::InvalidData);
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    assert_eq!(size(Program::checked(&link, 5, Digest::of(b"bytes"))), std::io::ErrorKind::InvalidData);
    assert_eq!(size(Program::checked(&folder.path().join("none"), 5, Digest::of(b"bytes"))), std::io::ErrorKind::NotFound);
}

#[test]
fn the_supervisors_own_build_can_be_started_after_its_file_was_removed() {
    let gone = Program::own(Path::new("/nowhere/swell")).command().unwrap();
    assert_eq!(gone.get_program(), "/proc/self/exe");
    let there = Program::own(Path::new("/bin/sh")).command().unwrap();
    assert_eq!(there.get_program(), "/bin/sh");
}

#[test]
fn an_agent_from_a_slot_is_listed_by_its_name() {
    let machine = Machine::confirmed("");
    let name = fs::read_to_string(format!("/proc/{}/comm", machine.agent().as_raw_nonzero())).unwrap();
    assert_eq!(name, "swell\n");
}

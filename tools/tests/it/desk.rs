//! An operator's desk in a temporary folder: runs the binary there and looks at what it wrote.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A folder in which commands run.
pub(crate) struct Desk {
    folder: TempDir,
}

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// A desk with a fleet in `fleet`, keys in `keys`, product `bcd`.
    pub(crate) fn with_fleet(extra: &[&str]) -> Self {
        let desk = Self::new();
        desk.done(&[&["fleet", "init", "fleet", "--keys", "keys", "--product", "bcd"], extra].concat());
        desk
    }

    /// Admits nodes of the given names and pools.
    pub(crate) fn admit(&self, nodes: &[(&str, &str)]) {
        let mut requests = Vec::new();
        for (name, pool) in nodes {
            let dir = format!("nodes/{name}");
            self.done(&["node", "init", "--dir", &dir, "--name", name, "--pool", pool, "--platform", "linux-amd64"]);
            requests.push(format!("{dir}/{name}.req"));
        }
        let mut line = vec!["node", "admit", "fleet", "--key", "keys/enroll.pem"];
        line.extend(requests.iter().map(String::as_str));
        self.done(&line);
    }

    /// Signs release `version` of `bcd` with one small binary, and keeps it in the fleet folder.
    pub(crate) fn release(&self, version: &str, sequence: &str) {
        let dir = format!("out/{version}");
        self.write(&format!("{dir}/linux-amd64"), &format!("#!/bin/sh\necho {version}\n"));
        let line = ["release", "sign", &dir, "--product", "bcd", "--version", version, "--sequence", sequence];
        self.done(&[&line[..], &["--key", "keys/release.pem", "--fleet", "fleet"]].concat());
    }

    pub(crate) fn run(&self, line: &[&str]) -> Ended {
        let Output { status, stdout, stderr } =
            Command::new(env!("CARGO_BIN_EXE_swell")).args(line).current_dir(self.folder.path()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ended { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
    }

    /// Runs a command that must succeed, and gives what it printed.
    pub(crate) fn done(&self, line: &[&str]) -> String {
        let ended = self.run(line);
        assert_eq!(ended.code, 0, "{line:?}: {}{}", ended.out, ended.err);
        ended.out
    }

    /// Runs a command that must succeed with `--json`, and gives what it printed.
    pub(crate) fn json(&self, line: &[&str]) -> Value {
        serde_json::from_str(&self.done(&[line, &["--json"]].concat())).unwrap()
    }

    /// Runs a command that must fail with `code`, and gives its error.
    pub(crate) fn fails(&self, code: i32, line: &[&str]) -> String {
        let ended = self.run(line);
        assert_eq!(ended.code, code, "{line:?}: {}{}", ended.out, ended.err);
        ended.err
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Names of the files in a folder, in order; none when it does not exist.
    pub(crate) fn files(&self, name: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(name)) else { return Vec::new() };
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

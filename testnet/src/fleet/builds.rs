//! Builds of the agent itself: good ones, and ones that are broken in ways that real builds are.
//!
//! A build is a small program that becomes the real `swell`, or this crate's own, which has the faults: no fault is in
//! `swell`. Each build has other bytes, so each is a release of its own.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// How a build behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Build {
    /// As it should.
    Good,
    /// It panics at its start.
    Panics,
    /// It hangs at its start.
    Hangs,
    /// It runs and answers, and reaches no peer: it is in a network that leads nowhere.
    Lonely,
    /// Good in its day: once [`OUTDATED`] lies beside its configuration it shares no protocol with the mesh any more.
    #[value(skip)]
    Outdated,
}

/// The name of the file by which a node's [`Build::Outdated`] is outdated.
pub const OUTDATED: &str = "outdated";

impl Build {
    /// Its word on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Panics => "panics",
            Self::Hangs => "hangs",
            Self::Lonely => "lonely",
            Self::Outdated => "outdated",
        }
    }
}

/// Writes a build to `path`. `swell` is the real one, `program` the binary of this crate.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, version: &str, build: Build, swell: &Path, program: &Path) -> io::Result<()> {
    let becomes = match build {
        Build::Good => format!("exec '{}' \"$@\"", swell.display()),
        // Its third argument is the configuration's file. What the mesh speaks by then is another protocol; nothing in a
        // build says that it is too old.
        Build::Outdated => {
            format!("[ -e \"${{3%/*}}/{OUTDATED}\" ] && exec '{0}' \"$@\" --outdated\nexec '{0}' \"$@\"", swell.display())
        }
        // A backtrace would push the message out of the last lines that a verdict carries.
        build => format!(
            "export RUST_BACKTRACE=0\nexec '{}' broken-agent {} '{}' -- \"$@\"",
            program.display(),
            build.name(),
            swell.display()
        ),
    };
    let text = format!("#!/bin/sh\n# The agent, version {version}.\n{becomes}\n");
    let mut file = std::fs::File::options().write(true).create(true).truncate(true).mode(0o755).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Is a broken build, started with these arguments: `agent --config FILE`. Returns only when that fails.
///
/// # Panics
/// [`Build::Panics`] does.
#[must_use]
pub fn become_broken(build: Build, swell: &Path, arguments: &[String]) -> io::Error {
    match build {
        Build::Panics => panic!("this build of the agent cannot read its own configuration"),
        Build::Hangs => loop {
            std::thread::park();
        },
        Build::Lonely => match alone() {
            Some(alone) => Command::new("unshare").args(alone).arg("--").arg(swell).args(arguments).exec(),
            None => io::Error::other("this machine gives no network of its own"),
        },
        Build::Good | Build::Outdated => Command::new(swell).args(arguments).exec(),
    }
}

/// How a process gets a network of its own that leads nowhere; `None` where this machine does not let it.
#[must_use]
pub fn alone() -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];
    let works = |way: &&[&str]| {
        let mut command = Command::new("unshare");
        command.args(*way).args(["--", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    ways.into_iter().find(works)
}

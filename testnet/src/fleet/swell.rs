//! The real `swell` binary: where it is, and running it as an operator would.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::error::FleetError;

/// Longest that one command of an operator takes; publishing waits for peers.
const LONGEST: Duration = Duration::from_secs(240);

/// The binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swell {
    path: PathBuf,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

impl Swell {
    /// The binary named by SWELL in the environment, else the one beside `program` (or one folder up, for tests).
    ///
    /// # Errors
    /// When it is not there.
    pub fn find(program: &Path) -> Result<Self, FleetError> {
        if let Some(path) = std::env::var_os("SWELL") {
            return Self::at(PathBuf::from(path));
        }
        let folder = program.parent().unwrap_or_else(|| Path::new("."));
        let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
        Self::at(folder.join("swell"))
    }

    fn at(path: PathBuf) -> Result<Self, FleetError> {
        if path.is_file() { Ok(Self { path }) } else { Err(FleetError::NoSwell(path)) }
    }

    /// The same, built first where a cargo started this process and the binary is missing or older than its sources.
    /// With SWELL in the environment nothing is built. Blocks.
    ///
    /// # Errors
    /// When the build fails.
    pub fn find_or_build(program: &Path) -> Result<Self, FleetError> {
        let found = Self::find(program);
        let Some(cargo) = std::env::var_os("CARGO").filter(|_| std::env::var_os("SWELL").is_none()) else { return found };
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new("."));
        if found.as_ref().is_ok_and(|swell| !is_stale(&swell.path, workspace)) {
            return found;
        }
        // target/release/program, or target/debug/deps/program.
        let profile = program.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
        let (Some(profile), Some(target)) = (profile, profile.and_then(Path::parent)) else { return found };
        let mut command = std::process::Command::new(cargo);
        command.args(["build", "-p", "swell", "--manifest-path"]).arg(workspace.join("Cargo.toml"));
        command.arg("--target-dir").arg(target);
        if profile.ends_with("release") {
            command.arg("--release");
        }
        let status = command.status().map_err(FleetError::io("cannot run cargo"))?;
        if !status.success() {
            let arguments = "cargo build -p swell".to_owned();
            return Err(FleetError::Swell { arguments, code: status.code(), stderr: "see above".to_owned() });
        }
        Self::find(program)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs it, whatever comes of it.
    ///
    /// # Errors
    /// When it cannot be run, or takes longer than four minutes.
    pub async fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<Ran, FleetError> {
        let arguments: Vec<OsString> = arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        let mut command = tokio::process::Command::new(&self.path);
        command.args(&arguments).stdin(Stdio::null()).kill_on_drop(true);
        let what = format!("cannot run {} {}", self.path.display(), said(&arguments));
        let Ok(ended) = tokio::time::timeout(LONGEST, command.output()).await else {
            return Err(FleetError::Late { what: said(&arguments), within: LONGEST, seen: "it still runs".to_owned() });
        };
        let output = ended.map_err(FleetError::io(what))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Ran { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) })
    }

    /// Runs it and takes what it prints.
    ///
    /// # Errors
    /// When it does not end with 0.
    pub async fn text<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<String, FleetError> {
        let arguments: Vec<OsString> = arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        let ran = self.run(&arguments).await?;
        if ran.code == Some(0) {
            return Ok(ran.stdout);
        }
        let stderr = ran.stderr.trim_end().to_owned();
        Err(FleetError::Swell { arguments: said(&arguments), code: ran.code, stderr })
    }

    /// Runs it with `--json` and reads what it prints.
    ///
    /// # Errors
    /// When it does not end with 0, or prints something else.
    pub async fn json<T: DeserializeOwned, A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<T, FleetError> {
        let mut arguments: Vec<OsString> = arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        arguments.push("--json".into());
        let text = self.text(&arguments).await?;
        serde_json::from_str(&text)
            .map_err(|error| FleetError::Answer { arguments: said(&arguments), detail: format!("{error}: {text}") })
    }
}

/// Whether any source of `swell` is newer than the binary.
fn is_stale(binary: &Path, workspace: &Path) -> bool {
    let Ok(built) = binary.metadata().and_then(|metadata| metadata.modified()) else { return true };
    let mut folders: Vec<PathBuf> = ["mesh/core", "mesh/net", "agent", "tools"].iter().map(|part| workspace.join(part)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("tests") {
                folders.push(path);
            } else if entry.metadata().and_then(|metadata| metadata.modified()).is_ok_and(|changed| changed > built) {
                return true;
            }
        }
    }
    false
}

fn said(arguments: &[OsString]) -> String {
    arguments.iter().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

//! Members that spoil a swarm in the lab: processes of the example `hostile_peer`, each in the place of an agent.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::fleet::agent::Agent;
use crate::fleet::error::FleetError;

/// How long it may take until it is connected to everybody.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How one spoils a swarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// One piece of ten that it sends is wrong.
    Lie,
    /// It takes pieces, promises pieces, and sends none.
    Stall,
}

/// One of them. It ends when it is dropped.
#[derive(Debug)]
pub struct Hostile {
    name: String,
    _running: Child,
    stdin: ChildStdin,
}

impl Hostile {
    /// Starts it with the key, the certificate and the host of `agent`, whose own program does not run. Returns once it is
    /// connected to `peers`. It begins to fetch `artifact` at [`Hostile::go`].
    ///
    /// # Errors
    /// When the example is not there, or does not connect.
    pub async fn start(
        program: &Path,
        agent: &Agent,
        manner: Manner,
        artifact: &Path,
        peers: &[String],
    ) -> Result<Self, FleetError> {
        let config = std::fs::read_to_string(agent.config_file()).map_err(FleetError::io("cannot read a configuration"))?;
        let config: toml::Table = config.parse().map_err(|_| super::refused("a configuration is no TOML".to_owned()))?;
        let text = |key: &str| config.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned();
        let listen = config.get("listen").and_then(|listen| listen.get(0)?.as_str()).unwrap_or_default();
        let [ip, arguments @ ..] = agent.host().map_or(["env", "--", "env", "--"], crate::lab::Host::enter);
        let mut command = Command::new(ip);
        // Leashed as agents are: it becomes the program, so the leash holds.
        command.args(arguments).arg(program).arg("leash").arg(std::process::id().to_string()).arg("--");
        command.arg(find_or_build(program)?);
        command.args(["--manner", if manner == Manner::Lie { "lie" } else { "stall" }]);
        command.arg("--key").arg(agent.folder().join(text("key-file"))).args(["--certificate", &text("certificate-file")]);
        command.args(["--fleet", &text("fleet"), "--listen", listen, "--artifact"]).arg(artifact).args(peers);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut running = command.spawn().map_err(FleetError::io("cannot start a hostile peer"))?;
        let ends = || super::refused("a hostile peer has no standard streams".to_owned());
        let (stdin, stdout) = (running.stdin.take().ok_or_else(ends)?, running.stdout.take().ok_or_else(ends)?);
        let mut line = String::new();
        let read = tokio::time::timeout(READY_WITHIN, BufReader::new(stdout).read_line(&mut line)).await;
        if line.trim() != "ready" {
            let seen = format!("it said `{}` ({read:?})", line.trim());
            return Err(FleetError::Late { what: "a hostile peer is connected".to_owned(), within: READY_WITHIN, seen });
        }
        Ok(Self { name: agent.name().to_owned(), _running: running, stdin })
    }

    /// It begins.
    ///
    /// # Errors
    /// When it has ended.
    pub async fn go(&mut self) -> Result<(), FleetError> {
        self.stdin.write_all(b"go\n").await.map_err(FleetError::io(format!("the hostile peer {} has ended", self.name)))
    }
}

/// The example beside `program`, built first where a cargo started this process. Blocks.
fn find_or_build(program: &Path) -> Result<PathBuf, FleetError> {
    let profile = program.parent().unwrap_or_else(|| Path::new("."));
    let found = profile.join("examples").join("hostile_peer");
    if let (Some(cargo), Some(target)) = (std::env::var_os("CARGO"), profile.parent()) {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new("."));
        let mut command = std::process::Command::new(cargo);
        command.args(["build", "--workspace", "--example", "hostile_peer", "--manifest-path"]).arg(workspace.join("Cargo.toml"));
        command.arg("--target-dir").arg(target).args(profile.ends_with("release").then_some("--release"));
        // What it says is seen; whether it is there is looked at below.
        let _ = command.status().map_err(FleetError::io("cannot run cargo"))?;
    }
    let missing = format!("{} is missing: cargo build --workspace --example hostile_peer", found.display());
    found.is_file().then_some(found).ok_or_else(|| super::refused(missing))
}

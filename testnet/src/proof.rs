//! Proofs that need the agent's own code, which this crate does not link: programs among the agent's examples, run here.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Runs a proof to its end; its exit code is this program's.
///
/// Where a cargo started this process it is built first; otherwise it must lie beside this program, in `examples`.
pub(crate) fn run(name: &str, arguments: &[&str]) -> ExitCode {
    let ended = |program| Command::new(program).args(arguments).status().map_err(|error| error.to_string());
    match find_or_build(name).and_then(ended) {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            eprintln!("{name}: {status}");
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("cannot run {name}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn find_or_build(name: &str) -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let profile = this.parent().unwrap_or_else(|| Path::new("."));
    let program = profile.join("examples").join(name);
    if let (Some(cargo), Some(target)) = (std::env::var_os("CARGO"), profile.parent()) {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new("."));
        let mut command = Command::new(cargo);
        command.args(["build", "-p", "groundswell-agent", "--example", name, "--manifest-path"]);
        command.arg(workspace.join("Cargo.toml")).arg("--target-dir").arg(target);
        if profile.ends_with("release") {
            command.arg("--release");
        }
        let status = command.status().map_err(|error| format!("cannot run cargo: {error}"))?;
        if !status.success() {
            return Err("it cannot be built, see above".to_owned());
        }
    }
    if program.is_file() {
        return Ok(program);
    }
    Err(format!("{} is missing: cargo build --release -p groundswell-agent --example {name}", program.display()))
}

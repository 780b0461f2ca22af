//! `swell supervise`: runs this machine's agent as its child, and brings the last confirmed build of it back when a new one
//! fails.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use groundswell_agent::config::Config;
use groundswell_agent::config::ground::check_ground;
use groundswell_agent::supervise::check::{Check, check};
use groundswell_agent::supervise::keeper;
use groundswell_agent::supervise::lines::Lines;
use groundswell_agent::supervise::notify::{Notifier, SOCKET};
use groundswell_agent::supervise::settings::Settings;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use super::agent::begin_log_to;
use crate::failure::Failure;

/// Output of a build on trial is written on by threads of their own; the checks of files run there too.
const BLOCKING_THREADS: usize = 4;
/// The last lines of the log are waited for so long.
const LAST_LINES: Duration = Duration::from_secs(1);

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct SuperviseArgs {
    /// The agent's configuration file, of which only `data-dir`, `log.format`, `supervise` and the name of the product that
    /// is the agent itself are read.
    #[arg(long, value_name = "FILE", default_value = "/etc/groundswell/agent.toml")]
    config: PathBuf,
    /// Say which build would be started now and why, and what is wrong, instead of running: exit code 0 when nothing is, 1
    /// otherwise.
    #[arg(long)]
    check: bool,
}

/// Does it; the exit code is the agent's.
pub(crate) fn run(args: &SuperviseArgs) -> Result<ExitCode, Failure> {
    let invalid = |error| Failure::invalid_by("the supervisor does not start", error);
    let settings = Settings::load(&args.config).map_err(|error| {
        if args.check {
            tell_all(&args.config);
        }
        invalid(error)
    })?;
    if args.check {
        return Ok(told(&check(&settings)));
    }
    // A log that nobody reads holds up no supervisor; and want of a thread for it keeps none from starting.
    let lines = Lines::to(std::io::stderr()).ok();
    let writer =
        lines.clone().map_or_else(|| BoxMakeWriter::new(std::io::stderr), |lines| BoxMakeWriter::new(move || lines.clone()));
    begin_log_to(writer, settings.log_format, EnvFilter::new("info"))?;
    // Never a reason not to run: this process may be all that brings a machine back that nobody can visit.
    if let Err(error) = check_ground(&settings.config) {
        tracing::error!("others may say what this supervisor runs with all rights: {error}");
    }
    let own = std::env::current_exe().map_err(|source| Failure::failed("cannot find this program", source))?;
    let service = match std::env::var(SOCKET).map(|name| Notifier::connect(&name)) {
        Ok(Ok(service)) => Some(service),
        Ok(Err(error)) => {
            tracing::warn!(%error, "whoever started this supervisor does not listen");
            None
        }
        Err(_) => None,
    };
    // One thread: the agent is asked to end when the thread that started it does.
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(BLOCKING_THREADS).enable_all().build();
    let runtime = runtime.map_err(|source| Failure::failed("cannot start", source))?;
    let ended = runtime.block_on(keeper::run(&settings, &own, service));
    // A reader of this process's output that does not read must not keep it from ending.
    runtime.shutdown_background();
    if let Some(lines) = lines {
        lines.flush_within(LAST_LINES);
    }
    ended.map(ExitCode::from).map_err(|error| Failure::failed("the supervisor does not run", error))
}

/// Prints what else is wrong with a configuration that names no data folder.
fn tell_all(config: &Path) {
    for error in Config::faults(config).into_iter().flat_map(|faults| faults.wrong) {
        println!("wrong: {error}");
    }
}

/// Prints what a check has found.
fn told(Check { build, why, says, wrong }: &Check) -> ExitCode {
    println!("would start {build}: {why}");
    for line in says {
        println!("  {line}");
    }
    for line in wrong {
        println!("wrong: {line}");
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

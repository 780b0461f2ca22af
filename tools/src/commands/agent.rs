//! `swell agent`: runs this machine's agent until it is told to stop.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use groundswell_agent::agent::{self, AgentError, Ended};
use groundswell_agent::config::ground::check_ground;
use groundswell_agent::config::{Config, ConfigError, LogFormat};
use groundswell_agent::supervise::RESTART;
use groundswell_agent::supervise::own::{Parent, is_supervised};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::failure::Failure;

/// Threads that may wait for disks and health checks at once; each costs memory only while it is in use.
const BLOCKING_THREADS: usize = 16;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// The configuration file.
    #[arg(long, value_name = "FILE", default_value = "/etc/groundswell/agent.toml")]
    config: PathBuf,
    /// Print the documented default configuration instead of running.
    #[arg(long)]
    print_config: bool,
    /// Check the configuration instead of running.
    #[arg(long, conflicts_with = "print_config")]
    check: bool,
    /// For rehearsals: be a build that has had no protocol in common with the mesh for a day, but for that of outer doors.
    #[arg(long, hide = true)]
    outdated: bool,
}

/// Does it.
pub(crate) fn run(args: AgentArgs) -> Result<ExitCode, Failure> {
    if args.print_config {
        print!("{}", Config::documented_default());
        return Ok(ExitCode::SUCCESS);
    }
    let variable = |name: &str| std::env::var(name).ok();
    let loaded = match Config::load(&args.config) {
        // Whatever a newer build is told, this one may be all that there is to go back to.
        Err(ConfigError::UnknownKey { .. }) if is_supervised(variable) && !args.check => Config::load_leniently(&args.config),
        loaded => loaded.map(|config| (config, Vec::new())),
    };
    let (config, unknown) = loaded.map_err(|error| Failure::invalid_by("the agent does not start", error))?;
    let filter = log_filter(&args.config, &config.log_filter)?;
    let ground = check_ground(&args.config);
    if args.check {
        ground.map_err(|error| Failure::invalid_by("the agent would run all the same", error))?;
        println!("{} is a valid configuration", args.config.display());
        return Ok(ExitCode::SUCCESS);
    }
    begin_log(config.log_format, filter)?;
    for key in &unknown {
        tracing::warn!("{}: unknown key `{key}` is passed over: it is for another build", args.config.display());
    }
    if let Err(error) = &ground {
        // It stops nothing for that: a fleet whose files are so would not even get the release that mends them.
        tracing::error!("others may say what this agent runs with all rights: {error}");
    }
    if !unknown.is_empty() {
        config.observed().for_each(|product| tracing::warn!("{product} is only observed"));
    }
    let parent = Parent::from_environment(variable);
    let parent = parent.map_err(|source| Failure::failed("the agent does not run", source))?;
    let supervised = parent.supervisor.is_some();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_stack_size(1024 * 1024)
        .thread_name("swell-agent")
        .enable_all()
        .build();
    let runtime = runtime.map_err(|source| Failure::failed("cannot start", source))?;
    let ended = runtime.block_on(async {
        let told = stop_signal(supervised).map_err(|source| Failure::failed("cannot listen for signals", source))?;
        let ended = if args.outdated {
            tracing::warn!("this agent rehearses that it is too old for the mesh: it speaks only the protocol of outer doors");
            agent::run_outdated(config, parent, told).await
        } else {
            agent::run_under(config, parent, told).await
        };
        ended.map_err(failure)
    });
    tracing::info!("stopped");
    Ok(match ended? {
        Ended::Told => ExitCode::SUCCESS,
        Ended::ToBeReplaced => ExitCode::from(RESTART),
    })
}

/// What is logged, as the configuration at `path` says.
pub(crate) fn log_filter(path: &Path, filter: &str) -> Result<EnvFilter, Failure> {
    // The swarm's own words at `info` are for its makers; a filter that names it has the last word.
    EnvFilter::try_new(format!("libp2p_swarm=warn,{filter}"))
        .map_err(|error| Failure::invalid_by(format!("{}: log.filter: `{filter}` is no filter", path.display()), error))
}

/// Logs from here on, to standard error.
pub(crate) fn begin_log(format: LogFormat, filter: EnvFilter) -> Result<(), Failure> {
    begin_log_to(BoxMakeWriter::new(std::io::stderr), format, filter)
}

/// Logs from here on, to what leads to standard error.
pub(crate) fn begin_log_to(writer: BoxMakeWriter, format: LogFormat, filter: EnvFilter) -> Result<(), Failure> {
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_target(false);
    let begun = match format {
        LogFormat::Text => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        LogFormat::Json => log.json().try_init(),
    };
    begun.map_err(|error| Failure::failed("cannot log", error))
}

/// Done when this process is told to stop: by SIGTERM or SIGINT, and, where nobody who supervises it passes that on, by SIGHUP,
/// which a terminal that closes sends too, unless this process was started to outlive that (`nohup`). SIGUSR1 and SIGUSR2 mean nothing to it. From here on none of them ends the process by
/// itself.
pub(crate) fn stop_signal(supervised: bool) -> std::io::Result<impl Future<Output = ()> + Send> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let passes_hangups = supervised || ignores_hangups();
    let mut hangup = signal(SignalKind::hangup())?;
    let (mut user1, mut user2) = (signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?);
    Ok(async move {
        loop {
            let passed_over = tokio::select! {
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                _ = hangup.recv() => "SIGHUP",
                _ = user1.recv() => "SIGUSR1",
                _ = user2.recv() => "SIGUSR2",
            };
            if passed_over == "SIGHUP" && !passes_hangups {
                return;
            }
            tracing::info!("{passed_over} is passed over");
        }
    })
}

/// Whether whoever started this process had it ignore SIGHUP: asked before that is changed.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The lowest bit is signal 1.
    ignored.is_some_and(|mask| mask & 1 == 1)
}

fn failure(error: AgentError) -> Failure {
    match error {
        AgentError::Document { path, source } => Failure::refused(&path, source),
        AgentError::ForeignCertificate { .. } | AgentError::NoFleet { .. } | AgentError::DocumentFile { .. } => {
            Failure::invalid_by("the agent does not start", error)
        }
        other => Failure::failed("the agent does not run", other),
    }
}

//! `swell helper`: the process with rights beside an agent without any.

use std::path::PathBuf;

use clap::Args;
use groundswell_agent::config::HelperConfig;
use groundswell_agent::helper::{self, HelperError, Patience, ground};
use groundswell_agent::supervise::own::Parent;
use groundswell_core::limits::PRODUCTS;

use crate::commands::agent::{begin_log, log_filter, stop_signal};
use crate::failure::Failure;

/// Threads that may wait for disks at once: for each product one, which its agent may make wait as long as it likes, and
/// some beside.
const BLOCKING_THREADS: usize = 12;

const _: () = assert!(BLOCKING_THREADS >= PRODUCTS + 4);

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct HelperArgs {
    /// The configuration file. It must belong to root and be writable by nobody else.
    #[arg(long, value_name = "FILE", default_value = "/etc/groundswell/helper.toml")]
    config: PathBuf,
    /// Print the documented configuration instead of running.
    #[arg(long)]
    print_config: bool,
    /// Check the configuration instead of running.
    #[arg(long, conflicts_with = "print_config")]
    check: bool,
}

/// Does it.
pub(crate) fn run(args: HelperArgs) -> Result<(), Failure> {
    if args.print_config {
        print!("{}", HelperConfig::documented_default());
        return Ok(());
    }
    let config = HelperConfig::load(&args.config).map_err(invalid)?;
    let path = std::path::absolute(&args.config).map_err(|source| Failure::unreadable(&args.config, source))?;
    ground::check_file(&path).map_err(invalid)?;
    let filter = log_filter(&args.config, &config.log_filter)?;
    if args.check {
        println!("{} is a valid configuration", args.config.display());
        return Ok(());
    }
    begin_log(config.log_format, filter)?;
    let parent = Parent::from_environment(|name| std::env::var(name).ok());
    let signs = parent.map_err(|source| Failure::failed("cannot start", source))?.notify;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_stack_size(1024 * 1024)
        .thread_name("swell-helper")
        .enable_all()
        .build();
    let runtime = runtime.map_err(|source| Failure::failed("cannot start", source))?;
    let ended = runtime.block_on(async {
        let told = stop_signal(false).map_err(|source| Failure::failed("cannot listen for signals", source))?;
        helper::run(config, Patience::default(), signs, told).await.map_err(failure)
    });
    // Whoever hangs in a disk that does not answer, or in a file of the agent's, ends with the process.
    runtime.shutdown_background();
    tracing::info!("stopped");
    ended
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
    Failure::invalid_by("the helper does not start", error)
}

fn failure(error: HelperError) -> Failure {
    match error {
        HelperError::Account(_) | HelperError::Ground(_) | HelperError::SocketGround(_) => invalid(error),
        other => Failure::failed("the helper does not run", other),
    }
}

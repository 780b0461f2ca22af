//! The demo: builds what it needs, runs the story, says what it saw, leaves nothing behind.
//!
//! [`story`] is what happens; [`stage`] drives the fleet and looks at it; [`screen`] shows it; [`expectations`] and
//! [`figures`] are what it ends with.

mod expectations;
mod figures;
mod screen;
mod stage;
mod story;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use groundswell_testnet::fleet::error::FleetError;
use groundswell_testnet::fleet::processes::strays;
use groundswell_testnet::fleet::swell::Swell;
use tokio::signal::unix::{SignalKind, signal};

/// What can be typed.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Print the figures as one JSON object on the last line.
    #[arg(long)]
    json: bool,
    /// Plain lines, even on a terminal.
    #[arg(long)]
    plain: bool,
}

/// Exit code after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

/// Runs the demo.
pub(crate) async fn run(args: DemoArgs) -> ExitCode {
    match play(args).await {
        Ok(code) => code,
        Err(error) => {
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(next) = cause {
                text = format!("{text}: {next}");
                cause = next.source();
            }
            eprintln!("the demo failed: {text}");
            ExitCode::FAILURE
        }
    }
}

async fn play(args: DemoArgs) -> Result<ExitCode, FleetError> {
    let what = |source| FleetError::Io { what: "cannot listen for signals".to_owned(), source };
    // From here on Ctrl-C ends the demo in order.
    let mut interrupts = signal(SignalKind::interrupt()).map_err(what)?;
    let mut terminations = signal(SignalKind::terminate()).map_err(what)?;
    let mut hangups = signal(SignalKind::hangup()).map_err(what)?;
    let program =
        std::env::current_exe().map_err(|source| FleetError::Io { what: "cannot find this program".to_owned(), source })?;
    println!("Looking for the swell binary; it is built when it is missing or older than its sources.");
    let swell = Swell::find_or_build(&program)?;
    let mut folder = PathBuf::new();
    let outcome = tokio::select! {
        outcome = story::tell(swell, &program, &args, &mut folder) => Some(outcome),
        _ = interrupts.recv() => None,
        _ = terminations.recv() => None,
        _ = hangups.recv() => None,
    };
    // The story and its fleet are gone here, whichever way it ended.
    let left = left_behind(&folder);
    if let Some(left) = &left {
        eprintln!("left behind: {left}");
    }
    match outcome {
        Some(Ok(good)) if good && left.is_none() => Ok(ExitCode::SUCCESS),
        Some(Ok(_)) => Ok(ExitCode::FAILURE),
        Some(Err(error)) => Err(error),
        None => {
            println!("\ninterrupted; all agents and services are ended");
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

/// Processes that still run out of the demo's folder.
fn left_behind(folder: &Path) -> Option<String> {
    if folder.as_os_str().is_empty() {
        return None;
    }
    let left: Vec<String> = strays(folder).into_iter().map(|stray| format!("{} {}", stray.pid, stray.command)).collect();
    (!left.is_empty()).then(|| left.join("; "))
}

//! The crash matrix of installs as a program: prints its size and its result, and exits non-zero when a cell fails.
//!
//! `groundswell-testnet crash-matrix` runs it. It is no part of any binary that runs on a device.
#![expect(clippy::print_stdout, clippy::unwrap_used, clippy::indexing_slicing, reason = "a proof talks to people and may panic")]

#[path = "../tests/it/crash_matrix/mod.rs"]
mod crash_matrix;
#[path = "../tests/it/fleet.rs"]
#[expect(dead_code, reason = "the tests of agents use the rest")]
mod fleet;
#[path = "../tests/it/workshop.rs"]
#[expect(dead_code, reason = "the tests of the device use the rest")]
mod workshop;

use std::process::{Command, ExitCode};

use crash_matrix::Report;
use crash_matrix::kill;
use crash_matrix::memory::Syncs;
use crash_matrix::power::{self, Depth};

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let Ok(orders) = std::env::var(kill::ORDERS) {
        runtime.block_on(kill::be_killed(&orders));
        return ExitCode::SUCCESS;
    }
    // A cell that fails says so in the result; its panic is not told twice.
    std::panic::set_hook(Box::new(|_| {}));
    // `--upgrade honest|no-files|no-folders` looks at an upgrade alone, on a disk whose syncs are like that. So does the
    // variable, through whatever starts this program.
    let asked = std::env::args().skip_while(|argument| argument != "--upgrade").nth(1);
    if let Some(syncs) = asked.or_else(|| std::env::var("GROUNDSWELL_CRASH_MATRIX_UPGRADE").ok()) {
        let syncs = match syncs.as_str() {
            "honest" => Syncs::Honest,
            "no-files" => Syncs::NoFiles,
            "no-folders" => Syncs::NoFolders,
            other => {
                println!("--upgrade honest, no-files or no-folders, not {other}");
                return ExitCode::FAILURE;
            }
        };
        return ended([told(power::matrix_of(&[(false, false)], Depth::Once, syncs))], true);
    }
    println!("power loss and kill at every call, on a disk in memory that loses what was not synced:");
    // `--once` leaves the second crash out: a look that takes seconds.
    let depth = if std::env::args().any(|argument| argument == "--once") { Depth::Once } else { Depth::Twice };
    let power = told(power::matrix(depth));
    let finds = [("files", Syncs::NoFiles), ("folders", Syncs::NoFolders)].into_iter().all(|(what, syncs)| {
        let report = power::matrix_of(&[(false, false)], Depth::Once, syncs);
        println!("  if an upgrade forgot to sync its {what}: {} of {} cells would fail", report.failures.len(), report.cells);
        !report.failures.is_empty()
    });
    println!("the same for the small files of a supervisor and of a helper:");
    let small = [told(crash_matrix::supervisor::matrix(Syncs::Honest)), told(crash_matrix::helper::matrix(Syncs::Honest))];
    println!("kill -9 of a real process at every call, on {}:", std::env::temp_dir().display());
    let kill = told(runtime.block_on(kill::matrix(1, || Command::new(std::env::current_exe().unwrap()))));
    ended(small.into_iter().chain([power, kill]), finds)
}

/// The last word: how many cells there were, and whether any failed. `finds`: the matrix would have found a fault.
fn ended(parts: impl IntoIterator<Item = (u64, usize)>, finds: bool) -> ExitCode {
    let (cells, failed) = parts.into_iter().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    println!("crash matrix: {cells} cells, {failed} failed");
    if failed == 0 && finds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a report; its cells and failures.
fn told(report: Report) -> (u64, usize) {
    for line in &report.lines {
        println!("  {line}");
    }
    for failure in report.failures.iter().take(50) {
        println!("  FAILED {failure}");
    }
    (report.cells, report.failures.len())
}

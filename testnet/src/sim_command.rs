//! `groundswell-testnet sim`: the simulator from the command line. Exit 0 only when every guarantee held.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use groundswell_core::number::Ppm;
use groundswell_testnet::sim::director::{self, Outcome};
use groundswell_testnet::sim::draw::draw;
use groundswell_testnet::sim::measure;
use groundswell_testnet::sim::script::Script;
use groundswell_testnet::sim::swarm;

/// Runs of the simulator.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SimCommand {
    /// Run one seed and tell what happened.
    Run {
        /// The seed.
        #[arg(long)]
        seed: u64,
        /// Print so many of the last events.
        #[arg(long, default_value_t = 0)]
        events: usize,
    },
    /// Run a script from a file.
    Replay {
        /// The script, as `sim draw` prints it.
        file: PathBuf,
        /// Print so many of the last events.
        #[arg(long, default_value_t = 0)]
        events: usize,
    },
    /// Print the script of one seed.
    Draw {
        /// The seed.
        #[arg(long)]
        seed: u64,
    },
    /// Run one rollout without faults over one pool, and tell what it cost.
    Measure {
        /// Nodes.
        #[arg(long)]
        nodes: u32,
    },
    /// Run many seeds; print those that failed.
    Swarm {
        /// Seeds, as FIRST..END.
        #[arg(long)]
        seeds: String,
        /// So many at once.
        #[arg(long, default_value_t = 1)]
        jobs: u64,
    },
}

/// Runs it.
#[must_use]
pub(crate) fn run(command: &SimCommand) -> ExitCode {
    if !matches!(command, SimCommand::Measure { .. }) {
        // A broken guarantee is told once, at the end, with its seed.
        std::panic::set_hook(Box::new(|_| {}));
    }
    match command {
        SimCommand::Run { seed, events } => one(&draw(*seed), *events),
        SimCommand::Replay { file, events } => replay(file, *events),
        SimCommand::Draw { seed } => {
            print!("{}", draw(*seed).to_toml());
            ExitCode::SUCCESS
        }
        SimCommand::Measure { nodes } => measure(*nodes),
        SimCommand::Swarm { seeds, jobs } => match parse(seeds) {
            Some((first, end)) => many(first, end, (*jobs).clamp(1, 64)),
            None => {
                eprintln!("--seeds {seeds}: write FIRST..END, for example 0..1000");
                ExitCode::from(2)
            }
        },
    }
}

fn parse(seeds: &str) -> Option<(u64, u64)> {
    let (first, end) = seeds.split_once("..")?;
    let (first, end) = (first.parse().ok()?, end.parse().ok()?);
    (first < end).then_some((first, end))
}

fn one(script: &Script, events: usize) -> ExitCode {
    let (world, outcome) = director::play_out(script);
    for (at, index, event) in world.events.iter().skip(world.events.len().saturating_sub(events)) {
        println!("{at} {index} {event:?}");
    }
    println!(
        "seed {}: {} machines, {} steps, {} starts, {} virtual ms, trace {}",
        outcome.seed, outcome.machines, outcome.steps, outcome.starts, outcome.virtual_ms, outcome.trace
    );
    told(outcome.failure.as_deref())
}

/// Reads a script; `Err` is what is wrong with it.
fn read(file: &Path) -> Result<Script, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: cannot be read: {error}", file.display()))?;
    Script::parse(&text).map_err(|error| format!("{}: is no script: {error}", file.display()))
}

fn replay(file: &Path, events: usize) -> ExitCode {
    match read(file) {
        Ok(script) => one(&script, events),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

fn many(first: u64, end: u64, jobs: u64) -> ExitCode {
    let (begun, next) = (Instant::now(), AtomicU64::new(first));
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let outcome = swarm::run(seed);
                    if let Some(failure) = &outcome.failure {
                        println!("{}  # {failure}", swarm::reproduction(seed));
                    }
                    outcomes.lock().expect("nothing panics while it holds this lock").push(outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().expect("every thread has ended well");
    let failed = outcomes.iter().filter(|outcome| outcome.failure.is_some()).count();
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    println!(
        "{} seeds, {failed} failed: {} steps, {} upgrades started, {} virtual hours, {} s",
        outcomes.len(),
        sum(|outcome| outcome.steps),
        sum(|outcome| outcome.starts),
        sum(|outcome| outcome.virtual_ms) / 3_600_000,
        begun.elapsed().as_secs()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn measure(nodes: u32) -> ExitCode {
    let five_percent = Ppm::new(50_000).expect("a share");
    let measured = measure::rollout(nodes, five_percent);
    println!("{measured:#?}");
    if measured.done { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn told(failure: Option<&str>) -> ExitCode {
    match failure {
        None => {
            println!("every guarantee held");
            ExitCode::SUCCESS
        }
        Some(failure) => {
            println!("FAILED: {failure}");
            ExitCode::from(1)
        }
    }
}

//! `groundswell-testnet sim`: the simulator from the command line. Exit 0 only when every guarantee held.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use groundswell_core::number::Ppm;
use groundswell_testnet::sim::measure;
use groundswell_testnet::sim::swarm::{self, Outcome};

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
        SimCommand::Run { seed, events } => one(*seed, *events),
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

fn one(seed: u64, events: usize) -> ExitCode {
    let (world, failure) = swarm::replay(seed);
    for (at, index, event) in world.events.iter().skip(world.events.len().saturating_sub(events)) {
        println!("{at} {index} {event:?}");
    }
    println!(
        "seed {seed}: {} machines, {} steps, {} starts, {} virtual ms, trace {}",
        world.count(),
        world.steps,
        world.starts,
        world.now_ms,
        world.trace_hash()
    );
    told(failure.as_deref())
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
                        println!("{}  # {failure}", outcome.reproduction());
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

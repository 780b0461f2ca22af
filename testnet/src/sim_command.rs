//! `groundswell-testnet sim`: the simulator from the command line. Exit 0 only when every guarantee held.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use groundswell_core::number::Ppm;
use groundswell_testnet::sim::director::{self, Outcome};
use groundswell_testnet::sim::draw::draw;
use groundswell_testnet::sim::margin;
use groundswell_testnet::sim::measure::{self, Terms};
use groundswell_testnet::sim::merges::{self, Merges};
use groundswell_testnet::sim::report::{self, Row};
use groundswell_testnet::sim::script::Script;
use groundswell_testnet::sim::shrink::shrink;
use groundswell_testnet::sim::swarm::{self, Part};

use crate::mutants_command::{self, MutantsArgs};

/// Runs of the simulator.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SimCommand {
    /// Run one seed and tell what happened; shrink it when a guarantee did not hold.
    Run {
        /// The seed.
        #[arg(long)]
        seed: u64,
        #[command(flatten)]
        telling: Telling,
    },
    /// Run a script from a file; shrink it when a guarantee did not hold.
    Replay {
        /// The script, as `sim draw` prints it or a failure wrote it.
        file: PathBuf,
        #[command(flatten)]
        telling: Telling,
    },
    /// Run scenarios and print what came true: the text that lies beside each as its golden output.
    Scenario {
        /// Their scripts.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Print the script of one seed.
    Draw {
        /// The seed.
        #[arg(long)]
        seed: u64,
    },
    /// Run one rollout with the default waves over one pool, and tell what it cost. Exit code 0 only when everybody was done,
    /// everything arrived, and, unless messages are lost, it cost no more than the bars allow: 1.03 times the ideal time (1.04
    /// beyond 200 nodes), 20 records signed per node, 2.5 copies of a record.
    Measure(MeasureArgs),
    /// Tell what merging one record costs a node, in nanoseconds, in fleets of these sizes. Exit code 0 only when it costs in
    /// no fleet more than twice what it costs in the first.
    Merges {
        /// Nodes, separated by commas.
        #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
        nodes: Vec<u32>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run many seeds; print those that failed.
    Swarm {
        /// Seeds, as FIRST..END.
        #[arg(long)]
        seeds: String,
        /// So many at once.
        #[arg(long, default_value_t = 1)]
        jobs: u64,
        /// Begin no further seed once one has failed.
        #[arg(long)]
        until_one_fails: bool,
        /// Of each seed only what happens in so many minutes, then the world is healed.
        #[arg(long, value_name = "MINUTES")]
        first: Option<u64>,
        /// Heal no world and ask for no progress: each seed ends where it would be healed.
        #[arg(long)]
        unhealed: bool,
    },
    /// Let as many of a slot's wardens lie as its pool tolerates, then one more, in pools of each size. Exit code 0 only when
    /// no budget breaks within the margin, some breaks beyond it at each size, and wherever somebody lies that is reported.
    BeyondMargin {
        /// Pools of so many nodes, separated by commas.
        #[arg(long, value_delimiter = ',', default_value = "3,4,5,6,7,8,9,10")]
        nodes: Vec<u32>,
        /// Worlds of each.
        #[arg(long, default_value_t = 10)]
        worlds: u64,
    },
    /// Break each rule of the core on purpose, one at a time, and tell after how many seeds the swarm notices. Exit code 0
    /// only when it notices all. Builds a copy of the core.
    Mutants(MutantsArgs),
    /// One row per run: guarantees and costs. Or what is otherwise in a second report than in a first.
    Report {
        /// Seeds, as FIRST..END.
        #[arg(long, default_value = "0..8")]
        seeds: String,
        /// Rollouts without faults over so many nodes, separated by commas.
        #[arg(long, value_delimiter = ',')]
        measure: Vec<u32>,
        /// Keeps the rows in this file, for a later `--diff`.
        #[arg(long)]
        write: Option<PathBuf>,
        /// Compare two such files instead.
        #[arg(long, num_args = 2, value_names = ["FIRST", "SECOND"], conflicts_with_all = ["measure", "write"])]
        diff: Option<Vec<PathBuf>>,
    },
}

/// What is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct MeasureArgs {
    /// Nodes.
    #[arg(long)]
    nodes: u32,
    /// Least and most delay of a message, in milliseconds, as LEAST..MOST.
    #[arg(long, default_value = "50..300")]
    delay: String,
    /// Percentage of messages lost.
    #[arg(long, default_value_t = 0)]
    loss: u32,
    /// The pool's budget, in percent.
    #[arg(long, default_value_t = 5)]
    budget: u32,
    /// Of all that is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// On so many threads; what is measured, real time aside, does not depend on it.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Fail as well when it takes longer than this, in seconds of real time.
    #[arg(long)]
    within: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// How much is told of one run.
#[derive(Debug, clap::Args)]
pub(crate) struct Telling {
    /// Print so many of the last events.
    #[arg(long, default_value_t = 0)]
    events: usize,
    /// Try at most so many smaller scripts when a guarantee did not hold.
    #[arg(long, default_value_t = 300)]
    shrink: u32,
    /// Where the shrunk script is written.
    #[arg(long, default_value = "shrunk.toml")]
    write: PathBuf,
}

/// Exit code for what was asked wrongly.
const INVALID: u8 = 2;

/// Runs it.
#[must_use]
pub(crate) fn run(command: &SimCommand) -> ExitCode {
    if !matches!(command, SimCommand::Measure(_) | SimCommand::Merges { .. }) {
        // A broken guarantee is told once, at the end, with its seed.
        std::panic::set_hook(Box::new(|_| {}));
    }
    let done = match command {
        SimCommand::Run { seed, telling } => one(&draw(*seed), telling),
        SimCommand::Replay { file, telling } => read(file).and_then(|script| one(&script, telling)),
        SimCommand::Scenario { files } => scenarios(files),
        SimCommand::Draw { seed } => {
            print!("{}", draw(*seed).to_toml());
            Ok(true)
        }
        SimCommand::Measure(args) => measure(args),
        SimCommand::Merges { nodes, json } => merges(nodes, *json),
        SimCommand::Swarm { seeds, jobs, until_one_fails, first, unhealed } => {
            let part = Part { beginning_ms: first.map(|minutes| minutes.saturating_mul(60_000)), unhealed: *unhealed };
            parse(seeds).map(|seeds| many(seeds, part, (*jobs).clamp(1, 64), *until_one_fails))
        }
        SimCommand::BeyondMargin { nodes, worlds } => Ok(beyond_margin(nodes, *worlds)),
        SimCommand::Mutants(args) => return mutants_command::run(args),
        SimCommand::Report { diff: Some(files), .. } => compare(files),
        SimCommand::Report { seeds, measure, write, .. } => report(seeds, measure, write.as_deref()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(INVALID)
        }
    }
}

fn parse(seeds: &str) -> Result<(u64, u64), String> {
    let ends = seeds.split_once("..").and_then(|(first, end)| Some((first.parse().ok()?, end.parse().ok()?)));
    ends.filter(|(first, end)| first < end).ok_or_else(|| format!("--seeds {seeds}: write FIRST..END, for example 0..1000"))
}

/// Reads a script; `Err` is what is wrong with it.
fn read(file: &Path) -> Result<Script, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: cannot be read: {error}", file.display()))?;
    Script::parse(&text).map_err(|error| format!("{}: is no script: {error}", file.display()))
}

fn one(script: &Script, telling: &Telling) -> Result<bool, String> {
    let (world, outcome) = director::play_out(script);
    for (at, index, event) in world.events.iter().skip(world.events.len().saturating_sub(telling.events)) {
        println!("{at} {index} {event:?}");
    }
    print!("{}", outcome.told);
    println!(
        "seed {}: {} machines, {} steps, {} starts, {} virtual ms, trace {}",
        outcome.seed, outcome.machines, outcome.steps, outcome.starts, outcome.virtual_ms, outcome.trace
    );
    let Some(failure) = &outcome.failure else {
        println!("every guarantee held");
        return Ok(true);
    };
    println!("FAILED: {failure}");
    if telling.shrink > 0 {
        let shrunk = shrink(script, failure, telling.shrink);
        let (before, left, file) = (script.acts.len(), shrunk.script.acts.len(), telling.write.display());
        println!("\nshrunk in {} runs from {before} acts to {left}, among {} machines:", shrunk.runs, shrunk.script.machines());
        print!("{}", shrunk.script.tell());
        println!("{}", shrunk.failure);
        fs::write(&telling.write, shrunk.script.to_toml()).map_err(|error| format!("{file}: cannot be written: {error}"))?;
        println!("groundswell-testnet sim replay {file}");
    }
    Ok(false)
}

fn scenarios(files: &[PathBuf]) -> Result<bool, String> {
    let mut held = true;
    for file in files {
        let outcome = director::play(&read(file)?);
        print!("{}", outcome.told);
        if let Some(failure) = &outcome.failure {
            println!("FAILED: {failure}  # groundswell-testnet sim replay {}", file.display());
            held = false;
        }
    }
    Ok(held)
}

fn many((first, end): (u64, u64), part: Part, jobs: u64, until_one_fails: bool) -> bool {
    let (begun, next, enough) = (Instant::now(), AtomicU64::new(first), AtomicBool::new(false));
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || enough.load(Ordering::Relaxed) {
                        break;
                    }
                    let outcome = swarm::run(seed, part);
                    if let Some(failure) = &outcome.failure {
                        println!("{}  # {failure}", swarm::reproduction(seed));
                        enough.store(until_one_fails, Ordering::Relaxed);
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
    failed == 0
}

fn beyond_margin(nodes: &[u32], worlds: u64) -> bool {
    println!("{:>5} {:>8} {:>6} {:>10} {:>9} {:>9}", "nodes", "may lie", "lie", "S1 broken", "convicted", "reported");
    let mut shown = true;
    for nodes in nodes {
        let tolerated = margin::tolerated(*nodes);
        for liars in [tolerated, tolerated + 1] {
            let tried = margin::tried(*nodes, liars, 0..worlds);
            let [broken, convicted, reported] =
                [tried.broken, tried.convicted, tried.reported].map(|times| format!("{times} of {worlds}"));
            println!("{nodes:>5} {tolerated:>8} {liars:>6} {broken:>10} {convicted:>9} {reported:>9}");
            tried.failures.iter().for_each(|failure| println!("  {failure}"));
            let beyond = liars > tolerated;
            shown &= tried.failures.is_empty() && (tried.broken > 0) == beyond;
            shown &= liars == 0 || tried.reported == tried.worlds;
        }
    }
    shown
}

fn measure(args: &MeasureArgs) -> Result<bool, String> {
    let percent =
        |of: u32, name: &str| Ppm::new(of.saturating_mul(10_000)).map_err(|_| format!("--{name} {of}: more than 100 percent"));
    let delay = args.delay.split_once("..").and_then(|(least, most)| Some((least.parse().ok()?, most.parse().ok()?)));
    let delay_ms: (u64, u64) = delay
        .filter(|(least, most)| least <= most)
        .ok_or_else(|| format!("--delay {}: write LEAST..MOST in milliseconds, for example 50..300", args.delay))?;
    let (budget, loss) = (percent(args.budget, "budget")?, percent(args.loss, "loss")?);
    let mut measured = measure::rollout(&Terms {
        nodes: args.nodes,
        budget,
        delay_ms,
        loss,
        seed: args.seed,
        threads: args.threads.clamp(1, 64),
    });
    if let Some(within) = args.within.filter(|within| measured.real_ms > within.saturating_mul(1_000)) {
        measured.missed.push(format!("real time: {} ms, at most {within} s", measured.real_ms));
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&measured).map_err(|error| error.to_string())?);
    } else {
        print!("{measured}");
    }
    Ok(measured.missed.is_empty())
}

fn merges(nodes: &[u32], json: bool) -> Result<bool, String> {
    let merges: Vec<Merges> = nodes.iter().map(|nodes| merges::merge((*nodes).max(2))).collect();
    if json {
        println!("{}", serde_json::to_string_pretty(&merges).map_err(|error| error.to_string())?);
    }
    let first = merges.first().map_or(f64::NAN, |first| first.nanoseconds);
    let held = merges.iter().all(|merges| merges.nanoseconds <= 2.0 * first);
    for Merges { nodes, merges, nanoseconds } in merges.into_iter().filter(|_| !json) {
        println!("{nodes} nodes: {nanoseconds:.0} ns for each of {merges} records");
    }
    Ok(held)
}

fn report(seeds: &str, nodes: &[u32], write: Option<&Path>) -> Result<bool, String> {
    let (first, end) = parse(seeds)?;
    let seeds = (first..end).map(|seed| Row::of(&format!("seed {seed}"), &swarm::run(seed, Part::WHOLE)));
    let rollouts = nodes.iter().map(|nodes| Row::measured(&measure::rollout(&Terms::of(*nodes))));
    let rows: Vec<Row> = seeds.chain(rollouts).collect();
    print!("{}", report::table(&rows));
    if let Some(file) = write {
        let text = serde_json::to_string_pretty(&rows).map_err(|error| error.to_string())?;
        fs::write(file, text + "\n").map_err(|error| format!("{}: cannot be written: {error}", file.display()))?;
    }
    Ok(rows.iter().all(|row| row.failure.is_none()))
}

fn compare(files: &[PathBuf]) -> Result<bool, String> {
    let mut reports = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: cannot be read: {error}", file.display()))?;
        let rows: Vec<Row> = serde_json::from_str(&text).map_err(|error| format!("{}: is no report: {error}", file.display()))?;
        reports.push(rows);
    }
    let [base, head] = reports.as_slice() else { return Err("--diff takes two files".to_string()) };
    let told = report::diff(base, head);
    print!("{}", if told.is_empty() { "no difference\n" } else { &told });
    Ok(head.iter().all(|row| row.failure.is_none()))
}

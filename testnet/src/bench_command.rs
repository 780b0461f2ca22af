//! `groundswell-testnet bench`: how near a swarm of bytes comes to the physical limit.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use groundswell_testnet::bytes::setting::milli;
use groundswell_testnet::bytes::{self, Setting, Trial};
use groundswell_testnet::fleet::error::FleetError;
use groundswell_testnet::lab::swarm::SwarmBench;

/// Benches.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum BenchCommand {
    /// In virtual time, on the core's own exchange. Without --nodes: every trial with 8 and with 16 nodes.
    Virtual {
        /// So many nodes beside the seed, with equal uplinks.
        #[arg(long)]
        nodes: Option<usize>,
        /// Uplink of each node, in bits per second: 40mbit.
        #[arg(long, default_value = "40mbit", value_parser = rate)]
        rate: u64,
        /// Uplink of the seed, where it is another.
        #[arg(long, value_parser = rate)]
        seed_rate: Option<u64>,
        /// Size of the blob: 100MiB, or 100MB.
        #[arg(long, default_value = "100MiB", value_parser = size)]
        size: u64,
        /// How many neighbours each node chooses.
        #[arg(long, default_value_t = 16)]
        links: usize,
        /// One way, in milliseconds.
        #[arg(long, default_value_t = 10)]
        delay_ms: u64,
        /// Of everything that is left to chance.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Real agents, one to a host of a lab on this machine: network namespaces whose uplinks are shaped. Needs root, ip and tc.
    Swarm {
        /// So many agents beside the seed.
        #[arg(long, default_value_t = 8)]
        nodes: usize,
        /// Uplink of each, in bits per second: 40mbit.
        #[arg(long, default_value = "40mbit", value_parser = rate)]
        rate: u64,
        /// Uplink of the seed, where it is another.
        #[arg(long, value_parser = rate)]
        seed_rate: Option<u64>,
        /// Size of the artifact: 100MiB, or 100MB.
        #[arg(long, default_value = "100MiB", value_parser = size)]
        size: u64,
        /// What runs in the same lab right after.
        #[arg(long)]
        beside: Option<Beside>,
        /// The figures as one JSON object on the last line.
        #[arg(long)]
        json: bool,
    },
}

/// What else brings a file to many.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Beside {
    /// Needs Python with libtorrent.
    Libtorrent,
}

/// Runs real agents in a lab.
pub(crate) async fn swarm(bench: SwarmBench, json: bool) -> ExitCode {
    let program =
        std::env::current_exe().map_err(|source| FleetError::Io { what: "cannot find this program".to_owned(), source });
    let ran = match program {
        Ok(program) => bench.run(&program).await,
        Err(error) => Err(error),
    };
    let outcome = match ran {
        Ok(outcome) => outcome,
        Err(error) => return crate::ended(Err(crate::chain(&error))),
    };
    println!(
        "{} agents, {} bytes, uplinks of {} bit/s, the seed's of {}",
        bench.nodes, bench.size_bytes, bench.rate, bench.seed_rate
    );
    println!(
        "  last {:.2} s, median {:.2} s, limit {:.2} s, ratio {:.3}; {:.3} copies from the seed, {:.3} of what is needed sent",
        outcome.last_s, outcome.median_s, outcome.limit_s, outcome.ratio_to_limit, outcome.seed_copies, outcome.total_over_nf
    );
    let mib = outcome.peak_rss_bytes / (1 << 20);
    println!("  {:.2} processor seconds per GB, at most {mib} MiB resident", outcome.cpu_s_per_gb);
    if let (Some(last), Some(ratio)) = (outcome.libtorrent_last_s, outcome.ratio_to_libtorrent) {
        println!("  libtorrent in the same lab: last {last:.2} s; ratio {ratio:.3}");
    }
    let complaints = bench.complaints(&outcome);
    complaints.iter().for_each(|complaint| println!("  NOT as it must be: {complaint}"));
    if json {
        println!("{}", serde_json::to_string(&outcome).unwrap_or_default());
    }
    if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays.
#[must_use]
pub(crate) fn run(command: &BenchCommand) -> ExitCode {
    let BenchCommand::Virtual { nodes, rate, seed_rate, size, links, delay_ms, seed } = command else {
        unreachable!("real agents run elsewhere")
    };
    let mut trials = match nodes {
        None => [8, 16].into_iter().flat_map(|nodes| Trial::all(nodes, *rate, *size)).collect(),
        Some(nodes) if *nodes <= 16 && seed_rate.is_none() => Trial::all(*nodes, *rate, *size).into_iter().take(1).collect(),
        Some(nodes) => vec![Trial::large(*nodes, *rate, *size)],
    };
    let mut wrong = 0;
    for trial in &mut trials {
        let setting = Setting { links: *links, delay: Duration::from_millis(*delay_ms), seed: *seed, ..trial.setting.clone() };
        trial.setting = Setting { seed_rate: seed_rate.unwrap_or(setting.seed_rate), ..setting };
        wrong += usize::from(!as_it_must_be(trial));
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn as_it_must_be(trial: &Trial) -> bool {
    let begun = Instant::now();
    let outcome = bytes::run(&trial.setting);
    let size = trial.setting.size_bytes;
    let needed = size.saturating_mul(u64::try_from(trial.setting.peer_rates.len()).unwrap_or(u64::MAX)).max(1);
    let share = |bytes: u64, of: u64| milli(u128::from(bytes) * 1000 / u128::from(of));
    println!("{}", trial.name);
    println!(
        "  last {:.2} s, median {:.2} s, limit {:.2} s, ratio {}; {} copies from the seed, {} of what is needed sent, {} wasted, words {}",
        outcome.last().as_secs_f64(),
        outcome.median().as_secs_f64(),
        outcome.limit.as_secs_f64(),
        milli(outcome.ratio_milli().min(999_999)),
        share(outcome.seed_bytes, size),
        share(outcome.total_bytes, needed),
        share(outcome.wasted_bytes, needed),
        share(outcome.word_bytes, needed),
    );
    println!("  {} events in {:.1} s", outcome.events, begun.elapsed().as_secs_f64());
    let complaints = trial.complaints(&outcome);
    complaints.iter().for_each(|complaint| println!("  NOT as it must be: {complaint}"));
    complaints.is_empty()
}

/// `40mbit`, `500kbit`, `1gbit`, or bits.
fn rate(text: &str) -> Result<u64, String> {
    number(text, &[("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("", 1)])
}

/// `100MiB`, `100MB`, `1GiB`, or bytes.
fn size(text: &str) -> Result<u64, String> {
    number(text, &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("GB", 1_000_000_000), ("MB", 1_000_000), ("", 1)])
}

fn number(text: &str, units: &[(&str, u64)]) -> Result<u64, String> {
    let known: Vec<&str> = units.iter().map(|(unit, _)| *unit).filter(|unit| !unit.is_empty()).collect();
    let read = units.iter().find_map(|(unit, factor)| {
        let count: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        count.checked_mul(*factor).filter(|value| *value > 0)
    });
    read.ok_or_else(|| format!("{text}: write a number and one of {}", known.join(", ")))
}

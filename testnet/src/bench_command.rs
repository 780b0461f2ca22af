//! `groundswell-testnet bench`: how near a swarm of bytes comes to the physical limit.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use groundswell_testnet::bytes::setting::milli;
use groundswell_testnet::bytes::{self, Setting, Trial};
use groundswell_testnet::fleet::error::FleetError;
use groundswell_testnet::lab::swarm::SwarmBench;
use groundswell_testnet::lab::usage::Usage;
use groundswell_testnet::loopback::{self, LoopbackBench};
use groundswell_testnet::serving::{ServeBench, ServeOutcome};

/// Benches.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum BenchCommand {
    /// In virtual time, on the core's own exchange. Without --nodes: every trial with 8 and with 16 nodes.
    Virtual(VirtualArgs),
    /// Real agents, one to a host of a lab on this machine: network namespaces whose uplinks are shaped. Needs root, ip and tc.
    Swarm(LabArgs),
    /// One agent gives to many others on this machine at full speed: how soon it answers and is heard of meanwhile.
    Serve(ServeArgs),
    /// One agent fetches from another on this machine, beside a web server with curl and sha256sum, and beside sendme.
    Loopback(LoopbackArgs),
}

/// A swarm: who takes part in it, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SwarmArgs {
    /// So many nodes beside the seed.
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
    /// Uplinks of a twentieth of the rate up to all of it, instead of equal ones.
    #[arg(long)]
    mixed: bool,
    /// So many of the nodes send a wrong piece in ten.
    #[arg(long, default_value_t = 0)]
    liars: usize,
    /// So many of the nodes take pieces, promise pieces, and send none.
    #[arg(long, default_value_t = 0)]
    stalled: usize,
    /// The seed leaves when it has sent so many copies: 1.1.
    #[arg(long, value_parser = parts_per_million)]
    seed_leaves_after: Option<u64>,
}

/// What is played in virtual time.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct VirtualArgs {
    #[command(flatten)]
    swarm: SwarmArgs,
    /// With how many others each node sees to it that it is linked; as agents do when nothing is said.
    #[arg(long, default_value_t = groundswell_core::limits::BLOB_COMPANY)]
    links: usize,
    /// One way, in milliseconds.
    #[arg(long, default_value_t = 10)]
    delay_ms: u64,
    /// Of everything that is left to chance.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What is run in the lab.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LabArgs {
    #[command(flatten)]
    swarm: SwarmArgs,
    /// What runs in the same lab right after.
    #[arg(long)]
    beside: Option<Beside>,
    /// The figures as one JSON object on the last line.
    #[arg(long)]
    json: bool,
}

/// What is run on loopback.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoopbackArgs {
    /// Size of the artifact: 1GiB, or 100MB.
    #[arg(long, default_value = "1GiB", value_parser = size)]
    size: u64,
    /// Compare with neither of these; otherwise it fails where one is not on this machine.
    #[arg(long, value_delimiter = ',')]
    without: Vec<loopback::Rival>,
    /// The figures as one JSON object on the last line.
    #[arg(long)]
    json: bool,
}

/// Who is given how much on loopback.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// So many take.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=32))]
    peers: u8,
    /// Size of the artifact: 400MiB, or 1GB.
    #[arg(long, default_value = "400MiB", value_parser = size)]
    size: u64,
    /// The figures as one JSON object on the last line.
    #[arg(long)]
    json: bool,
}

/// What else brings a file to many.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Beside {
    /// Needs Python with libtorrent.
    Libtorrent,
}

impl SwarmArgs {
    /// What is tried, and what must come of it.
    fn trial(&self, nodes: usize) -> Trial {
        let equal = Setting::equal(nodes, self.rate, self.size);
        let setting = Setting {
            seed_rate: self.seed_rate.unwrap_or(self.rate),
            peer_rates: if self.mixed { Setting::mixed_rates(nodes, self.rate) } else { equal.peer_rates.clone() },
            liars: self.liars.min(nodes),
            stalled: self.stalled.min(nodes.saturating_sub(self.liars)),
            seed_leaves_after_ppm: self.seed_leaves_after,
            ..equal
        };
        Trial::of(setting)
    }
}

/// Runs what needs a runtime.
pub(crate) async fn run_real(command: BenchCommand) -> ExitCode {
    let program =
        std::env::current_exe().map_err(|source| FleetError::Io { what: "cannot find this program".to_owned(), source });
    let program = match program {
        Ok(program) => program,
        Err(error) => return crate::ended(Err(crate::chain(&error))),
    };
    match command {
        BenchCommand::Swarm(args) => {
            let nodes = args.swarm.nodes.unwrap_or(8);
            let bench = SwarmBench { trial: args.swarm.trial(nodes), beside_libtorrent: args.beside.is_some() };
            match bench.run(&program).await {
                Ok(outcome) => told_of_swarm(&bench, &outcome, args.json),
                Err(error) => crate::ended(Err(crate::chain(&error))),
            }
        }
        BenchCommand::Loopback(args) => {
            let bench = LoopbackBench { size_bytes: args.size };
            match bench.run(&program).await {
                Ok(outcome) => told_of_loopback(&bench, &outcome, &args.without, args.json),
                Err(error) => crate::ended(Err(crate::chain(&error))),
            }
        }
        BenchCommand::Serve(args) => {
            let bench = ServeBench { peers: args.peers.into(), size_bytes: args.size };
            match bench.run(&program).await {
                Ok(outcome) => told_of_serving(&bench, &outcome, args.json),
                Err(error) => crate::ended(Err(crate::chain(&error))),
            }
        }
        BenchCommand::Virtual(args) => run_virtual(&args),
    }
}

fn told_of_swarm(bench: &SwarmBench, outcome: &groundswell_testnet::lab::swarm::SwarmOutcome, json: bool) -> ExitCode {
    println!("{}: real agents, {} bytes", bench.trial.name, bench.trial.setting.size_bytes);
    println!(
        "  last {:.2} s, median {:.2} s, limit {:.2} s, ratio {:.3}; {:.3} copies from the seed, {:.3} of what is needed sent",
        outcome.last_s, outcome.median_s, outcome.limit_s, outcome.ratio_to_limit, outcome.seed_copies, outcome.total_over_nf
    );
    let mib = outcome.peak_rss_bytes / (1 << 20);
    println!("  {:.2} processor seconds per GB, at most {mib} MiB resident", outcome.cpu_s_per_gb);
    println!(
        "  the seed answered for its status within {:.0} ms, and knew from records who has everything within {:.1} s",
        outcome.status_worst_s * 1_000.0,
        outcome.record_worst_s
    );
    if let (Some(last), Some(ratio)) = (outcome.libtorrent_last_s, outcome.ratio_to_libtorrent) {
        println!("  libtorrent in the same lab: last {last:.2} s; ratio {ratio:.3}");
    }
    judged(&bench.complaints(outcome), json.then(|| serde_json::to_string(outcome).unwrap_or_default()))
}

fn told_of_loopback(
    bench: &LoopbackBench,
    outcome: &loopback::LoopbackOutcome,
    without: &[loopback::Rival],
    json: bool,
) -> ExitCode {
    println!("{} bytes from one process to another on this machine, verified, durable and renamed", bench.size_bytes);
    for (what, ran) in outcome.ran() {
        match ran {
            Ok(ran) => println!("  {what}: {:.2} s, {:.0} MB/s, {:.2} processor seconds", ran.took_s, ran.mb_per_s, ran.cpu_s),
            Err(why) => println!("  {what}: not run: {why}"),
        }
    }
    println!("  the fetching agent grew by {:.1} MiB", outcome.growth_mib);
    judged(&outcome.complaints(without), json.then(|| serde_json::to_string(outcome).unwrap_or_default()))
}

fn told_of_serving(bench: &ServeBench, outcome: &ServeOutcome, json: bool) -> ExitCode {
    println!("one agent gives {} bytes to each of {} others on this machine", bench.size_bytes, bench.peers);
    println!(
        "  {:.2} s, {:.0} MB/s, {:.2} processor seconds of its own for each GB",
        outcome.took_s, outcome.mb_per_s, outcome.cpu_s_per_gb
    );
    println!(
        "  asked {} times for its status meanwhile: {:.0} ms in the median, {:.0} ms at most",
        outcome.status_asked,
        outcome.status_median_s * 1_000.0,
        outcome.status_worst_s * 1_000.0
    );
    println!("  {} changes of its record were known to another within {:.2} s", outcome.records, outcome.record_worst_s);
    judged(&outcome.complaints(), json.then(|| serde_json::to_string(outcome).unwrap_or_default()))
}

fn judged(complaints: &[String], json: Option<String>) -> ExitCode {
    complaints.iter().for_each(|complaint| println!("  NOT as it must be: {complaint}"));
    json.into_iter().for_each(|json| println!("{json}"));
    if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays.
#[must_use]
pub(crate) fn run_virtual(args: &VirtualArgs) -> ExitCode {
    let VirtualArgs { swarm, links, delay_ms, seed } = args;
    let trials = match swarm.nodes {
        None => [8, 16].into_iter().flat_map(|nodes| Trial::all(nodes, swarm.rate, swarm.size)).collect(),
        Some(nodes) => vec![swarm.trial(nodes)],
    };
    let mut wrong = 0;
    for trial in trials {
        let setting = Setting { links: *links, delay: Duration::from_millis(*delay_ms), seed: *seed, ..trial.setting.clone() };
        wrong += usize::from(!as_it_must_be(&Trial { setting, ..trial }));
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
    let peak = Usage::of_process(std::process::id()).map(|usage| usage.peak_rss_bytes / (1 << 20)).unwrap_or_default();
    println!("  {} events in {:.1} s, {peak} MiB at most", outcome.events, begun.elapsed().as_secs_f64());
    let complaints = trial.complaints(&outcome);
    complaints.iter().for_each(|complaint| println!("  NOT as it must be: {complaint}"));
    complaints.is_empty()
}

/// `1.1`, in parts per million.
fn parts_per_million(text: &str) -> Result<u64, String> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let part = format!("{part:0<6}");
    let read = |digits: &str| digits.parse::<u64>().map_err(|_| format!("{text}: write a number like 1.1"));
    let (whole, part) = (read(whole)?, read(part.get(..6).unwrap_or_default())?);
    whole.checked_mul(1_000_000).map(|whole| whole + part).ok_or_else(|| format!("{text} is too much"))
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

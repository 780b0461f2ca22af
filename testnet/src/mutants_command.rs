//! `groundswell-testnet sim mutants`: each rule of the core broken on purpose, and after how many seeds the swarm noticed.
//! Exit 0 only when it noticed all.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use groundswell_testnet::mutants::{Mutant, PACKAGE, VARIABLE, lay_out};
use groundswell_testnet::sim::shrink::guarantee;

/// Seeds that one process plays …
const SEEDS: u64 = 40;
/// … and how long it may take: hundreds of times what they take. Beyond, a rule that is broken keeps the core from ending.
const LONGEST: Duration = Duration::from_secs(1_800);

/// How far to look.
#[derive(Debug, clap::Args)]
pub(crate) struct MutantsArgs {
    /// Only these, by name, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Give up on a mutant after so many seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// So many seeds at once.
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// Where the mutated copy is laid out and kept; beside this program's own build when absent.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Begin at the first seed, also where one is known that finds a mutant.
    #[arg(long)]
    anew: bool,
}

/// What became of one mutant.
struct Row {
    name: String,
    expected: String,
    /// The seed, and what it said.
    caught: Option<(u64, String)>,
    seconds: u64,
}

/// Builds, runs and tells.
#[must_use]
pub(crate) fn run(args: &MutantsArgs) -> ExitCode {
    match try_all(args) {
        Ok(rows) => {
            print!("{}", table(&rows));
            let missed = rows.iter().filter(|row| row.caught.is_none()).count();
            println!("{} mutants, {missed} not found within {} seeds", rows.len(), args.seeds);
            if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

fn try_all(args: &MutantsArgs) -> Result<Vec<Row>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new("."));
    let mutants = Mutant::all(root).map_err(|error| error.to_string())?;
    if let Some(unknown) = args.only.iter().find(|name| !mutants.iter().any(|mutant| mutant.name == **name)) {
        let names: Vec<&str> = mutants.iter().map(|mutant| mutant.name.as_str()).collect();
        return Err(format!("--only {unknown}: there are {}", names.join(", ")));
    }
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let profile = this.parent().unwrap_or_else(|| Path::new("."));
    let target = profile.parent().unwrap_or_else(|| Path::new("."));
    let folder = args.folder.clone().unwrap_or_else(|| target.join("mutants"));
    lay_out(root, &mutants, &folder).map_err(|error| error.to_string())?;
    let program = build(&folder, target, profile)?;
    let chosen = mutants.iter().filter(|mutant| args.only.is_empty() || args.only.contains(&mutant.name));
    chosen.map(|mutant| hunt(&program, mutant, args)).collect()
}

/// Builds the copy beside this program's own build, where its dependencies lie already.
fn build(folder: &Path, target: &Path, profile: &Path) -> Result<PathBuf, String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--offline", "--quiet", "-p", PACKAGE, "--manifest-path"]).arg(folder.join("Cargo.toml"));
    command.arg("--target-dir").arg(target);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let status = command.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !status.success() {
        return Err(format!("the mutated copy in {} cannot be built, see above", folder.display()));
    }
    Ok(profile.join(PACKAGE))
}

/// Plays seeds until one fails that holds without the mutant: first the one that is known to, if any.
fn hunt(program: &Path, mutant: &Mutant, args: &MutantsArgs) -> Result<Row, String> {
    let begun = Instant::now();
    let known = mutant.seed.filter(|seed| !args.anew && *seed < args.seeds);
    let known = known.map(|seed| (seed, seed + 1));
    let mut caught = None;
    for (mut first, end) in known.into_iter().chain([(0, args.seeds)]) {
        while first < end && caught.is_none() {
            let Some((seed, why)) = fails(program, mutant, mutant.number, (first, end), args.jobs)? else { break };
            if fails(program, mutant, 0, (seed, seed + 1), 1)?.is_none() {
                caught = Some((seed, why));
            }
            first = seed + 1;
        }
        if caught.is_some() {
            break;
        }
    }
    if let Some((seed, _)) = caught.as_ref().filter(|(seed, _)| mutant.seed != Some(*seed)) {
        eprintln!("{}: `seed = {seed}` in its file finds it at once", mutant.name);
    }
    let row = Row { name: mutant.name.clone(), expected: mutant.guarantee.clone(), caught, seconds: begun.elapsed().as_secs() };
    eprint!("{}", line(&row));
    Ok(row)
}

/// The first of these seeds that fails under the rule that is broken by this number, and how. Where a mutant breaks safety, each
/// seed is played until it would be healed: that part of it is how the whole begins.
fn fails(
    program: &Path,
    mutant: &Mutant,
    number: u32,
    (first, end): (u64, u64),
    jobs: u64,
) -> Result<Option<(u64, String)>, String> {
    for first in (first..end).step_by(usize::try_from(SEEDS).unwrap_or(1)) {
        let seeds = format!("{first}..{}", end.min(first + SEEDS));
        let mut command = Command::new(program);
        command.args(["sim", "swarm", "--until-one-fails", "--seeds", &seeds, "--jobs", &jobs.to_string()]);
        if mutant.breaks_safety() {
            command.arg("--unhealed");
        }
        let (text, held) = output(command.env(VARIABLE, number.to_string()))
            .map_err(|error| format!("{} with {} at seeds {seeds}: {error}", program.display(), mutant.name))?;
        let told = text.lines().filter_map(|line| {
            let (command, why) = line.split_once("  # ")?;
            Some((command.rsplit(' ').next()?.parse::<u64>().ok()?, why.to_string()))
        });
        match told.min() {
            None if !held => return Err(format!("{} ended at seeds {seeds} without a word", mutant.name)),
            None => {}
            found => return Ok(found),
        }
    }
    Ok(None)
}

/// What a process wrote, and whether it ended well.
fn output(command: &mut Command) -> Result<(String, bool), String> {
    let mut process =
        command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
    let mut written = process.stdout.take().ok_or("it has nowhere to write to")?;
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut text = String::new();
            let read = written.read_to_string(&mut text).map(|_| text).map_err(|error| error.to_string());
            // Nobody listens any more: it was given up.
            let _ = tell.send(read);
        });
        let text = match told.recv_timeout(LONGEST) {
            Ok(text) => text,
            Err(_) => {
                process.kill().map_err(|error| error.to_string())?;
                Err(format!("it does not end within {} s: break the rule so that the core goes on", LONGEST.as_secs()))
            }
        };
        let held = process.wait().map_err(|error| error.to_string())?.success();
        Ok((text?, held))
    })
}

fn line(row: &Row) -> String {
    let Row { name, expected, caught, seconds } = row;
    match caught {
        Some((seed, why)) => {
            let by = guarantee(why);
            let short: String = why.chars().take(90).collect();
            format!("{name:<24} {expected:<4} {by:<4} {:>6} {seconds:>6} s  {short}\n", seed + 1)
        }
        None => format!("{name:<24} {expected:<4} NOT FOUND     {seconds:>6} s\n"),
    }
}

fn table(rows: &[Row]) -> String {
    let head = format!("{:<24} {:<4} {:<4} {:>6} {:>8}\n", "mutant", "asks", "by", "seeds", "time");
    head + &rows.iter().map(line).collect::<String>()
}

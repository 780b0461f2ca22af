//! `groundswell-testnet`: the demo, and what fleets of real processes need of a program: the sample service and the leash.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the demo talks to people")]

mod bench_command;
mod demo;
mod model_command;
mod mutants_command;
mod proof;
mod self_upgrade_command;
mod sim_command;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use groundswell_testnet::fleet::builds::{self, Build};
use groundswell_testnet::fleet::{leash, service};

/// Proof of Groundswell on real processes.
#[derive(Debug, Parser)]
#[command(name = "groundswell-testnet", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Twelve real agents on this machine: a good release, a bad one, and the way forward. Exit code 0 only when all is as it must be.
    Demo(demo::DemoArgs),
    /// Whole fleets in a virtual world, from a seed. Exit code 0 only when every guarantee held.
    #[command(subcommand)]
    Sim(sim_command::SimCommand),
    /// Crashes and power losses at every place of every step of an install. Exit code 0 only when each ends on a version that runs.
    CrashMatrix {
        /// Leaves second crashes, inside what puts the first right, out: a look that takes seconds.
        #[arg(long)]
        once: bool,
    },
    /// Installs on a small disk that is full, read-only or gone. Needs the right to mount; exit code 0 only when all is as it must be.
    FullDisk,
    /// How near a swarm of bytes comes to the physical limit. Exit code 0 only when it comes as near as it must.
    #[command(subcommand)]
    Bench(bench_command::BenchCommand),
    /// Every state of small worlds of the lease protocol. Exit code 0 only when all is as it must be.
    Model(model_command::ModelArgs),
    /// Twelve real agents upgrade themselves, and leave builds that panic, hang or never join. Exit code 0 only when all is as it must be.
    SelfUpgrade(self_upgrade_command::SelfUpgradeArgs),
    /// A broken build of the agent; run by a supervisor.
    #[command(hide = true)]
    BrokenAgent {
        /// How it is broken.
        build: Build,
        /// The real binary.
        swell: PathBuf,
        /// What the supervisor gave it.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// The sample service; run by the agents.
    #[command(hide = true)]
    SampleService,
    /// Becomes a command that dies with its parent.
    #[command(hide = true)]
    Leash {
        /// The process that must be the parent.
        parent: i32,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    if let Command::Leash { parent, command } = &command {
        eprintln!("{}", leash::become_leashed(*parent, command));
        return ExitCode::FAILURE;
    }
    if let Command::BrokenAgent { build, swell, arguments } = &command {
        eprintln!("{}", builds::become_broken(*build, swell, arguments));
        return ExitCode::FAILURE;
    }
    if let Command::Sim(sim) = &command {
        return sim_command::run(sim);
    }
    match &command {
        Command::Model(args) => return model_command::run(args),
        Command::Bench(bench_command::BenchCommand::Virtual(args)) => return bench_command::run_virtual(args),
        Command::CrashMatrix { once } => return proof::run("crash_matrix", if *once { &["--once"] } else { &[] }),
        Command::FullDisk => return proof::run("full_disk", &[]),
        _ => {}
    }
    // One thread: agents are leashed to the thread that starts them.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(async {
        match command {
            Command::Demo(args) => demo::run(args).await,
            Command::SelfUpgrade(args) => self_upgrade_command::run(args).await,
            Command::Bench(bench) => bench_command::run_real(bench).await,
            Command::SampleService => ended(service::run().await),
            Command::Leash { .. }
            | Command::BrokenAgent { .. }
            | Command::Sim(_)
            | Command::Model(_)
            | Command::CrashMatrix { .. }
            | Command::FullDisk => {
                unreachable!("handled above")
            }
        }
    })
}

/// An error and what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn ended<E: std::fmt::Display>(outcome: Result<(), E>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

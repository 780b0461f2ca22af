//! `swell`: signs releases and rollouts offline, publishes them, runs the agent, explains what it does.
//!
//! What is typed is in [`args`]; each command has a file in [`commands`]; [`authoring`] is what they share offline:
//! the fleet folder, keys, manifests, rosters. Only this crate prints and exits. Exit codes: [`failure`].
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is the crate that talks to people")]

mod args;
mod authoring;
mod commands;
mod failure;
mod online;
mod output;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match commands::run(args::Cli::parse().command) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("swell: {}", failure::with_causes(&failure));
            failure.exit_code()
        }
    }
}

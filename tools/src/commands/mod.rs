//! One folder per group of commands, one file per command: its arguments as typed, and what it does.

pub(crate) mod agent;
pub(crate) mod fleet;
pub(crate) mod helper;
pub(crate) mod node;
pub(crate) mod online;
pub(crate) mod release;
pub(crate) mod rollout;
pub(crate) mod supervise;

use std::process::ExitCode;

use crate::args::Command;
use crate::failure::Failure;

/// Runs a command; its exit code where it did what it should.
pub(crate) fn run(command: Command) -> Result<ExitCode, Failure> {
    let done = match command {
        Command::Fleet(command) => fleet::run(command),
        Command::Node(command) => node::run(command),
        Command::Release(command) => release::run(command),
        Command::Rollout(command) => rollout::run(command),
        Command::Publish(args) => online::publish::run(&args),
        Command::Status(args) => online::status::run(&args),
        Command::Explain(args) => online::explain::run(&args),
        Command::Rollouts(args) => online::rollouts::run(&args),
        Command::Peers(args) => online::peers::run(&args),
        Command::Leases(args) => online::leases::run(&args),
        Command::Events(args) => online::events::run(&args),
        Command::Helper(args) => helper::run(args),
        Command::Agent(args) => return agent::run(args),
        Command::Supervise(args) => return supervise::run(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

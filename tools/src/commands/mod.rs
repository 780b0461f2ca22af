//! One folder per group of commands, one file per command: its arguments as typed, and what it does.

pub(crate) mod fleet;
pub(crate) mod node;
pub(crate) mod release;
pub(crate) mod rollout;

use crate::args::Command;
use crate::failure::Failure;

/// Runs a command.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Fleet(command) => fleet::run(command),
        Command::Node(command) => node::run(command),
        Command::Release(command) => release::run(command),
        Command::Rollout(command) => rollout::run(command),
    }
}

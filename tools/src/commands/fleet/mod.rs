//! `swell fleet`: make a fleet, look at its folder.

mod init;
mod pull;
mod show;

use clap::Subcommand;

use crate::failure::Failure;

/// Commands about the fleet.
#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Make a fleet: its keys, its first document, its folder, and the operator's own certificate.
    Init(init::InitArgs),
    /// Rebuild or refresh a fleet folder from any agent.
    Pull(pull::PullArgs),
    /// Show what a fleet folder holds, verified.
    Show(show::ShowArgs),
}

/// Runs one.
pub(crate) fn run(command: FleetCommand) -> Result<(), Failure> {
    match command {
        FleetCommand::Init(args) => init::run(args),
        FleetCommand::Pull(args) => pull::run(&args),
        FleetCommand::Show(args) => show::run(args),
    }
}

//! `swell node`: a device asks to be admitted, an operator admits it.

mod admit;
mod init;

use clap::Subcommand;

use crate::failure::Failure;

/// Commands about nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// On the device: make its key and a request to be admitted.
    Init(init::InitArgs),
    /// On the operator's machine: sign certificates for requests.
    Admit(admit::AdmitArgs),
}

/// Runs one.
pub(crate) fn run(command: NodeCommand) -> Result<(), Failure> {
    match command {
        NodeCommand::Init(args) => init::run(args),
        NodeCommand::Admit(args) => admit::run(args),
    }
}

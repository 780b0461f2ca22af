//! `swell release`: keys, manifests, signatures, checks. All offline.

mod cosign;
mod keygen;
mod sign;
mod verify;

use clap::Subcommand;

use crate::failure::Failure;

/// Commands about releases.
#[derive(Debug, Subcommand)]
pub(crate) enum ReleaseCommand {
    /// Make a signing key and print its pin.
    Keygen(keygen::KeygenArgs),
    /// Sign the files of a folder as a release.
    Sign(sign::SignArgs),
    /// Add a signature to a manifest.
    Cosign(cosign::CosignArgs),
    /// Check a manifest, and files against it.
    Verify(verify::VerifyArgs),
}

/// Runs one.
pub(crate) fn run(command: ReleaseCommand) -> Result<(), Failure> {
    match command {
        ReleaseCommand::Keygen(args) => keygen::run(args),
        ReleaseCommand::Sign(args) => sign::run(args),
        ReleaseCommand::Cosign(args) => cosign::run(args),
        ReleaseCommand::Verify(args) => verify::run(args),
    }
}

//! `swell release keygen`: a P-256 key in PKCS#8 PEM, its public half beside it.

use std::path::PathBuf;

use clap::Args;
use groundswell_core::digest::Digest;
use serde::Serialize;

use crate::authoring::files::Batch;
use crate::authoring::keys;
use crate::failure::Failure;
use crate::output::OutputArgs;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct KeygenArgs {
    /// The file for the secret key; the public half goes to the same name with .pub.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    pin: Digest,
    key: String,
    public: String,
}

/// Does it.
pub(crate) fn run(args: KeygenArgs) -> Result<(), Failure> {
    let key = keys::generate()?;
    let public = keys::public_path(&args.out);
    let mut batch = Batch::default();
    batch.new_secret(&args.out, key.to_pem());
    batch.new_public(&public, key.public().to_pem());
    batch.write()?;
    let made = Made { pin: key.pin(), key: args.out.display().to_string(), public: public.display().to_string() };
    args.output.print(&key.pin().to_string(), &made);
    Ok(())
}

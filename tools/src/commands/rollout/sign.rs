//! `swell rollout sign`: one more signature on a half-signed rollout, and on its roster in the same act.

use std::path::PathBuf;

use clap::Args;
use groundswell_core::documents::Body;
use groundswell_core::documents::envelope::Envelope;
use groundswell_core::trust::signing::SecretKey;
use serde::Serialize;

use super::create::ShownDocument;
use crate::authoring::files::Batch;
use crate::authoring::folder::{FleetFolder, Signed, read_document};
use crate::authoring::{keys, rollout};
use crate::failure::Failure;
use crate::output::OutputArgs;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    /// The rollout (or roster) in the fleet folder.
    file: PathBuf,
    /// The fleet folder.
    #[arg(long, value_name = "DIR")]
    fleet: PathBuf,
    /// A rollout key; repeat to sign with several.
    #[arg(long = "key", required = true, value_name = "FILE")]
    keys: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    documents: Vec<ShownDocument>,
}

/// Does it.
pub(crate) fn run(args: SignArgs) -> Result<(), Failure> {
    let secrets = keys::read_secrets(&args.keys)?;
    let mut folder = FleetFolder::open(&args.fleet)?;
    let role = folder.fleet().roles.rollout.clone();
    if let Some(stranger) = secrets.iter().find(|key| !role.keys.contains(key.public())) {
        return Err(Failure::invalid(format!("{} is no key of the fleet's rollout role: nothing was signed", stranger.pin())));
    }
    let (envelope, body, _) = read_document(&args.file)?;
    let roster = match &body {
        Body::Rollout(rollout) => folder.half_signed().find(|half| half.envelope.digest() == rollout.roster.digest).cloned(),
        Body::Roster(_) => None,
        _ => {
            let what = format!(
                "{} is a {}: only rollouts and rosters are signed here",
                args.file.display(),
                rollout::kind_name(envelope.kind)
            );
            return Err(Failure::invalid(what));
        }
    };
    let mut signed = Vec::new();
    if let Some(half) = roster {
        signed.push(endorse(&mut folder, half.envelope, half.body, &secrets)?);
    }
    signed.push(endorse(&mut folder, envelope, body, &secrets)?);
    let mut batch = Batch::default();
    let mut text = String::new();
    for document in &signed {
        document.write_to(&mut batch);
        text.push_str(&format!("{}: {}\n", document.path.display(), document.standing()));
    }
    batch.write()?;
    args.output.print(&text, &Made { documents: signed.iter().map(ShownDocument::from).collect() });
    Ok(())
}

fn endorse(folder: &mut FleetFolder, mut envelope: Envelope, body: Body, secrets: &[SecretKey]) -> Result<Signed, Failure> {
    for key in secrets {
        envelope.signatures.retain(|entry| entry.kid != key.pin());
        envelope.signatures.push(key.endorse(&envelope.body));
    }
    envelope.signatures.sort();
    let place = folder.place(&body);
    folder.take(envelope, body, place)
}

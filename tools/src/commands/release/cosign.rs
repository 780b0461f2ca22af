//! `swell release cosign`: one more signature on a manifest.

use std::path::PathBuf;

use clap::Args;
use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::trust::threshold::count_distinct;
use serde::Serialize;

use crate::authoring::files::Batch;
use crate::authoring::folder::{FleetFolder, read_document, verifier};
use crate::authoring::keys;
use crate::failure::Failure;
use crate::output::OutputArgs;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct CosignArgs {
    /// The manifest; the signature is added to it.
    manifest: PathBuf,
    /// The cosigner's key.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The fleet folder: its copy gets the signature too, and a key of its release role need not be listed in the manifest.
    #[arg(long, value_name = "DIR")]
    fleet: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    release: Digest,
    manifest: String,
    pin: Digest,
    signatures: usize,
    added: bool,
}

/// Does it.
pub(crate) fn run(args: CosignArgs) -> Result<(), Failure> {
    let key = keys::read_secret(&args.key)?;
    let (mut envelope, body, _) = read_document(&args.manifest)?;
    let Body::Release(release) = &body else {
        return Err(Failure::invalid(format!("{} is a {}, not a manifest", args.manifest.display(), envelope.kind.name())));
    };
    let mut folder = args.fleet.as_deref().map(FleetFolder::open).transpose()?;
    let listed = release.keys.iter().any(|listed| listed.kid == key.pin());
    let of_role = folder.as_ref().and_then(|folder| folder.fleet().roles.release.get(&release.product));
    if !listed && !of_role.is_some_and(|role| role.keys.contains(key.public())) {
        let what = format!(
            "{} is not listed in keys of {}: sign it again with --cosigners, or name a --fleet whose release role has the key",
            key.pin(),
            args.manifest.display()
        );
        return Err(Failure::invalid(what));
    }
    let known = count_distinct(&envelope.body, &envelope.signatures, [key.public()], &verifier()).count() == 1;
    if !known {
        envelope.signatures.retain(|entry| entry.kid != key.pin());
        envelope.signatures.push(key.endorse(&envelope.body));
        envelope.signatures.sort();
    }
    let (signatures, digest) = (envelope.signatures.len(), envelope.digest());
    let mut batch = Batch::default();
    batch.public(&args.manifest, envelope.to_bytes());
    let mut standing = String::new();
    if let Some(folder) = &mut folder {
        let place = folder.place(&body);
        let signed = folder.take(envelope, body, place)?;
        signed.write_to(&mut batch);
        standing = format!("\nfleet {}: {}", folder.id(), signed.standing());
    }
    batch.write()?;
    let what = if known { "had signed already" } else { "signed" };
    let text = format!("{} {what}: {} has {signatures} signatures{standing}", key.pin(), args.manifest.display());
    let made = Made { release: digest, manifest: args.manifest.display().to_string(), pin: key.pin(), signatures, added: !known };
    args.output.print(&text, &made);
    Ok(())
}

//! `swell release verify`: a manifest against pins and a threshold, and files against the manifest.

use std::path::PathBuf;

use clap::Args;
use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::rejection::{Reason, Rejection};
use groundswell_core::text::{Product, Version};
use groundswell_core::time::Timestamp;
use groundswell_core::trust::key::PublicKey;
use groundswell_core::trust::threshold::count_distinct;
use serde::Serialize;

use crate::authoring::clock::now;
use crate::authoring::folder::{read_document, verifier};
use crate::authoring::manifest;
use crate::failure::Failure;
use crate::output::OutputArgs;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The manifest.
    file: PathBuf,
    /// Pins of the keys that count (sha256/…), separated by blanks or commas.
    #[arg(long, required = true, num_args = 1.., value_delimiter = ',', value_name = "PIN")]
    pins: Vec<Digest>,
    /// How many distinct ones must have signed.
    #[arg(long, default_value_t = 1, value_name = "M")]
    threshold: u32,
    /// It must be of this product.
    #[arg(long)]
    product: Option<Product>,
    /// The files in this folder must be those of the manifest.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Verified {
    release: Digest,
    product: Product,
    version: Version,
    sequence: u64,
    issued_at: Timestamp,
    expires_at: Timestamp,
    signers: Vec<Digest>,
    files: Option<usize>,
}

/// Does it.
pub(crate) fn run(args: VerifyArgs) -> Result<(), Failure> {
    if args.threshold == 0 || usize::try_from(args.threshold).map_or(true, |threshold| threshold > args.pins.len()) {
        let what = format!("--threshold {}: between 1 and the {} pins given", args.threshold, args.pins.len());
        return Err(Failure::invalid(what));
    }
    let refuse = |reason, field: &str, detail: String| Err(Failure::refused(&args.file, Rejection::new(reason, field, detail)));
    let (envelope, body, _) = read_document(&args.file)?;
    let Body::Release(release) = body else {
        return refuse(Reason::Malformed, "type", format!("a {}, not a manifest", envelope.kind.name()));
    };
    let keys: Vec<PublicKey> =
        release.keys.iter().filter(|listed| args.pins.contains(&listed.kid)).map(|listed| listed.spki.clone()).collect();
    let signers = count_distinct(&envelope.body, &envelope.signatures, &keys, &verifier());
    signers.require(&keys, args.threshold, "release").map_err(|rejection| Failure::refused(&args.file, rejection))?;
    if args.product.as_ref().is_some_and(|product| *product != release.product) {
        return refuse(Reason::Product, "product", format!("is a release of {}", release.product));
    }
    if release.expires_at <= now() {
        return refuse(Reason::Expired, "expiresAt", format!("expired at {}", release.expires_at));
    }
    if let Some(dir) = &args.dir {
        let differences = manifest::differences(&release, dir)?;
        if !differences.is_empty() {
            return refuse(
                Reason::Conflict,
                "artifacts",
                format!("the files are not those that were signed: {}", differences.join("; ")),
            );
        }
    }
    let verified = Verified {
        release: envelope.digest(),
        product: release.product.clone(),
        version: release.version.clone(),
        sequence: release.sequence.get(),
        issued_at: release.issued_at,
        expires_at: release.expires_at,
        signers: signers.pins().copied().collect(),
        files: args.dir.as_ref().map(|_| release.artifacts.len()),
    };
    let mut text = format!(
        "{} {} (sequence {}) is signed by {} of the {} pins, {} needed, and valid until {}",
        release.product,
        release.version,
        release.sequence,
        signers.count(),
        args.pins.len(),
        args.threshold,
        release.expires_at
    );
    if let Some(files) = verified.files {
        text.push_str(&format!("\n{files} files are those that were signed"));
    }
    args.output.print(&text, &verified);
    Ok(())
}

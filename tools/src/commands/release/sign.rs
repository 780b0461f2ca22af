//! `swell release sign`: the files of a folder become a signed manifest.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::envelope::Envelope;
use groundswell_core::documents::release::Release;
use groundswell_core::documents::tag::{ReleaseType, Spec1};
use groundswell_core::number::Sequence;
use groundswell_core::text::{Product, Version};
use groundswell_core::trust::key::{Algorithm, ListedKey};
use groundswell_core::trust::signing::SecretKey;
use serde::Serialize;

use crate::authoring::clock::now;
use crate::authoring::files::Batch;
use crate::authoring::folder::{FleetFolder, read_document};
use crate::authoring::measure::Period;
use crate::authoring::{keys, manifest};
use crate::failure::Failure;
use crate::output::OutputArgs;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    /// The folder of files. One named linux-amd64, or ending in -linux-amd64, is that platform's bare binary, and so on.
    dir: PathBuf,
    /// What is released.
    #[arg(long)]
    product: Product,
    /// Its version for people.
    #[arg(long)]
    version: Version,
    /// Its place in the product's order: higher is newer.
    #[arg(long, value_parser = parse_sequence)]
    sequence: Sequence,
    /// A release key; repeat to sign with several.
    #[arg(long = "key", required = true, value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// Public keys (.pub) of those who will cosign.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    cosigners: Vec<PathBuf>,
    /// The fleet folder: the manifest is checked against it and kept there too.
    #[arg(long, value_name = "DIR")]
    fleet: Option<PathBuf>,
    /// How long upgrades to it may start.
    #[arg(long, default_value = "365d", value_name = "TIME")]
    expires_after: Period,
    /// The lowest sequence that may upgrade directly.
    #[arg(long, value_parser = parse_sequence, value_name = "SEQUENCE")]
    upgrade_from: Option<Sequence>,
    /// A file with notes for people.
    #[arg(long, value_name = "FILE")]
    notes: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

fn parse_sequence(text: &str) -> Result<Sequence, String> {
    let number: u64 = text.parse().map_err(|_| "a sequence is a whole number")?;
    Sequence::new(number).map_err(|error| error.to_string())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    release: Digest,
    product: Product,
    version: Version,
    sequence: Sequence,
    manifest: String,
    signatures: usize,
    artifacts: Vec<String>,
}

/// Does it.
pub(crate) fn run(args: SignArgs) -> Result<(), Failure> {
    let secrets = keys::read_secrets(&args.keys)?;
    let release = body(&args, &secrets)?;
    let path = args.dir.join(manifest::MANIFEST);
    release.validate().map_err(|rejection| Failure::not_signable(path.display().to_string(), rejection))?;
    if path.exists() {
        check_existing(&path, &release)?;
    }
    let body = Body::Release(release.clone());
    let encoded = body.encode();
    let signatures = secrets.iter().map(|key| key.endorse(&encoded)).collect();
    let envelope = Envelope { kind: body.kind(), body: encoded, signatures };

    let mut batch = Batch::default();
    let mut text = String::new();
    if let Some(dir) = &args.fleet {
        let mut folder = FleetFolder::open(dir)?;
        folder.check_in_force()?;
        let _ = writeln!(text, "{}", difference(&folder, &release));
        let place = folder.place(&body);
        let signed = folder.take(envelope.clone(), body, place)?;
        signed.write_to(&mut batch);
        let _ = writeln!(text, "fleet {}: {}", folder.id(), signed.standing());
    }
    batch.public(&path, envelope.to_bytes());
    batch.write()?;

    let digest = envelope.digest();
    let mut head = format!("release {} {} (sequence {}) {digest}\n", release.product, release.version, release.sequence);
    for artifact in &release.artifacts {
        let platform = artifact.platform.as_ref().map_or("no binary", |platform| platform.as_str());
        let _ = writeln!(head, "  {} {} bytes, {platform}", artifact.name, artifact.size);
    }
    let made = Made {
        release: digest,
        product: release.product.clone(),
        version: release.version.clone(),
        sequence: release.sequence,
        manifest: path.display().to_string(),
        signatures: envelope.signatures.len(),
        artifacts: release.artifacts.iter().map(|artifact| artifact.name.to_string()).collect(),
    };
    args.output.print(&format!("{head}{text}{}", made.manifest), &made);
    Ok(())
}

fn body(args: &SignArgs, secrets: &[SecretKey]) -> Result<Release, Failure> {
    let mut listed: Vec<ListedKey> = secrets.iter().map(SecretKey::listed).collect();
    for path in &args.cosigners {
        let key = keys::read_public(path)?;
        listed.push(ListedKey { kid: key.pin(), alg: Algorithm::Es256, spki: key });
    }
    listed.sort_by_key(|key| key.kid);
    listed.dedup_by_key(|key| key.kid);
    let notes = args.notes.as_ref().map(|path| std::fs::read_to_string(path).map_err(|source| Failure::unreadable(path, source)));
    let issued_at = now();
    Ok(Release {
        kind: ReleaseType,
        spec: Spec1,
        product: args.product.clone(),
        version: args.version.clone(),
        sequence: args.sequence,
        issued_at,
        expires_at: issued_at.plus_seconds(args.expires_after.0),
        keys: listed,
        artifacts: manifest::artifacts(&args.dir)?,
        upgrade_from: args.upgrade_from,
        dead_end: None,
        blocks: Vec::new(),
        notes: notes.transpose()?,
    })
}

/// One version is not signed twice with other bytes; the same again is a no-op for everybody but its time of issue.
fn check_existing(path: &std::path::Path, release: &Release) -> Result<(), Failure> {
    let (_, body, _) = read_document(path)?;
    let Body::Release(existing) = body else { return Ok(()) };
    if existing.product == release.product && (existing.version == release.version || existing.sequence == release.sequence) {
        let what = format!(
            "{} is the manifest of {} {} (sequence {}) already: give a new version and sequence, or move the file away",
            path.display(),
            existing.product,
            existing.version,
            existing.sequence
        );
        return Err(Failure::invalid(what));
    }
    Ok(())
}

/// What changed against the newest release of the product in the folder.
fn difference(folder: &FleetFolder, release: &Release) -> String {
    let earlier = folder.shelf().releases().map(|(_, other)| other).filter(|other| other.product == release.product);
    let Some(last) = earlier.max_by_key(|other| other.sequence) else {
        return format!("first release of {}", release.product);
    };
    let mut text = format!("after {} (sequence {})", last.version, last.sequence);
    for artifact in &release.artifacts {
        match last.artifacts.iter().find(|other| other.name == artifact.name) {
            None => text.push_str(&format!(", {} is new", artifact.name)),
            Some(other) if other.sha256 != artifact.sha256 => text.push_str(&format!(", {} changed", artifact.name)),
            Some(_) => {}
        }
    }
    for gone in last.artifacts.iter().filter(|other| !release.artifacts.iter().any(|artifact| artifact.name == other.name)) {
        text.push_str(&format!(", {} is gone", gone.name));
    }
    text
}

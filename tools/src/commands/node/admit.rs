//! `swell node admit`: certificates for requests, all or none.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::certificate::Certificate;
use groundswell_core::documents::rejection::{Reason, Rejection};
use groundswell_core::documents::tag::{NodeType, Spec1};
use groundswell_core::node_id::NodeId;
use groundswell_core::text::NodeName;
use serde::Serialize;

use crate::authoring::clock::now;
use crate::authoring::files::Batch;
use crate::authoring::folder::FleetFolder;
use crate::authoring::keys;
use crate::authoring::measure::Period;
use crate::authoring::request::Request;
use crate::failure::Failure;
use crate::output::OutputArgs;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct AdmitArgs {
    /// The fleet folder.
    fleet: PathBuf,
    /// An enroll key; repeat where the fleet asks for several.
    #[arg(long = "key", required = true, value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// Request files as `swell node init` wrote them.
    #[arg(required = true, value_name = "REQUEST")]
    requests: Vec<PathBuf>,
    /// How long the certificates are valid; for good when left out.
    #[arg(long, value_name = "TIME")]
    expires_after: Option<Period>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Admitted {
    node: NodeId,
    name: NodeName,
    pool: Option<String>,
    serial: u64,
    certificate: Digest,
    file: String,
    fresh: bool,
}

/// Does it.
pub(crate) fn run(args: AdmitArgs) -> Result<(), Failure> {
    let keys = keys::read_secrets(&args.keys)?;
    let mut folder = FleetFolder::open(&args.fleet)?;
    folder.check_in_force()?;
    let mut taken: BTreeMap<NodeName, NodeId> =
        folder.shelf().certificates().map(|(_, certificate)| (certificate.name.clone(), certificate.node)).collect();
    let (mut batch, mut admitted) = (Batch::default(), Vec::new());
    for path in &args.requests {
        let request = Request::read(path)?;
        match taken.insert(request.name.clone(), request.node) {
            Some(other) if other != request.node => {
                let what = format!("{}: name: {} is the name of node {other}: nothing was signed", path.display(), request.name);
                return Err(Failure::invalid(what));
            }
            _ => {}
        }
        if folder.shelf().is_retired(&request.node) {
            let detail = format!("{} is retired, which is final: make a new identity by `swell node init`", request.node);
            return Err(Failure::refused(path, Rejection::new(Reason::Revoked, "node", detail)));
        }
        let known = folder.shelf().certificate(&request.node).cloned();
        if let Some(known) = known.as_ref().filter(|known| says_the_same(known, &request) && args.expires_after.is_none()) {
            admitted.push(row(&folder, known.clone(), false));
            continue;
        }
        let issued_at = now();
        let certificate = Certificate {
            kind: NodeType,
            spec: Spec1,
            fleet: folder.id(),
            node: request.node,
            serial: known.map_or(1, |known| known.serial + 1),
            issued_at,
            expires_at: args.expires_after.map(|Period(seconds)| issued_at.plus_seconds(seconds)),
            name: request.name,
            pool: request.pool,
            platform: request.platform,
            labels: request.labels,
            retired: false,
        };
        let signed = folder.sign(Body::Node(certificate.clone()), &keys)?;
        if let Some(lacks) = signed.lacks {
            return Err(Failure::refused(path, lacks));
        }
        signed.write_to(&mut batch);
        admitted.push(row(&folder, certificate, true));
    }
    batch.write()?;
    let mut text = String::new();
    for node in &admitted {
        let pool = node.pool.as_deref().unwrap_or("no pool (observer)");
        let what = if node.fresh { "admitted" } else { "known already" };
        let _ = writeln!(text, "{what}: {} {} in {pool}, serial {}\n  {}", node.name, node.node, node.serial, node.file);
    }
    args.output.print(&text, &admitted);
    Ok(())
}

fn says_the_same(known: &Certificate, request: &Request) -> bool {
    known.name == request.name
        && known.pool == request.pool
        && known.platform == request.platform
        && known.labels == request.labels
}

fn row(folder: &FleetFolder, certificate: Certificate, fresh: bool) -> Admitted {
    let (node, name, serial) = (certificate.node, certificate.name.clone(), certificate.serial);
    let pool = certificate.pool.as_ref().map(ToString::to_string);
    let body = Body::Node(certificate);
    let digest = Digest::of(&body.encode());
    let file = folder.path(&digest).map_or_else(|| folder.place(&body), PathBuf::from);
    Admitted { node, name, pool, serial, certificate: digest, file: file.display().to_string(), fresh }
}

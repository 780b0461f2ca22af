//! `swell fleet show`: what a fleet folder holds, verified.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use groundswell_core::digest::Digest;
use groundswell_core::documents::fleet::Role;
use groundswell_core::time::Timestamp;
use serde::Serialize;

use crate::authoring::folder::FleetFolder;
use crate::failure::Failure;
use crate::output::OutputArgs;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The fleet folder.
    dir: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    fleet: Digest,
    version: u64,
    expires_at: Timestamp,
    products: Vec<String>,
    nodes: usize,
    roster: Option<u64>,
    releases: Vec<String>,
    rollouts: Vec<ShownRollout>,
    half_signed: Vec<ShownHalf>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownRollout {
    id: String,
    generation: u64,
    state: &'static str,
    release: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownHalf {
    file: String,
    lacks: String,
}

/// Does it.
pub(crate) fn run(args: ShowArgs) -> Result<(), Failure> {
    let folder = FleetFolder::open(&args.dir)?;
    let (shelf, fleet) = (folder.shelf(), folder.fleet());
    let shown = Shown {
        fleet: folder.id(),
        version: fleet.version,
        expires_at: fleet.expires_at,
        products: fleet.roles.release.keys().map(ToString::to_string).collect(),
        nodes: shelf.certificates().filter(|(_, certificate)| certificate.pool.is_some() && !certificate.retired).count(),
        roster: shelf.rosters().last().map(|(_, roster)| roster.version),
        releases: shelf.releases().map(|(_, release)| format!("{} {}", release.product, release.version)).collect(),
        rollouts: shelf
            .rollouts()
            .map(|stands| ShownRollout {
                id: stands.rollout.id.to_string(),
                generation: stands.rollout.generation.get(),
                state: super::super::rollout::state_name(stands.state()),
                release: format!("{} {}", stands.rollout.release.product, stands.rollout.release.version),
            })
            .collect(),
        half_signed: folder
            .half_signed()
            .map(|half| ShownHalf { file: half.path.display().to_string(), lacks: half.lacks.detail.clone() })
            .collect(),
    };
    let mut text = format!("fleet {}\nversion {}, valid until {}\n", shown.fleet, shown.version, shown.expires_at);
    let roles = &fleet.roles;
    let of = |role: &Role| format!("{} of {}", role.threshold, role.keys.len());
    let _ = writeln!(text, "root {}, rollout {}, enroll {}", of(&roles.root), of(&roles.rollout), of(&roles.enroll));
    for (product, role) in &roles.release {
        let _ = writeln!(text, "product {product}: release {}", of(role));
    }
    let _ = writeln!(text, "{} nodes, roster {}", shown.nodes, shown.roster.map_or("none".into(), |version| version.to_string()));
    for release in &shown.releases {
        let _ = writeln!(text, "release {release}");
    }
    for rollout in &shown.rollouts {
        let _ =
            writeln!(text, "rollout {} to {}: generation {}, {}", rollout.id, rollout.release, rollout.generation, rollout.state);
    }
    for half in &shown.half_signed {
        let _ = writeln!(text, "half-signed {}: {}", half.file, half.lacks);
    }
    args.output.print(&text, &shown);
    Ok(())
}

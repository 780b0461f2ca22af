//! `swell rollout create`: a rollout from a reviewed file, with the roster cut and signed in the same act.

use std::path::PathBuf;

use clap::Args;
use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::text::RolloutId;
use serde::Serialize;

use super::moved;
use super::plan::{schedule, show_membership, show_schedule};
use super::steer::Forgive;
use crate::authoring::files::Batch;
use crate::authoring::folder::{FleetFolder, Signed};
use crate::authoring::rollout_file::RolloutFile;
use crate::authoring::roster::Wishes;
use crate::authoring::{keys, rollout, roster};
use crate::failure::Failure;
use crate::online::socket::SocketArgs;
use crate::output::OutputArgs;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The rollout as it was reviewed.
    file: PathBuf,
    /// The fleet folder.
    #[arg(long, value_name = "DIR")]
    fleet: PathBuf,
    /// A rollout key; repeat where the fleet asks for several, or let others add theirs by `swell rollout sign`.
    #[arg(long = "key", required = true, value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// Write a claim off for good with the next roster: a node's id, the last eight characters of it or its name, and the
    /// claim as `swell leases` shows it. The agent must say that it is over or silent. Repeat for several.
    #[arg(long, value_name = "NODE:CLAIM")]
    write_off: Vec<Forgive>,
    #[command(flatten)]
    socket: SocketArgs,
    /// The rollout's id. Left out: the file's, else the one that `swell rollout plan` printed for the same file.
    #[arg(long)]
    id: Option<RolloutId>,
    #[command(flatten)]
    output: OutputArgs,
}

/// A signed document as `--json` shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShownDocument {
    /// Its body digest.
    pub(crate) digest: Digest,
    /// Its file.
    pub(crate) file: String,
    /// Whether it has all signatures that it needs.
    pub(crate) complete: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    id: RolloutId,
    generation: u64,
    rollout: ShownDocument,
    /// Null when the newest roster still holds.
    roster: Option<ShownDocument>,
    roster_version: u64,
    /// The version up to which that roster says that all older promises have ended.
    settled: u64,
    waves: Vec<usize>,
    /// Rollouts that are over once this one is published.
    supersedes: Vec<RolloutId>,
}

impl From<&Signed> for ShownDocument {
    fn from(signed: &Signed) -> Self {
        Self { digest: signed.digest, file: signed.path.display().to_string(), complete: signed.lacks.is_none() }
    }
}

/// Does it.
pub(crate) fn run(args: CreateArgs) -> Result<(), Failure> {
    let mut file = RolloutFile::read(&args.file)?;
    file.id = args.id.or(file.id);
    let secrets = keys::read_secrets(&args.keys)?;
    let mut folder = FleetFolder::open(&args.fleet)?;
    folder.check_in_force()?;
    let (digest, release, taken) = rollout::find_release(&mut folder, &file.target)?;
    let seen = moved::ask(&args.socket, folder.id());
    let write_off = moved::write_off(&folder, args.write_off, &args.socket)?;
    let wishes = Wishes { seen: seen.as_ref().ok().and_then(Option::as_ref), write_off: &write_off };
    let cut = roster::cut(&folder, &wishes)?;
    let draft = rollout::draft(&folder, &file, digest, &release, &cut)?;
    rollout::check_draft(&folder, &args.file, &draft, &cut)?;
    let plan = schedule(&folder, &draft, &cut, None);
    let mut text = format!("fleet {}\n{}{}", folder.id(), show_membership(&cut), show_schedule(&draft, &plan));
    text.push_str(&moved::show(&cut, &seen));
    let supersedes = rollout::taken_over(&folder, &draft);
    text.push_str(&rollout::show_taken_over(&supersedes, &draft));
    let skip = rollout::without_binary(&folder, &draft, &release, &cut);
    if !skip.is_empty() {
        text.push_str(&format!("the release has no binary for the platform of: {} (they skip it)\n", rollout::list(&skip)));
    }

    let mut batch = Batch::default();
    if let Some(taken) = taken {
        taken.write_to(&mut batch);
    }
    let roster = if cut.fresh { Some(folder.sign(Body::Roster(cut.roster.clone()), &secrets)?) } else { None };
    if let Some(roster) = &roster {
        roster.write_to(&mut batch);
        text.push_str(&format!("roster {}: {}\n  {}\n", cut.roster.version, roster.standing(), roster.path.display()));
    }
    let signed = folder.sign(Body::Rollout(draft.clone()), &secrets)?;
    signed.write_to(&mut batch);
    text.push_str(&format!("rollout {}: {}\n  {}\n", draft.id, signed.standing(), signed.path.display()));
    batch.write()?;

    let made = Made {
        id: draft.id.clone(),
        generation: draft.generation.get(),
        rollout: ShownDocument::from(&signed),
        roster: roster.as_ref().map(ShownDocument::from),
        roster_version: cut.roster.version,
        settled: cut.roster.settled,
        waves: plan.waves.iter().map(|wave| wave.nodes.len()).collect(),
        supersedes,
    };
    args.output.print(&text, &made);
    Ok(())
}

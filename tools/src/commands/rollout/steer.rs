//! `swell rollout pause`, `resume`, `abort`: the next generation of a rollout.

use std::path::PathBuf;

use clap::Args;
use groundswell_core::documents::Body;
use groundswell_core::documents::rollout::Forgiven;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::ClaimName;
use groundswell_core::text::{Reason, RolloutId};
use serde::{Deserialize, Serialize};

use super::create::ShownDocument;
use super::state_name;
use crate::authoring::files::Batch;
use crate::authoring::folder::FleetFolder;
use crate::authoring::keys;
use crate::authoring::rollout::{Step, next_generation};
use crate::failure::Failure;
use crate::output::OutputArgs;

/// What is typed for all three.
#[derive(Debug, Args)]
pub(crate) struct SteerArgs {
    /// The rollout's id.
    id: RolloutId,
    /// The fleet folder.
    #[arg(long, value_name = "DIR")]
    fleet: PathBuf,
    /// A rollout key; repeat where several must sign.
    #[arg(long = "key", required = true, value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// Why, for people; at most 500 characters.
    #[arg(long, default_value = "")]
    reason: Reason,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is typed for `pause`.
#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    steer: SteerArgs,
}

/// What is typed for `resume`.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    steer: SteerArgs,
    /// Accept the failure of a node: its id, the last eight characters of it or its name, and the claim that failed (7.412)
    /// where there was one. Repeat for several.
    #[arg(long, value_name = "NODE[:CLAIM]")]
    forgive: Vec<Forgive>,
    /// Accept every failure in this file, which `swell rollouts --json` printed.
    #[arg(long, value_name = "FILE")]
    forgive_failed: Option<PathBuf>,
    /// Let the forgiven nodes try again.
    #[arg(long)]
    retry: bool,
}

/// What is typed for `abort`.
#[derive(Debug, Args)]
pub(crate) struct AbortArgs {
    #[command(flatten)]
    steer: SteerArgs,
    /// Send back the nodes that have not confirmed. Needs the threshold of keys.
    #[arg(long)]
    rollback: bool,
}

/// `NODE` or `NODE:CLAIM`.
#[derive(Clone, Debug)]
pub(super) struct Forgive {
    pub(super) node: Who,
    pub(super) claim: Option<ClaimName>,
}

/// How a node is named on the command line.
#[derive(Clone, Debug)]
pub(super) enum Who {
    Id(NodeId),
    /// Its name, or the end of its id as tables show it: the fleet folder knows whose.
    Short(String),
}

impl Who {
    /// Which node of the folder is meant. `flag` names it in errors.
    pub(super) fn find(self, folder: &FleetFolder, flag: &str) -> Result<NodeId, Failure> {
        let short = match self {
            Self::Id(node) => return Ok(node),
            Self::Short(short) => short,
        };
        let all = folder.shelf().certificates().map(|(_, certificate)| certificate);
        let meant = all.filter(|certificate| certificate.name.as_str() == short || certificate.node.short() == short);
        let nodes: Vec<NodeId> = meant.map(|certificate| certificate.node).collect();
        match nodes.as_slice() {
            [node] => Ok(*node),
            [] => Err(Failure::invalid(format!("{flag}: {} knows no node `{short}`: give its id", folder.dir().display()))),
            several => {
                let ids: Vec<String> = several.iter().map(ToString::to_string).collect();
                Err(Failure::invalid(format!("{flag}: `{short}` may be {}: give its id", ids.join(" or "))))
            }
        }
    }
}

impl std::str::FromStr for Forgive {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (node, claim) = text.split_once(':').map_or((text, None), |(node, claim)| (node, Some(claim)));
        let node = node.parse().map_or_else(|_| Who::Short(node.to_owned()), Who::Id);
        let claim = claim.map(str::parse::<ClaimName>).transpose().map_err(|error| error.to_string())?;
        Ok(Self { node, claim })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    id: RolloutId,
    generation: u64,
    state: &'static str,
    rollout: ShownDocument,
}

/// Does `pause`.
pub(crate) fn pause(args: PauseArgs) -> Result<(), Failure> {
    steer(args.steer, |_| Ok(Step::Pause))
}

/// Does `resume`.
pub(crate) fn resume(args: ResumeArgs) -> Result<(), Failure> {
    let (mut forgive, retry) = (args.forgive, args.retry);
    if let Some(path) = &args.forgive_failed {
        forgive.extend(failed(path, &args.steer.id)?);
    }
    steer(args.steer, |folder| {
        let forgiven = forgive
            .into_iter()
            .map(|Forgive { node, claim }| Ok(Forgiven { node: node.find(folder, "--forgive")?, claim, retry }));
        Ok(Step::Resume(forgiven.collect::<Result<_, Failure>>()?))
    })
}

/// Does `abort`.
pub(crate) fn abort(args: AbortArgs) -> Result<(), Failure> {
    steer(args.steer, |_| Ok(Step::Abort { rollback: args.rollback }))
}

fn steer(args: SteerArgs, step: impl FnOnce(&FleetFolder) -> Result<Step, Failure>) -> Result<(), Failure> {
    let secrets = keys::read_secrets(&args.keys)?;
    let mut folder = FleetFolder::open(&args.fleet)?;
    let next = next_generation(&folder, &args.id, step(&folder)?, args.reason)?;
    let (id, generation, state) = (next.id.clone(), next.generation.get(), state_name(next.state));
    let signed = folder.sign(Body::Rollout(next), &secrets)?;
    let mut batch = Batch::default();
    signed.write_to(&mut batch);
    batch.write()?;
    let text = format!("rollout {id}, generation {generation}: {state}; {}\n  {}", signed.standing(), signed.path.display());
    args.output.print(&text, &Made { id, generation, state, rollout: ShownDocument::from(&signed) });
    Ok(())
}

/// The part of `swell rollouts --json` that is read here: all rollouts, or one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Seen {
    All(Vec<SeenRollout>),
    One(SeenRollout),
}

#[derive(Deserialize)]
struct SeenRollout {
    id: RolloutId,
    nodes: Vec<SeenNode>,
}

#[derive(Deserialize)]
struct SeenNode {
    node: NodeId,
    standing: String,
    #[serde(default)]
    claim: Option<ClaimName>,
}

fn failed(path: &std::path::Path, id: &RolloutId) -> Result<Vec<Forgive>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|source| Failure::unreadable(path, source))?;
    let what = || format!("{} is not what `swell rollouts --json` prints", path.display());
    let seen: Seen = serde_json::from_str(&text).map_err(|error| Failure::invalid_by(what(), error))?;
    let all = match seen {
        Seen::All(all) => all,
        Seen::One(one) => vec![one],
    };
    let seen = all.into_iter().find(|seen| seen.id == *id);
    let seen = seen.ok_or_else(|| Failure::invalid(format!("{} says nothing about rollout {id}", path.display())))?;
    let failed = seen.nodes.into_iter().filter(|node| node.standing == "failed");
    Ok(failed.map(|SeenNode { node, claim, .. }| Forgive { node: Who::Id(node), claim }).collect())
}

//! `swell rollout plan`: who is in which wave and when at the earliest, from the code that the agents run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use groundswell_core::documents::Body;
use groundswell_core::documents::rollout::Rollout;
use groundswell_core::lease::budget::slots;
use groundswell_core::rollout::PoolTerms;
use groundswell_core::rollout::plan::{Plan, plan};
use groundswell_core::text::{Pool, RolloutId};
use serde::Serialize;

use crate::authoring::clock::now;
use crate::authoring::folder::{FleetFolder, read_document};
use crate::authoring::measure::{Period, seconds};
use crate::authoring::rollout_file::RolloutFile;
use crate::authoring::roster::{Cut, Wishes};
use crate::authoring::{rollout, roster};
use crate::failure::Failure;
use crate::output::{OutputArgs, counted};

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// A rollout as it was reviewed (.toml), or a signed one (.json).
    file: PathBuf,
    /// The fleet folder.
    #[arg(long, value_name = "DIR")]
    fleet: PathBuf,
    /// How long one node takes from its claim until it confirms; the rollout's confirm-after when left out.
    #[arg(long, value_name = "TIME")]
    upgrade_takes: Option<Period>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    rollout: String,
    /// Set when the file names no id: what to write into it to keep this plan whatever else changes.
    keep_by: Option<String>,
    roster: u64,
    waves: Vec<ShownWave>,
    left_out: Vec<String>,
    late_joiners: bool,
    supersedes: Vec<RolloutId>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownWave {
    index: u32,
    opens_at: String,
    confirmed_at: String,
    passes_at: String,
    approval: bool,
    pools: BTreeMap<String, u32>,
    nodes: Vec<ShownNode>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownNode {
    node: String,
    name: String,
    pool: String,
    dormant: bool,
    starts_at: String,
}

/// Does it.
pub(crate) fn run(args: PlanArgs) -> Result<(), Failure> {
    let mut folder = FleetFolder::open(&args.fleet)?;
    let (draft, cut, keep_by) = if args.file.extension().is_some_and(|extension| extension == "json") {
        let (rollout, cut) = signed_rollout(&folder, &args.file)?;
        (rollout, cut, None)
    } else {
        let file = RolloutFile::read(&args.file)?;
        let (digest, release, _) = rollout::find_release(&mut folder, &file.target)?;
        let cut = roster::cut(&folder, &Wishes::default())?;
        let draft = rollout::draft(&folder, &file, digest, &release, &cut)?;
        rollout::check_draft(&folder, &args.file, &draft, &cut)?;
        let keep_by = file.id.is_none().then(|| format!("id = \"{}\"", draft.id));
        (draft, cut, keep_by)
    };
    let plan = schedule(&folder, &draft, &cut, args.upgrade_takes.map(|Period(seconds)| seconds));
    let supersedes = rollout::taken_over(&folder, &draft);
    let taken_over = rollout::show_taken_over(&supersedes, &draft);
    let text = format!("{}{}{taken_over}", show_membership(&cut), show_schedule(&draft, &plan));
    if let Some(line) = &keep_by {
        let file = args.file.display();
        eprintln!(
            "{file} names no id, so it follows from the file, the release and the roster, and the waves from it: `create` gives \
             the same while none of them changes; write {line} into the file to keep this order whatever does"
        );
    }
    args.output.print(&text, &shown(&draft, &cut, &plan, keep_by, supersedes));
    Ok(())
}

fn signed_rollout(folder: &FleetFolder, path: &std::path::Path) -> Result<(Rollout, Cut), Failure> {
    let (envelope, body, _) = read_document(path)?;
    let Body::Rollout(rollout) = body else {
        return Err(Failure::invalid(format!("{} is a {}, not a rollout", path.display(), envelope.kind.name())));
    };
    let half = folder.half_signed().find(|half| half.envelope.digest() == rollout.roster.digest).map(|half| &half.body);
    let roster = match folder.shelf().body(&rollout.roster.digest).or(half) {
        Some(Body::Roster(roster)) => roster.clone(),
        _ => {
            let what =
                format!("{} holds no roster {}, which {} names", folder.dir().display(), rollout.roster.digest, path.display());
            return Err(Failure::invalid(what));
        }
    };
    let digest = rollout.roster.digest;
    let cut = Cut { roster, digest, fresh: false, joined: Vec::new(), left: Vec::new(), moved: Vec::new() };
    Ok((rollout, cut))
}

/// The schedule of a rollout over a roster, when published now.
pub(super) fn schedule(folder: &FleetFolder, rollout: &Rollout, cut: &Cut, upgrade_seconds: Option<u64>) -> Plan {
    let members = rollout::members(folder, cut);
    let mut sizes: BTreeMap<Pool, usize> = BTreeMap::new();
    for pool in members.iter().filter_map(|member| member.certificate.pool.clone()) {
        *sizes.entry(pool).or_default() += 1;
    }
    let terms = sizes.into_iter().map(|(pool, nodes)| {
        let policy = cut.roster.pools.get(&pool).cloned().unwrap_or_default();
        let ordinary = slots(nodes, policy.budget_ppm);
        let count = if rollout.urgent { ordinary.max(slots(nodes, policy.urgent_budget_ppm)) } else { ordinary };
        (pool, PoolTerms { slots: u32::from(count), start_within_seconds: policy.start_within_seconds })
    });
    let takes = upgrade_seconds.unwrap_or(rollout.confirm_after_seconds);
    plan(rollout, &members, &terms.collect(), now(), takes)
}

/// How the roster differs from the one before.
pub(super) fn show_membership(cut: &Cut) -> String {
    let mut text = format!("roster {}, {}", cut.roster.version, counted(cut.roster.nodes.len(), "node"));
    if !cut.fresh {
        text.push_str(", unchanged");
    }
    text.push('\n');
    for (what, names) in [("joined", &cut.joined), ("left", &cut.left), ("changed", &cut.moved)] {
        if cut.fresh && !names.is_empty() {
            let _ = writeln!(text, "  {what}: {}", rollout::list(names));
        }
    }
    text
}

/// The schedule for people.
pub(super) fn show_schedule(rollout: &Rollout, plan: &Plan) -> String {
    let from = rollout.from.as_ref().map_or("any version", |version| version.as_str());
    let mut text = format!("rollout {}: {} from {from} to {}\n", rollout.id, rollout.release.product, rollout.release.version);
    for (wave, terms) in plan.waves.iter().zip(&rollout.waves) {
        let pools: Vec<String> = wave.pools.iter().map(|(pool, count)| format!("{pool} {count}")).collect();
        let _ = write!(text, "  wave {}: {}", wave.index + 1, counted(wave.nodes.len(), "node"));
        if wave.nodes.is_empty() {
            text.push_str(", passes at once\n");
            continue;
        }
        let _ = write!(text, " ({}), opens {}, soaks {}", pools.join(", "), wave.opens_at, seconds(terms.soak_seconds));
        let _ = writeln!(text, ", passes {}{}", wave.passes_at, if wave.approval { " after a signed advance" } else { "" });
        let names: Vec<&str> = wave.nodes.iter().take(10).map(|node| node.name.as_str()).collect();
        let more = wave.nodes.len().saturating_sub(names.len());
        let _ = writeln!(text, "    {}{}", names.join(", "), if more > 0 { format!(" and {more} more") } else { String::new() });
    }
    if !plan.left_out.is_empty() {
        let _ = writeln!(text, "  {} candidates are in no wave and stay where they are", plan.left_out.len());
    }
    text
}

fn shown(rollout: &Rollout, cut: &Cut, plan: &Plan, keep_by: Option<String>, supersedes: Vec<RolloutId>) -> Shown {
    Shown {
        rollout: rollout.id.to_string(),
        keep_by,
        roster: cut.roster.version,
        waves: plan
            .waves
            .iter()
            .map(|wave| ShownWave {
                index: wave.index,
                opens_at: wave.opens_at.to_string(),
                confirmed_at: wave.confirmed_at.to_string(),
                passes_at: wave.passes_at.to_string(),
                approval: wave.approval,
                pools: wave.pools.iter().map(|(pool, count)| (pool.to_string(), *count)).collect(),
                nodes: wave
                    .nodes
                    .iter()
                    .map(|node| ShownNode {
                        node: node.node.to_string(),
                        name: node.name.to_string(),
                        pool: node.pool.to_string(),
                        dormant: node.dormant,
                        starts_at: node.starts_at.to_string(),
                    })
                    .collect(),
            })
            .collect(),
        left_out: plan.left_out.iter().map(ToString::to_string).collect(),
        late_joiners: plan.late_joiners,
        supersedes,
    }
}

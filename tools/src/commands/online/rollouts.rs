//! `swell rollouts`: every rollout with its waves; one with its nodes.

use std::fmt::Write as _;

use clap::Args;
use groundswell_core::node::view::{RolloutView, WaveView};

use crate::failure::Failure;
use crate::online::socket::SocketArgs;
use crate::online::table::{Table, or_dash, word};
use crate::output::OutputArgs;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct RolloutsArgs {
    /// One rollout, with its nodes; all, with their waves, when left out.
    id: Option<String>,
    #[command(flatten)]
    socket: SocketArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Does it.
pub(crate) fn run(args: &RolloutsArgs) -> Result<(), Failure> {
    let mut rollouts: Vec<RolloutView> = args.socket.read("/v1/rollouts")?;
    if let Some(id) = &args.id {
        rollouts.retain(|rollout| rollout.id == *id);
        if rollouts.is_empty() {
            return Err(Failure::invalid(format!("no rollout {id} is known to this agent: see `swell rollouts`")));
        }
    }
    let mut text = String::new();
    for rollout in &rollouts {
        text.push_str(&one(rollout, args.id.is_some()));
    }
    if rollouts.is_empty() {
        text.push_str("no rollout is known here\n");
    }
    args.output.print(&text, &rollouts);
    Ok(())
}

fn one(rollout: &RolloutView, with_nodes: bool) -> String {
    let mut text = String::new();
    let standing = match (rollout.superseded, rollout.complete) {
        (true, _) => ", superseded",
        (false, true) => ", complete",
        (false, false) => "",
    };
    let (id, product, version) = (&rollout.id, &rollout.product, &rollout.version);
    let reason = if rollout.reason.is_empty() { String::new() } else { format!(" ({})", rollout.reason) };
    let generation = rollout.generation;
    let _ = writeln!(text, "{id}: {product} {version}, generation {generation}, {}{standing}{reason}", rollout.state);
    if let Some(halted) = &rollout.halted {
        let _ = writeln!(text, "HALTED: {}", halted.strip_prefix("halted: ").unwrap_or(halted));
    }
    let mut table = Table::new(&["WAVE", "STATE", "NODES", "SOAKED", "ACTIVE", "WAITING", "UNSEEN", "FAILED", "OTHER", "NOTE"]);
    // The wave for late joiners is worth a line when there are any.
    for wave in rollout.waves.iter().filter(|wave| !wave.implicit || wave.members > 0) {
        table.row(wave_row(wave));
    }
    let _ = write!(text, "{table}");
    if with_nodes {
        let mut table = Table::new(&["NODE", "POOL", "WAVE", "STANDING", "PHASE", "HOLD", "FROM", "RUNS", "STARTED", "ERROR"]);
        for node in &rollout.nodes {
            table.row([
                node.name.clone(),
                node.pool.clone(),
                node.wave.saturating_add(1).to_string(),
                word(node.standing),
                or_dash(node.phase.map(word)),
                or_dash(node.hold),
                or_dash(node.from_version.as_ref()),
                or_dash(node.version.as_ref()),
                or_dash(node.started_at),
                node.error.clone().unwrap_or_default(),
            ]);
        }
        let _ = write!(text, "\n{table}");
    }
    text.push('\n');
    text
}

fn wave_row(wave: &WaveView) -> [String; 10] {
    let state = match (wave.passed, wave.open) {
        (true, _) => "passed",
        (false, true) => "open",
        (false, false) => "shut",
    };
    [
        wave.index.saturating_add(1).to_string(),
        state.to_owned(),
        wave.members.to_string(),
        wave.soaked.to_string(),
        wave.in_progress.to_string(),
        wave.waiting.to_string(),
        wave.unseen.to_string(),
        wave.failed.to_string(),
        (wave.not_applicable + wave.forgiven).to_string(),
        wave.note.clone(),
    ]
}

//! `swell status`: what this machine's agent runs, waits for, and is connected to.

use std::fmt::Write as _;

use clap::Args;
use groundswell_agent::handle::StatusView;

use crate::failure::Failure;
use crate::online::socket::SocketArgs;
use crate::online::table::{Table, or_dash, word};
use crate::output::OutputArgs;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    socket: SocketArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Does it.
pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    let status: StatusView = args.socket.read("/v1/status")?;
    args.output.print(&text(&status), &status);
    Ok(())
}

fn text(status: &StatusView) -> String {
    let (node, agent) = (&status.node, &status.agent);
    let mut text = String::new();
    for fault in &agent.faults {
        let _ = writeln!(text, "FAULT   {}: {} (since {})", fault.what, fault.detail, fault.since);
    }
    let name = node.name.as_deref().unwrap_or("(no certificate)");
    let pool = node.pool.as_ref().map_or_else(|| "in no pool".to_owned(), |pool| format!("in pool {pool}"));
    let _ = writeln!(text, "node    {name} {pool}, {} ({})", or_dash(node.platform.as_ref()), node.node);
    let version = node.fleet_version.map_or_else(|| "no document".to_owned(), |version| format!("version {version}"));
    let until = node.fleet_expires_at.map_or_else(String::new, |until| format!(", valid until {until}"));
    let _ = writeln!(text, "fleet   {} {version}{until}", node.fleet);
    let roster = node.roster_version.map_or_else(|| "no roster".to_owned(), |version| format!("roster {version}"));
    let _ = writeln!(text, "mesh    {} connected, {} heard of, {roster}", node.peers, node.members);
    if let Some(why) = &node.outer_door {
        let _ = writeln!(text, "DOOR    {why}");
        if let Some(last) = &agent.last_visit_failure {
            let _ = writeln!(text, "        the last visit did not bring everything: {last}");
        }
    }
    let _ = writeln!(text, "agent   {} since {}", agent.version, agent.started_at);
    for download in &agent.downloads {
        let _ = writeln!(text, "        {download}");
    }
    for upload in &agent.uploads {
        let _ = writeln!(text, "        {upload}");
    }
    let mut table = Table::new(&["PRODUCT", "VERSION", "FLOOR", "ROLLOUT", "TARGET", "WAVE", "PHASE", "SLOT", "HOLD"]);
    for product in &node.products {
        table.row([
            product.product.clone(),
            or_dash(product.version.as_ref()),
            product.floor.to_string(),
            product.rollout.as_ref().map_or_else(|| "-".to_owned(), |id| format!("{id}#{}", product.generation.unwrap_or(0))),
            or_dash(product.target.as_ref()),
            or_dash(product.wave.map(|wave| wave.saturating_add(1))),
            word(product.phase),
            or_dash(product.slot),
            product.hold.as_ref().map_or_else(String::new, |hold| hold.text.clone()),
        ]);
    }
    if !table.is_empty() {
        let _ = write!(text, "\n{table}");
    }
    text
}

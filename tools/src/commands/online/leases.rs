//! `swell leases`: who holds which slot of which pool's disruption budget.

use clap::Args;
use groundswell_core::node::view::LeaseView;

use crate::failure::Failure;
use crate::online::socket::SocketArgs;
use crate::online::table::{Table, node, or_dash, word};
use crate::output::OutputArgs;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct LeasesArgs {
    #[command(flatten)]
    socket: SocketArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Does it.
pub(crate) fn run(args: &LeasesArgs) -> Result<(), Failure> {
    let leases: Vec<LeaseView> = args.socket.read("/v1/leases")?;
    let mut table = Table::new(&["POOL", "SLOT", "HOLDER", "ID", "CLAIM", "PHASE", "FOR", "GRANTS", "HEARD", "LOST IN"]);
    for lease in &leases {
        let seconds = |seconds: u64| format!("{seconds} s");
        table.row([
            lease.pool.clone(),
            lease.slot.to_string(),
            lease.holder.as_ref().map_or_else(|| "free".to_owned(), |holder| node(lease.name.as_deref(), holder)),
            or_dash(lease.holder.map(groundswell_core::node_id::NodeId::short)),
            or_dash(lease.claim),
            or_dash(lease.phase.map(word)),
            or_dash(lease.purpose.as_ref()),
            format!("{} of {} ({} wardens)", lease.grants, lease.quorum, lease.wardens),
            or_dash(lease.heard_seconds.map(seconds)),
            or_dash(lease.presumed_lost_in_seconds.map(seconds)),
        ]);
    }
    let text = if leases.is_empty() { "no roster is known here, so there are no slots\n".to_owned() } else { table.to_string() };
    args.output.print(&text, &leases);
    Ok(())
}

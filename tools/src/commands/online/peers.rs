//! `swell peers`: the members of the mesh as this agent sees them.

use clap::Args;
use groundswell_core::node::view::PeerView;

use crate::failure::Failure;
use crate::online::socket::SocketArgs;
use crate::online::table::{Table, node, or_dash};
use crate::output::OutputArgs;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct PeersArgs {
    #[command(flatten)]
    socket: SocketArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Does it.
pub(crate) fn run(args: &PeersArgs) -> Result<(), Failure> {
    let peers: Vec<PeerView> = args.socket.read("/v1/peers")?;
    let mut table = Table::new(&["NODE", "POOL", "LINK", "HEARD", "RUNS", "BLOBS", "ADDRESS", "ID"]);
    for peer in &peers {
        table.row([
            node(peer.name.as_deref(), &peer.node),
            or_dash(peer.pool.as_ref()),
            match (peer.convicted, peer.connected) {
                (true, _) => "CONVICTED",
                (false, true) => "up",
                (false, false) => "-",
            }
            .to_owned(),
            or_dash(peer.heard_seconds.map(|seconds| format!("{seconds} s"))),
            if peer.running.is_empty() { "-".to_owned() } else { peer.running.join(", ") },
            peer.serves.len().to_string(),
            or_dash(peer.addresses.first()),
            peer.node.to_string(),
        ]);
    }
    let text = if peers.is_empty() { "no other member is known here\n".to_owned() } else { table.to_string() };
    args.output.print(&text, &peers);
    Ok(())
}

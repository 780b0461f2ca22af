//! The top of what can be typed. Each command's own arguments stand in its file under [`crate::commands`].

use clap::{Parser, Subcommand};

use crate::commands::{agent, fleet, helper, node, online, release, rollout, supervise};

/// Rolls signed releases out over a fleet without a control plane.
///
/// Exit codes: 0 done, 1 failed, 2 invalid input (nothing written), 3 cannot reach the agent or a peer, 4 refused by trust.
#[derive(Debug, Parser)]
#[command(name = "swell", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a fleet and look at its folder.
    #[command(subcommand)]
    Fleet(fleet::FleetCommand),
    /// Admit nodes.
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Sign and check releases.
    #[command(subcommand)]
    Release(release::ReleaseCommand),
    /// Make, plan and steer rollouts.
    #[command(subcommand)]
    Rollout(rollout::RolloutCommand),
    /// Hand documents and files to any agent; end when enough members hold them.
    Publish(online::publish::PublishArgs),
    /// What this machine's agent runs and waits for.
    Status(online::status::StatusArgs),
    /// Why this node is not moving.
    Explain(online::explain::ExplainArgs),
    /// Rollouts with their waves, or one with its nodes.
    Rollouts(online::rollouts::RolloutsArgs),
    /// The members of the mesh.
    Peers(online::peers::PeersArgs),
    /// Who holds which slot of which pool's budget.
    Leases(online::leases::LeasesArgs),
    /// What happened, and what happens now.
    Events(online::events::EventsArgs),
    /// Run this machine's agent.
    Agent(agent::AgentArgs),
    /// Run the process with rights beside an agent that has none: it alone writes slots and starts versions.
    Helper(helper::HelperArgs),
    /// Run this machine's agent as a child: start it again when it ends, and go back when a new build of it fails.
    Supervise(supervise::SuperviseArgs),
}

//! The top of what can be typed. Each command's own arguments stand in its file under [`crate::commands`].

use clap::{Parser, Subcommand};

use crate::commands::{fleet, node, release, rollout};

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
}

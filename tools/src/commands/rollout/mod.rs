//! `swell rollout`: make, plan, sign and steer rollouts. All offline, but that `create` asks an agent, where one answers,
//! how far leases have moved to the newest roster; `swell publish` brings them to the mesh.

mod create;
mod moved;
mod plan;
mod sign;
mod steer;

use clap::Subcommand;
use groundswell_core::documents::rollout::State;

use crate::failure::Failure;

/// Commands about rollouts.
#[derive(Debug, Subcommand)]
pub(crate) enum RolloutCommand {
    /// Make and sign a rollout, and the roster that it counts over when membership changed.
    Create(create::CreateArgs),
    /// Print the exact schedule, offline, from the code that the agents run.
    Plan(plan::PlanArgs),
    /// Add a signature to a rollout and its roster.
    Sign(sign::SignArgs),
    /// Stop what has not started. One rollout key suffices.
    Pause(steer::PauseArgs),
    /// Go on, and forgive failures.
    Resume(steer::ResumeArgs),
    /// Stop for good. One rollout key suffices without --rollback.
    Abort(steer::AbortArgs),
}

/// Runs one.
pub(crate) fn run(command: RolloutCommand) -> Result<(), Failure> {
    match command {
        RolloutCommand::Create(args) => create::run(args),
        RolloutCommand::Plan(args) => plan::run(args),
        RolloutCommand::Sign(args) => sign::run(args),
        RolloutCommand::Pause(args) => steer::pause(args),
        RolloutCommand::Resume(args) => steer::resume(args),
        RolloutCommand::Abort(args) => steer::abort(args),
    }
}

/// A state as documents write it.
pub(crate) fn state_name(state: State) -> &'static str {
    match state {
        State::Running => "running",
        State::Paused => "paused",
        State::Aborted => "aborted",
    }
}

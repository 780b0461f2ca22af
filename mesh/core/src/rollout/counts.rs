//! Which rollout counts for a node and product (design, section 6; cases D9, D10, D23).
//!
//! Walks the rollouts of the product that are in force, from the highest release sequence down.

use super::member::{in_scope, scopes_overlap};
use crate::documents::certificate::Certificate;
use crate::documents::rollout::{Mode, Rollout, State};
use crate::text::{Product, RolloutId};

/// A valid rollout, at its highest generation, as this node knows it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The generation.
    pub rollout: &'a Rollout,
    /// The node's certificate by the rollout's roster; `None` when that does not list the node.
    pub listed: Option<&'a Certificate>,
    /// Whether this node remembers that its last wave passed.
    pub complete: bool,
}

/// What counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting<'a> {
    /// No rollout of the product has this node in its scope, or none is offered to a late joiner yet.
    None,
    /// The rollout that had it is over for all: a newer one overlaps its scope without having this node.
    Over {
        /// The rollout that is over.
        rollout: &'a Rollout,
        /// The one that took over.
        by: &'a Rollout,
    },
    /// Two live rollouts of one sequence overlap: both count as paused.
    Conflict(&'a RolloutId, &'a RolloutId),
    /// This one, by a wave of its own.
    Listed(&'a Rollout),
    /// This one, by the implicit last wave.
    Late(&'a Rollout),
}

/// The rollout that counts for the node with the newest certificate `certificate`.
#[must_use]
pub fn which<'a>(_product: &Product, _certificate: &Certificate, _candidates: &[Candidate<'a>]) -> Counting<'a> {
    let _ = (in_scope, scopes_overlap, Mode::Apply, State::Running);
    todo!()
}

/// Whether `rollout` is over for all its nodes: `by` is of a higher sequence and overlaps its scope.
#[must_use]
pub fn supersedes(by: &Rollout, rollout: &Rollout) -> bool {
    by.mode == Mode::Apply
        && rollout.mode == Mode::Apply
        && by.release.product == rollout.release.product
        && by.release.sequence > rollout.release.sequence
        && scopes_overlap(&by.scope, &rollout.scope)
}

//! Which rollout counts for a node and product (design, section 6; cases D9, D10, D23).
//!
//! Walks the rollouts of the product that are in force, from the highest release sequence down.

use alloc::vec::Vec;

use super::member::{in_scope, scopes_overlap};
use super::wave::is_total;
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

/// The rollout of `product` that counts for the node with the newest certificate `certificate`.
///
/// A listed node takes the highest sequence whose scope has it, unless that rollout is over; a node outside the roster
/// takes the newest whose last wave has passed. A rollout that has passed still counts when it is over, for nodes that
/// no newer one takes: so who was away when it passed converges (guarantee L2). Rehearsals move nobody and never count.
#[must_use]
pub fn which<'a>(product: &Product, certificate: &Certificate, candidates: &[Candidate<'a>]) -> Counting<'a> {
    let of_product = |rollout: &Rollout| rollout.release.product == *product && rollout.mode == Mode::Apply;
    let all: Vec<&Candidate<'a>> = candidates.iter().filter(|candidate| of_product(candidate.rollout)).collect();
    let mut mine = all.clone();
    mine.retain(|candidate| in_scope(&candidate.rollout.scope, candidate.listed.unwrap_or(certificate)));
    mine.sort_by(|one, other| {
        let by_sequence = other.rollout.release.sequence.cmp(&one.rollout.release.sequence);
        by_sequence.then_with(|| one.rollout.id.cmp(&other.rollout.id))
    });

    let mut over = Counting::None;
    for candidate in mine {
        let rollout = candidate.rollout;
        let aborted = rollout.state == State::Aborted;
        let rival = all.iter().map(|other| other.rollout).find(|other| rivals(rollout, other) && other.state != State::Aborted);
        if aborted && rival.is_some() {
            continue;
        }
        let by = all.iter().map(|other| other.rollout).filter(|other| supersedes(other, rollout));
        let by = by.max_by_key(|other| other.release.sequence);
        let offered = candidate.complete && !aborted && (candidate.listed.is_some() || is_total(rollout));
        if !offered && (candidate.listed.is_none() || by.is_some()) {
            if let (Counting::None, Some(_), Some(by)) = (over, candidate.listed, by) {
                over = Counting::Over { rollout, by };
            }
            continue;
        }
        return match (rival, candidate.listed) {
            (Some(rival), _) => Counting::Conflict((&rollout.id).min(&rival.id), (&rollout.id).max(&rival.id)),
            (None, Some(_)) => Counting::Listed(rollout),
            (None, None) => Counting::Late(rollout),
        };
    }
    over
}

fn rivals(one: &Rollout, other: &Rollout) -> bool {
    one.id != other.id && one.release.sequence == other.release.sequence && scopes_overlap(&one.scope, &other.scope)
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

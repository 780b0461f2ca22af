//! Braking is easier than going: which generations of a rollout one key alone may sign, and how generations link.
//!
//! Pure functions over two bodies; [`super::shelf`] decides with them.

use alloc::format;

use crate::digest::Digest;
use crate::documents::rejection::{Reason, Rejection};
use crate::documents::rollout::{Forgiven, Rollout, State};

/// Whether `rollout` only brakes `before`, so that one rollout key suffices: it pauses, or aborts without rollback, names
/// `before` by its digest, is that number plus one, and equals it in every field but `generation`, `previous`, `state`,
/// `reason`, `issuedAt`, `keys`.
#[must_use]
pub fn is_brake(rollout: &Rollout, before: &Rollout, before_digest: &Digest) -> bool {
    let braked = Rollout {
        generation: rollout.generation,
        previous: Some(*before_digest),
        state: rollout.state,
        reason: rollout.reason.clone(),
        issued_at: rollout.issued_at,
        keys: rollout.keys.clone(),
        ..before.clone()
    };
    rollout.state != State::Running
        && !rollout.rollback
        && before.state != State::Aborted
        && before.generation.next() == Some(rollout.generation)
        && *rollout == braked
}

/// Whether `next`, which names `before` as its predecessor, may follow it.
///
/// # Errors
/// `rollback` after an abort, which is final; else `malformed`, naming the field.
pub fn check_link(next: &Rollout, before: &Rollout) -> Result<(), Rejection> {
    if before.state == State::Aborted {
        let detail = format!("generation {} aborted the rollout, which is final: make a new rollout", before.generation);
        return Err(Rejection::new(Reason::Rollback, "state", detail));
    }
    if before.generation.next() != Some(next.generation) {
        let detail = format!("names generation {} as the one before", before.generation);
        return Err(Rejection::malformed("generation", detail));
    }
    check_same_rollout(next, before)?;
    match before.forgiven.iter().map(Forgiven::order).find(|entry| !next.forgiven.iter().any(|have| have.order() == *entry)) {
        Some((node, _)) => {
            let detail = format!("lacks an entry of the generation before, for node {node}: what was forgiven stays so");
            Err(Rejection::malformed("forgiven", detail))
        }
        None => Ok(()),
    }
}

/// What all generations of a rollout have in common.
///
/// # Errors
/// `malformed`, naming the field.
pub fn check_same_rollout(one: &Rollout, other: &Rollout) -> Result<(), Rejection> {
    let same = [
        ("id", one.id == other.id),
        ("mode", one.mode == other.mode),
        ("release", one.release == other.release),
        ("roster", one.roster == other.roster),
        ("scope", one.scope == other.scope),
        ("hashAttributes", one.hash_attributes == other.hash_attributes),
        ("wary", one.wary == other.wary),
    ];
    match same.into_iter().find(|(_, same)| !same) {
        Some((field, _)) => Err(Rejection::malformed(field, "is the same in all generations of a rollout: make a new rollout")),
        None => Ok(()),
    }
}

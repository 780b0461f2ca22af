//! Rollouts: the highest valid generation of each id, its rival, and what its brakes stand on.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

use super::{Placed, Rivals, Shelf, add_rival};
use crate::digest::Digest;
use crate::documents::Body;
use crate::documents::rejection::{Reason, Rejection};
use crate::documents::rollout::{Rollout, State};
use crate::number::Generation;
use crate::text::RolloutId;
use crate::trust::brake::{check_link, check_same_rollout};
use crate::trust::threshold::Signers;

/// Generations kept whatever they are: superseded twice is dropped. A brake may still come for the last but one.
const KEPT_GENERATIONS: usize = 2;

/// The generations of one rollout that are here.
#[derive(Clone, Debug, Default)]
pub(super) struct Generations {
    by_number: BTreeMap<Generation, Rivals>,
    /// As it stands; kept in step by [`Shelf::restate`].
    stands: Option<RolloutInForce>,
}

/// A rollout as it stands: its highest valid generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutInForce {
    /// The highest valid generation; of a conflicting pair the one with the lower digest.
    pub rollout: Rollout,
    /// Its body digest.
    pub digest: Digest,
    /// Two bodies of that generation are known.
    pub conflicted: bool,
    /// The other body of a conflicting pair.
    pub rival: Option<(Digest, Rollout)>,
    /// The generations that are here, in order.
    pub generations: Vec<Generation>,
}

impl RolloutInForce {
    /// What it tells its nodes: a conflicting pair counts as paused; two aborts are an abort.
    #[must_use]
    pub fn state(&self) -> State {
        match &self.rival {
            None => self.rollout.state,
            Some((_, rival)) if rival.state == State::Aborted && self.rollout.state == State::Aborted => State::Aborted,
            Some(_) => State::Paused,
        }
    }

    /// Whether it sends back what is not confirmed: an abort with rollback that nobody contests.
    #[must_use]
    pub fn rolls_back(&self) -> bool {
        self.bodies().all(|rollout| rollout.rollback)
    }

    /// Its body, or both of a conflicting pair.
    pub fn bodies(&self) -> impl Iterator<Item = &Rollout> + '_ {
        core::iter::once(&self.rollout).chain(self.rival.as_ref().map(|(_, rollout)| rollout))
    }
}

impl Shelf {
    /// All rollouts as they stand, by id.
    pub fn rollouts(&self) -> impl Iterator<Item = &RolloutInForce> + '_ {
        self.rollouts.values().filter_map(|generations| generations.stands.as_ref())
    }

    /// One rollout as it stands.
    #[must_use]
    pub fn rollout(&self, id: &RolloutId) -> Option<&RolloutInForce> {
        self.rollouts.get(id)?.stands.as_ref()
    }

    /// A generation here by its body digest, in force or not.
    #[must_use]
    pub fn rollout_by_digest(&self, digest: &Digest) -> Option<&Rollout> {
        match self.body(digest) {
            Some(Body::Rollout(rollout)) => Some(rollout),
            _ => None,
        }
    }

    /// Digests of the generations here that satisfy `condition`.
    pub(super) fn generations_where(&self, condition: impl Fn(&Rollout) -> bool) -> Vec<Digest> {
        let all = self.rollouts.values().flat_map(|generations| generations.by_number.values().flatten());
        all.filter(|digest| self.rollout_by_digest(digest).is_some_and(&condition)).copied().collect()
    }

    /// A refusal for lack of signatures, unless a newer generation is here anyway: then nobody is to blame.
    pub(super) fn unless_superseded(&self, refusal: Rejection, rollout: &Rollout) -> Rejection {
        let newest = self.rollout(&rollout.id).map(|stands| stands.rollout.generation);
        newest.filter(|newest| *newest > rollout.generation).map_or(refusal, superseded)
    }

    /// How many generations below and including `digest` only brake, one key each, in a row.
    pub(super) fn brakes_below(&self, digest: &Digest) -> usize {
        let mut count = 0;
        let mut at = Some(*digest);
        while let Some(digest) = at.filter(|digest| self.is_one_key_brake(digest)) {
            count += 1;
            at = self.rollout_by_digest(&digest).and_then(|rollout| rollout.previous);
        }
        count
    }

    /// Whether a held generation stands by one key alone.
    fn is_one_key_brake(&self, digest: &Digest) -> bool {
        let role = self.fleet().map(|fleet| &fleet.roles.rollout);
        self.rollout_by_digest(digest).is_some()
            && self.signers(digest).zip(role).is_some_and(|(signers, role)| below_threshold(signers, role))
    }

    pub(super) fn place_rollout(
        &mut self,
        digest: Digest,
        rollout: &Rollout,
        signers: &Signers,
        from_store: bool,
    ) -> Result<Placed, Rejection> {
        if !from_store {
            self.check_sequence(&rollout.release.product, rollout.release.sequence, "release.sequence")?;
        }
        self.check_release(rollout)?;
        self.check_named_roster(rollout)?;
        let none = Generations::default();
        let generations = self.rollouts.get(&rollout.id).unwrap_or(&none);
        if let Some((newest, newest_bodies)) = generations.by_number.last_key_value() {
            let higher = generations.by_number.keys().filter(|number| **number > rollout.generation).count();
            if higher >= KEPT_GENERATIONS && !from_store {
                return Err(superseded(*newest));
            }
            if *newest != rollout.generation {
                let known = newest_bodies.iter().filter_map(|digest| self.rollout_by_digest(digest));
                let matches: Vec<_> = known.map(|known| check_same_rollout(rollout, known)).collect();
                if !matches.is_empty() && matches.iter().all(Result::is_err) {
                    return matches.into_iter().next().expect("not empty").map(|()| Placed::default());
                }
            }
        }
        if let Some(before) = rollout.previous.and_then(|digest| self.rollout_by_digest(&digest)) {
            check_link(rollout, before)?;
        }
        let rivals = generations.by_number.get(&rollout.generation).cloned().unwrap_or_default();
        let (rivals, conflict) = add_rival(&rivals, digest, "this rollout and generation")?;
        debug_assert!(signers.count() > 0, "an authorised rollout has a signer");
        self.rollouts.entry(rollout.id.clone()).or_default().by_number.insert(rollout.generation, rivals);
        Ok(Placed { conflict, ..Placed::default() })
    }

    /// With a generation here: successors that do not follow from it fall, and what was superseded twice leaves.
    pub(super) fn settle_rollout(&mut self, digest: &Digest, dropped: &mut Vec<Digest>) {
        let Some(rollout) = self.rollout_by_digest(digest) else { return };
        let id = rollout.id.clone();
        let follows = |next: &Rollout| next.id == id && next.previous == Some(*digest);
        let mut gone = self.generations_where(|next| follows(next) && check_link(next, rollout).is_err());
        for digest in &gone {
            self.forget(digest);
        }
        let superseded = self.superseded_generations(&id);
        for digest in &superseded {
            self.forget(digest);
        }
        gone.extend(superseded);
        dropped.extend(gone);
        self.restate(&id);
    }

    /// All but the newest two generations, and what one-key brakes among those stand on.
    fn superseded_generations(&self, id: &RolloutId) -> Vec<Digest> {
        let Some(generations) = self.rollouts.get(id) else { return Vec::new() };
        let recent = generations.by_number.values().rev().take(KEPT_GENERATIONS);
        let mut kept: BTreeSet<Digest> = BTreeSet::new();
        let mut ask: Vec<Digest> = recent.flatten().copied().collect();
        while let Some(digest) = ask.pop() {
            if kept.insert(digest) && self.is_one_key_brake(&digest) {
                ask.extend(self.rollout_by_digest(&digest).and_then(|rollout| rollout.previous));
            }
        }
        generations.by_number.values().flatten().filter(|digest| !kept.contains(digest)).copied().collect()
    }

    /// Works out anew how a rollout stands.
    pub(super) fn restate(&mut self, id: &RolloutId) {
        let Some(generations) = self.rollouts.get(id) else { return };
        let newest = generations.by_number.last_key_value().map(|(_, rivals)| rivals.clone()).unwrap_or_default();
        let mut bodies =
            newest.iter().filter_map(|digest| self.rollout_by_digest(digest).map(|rollout| (*digest, rollout.clone())));
        let (first, rival) = (bodies.next(), bodies.next());
        let known = generations.by_number.keys().copied().collect();
        let stands = first.map(|(digest, rollout)| {
            let conflicted = rival.is_some();
            RolloutInForce { rollout, digest, conflicted, rival, generations: known }
        });
        if stands.is_none() {
            self.rollouts.remove(id);
        } else if let Some(generations) = self.rollouts.get_mut(id) {
            generations.stands = stands;
        }
    }

    /// Takes a generation off its rollout's list.
    pub(super) fn unlist_generation(&mut self, id: &RolloutId, generation: Generation, digest: &Digest) {
        if let Some(generations) = self.rollouts.get_mut(id) {
            super::retention::unlist(&mut generations.by_number, &generation, digest);
        }
        self.restate(id);
    }
}

fn superseded(newest: Generation) -> Rejection {
    Rejection::new(Reason::Rollback, "generation", format!("generation {newest} is known here"))
}

fn below_threshold(signers: &Signers, role: &crate::documents::fleet::Role) -> bool {
    signers.require(&role.keys, role.threshold, "rollout").is_err()
}

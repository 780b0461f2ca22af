//! This node as a warden (rules 2, 4, 5, 7, 8): what it has promised, whom it grants a slot, when a promise ends.
//!
//! Its state is durable: whenever [`Warden::consider`] decided anything, the caller persists [`Warden::to_bytes`] and
//! only then publishes [`Warden::record`]. It never looks at a wall clock. Which roster it declares:
//! [`super::governing`]; when that lets a slot be granted: [`super::handover`].

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::lease::amnesia::Amnesia;
use crate::lease::budget::{PoolMap, Slot};
use crate::lease::claim::{End, SeenClaim, end_of};
use crate::lease::governing::{RosterHold, Rosters};
use crate::lease::handover::{Handover, Reader, Waiting};
use crate::lease::sight::Sight;
use crate::lease::synced::{Synced, Syncing};
use crate::limits::PROMISES;
use crate::node_id::NodeId;
use crate::record::grants::{Grants, Promise};

const VERSION: u8 = 1;

/// What this node has promised, durably.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warden {
    declared: Option<Digest>,
    promises: BTreeSet<Promise>,
    amnesia: Option<Amnesia>,
}

#[derive(Serialize, Deserialize)]
struct Durable {
    declared: Option<Digest>,
    promises: Vec<Promise>,
    amnesia: Option<Amnesia>,
}

/// The stored promises do not decode: the node must not go on as if it had promised nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WardenError {
    /// Written by a newer version.
    #[error("the stored promises have version {0}, which is not known here")]
    Version(u8),
    /// Damaged.
    #[error("the stored promises do not decode")]
    Malformed,
}

/// A claim put before the warden, newest record of its holder first.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The claim.
    pub claim: SeenClaim,
    /// Its place in the wave's order; the lowest is preferred.
    pub place: u64,
    /// Whether documents and records allow it, and whether its rollout is urgent.
    pub eligible: Result<Urgency, Refusal>,
}

/// A look at a slot that waits for older rosters is taken again after this much up time: what it waits for may be silence.
const LOOK_AGAIN_MS: u64 = 60_000;

/// Which slots a claim may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Those of the pool's budget.
    Ordinary,
    /// Those of the urgent budget too.
    Urgent,
}

/// Why a warden grants a claim nothing now. The first group is found by the caller, the second by the warden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The rollout is paused, or its generation is in conflict.
    Paused,
    /// The rollout is aborted.
    Aborted,
    /// The rollout is halted as seen here.
    Halted,
    /// The claim names an older generation.
    OlderGeneration,
    /// The node is not in the rollout's scope, or another rollout counts for it.
    OutOfScope,
    /// The document that the claim names is not here.
    UnknownPurpose,
    /// The rollout exceeds the guard rails that root signed, or takes too long for the claim's roster.
    Limits,
    /// The claimant has no valid certificate, or its claim is for another pool than its certificate's.
    NotMember,

    /// No roster is declared here, or the claim names another one.
    Roster,
    /// Promises under older rosters may stand (rule 8).
    RosterChange(Waiting),
    /// This node is not a warden of that slot, or the pool has no such slot for this claim.
    NotWarden,
    /// The claimant is convicted.
    Convicted,
    /// The claim was forgiven or written off, or its node is gone.
    WrittenOff,
    /// The claim is older than a start may take, or its holder presumed lost, by this warden's up time.
    Stale,
    /// The slot is promised to another claim.
    Promised,
    /// Another claim on the slot has a lower place.
    Outranked,
    /// Not synced with enough other wardens since the start.
    Syncing(Syncing),
    /// The store was set back.
    Amnesia {
        /// Up time left, in milliseconds.
        left_ms: u64,
    },
    /// The grants record is full.
    Full,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => f.write_str("the rollout is paused"),
            Self::Aborted => f.write_str("the rollout is aborted"),
            Self::Halted => f.write_str("the rollout is halted"),
            Self::OlderGeneration => f.write_str("the claim names an older generation"),
            Self::OutOfScope => f.write_str("the claimant is out of scope"),
            Self::UnknownPurpose => f.write_str("the document that the claim names is not here"),
            Self::Limits => f.write_str("the rollout exceeds the limits of the fleet document or of the claim's roster"),
            Self::NotMember => f.write_str("the claimant has no valid certificate for that pool"),
            Self::Roster => f.write_str("the claim names another roster than the one declared here"),
            Self::RosterChange(waiting) => write!(f, "{waiting} (roster-change)"),
            Self::NotWarden => f.write_str("not a warden of that slot"),
            Self::Convicted => f.write_str("the claimant is convicted of equivocation"),
            Self::WrittenOff => f.write_str("the claim was written off"),
            Self::Stale => f.write_str("the claim is older than a start may take"),
            Self::Promised => f.write_str("the slot is promised to another claim"),
            Self::Outranked => f.write_str("another claim has a lower place"),
            Self::Syncing(syncing) => fmt::Display::fmt(syncing, f),
            Self::Amnesia { left_ms } => write!(f, "the store was set back: {} s left", left_ms / 1_000),
            Self::Full => write!(f, "{PROMISES} promises stand already"),
        }
    }
}

/// What the warden did. The state has changed already; persist it, then publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It declares this roster.
    Declare(Digest),
    /// It promised a slot.
    Grant(Promise),
    /// A promise ended.
    End {
        /// The promise.
        promise: Promise,
        /// Why.
        why: End,
    },
    /// After amnesia: it honours this claim as granted by it.
    Adopt(Promise),
    /// Its amnesia is over.
    Remembers,
}

impl Decision {
    /// Whether others must be told. An end that was read from the holder's record or from a document needs no word: others
    /// read it there too. That nothing was heard of a holder only this warden knows.
    #[must_use]
    pub fn needs_word(&self) -> bool {
        match self {
            Self::End { why, .. } => *why == End::PresumedLost,
            Self::Declare(_) | Self::Grant(_) | Self::Adopt(_) | Self::Remembers => true,
        }
    }
}

/// Everything that the warden looks at. `sight` and `claims` must be of one instant.
#[derive(Debug)]
pub struct Facts<'a, S> {
    /// This node.
    pub me: NodeId,
    /// Every roster that is here with all its certificates.
    pub rosters: &'a Rosters<'a>,
    /// Every standing claim on a slot, this node's own included. Claims on slots that it does not ward are skipped.
    pub claims: &'a [Candidate],
    /// Records, documents, silence.
    pub sight: &'a S,
    /// With whom it has synced since its start.
    pub synced: &'a Synced,
    /// This node's up time, from [`super::presence::Presence::up_ms`].
    pub up_ms: u64,
}

impl<'a, S> Facts<'a, S> {
    /// This warden as a reader of others' words, with its own.
    fn reader<'b>(&self, own: &'b Grants) -> Reader<'b, S>
    where
        'a: 'b,
    {
        Reader { me: self.me, own, rosters: self.rosters, sight: self.sight, synced: self.synced }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Considered {
    /// What changed, in order. Not empty: persist and publish.
    pub decisions: Vec<Decision>,
    /// Claims on this warden's slots that got nothing, and why.
    pub refusals: Vec<(SeenClaim, Refusal)>,
    /// Why no newer roster is declared.
    pub roster_hold: Option<RosterHold>,
    /// Look again after this much up time even if nothing arrives: a holder is presumed lost, or amnesia ends.
    pub look_again_after_ms: Option<u64>,
}

impl Warden {
    /// Reads the durable form.
    ///
    /// # Errors
    /// When it is of another version or damaged. Then begin with amnesia, never with nothing.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WardenError> {
        let (version, encoded) = bytes.split_first().ok_or(WardenError::Malformed)?;
        if *version != VERSION {
            return Err(WardenError::Version(*version));
        }
        let (durable, rest): (Durable, _) = postcard::take_from_bytes(encoded).map_err(|_| WardenError::Malformed)?;
        if !rest.is_empty() {
            return Err(WardenError::Malformed);
        }
        let promises = durable.promises.into_iter().collect();
        Ok(Self { declared: durable.declared, promises, amnesia: durable.amnesia })
    }

    /// The durable form: written and made durable before [`Self::record`] is published.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let promises = self.promises.iter().cloned().collect();
        let durable = Durable { declared: self.declared, promises, amnesia: self.amnesia };
        let mut bytes = alloc::vec![VERSION];
        bytes.extend(postcard::to_allocvec(&durable).expect("numbers, names and digests always encode"));
        bytes
    }

    /// The public form. During amnesia it declares nothing (rule 7).
    ///
    /// A set-back store that took back what it had listed may hold more promises than a record does, until some have
    /// ended. Then it lists whole slots, as many as fit: a slot that is left out is granted to nobody by this record.
    #[must_use]
    pub fn record(&self) -> Grants {
        let declared = if self.amnesia.is_some() { None } else { self.declared };
        let mut promises: Vec<Promise> = self.promises.iter().take(PROMISES).cloned().collect();
        if let Some(cut) = self.promises.iter().nth(PROMISES) {
            promises.retain(|promise| (&promise.pool, promise.slot) != (&cut.pool, cut.slot));
        }
        Grants { declared, promises }
    }

    /// The roster that it has declared.
    #[must_use]
    pub fn declared(&self) -> Option<Digest> {
        self.declared
    }

    /// Every promise that has not ended, by pool and slot.
    pub fn promises(&self) -> impl Iterator<Item = &Promise> {
        self.promises.iter()
    }

    /// Whether it has promised anything to `holder`.
    #[must_use]
    pub fn has_promised(&self, holder: &NodeId) -> bool {
        self.promises.iter().any(|promise| promise.holder == *holder)
    }

    /// Whether its store was set back and it has not taken part in leases since.
    #[must_use]
    pub fn remembers_nothing(&self) -> bool {
        self.amnesia.is_some()
    }

    /// Up time left until it takes part in leases again, in milliseconds; `None`: it does.
    #[must_use]
    pub fn amnesia_left_ms(&self, up_ms: u64) -> Option<u64> {
        // Over, but nothing adopted yet: one more look is needed, so at least 1.
        self.amnesia.map(|amnesia| amnesia.left_ms(up_ms).unwrap_or(1))
    }

    /// Up time left until this node claims and starts again, in milliseconds: a holder has only to wait, also one that is
    /// no warden of anything and so has nothing to adopt.
    #[must_use]
    pub fn holder_waits_ms(&self, up_ms: u64) -> Option<u64> {
        self.amnesia.and_then(|amnesia| amnesia.left_ms(up_ms))
    }

    /// The store was set back: honour what this node's own newer record, taken back from peers, lists, and wait.
    /// Persist afterwards. `presume_lost_after_ms` is the longest of the pools on whose slots it is a warden.
    pub fn set_back(&mut self, taken_back: Option<&Grants>, up_ms: u64, presume_lost_after_ms: Option<u64>) {
        if let Some(grants) = taken_back {
            self.declared = grants.declared.or(self.declared);
            self.promises.extend(grants.promises.iter().cloned());
        }
        let begun = Amnesia::begin(up_ms, presume_lost_after_ms);
        self.amnesia = Some(self.amnesia.map_or(begun, |amnesia| amnesia.later(begun)));
    }

    /// Ends what has ended, declares a roster, grants what may be granted.
    pub fn consider<S: Sight>(&mut self, facts: &Facts<'_, S>) -> Considered {
        let mut considered = Considered::default();
        self.end(facts, &mut considered);
        self.remember(facts, &mut considered);
        self.declare(facts, &mut considered);
        self.grant(facts, &mut considered);
        considered
    }

    fn governing<'a, S>(&self, facts: &Facts<'a, S>) -> Option<&'a PoolMap> {
        self.declared.and_then(|declared| facts.rosters.get(&declared))
    }

    fn end<S: Sight>(&mut self, facts: &Facts<'_, S>, considered: &mut Considered) {
        let governing = self.governing(facts);
        let own = Grants::default();
        let reader = facts.reader(&own);
        let mut ended = Vec::new();
        for promise in &self.promises {
            let why = end_of(promise, facts.sight).or_else(|| {
                let left = reader.lost_in_ms(promise, governing)?;
                if left > 0 {
                    considered.look_again(left);
                }
                (left == 0).then_some(End::PresumedLost)
            });
            if let Some(why) = why {
                ended.push((promise.clone(), why));
            }
        }
        for (promise, why) in ended {
            self.promises.remove(&promise);
            considered.decisions.push(Decision::End { promise, why });
        }
    }

    fn declare<S: Sight>(&mut self, facts: &Facts<'_, S>, considered: &mut Considered) {
        // Its declarations do not count yet, and what it declared in its former life may still come back (rule 7).
        if self.amnesia.is_some() {
            return;
        }
        let before = self.declared;
        // Whoever is no longer listed declares the last roster that listed it, and from there goes on.
        considered.roster_hold = loop {
            match facts.rosters.declaration(&facts.me, self.declared) {
                Ok(Some(roster)) => self.declared = Some(roster),
                Ok(None) => break None,
                Err(hold) => break Some(hold),
            }
        };
        let declared = self.declared.filter(|_| self.declared != before);
        considered.decisions.extend(declared.map(Decision::Declare));
    }

    /// After amnesia every unreleased claim on its slots counts as granted by it: its slots under any roster, for its
    /// former life may have promised them under each (case D34).
    fn remember<S: Sight>(&mut self, facts: &Facts<'_, S>, considered: &mut Considered) {
        let Some(amnesia) = self.amnesia else { return };
        if let Some(left) = amnesia.left_ms(facts.up_ms) {
            return considered.look_again(left);
        }
        let Some(map) = self.governing(facts).or_else(|| facts.rosters.maps().next_back()) else { return };
        let wards = |map: &PoolMap, slot: &Slot| map.wardens(slot).is_some_and(|wardens| wardens.contains(&facts.me));
        // Under a roster that is not here it may have been one.
        let mine = |claim: &SeenClaim| {
            facts.rosters.get(&claim.roster).is_none() || facts.rosters.maps().any(|map| wards(map, &claim.slot))
        };
        let seen = facts.claims.iter().map(|candidate| &candidate.claim).filter(|claim| mine(claim));
        let unreleased = seen.map(SeenClaim::promise).filter(|promise| end_of(promise, facts.sight).is_none());
        let adopted: Vec<Promise> = unreleased.filter(|promise| !self.promises.contains(promise)).collect();
        // Too many to list, or too early to see them all: stay out a little longer rather than forget one.
        if self.promises.len() + adopted.len() > PROMISES || !synced_everywhere(map, facts) {
            return considered.look_again(LOOK_AGAIN_MS);
        }
        self.amnesia = None;
        considered.decisions.extend(adopted.iter().cloned().map(Decision::Adopt));
        considered.decisions.push(Decision::Remembers);
        self.promises.extend(adopted);
    }

    fn grant<S: Sight>(&mut self, facts: &Facts<'_, S>, considered: &mut Considered) {
        let mut order: Vec<&Candidate> = facts.claims.iter().collect();
        // Whoever is disrupted already, then the wave's order; the rest only makes it one order.
        order.sort_by_key(|candidate| (&candidate.claim.slot, !candidate.claim.active, candidate.place, candidate.claim.holder));
        let mut granted: BTreeSet<&Slot> = BTreeSet::new();
        let own = self.record();
        let governing = self.governing(facts).map(|map| (map, Handover::to(map, facts.reader(&own))));
        for candidate in order {
            let claim = &candidate.claim;
            match self.judge(candidate, facts, governing.as_ref()) {
                Ok(Standing::Granted) => {}
                Ok(Standing::Open) => {
                    let promise = claim.promise();
                    granted.insert(&claim.slot);
                    self.promises.insert(promise.clone());
                    considered.decisions.push(Decision::Grant(promise));
                }
                Err(Refusal::NotWarden) => {}
                Err(Refusal::Promised) if granted.contains(&claim.slot) => {
                    considered.refusals.push((claim.clone(), Refusal::Outranked));
                }
                Err(refusal) => {
                    if matches!(refusal, Refusal::RosterChange(_)) {
                        considered.look_again(LOOK_AGAIN_MS);
                    }
                    considered.refusals.push((claim.clone(), refusal));
                }
            }
        }
    }

    fn judge<S: Sight>(
        &self,
        candidate: &Candidate,
        facts: &Facts<'_, S>,
        governing: Option<&(&PoolMap, Handover<'_, S>)>,
    ) -> Result<Standing, Refusal> {
        let claim = &candidate.claim;
        let promise = claim.promise();
        if self.promises.contains(&promise) {
            return Ok(Standing::Granted);
        }
        let amnesia = self.amnesia_left_ms(facts.up_ms).map(|left_ms| Refusal::Amnesia { left_ms });
        let (map, handover) = governing.ok_or(amnesia.unwrap_or(Refusal::Roster))?;
        let wardens = map.wardens(&claim.slot).filter(|wardens| wardens.contains(&facts.me)).ok_or(Refusal::NotWarden)?;
        let seats = map.pool(&claim.slot.pool).ok_or(Refusal::NotWarden)?;
        if claim.roster != map.roster() {
            return Err(Refusal::Roster);
        }
        let urgency = candidate.eligible?;
        if claim.slot.number >= seats.slots(urgency == Urgency::Urgent) {
            return Err(Refusal::NotWarden);
        }
        if facts.sight.is_convicted(&claim.holder) {
            return Err(Refusal::Convicted);
        }
        if end_of(&promise, facts.sight).is_some() {
            return Err(Refusal::WrittenOff);
        }
        let unheard = facts.sight.unheard_ms(&claim.holder);
        // Whoever says `activating` may be in it until it is presumed lost; a mere claim is dead when it can start no more.
        let dead = |unheard: u64| match claim.active {
            true => seats.presume_lost_after_ms().is_some_and(|after| unheard >= after),
            false => unheard > seats.start_within_ms(),
        };
        if claim.holder != facts.me && unheard.is_some_and(dead) {
            return Err(Refusal::Stale);
        }
        if let Some(amnesia) = amnesia {
            return Err(amnesia);
        }
        facts.synced.enough(&facts.me, wardens).map_err(Refusal::Syncing)?;
        if self.promises.iter().any(|held| held.pool == promise.pool && held.slot == promise.slot) {
            return Err(Refusal::Promised);
        }
        if self.promises.len() >= PROMISES {
            return Err(Refusal::Full);
        }
        handover.opens(&claim.slot).map_err(Refusal::RosterChange)?;
        Ok(Standing::Open)
    }
}

/// Whether it has synced with enough other wardens of every slot that it wards.
fn synced_everywhere<S: Sight>(map: &PoolMap, facts: &Facts<'_, S>) -> bool {
    let slots = map.pools().flat_map(|(pool, seats)| (0..seats.slots(true)).map(|number| Slot { pool: pool.clone(), number }));
    let mut mine = slots.filter_map(|slot| map.wardens(&slot)).filter(|wardens| wardens.contains(&facts.me));
    mine.all(|wardens| facts.synced.enough(&facts.me, wardens).is_ok())
}

enum Standing {
    Granted,
    Open,
}

impl Considered {
    fn look_again(&mut self, after_ms: u64) {
        self.look_again_after_ms = Some(self.look_again_after_ms.map_or(after_ms, |sooner| sooner.min(after_ms)));
    }
}

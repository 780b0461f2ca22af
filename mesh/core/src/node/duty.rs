//! This node as a warden: puts the claims that it sees before its promises, keeps what was decided, then says so.

use alloc::format;
use alloc::vec::Vec;

use super::Node;
use super::effect::Event;
use super::following::wave_of;
use super::keys::StoreKey;
use crate::digest::Digest;
use crate::documents::rollout::{Rollout, State};
use crate::lease::claim::SeenClaim;
use crate::lease::governing::RosterHold;
use crate::lease::warden::{Candidate, Decision, Facts, Refusal, Urgency, Warden};
use crate::record::status::Purpose;
use crate::rollout::counts::supersedes;
use crate::rollout::member::in_scope;
use crate::rollout::wave::Place;
use crate::text::{Pool, Reason};
use crate::time::Now;
use crate::trust::guard_rails::{check_presumed_lost, check_presumed_lost_in};

/// What this node promised, and when to look at it again.
#[derive(Debug, Default)]
pub(super) struct Duty {
    pub(super) warden: Warden,
    /// Why it declares no newer roster.
    pub(super) roster_hold: Option<RosterHold>,
    /// What it says of its promises changed without a decision: its declaration counts no more (amnesia).
    pub(super) word_owed: bool,
    /// Something changed since the last look.
    pub(super) stale: bool,
    /// Look again at this up time even if nothing arrives.
    pub(super) look_again_at_up_ms: Option<u64>,
}

impl Duty {
    /// From the durable form; `None` when it is damaged.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        Warden::from_bytes(bytes).ok().map(|warden| Self { warden, stale: true, ..Self::default() })
    }
}

impl Node {
    /// Ends, declares, grants. Whether anything was decided.
    pub(super) fn do_duty(&mut self, now: Now) -> bool {
        let up_ms = self.presence.up_ms();
        let due = self.duty.look_again_at_up_ms.is_some_and(|at| at <= up_ms);
        // What a warden promises or declares through an outer door nobody would hear.
        if !(self.duty.stale || due) || !self.may_publish() || self.lives_outside() {
            return false;
        }
        self.duty.stale = false;
        // After amnesia every claim may be this node's business; before, those on its slots.
        let all = self.duty.warden.remembers_nothing();
        let claims = self.claims.all().filter(|claim| all || self.may_ward(claim));
        let claims: Vec<Candidate> = claims.map(|claim| self.candidate(claim)).collect();
        let mut warden = core::mem::take(&mut self.duty.warden);
        let rosters = self.rosters();
        let sight = self.sight();
        let facts = Facts { me: self.me, rosters: &rosters, claims: &claims, sight: &sight, synced: &self.synced, up_ms };
        let considered = warden.consider(&facts);
        self.duty.warden = warden;
        self.duty.roster_hold = considered.roster_hold;
        self.duty.look_again_at_up_ms = considered.look_again_after_ms.map(|after| up_ms.saturating_add(after));
        for (claim, refusal) in &considered.refusals {
            if matches!(refusal, Refusal::Syncing(_)) {
                self.seek_wardens(&claim.slot.clone(), claim.roster);
            }
        }
        let owed = core::mem::take(&mut self.duty.word_owed);
        if considered.decisions.is_empty() && !owed {
            return false;
        }
        let durable = self.duty.warden.to_bytes();
        self.persist(&StoreKey::Warden, Some(durable));
        self.pin_rosters();
        let news = owed || considered.decisions.iter().any(Decision::needs_word);
        for decision in considered.decisions {
            self.tell_decision(decision);
        }
        if news {
            self.publish_grants(now);
        }
        true
    }

    fn tell_decision(&mut self, decision: Decision) {
        match decision {
            Decision::Grant(promise) | Decision::Adopt(promise) => {
                let (saves, holder) = (self.presence.save_now(&promise.holder), promise.holder);
                self.persist_presence(saves);
                self.tell(Event::Granted { pool: promise.pool, slot: promise.slot, holder, claim: promise.claim });
            }
            Decision::End { promise, why } => {
                let why = Reason::lossy(&format!("{why}"));
                self.tell(Event::GrantEnded { pool: promise.pool, slot: promise.slot, holder: promise.holder, why });
            }
            Decision::Declare(_) | Decision::Remembers => {}
        }
    }

    fn candidate(&self, claim: &SeenClaim) -> Candidate {
        Candidate { claim: claim.clone(), place: self.rank(claim), eligible: self.eligible(claim) }
    }

    /// What records and documents say of a claim; never this node's own clock or pins (rule 2).
    fn eligible(&self, claim: &SeenClaim) -> Result<Urgency, Refusal> {
        let certificate = self.shelf.certificate(&claim.holder).ok_or(Refusal::NotMember)?;
        if certificate.retired || certificate.pool.as_ref() != Some(&claim.slot.pool) {
            return Err(Refusal::NotMember);
        }
        let Purpose::Rollout(digest) = &claim.purpose else { return Ok(Urgency::Ordinary) };
        let named = self.shelf.rollout_by_digest(digest).ok_or(Refusal::UnknownPurpose)?;
        let in_force = self.shelf.rollout(&named.id).ok_or(Refusal::UnknownPurpose)?;
        let rollout = &in_force.rollout;
        match in_force.state() {
            State::Running => {}
            State::Paused => return Err(Refusal::Paused),
            State::Aborted => return Err(Refusal::Aborted),
        }
        if in_force.digest != *digest {
            return Err(Refusal::OlderGeneration);
        }
        let following = self.following.get(&named.id).ok_or(Refusal::UnknownPurpose)?;
        let progress = following.progress.as_ref().ok_or(Refusal::UnknownPurpose)?;
        if progress.halted().is_some() {
            return Err(Refusal::Halted);
        }
        if self.beyond_limits(progress).is_some() {
            return Err(Refusal::Limits);
        }
        if self.outlasts_presumed_loss(rollout, &claim.roster, &claim.slot.pool) {
            return Err(Refusal::Limits);
        }
        let has = wave_of(progress, &claim.holder).is_some() || in_scope(&rollout.scope, certificate);
        let over = self.shelf.rollouts().any(|other| supersedes(&other.rollout, rollout));
        if !has || over {
            return Err(Refusal::OutOfScope);
        }
        Ok(if rollout.urgent { Urgency::Urgent } else { Urgency::Ordinary })
    }

    /// Whether the rollout's upgrade takes too long for the policy of a roster: of the one that it names that was checked when
    /// both arrived, of a newer one that leases moved to only here. A pool whose policy it does not say has the default one.
    pub(super) fn outlasts_presumed_loss(&self, rollout: &Rollout, roster: &Digest, pool: &Pool) -> bool {
        let said = self.shelf.roster(roster).is_some_and(|roster| check_presumed_lost(rollout, roster).is_err());
        let seats = self.maps.get(roster).and_then(|map| map.pool(pool));
        said || seats.is_some_and(|seats| check_presumed_lost_in(rollout, pool, seats.policy()).is_err())
    }

    /// The claimant's place in its wave's order, as one number; other purposes come last.
    fn rank(&self, claim: &SeenClaim) -> u64 {
        let Purpose::Rollout(digest) = &claim.purpose else { return u64::MAX };
        let progress = self.shelf.rollout_by_digest(digest).and_then(|named| self.following.get(&named.id)?.progress.as_ref());
        progress.and_then(|progress| progress.tally().place_of(&claim.holder)).map_or(u64::MAX, rank)
    }
}

/// Wave, then dormant last, then the shuffle.
fn rank(place: Place) -> u64 {
    let [a, b, c, d, e, f, ..] = place.hash;
    let shuffle = u64::from_be_bytes([0, 0, a, b, c, d, e, f]) >> 1;
    (u64::from(place.wave).min(0xffff) << 48) | (u64::from(place.dormant) << 47) | shuffle
}

//! This node as a holder: which slot it turns to, whether it may start, when it withdraws (rules 1, 3, 6).

use alloc::collections::{BTreeMap, BTreeSet};

use super::Node;
use super::hold::Hold;
use super::life::advance::Asking;
use super::life::{Life, Mission, Turn};
use super::show::count;
use super::sight::NodeSight;
use crate::digest::Digest;
use crate::lease::board::Board;
use crate::lease::budget::{PoolMap, Slot};
use crate::lease::claim::SeenClaim;
use crate::lease::governing::Rosters;
use crate::lease::handover::{Handover, Reader};
use crate::lease::queue::{self, Queue, Turnless, needs_slot};
use crate::lease::start::{MadeAt, Start, StartFacts, Withdraw, may_start};
use crate::lease::synced::Syncing;
use crate::node_id::NodeId;
use crate::record::grants::Grants;
use crate::record::status::Purpose;
use crate::text::{NodeName, Pool, Product};
use crate::time::{Now, Time};

/// The queues of this node's products, and whom it needs to be in touch with. In memory only.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    queues: BTreeMap<Product, Queue>,
    /// When a queue may move by itself.
    pub(super) wake_at: Option<Time>,
    /// Wardens that this node must sync with before it takes part on their slot.
    pub(super) seek: BTreeSet<NodeId>,
    /// A life waits for the lease protocol: what is said of slots may move it.
    pub(super) asks: bool,
    /// Somebody was added to them.
    pub(super) seeks_more: bool,
    /// The slots of this node's pool, while it would claim one.
    pub(super) board: Option<Board>,
}

impl Pacing {
    /// A claim of `product` came to nothing: the next one waits for a random, growing pause (rule 6).
    pub(super) fn lost(&mut self, product: &Product, now: Time, random: u64) {
        self.queues.entry(product.clone()).or_default().lost(now, random);
    }

    /// Be in touch with these.
    fn seek<'a>(&mut self, wardens: impl Iterator<Item = &'a NodeId>) {
        for warden in wardens {
            self.seeks_more |= self.seek.insert(*warden);
        }
    }

    fn wake(&mut self, at: Time) {
        self.wake_at = Some(self.wake_at.map_or(at, |sooner| sooner.min(at)));
    }
}

/// Everything that one question to the lease protocol needs.
pub(super) struct Question<'a> {
    pub(super) now: Now,
    pub(super) product: &'a Product,
    pub(super) mission: &'a Mission,
    pub(super) life: &'a Life,
    /// A fresh random number.
    pub(super) random: u64,
}

impl Node {
    /// Answers a life that wants to claim or to start.
    pub(super) fn ask(&self, pacing: &mut Pacing, question: &Question<'_>, asking: Asking) -> Turn {
        pacing.asks = true;
        match asking {
            Asking::Claim => self.may_claim(pacing, question),
            Asking::Start => self.may_start(pacing, question),
        }
    }

    fn may_claim(&self, pacing: &mut Pacing, question: &Question<'_>) -> Turn {
        if !self.may_publish() {
            return Turn::Wait(Hold::Syncing { have: 0, need: 1 });
        }
        if let Some(hold) = self.amnesia() {
            return Turn::Wait(hold);
        }
        if !needs_slot(question.life.now.health.as_ref().map(|(health, _)| health)) {
            return Turn::Claim(None);
        }
        let (Some(pool), Some(following)) = (self.pool(), self.following.get(&question.mission.seen.id)) else {
            return Turn::Wait(Hold::NoCertificate);
        };
        let Some(progress) = &following.progress else { return Turn::Wait(Hold::RosterMissing) };
        let Some(map) = self.map_to_claim_under(&pool) else { return Turn::Wait(Hold::RosterChange(None)) };
        let Some(seats) = map.pool(&pool) else { return Turn::Wait(Hold::RosterChange(None)) };
        if self.outlasts_presumed_loss(progress.rollout(), &map.roster(), &pool) {
            return Turn::Wait(Hold::OutlastsPresumedLoss(pool));
        }
        let urgent = progress.rollout().urgent;
        let board = pacing.board.take().filter(|board| board.is_of(map, &pool));
        let board = pacing.board.insert(board.unwrap_or_else(|| Board::new(self.me, map, &pool)));
        board.refresh(map, &self.claims, &self.sight(), self.presence.up_ms());
        let mut free = board.free(seats.slots(urgent));
        // What older rosters keep shut would be refused.
        let own = self.duty.warden.record();
        let (rosters, sight) = (self.rosters(), self.sight());
        let handover = Handover::to(map, self.reader(&own, &rosters, &sight));
        let mut shut = None;
        free.retain(|number| {
            let opens = handover.opens(&Slot { pool: pool.clone(), number: *number });
            shut = shut.or(opens.err());
            opens.is_ok()
        });
        if let Some(waiting) = shut.filter(|_| free.is_empty()) {
            return Turn::Wait(Hold::RosterChange(Some(waiting)));
        }
        let ahead = progress.tally().ahead_of(&self.me).unwrap_or(0);
        let queue = pacing.queues.entry(question.product.clone()).or_default();
        match queue.turn(question.now.boot, ahead, &free) {
            queue::Turn::Claim(number) => {
                let slot = Slot { pool, number };
                if let Err(hold) = self.synced_with_wardens(pacing, map, &slot) {
                    return Turn::Wait(hold);
                }
                pacing.queues.entry(question.product.clone()).or_default().leave();
                Turn::Claim(Some(number))
            }
            queue::Turn::Wait(Turnless::NoneFree) => {
                let slots = u32::from(seats.slots(urgent));
                let holders = pacing.board.iter().flat_map(Board::holders).filter_map(|holder| self.name_of(holder)).take(5);
                Turn::Wait(Hold::SlotsTaken { pool, holders: holders.collect(), slots })
            }
            queue::Turn::Wait(Turnless::Queued { ahead, at }) => {
                pacing.wake(at);
                Turn::Wait(Hold::Queued { ahead: count(ahead) })
            }
            queue::Turn::Wait(Turnless::Paused { until }) => {
                pacing.wake(until);
                Turn::Wait(Hold::Queued { ahead: count(ahead) })
            }
        }
    }

    fn may_start(&self, pacing: &mut Pacing, question: &Question<'_>) -> Turn {
        // Of other slots it needs to know nothing while it has one.
        pacing.board = None;
        let life = question.life;
        let Some(claim) = &life.kept.claim else { return Turn::Withdraw(Hold::Queued { ahead: 0 }) };
        // Noticed between claim and start: what this node did before may stand on a slot.
        if let Some(hold) = self.amnesia() {
            return Turn::Withdraw(hold);
        }
        let Some(seen) = SeenClaim::of(self.me, claim, false) else {
            // A repair: free only as long as the node is down.
            let down = !needs_slot(life.now.health.as_ref().map(|(health, _)| health));
            return if down { Turn::Start } else { Turn::Withdraw(Hold::Queued { ahead: 0 }) };
        };
        let map = self.maps.get(&claim.roster);
        let wardens = map.and_then(|map| map.wardens(&seen.slot));
        let start_within_ms = map.and_then(|map| map.pool(&seen.slot.pool)).map_or(0, |seats| seats.start_within_ms());
        let made = life.now.claimed.map(|(boot, wall)| MadeAt::new(boot, wall));
        let synced = match wardens {
            Some(wardens) => self.synced.enough(&self.me, wardens),
            None => Ok(()),
        };
        let facts = StartFacts {
            made,
            now: question.now,
            start_within_ms,
            stopped: false,
            roster_moved: self.map_to_claim_under(&seen.slot.pool).is_some_and(|newest| newest.roster() != claim.roster),
            older_generation: claim.purpose != Purpose::Rollout(question.mission.seen.digest),
            wardens,
            synced,
        };
        let queue = pacing.queues.entry(question.product.clone()).or_default();
        match may_start(&seen, &facts, &self.sight()) {
            Start::Yes => {
                queue.won();
                Turn::Start
            }
            Start::Wait { have, need, missing } => {
                if let Some((made, _)) = life.now.claimed {
                    pacing.wake(made.after_ms(start_within_ms.saturating_add(1)));
                }
                Turn::Wait(Hold::Granting {
                    have: count(have),
                    need: count(need),
                    missing: missing.into_iter().take(5).collect(),
                })
            }
            Start::Withdraw(Withdraw::LostVote | Withdraw::TooLate { .. }) => {
                queue.lost(question.now.boot, question.random);
                Turn::Withdraw(Hold::Queued { ahead: 0 })
            }
            Start::Withdraw(Withdraw::NoWardens | Withdraw::RosterMoved) => Turn::Withdraw(Hold::RosterChange(None)),
            Start::Withdraw(Withdraw::Restarted | Withdraw::Stopped | Withdraw::OlderGeneration | Withdraw::WrittenOff) => {
                Turn::Withdraw(Hold::Queued { ahead: 0 })
            }
        }
    }

    /// This node's store was set back, and it neither claims nor starts yet (rule 7).
    fn amnesia(&self) -> Option<Hold> {
        let left_ms = self.duty.warden.holder_waits_ms(self.presence.up_ms())?;
        Some(Hold::Amnesia { left_seconds: left_ms.div_ceil(1_000) })
    }

    fn synced_with_wardens(&self, pacing: &mut Pacing, map: &PoolMap, slot: &Slot) -> Result<(), Hold> {
        let Some(wardens) = map.wardens(slot) else { return Err(Hold::RosterChange(None)) };
        self.synced.enough(&self.me, wardens).map_err(|Syncing { have, need }| {
            pacing.seek(wardens.nodes.iter().filter(|node| **node != self.me && !self.synced.has(node)));
            Hold::Syncing { have: count(have), need: count(need) }
        })
    }

    /// Be in touch with the wardens of a slot.
    pub(super) fn seek_wardens(&mut self, slot: &Slot, roster: Digest) {
        let Some(wardens) = self.maps.get(&roster).and_then(|map| map.wardens(slot)) else { return };
        let (me, synced) = (self.me, &self.synced);
        self.pacing.seek(wardens.nodes.iter().filter(|node| **node != me && !synced.has(node)));
    }

    /// The roster under which this node claims.
    pub(super) fn map_to_claim_under(&self, pool: &Pool) -> Option<&PoolMap> {
        let roster = self.rosters().to_claim_under(pool, self.duty.warden.declared(), &self.sight())?.roster();
        self.maps.get(&roster).map(|map| &**map)
    }

    /// This node as a reader of what wardens say.
    pub(super) fn reader<'a>(
        &'a self,
        own: &'a Grants,
        rosters: &'a Rosters<'a>,
        sight: &'a NodeSight<'a>,
    ) -> Reader<'a, NodeSight<'a>> {
        Reader { me: self.me, own, rosters, sight, synced: &self.synced }
    }

    /// This node's pool, by its newest certificate.
    pub(super) fn pool(&self) -> Option<Pool> {
        self.shelf.certificate(&self.me)?.pool.clone()
    }

    pub(super) fn name_of(&self, node: &NodeId) -> Option<NodeName> {
        self.shelf.certificate(node).map(|certificate| certificate.name.clone())
    }
}

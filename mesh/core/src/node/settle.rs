//! Drawing all consequences of an input, and when to look again.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use rand_chacha::rand_core::Rng as _;

use super::Node;
use super::effect::{Effect, Event, Step};
use super::hold::Hold;
use super::keys::StoreKey;
use super::life::{Act, Kept};
use super::mission::Orders;
use super::sight::NodeSight;
use super::turn::Question;
use crate::limits::SAVE_RECORDS_AFTER_MS;
use crate::node_id::NodeId;
use crate::record::status::{Claim, Phase, Purpose};
use crate::record::{ClaimName, RecordKind};
use crate::spread::neighbours::{Member, Whom};
use crate::text::{Product, Reason};
use crate::time::{Now, Time};

/// Rounds in which one thing may follow from another within one input. What is left waits for the next wake-up, at once.
const ROUNDS: usize = 16;

impl Node {
    /// Lets everything follow from what was taken in.
    pub(super) fn settle(&mut self, now: Now) {
        let mut unsettled = true;
        for _ in 0..ROUNDS {
            if self.documents_changed {
                self.reread_documents(alloc::collections::BTreeMap::new());
                self.duty.stale = true;
                self.stale.lives = true;
                self.pacing.board = None;
                self.reach_stale = true;
            }
            self.settle_rollouts(now);
            let mut moved = false;
            let look = self.look_at_lives(now);
            if look {
                self.pacing.wake_at = None;
                self.pacing.asks = false;
                let products: Vec<Product> = self.lives.keys().cloned().collect();
                for product in products {
                    moved |= self.advance(now, &product);
                }
            }
            moved |= self.do_duty(now);
            if look || moved || self.stale.renewal.is_some_and(|at| at <= now.boot) {
                moved |= self.publish_status(now);
                self.lives_settled(now);
            }
            unsettled = moved || self.documents_changed;
            if !unsettled {
                break;
            }
        }
        self.save(now);
        let spread = self.reach_out(now);
        self.visit(now);
        self.wakeup = if unsettled { Some(now.boot) } else { self.earliest(now, spread) };
    }

    /// Moves one product as far as it goes.
    fn advance(&mut self, now: Now, product: &Product) -> bool {
        let Some(mut life) = self.lives.remove(product) else { return false };
        let (before, hold) = (life.kept.clone(), life.now.hold.clone());
        let mut pacing = core::mem::take(&mut self.pacing);
        let random = self.rng.next_u64();
        life.now.next_name = ClaimName(self.own.next_stamp());
        let agent = self.config.agent.as_ref().filter(|agent| agent.product == *product);
        life.now.company = agent.map(|_| self.synced.any());
        let mut acts = match self.orders(now, product, &life) {
            Orders::Mission(mission) => life.advance(now, Some(&mission), &mut |life, asking| {
                let question = Question { now, product, mission: &mission, life, random };
                self.ask(&mut pacing, &question, asking)
            }),
            Orders::Rest(hold) => {
                let acts = life.advance(now, None, &mut |_, _| super::life::Turn::Wait(Hold::NoFleet));
                if life.kept.phase == Phase::Idle {
                    life.now.hold = hold;
                }
                acts
            }
        };
        self.pacing = pacing;
        self.lives.insert(product.clone(), life);
        let starts = acts.iter().any(|act| matches!(act, Act::Device(Step::Activate { .. })));
        if starts
            && let Some(hold) = self.unspeakable()
            && let Some(life) = self.lives.get_mut(product)
        {
            // What nobody could be told must not happen: withdraw before anything is kept or touched.
            life.kept.clone_from(&before);
            life.withdraw_to(Phase::Staged, Some(hold));
            acts.clear();
            self.pacing.lost(product, now.boot, random);
        }
        self.carry_out(now, product, &before, hold.as_ref(), acts)
    }

    /// Keeps the new state, publishes it, and only then has the device act. Whether anything changed.
    pub(super) fn carry_out(&mut self, now: Now, product: &Product, before: &Kept, hold: Option<&Hold>, acts: Vec<Act>) -> bool {
        let mut steps = Vec::new();
        for act in acts {
            match act {
                Act::Claim(slot) => self.claim(now, product, slot),
                Act::Device(step) => steps.push(step),
                Act::Verdict(rollout, outcome, reason) => {
                    self.tell(Event::VerdictSigned { product: product.clone(), rollout, outcome, reason });
                }
            }
        }
        let Some(life) = self.lives.get(product) else { return false };
        if steps.is_empty() && life.kept == *before && life.now.hold.as_ref().map(Hold::code) == hold.map(Hold::code) {
            return false;
        }
        let (after, now_hold) = (life.kept.clone(), life.now.hold.clone());
        let codes = (hold.map(Hold::code), now_hold.as_ref().map(Hold::code));
        if after.phase != before.phase || codes.0 != codes.1 {
            let verdict = after.verdicts.last().filter(|_| matches!(after.phase, Phase::Failed | Phase::RolledBack));
            let reason = verdict.map(|verdict| verdict.reason.clone());
            let rollout = after.rollout.as_ref().map(|seen| seen.id.clone());
            let (from, to) = (before.phase, after.phase);
            self.tell(Event::PhaseChanged { product: product.clone(), rollout, from, to, hold: now_hold, reason });
        }
        let changed = after != *before;
        if changed {
            self.persist(&StoreKey::Life(product.clone()), Some(after.encode()));
            self.publish_status(now);
        }
        let moved = changed || !steps.is_empty();
        for step in steps {
            self.effects.push(Effect::Device { product: product.clone(), step });
        }
        moved
    }

    /// Makes a claim: its name is the stamp of the record that will first carry it.
    fn claim(&mut self, now: Now, product: &Product, slot: Option<u16>) {
        let name = ClaimName(self.own.next_stamp());
        let nonce = self.rng.next_u64();
        let Some(pool) = self.pool() else { return };
        let Some(roster) = self.map_to_claim_under(&pool).map(|map| map.roster()).or_else(|| self.maps.keys().next().copied())
        else {
            return;
        };
        let Some(life) = self.lives.get_mut(product) else { return };
        let Some(seen) = &life.kept.rollout else { return };
        life.kept.claim = Some(Claim { name, nonce, pool, slot, roster, purpose: Purpose::Rollout(seen.digest) });
        life.kept.phase = Phase::Claiming;
        life.now.claimed = Some((now.boot, now.wall));
        life.now.hold = None;
    }

    /// Keeps what may be kept late: members' records and the up time.
    fn save(&mut self, now: Now) {
        let due = now.boot >= self.saved_records_at.after_ms(SAVE_RECORDS_AFTER_MS);
        if due && !self.unsaved.is_empty() {
            for key in core::mem::take(&mut self.unsaved) {
                self.persist_record(key);
            }
            self.saved_records_at = now.boot;
        }
        let saves = self.presence.take_saves();
        if !saves.is_empty() {
            let running: Vec<(Product, Vec<u8>)> = self
                .lives
                .iter_mut()
                .filter_map(|(product, life)| life.put_down(now).then(|| (product.clone(), life.kept.encode())))
                .collect();
            for (product, kept) in running {
                self.persist(&StoreKey::Life(product), Some(kept));
            }
        }
        self.persist_presence(saves);
    }

    /// Keeps what a version on trial has to know of an orderly end.
    pub(super) fn stop_lives(&mut self, now: Now) {
        let stopped =
            self.lives.iter_mut().filter_map(|(product, life)| life.stop(now).then(|| (product.clone(), life.kept.encode())));
        for (product, kept) in stopped.collect::<Vec<_>>() {
            self.persist(&StoreKey::Life(product), Some(kept));
        }
    }

    /// Whom this node needs as peers beside its own three: wardens that it must sync with, those of the slots that it claims, and
    /// whoever holds a promise of it, who dials by itself.
    fn needed_links(&self) -> BTreeSet<NodeId> {
        let holders = self.counterparts(RecordKind::Grants).into_iter().filter(|node| self.connected.contains(node));
        let wardens = self.counterparts(RecordKind::Status);
        self.pacing.seek.iter().copied().chain(wardens).chain(holders).collect()
    }

    /// Frames to neighbours, and whom to dial. When frames are due next.
    fn reach_out(&mut self, now: Now) -> Option<Time> {
        let unsynced: Vec<_> = self.pacing.seek.iter().copied().filter(|node| self.connected.contains(node)).collect();
        for peer in unsynced {
            self.pacing.seek.remove(&peer);
            self.spread.sync_with(now.boot, &peer);
        }
        let mut spread = self.spread.next_wakeup();
        if spread.is_some_and(|due| due <= now.boot) {
            self.spread.wake(now.boot, &self.ledger, &self.shelf);
            spread = self.spread.next_wakeup();
        }
        for (peer, bytes) in self.spread.take_frames() {
            self.effects.push(Effect::Send { peer, bytes });
        }
        let due = self.neighbours.next_wakeup().is_some_and(|due| due <= now.boot);
        if core::mem::take(&mut self.reach_stale) || core::mem::take(&mut self.pacing.seeks_more) || due {
            let needed = self.needed_links();
            let sight = NodeSight {
                ledger: &self.ledger,
                shelf: &self.shelf,
                presence: &self.presence,
                written_off: &self.written_off,
                departed: &self.departed,
            };
            let members: Vec<Member<'_>> = match self.neighbours.whom(now.boot, &needed, |node| sight.dialable(node)) {
                Whom::Everybody => {
                    let known = self.ledger.statuses().map(|(node, _)| node);
                    let known = known.chain(self.neighbours.remembered().map(|(node, _)| node));
                    known.filter_map(|node| sight.dialable(node)).collect()
                }
                Whom::Only(missing) => missing.iter().filter_map(|node| sight.dialable(node)).collect(),
            };
            for dial in self.neighbours.dials(now.boot, members, &needed) {
                self.effects.push(Effect::Dial { peer: dial.peer, addresses: dial.addresses });
            }
            for peer in self.neighbours.take_left() {
                self.effects.push(Effect::Hangup {
                    peer,
                    reason: Reason::lossy("it is needed no more, or another neighbour took its place"),
                });
            }
        }
        spread
    }

    /// The earliest instant at which time alone changes something. `spread`: at which frames are due.
    fn earliest(&self, now: Now, spread: Option<Time>) -> Option<Time> {
        let up_ms = self.presence.up_ms();
        let after_up = |due: u64| now.boot.after_ms(due.saturating_sub(up_ms));
        let own = [
            spread,
            self.neighbours.next_wakeup(),
            self.pacing.wake_at,
            self.next_visit(),
            Some(now.boot.after_ms(self.presence.save_due_in_ms().max(1_000))),
            self.stale.due,
        ];
        let save = (!self.unsaved.is_empty()).then(|| self.saved_records_at.after_ms(SAVE_RECORDS_AFTER_MS));
        // A warden that may not sign decides nothing, and must not wake for it.
        let renewal = self.stale.renewal.map(|renewal| [Some(renewal), self.duty.look_again_at_up_ms.map(after_up)]);
        let board = self.pacing.board.as_ref().filter(|_| self.pacing.asks).and_then(|board| board.due_ms()).map(after_up);
        let following = self.following.values().filter_map(|following| following.progress.as_ref()).flat_map(|progress| {
            let (up, wall) = progress.wakeup();
            [up.map(after_up), wall.map(|wall| now.boot.after_ms(wall.since_seconds(now.wall).saturating_mul(1_000)))]
        });
        let times = own.into_iter().chain([save, board]).chain(renewal.into_iter().flatten()).chain(following);
        // Never in the past: the driver would spin.
        times.flatten().min().map(|time| time.max(now.boot.after_ms(1)))
    }
}

//! What of a node must be looked at again: most records change nothing here but a count, and cost no more than that.

use alloc::vec::Vec;

use super::Node;
use crate::lease::claim::SeenClaim;
use crate::lease::wardens::Wardens;
use crate::record::{RecordKey, RecordKind};
use crate::time::{Now, Time};

/// What time does unnoticed (documents that expire, counts in a hold) is noticed within this, in milliseconds.
const LOOK_EVERY_MS: u64 = 5_000;

/// Whether this node's lives may move.
#[derive(Debug, Default)]
pub(super) struct Stale {
    /// Something changed that they go by.
    pub(super) lives: bool,
    /// When they were looked at last.
    looked_at: Option<Time>,
    /// When time alone may move one.
    pub(super) due: Option<Time>,
    /// When the status is due though nothing changed; `None`: never, for this node may not sign.
    pub(super) renewal: Option<Time>,
}

impl Node {
    /// Whether the lives are to be looked at now. Notes that they are.
    pub(super) fn look_at_lives(&mut self, now: Now) -> bool {
        let due = [self.stale.due, self.pacing.wake_at].into_iter().flatten().any(|at| at <= now.boot);
        let long_ago = self.stale.looked_at.is_none_or(|at| now.boot.since_ms(at) >= LOOK_EVERY_MS);
        let board = self.pacing.asks && self.slots_moved();
        let look = core::mem::take(&mut self.stale.lives) || due || long_ago || board;
        if look {
            self.stale.looked_at = Some(now.boot);
        }
        look
    }

    /// Whether a slot of the board became free, or was taken, since the last look.
    fn slots_moved(&mut self) -> bool {
        let up_ms = self.presence.up_ms();
        let Some(mut board) = self.pacing.board.take_if(|board| board.is_stale(up_ms)) else { return false };
        let pool = self.pool();
        let map = pool.as_ref().and_then(|pool| self.map_to_claim_under(pool).filter(|map| board.is_of(map, pool)));
        // Of another roster it is made anew by the look.
        let Some(map) = map else { return true };
        let moved = board.refresh(map, &self.claims, &self.sight(), up_ms);
        self.pacing.board = Some(board);
        moved
    }

    /// Nothing moves any more: when time alone does.
    pub(super) fn lives_settled(&mut self, now: Now) {
        self.stale.due = self.lives.values().filter_map(|life| life.deadline(now)).min();
        self.stale.renewal = self.may_publish().then(|| self.renewal_due());
    }

    /// The entry under `key` changed; `before` and `after` are its node's claims.
    pub(super) fn note_lease_change(&mut self, key: RecordKey, before: &[SeenClaim]) {
        let convicted = self.ledger.is_convicted(&key.node);
        self.stale.lives |= convicted || key.node == self.me;
        if let Some(board) = &mut self.pacing.board {
            if let Some(map) = self.maps.get(&board.roster()) {
                board.record_changed(map, &key, convicted);
            }
            for claim in self.claims.of(&key.node) {
                board.claim_came(&claim.slot);
            }
        }
        // A declaration opens slots only where leases move from one roster to another; a grant moves whoever claims.
        let declares = key.kind == RecordKind::Grants;
        let several = self.shelf.has_several_rosters();
        let moves = declares && several;
        let claims = self.claims.of(&self.me).next().is_some();
        self.stale.lives |= self.pacing.asks && (several || declares && claims);
        let promised = self.duty.warden.has_promised(&key.node);
        let claims: Vec<&SeenClaim> = self.claims.of(&key.node).chain(before).collect();
        let mine = !claims.is_empty() && claims.iter().any(|claim| self.may_ward(claim));
        self.duty.stale |= convicted || moves || promised || mine || self.duty.warden.remembers_nothing();
    }

    /// Whether this node may have a say on a claim's slot: as one of its wardens under any roster that is here.
    pub(super) fn may_ward(&self, claim: &SeenClaim) -> bool {
        let wards = |wardens: &Wardens| wardens.contains(&self.me);
        !self.maps.contains_key(&claim.roster) || self.maps.values().any(|map| map.wardens(&claim.slot).is_some_and(wards))
    }
}

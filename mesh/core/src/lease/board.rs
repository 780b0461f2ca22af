//! Which slots of one pool look free, kept up as records come: a change of one record costs the slots that it speaks of.
//!
//! It says what [`super::view`] says of all slots anew. A slot is looked at again when a record of somebody changed who stands
//! on it, wards it or is promised it, when a claim comes to it, and when time makes somebody on it silent or lost.
//! Documents change everything: then a new board is made.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::lease::budget::{PoolMap, Slot};
use crate::lease::claims::Claims;
use crate::lease::sight::Sight;
use crate::lease::view::{changes_in_ms, slot_of};
use crate::node_id::NodeId;
use crate::record::{RecordKey, RecordKind};
use crate::text::Pool;

/// One pool's slots under one roster, as one node that would claim sees them: its own claims do not count.
#[derive(Debug)]
pub struct Board {
    me: NodeId,
    roster: Digest,
    pool: Pool,
    cells: Vec<Cell>,
    /// On which slots a node stands, or is promised one: there its status matters.
    of: BTreeMap<NodeId, BTreeSet<u16>>,
    stale: BTreeSet<u16>,
    /// When time alone may change a slot, in up time.
    due: BTreeSet<(u64, u16)>,
}

#[derive(Debug, Default)]
struct Cell {
    free: bool,
    holder: Option<NodeId>,
    holders: BTreeSet<NodeId>,
    due_ms: Option<u64>,
}

impl Board {
    /// Of `pool` under `map`; nothing is looked at before [`Board::refresh`].
    #[must_use]
    pub fn new(me: NodeId, map: &PoolMap, pool: &Pool) -> Self {
        let slots = map.pool(pool).map_or(0, |seats| seats.slots(true));
        Self {
            me,
            roster: map.roster(),
            pool: pool.clone(),
            cells: (0..slots).map(|_| Cell::default()).collect(),
            of: BTreeMap::new(),
            stale: (0..slots).collect(),
            due: BTreeSet::new(),
        }
    }

    /// Whether it is this pool's under this roster.
    #[must_use]
    pub fn is_of(&self, map: &PoolMap, pool: &Pool) -> bool {
        self.roster == map.roster() && self.pool == *pool
    }

    /// The record under `key` changed: a status says how its node stands on slots, grants whom it promised those that it wards.
    /// `convicted`: its node is, so what it says in the other kind counts otherwise too. `map` is the board's.
    pub fn record_changed(&mut self, map: &PoolMap, key: &RecordKey, convicted: bool) {
        if key.kind == RecordKind::Status || convicted {
            self.stale.extend(self.of.get(&key.node).into_iter().flatten());
        }
        if key.kind == RecordKind::Grants || convicted {
            self.stale.extend(map.warded_by(&self.pool, &key.node));
        }
    }

    /// Body digest of the roster that it is under.
    #[must_use]
    pub fn roster(&self) -> Digest {
        self.roster
    }

    /// A claim on this slot came.
    pub fn claim_came(&mut self, slot: &Slot) {
        if slot.pool == self.pool && usize::from(slot.number) < self.cells.len() {
            self.stale.insert(slot.number);
        }
    }

    /// Whether a slot is to be looked at again at `up_ms`.
    #[must_use]
    pub fn is_stale(&self, up_ms: u64) -> bool {
        !self.stale.is_empty() || self.due.first().is_some_and(|(due, _)| *due <= up_ms)
    }

    /// When time alone may change a slot next, in up time.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Looks again at what changed. `map`, `claims` and `sight` are of one instant, `up_ms`. Whether a slot became free or
    /// was taken.
    pub fn refresh(&mut self, map: &PoolMap, claims: &Claims, sight: &impl Sight, up_ms: u64) -> bool {
        let mut moved = false;
        while let Some((_, number)) = self.due.first().filter(|(due, _)| *due <= up_ms).copied() {
            self.due.pop_first();
            self.stale.insert(number);
        }
        while let Some(number) = self.stale.pop_first() {
            let slot = Slot { pool: self.pool.clone(), number };
            let (Some(cell), Some(seats), Some(wardens)) =
                (self.cells.get_mut(usize::from(number)), map.pool(&self.pool), map.wardens(&slot))
            else {
                continue;
            };
            let me = self.me;
            let on: Vec<_> = claims.on(&slot).filter(|claim| claim.holder != me).collect();
            if let Some(due) = cell.due_ms.take() {
                self.due.remove(&(due, number));
            }
            let promised = wardens.nodes.iter().flat_map(|warden| sight.promises(warden));
            let promised =
                promised.filter(|promise| promise.pool == slot.pool && promise.slot == number).map(|promise| promise.holder);
            let holders: BTreeSet<NodeId> = promised.chain(on.iter().map(|claim| claim.holder)).collect();
            let change = holders.iter().filter_map(|holder| changes_in_ms(holder, seats, sight)).min();
            for gone in cell.holders.difference(&holders) {
                if let Some(slots) = self.of.get_mut(gone) {
                    slots.remove(&number);
                    if slots.is_empty() {
                        self.of.remove(gone);
                    }
                }
            }
            for come in holders.difference(&cell.holders) {
                self.of.entry(*come).or_default().insert(number);
            }
            let view = slot_of(slot.clone(), seats, wardens, on.into_iter(), sight);
            moved |= view.free != cell.free;
            *cell = Cell {
                free: view.free,
                holder: view.occupant.map(|occupant| occupant.holder),
                holders,
                due_ms: change.map(|after| up_ms.saturating_add(after)),
            };
            self.due.extend(cell.due_ms.map(|due| (due, number)));
        }
        moved
    }

    /// The numbers of the slots below `end` that look free, ascending.
    #[must_use]
    pub fn free(&self, end: u16) -> Vec<u16> {
        (0..end).zip(&self.cells).filter(|(_, cell)| cell.free).map(|(number, _)| number).collect()
    }

    /// Who stands on its slots, in their order.
    pub fn holders(&self) -> impl Iterator<Item = &NodeId> {
        self.cells.iter().filter_map(|cell| cell.holder.as_ref())
    }
}

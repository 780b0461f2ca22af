//! Every standing claim on a slot, by holder and by slot.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::lease::budget::Slot;
use crate::lease::claim::SeenClaim;
use crate::node_id::NodeId;

/// The claims that stand in the records known here.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    by_holder: BTreeMap<NodeId, Vec<SeenClaim>>,
    by_slot: BTreeMap<Slot, BTreeSet<NodeId>>,
}

impl Claims {
    /// These are the claims of `holder` now. Returns those that it had.
    pub fn set(&mut self, holder: NodeId, claims: Vec<SeenClaim>) -> Vec<SeenClaim> {
        let before = self.by_holder.remove(&holder).unwrap_or_default();
        for claim in &before {
            if let Some(holders) = self.by_slot.get_mut(&claim.slot) {
                holders.remove(&holder);
                if holders.is_empty() {
                    self.by_slot.remove(&claim.slot);
                }
            }
        }
        for claim in &claims {
            self.by_slot.entry(claim.slot.clone()).or_default().insert(holder);
        }
        if !claims.is_empty() {
            self.by_holder.insert(holder, claims);
        }
        before
    }

    /// Those of one node.
    pub fn of(&self, holder: &NodeId) -> impl Iterator<Item = &SeenClaim> {
        self.by_holder.get(holder).into_iter().flatten()
    }

    /// Those on one slot, in order of holders.
    pub fn on<'a>(&'a self, slot: &'a Slot) -> impl Iterator<Item = &'a SeenClaim> {
        let holders = self.by_slot.get(slot).into_iter().flatten();
        holders.flat_map(|holder| self.of(holder)).filter(move |claim| claim.slot == *slot)
    }

    /// All of them, in order of holders.
    pub fn all(&self) -> impl Iterator<Item = &SeenClaim> {
        self.by_holder.values().flatten()
    }
}

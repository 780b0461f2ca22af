//! With whom this node has synced since its start (rule 1): before it has synced with enough wardens of a slot,
//! it neither claims nor starts nor grants there, for it may have forgotten what they know.

use alloc::collections::BTreeSet;

use crate::lease::wardens::Wardens;
use crate::node_id::NodeId;

/// Peers with which a sync has completed since this process started. Kept in memory only; at most one entry per member.
#[derive(Clone, Debug, Default)]
pub struct Synced {
    with: BTreeSet<NodeId>,
}

/// Not in touch with enough other wardens of the slot since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("synced with {have} of {need} other wardens since the start")]
pub struct Syncing {
    /// Synced so far.
    pub have: usize,
    /// Needed.
    pub need: usize,
}

impl Synced {
    /// A sync with `peer` has completed.
    pub fn note(&mut self, peer: NodeId) {
        self.with.insert(peer);
    }

    /// Whether a sync with anybody has completed.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.with.is_empty()
    }

    /// Whether a sync with `node` has completed.
    #[must_use]
    pub fn has(&self, node: &NodeId) -> bool {
        self.with.contains(node)
    }

    /// Whether `me` may take part in leases on a slot with these wardens: `min(2, quorum − 1)` others.
    ///
    /// # Errors
    /// How many are still missing.
    pub fn enough(&self, me: &NodeId, wardens: &Wardens) -> Result<(), Syncing> {
        let need = wardens.quorum.saturating_sub(1).min(2);
        let have = wardens.nodes.iter().filter(|warden| *warden != me && self.with.contains(warden)).count();
        if have < need { Err(Syncing { have, need }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::lease::wardens::Quorum;

    fn wardens(count: u8) -> Wardens {
        let table = Quorum::of(usize::from(count)).unwrap();
        let nodes: Vec<NodeId> = (0..count).map(|n| NodeId([n; 32])).take(table.wardens).collect();
        Wardens { nodes, quorum: table.quorum, may_lie: table.may_lie }
    }

    #[test]
    fn a_lone_warden_needs_nobody_a_pool_of_three_one_other_a_larger_one_two() {
        let mut synced = Synced::default();
        let me = NodeId([0; 32]);
        assert_eq!(synced.enough(&me, &wardens(1)), Ok(()));
        assert_eq!(synced.enough(&me, &wardens(3)), Err(Syncing { have: 0, need: 1 }));
        synced.note(me);
        assert_eq!(synced.enough(&me, &wardens(3)), Err(Syncing { have: 0, need: 1 }), "itself does not count");
        synced.note(NodeId([1; 32]));
        assert_eq!(synced.enough(&me, &wardens(3)), Ok(()));
        assert_eq!(synced.enough(&me, &wardens(9)), Err(Syncing { have: 1, need: 2 }));
        synced.note(NodeId([200; 32]));
        assert_eq!(synced.enough(&me, &wardens(9)), Err(Syncing { have: 1, need: 2 }), "no warden of the slot");
        synced.note(NodeId([2; 32]));
        assert_eq!(synced.enough(&me, &wardens(9)), Ok(()));
    }
}

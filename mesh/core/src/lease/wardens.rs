//! Who keeps the promise of a slot: rendezvous hashing over the candidates, and the table of quorums.
//!
//! The choice is a pure function of pool, slot and candidates, not of the roster's digest, so that a roster that
//! changes little moves few slots.

use alloc::vec::Vec;

use crate::lease::budget::Slot;
use crate::node_id::NodeId;

const DOMAIN: &[u8] = b"groundswell.wardens.1\0";

/// How many wardens a slot has, how many must grant, and how many of them may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    /// Wardens of a slot.
    pub wardens: usize,
    /// Grants that let a holder start.
    pub quorum: usize,
    /// Wardens that may lie without breaking the budget.
    pub may_lie: usize,
}

impl Quorum {
    /// The table of section 7, by the number of nodes that wardens are drawn from. `None` for 0: nobody can promise.
    ///
    /// Two quorums share `2·quorum − wardens` wardens, at least one more than may lie.
    #[must_use]
    pub fn of(candidates: usize) -> Option<Self> {
        let (wardens, quorum, may_lie) = match candidates {
            0 => return None,
            1 | 2 => (1, 1, 0),
            3 => (3, 2, 0),
            4..=6 => (4, 3, 1),
            7 | 8 => (7, 5, 2),
            _ => (9, 6, 2),
        };
        Some(Self { wardens, quorum, may_lie })
    }
}

/// The wardens of one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wardens {
    /// Sorted by id.
    pub nodes: Vec<NodeId>,
    /// Grants that let a holder start.
    pub quorum: usize,
    /// Wardens that may lie without breaking the budget.
    pub may_lie: usize,
}

impl Wardens {
    /// Draws the wardens of `slot` from `candidates` by rendezvous hash. None at all when there are no candidates;
    /// then the quorum is 1 and never reached.
    #[must_use]
    pub fn draw(slot: &Slot, candidates: &[NodeId]) -> Self {
        let Some(table) = Quorum::of(candidates.len()) else {
            return Self { nodes: Vec::new(), quorum: 1, may_lie: 0 };
        };
        let mut scored: Vec<([u8; 32], NodeId)> = candidates.iter().map(|node| (score(slot, node), *node)).collect();
        scored.sort_unstable();
        let mut nodes: Vec<NodeId> = scored.into_iter().take(table.wardens).map(|(_, node)| node).collect();
        nodes.sort_unstable();
        Self { nodes, quorum: table.quorum, may_lie: table.may_lie }
    }

    /// Whether `node` is one of them.
    #[must_use]
    pub fn contains(&self, node: &NodeId) -> bool {
        self.nodes.binary_search(node).is_ok()
    }
}

fn score(slot: &Slot, node: &NodeId) -> [u8; 32] {
    let name = slot.pool.as_str().as_bytes();
    let mut hasher = blake3::Hasher::new();
    hasher.update(DOMAIN);
    hasher.update(&u64::try_from(name.len()).unwrap_or(u64::MAX).to_be_bytes());
    hasher.update(name);
    hasher.update(&slot.number.to_be_bytes());
    hasher.update(&node.0);
    hasher.finalize().into()
}

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
        if table.wardens < scored.len() {
            scored.select_nth_unstable(table.wardens);
        }
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

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;
    use crate::text::Pool;

    fn slot(number: u16) -> Slot {
        Slot { pool: Pool::new("edge").unwrap(), number }
    }

    fn nodes(count: u8) -> Vec<NodeId> {
        (0..count).map(|number| NodeId([number; 32])).collect()
    }

    #[test]
    fn the_table_at_each_of_its_edges() {
        let row = |count| Quorum::of(count).map(|table| (table.wardens, table.quorum, table.may_lie));
        assert_eq!(row(0), None);
        assert_eq!([1, 2].map(row), [Some((1, 1, 0)); 2]);
        assert_eq!(row(3), Some((3, 2, 0)));
        assert_eq!([4, 5, 6].map(row), [Some((4, 3, 1)); 3]);
        assert_eq!([7, 8].map(row), [Some((7, 5, 2)); 2]);
        assert_eq!([9, 10, 10_000].map(row), [Some((9, 6, 2)); 3]);
    }

    proptest::proptest! {
        #[test]
        fn any_two_quorums_share_more_wardens_than_may_lie(count in 1_u8..40, number in 0_u16..50, one in 0_u64.., two in 0_u64..) {
            let wardens = Wardens::draw(&slot(number), &nodes(count));
            // Any subset of quorum size: the wardens in an order that the seed gives.
            let subset = |seed: u64| -> BTreeSet<NodeId> {
                let mut shuffled = wardens.nodes.clone();
                shuffled.sort_by_key(|node| *blake3::hash(&[&seed.to_be_bytes()[..], &node.0].concat()).as_bytes());
                shuffled.into_iter().take(wardens.quorum).collect()
            };
            let shared = subset(one).intersection(&subset(two)).count();
            proptest::prop_assert!(shared > wardens.may_lie, "{shared} shared, {} may lie", wardens.may_lie);
            proptest::prop_assert!(2 * wardens.quorum > wardens.nodes.len() + wardens.may_lie, "the smallest share of any two");
            proptest::prop_assert!(wardens.nodes.is_sorted() && wardens.nodes.iter().all(|node| wardens.contains(node)));
        }

        #[test]
        fn a_newcomer_takes_at_most_one_seat(count in 9_u8..40, number in 0_u16..50) {
            let before: BTreeSet<NodeId> = Wardens::draw(&slot(number), &nodes(count)).nodes.into_iter().collect();
            let after: BTreeSet<NodeId> = Wardens::draw(&slot(number), &nodes(count + 1)).nodes.into_iter().collect();
            proptest::prop_assert!(before.difference(&after).count() <= 1);
        }
    }

    #[test]
    fn slots_are_spread_over_the_nodes_and_the_choice_never_changes() {
        let candidates = nodes(30);
        let mut seats = alloc::collections::BTreeMap::new();
        for number in 0..100 {
            for node in Wardens::draw(&slot(number), &candidates).nodes {
                *seats.entry(node).or_insert(0_u32) += 1;
            }
        }
        assert!(seats.len() == 30 && seats.values().all(|seats| (10..=55).contains(seats)), "{seats:?}");
        // Golden: every version of the agent must draw the same wardens.
        let drawn: Vec<u8> = Wardens::draw(&slot(0), &candidates).nodes.iter().map(|node| node.0[0]).collect();
        assert_eq!(drawn, [3, 5, 7, 10, 14, 17, 20, 21, 29]);
    }

    #[test]
    fn without_candidates_nobody_can_promise() {
        let none = Wardens::draw(&slot(0), &[]);
        assert!(none.nodes.is_empty() && none.quorum > none.nodes.len());
    }
}

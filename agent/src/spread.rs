//! How far a blob has spread among the other members, as this node sees it: by the swarm that it takes part in, and by what
//! members say in their records. What metered members have does not count, for they pass nothing on.

use std::collections::BTreeSet;

use groundswell_core::blob::PieceSet;
use groundswell_core::blob::availability::distributed_ppm;
use groundswell_core::node_id::NodeId;
use groundswell_net::pieces::glimpse::{Glimpse, Neighbour};

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Other members that have all of it.
    pub holders: usize,
    /// Whole copies that the others have together, in parts per million: as many as have the rarest piece, and the share of
    /// pieces that more of them have. What others have of which this node is no neighbour is not seen.
    pub copies_ppm: u64,
}

/// The members that are counted with all of the blob `glimpse` is of; the same as [`Spread::holders`].
#[must_use]
pub fn holders(glimpse: Option<&Glimpse>, serves: impl IntoIterator<Item = NodeId>, lean: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
    let neighbours = glimpse.map(|glimpse| glimpse.neighbours.as_slice()).unwrap_or_default();
    let is_full = |neighbour: &&Neighbour| neighbour.holds.as_ref().is_some_and(PieceSet::is_full);
    let lacks: BTreeSet<NodeId> = neighbours.iter().filter(|it| !is_full(it)).map(|it| it.peer).collect();
    let completed = glimpse.into_iter().flat_map(|glimpse| glimpse.completed.iter().copied());
    let full = neighbours.iter().filter(is_full).map(|it| it.peer);
    serves.into_iter().chain(completed).chain(full).filter(|node| !lean.contains(node) && !lacks.contains(node)).collect()
}

impl Spread {
    /// The spread of the blob whose swarm is `glimpse` and that `serves` say they have; `lean` are the metered members.
    #[must_use]
    pub fn of(glimpse: Option<&Glimpse>, serves: impl IntoIterator<Item = NodeId>, lean: &BTreeSet<NodeId>) -> Self {
        let neighbours = glimpse.map(|glimpse| glimpse.neighbours.as_slice()).unwrap_or_default();
        let taking_part: BTreeSet<NodeId> = neighbours.iter().map(|neighbour| neighbour.peer).collect();
        let completed = glimpse.into_iter().flat_map(|glimpse| glimpse.completed.iter().copied());
        let elsewhere: BTreeSet<NodeId> =
            serves.into_iter().chain(completed).filter(|node| !lean.contains(node) && !taking_part.contains(node)).collect();
        let sets = neighbours.iter().filter(|it| !lean.contains(&it.peer)).filter_map(|it| it.holds.as_ref());
        let complete = sets.clone().filter(|set| PieceSet::is_full(set)).count();
        let whole = u64::try_from(elsewhere.len()).unwrap_or(u64::MAX);
        Self {
            holders: elsewhere.len() + complete,
            copies_ppm: whole.saturating_mul(1_000_000).saturating_add(distributed_ppm(sets)),
        }
    }
}

#[cfg(test)]
mod tests {
    use groundswell_core::blob::Layout;
    use groundswell_net::pieces::glimpse::Gauge;

    use super::*;

    fn node(number: u8) -> NodeId {
        NodeId([number; 32])
    }

    fn neighbour(number: u8, pieces: &[u32]) -> Neighbour {
        let mut holds = PieceSet::empty(Layout::of(4 * 65_536).unwrap());
        for piece in pieces {
            holds.insert(*piece);
        }
        Neighbour { peer: node(number), holds: Some(holds), sent: Gauge::default(), received: Gauge::default() }
    }

    #[tokio::test]
    async fn copies_are_counted_once_and_only_where_they_are_passed_on() {
        assert_eq!(Spread::of(None, [], &BTreeSet::new()), Spread::default());
        let by_records = Spread::of(None, [node(1), node(2)], &BTreeSet::new());
        assert_eq!(by_records, Spread { holders: 2, copies_ppm: 2_000_000 });
        let neighbours = vec![neighbour(1, &[0, 1, 2, 3]), neighbour(2, &[0, 1]), neighbour(3, &[2])];
        let glimpse = Glimpse { held: 4, pieces: 4, neighbours, completed: BTreeSet::from([node(4)]) };
        // 1 says so in its record too; 4 has left the swarm; 5 was never in it.
        let spread = Spread::of(Some(&glimpse), [node(1), node(4), node(5)], &BTreeSet::new());
        assert_eq!(spread, Spread { holders: 3, copies_ppm: 3_750_000 });
        let named = holders(Some(&glimpse), [node(1), node(2), node(4), node(5)], &BTreeSet::new());
        assert_eq!(named, BTreeSet::from([node(1), node(4), node(5)]), "what 2 takes part with counts, not what it says");
        let spread = Spread::of(Some(&glimpse), [node(5)], &BTreeSet::from([node(2), node(4)]));
        assert_eq!(spread, Spread { holders: 2, copies_ppm: 2_250_000 }, "what the metered 2 and 4 have does not count");
    }
}

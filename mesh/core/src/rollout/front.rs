//! Who stands next in a pool: the members that could claim now, split into the front and the rest.
//!
//! The front is the first `size` of them in the rollout's order. Each change moves at most one node across the line,
//! so keeping it costs O(log n).

use alloc::collections::BTreeSet;

use super::wave::Place;

/// The members of one pool that could claim now.
#[derive(Clone, Debug)]
pub(super) struct Front {
    size: usize,
    front: BTreeSet<Place>,
    rest: BTreeSet<Place>,
}

/// Who crossed the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crossed {
    /// Nobody else.
    Nobody,
    /// This one entered the front.
    In(Place),
    /// This one was pushed out of it.
    Out(Place),
}

impl Front {
    /// `max(8, 2·slots)` places wide.
    pub(super) fn new(slots: u32) -> Self {
        let size = usize::try_from(slots).unwrap_or(usize::MAX).saturating_mul(2).max(8);
        Self { size, front: BTreeSet::new(), rest: BTreeSet::new() }
    }

    /// Adds a node; whether it stands in the front is asked by [`Front::has`].
    pub(super) fn insert(&mut self, place: Place) -> Crossed {
        if self.front.contains(&place) || self.rest.contains(&place) {
            return Crossed::Nobody;
        }
        let in_front = self.front.len() < self.size || self.front.last().is_some_and(|last| place < *last);
        if !in_front {
            self.rest.insert(place);
            return Crossed::Nobody;
        }
        self.front.insert(place);
        if self.front.len() <= self.size {
            return Crossed::Nobody;
        }
        let pushed = self.front.pop_last().expect("a set longer than its size is not empty");
        self.rest.insert(pushed);
        Crossed::Out(pushed)
    }

    /// Takes a node out.
    pub(super) fn remove(&mut self, place: &Place) -> Crossed {
        if !self.front.remove(place) {
            self.rest.remove(place);
            return Crossed::Nobody;
        }
        match self.rest.pop_first() {
            Some(next) => {
                self.front.insert(next);
                Crossed::In(next)
            }
            None => Crossed::Nobody,
        }
    }

    /// Whether the node stands in the front.
    pub(super) fn has(&self, place: &Place) -> bool {
        self.front.contains(place)
    }

    /// How many could claim before `place`. O(front) for those in it.
    pub(super) fn ahead_of(&self, place: &Place) -> usize {
        self.front.range(..place).count() + self.rest.range(..place).count()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::node_id::NodeId;

    fn place(n: u8) -> Place {
        Place { wave: 0, dormant: false, wary: false, hash: [n; 32], node: NodeId([n; 32]) }
    }

    #[test]
    fn the_front_is_twice_the_slots_and_at_least_eight() {
        for (slots, size) in [(1, 8), (4, 8), (5, 10)] {
            let mut front = Front::new(slots);
            for n in 0..20 {
                front.insert(place(n));
            }
            assert_eq!((0..20).filter(|n| front.has(&place(*n))).count(), size, "{slots} slots");
        }
    }

    proptest! {
        #[test]
        fn the_front_is_always_the_first_of_those_that_could_claim(steps in proptest::collection::vec((any::<bool>(), 0_u8..40), 0..200)) {
            let mut front = Front::new(1);
            let mut all = BTreeSet::new();
            let mut known: BTreeSet<Place> = BTreeSet::new();
            for (add, n) in steps {
                let moved = if add { all.insert(place(n)); front.insert(place(n)) } else { all.remove(&place(n)); front.remove(&place(n)) };
                let now: BTreeSet<Place> = all.iter().take(8).copied().collect();
                for candidate in &all {
                    prop_assert_eq!(front.has(candidate), now.contains(candidate));
                }
                // Whoever crossed the line beside the node itself is told.
                let others: BTreeSet<Place> = known.symmetric_difference(&now).filter(|other| **other != place(n)).copied().collect();
                let told: BTreeSet<Place> = match moved { Crossed::Nobody => BTreeSet::new(), Crossed::In(one) | Crossed::Out(one) => [one].into() };
                prop_assert_eq!(others, told);
                known = now;
            }
        }
    }
}

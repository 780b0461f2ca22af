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

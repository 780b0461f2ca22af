//! What will happen in a virtual world, in the order of time; what falls on one instant in the order in which it was scheduled.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::world::Due;

/// Something that will happen to a machine, if it is still in the same life.
#[derive(Debug)]
pub(super) struct Coming {
    /// When, in world time.
    pub(super) at: u64,
    /// Counts everything that was ever scheduled.
    pub(super) sequence: u64,
    /// To which machine.
    pub(super) index: u32,
    /// In which of its lives.
    pub(super) life: u32,
    /// What.
    pub(super) due: Due,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Queue(BinaryHeap<Coming>);

impl Queue {
    /// Adds one.
    pub(super) fn put(&mut self, coming: Coming) {
        self.0.push(coming);
    }

    /// The earliest.
    pub(super) fn first(&self) -> Option<&Coming> {
        self.0.peek()
    }

    /// Takes out the earliest.
    pub(super) fn take_first(&mut self) -> Option<Coming> {
        self.0.pop()
    }
}

impl Coming {
    fn place(&self) -> (u64, u64) {
        (self.at, self.sequence)
    }
}

/// The earliest is the greatest, for that is what a heap gives first.
impl Ord for Coming {
    fn cmp(&self, other: &Self) -> Ordering {
        other.place().cmp(&self.place())
    }
}

impl PartialOrd for Coming {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Coming {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for Coming {}

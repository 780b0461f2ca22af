//! The tally of one rollout as one observer sees it: counts per wave, kept up in O(log n) per record.
//!
//! It is a cache of the records and of *when this observer saw each change*, in milliseconds of the observer's own
//! up time (awake while running, summed over its restarts), never wall time: so the time that the observer itself
//! was down or asleep counts against nobody (case M3).

use alloc::collections::BTreeMap;

use super::PoolTerms;
use super::member::Member;
use super::report::MemberReport;
use super::wave::Waves;
use crate::documents::rollout::Rollout;
use crate::node::view::Standing;
use crate::node_id::NodeId;
use crate::text::Pool;

/// A wave's members by how the gate counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaveCounts {
    /// All members; in the implicit last wave only those seen.
    pub members: u32,
    /// To whom it does not apply.
    pub not_applicable: u32,
    /// Signed nothing naming this generation or a later one.
    pub unseen: u32,
    /// Seen, not started.
    pub waiting: u32,
    /// With a claim, activating, or confirmed and not yet vouched for.
    pub in_progress: u32,
    /// Vouched.
    pub soaked: u32,
    /// Failed, rolled back, or silent.
    pub failed: u32,
    /// Forgiven: out of every count.
    pub forgiven: u32,
    /// Of unseen and waiting: excused as offline.
    pub excused: u32,
    /// Of unseen, waiting and in progress: those for whom the gate waits (not excused now, nor when it passed).
    pub blocking: u32,
}

impl WaveCounts {
    /// Members to whom the rollout applies, without the forgiven: the denominator of every share.
    #[must_use]
    pub fn applicable(&self) -> u32 {
        self.members.saturating_sub(self.not_applicable).saturating_sub(self.forgiven)
    }
}

/// How often a node publishes its record though nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Once a day.
    Daily,
    /// Every third of `offlineAfter`: it holds a claim, or stands in the front of its pool.
    EveryThird,
}

/// The tally of one rollout.
#[derive(Clone, Debug)]
pub struct Tally {}

impl Tally {
    /// Of `rollout` over the members of its waves; nobody has been heard yet.
    #[must_use]
    pub fn new(
        _rollout: &Rollout,
        _waves: &Waves,
        _members: &[Member<'_>],
        _pools: &BTreeMap<Pool, PoolTerms>,
        _up_ms: u64,
    ) -> Self {
        todo!()
    }
    /// Counts what `node`'s record says now. `up_ms`: this observer's up time when the record arrived.
    pub fn update(&mut self, _node: &NodeId, _report: MemberReport, _up_ms: u64) {
        todo!()
    }
    /// How the gate counts `node`.
    #[must_use]
    pub fn standing(&self, _node: &NodeId) -> Option<Standing> {
        todo!()
    }
}

//! The schedule of a rollout, offline, from the same code that the agents run (`swell rollout plan`).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::PoolTerms;
use super::member::Member;
use crate::documents::rollout::Rollout;
use crate::node_id::NodeId;
use crate::text::{NodeName, Pool};
use crate::time::Timestamp;

/// A rollout's schedule if every node is up and nothing fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its waves.
    pub waves: Vec<PlannedWave>,
    /// Candidates that no wave names: they stay where they are.
    pub left_out: Vec<NodeId>,
    /// Whether late joiners follow after the last wave.
    pub late_joiners: bool,
}

/// One wave of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedWave {
    /// From 0.
    pub index: u32,
    /// Its members in their order.
    pub nodes: Vec<PlannedNode>,
    /// How many of each pool.
    pub pools: BTreeMap<Pool, u32>,
    /// When it opens at the earliest.
    pub opens_at: Timestamp,
    /// When its last node confirms at the earliest.
    pub confirmed_at: Timestamp,
    /// When it passes at the earliest.
    pub passes_at: Timestamp,
    /// It waits for a signed advance, and the times from here on start with that.
    pub approval: bool,
}

/// One node of a planned wave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedNode {
    /// The node.
    pub node: NodeId,
    /// Its name.
    pub name: NodeName,
    /// Its pool.
    pub pool: Pool,
    /// Dormant: last in its wave, probably excused.
    pub dormant: bool,
    /// When it starts at the earliest.
    pub starts_at: Timestamp,
}

/// The earliest schedule when published at `start`, one upgrade taking `upgrade_seconds` from claim to `confirmed`.
#[must_use]
pub fn plan(
    _rollout: &Rollout,
    _members: &[Member<'_>],
    _pools: &BTreeMap<Pool, PoolTerms>,
    _start: Timestamp,
    _upgrade_seconds: u64,
) -> Plan {
    todo!()
}

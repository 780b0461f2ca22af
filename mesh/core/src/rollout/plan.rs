//! The schedule of a rollout, offline, from the same code that the agents run (`swell rollout plan`).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::PoolTerms;
use super::member::Member;
use super::wave::Waves;
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
/// A slot passes on at `confirmed`; a wave passes when its last node has soaked.
#[must_use]
pub fn plan(
    rollout: &Rollout,
    members: &[Member<'_>],
    pools: &BTreeMap<Pool, PoolTerms>,
    start: Timestamp,
    upgrade_seconds: u64,
) -> Plan {
    let waves = Waves::assign(rollout, members);
    let by_id: BTreeMap<NodeId, &Member<'_>> = members.iter().map(|member| (member.id, member)).collect();
    let mut passed_at = start;
    let mut planned = Vec::new();
    for (index, wave) in (0_u32..).zip(&rollout.waves) {
        let waited = if index == 0 { passed_at } else { passed_at.plus_seconds(wave.wait_seconds.unwrap_or(0)) };
        let opens_at = wave.not_before.map_or(waited, |not_before| waited.max(not_before));
        let mut taken: BTreeMap<Pool, u32> = BTreeMap::new();
        let mut nodes = Vec::new();
        let mut confirmed_at = opens_at;
        for node in waves.members(index) {
            let member = by_id.get(node).expect("a wave holds nodes among the members it was assigned from");
            let pool = member.certificate.pool.clone().expect("a node without a pool is in no scope");
            let slots = pools.get(&pool).copied().unwrap_or_default().slots.max(1);
            let before = taken.entry(pool.clone()).or_insert(0);
            let starts_at = opens_at.plus_seconds(u64::from(*before / slots).saturating_mul(upgrade_seconds));
            *before = before.saturating_add(1);
            confirmed_at = confirmed_at.max(starts_at.plus_seconds(upgrade_seconds));
            nodes.push(PlannedNode {
                node: *node,
                name: member.certificate.name.clone(),
                pool,
                dormant: member.dormant,
                starts_at,
            });
        }
        // A wave without members passes at once, whatever it waits for (case W4).
        passed_at = if nodes.is_empty() { passed_at } else { confirmed_at.plus_seconds(wave.soak_seconds) };
        let approval = wave.approval.is_some() && index >= rollout.open_waves;
        planned.push(PlannedWave { index, nodes, pools: taken, opens_at, confirmed_at, passes_at: passed_at, approval });
    }
    let left_out = waves.order().iter().filter(|node| waves.wave_of(node).is_none()).copied().collect();
    Plan { waves: planned, left_out, late_joiners: waves.is_total() }
}

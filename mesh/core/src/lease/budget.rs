//! How many slots a pool has, and who is in it: `B = max(1, floor(N·b))` (design, section 7).
//!
//! [`PoolMap`] is everything that leases need of one roster. It is a pure function of the roster and of the
//! certificates that it names, so every node computes the same one. Who keeps which slot's promise: [`super::wardens`].

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use crate::digest::Digest;
use crate::documents::certificate::Certificate;
use crate::documents::roster::{self, Listed, PoolPolicy, Roster};
use crate::lease::wardens::Wardens;
use crate::node_id::NodeId;
use crate::number::Ppm;
use crate::once::Once;
use crate::text::Pool;

/// Slots of a pool of `nodes` listed nodes under `budget`: `max(1, floor(nodes × budget))`.
#[must_use]
pub fn slots(nodes: usize, budget: Ppm) -> u16 {
    u16::try_from(budget.floor_of(nodes)).unwrap_or(u16::MAX).max(1)
}

/// One numbered slot of a pool's budget.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The pool.
    pub pool: Pool,
    /// From 0.
    pub number: u16,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {} of pool {}", self.number, self.pool)
    }
}

/// One listed node as a pool sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The node.
    pub node: NodeId,
    /// Its pool, from the certificate that the roster names.
    pub pool: Pool,
    /// Unheard of for long when the roster was cut: never a warden while others are awake.
    pub dormant: bool,
}

/// What leases need of one roster: its pools, their policy and members, and the wardens of every slot.
#[derive(Clone, Debug)]
pub struct PoolMap {
    roster: Digest,
    version: u64,
    previous: Vec<Digest>,
    settled: u64,
    pools: BTreeMap<Pool, PoolSeats>,
    fleet: Vec<NodeId>,
}

/// One pool of a roster. Holds at least one node.
#[derive(Clone, Debug)]
pub struct PoolSeats {
    policy: PoolPolicy,
    nodes: Vec<NodeId>,
    awake: Vec<NodeId>,
    /// Of each slot, once they were asked for: whoever shares the map draws them once.
    wardens: Vec<Once<Wardens>>,
    /// The slots of each warden, the same way.
    warded: Once<BTreeMap<NodeId, Vec<u16>>>,
}

impl PoolMap {
    /// Reads `roster`, whose body digest is `digest`, with the certificate of each listed node.
    ///
    /// A listed node whose certificate names no pool counts in none. A pool without a policy has the default one.
    #[must_use]
    pub fn of(digest: Digest, roster: &Roster, members: &[(&Listed, &Certificate)]) -> Self {
        let seats = members.iter().filter_map(|(listed, certificate)| {
            let pool = certificate.pool.clone()?;
            Some(Seat { node: listed.id, pool, dormant: listed.dormant })
        });
        Self::new(digest, roster.version, &roster.previous, roster.settled, &roster.pools, seats)
    }

    /// The same from plain data.
    #[must_use]
    pub fn new(
        roster: Digest,
        version: u64,
        previous: &[Digest],
        settled: u64,
        policies: &BTreeMap<Pool, PoolPolicy>,
        seats: impl IntoIterator<Item = Seat>,
    ) -> Self {
        let mut by_pool: BTreeMap<Pool, BTreeMap<NodeId, bool>> = BTreeMap::new();
        for seat in seats {
            by_pool.entry(seat.pool).or_default().insert(seat.node, seat.dormant);
        }
        let fleet = awake(by_pool.values().flatten().map(|(node, dormant)| (*node, *dormant)));
        let pools = by_pool
            .into_iter()
            .map(|(pool, nodes)| {
                let policy = policies.get(&pool).cloned().unwrap_or_default();
                (pool, PoolSeats::new(policy, &nodes))
            })
            .collect();
        Self { roster, version, previous: previous.to_vec(), settled, pools, fleet }
    }

    /// Body digest of the roster.
    #[must_use]
    pub fn roster(&self) -> Digest {
        self.roster
    }

    /// The roster's version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Body digests of the version before.
    #[must_use]
    pub fn previous(&self) -> &[Digest] {
        &self.previous
    }

    /// The version up to which all older rosters' promises are known to have ended.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// One pool; `None` when the roster lists no node in it.
    #[must_use]
    pub fn pool(&self, pool: &Pool) -> Option<&PoolSeats> {
        self.pools.get(pool)
    }

    /// The pool in which `node` is listed.
    #[must_use]
    pub fn pool_of(&self, node: &NodeId) -> Option<&Pool> {
        self.pools.iter().find(|(_, seats)| seats.nodes.binary_search(node).is_ok()).map(|(pool, _)| pool)
    }

    /// All pools that have nodes, by name.
    pub fn pools(&self) -> impl Iterator<Item = (&Pool, &PoolSeats)> {
        self.pools.iter()
    }

    /// The wardens of a slot; `None` when the pool has no such slot, not even for urgent rollouts.
    ///
    /// Worked out at the first call and kept: with 10,000 nodes a slot costs about 10,000 hashes.
    #[must_use]
    pub fn wardens(&self, slot: &Slot) -> Option<&Wardens> {
        let seats = self.pools.get(&slot.pool)?;
        let candidates = match seats.policy.wardens {
            roster::Wardens::Pool => &seats.awake,
            roster::Wardens::Fleet => &self.fleet,
        };
        let drawn = seats.wardens.get(usize::from(slot.number))?;
        Some(drawn.get_or_init(|| Wardens::draw(slot, candidates)))
    }

    /// The slots of a pool that `node` wards, urgent ones included, ascending. All of them are worked out at the first call.
    #[must_use]
    pub fn warded_by(&self, pool: &Pool, node: &NodeId) -> &[u16] {
        let Some(seats) = self.pools.get(pool) else { return &[] };
        let warded = seats.warded.get_or_init(|| {
            let mut warded: BTreeMap<NodeId, Vec<u16>> = BTreeMap::new();
            for number in 0..seats.slots(true) {
                let wardens = self.wardens(&Slot { pool: pool.clone(), number });
                for warden in wardens.into_iter().flat_map(|wardens| &wardens.nodes) {
                    warded.entry(*warden).or_default().push(number);
                }
            }
            warded
        });
        warded.get(node).map(Vec::as_slice).unwrap_or_default()
    }
}

impl PoolSeats {
    fn new(policy: PoolPolicy, nodes: &BTreeMap<NodeId, bool>) -> Self {
        let ids: Vec<NodeId> = nodes.keys().copied().collect();
        let most = slots(ids.len(), policy.budget_ppm).max(slots(ids.len(), policy.urgent_budget_ppm));
        let wardens = (0..most).map(|_| Once::default()).collect();
        let awake = awake(nodes.iter().map(|(node, dormant)| (*node, *dormant)));
        Self { policy, awake, nodes: ids, wardens, warded: Once::default() }
    }

    /// The pool's policy.
    #[must_use]
    pub fn policy(&self) -> &PoolPolicy {
        &self.policy
    }

    /// Its listed nodes, dormant ones included, sorted.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Its slots; urgent rollouts may use more of them than others.
    #[must_use]
    pub fn slots(&self, urgent: bool) -> u16 {
        let ordinary = slots(self.nodes.len(), self.policy.budget_ppm);
        if urgent { ordinary.max(slots(self.nodes.len(), self.policy.urgent_budget_ppm)) } else { ordinary }
    }

    /// `startWithin` in milliseconds.
    #[must_use]
    pub fn start_within_ms(&self) -> u64 {
        self.policy.start_within_seconds.saturating_mul(1_000)
    }

    /// `presumeLostAfter` in milliseconds; `None`: never.
    #[must_use]
    pub fn presume_lost_after_ms(&self) -> Option<u64> {
        let seconds = self.policy.presume_lost_after_seconds;
        (seconds > 0).then(|| seconds.saturating_mul(1_000))
    }
}

/// The nodes that are not dormant; all of them if all are dormant. Sorted.
fn awake(nodes: impl Iterator<Item = (NodeId, bool)> + Clone) -> Vec<NodeId> {
    let pick =
        |all: bool| -> Vec<NodeId> { nodes.clone().filter(|(_, dormant)| all || !dormant).map(|(node, _)| node).collect() };
    let mut awake = pick(false);
    if awake.is_empty() {
        awake = pick(true);
    }
    awake.sort_unstable();
    awake
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u8) -> NodeId {
        NodeId([number; 32])
    }

    fn pool(name: &str) -> Pool {
        Pool::new(name).unwrap()
    }

    fn seat(number: u8, name: &str, dormant: bool) -> Seat {
        Seat { node: node(number), pool: pool(name), dormant }
    }

    fn map(policies: &[(&str, PoolPolicy)], seats: Vec<Seat>) -> PoolMap {
        let policies = policies.iter().map(|(name, policy)| (pool(name), policy.clone())).collect();
        PoolMap::new(Digest([1; 32]), 1, &[], 0, &policies, seats)
    }

    fn ppm(parts: u32) -> Ppm {
        Ppm::new(parts).unwrap()
    }

    #[test]
    fn w3_slots_are_exact_and_at_least_one() {
        assert_eq!(slots(50, ppm(580_000)), 29);
        assert_eq!(slots(39, ppm(50_000)), 1);
        assert_eq!(slots(40, ppm(50_000)), 2);
        assert_eq!(slots(40, Ppm::ZERO), 1);
        assert_eq!(slots(40, Ppm::ALL), 40);
        assert_eq!(slots(0, Ppm::ALL), 1);
        assert_eq!(slots(usize::MAX, Ppm::ALL), u16::MAX);
    }

    #[test]
    fn urgent_rollouts_have_the_ordinary_slots_and_those_up_to_the_urgent_budget() {
        let policy = PoolPolicy { budget_ppm: ppm(200_000), urgent_budget_ppm: ppm(500_000), ..PoolPolicy::default() };
        let map = map(&[("edge", policy)], (0..10).map(|number| seat(number, "edge", false)).collect());
        let seats = map.pool(&pool("edge")).unwrap();
        assert_eq!((seats.slots(false), seats.slots(true)), (2, 5));
        assert!(map.wardens(&Slot { pool: pool("edge"), number: 4 }).is_some());
        assert!(map.wardens(&Slot { pool: pool("edge"), number: 5 }).is_none());
        assert!(map.wardens(&Slot { pool: pool("core"), number: 0 }).is_none());
    }

    #[test]
    fn dormant_nodes_count_for_the_budget_and_are_no_wardens_while_others_are_awake() {
        let half = PoolPolicy { budget_ppm: ppm(500_000), ..PoolPolicy::default() };
        let some: Vec<Seat> = (0..8).map(|number| seat(number, "edge", number >= 4)).collect();
        let some = map(&[("edge", half.clone())], some);
        assert_eq!(some.pool(&pool("edge")).unwrap().slots(false), 4);
        let wardens = some.wardens(&Slot { pool: pool("edge"), number: 0 }).unwrap();
        assert_eq!(wardens.nodes, (0..4).map(node).collect::<Vec<_>>());
        let all = map(&[("edge", half)], (0..8).map(|number| seat(number, "edge", true)).collect());
        assert_eq!(all.wardens(&Slot { pool: pool("edge"), number: 0 }).unwrap().nodes.len(), 7);
    }

    #[test]
    fn wardens_come_from_the_pool_or_from_the_whole_fleet_as_its_policy_says() {
        let fleet = PoolPolicy { wardens: roster::Wardens::Fleet, ..PoolPolicy::default() };
        let mut seats: Vec<Seat> = (0..20).map(|number| seat(number, "core", false)).collect();
        seats.extend([seat(100, "site", false), seat(101, "lone", false)]);
        let map = map(&[("site", fleet)], seats);
        let site = map.wardens(&Slot { pool: pool("site"), number: 0 }).unwrap();
        assert_eq!((site.nodes.len(), site.quorum), (9, 6));
        let lone = map.wardens(&Slot { pool: pool("lone"), number: 0 }).unwrap();
        assert_eq!((lone.nodes.as_slice(), lone.quorum), ([node(101)].as_slice(), 1), "case D42");
        assert_eq!(map.pool_of(&node(100)), Some(&pool("site")));
        assert_eq!(map.pool_of(&node(102)), None);
    }
}

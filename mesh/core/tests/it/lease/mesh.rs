//! A mesh as one node sees it, in plain maps, with words to set it up.

use std::collections::{BTreeMap, BTreeSet};

use groundswell_core::digest::Digest;
use groundswell_core::documents::roster::PoolPolicy;
use groundswell_core::lease::budget::{PoolMap, Seat, Slot};
use groundswell_core::lease::claim::SeenClaim;
use groundswell_core::lease::sight::{Gone, Sight};
use groundswell_core::lease::warden::{Candidate, Urgency};
use groundswell_core::node_id::NodeId;
use groundswell_core::number::{Ppm, Sequence};
use groundswell_core::record::grants::{Grants, Promise};
use groundswell_core::record::status::{Claim, Phase, Purpose, Section, Status};
use groundswell_core::record::{ClaimName, Stamp};
use groundswell_core::text::{Pool, Product};

#[derive(Clone, Default)]
pub(crate) struct Mesh {
    pub(crate) statuses: BTreeMap<NodeId, (Stamp, Status)>,
    pub(crate) grants: BTreeMap<NodeId, Grants>,
    pub(crate) convicted: BTreeSet<NodeId>,
    pub(crate) gone: BTreeMap<NodeId, Gone>,
    pub(crate) written_off: BTreeMap<NodeId, ClaimName>,
    pub(crate) unheard_ms: BTreeMap<NodeId, u64>,
    pub(crate) gone_for_ms: BTreeMap<NodeId, u64>,
}

impl Sight for Mesh {
    fn status(&self, node: &NodeId) -> Option<(Stamp, &Status)> {
        if self.convicted.contains(node) {
            return None;
        }
        self.statuses.get(node).map(|(stamp, status)| (*stamp, status))
    }
    fn grants(&self, node: &NodeId) -> Option<&Grants> {
        self.grants.get(node)
    }
    fn promises<'a>(&'a self, node: &NodeId) -> impl Iterator<Item = &'a Promise> + 'a {
        self.grants.get(node).into_iter().flat_map(|grants| &grants.promises)
    }
    fn is_convicted(&self, node: &NodeId) -> bool {
        self.convicted.contains(node)
    }
    fn gone(&self, node: &NodeId) -> Option<Gone> {
        self.gone.get(node).copied()
    }
    fn gone_for_ms(&self, node: &NodeId) -> Option<u64> {
        self.gone_for_ms.get(node).copied()
    }
    fn written_off(&self, node: &NodeId) -> Option<ClaimName> {
        self.written_off.get(node).copied()
    }
    fn unheard_ms(&self, node: &NodeId) -> Option<u64> {
        self.unheard_ms.get(node).copied()
    }
}

impl Mesh {
    /// `node` says `phase` in its record number `counter`, carrying `claim`.
    pub(crate) fn says(&mut self, node: NodeId, counter: u64, phase: Phase, claim: Option<Claim>) {
        self.statuses.insert(node, (stamp(counter), status(phase, claim)));
    }

    /// `warden` lists a promise for each of `claims`.
    pub(crate) fn grants_to(&mut self, warden: NodeId, claims: &[&SeenClaim]) {
        let promises: Vec<Promise> = claims.iter().map(|claim| claim.promise()).collect();
        self.grants.insert(warden, Grants { declared: Some(roster()), promises });
    }

    /// Every standing claim of every known node, eligible, in the order of node ids.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        let claims = self.statuses.iter().flat_map(|(node, (_, status))| SeenClaim::standing(*node, status));
        claims.map(|claim| Candidate { place: u64::from(claim.holder.0[31]), claim, eligible: Ok(Urgency::Ordinary) }).collect()
    }
}

pub(crate) fn node(number: u8) -> NodeId {
    let mut bytes = [number; 32];
    bytes[0] = number.wrapping_mul(37);
    NodeId(bytes)
}

pub(crate) fn edge() -> Pool {
    Pool::new("edge").unwrap()
}

pub(crate) fn roster() -> Digest {
    Digest([1; 32])
}

pub(crate) fn stamp(counter: u64) -> Stamp {
    Stamp { incarnation: 1, counter }
}

pub(crate) fn name(counter: u64) -> ClaimName {
    ClaimName(stamp(counter))
}

pub(crate) fn slot(number: u16) -> Slot {
    Slot { pool: edge(), number }
}

pub(crate) fn claim(counter: u64, number: u16) -> Claim {
    Claim {
        name: name(counter),
        nonce: counter * 1_000,
        pool: edge(),
        slot: Some(number),
        roster: roster(),
        purpose: Purpose::Rollout(Digest([9; 32])),
    }
}

pub(crate) fn seen(holder: NodeId, claim: &Claim) -> SeenClaim {
    SeenClaim::of(holder, claim, false).unwrap()
}

pub(crate) fn status(phase: Phase, claim: Option<Claim>) -> Status {
    let section = Section {
        running: None,
        from: None,
        floor: Sequence::default(),
        rollout: None,
        phase,
        hold: None,
        claim,
        started_at: None,
        verdicts: Vec::new(),
    };
    Status { products: [(Product::new("bcd").unwrap(), section)].into(), ..Status::default() }
}

pub(crate) fn policy(slots: u16, nodes: u8) -> PoolPolicy {
    let budget = Ppm::new((u32::from(slots) * 1_000_000).div_ceil(u32::from(nodes))).unwrap();
    PoolPolicy { budget_ppm: budget, urgent_budget_ppm: budget, ..PoolPolicy::default() }
}

/// A first roster with one pool of `nodes` nodes under `policy`.
pub(crate) fn pool_map(nodes: u8, policy: PoolPolicy) -> PoolMap {
    let seats = (0..nodes).map(|number| Seat { node: node(number), pool: edge(), dormant: false });
    PoolMap::new(roster(), 1, &[], 0, &[(edge(), policy)].into(), seats)
}

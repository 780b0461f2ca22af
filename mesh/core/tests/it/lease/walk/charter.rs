//! The rosters of one walk: a chain with rivals, joins, leaves and budget changes, drawn as the walk goes.

use std::collections::BTreeSet;

use groundswell_core::digest::Digest;
use groundswell_core::documents::roster::PoolPolicy;
use groundswell_core::lease::budget::{PoolMap, Seat};
use groundswell_core::node_id::NodeId;
use groundswell_core::text::Pool;

use super::super::mesh::{edge, policy};
use super::{PRESUME_LOST_AFTER_S, Random, START_WITHIN_S};

/// Versions at most, but for the one that follows two rivals.
const VERSIONS: u64 = 5;

/// A roster as it was cut.
#[derive(Clone)]
pub(super) struct Cut {
    pub(super) map: PoolMap,
    pub(super) removed: BTreeSet<NodeId>,
    listed: BTreeSet<NodeId>,
    elsewhere: BTreeSet<NodeId>,
}

/// All rosters cut so far, oldest first.
pub(super) struct Charter {
    pub(super) cuts: Vec<Cut>,
    /// The pool keeps at least this many nodes, so that its slots tolerate the liars there are.
    least: usize,
    /// A rival was left out by the version after it: whoever declared it is stuck.
    pub(super) left_out: bool,
    /// Broken on purpose: every roster says that nothing older can stand.
    careless: bool,
}

/// What a new roster is to be.
pub(super) enum Kind {
    /// The next version, over all bodies of the newest, or over one of two.
    Next { all: bool },
    /// A second body of the newest version.
    Rival,
}

impl Charter {
    pub(super) fn first(nodes: &[NodeId], slots: u16, least: usize, careless: bool) -> Self {
        let mut charter = Self { cuts: Vec::new(), least, left_out: false, careless };
        let listed: BTreeSet<NodeId> = nodes.iter().copied().collect();
        charter.push((1, &[], 1), [listed, BTreeSet::new(), BTreeSet::new()], slots);
        charter
    }

    fn push(
        &mut self,
        (version, previous, settled): (u64, &[Digest], u64),
        [listed, elsewhere, removed]: [BTreeSet<NodeId>; 3],
        slots: u16,
    ) {
        let digest = Digest([u8::try_from(self.cuts.len() + 1).unwrap(); 32]);
        let count = u8::try_from(listed.len()).unwrap();
        let terms = PoolPolicy {
            start_within_seconds: START_WITHIN_S,
            presume_lost_after_seconds: PRESUME_LOST_AFTER_S,
            ..policy(slots.min(u16::from(count)), count)
        };
        let core = Pool::new("core").unwrap();
        let here = listed.iter().map(|node| Seat { node: *node, pool: edge(), dormant: false });
        let there = elsewhere.iter().map(|node| Seat { node: *node, pool: core.clone(), dormant: false });
        let map = PoolMap::new(digest, version, previous, settled, &[(edge(), terms)].into(), here.chain(there));
        self.cuts.push(Cut { map, removed, listed, elsewhere });
    }

    /// Those of the highest version.
    pub(super) fn newest(&self) -> Vec<&Cut> {
        let version = self.version();
        self.cuts.iter().filter(|cut| cut.map.version() == version).collect()
    }

    pub(super) fn version(&self) -> u64 {
        self.cuts.iter().map(|cut| cut.map.version()).max().unwrap_or(0)
    }

    /// Whether two bodies of one version were ever cut: then nobody is retired.
    pub(super) fn has_rivals(&self) -> bool {
        let mut versions = BTreeSet::new();
        !self.cuts.iter().all(|cut| versions.insert(cut.map.version()))
    }

    pub(super) fn get(&self, roster: &Digest) -> Option<&Cut> {
        self.cuts.iter().find(|cut| cut.map.roster() == *roster)
    }

    /// Draws one more roster. `settled`: what an operator read off the mesh for the newest one. `spare`: machines that may
    /// join. `retired`: machine that leaves for good. Nothing when there are versions enough.
    pub(super) fn cut(
        &mut self,
        random: &mut Random,
        kind: Kind,
        settled: Option<u64>,
        spare: &[NodeId],
        retired: Option<NodeId>,
    ) -> Option<Digest> {
        let newest: Vec<Cut> = self.newest().into_iter().cloned().collect();
        let base = newest.first()?.clone();
        let (version, previous, signed) = match kind {
            // The first roster of a pool is not cut twice.
            Kind::Rival if newest.len() > 1 || self.version() == 1 => return None,
            Kind::Rival => (self.version(), base.map.previous().to_vec(), base.map.settled()),
            Kind::Next { .. } if self.version() >= VERSIONS && newest.len() == 1 => return None,
            Kind::Next { all } => {
                self.left_out |= !all && newest.len() > 1;
                let mut previous: Vec<Digest> = newest.iter().map(|cut| cut.map.roster()).collect();
                if !all {
                    previous.truncate(1);
                }
                previous.sort_unstable();
                let signed = newest.iter().map(|cut| cut.map.settled()).min()?;
                (self.version() + 1, previous, settled.unwrap_or(0).max(signed))
            }
        };
        let settled = if self.careless { version } else { signed };
        let removed: BTreeSet<NodeId> = newest.iter().flat_map(|cut| &cut.removed).copied().chain(retired).collect();
        let (mut listed, mut elsewhere) = (base.listed, base.elsewhere);
        listed.retain(|node| !removed.contains(node));
        elsewhere.retain(|node| !removed.contains(node));
        for node in spare.iter().filter(|node| !removed.contains(node)) {
            if !listed.contains(node) && random.one_in(3) {
                elsewhere.remove(node);
                listed.insert(*node);
            }
        }
        for node in listed.clone() {
            if listed.len() > self.least && random.one_in(5) {
                listed.remove(&node);
                elsewhere.insert(node);
            }
        }
        if listed.len() < self.least {
            return None;
        }
        let slots = u16::try_from(1 + random.below(3)).unwrap();
        self.push((version, &previous, settled), [listed, elsewhere, removed], slots);
        self.cuts.last().map(|cut| cut.map.roster())
    }

    /// How many nodes the pool keeps if `node` leaves.
    pub(super) fn may_leave(&self, node: &NodeId) -> bool {
        self.newest().iter().all(|cut| cut.listed.iter().filter(|listed| *listed != node).count() >= self.least)
    }
}

//! What really happened in a virtual world so far: more than any node knows. Checkers hold nodes against it.

use std::collections::{BTreeMap, BTreeSet};

use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use groundswell_core::number::Sequence;
use groundswell_core::record::ClaimName;
use groundswell_core::text::{Pool, RolloutId};

/// What really happened so far.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// Releases that a threshold of keys signed, with their sequence. Empty: not watched.
    pub releases: BTreeMap<Digest, Sequence>,
    /// Who ever signed that it soaked.
    pub(super) soaked: BTreeSet<(RolloutId, NodeId)>,
    /// Who was ever out of a rollout's counts: skipped, forgiven, gone.
    pub out_of_counts: BTreeSet<(RolloutId, NodeId)>,
    /// Nodes whose certificate was retired.
    pub retired: BTreeSet<NodeId>,
    /// Nodes whose disk is gone for good, and their key with it.
    pub lost: BTreeSet<NodeId>,
    /// Documents that nobody with a key has signed.
    pub forged: BTreeSet<Digest>,
    /// The highest sequence that each machine's device has confirmed.
    pub(super) floors: BTreeMap<u32, Sequence>,
    /// What wardens have told that they granted and not told that it ended.
    pub(super) grants: BTreeMap<(NodeId, Pool, u16), (NodeId, ClaimName)>,
    /// The highest incarnation that a machine went on under after its store was set back.
    pub(super) incarnations: BTreeMap<u32, u64>,
    /// The highest incarnation that a machine has signed a record under.
    pub(super) signed_under: BTreeMap<u32, u64>,
    /// When a machine noticed last that its store was set back, in its true up time.
    pub(super) set_back: BTreeMap<u32, u64>,
}

impl Truth {
    /// A machine's slots were set back with everything that they knew: what runs there is no older than what they know now.
    pub(in super::super) fn set_back(&mut self, index: u32, floor: Sequence) {
        self.floors.insert(index, floor);
    }

    /// Whether this node is out of the fleet for good.
    #[must_use]
    pub fn is_gone(&self, node: &NodeId) -> bool {
        self.retired.contains(node) || self.lost.contains(node)
    }
}

//! Forgiveness: which failures an operator's generation accepts (design, section 6; cases D1, G6).
//!
//! An entry {node, claim} clears that claim of that node and what came before it, never what comes.
//! A null claim clears what failed before any claim.

use alloc::collections::BTreeMap;

use crate::documents::rollout::{Forgiven, Rollout};
use crate::node_id::NodeId;
use crate::record::ClaimName;

/// A generation's entries, by node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgiveness {
    entries: BTreeMap<NodeId, Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// The latest claim named; `None` sorts before every claim, as a failure before any claim does.
    claim: Option<ClaimName>,
    /// The latest entry that lets the node try again.
    retry: Option<Option<ClaimName>>,
}

impl Forgiveness {
    /// The entries of `rollout`.
    #[must_use]
    pub fn of(rollout: &Rollout) -> Self {
        let mut entries: BTreeMap<NodeId, Entry> = BTreeMap::new();
        for Forgiven { node, claim, retry } in &rollout.forgiven {
            let entry = entries.entry(*node).or_insert(Entry { claim: *claim, retry: None });
            entry.claim = entry.claim.max(*claim);
            if *retry {
                entry.retry = entry.retry.max(Some(*claim));
            }
        }
        Self { entries }
    }

    /// Whether what happened under `claim` (`None`: before any claim) at `node` is cleared.
    #[must_use]
    pub fn clears(&self, node: &NodeId, claim: Option<ClaimName>) -> bool {
        self.entries.get(node).is_some_and(|entry| claim <= entry.claim)
    }

    /// Whether `node` may try again after what failed under `claim`.
    #[must_use]
    pub fn lets_retry(&self, node: &NodeId, claim: Option<ClaimName>) -> bool {
        self.entries.get(node).and_then(|entry| entry.retry).is_some_and(|retry| claim <= retry)
    }

    /// Whether any entry names `node`.
    #[must_use]
    pub fn names(&self, node: &NodeId) -> bool {
        self.entries.contains_key(node)
    }
}

//! What documents say of those who write records, worked out once per node until documents change: it is asked of every record.

use alloc::collections::BTreeMap;
use core::cell::RefCell;

use super::Node;
use crate::lease::sight::Gone;
use crate::node_id::NodeId;
use crate::record::{RecordKey, RecordKind};

/// Whether each writer's certificate names a pool, and it is neither retired nor revoked. Forgotten whenever a document comes
/// or goes; at most one entry per node of the mesh.
#[derive(Debug, Default)]
pub(super) struct Writers(RefCell<BTreeMap<NodeId, bool>>);

impl Writers {
    /// Documents changed.
    pub(super) fn forget(&mut self) {
        self.0.get_mut().clear();
    }
}

impl Node {
    fn writes(&self, node: &NodeId) -> bool {
        if let Some(known) = self.writers.0.borrow().get(node) {
            return *known;
        }
        let out = matches!(self.shelf.gone(node), Some(Gone::Revoked | Gone::Retired));
        let writes = !out && self.shelf.certificate(node).is_some_and(|certificate| certificate.pool.is_some());
        if !self.documents_changed {
            self.writers.0.borrow_mut().insert(*node, writes);
        }
        writes
    }

    /// Whether records under `key` are kept: the node's certificate names a pool, and it is neither retired nor revoked. A
    /// certificate that has expired stops its node from starting, never from saying how a running upgrade ended.
    ///
    /// What one that is gone had promised as a warden of a roster that is here is still taken, for it is still honoured
    /// (section 7, rule 8); of a revoked one only the first that comes, for its key may be another's by now.
    pub(super) fn writes_records(&self, key: &RecordKey) -> bool {
        match self.shelf.gone(&key.node) {
            Some(gone @ (Gone::Revoked | Gone::Retired)) => {
                let first = self.ledger.entry(key).is_none();
                key.kind == RecordKind::Grants && (first || gone == Gone::Retired) && self.shelf.is_listed(&key.node)
            }
            Some(Gone::Removed) | None => self.writes(&key.node),
        }
    }
}

//! What this node gives at its outer door: a view of documents and records for one visitor (design, section 10).
//!
//! Who the visitor is, and so whether it is asked for at all, is decided in `mesh/net/src/outer`; which records it may
//! read, here: of status those of its pool and of the rollouts in force that have it in their scope, of grants those of
//! whoever may be a warden of its pool, and its own of both.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::Node;
use crate::digest::Digest;
use crate::documents::Kind;
use crate::documents::certificate::Certificate;
use crate::documents::roster::Wardens;
use crate::node_id::NodeId;
use crate::record::ledger::Entry;
use crate::record::signed::SignedRecord;
use crate::record::{RecordKey, RecordKind, Stamp};
use crate::rollout::member::in_scope;

impl Node {
    /// Documents with digests above `after` in order, for whoever was a member once: no tokens, and no rosters, which are
    /// had by the digest that a rollout names.
    pub fn documents_after(&self, after: Digest) -> impl Iterator<Item = (Digest, Kind)> + '_ {
        self.shelf.inventory().filter(move |(digest, kind)| *digest > after && *kind != Kind::Token)
    }

    /// Whose records of `kind` the visitor may read, above `after` in order of ids; a proof has the stamp of proofs.
    pub fn stamps_for(&self, visitor: NodeId, kind: RecordKind, after: NodeId) -> impl Iterator<Item = (NodeId, Stamp)> + '_ {
        let reads = self.reads(visitor, kind);
        let entries = self.ledger.entries().filter(move |(key, _)| key.kind == kind && key.node > after);
        entries.filter(move |(key, _)| reads.has(&key.node)).map(|(key, entry)| {
            let stamp = match entry {
                Entry::Record(record) => record.stamp(),
                Entry::Proof(_) => Stamp::PROOF,
            };
            (key.node, stamp)
        })
    }

    /// The record under `key`, or the two of a proof, if the visitor may read them; else none.
    #[must_use]
    pub fn record_for(&self, visitor: NodeId, key: &RecordKey) -> Vec<&[u8]> {
        let entry = self.ledger.entry(key).filter(|_| self.reads(visitor, key.kind).has(&key.node));
        entry.into_iter().flat_map(Entry::records).map(SignedRecord::bytes).collect()
    }

    fn reads(&self, visitor: NodeId, kind: RecordKind) -> Reads<'_> {
        let mut reads = Reads { node: self, visitor, certificate: self.shelf.certificate(&visitor), rosters: BTreeSet::new() };
        let Some(certificate) = reads.certificate else { return reads };
        for in_force in self.shelf.rollouts().filter(|in_force| in_scope(&in_force.rollout.scope, certificate)) {
            let digest = in_force.rollout.roster.digest;
            let fleet_wide = || {
                let policy = self.shelf.roster(&digest).and_then(|roster| roster.pools.get(certificate.pool.as_ref()?));
                policy.is_some_and(|policy| policy.wardens == Wardens::Fleet)
            };
            if kind == RecordKind::Status || fleet_wide() {
                reads.rosters.insert(digest);
            }
        }
        reads
    }
}

/// Whose records one visitor may read.
struct Reads<'a> {
    node: &'a Node,
    visitor: NodeId,
    certificate: Option<&'a Certificate>,
    /// Everybody whom these list.
    rosters: BTreeSet<Digest>,
}

impl Reads<'_> {
    fn has(&self, node: &NodeId) -> bool {
        if *node == self.visitor {
            return true;
        }
        let Some(mine) = self.certificate else { return false };
        let theirs = self.node.shelf.certificate(node);
        mine.pool.is_some() && theirs.is_some_and(|theirs| theirs.pool == mine.pool)
            || self.rosters.iter().any(|digest| self.node.shelf.roster(digest).is_some_and(|it| it.listed(node).is_some()))
    }
}

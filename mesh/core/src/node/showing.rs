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
use crate::documents::roster::Wardens;
use crate::node_id::NodeId;
use crate::record::ledger::Entry;
use crate::record::signed::SignedRecord;
use crate::record::{RecordKey, RecordKind, Stamp};
use crate::rollout::member::in_scope;
use crate::text::Pool;

impl Node {
    /// Documents with digests above `after` in order, for whoever was a member once: no tokens, and no rosters, which are
    /// had by the digest that a rollout names.
    pub fn documents_after(&self, after: Digest) -> impl Iterator<Item = (Digest, Kind)> + '_ {
        self.shelf.inventory_after(after).filter(|(_, kind)| *kind != Kind::Token)
    }

    /// Whose records of `kind` the visitor may read, by the documents here: as long as [`Shelf::revision`] stays, so does
    /// this.
    ///
    /// [`Shelf::revision`]: crate::trust::shelf::Shelf::revision
    #[must_use]
    pub fn reads(&self, visitor: NodeId, kind: RecordKind) -> Reads {
        let mut reads = Reads { visitor, kind, pool: None, rosters: BTreeSet::new() };
        let Some(certificate) = self.shelf.certificate(&visitor) else { return reads };
        reads.pool.clone_from(&certificate.pool);
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

    /// Everybody above `after` of whom there is a record of the kind, in order of ids: with its stamp where the visitor may
    /// read it. A proof has the stamp of proofs. Looking at all of a large fleet takes milliseconds: take a part at a time.
    pub fn stamps_for<'a>(&'a self, reads: &'a Reads, after: NodeId) -> impl Iterator<Item = (NodeId, Option<Stamp>)> + 'a {
        let entries = self.ledger.entries_above(after).filter(|(key, _)| key.kind == reads.kind);
        entries.map(|(key, entry)| {
            let stamp = match entry {
                Entry::Record(record) => record.stamp(),
                Entry::Proof(_) => Stamp::PROOF,
            };
            (key.node, self.may_read(reads, &key.node).then_some(stamp))
        })
    }

    /// The record of `of`, or the two of a proof, if the visitor may read them; else none.
    #[must_use]
    pub fn record_for(&self, reads: &Reads, of: NodeId) -> Vec<&[u8]> {
        let key = RecordKey { node: of, kind: reads.kind };
        let entry = self.ledger.entry(&key).filter(|_| self.may_read(reads, &of));
        entry.into_iter().flat_map(Entry::records).map(SignedRecord::bytes).collect()
    }

    fn may_read(&self, reads: &Reads, of: &NodeId) -> bool {
        if *of == reads.visitor {
            return true;
        }
        let theirs = || self.shelf.certificate(of).and_then(|theirs| theirs.pool.as_ref());
        let same_pool = reads.pool.is_some() && theirs() == reads.pool.as_ref();
        same_pool || reads.rosters.iter().any(|digest| self.shelf.roster(digest).is_some_and(|it| it.listed(of).is_some()))
    }
}

/// Whose records of one kind one visitor may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reads {
    visitor: NodeId,
    kind: RecordKind,
    /// Its pool, where it has a certificate.
    pool: Option<Pool>,
    /// Everybody whom these list.
    rosters: BTreeSet<Digest>,
}

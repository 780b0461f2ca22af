//! Both maps of one node as sync compares them: the ledger's ids and the shelf's, added up together.

use alloc::vec::Vec;

use super::Documents;
use crate::digest::Digest;
use crate::record::ledger::Ledger;
use crate::record::sync_set::{Fingerprint, SyncId, SyncSet, join_halves};
use crate::record::{RecordKey, Stamp};

/// A thing that sync moves. Ordered as a stranger takes them in: documents first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// A document.
    Document(Paper),
    /// A record or a proof.
    Record(RecordKey),
}

/// A document that sync carries. Ordered as a stranger can accept them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Paper {
    /// Lower ones come first: [`crate::documents::Body::order`].
    pub order: (u8, u64),
    /// Its body digest.
    pub digest: Digest,
}

impl Paper {
    /// Its id in sync. `signatures` is a fingerprint of its verified signatures.
    #[must_use]
    pub fn sync_id(&self, signatures: u64) -> SyncId {
        let mut of_key = blake3::Hasher::new_derive_key("groundswell 1 sync document key");
        of_key.update(&self.digest.0);
        let mut of_content = blake3::Hasher::new_derive_key("groundswell 1 sync document content");
        of_content.update(&self.digest.0);
        of_content.update(&signatures.to_le_bytes());
        join_halves(&of_key.finalize(), &of_content.finalize())
    }
}

/// Both maps of one node at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inventory<'a> {
    records: &'a SyncSet<RecordKey>,
    documents: &'a SyncSet<Paper>,
}

impl<'a> Inventory<'a> {
    pub(super) fn of(ledger: &'a Ledger, documents: &'a dyn Documents) -> Self {
        Self { records: ledger.sync_set(), documents: documents.inventory() }
    }

    pub(super) fn whole(&self) -> Fingerprint {
        self.records.whole().and(self.documents.whole()).fingerprint()
    }

    /// The fingerprint of the range of `prefix`, a list of half-bytes.
    pub(super) fn fingerprint(&self, prefix: &[u8]) -> Fingerprint {
        self.records.sum(prefix).and(self.documents.sum(prefix)).fingerprint()
    }

    /// How many things lie in a range.
    pub(super) fn count(&self, prefix: &[u8]) -> u64 {
        self.records.sum(prefix).and(self.documents.sum(prefix)).count()
    }

    /// What lies in a range, in order of ids.
    pub(super) fn range(&self, prefix: &[u8]) -> Vec<(SyncId, Item)> {
        let records = self.records.range(prefix).map(|(id, key)| (*id, Item::Record(*key)));
        let mut range: Vec<_> = records.collect();
        range.extend(self.documents.range(prefix).map(|(id, paper)| (*id, Item::Document(*paper))));
        range.sort_unstable();
        range
    }

    /// The thing whose id this is, or another state of it.
    pub(super) fn thing(&self, id: &SyncId) -> Option<(SyncId, Item)> {
        let record = self.records.thing(id).map(|(id, key)| (*id, Item::Record(*key)));
        record.or_else(|| self.documents.thing(id).map(|(id, paper)| (*id, Item::Document(*paper))))
    }
}

/// Where a thing stands in the order of entries; none for documents, whose signatures only add up.
pub(super) fn rank(item: &Item, ledger: &Ledger) -> Option<Stamp> {
    match item {
        Item::Record(key) => ledger.rank(key),
        Item::Document(_) => None,
    }
}

/// The 16 ranges into which the next half-byte splits that of `prefix`, in order.
pub(super) fn children(prefix: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    (0..16_u8).map(|nibble| prefix.iter().copied().chain([nibble]).collect())
}

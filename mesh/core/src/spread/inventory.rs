//! What sync compares: one id per entry of the ledger and per document, sorted, and fingerprints of ranges of them.
//!
//! The first half of an id names the thing (a record's key, a document's digest), the second half its state (the record's
//! bytes, the document's signatures), so two states of one thing lie side by side. Ranges are those ids that begin with
//! the same half-bytes, as in a trie with 16 children.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::Documents;
use crate::digest::Digest;
use crate::record::ledger::{Ledger, SyncId, join_halves};
use crate::record::{RecordKey, Stamp};

/// Depth at which a range holds one thing at most: the half-bytes of half an id.
pub(super) const DEEPEST: usize = 32;

/// Hash over all ids of a range; zeros when it is empty.
pub(super) type Fingerprint = [u8; 16];

/// A thing that sync moves. Ordered as a stranger takes them in: documents first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// A document, by its place in the order in which they can be accepted.
    Document(u32, Digest),
    /// A record or a proof.
    Record(RecordKey),
}

/// Both maps of one node at one moment.
#[derive(Debug)]
pub(super) struct Inventory {
    sorted: Vec<(SyncId, Item)>,
}

impl Inventory {
    pub(super) fn of(ledger: &Ledger, documents: &dyn Documents) -> Self {
        let mut sorted: Vec<(SyncId, Item)> = ledger.sync_ids().map(|(id, key)| (id, Item::Record(key))).collect();
        for (place, (digest, signatures)) in (0..).zip(documents.inventory()) {
            sorted.push((document_id(&digest, signatures), Item::Document(place, digest)));
        }
        sorted.sort_unstable();
        Self { sorted }
    }

    pub(super) fn whole(&self) -> Fingerprint {
        fingerprint(&self.sorted)
    }

    /// What lies in the range of `prefix`, a list of half-bytes.
    pub(super) fn range(&self, prefix: &[u8]) -> &[(SyncId, Item)] {
        let from = self.sorted.partition_point(|(id, _)| compare(id, prefix) == Ordering::Less);
        let to = self.sorted.partition_point(|(id, _)| compare(id, prefix) != Ordering::Greater);
        self.sorted.get(from..to).unwrap_or_default()
    }

    /// The thing whose id this is, or another state of it.
    pub(super) fn thing(&self, id: &SyncId) -> Option<&(SyncId, Item)> {
        let at = self.sorted.partition_point(|(other, _)| half(other) < half(id));
        self.sorted.get(at).filter(|(other, _)| half(other) == half(id))
    }
}

/// Which half of an id names the thing.
pub(super) fn half(id: &SyncId) -> &[u8] {
    id.split_at(16).0
}

pub(super) fn fingerprint(range: &[(SyncId, Item)]) -> Fingerprint {
    let mut print = [0; 16];
    if !range.is_empty() {
        let mut hasher = blake3::Hasher::new();
        for (id, _) in range {
            hasher.update(id);
        }
        hasher.finalize_xof().fill(&mut print);
    }
    print
}

/// Where the ids that begin like `id` stand to those that begin with `prefix`.
fn compare(id: &SyncId, prefix: &[u8]) -> Ordering {
    let nibbles = id.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles.take(prefix.len()).cmp(prefix.iter().copied())
}

fn document_id(digest: &Digest, signatures: u64) -> SyncId {
    let mut of_key = blake3::Hasher::new_derive_key("groundswell 1 sync document key");
    of_key.update(&digest.0);
    let mut of_content = blake3::Hasher::new_derive_key("groundswell 1 sync document content");
    of_content.update(&digest.0);
    of_content.update(&signatures.to_le_bytes());
    join_halves(&of_key.finalize(), &of_content.finalize())
}

/// Where a thing stands in the order of entries; none for documents, whose signatures only add up.
pub(super) fn rank(item: &Item, ledger: &Ledger) -> Option<Stamp> {
    match item {
        Item::Record(key) => ledger.rank(key),
        Item::Document(..) => None,
    }
}

/// Splits the range of `prefix` by its next half-byte, in order.
pub(super) fn children<'a>(prefix: &[u8], inventory: &'a Inventory) -> BTreeMap<Vec<u8>, &'a [(SyncId, Item)]> {
    let child = |nibble: u8| {
        let prefix: Vec<u8> = prefix.iter().copied().chain([nibble]).collect();
        let range = inventory.range(&prefix);
        (prefix, range)
    };
    (0..16).map(child).collect()
}

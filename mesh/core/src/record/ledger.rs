//! The one map of the mesh: (node, kind) → that node's latest record, or the proof that it signed two under one stamp.
//!
//! Records merge by maximum of their stamps. Two different records under one stamp are a proof: it replaces the record,
//! nothing replaces it but a lower pair, and it convicts the node (case D20). Replicas that exchange entries end equal,
//! in whichever order they do. What a replica cannot know is that a record which it has already replaced had a twin;
//! whoever saw both hands it the proof, so a pair always travels as a pair. A convict's other kind still merges by
//! maximum, so that everybody ends with the same evidence; it counts only for what must be honoured whoever said it.
//!
//! Whether a node is a *member* is not decided here: the caller checks its certificate before it merges.
//! What the records mean is decided in [`crate::rollout`] and [`crate::lease`].

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;

use super::grants::{Grants, Promise};
use super::signed::{self, SignedRecord};
use super::status::{Outcome, Status, Verdict};
use super::sync_set::{SyncId, SyncSet};
use super::verdicts::{self, Withdrawn};
use super::{ClaimName, RecordKey, RecordKind, Stamp};
use crate::limits::RECORDS;
use crate::node_id::NodeId;
use crate::text::{Product, RolloutId};

/// What is kept under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The latest record.
    Record(SignedRecord),
    /// Two different records under one stamp, the lower bytes first: the node is convicted.
    Proof(Box<[SignedRecord; 2]>),
}

/// What a merge did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// Newer than what was kept, and kept now: store it and pass it on.
    New,
    /// Older than what is kept, or absorbed by a proof: nothing changed.
    Old,
    /// Kept already, byte for byte.
    Same,
    /// The entry is a proof now, or a lower pair of it: store the entry and pass it on; the node is convicted.
    Convicted,
    /// Refused: [`RECORDS`] keys are kept already and this one is not among them.
    Full,
}

/// Two records that prove nothing: of different keys or stamps, or one record twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two records that do not convict: they differ in node, kind or stamp, or are the same record")]
pub struct NotAProof;

/// The map. Equality means that two replicas hold the same entries.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<RecordKey, Entry>,
    sync: SyncSet<RecordKey>,
    convicted: BTreeSet<NodeId>,
    withdrawn: Withdrawn,
}

impl PartialEq for Ledger {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Entry {
    /// Whose entry of which kind.
    #[must_use]
    pub fn key(&self) -> RecordKey {
        match self {
            Self::Record(record) => record.key(),
            Self::Proof(pair) => {
                let [first, _] = &**pair;
                first.key()
            }
        }
    }

    /// Its records: one, or the two of a proof.
    #[must_use]
    pub fn records(&self) -> &[SignedRecord] {
        match self {
            Self::Record(record) => core::slice::from_ref(record),
            Self::Proof(pair) => pair.as_slice(),
        }
    }

    /// Its place in the order in which entries replace each other: its stamp, and above every stamp for a proof.
    #[must_use]
    pub fn rank(&self) -> Stamp {
        match self {
            Self::Record(record) => record.stamp(),
            Self::Proof(..) => Stamp::PROOF,
        }
    }

    /// Its size on the wire, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.records().iter().map(|record| record.bytes().len()).sum()
    }

    fn sync_id(&self) -> SyncId {
        match self {
            Self::Record(record) => record.sync_id(),
            Self::Proof(pair) => signed::sync_id(&self.key(), pair.iter().map(SignedRecord::bytes)),
        }
    }

    /// The proof of two records, in its one order.
    fn proof(one: SignedRecord, other: SignedRecord) -> Self {
        let pair = if one.bytes() <= other.bytes() { [one, other] } else { [other, one] };
        Self::Proof(Box::new(pair))
    }

    /// The join of two entries of one key.
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Record(mine), Self::Record(theirs)) => {
                if mine.stamp() == theirs.stamp() && mine.bytes() != theirs.bytes() {
                    Self::proof(mine, theirs)
                } else if mine.stamp() >= theirs.stamp() {
                    Self::Record(mine)
                } else {
                    Self::Record(theirs)
                }
            }
            (Self::Proof(pair), Self::Record(record)) | (Self::Record(record), Self::Proof(pair)) => {
                if pair.iter().all(|first| first.stamp() == record.stamp()) {
                    lowest_two(pair.into_iter().chain([record]).collect())
                } else {
                    Self::Proof(pair)
                }
            }
            (Self::Proof(one), Self::Proof(other)) => {
                // All records of a proof share one stamp, so the lowest two of the lowest stamp are again a proof.
                let lowest = one.iter().chain(&*other).map(SignedRecord::stamp).min().unwrap_or_default();
                let both = one.into_iter().chain(*other);
                lowest_two(both.filter(|record| record.stamp() == lowest).collect())
            }
        }
    }
}

/// The two lowest different records of several under one stamp, at least two of which differ.
fn lowest_two(mut records: Vec<SignedRecord>) -> Entry {
    records.sort_by(|one, other| one.bytes().cmp(other.bytes()));
    records.dedup_by(|one, other| one.bytes() == other.bytes());
    let mut records = records.into_iter();
    let first = records.next().expect("a proof holds two records");
    let second = records.next().expect("the two records of a proof differ");
    Entry::Proof(Box::new([first, second]))
}

impl Ledger {
    /// An empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Merges a verified record. The caller has checked that its node is a member.
    pub fn merge(&mut self, record: SignedRecord) -> Merged {
        self.merge_entry(Entry::Record(record))
    }

    /// Merges a proof: two verified records under one stamp, in any order.
    ///
    /// # Errors
    /// When the two do not convict anybody; nothing changed then.
    pub fn convict(&mut self, one: SignedRecord, other: SignedRecord) -> Result<Merged, NotAProof> {
        if one.key() != other.key() || one.stamp() != other.stamp() || one.bytes() == other.bytes() {
            return Err(NotAProof);
        }
        Ok(self.merge_entry(Entry::proof(one, other)))
    }

    /// Merges one entry, as read back from disk or taken from another ledger.
    pub fn merge_entry(&mut self, entry: Entry) -> Merged {
        let key = entry.key();
        // What comes all the time: another record of the same key, under another stamp.
        if let (Some(Entry::Record(kept)), Entry::Record(new)) = (self.entries.get_mut(&key), &entry)
            && kept.stamp() != new.stamp()
        {
            if new.stamp() < kept.stamp() {
                return Merged::Old;
            }
            if let (Some(old), Some(new)) = (kept.status(), new.status()) {
                self.withdrawn.note(key.node, old, new);
            }
            self.sync.put(new.sync_id(), key);
            kept.clone_from(new);
            return Merged::New;
        }
        let Some(kept) = self.entries.get(&key) else {
            if self.entries.len() >= RECORDS {
                return Merged::Full;
            }
            let merged = if matches!(entry, Entry::Proof(..)) { Merged::Convicted } else { Merged::New };
            self.keep(key, entry);
            return merged;
        };
        if *kept == entry {
            return Merged::Same;
        }
        let joined = kept.clone().join(entry);
        if *kept == joined {
            return Merged::Old;
        }
        let merged = if matches!(joined, Entry::Proof(..)) { Merged::Convicted } else { Merged::New };
        self.keep(key, joined);
        merged
    }

    fn keep(&mut self, key: RecordKey, entry: Entry) {
        if matches!(entry, Entry::Proof(..)) {
            self.convicted.insert(key.node);
        }
        self.sync.put(entry.sync_id(), key);
        self.entries.insert(key, entry);
    }

    /// The node's latest status; `None` for a convict, whose word counts for nothing.
    #[must_use]
    pub fn status(&self, node: &NodeId) -> Option<&Status> {
        self.record(&RecordKey { node: *node, kind: RecordKind::Status }).and_then(SignedRecord::status)
    }

    /// The node's latest grants; `None` for a convict, whose grants count for nothing.
    #[must_use]
    pub fn grants(&self, node: &NodeId) -> Option<&Grants> {
        self.record(&RecordKey { node: *node, kind: RecordKind::Grants }).and_then(SignedRecord::grants)
    }

    /// The latest record under `key`; `None` for a convict.
    #[must_use]
    pub fn record(&self, key: &RecordKey) -> Option<&SignedRecord> {
        match self.entry(key)? {
            Entry::Record(record) if !self.is_convicted(&key.node) => Some(record),
            Entry::Record(_) | Entry::Proof(..) => None,
        }
    }

    /// What is kept under `key`, a convict's entries included.
    #[must_use]
    pub fn entry(&self, key: &RecordKey) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// The stamp of what is kept under `key`; of a proof, that of both its records.
    #[must_use]
    pub fn stamp(&self, key: &RecordKey) -> Option<Stamp> {
        self.entry(key)?.records().first().map(SignedRecord::stamp)
    }

    /// Whether the node signed two records of either kind under one stamp.
    #[must_use]
    pub fn is_convicted(&self, node: &NodeId) -> bool {
        self.convicted.contains(node)
    }

    /// Every status of the node that is kept, a convict's included: one, or the two of a proof.
    /// For what must be honoured whoever said it, such as a slot that stays taken; nothing else.
    pub fn statuses_kept(&self, node: &NodeId) -> impl Iterator<Item = &Status> {
        let entry = self.entry(&RecordKey { node: *node, kind: RecordKind::Status });
        entry.into_iter().flat_map(Entry::records).filter_map(SignedRecord::status)
    }

    /// Every promise that the node lists as a warden, a convict's included: what it listed is still honoured.
    pub fn promises<'a>(&'a self, node: &NodeId) -> impl Iterator<Item = &'a Promise> + use<'a> {
        let entry = self.entry(&RecordKey { node: *node, kind: RecordKind::Grants });
        entry.into_iter().flat_map(Entry::records).filter_map(SignedRecord::grants).flat_map(|grants| &grants.promises)
    }

    /// The node's verdicts on rollouts of `product`, each at the highest outcome that was ever seen here: a newer record
    /// that drops or lowers a verdict does not take it back. Empty for a convict.
    #[must_use]
    pub fn verdicts(&self, node: &NodeId, product: &Product) -> Vec<Verdict> {
        if self.is_convicted(node) {
            return Vec::new();
        }
        let said = self.status(node).and_then(|status| status.products.get(product));
        let mut joined = said.map(|section| section.verdicts.clone()).unwrap_or_default();
        for verdict in self.withdrawn.of(node, product) {
            verdicts::merge(&mut joined, verdict.clone());
        }
        joined
    }

    /// What the node's verdicts on one rollout come to, where some node has dropped or lowered one; `None` where every newest
    /// record says all that its node ever said.
    #[must_use]
    pub fn withdrawn_outcomes(
        &self,
        node: &NodeId,
        product: &Product,
        rollout: &RolloutId,
    ) -> Option<Vec<(Option<ClaimName>, Outcome)>> {
        if self.withdrawn.is_empty() {
            return None;
        }
        let verdicts = self.verdicts(node, product);
        let mine = verdicts.iter().filter(|verdict| verdict.rollout == *rollout);
        Some(mine.map(|verdict| (verdict.claim, verdict.outcome)).collect())
    }

    /// Forgets withdrawn verdicts of rollouts that `known` does not know any more.
    pub fn forget_verdicts(&mut self, known: impl Fn(&RolloutId) -> bool) {
        self.withdrawn.retain(known);
    }

    /// All entries in key order, convicts' included.
    pub fn entries(&self) -> impl Iterator<Item = (&RecordKey, &Entry)> {
        self.entries.iter()
    }

    /// Everything that is kept of nodes above `node`, in order of keys.
    pub fn entries_above(&self, node: NodeId) -> impl Iterator<Item = (&RecordKey, &Entry)> {
        let last = RecordKey { node, kind: RecordKind::Grants };
        self.entries.range((Bound::Excluded(last), Bound::Unbounded))
    }

    /// The latest status of every node that is not convicted, in order of node ids.
    pub fn statuses(&self) -> impl Iterator<Item = (&NodeId, &Status)> {
        self.bodies(RecordKind::Status).filter_map(|(node, record)| Some((node, record.status()?)))
    }

    /// The latest grants of every node that is not convicted, in order of node ids.
    pub fn all_grants(&self) -> impl Iterator<Item = (&NodeId, &Grants)> {
        self.bodies(RecordKind::Grants).filter_map(|(node, record)| Some((node, record.grants()?)))
    }

    fn bodies(&self, kind: RecordKind) -> impl Iterator<Item = (&NodeId, &SignedRecord)> {
        self.entries.iter().filter_map(move |(key, entry)| match entry {
            Entry::Record(record) if key.kind == kind && !self.is_convicted(&key.node) => Some((&key.node, record)),
            Entry::Record(_) | Entry::Proof(..) => None,
        })
    }

    /// Convicted nodes, in order.
    pub fn convicts(&self) -> impl Iterator<Item = NodeId> {
        self.convicted.iter().copied()
    }

    /// Drops what is kept of a node: it left, and nothing needs its records any more (design, section 5, retention).
    pub fn forget(&mut self, node: &NodeId) {
        for kind in [RecordKind::Status, RecordKind::Grants] {
            if let Some(entry) = self.entries.remove(&RecordKey { node: *node, kind }) {
                self.sync.remove(&entry.sync_id());
            }
        }
        self.convicted.remove(node);
        self.withdrawn.forget(node);
    }

    /// How many keys are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Where `key` stands in the order of entries, if anything is kept under it.
    pub(crate) fn rank(&self, key: &RecordKey) -> Option<Stamp> {
        self.entry(key).map(Entry::rank)
    }

    /// What sync compares.
    pub(crate) fn sync_set(&self) -> &SyncSet<RecordKey> {
        &self.sync
    }
}

//! How long each node has been unheard, in this observer's own up time: awake time while running, summed on disk.
//!
//! Time asleep and time off do not count, so nobody is declared silent for the observer's own absence (cases D19,
//! D43, M3). A mark is kept with the stamp of the record that set it: after a start, a record that differs from its
//! mark counts as heard just now. So a crash makes it count too little, not too much, as long as either the record or
//! its mark was durable; where neither was, only a sync can tell, and nothing is presumed before one (rule 1).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::node_id::NodeId;
use crate::record::Stamp;

/// The up-time counter is saved this often, so a crash loses at most a minute of it.
pub const SAVE_COUNTER_EVERY_MS: u64 = 60_000;
/// Changed marks are saved at least this often; until then a crash makes their nodes count as heard at the restart.
pub const SAVE_MARKS_EVERY_MS: u64 = 600_000;
const VERSION: u8 = 1;

/// The observer's up time and when each node's record last changed in it.
#[derive(Clone, Debug)]
pub struct Presence {
    up_ms: u64,
    awake_ms: u64,
    marks: BTreeMap<NodeId, Mark>,
    /// Chunks with marks that are not saved.
    changed: BTreeSet<u8>,
    counter_saved_at_ms: u64,
    marks_saved_at_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    stamp: Stamp,
    heard_at_ms: u64,
}

/// One value to make durable under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Save {
    /// Which.
    pub part: Part,
    /// Its encoded form; `None` removes it.
    pub value: Option<Vec<u8>>,
}

/// The durable form lies in parts, so that one changed record does not rewrite all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The up-time counter: nine bytes.
    UpTime,
    /// The marks of the nodes whose id begins with this byte: with 10,000 nodes about 2 KB.
    Marks(u8),
}

impl Presence {
    /// Nothing known yet; `awake_ms` is the awake clock now.
    #[must_use]
    pub fn new(awake_ms: u64) -> Self {
        Self {
            up_ms: 0,
            awake_ms,
            marks: BTreeMap::new(),
            changed: BTreeSet::new(),
            counter_saved_at_ms: 0,
            marks_saved_at_ms: 0,
        }
    }

    /// Goes on from what was saved. Parts that do not decode count as missing: their nodes count as heard now.
    ///
    /// Call [`Self::known`] for every record in the store afterwards.
    #[must_use]
    pub fn restore(awake_ms: u64, saved: impl IntoIterator<Item = (Part, Vec<u8>)>) -> Self {
        let mut presence = Self::new(awake_ms);
        for (part, bytes) in saved {
            match part {
                Part::UpTime => presence.up_ms = decode(&bytes).unwrap_or(0),
                Part::Marks(chunk) => {
                    let marks: Vec<(NodeId, Mark)> = decode(&bytes).unwrap_or_default();
                    presence.marks.extend(marks.into_iter().filter(|(node, _)| chunk_of(node) == chunk));
                }
            }
        }
        presence.counter_saved_at_ms = presence.up_ms;
        presence.marks_saved_at_ms = presence.up_ms;
        presence
    }

    /// Brings the up time to the awake clock. Call with every input, before anything is asked.
    pub fn tick(&mut self, awake_ms: u64) {
        self.up_ms = self.up_ms.saturating_add(awake_ms.saturating_sub(self.awake_ms));
        self.awake_ms = awake_ms;
    }

    /// This node's up time, over all its runs, in milliseconds.
    #[must_use]
    pub fn up_ms(&self) -> u64 {
        self.up_ms
    }

    /// A newer record of `node`, under `stamp`, was merged just now.
    pub fn heard(&mut self, node: NodeId, stamp: Stamp) {
        self.marks.insert(node, Mark { stamp, heard_at_ms: self.up_ms });
        self.changed.insert(chunk_of(&node));
    }

    /// After a start: the store holds the record of `node` under `stamp`, or nothing of it yet (the zero stamp).
    /// A mark of that very record goes on counting; any other one starts now.
    pub fn known(&mut self, node: NodeId, stamp: Stamp) {
        let up_ms = self.up_ms;
        if self.marks.get(&node).is_none_or(|mark| mark.stamp != stamp || mark.heard_at_ms > up_ms) {
            self.heard(node, stamp);
        }
    }

    /// Up time since the record of `node` last changed, in milliseconds; `None`: nothing to count from.
    #[must_use]
    pub fn unheard_ms(&self, node: &NodeId) -> Option<u64> {
        self.marks.get(node).map(|mark| self.up_ms.saturating_sub(mark.heard_at_ms))
    }

    /// When the record of `node` last changed, in this observer's up time.
    #[must_use]
    pub fn heard_at_up_ms(&self, node: &NodeId) -> Option<u64> {
        self.marks.get(node).map(|mark| mark.heard_at_ms)
    }

    /// The record of `node` was dropped.
    pub fn forget(&mut self, node: &NodeId) {
        if self.marks.remove(node).is_some() {
            self.changed.insert(chunk_of(node));
        }
    }

    /// Up time until the next save is due, in milliseconds; 0: now.
    #[must_use]
    pub fn save_due_in_ms(&self) -> u64 {
        self.counter_saved_at_ms.saturating_add(SAVE_COUNTER_EVERY_MS).saturating_sub(self.up_ms)
    }

    /// What to make durable now: the counter every minute, changed marks every ten. Empty in between.
    ///
    /// Marks come before the counter, so the counter on disk is never ahead of them.
    pub fn take_saves(&mut self) -> Vec<Save> {
        if self.save_due_in_ms() > 0 {
            return Vec::new();
        }
        let mut saves = Vec::new();
        if self.up_ms.saturating_sub(self.marks_saved_at_ms) >= SAVE_MARKS_EVERY_MS {
            self.marks_saved_at_ms = self.up_ms;
            for chunk in core::mem::take(&mut self.changed) {
                saves.push(self.save_chunk(chunk));
            }
        }
        self.counter_saved_at_ms = self.up_ms;
        saves.push(Save { part: Part::UpTime, value: Some(encode(&self.up_ms)) });
        saves
    }

    /// The same at once for one node: for the holders of this node's promises, whose silence decides a slot,
    /// and for a clean stop.
    pub fn save_now(&mut self, node: &NodeId) -> Vec<Save> {
        self.changed.remove(&chunk_of(node));
        alloc::vec![self.save_chunk(chunk_of(node))]
    }

    fn save_chunk(&self, chunk: u8) -> Save {
        let (mut least, mut most) = ([0; 32], [u8::MAX; 32]);
        (least[0], most[0]) = (chunk, chunk);
        let marks: Vec<(&NodeId, &Mark)> = self.marks.range(NodeId(least)..=NodeId(most)).collect();
        Save { part: Part::Marks(chunk), value: (!marks.is_empty()).then(|| encode(&marks)) }
    }
}

fn chunk_of(node: &NodeId) -> u8 {
    let [first, ..] = node.0;
    first
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = alloc::vec![VERSION];
    bytes.extend(postcard::to_allocvec(value).expect("numbers and bytes always encode"));
    bytes
}

fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Option<T> {
    let (version, encoded) = bytes.split_first()?;
    if *version == VERSION { postcard::from_bytes(encoded).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId([7; 32]);
    const B: NodeId = NodeId([8; 32]);
    const HOUR: u64 = 3_600_000;

    fn stamp(counter: u64) -> Stamp {
        Stamp { incarnation: 1, counter }
    }

    /// What lies on disk after everything taken so far.
    #[derive(Default)]
    struct Disk(BTreeMap<Part, Vec<u8>>);

    impl Disk {
        fn write(&mut self, saves: Vec<Save>) {
            for save in saves {
                match save.value {
                    Some(value) => self.0.insert(save.part, value),
                    None => self.0.remove(&save.part),
                };
            }
        }
        fn restart(&self, awake_ms: u64) -> Presence {
            Presence::restore(awake_ms, self.0.clone())
        }
    }

    #[test]
    fn silence_counts_from_the_last_change_in_awake_time() {
        let mut presence = Presence::new(5_000);
        assert_eq!(presence.unheard_ms(&A), None);
        presence.heard(A, stamp(1));
        presence.tick(6_500);
        assert_eq!(presence.unheard_ms(&A), Some(1_500));
        presence.tick(6_000);
        assert_eq!(presence.unheard_ms(&A), Some(1_500), "a clock that goes back adds nothing");
        presence.heard(A, stamp(2));
        assert_eq!(presence.unheard_ms(&A), Some(0));
    }

    #[test]
    fn d43_a_day_asleep_is_not_a_day_of_silence() {
        let mut presence = Presence::new(1_000);
        presence.heard(A, stamp(1));
        // The awake clock stood still for 24 h: the next input comes 20 ms of awake time later.
        presence.tick(1_020);
        assert_eq!(presence.unheard_ms(&A), Some(20));
    }

    #[test]
    fn d19_silence_adds_up_over_nightly_reboots() {
        let mut disk = Disk::default();
        let mut presence = Presence::new(0);
        presence.heard(A, stamp(1));
        disk.write(presence.save_now(&A));
        for _ in 0..5 {
            // Eight hours up, then off for the night; the awake clock begins at 0 again.
            presence.tick(8 * HOUR);
            disk.write(presence.take_saves());
            presence = disk.restart(0);
            presence.known(A, stamp(1));
        }
        assert_eq!(presence.unheard_ms(&A), Some(40 * HOUR));
    }

    #[test]
    fn m3_time_off_counts_for_nobody() {
        let mut disk = Disk::default();
        let mut presence = Presence::new(0);
        presence.heard(A, stamp(1));
        disk.write(presence.save_now(&A));
        presence.tick(SAVE_COUNTER_EVERY_MS);
        disk.write(presence.take_saves());
        // Weeks later, with an awake clock that says anything.
        let mut presence = disk.restart(77 * HOUR);
        presence.known(A, stamp(1));
        assert_eq!(presence.unheard_ms(&A), Some(SAVE_COUNTER_EVERY_MS));
    }

    #[test]
    fn a_crash_loses_at_most_a_minute_and_never_adds_one() {
        let mut disk = Disk::default();
        let mut presence = Presence::new(0);
        presence.heard(A, stamp(1));
        disk.write(presence.save_now(&A));
        presence.tick(HOUR + SAVE_COUNTER_EVERY_MS - 1);
        disk.write(presence.take_saves());
        presence.tick(HOUR + 2 * SAVE_COUNTER_EVERY_MS - 2);
        assert!(presence.take_saves().is_empty(), "not due yet");
        let mut presence = disk.restart(0);
        presence.known(A, stamp(1));
        assert_eq!(presence.unheard_ms(&A), Some(HOUR + SAVE_COUNTER_EVERY_MS - 1));
    }

    #[test]
    fn after_a_start_a_record_that_differs_from_its_mark_counts_as_heard_now() {
        let mut disk = Disk::default();
        let mut presence = Presence::new(0);
        presence.heard(A, stamp(1));
        disk.write(presence.save_now(&A));
        presence.tick(HOUR);
        disk.write(presence.take_saves());
        presence.heard(A, stamp(2));
        let mut presence = disk.restart(0);
        presence.known(A, stamp(2));
        presence.known(B, Stamp::default());
        assert_eq!(presence.unheard_ms(&A), Some(0), "the mark of record 2 was lost, the record was not");
        assert_eq!(presence.unheard_ms(&B), Some(0));
    }

    #[test]
    fn a_damaged_part_makes_its_nodes_count_as_heard_now() {
        let mut presence = Presence::new(0);
        presence.heard(A, stamp(1));
        presence.tick(HOUR);
        let mut saves: Vec<(Part, Vec<u8>)> =
            presence.save_now(&A).into_iter().map(|save| (save.part, alloc::vec![9, 9])).collect();
        saves.push((Part::UpTime, alloc::vec![VERSION]));
        let mut presence = Presence::restore(0, saves);
        assert_eq!((presence.up_ms(), presence.unheard_ms(&A)), (0, None));
        presence.known(A, stamp(1));
        assert_eq!(presence.unheard_ms(&A), Some(0));
    }

    #[test]
    fn ten_thousand_changes_cost_at_most_256_writes_in_ten_minutes() {
        let mut presence = Presence::new(0);
        let mut writes = 0;
        for round in 0..10_u64 {
            for number in 0..1_000_u32 {
                let mut id = [0; 32];
                id[..4].copy_from_slice(&number.wrapping_mul(2_654_435_761).to_be_bytes());
                presence.heard(NodeId(id), stamp(round));
            }
            presence.tick((round + 1) * SAVE_COUNTER_EVERY_MS);
            writes += presence.take_saves().len();
        }
        assert!(writes <= 256 + 10, "{writes}");
        assert_eq!(presence.save_due_in_ms(), SAVE_COUNTER_EVERY_MS);
    }

    #[test]
    fn a_forgotten_node_leaves_the_disk_too() {
        let mut disk = Disk::default();
        let mut presence = Presence::new(0);
        presence.heard(A, stamp(1));
        disk.write(presence.save_now(&A));
        presence.forget(&A);
        presence.tick(SAVE_MARKS_EVERY_MS);
        disk.write(presence.take_saves());
        assert_eq!(disk.0.keys().copied().collect::<Vec<_>>(), [Part::UpTime]);
    }

    #[test]
    fn the_durable_form_has_fixed_bytes() {
        let mut presence = Presence::new(0);
        presence.tick(300);
        presence.heard(A, stamp(2));
        let saves = presence.save_now(&A);
        let mut expected = alloc::vec![VERSION, 1];
        expected.extend([7; 32]);
        expected.extend([1, 2, 0xac, 0x02]);
        assert_eq!(saves, [Save { part: Part::Marks(7), value: Some(expected) }]);
    }
}

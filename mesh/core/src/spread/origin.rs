//! How much of one origin is passed on: 20 records at once, then one per 10 s, the newest (design, section 5).
//!
//! Counted per key, so that a warden's grants do not wait for its status. Delayed, never lost: the entry is read
//! from the ledger when its turn comes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::limits::{ORIGIN_BURST, ORIGIN_INTERVAL_MS};
use crate::record::RecordKey;
use crate::time::Time;

/// The rate limit of all origins. Keeps only those that spoke within the last [`ORIGIN_BURST`] intervals.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// When the key's bucket is full again (the "theoretical arrival time" of the generic cell rate algorithm).
    full_at: BTreeMap<RecordKey, Time>,
    /// Keys whose entry waits, and until when.
    waiting: BTreeMap<RecordKey, Time>,
    /// When those that are full again are forgotten next.
    forget_at: Time,
}

impl Origins {
    /// Whether the entry under `key` may go now. If not, [`Origins::due`] yields it when it may.
    pub(super) fn admit(&mut self, now: Time, key: RecordKey) -> bool {
        if self.waiting.contains_key(&key) {
            return false;
        }
        let full_at = self.full_at.get(&key).copied().unwrap_or(now).max(now);
        let may_at = Time(full_at.0.saturating_sub(u64::from(ORIGIN_BURST - 1) * ORIGIN_INTERVAL_MS));
        if may_at > now {
            self.waiting.insert(key, may_at);
            return false;
        }
        self.full_at.insert(key, full_at.after_ms(ORIGIN_INTERVAL_MS));
        true
    }

    /// Keys whose turn has come.
    pub(super) fn due(&mut self, now: Time) -> Vec<RecordKey> {
        if self.forget_at <= now {
            self.forget_at = now.after_ms(ORIGIN_INTERVAL_MS);
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        let due: Vec<RecordKey> = self.waiting.iter().filter(|(_, at)| **at <= now).map(|(key, _)| *key).collect();
        for key in &due {
            self.waiting.remove(key);
        }
        due.into_iter().filter(|key| self.admit(now, *key)).collect()
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.waiting.values().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_id::NodeId;
    use crate::record::RecordKind;

    #[test]
    fn an_origin_has_20_at_once_then_one_per_10_s_and_none_is_lost() {
        let key = RecordKey { node: NodeId([1; 32]), kind: RecordKind::Status };
        let other = RecordKey { kind: RecordKind::Grants, ..key };
        let mut origins = Origins::default();
        let start = Time(5_000_000);
        let at_once = (0..30).filter(|_| origins.admit(start, key)).count();
        assert_eq!(at_once, 20);
        assert!(origins.admit(start, other), "the other kind has its own");
        assert_eq!(origins.next_wakeup(), Some(start.after_ms(10_000)));
        assert_eq!(origins.due(start.after_ms(9_999)), []);
        assert_eq!(origins.due(start.after_ms(10_000)), [key]);
        assert!(!origins.admit(start.after_ms(10_001), key));
        assert_eq!(origins.due(start.after_ms(20_000)), [key]);
        assert_eq!(origins.next_wakeup(), None);
        let later = start.after_ms(1_000_000);
        origins.due(later);
        assert!(origins.full_at.is_empty(), "who is silent is forgotten");
    }
}

//! How much gossip one author or one deliverer may bring: a token bucket for each, bounded in number.

use std::collections::BTreeMap;
use std::time::Duration;

use libp2p::PeerId;
use tokio::time::Instant;

/// Authors remembered; beyond it the one unheard of longest is forgotten, and starts with a full bucket again.
const REMEMBERED: usize = 1_024;

/// Buckets of one kind.
#[derive(Debug)]
pub(crate) struct Rates {
    burst: u32,
    every: Duration,
    buckets: BTreeMap<PeerId, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    left: u32,
    filled: Instant,
}

impl Rates {
    /// `burst` at once, then one `every`.
    pub(crate) fn new(burst: u32, every: Duration) -> Self {
        Self { burst, every, buckets: BTreeMap::new() }
    }

    /// Whether `peer` may have one more taken.
    pub(crate) fn take(&mut self, peer: PeerId, now: Instant) -> bool {
        if !self.buckets.contains_key(&peer)
            && self.buckets.len() >= REMEMBERED
            && let Some(oldest) = self.buckets.iter().min_by_key(|(_, bucket)| bucket.filled).map(|(peer, _)| *peer)
        {
            self.buckets.remove(&oldest);
        }
        let bucket = self.buckets.entry(peer).or_insert(Bucket { left: self.burst, filled: now });
        let earned = now.saturating_duration_since(bucket.filled).as_millis() / self.every.as_millis().max(1);
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            bucket.left = bucket.left.saturating_add(earned).min(self.burst);
            bucket.filled = if bucket.left == self.burst { now } else { bucket.filled + self.every.saturating_mul(earned) };
        }
        let allowed = bucket.left > 0;
        bucket.left = bucket.left.saturating_sub(1);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_one_for_each_interval_and_others_are_not_touched() {
        let mut rates = Rates::new(3, Duration::from_secs(1));
        let (one, other, start) = (PeerId::random(), PeerId::random(), Instant::now());
        assert_eq!([(); 4].map(|()| rates.take(one, start)), [true, true, true, false]);
        assert!(rates.take(other, start));
        assert!(!rates.take(one, start + Duration::from_millis(999)));
        let later = start + Duration::from_millis(2_500);
        assert_eq!([(); 3].map(|()| rates.take(one, later)), [true, true, false]);
        assert!(rates.take(one, start + Duration::from_secs(3)), "the half second was not lost");
    }

    #[test]
    fn the_number_of_remembered_authors_is_bounded() {
        let mut rates = Rates::new(1, Duration::from_secs(1));
        let start = Instant::now();
        for _ in 0..REMEMBERED + 10 {
            assert!(rates.take(PeerId::random(), start));
        }
        assert_eq!(rates.buckets.len(), REMEMBERED);
    }
}

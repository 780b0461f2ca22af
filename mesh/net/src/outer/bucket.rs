//! How fast the door serves: a token bucket for each visitor and one for all of its standing, bounded in number.

use std::collections::BTreeMap;

use groundswell_core::node_id::NodeId;
use tokio::time::Instant;

use super::limits::{REMEMBERED, Rate};

/// Bytes that may still be served, and since when that is counted.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: u64,
    filled: Instant,
}

impl Bucket {
    fn full(rate: Rate, now: Instant) -> Self {
        Self { left: rate.burst, filled: now }
    }

    /// Adds what was earned since the last time; what is less than a byte is earned later.
    fn fill(&mut self, rate: Rate, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_millis();
        let earned = u64::try_from(passed).unwrap_or(u64::MAX).saturating_mul(rate.per_second) / 1_000;
        if earned > 0 {
            self.left = self.left.saturating_add(earned).min(rate.burst);
            self.filled = now;
        }
    }

    /// How long until `bytes` are there, in milliseconds; 0 when they are.
    fn wait_ms(&self, rate: Rate, bytes: u64) -> u64 {
        let missing = bytes.min(rate.burst).saturating_sub(self.left);
        missing.saturating_mul(1_000).div_ceil(rate.per_second.max(1))
    }
}

/// The buckets of one standing.
#[derive(Debug)]
pub(crate) struct Buckets {
    each: Rate,
    all: Rate,
    together: Option<Bucket>,
    peers: BTreeMap<NodeId, Bucket>,
}

impl Buckets {
    pub(crate) fn new(each: Rate, all: Rate) -> Self {
        Self { each, all, together: None, peers: BTreeMap::new() }
    }

    /// Takes `bytes` for `peer`, or nothing.
    ///
    /// # Errors
    /// After how many milliseconds to ask again.
    pub(crate) fn take(&mut self, peer: NodeId, bytes: u64, now: Instant) -> Result<(), u32> {
        if !self.peers.contains_key(&peer)
            && self.peers.len() >= REMEMBERED
            && let Some(oldest) = self.peers.iter().min_by_key(|(_, bucket)| bucket.filled).map(|(peer, _)| *peer)
        {
            self.peers.remove(&oldest);
        }
        let (each, all) = (self.each, self.all);
        let together = self.together.get_or_insert_with(|| Bucket::full(all, now));
        let own = self.peers.entry(peer).or_insert_with(|| Bucket::full(each, now));
        together.fill(all, now);
        own.fill(each, now);
        let wait = own.wait_ms(each, bytes).max(together.wait_ms(all, bytes));
        if wait > 0 {
            return Err(u32::try_from(wait).unwrap_or(u32::MAX));
        }
        own.left = own.left.saturating_sub(bytes);
        together.left = together.left.saturating_sub(bytes);
        Ok(())
    }

    /// Whether `peer` has `bytes` left of what it has alone.
    ///
    /// # Errors
    /// After how many milliseconds it has.
    pub(crate) fn wait_of(&mut self, peer: NodeId, bytes: u64, now: Instant) -> Result<(), u32> {
        let each = self.each;
        let Some(own) = self.peers.get_mut(&peer) else { return Ok(()) };
        own.fill(each, now);
        match own.wait_ms(each, bytes) {
            0 => Ok(()),
            wait_ms => Err(u32::try_from(wait_ms).unwrap_or(u32::MAX)),
        }
    }

    /// Gives back what was taken for `peer` and not needed.
    pub(super) fn give_back(&mut self, peer: NodeId, bytes: u64) {
        if let Some(together) = &mut self.together {
            together.left = together.left.saturating_add(bytes).min(self.all.burst);
        }
        if let Some(own) = self.peers.get_mut(&peer) {
            own.left = own.left.saturating_add(bytes).min(self.each.burst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const EACH: Rate = Rate { burst: 1_000, per_second: 100 };
    const ALL: Rate = Rate { burst: 1_500, per_second: 200 };

    fn peer(n: u8) -> NodeId {
        NodeId([n; 32])
    }

    #[test]
    fn one_peer_has_its_burst_and_then_its_rate_and_is_told_how_long_to_wait() {
        let mut buckets = Buckets::new(EACH, ALL);
        let start = Instant::now();
        assert_eq!(buckets.take(peer(1), 1_000, start), Ok(()));
        assert_eq!(buckets.take(peer(1), 50, start), Err(500));
        assert_eq!(buckets.take(peer(1), 50, start + Duration::from_millis(500)), Ok(()));
        assert_eq!(buckets.take(peer(1), 1, start + Duration::from_millis(500)), Err(10));
    }

    #[test]
    fn all_peers_together_have_less_than_the_sum_so_new_names_gain_nothing() {
        let mut buckets = Buckets::new(EACH, ALL);
        let start = Instant::now();
        assert_eq!(buckets.take(peer(1), 1_000, start), Ok(()));
        assert_eq!(buckets.take(peer(2), 1_000, start), Err(2_500));
        assert_eq!(buckets.take(peer(2), 500, start), Ok(()), "what was refused cost nothing");
        assert_eq!(buckets.take(peer(3), 1, start), Err(5));
    }

    #[test]
    fn a_wish_beyond_the_burst_waits_for_a_full_bucket_and_no_longer() {
        let mut buckets = Buckets::new(EACH, ALL);
        let start = Instant::now();
        assert_eq!(buckets.take(peer(1), 1_200, start), Ok(()), "a full bucket is enough");
        assert_eq!(buckets.take(peer(1), 1_200, start), Err(10_000));
    }

    #[test]
    fn what_was_not_needed_is_given_back_and_never_more_than_a_full_bucket() {
        let mut buckets = Buckets::new(EACH, ALL);
        let start = Instant::now();
        assert_eq!(buckets.take(peer(1), 1_000, start), Ok(()));
        buckets.give_back(peer(1), 400);
        assert_eq!(buckets.take(peer(1), 401, start), Err(10));
        assert_eq!(buckets.take(peer(1), 400, start), Ok(()));
        buckets.give_back(peer(1), 5_000);
        assert_eq!(buckets.take(peer(1), 1_000, start), Ok(()));
        assert_eq!(buckets.take(peer(2), 500, start), Ok(()), "together no more than their burst");
        assert_eq!(buckets.take(peer(2), 1, start), Err(5));
    }

    #[test]
    fn the_number_of_remembered_peers_is_bounded() {
        let mut buckets = Buckets::new(EACH, ALL);
        let now = Instant::now();
        for n in 0..=u16::try_from(REMEMBERED).unwrap() {
            let mut id = [0; 32];
            id[..2].copy_from_slice(&n.to_be_bytes());
            buckets.take(NodeId(id), 0, now).unwrap();
        }
        assert_eq!(buckets.peers.len(), REMEMBERED);
    }
}

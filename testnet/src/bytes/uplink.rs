//! A link that carries one byte after the other at a given rate.

use std::time::Duration;

/// What the layers below add to each batch of words, in bytes: addresses, sequence numbers, seals.
const BATCH_BYTES: u64 = 70;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Uplink {
    bits_per_second: u64,
    free_at: Duration,
}

impl Uplink {
    pub(super) fn new(bits_per_second: u64) -> Self {
        Self { bits_per_second, free_at: Duration::ZERO }
    }

    /// Queues bytes and says when the last of them has left.
    pub(super) fn send(&mut self, now: Duration, bytes: u64) -> Duration {
        let nanos = u128::from(bytes + BATCH_BYTES) * 8 * 1_000_000_000 / u128::from(self.bits_per_second.max(1));
        self.free_at = self.free_at.max(now) + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.free_at
    }
}

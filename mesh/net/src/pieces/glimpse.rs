//! What can be seen of a swarm from outside: who takes part, what each of them has, how fast bytes move.

use std::collections::BTreeSet;
use std::time::Duration;

use groundswell_core::blob::PieceSet;
use groundswell_core::node_id::NodeId;
use tokio::time::Instant;

/// A rate is that of the last one to two of these.
const WINDOW: Duration = Duration::from_secs(2);
/// Less time than this says nothing of a rate.
const LEAST: Duration = Duration::from_millis(200);

/// One swarm, as it was a moment ago.
#[derive(Clone, Debug, Default)]
pub struct Glimpse {
    /// Pieces that are here.
    pub held: u32,
    /// Pieces that the blob has.
    pub pieces: u32,
    /// Who takes part, at most [`groundswell_core::limits::BLOB_NEIGHBOURS`].
    pub neighbours: Vec<Neighbour>,
    /// Who was seen to have all of it and takes no part any more.
    pub completed: BTreeSet<NodeId>,
}

/// One neighbour in a swarm.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// Who.
    pub peer: NodeId,
    /// What it said it holds; `None` before it said so.
    pub holds: Option<PieceSet>,
    /// Bytes of pieces that went to it.
    pub sent: Gauge,
    /// Bytes of pieces that came from it.
    pub received: Gauge,
}

/// Bytes that moved: in all, and lately.
#[derive(Clone, Copy, Debug)]
pub struct Gauge {
    total: u64,
    since: Instant,
    current: u64,
    /// The window before, once there was one.
    last: Option<u64>,
}

impl Default for Gauge {
    fn default() -> Self {
        Self { total: 0, since: Instant::now(), current: 0, last: None }
    }
}

impl Gauge {
    pub(crate) fn add(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.roll(Instant::now());
        self.total = self.total.saturating_add(bytes);
        self.current = self.current.saturating_add(bytes);
    }

    /// Bytes since the neighbour took part.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    /// Bytes a second, lately.
    #[must_use]
    pub fn bytes_per_second(&self) -> u64 {
        let (mut gauge, now) = (*self, Instant::now());
        gauge.roll(now);
        let lasted = now.saturating_duration_since(gauge.since) + gauge.last.map_or(Duration::ZERO, |_| WINDOW);
        if lasted < LEAST {
            return 0;
        }
        let bytes = gauge.current.saturating_add(gauge.last.unwrap_or(0));
        bytes.saturating_mul(1_000) / u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX).max(1)
    }

    fn roll(&mut self, now: Instant) {
        let lasted = now.saturating_duration_since(self.since);
        if lasted >= WINDOW * 2 {
            (self.last, self.current, self.since) = (Some(0), 0, now);
        } else if lasted >= WINDOW {
            (self.last, self.current, self.since) = (Some(self.current), 0, self.since + WINDOW);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_that_of_the_last_seconds_and_falls_to_nothing_in_silence() {
        let mut gauge = Gauge::default();
        assert_eq!(gauge.bytes_per_second(), 0);
        for _ in 0..100 {
            gauge.add(10_000);
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        let rate = gauge.bytes_per_second();
        assert!((95_000..=105_000).contains(&rate), "{rate}");
        assert_eq!(gauge.total_bytes(), 1_000_000);
        tokio::time::advance(WINDOW * 2).await;
        assert_eq!((gauge.bytes_per_second(), gauge.total_bytes()), (0, 1_000_000));
        gauge.add(400_000);
        tokio::time::advance(Duration::from_secs(1)).await;
        let rate = gauge.bytes_per_second();
        assert!((100_000..=400_000).contains(&rate), "{rate}");
    }
}

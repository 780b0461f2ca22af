//! A node's rates: a token bucket that holds a quarter of a second. One for each direction, whatever the bytes go through.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// What may be used at once after a pause.
const BURST: Duration = Duration::from_millis(250);

/// Bytes a second, or no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate(Option<std::num::NonZeroU64>);

impl Rate {
    /// No bound.
    pub const UNBOUNDED: Self = Self(None);

    /// At most so many bytes a second; 0 is no bound.
    #[must_use]
    pub fn bytes_per_second(bytes: u64) -> Self {
        Self(std::num::NonZeroU64::new(bytes))
    }
}

/// What a node sends and takes at most, of blobs, over every path together. Clones share what was used so far.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    pub(crate) up: Arc<Throttle>,
    pub(crate) down: Arc<Throttle>,
}

impl Rates {
    /// At most so much of either, nothing of it used yet.
    #[must_use]
    pub fn new(upload: Rate, download: Rate) -> Self {
        Self { up: Arc::new(Throttle::new(upload)), down: Arc::new(Throttle::new(download)) }
    }
}

/// The same bounds, whatever was used of them.
impl PartialEq for Rates {
    fn eq(&self, other: &Self) -> bool {
        (self.up.rate, self.down.rate) == (other.up.rate, other.down.rate)
    }
}

impl Eq for Rates {}

/// One direction of one node.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    rate: Rate,
    /// When what was used so far is paid for.
    paid: Mutex<Option<Instant>>,
}

impl Throttle {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, paid: Mutex::new(None) }
    }

    /// How many bytes it lets through in this time; `None` where it has no bound.
    pub(crate) fn bytes_in(&self, time: Duration) -> Option<u64> {
        let bytes = u128::from(self.rate.0?.get()).saturating_mul(time.as_millis()) / 1_000;
        Some(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Until when nothing may be used; `None` when something may be.
    pub(crate) fn closed_until(&self) -> Option<Instant> {
        self.rate.0?;
        let now = Instant::now();
        self.paid.lock().expect("no holder of this lock panics").filter(|paid| *paid > now)
    }

    /// So many bytes were used.
    pub(crate) fn spend(&self, bytes: usize) {
        let Some(rate) = self.rate.0 else { return };
        let now = Instant::now();
        let mut paid = self.paid.lock().expect("no holder of this lock panics");
        let least = now.checked_sub(BURST).unwrap_or(now);
        *paid = Some(paid.map_or(least, |paid| paid.max(least)) + cost(rate, bytes));
    }

    /// So many bytes more may be used; a full bucket has no room for them.
    pub(crate) fn earn(&self, bytes: usize) {
        let Some(rate) = self.rate.0 else { return };
        let mut paid = self.paid.lock().expect("no holder of this lock panics");
        *paid = paid.and_then(|paid| paid.checked_sub(cost(rate, bytes)));
    }

    /// Uses so many bytes and waits until they are paid for. Cancel-safe; they count as used all the same.
    pub(crate) async fn pay(&self, bytes: usize) {
        self.spend(bytes);
        if let Some(until) = self.closed_until() {
            sleep_until(until).await;
        }
    }
}

fn cost(rate: std::num::NonZeroU64, bytes: usize) -> Duration {
    let nanos = u128::try_from(bytes).unwrap_or(u128::MAX).saturating_mul(1_000_000_000) / u128::from(rate.get());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_earned_is_used_at_once_and_never_more_than_a_full_bucket() {
        let throttle = Throttle::new(Rate::bytes_per_second(1_000));
        throttle.pay(250).await;
        let began = Instant::now();
        throttle.spend(500);
        throttle.earn(400);
        assert_eq!(throttle.closed_until(), Some(began + Duration::from_millis(100)));
        throttle.earn(100_000);
        throttle.pay(350).await;
        assert_eq!(began.elapsed().as_millis(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_paid_for_keeps_the_rate_and_a_pause_saves_a_quarter_of_a_second() {
        let throttle = Throttle::new(Rate::bytes_per_second(1_000_000));
        let began = Instant::now();
        for _ in 0..40 {
            throttle.pay(100_000).await;
        }
        assert_eq!(began.elapsed().as_millis(), 3_750);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let after = Instant::now();
        throttle.pay(250_000).await;
        assert_eq!(after.elapsed(), Duration::ZERO);
        throttle.pay(100_000).await;
        assert_eq!(after.elapsed().as_millis(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_bound_nothing_waits() {
        let throttle = Throttle::new(Rate::UNBOUNDED);
        throttle.pay(usize::MAX).await;
        assert_eq!(throttle.closed_until(), None);
    }
}

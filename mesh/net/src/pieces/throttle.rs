//! A node's rates: a token bucket that holds a quarter of a second.

use std::sync::Mutex;
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

/// One direction of one node.
#[derive(Debug)]
pub(super) struct Throttle {
    rate: Rate,
    /// When what was used so far is paid for.
    paid: Mutex<Option<Instant>>,
}

impl Throttle {
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, paid: Mutex::new(None) }
    }

    /// Until when nothing may be used; `None` when something may be.
    pub(super) fn closed_until(&self) -> Option<Instant> {
        self.rate.0?;
        let now = Instant::now();
        self.paid.lock().expect("no holder of this lock panics").filter(|paid| *paid > now)
    }

    /// So many bytes were used.
    pub(super) fn spend(&self, bytes: usize) {
        let Some(rate) = self.rate.0 else { return };
        let now = Instant::now();
        let nanos = u128::try_from(bytes).unwrap_or(u128::MAX).saturating_mul(1_000_000_000) / u128::from(rate.get());
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut paid = self.paid.lock().expect("no holder of this lock panics");
        let least = now.checked_sub(BURST).unwrap_or(now);
        *paid = Some(paid.map_or(least, |paid| paid.max(least)) + cost);
    }

    /// Uses so many bytes and waits until they are paid for. Cancel-safe; they count as used all the same.
    pub(super) async fn pay(&self, bytes: usize) {
        self.spend(bytes);
        if let Some(until) = self.closed_until() {
            sleep_until(until).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

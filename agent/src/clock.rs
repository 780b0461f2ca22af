//! The three clocks of the core, read from the kernel, and an alarm on the one that does not stop in suspend.
//!
//! The only place of the agent that reads clocks for decisions. Rust's `Instant` and tokio's timers stop while the
//! machine sleeps; soak, start and watchdog times must not.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use groundswell_core::time::{Now, Time, Timestamp};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Notify;

/// The clocks that one agent goes by: the kernel's, moved ahead by what a test asks for.
///
/// Clones share it. Outside tests nothing is ever added.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    ahead_ms: Arc<AtomicU64>,
    moved: Arc<Notify>,
}

impl Clock {
    /// All three readings at this instant.
    #[must_use]
    pub fn now(&self) -> Now {
        let (ahead_ms, real) = (self.ahead_ms.load(Ordering::SeqCst), now());
        Now {
            awake_ms: real.awake_ms.saturating_add(ahead_ms),
            boot: real.boot.after_ms(ahead_ms),
            wall: real.wall.plus_seconds(ahead_ms / 1_000),
        }
    }

    /// Wall time alone; 1970 when the clock stands before it.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        self.now().wall
    }

    /// For tests: all three clocks jump ahead, as if the machine had run and been awake for so long.
    pub fn advance_ms(&self, ms: u64) {
        self.ahead_ms.fetch_add(ms, Ordering::SeqCst);
        self.moved.notify_one();
    }

    /// The kernel's reading that stands for `at` on this clock.
    fn real(&self, Time(at): Time) -> Time {
        Time(at.saturating_sub(self.ahead_ms.load(Ordering::SeqCst)))
    }
}

/// All three readings of the kernel at this instant.
#[must_use]
pub fn now() -> Now {
    Now {
        awake_ms: milliseconds(clock_gettime(ClockId::Monotonic)),
        boot: Time(milliseconds(clock_gettime(ClockId::Boottime))),
        wall: wall(),
    }
}

/// The kernel's wall time alone; 1970 when the clock stands before it.
#[must_use]
pub fn wall() -> Timestamp {
    Timestamp::from_seconds(u64::try_from(clock_gettime(ClockId::Realtime).tv_sec).unwrap_or(0))
}

fn milliseconds(reading: Timespec) -> u64 {
    let seconds = u64::try_from(reading.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(reading.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000).saturating_add(nanoseconds / 1_000_000)
}

/// One alarm on CLOCK_BOOTTIME: rings at once after a suspend that slept through its time.
#[derive(Debug)]
pub struct Alarm {
    /// A timerfd. Tokio has no safe type for one; it is read like a pipe, and tokio's type for those takes any descriptor.
    timer: Receiver,
    clock: Clock,
    set_to: Option<Time>,
}

impl Alarm {
    /// An alarm that is not set. Call it within a tokio runtime.
    ///
    /// # Errors
    /// When the kernel gives no timer.
    pub fn new(clock: Clock) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self { timer: Receiver::from_owned_fd_unchecked(timer)?, clock, set_to: None })
    }

    /// Rings at `at`, or never. A time in the past rings at once.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set(&mut self, at: Option<Time>) -> io::Result<()> {
        if at == self.set_to {
            return Ok(());
        }
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // All zero would disarm it, so the earliest time is one nanosecond after boot.
        let value = at.map(|at| self.clock.real(at)).map_or(zero, |Time(ms)| Timespec {
            tv_sec: i64::try_from(ms / 1_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from((ms % 1_000) * 1_000_000).unwrap_or(0).max(1),
        });
        timerfd_settime(self.timer.as_fd(), TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval: zero, it_value: value })?;
        self.set_to = at;
        Ok(())
    }

    /// Returns when it rings, or when a test moved the clock; it is not set any more then. Cancel-safe.
    pub async fn rings(&mut self) {
        let mut expirations = [0; 8];
        loop {
            tokio::select! {
                readable = self.timer.readable() => if readable.is_err() {
                    // The runtime is shutting down.
                    return std::future::pending().await;
                },
                () = self.clock.moved.notified() => {
                    self.set_to = None;
                    return;
                }
            }
            // It would block when it was set anew in between: not ringing.
            if self.timer.try_read(&mut expirations).is_ok() {
                self.set_to = None;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_alarm_rings_at_its_time_and_only_then() {
        let mut alarm = Alarm::new(Clock::default()).unwrap();
        let start = now().boot;
        alarm.set(Some(start.after_ms(3_600_000))).unwrap();
        alarm.set(Some(start.after_ms(30))).unwrap();
        alarm.rings().await;
        assert!(now().boot.since_ms(start) >= 30);
        alarm.set(Some(Time(0))).unwrap();
        alarm.rings().await;
    }

    #[tokio::test]
    async fn a_clock_that_a_test_moves_ahead_rings_and_takes_all_three_readings_along() {
        let clock = Clock::default();
        let (real, mut alarm) = (now(), Alarm::new(clock.clone()).unwrap());
        alarm.set(Some(clock.now().boot.after_ms(3_600_000))).unwrap();
        clock.advance_ms(3_600_000);
        alarm.rings().await;
        let moved = clock.now();
        assert!(moved.awake_ms >= real.awake_ms + 3_600_000 && moved.boot.since_ms(real.boot) >= 3_600_000);
        assert!(moved.wall.since_seconds(real.wall) >= 3_600);
    }
}

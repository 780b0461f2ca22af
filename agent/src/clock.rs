//! The three clocks of the core, read from the kernel, and an alarm on the one that does not stop in suspend.
//!
//! The only place of the agent that reads clocks for decisions. Rust's `Instant` and tokio's timers stop while the
//! machine sleeps; soak, start and watchdog times must not.

use std::io;
use std::os::fd::AsFd as _;

use groundswell_core::time::{Now, Time, Timestamp};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

/// All three readings at this instant.
#[must_use]
pub fn now() -> Now {
    Now {
        awake_ms: milliseconds(clock_gettime(ClockId::Monotonic)),
        boot: Time(milliseconds(clock_gettime(ClockId::Boottime))),
        wall: wall(),
    }
}

/// Wall time alone; 1970 when the clock stands before it.
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
    set_to: Option<Time>,
}

impl Alarm {
    /// An alarm that is not set. Call it within a tokio runtime.
    ///
    /// # Errors
    /// When the kernel gives no timer.
    pub fn new() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self { timer: Receiver::from_owned_fd_unchecked(timer)?, set_to: None })
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
        let value = at.map_or(zero, |Time(ms)| Timespec {
            tv_sec: i64::try_from(ms / 1_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from((ms % 1_000) * 1_000_000).unwrap_or(0).max(1),
        });
        timerfd_settime(self.timer.as_fd(), TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval: zero, it_value: value })?;
        self.set_to = at;
        Ok(())
    }

    /// Returns when it rings; it is not set any more then. Cancel-safe.
    pub async fn rings(&mut self) {
        let mut expirations = [0; 8];
        loop {
            if self.timer.readable().await.is_err() {
                // The runtime is shutting down.
                return std::future::pending().await;
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
        let mut alarm = Alarm::new().unwrap();
        let start = now().boot;
        alarm.set(Some(start.after_ms(3_600_000))).unwrap();
        alarm.set(Some(start.after_ms(30))).unwrap();
        alarm.rings().await;
        assert!(now().boot.since_ms(start) >= 30);
        alarm.set(Some(Time(0))).unwrap();
        alarm.rings().await;
    }
}

//! The three clocks of the core, read from the kernel. The only place of the agent that reads them for decisions.
//!
//! Rust's `Instant` and tokio's timers stop while the machine sleeps; soak, start and watchdog times must not.

use groundswell_core::time::{Now, Time, Timestamp};
use rustix::time::{ClockId, Timespec, clock_gettime};

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

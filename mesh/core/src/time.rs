//! Time as a value: three clocks read by the driver, and RFC 3339 timestamps in documents.
//!
//! Nothing here reads a clock. `awake` stops while the machine sleeps, `boot` does not, `wall` may be wrong.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Milliseconds of CLOCK_BOOTTIME: the clock of timers, soak, start and watchdog. Starts again at each boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// The three readings that every input carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// CLOCK_MONOTONIC in milliseconds: stops during suspend. The observer's own up time is counted with it.
    pub awake_ms: u64,
    /// CLOCK_BOOTTIME: goes on during suspend.
    pub boot: Time,
    /// Wall time; may be wrong, jump, or stand in 1970.
    pub wall: Timestamp,
}

/// A wall-clock instant in whole seconds since 1970, UTC. In JSON as RFC 3339, `2026-11-30T02:05:02Z`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// The text is not an RFC 3339 time in UTC and whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a time is RFC 3339 in UTC and whole seconds, like 2026-11-30T02:05:02Z, from 1970 to 9999")]
pub struct TimestampError;

impl Time {
    /// This instant plus `ms` milliseconds.
    #[must_use]
    pub fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this instant; 0 when `earlier` lies ahead.
    #[must_use]
    pub fn since_ms(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Timestamp {
    /// 9999-12-31T23:59:59Z, the last instant that RFC 3339 can write.
    pub const LAST: Self = Self(253_402_300_799);

    /// `seconds` since 1970, cut at [`Timestamp::LAST`].
    #[must_use]
    pub fn from_seconds(seconds: u64) -> Self {
        Self(seconds.min(Self::LAST.0))
    }

    /// Seconds since 1970.
    #[must_use]
    pub fn seconds(self) -> u64 {
        self.0
    }

    /// This instant plus `seconds`, cut at [`Timestamp::LAST`].
    #[must_use]
    pub fn plus_seconds(self, seconds: u64) -> Self {
        Self::from_seconds(self.0.saturating_add(seconds))
    }

    /// Seconds from `earlier` to this instant; 0 when `earlier` lies ahead.
    #[must_use]
    pub fn since_seconds(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instant = i64::try_from(self.0).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
        match instant {
            Some(instant) => write!(f, "{instant}"),
            None => write!(f, "9999-12-31T23:59:59Z"),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        let instant: jiff::Timestamp = text.parse().map_err(|_| TimestampError)?;
        let stamp = u64::try_from(instant.as_second()).map(Self::from_seconds).map_err(|_| TimestampError)?;
        // One form only: what is read must be written the same way again.
        if stamp.to_string() == text { Ok(stamp) } else { Err(TimestampError) }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.serialize(serializer) }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
        } else {
            u64::deserialize(deserializer).map(Self::from_seconds)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_has_one_form() {
        let stamp: Timestamp = "2026-11-30T02:05:02Z".parse().unwrap();
        assert_eq!(stamp.to_string(), "2026-11-30T02:05:02Z");
        for other in ["2026-11-30T02:05:02.5Z", "2026-11-30T03:05:02+01:00", "2026-11-30", "1969-12-31T23:59:59Z"] {
            assert!(other.parse::<Timestamp>().is_err(), "{other}");
        }
        assert_eq!(Timestamp::from_seconds(u64::MAX).to_string(), "9999-12-31T23:59:59Z");
    }
}

//! Lengths of time and sizes as people write them: `"30s"`, `"5m"`, `"1h 30m"`; `"500MiB"`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// A length of time, longer than nothing and at most a week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period(pub(super) Duration);

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

const LONGEST: Duration = Duration::from_secs(7 * 86_400);

fn period(text: &str) -> Result<Period, String> {
    let wrong = || format!("`{text}` is not a length of time like \"30s\", \"5m\" or \"1h 30m\"");
    let span: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    let length = Duration::try_from(span).map_err(|_| wrong())?;
    if length.is_zero() || length > LONGEST {
        return Err(format!("`{text}` must be more than nothing and at most seven days"));
    }
    Ok(Period(length))
}

/// A length of time as it is written in the file; `None` when it is none.
pub(crate) fn length_of_time(text: &str) -> Option<Duration> {
    period(text).ok().map(|Period(length)| length)
}

fn size(text: &str) -> Result<Size, String> {
    let wrong = || format!("`{text}` is not a size like \"800KiB\", \"500MiB\" or \"2GiB\"");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let shift = match unit.trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << shift).map(Size).ok_or_else(wrong)
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).and_then(|text| period(&text).map_err(de::Error::custom))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).and_then(|text| size(&text).map_err(de::Error::custom))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_read_as_people_write_them() {
        for (text, seconds) in [("30s", 30), ("5m", 300), ("1h 30m", 5_400), ("1h30m", 5_400), ("24h", 86_400)] {
            assert_eq!(period(text), Ok(Period(Duration::from_secs(seconds))), "{text}");
        }
        assert_eq!(period("250ms"), Ok(Period(Duration::from_millis(250))));
        for bad in ["", "30", "0s", "-5s", "5 parsecs", "9000h", "s"] {
            assert!(period(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_read_as_people_write_them() {
        assert_eq!(size("2GiB"), Ok(Size(2 << 30)));
        assert_eq!(size("500 MiB"), Ok(Size(500 << 20)));
        assert_eq!(size("17"), Ok(Size(17)));
        for bad in ["", "MiB", "1.5GiB", "-1", "5MB", "99999999999TiB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}

//! Spans of virtual time as people write them: `1d2h`, `90s`, `1m30s`, `250ms`. Milliseconds everywhere else.

use serde::{Deserialize, Deserializer, Serializer, de};

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A span in its shortest form, largest unit first.
#[must_use]
pub fn tell(mut span_ms: u64) -> String {
    if span_ms == 0 {
        return "0s".to_string();
    }
    let mut text = String::new();
    for (unit, unit_ms) in UNITS {
        if span_ms >= unit_ms {
            text += &format!("{}{unit}", span_ms / unit_ms);
            span_ms %= unit_ms;
        }
    }
    text
}

/// Reads what [`tell`] writes, units in any order.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut span_ms = 0_u64;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let unit_ms = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        span_ms = span_ms.checked_add(number.parse::<u64>().ok()?.checked_mul(unit_ms)?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(span_ms)
}

/// For `#[serde(with = "span")]`.
///
/// # Errors
/// The serializer's own.
pub fn serialize<S: Serializer>(span_ms: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&tell(*span_ms))
}

/// For `#[serde(with = "span")]`.
///
/// # Errors
/// When it is not written as a span.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| de::Error::custom(format!("{text:?} is no span of time: write for example 1h30m, 90s or 250ms")))
}

#[cfg(test)]
mod tests {
    use super::{parse, tell};

    #[test]
    fn what_is_told_is_read_again() {
        for span_ms in [0, 1, 999, 1_000, 61_001, 3_600_000, 90_061_001, u64::MAX] {
            assert_eq!(parse(&tell(span_ms)), Some(span_ms));
        }
        assert_eq!(tell(90_500), "1m30s500ms");
        assert_eq!(parse("90s"), Some(90_000));
    }

    #[test]
    fn nonsense_is_no_span() {
        for text in ["", "5", "s", "-1s", "1x", "1.5s", "1 s", "99999999999999999999d", "18446744073709551615d"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}

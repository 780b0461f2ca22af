//! Shares and lengths of time as operators write them: `"5%"`, `"0.5%"`, `"10m"`, `"1h 30m"`, `"30d"`.

use groundswell_core::number::Ppm;
use jiff::{Span, SpanRelativeTo};
use serde::{Deserialize, Deserializer, de};

/// A share, exact to a millionth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(pub(crate) Ppm);

/// A length of time in whole seconds, possibly none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Period(pub(crate) u64);

impl std::str::FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a share like \"5%\" or \"0.5%\", between 0% and 100%");
        let number = text.strip_suffix('%').ok_or_else(wrong)?.trim();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 4 || whole.len() > 3 {
            return Err(wrong());
        }
        // 1 % is 10,000 ppm: four places after the point are exact.
        let parts = format!("{whole}{fraction:0<4}").parse().map_err(|_| wrong())?;
        Ppm::new(parts).map(Self).map_err(|_| wrong())
    }
}

impl std::str::FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a length of time like \"90s\", \"10m\", \"1h 30m\" or \"30d\"");
        let span: Span = text.parse().map_err(|_| wrong())?;
        let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
        if length.subsec_nanos() != 0 {
            return Err(wrong());
        }
        u64::try_from(length.as_secs()).map(Self).map_err(|_| wrong())
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Seconds as people read them: `90 s`, `10 min`, `2 h`, `3 d`.
pub(crate) fn seconds(seconds: u64) -> String {
    for (unit, size) in [("d", 86_400), ("h", 3_600), ("min", 60)] {
        if seconds >= size && seconds.is_multiple_of(size) {
            return format!("{} {unit}", seconds / size);
        }
    }
    format!("{seconds} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w9_a_share_is_exact_or_refused() {
        let parts = |text: &str| text.parse::<Share>().map(|Share(share)| share.parts());
        assert_eq!(parts("58%"), Ok(580_000));
        assert_eq!(parts("0.5%"), Ok(5_000));
        assert_eq!(parts("0.0001%"), Ok(1));
        assert_eq!(parts("100%"), Ok(1_000_000));
        for bad in ["5", "", "%", "-1%", "100.1%", "1e2%", "0.00001%", "5 percent", ".5%", "1000%"] {
            assert!(parts(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn periods_read_as_people_write_them() {
        let period = |text: &str| text.parse::<Period>().map(|Period(seconds)| seconds);
        assert_eq!(period("10m"), Ok(600));
        assert_eq!(period("1h 30m"), Ok(5_400));
        assert_eq!(period("30d"), Ok(30 * 86_400));
        assert_eq!(period("0s"), Ok(0));
        for bad in ["", "10", "-5m", "1.5s", "500ms", "soon"] {
            assert!(period(bad).is_err(), "{bad}");
        }
        assert_eq!((seconds(90), seconds(600), seconds(86_400)), ("90 s".into(), "10 min".into(), "1 d".into()));
    }
}

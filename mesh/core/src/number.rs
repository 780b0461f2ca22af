//! Numbers that cannot be out of range: shares, sequences, generations.

use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::limits::JSON_INTEGER;

/// A share in parts per million, 0 to 1,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Ppm(u32);

/// A release's place in its product's order, 0 to 2^53 − 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Sequence(u64);

/// A rollout's counter: pause, resume, advance and abort raise it. 1 to 2^53 − 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Generation(u64);

/// The number lies outside its type's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} must lie between {least} and {most}")]
pub struct OutOfRange {
    /// What the number is.
    pub what: &'static str,
    /// Smallest allowed value.
    pub least: u64,
    /// Largest allowed value.
    pub most: u64,
}

impl Ppm {
    /// One million parts per million: all.
    pub const ALL: Self = Self(1_000_000);
    /// None.
    pub const ZERO: Self = Self(0);

    /// A share of `parts` per million.
    ///
    /// # Errors
    /// When `parts` is above 1,000,000.
    pub fn new(parts: u32) -> Result<Self, OutOfRange> {
        if parts > 1_000_000 {
            return Err(OutOfRange { what: "a share in parts per million", least: 0, most: 1_000_000 });
        }
        Ok(Self(parts))
    }

    /// Parts per million.
    #[must_use]
    pub fn parts(self) -> u32 {
        self.0
    }

    /// `floor(count × share)`, in integers: 0.58 of 50 is exactly 29 (case W3).
    #[must_use]
    pub fn floor_of(self, count: usize) -> usize {
        usize::try_from(count as u128 * u128::from(self.0) / 1_000_000).unwrap_or(usize::MAX)
    }

    /// `ceil(count × share)`, in integers.
    #[must_use]
    pub fn ceil_of(self, count: usize) -> usize {
        usize::try_from((count as u128 * u128::from(self.0)).div_ceil(1_000_000)).unwrap_or(usize::MAX)
    }
}

impl Sequence {
    /// The sequence `number`.
    ///
    /// # Errors
    /// When it is above 2^53 − 1.
    pub fn new(number: u64) -> Result<Self, OutOfRange> {
        if number > JSON_INTEGER {
            return Err(OutOfRange { what: "a sequence", least: 0, most: JSON_INTEGER });
        }
        Ok(Self(number))
    }

    /// The number itself.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl Generation {
    /// A rollout's first generation.
    pub const FIRST: Self = Self(1);

    /// The generation `number`.
    ///
    /// # Errors
    /// When it is 0 or above 2^53 − 1.
    pub fn new(number: u64) -> Result<Self, OutOfRange> {
        if number == 0 || number > JSON_INTEGER {
            return Err(OutOfRange { what: "a generation", least: 1, most: JSON_INTEGER });
        }
        Ok(Self(number))
    }

    /// The number itself.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    /// The generation after this one; `None` at the end of the range.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        Self::new(self.0 + 1).ok()
    }
}

macro_rules! checked_number {
    ($name:ident, $raw:ty) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <$raw>::deserialize(deserializer).and_then(|raw| Self::new(raw).map_err(de::Error::custom))
            }
        }
    };
}

checked_number!(Ppm, u32);
checked_number!(Sequence, u64);
checked_number!(Generation, u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w3_shares_are_exact_in_integers() {
        assert_eq!(Ppm::new(580_000).unwrap().floor_of(50), 29);
        assert_eq!(Ppm::new(50_000).unwrap().floor_of(39), 1);
        assert_eq!(Ppm::new(50_000).unwrap().floor_of(40), 2);
        assert_eq!(Ppm::new(10_000).unwrap().ceil_of(200), 2);
        assert!(Ppm::new(1_000_001).is_err());
    }

    #[test]
    fn generations_start_at_one() {
        assert!(Generation::new(0).is_err());
        assert_eq!(Generation::FIRST.next().unwrap().get(), 2);
        assert!(Generation::new(JSON_INTEGER).unwrap().next().is_none());
    }
}

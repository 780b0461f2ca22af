//! SHA-256 digests, the identity of documents and blobs.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

/// 32 bytes shown as lower-case hex without a prefix: the form of `sha256` and `blake3` in a manifest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hex32(pub [u8; 32]);

/// A SHA-256 digest, shown as `sha256/<64 lower-case hex>`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

/// Why a text is not a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// The text does not start with `sha256/`.
    #[error("a digest starts with sha256/")]
    Prefix,
    /// The hex part is not 64 lower-case hex digits.
    #[error("a digest has 64 lower-case hex digits")]
    Hex,
}

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The same 32 bytes without the algorithm's name.
    #[must_use]
    pub fn hex(self) -> Hex32 {
        Hex32(self.0)
    }
}

impl From<Hex32> for Digest {
    fn from(hex: Hex32) -> Self {
        Self(hex.0)
    }
}

impl fmt::Display for Hex32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256/{}", self.hex())
    }
}

impl fmt::Debug for Hex32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hex32 {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(DigestError::Hex);
        }
        let nibble = |digit: u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(DigestError::Hex),
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = pair else { return Err(DigestError::Hex) };
            *byte = (nibble(*high)? << 4) | nibble(*low)?;
        }
        Ok(Self(bytes))
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        text.strip_prefix("sha256/").ok_or(DigestError::Prefix)?.parse().map(|Hex32(bytes)| Self(bytes))
    }
}

macro_rules! text_or_bytes {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.serialize(serializer) }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
                } else {
                    <[u8; 32]>::deserialize(deserializer).map(Self)
                }
            }
        }
    };
}

text_or_bytes!(Hex32);
text_or_bytes!(Digest);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_back_as_it_is_shown() {
        let digest = Digest::of(b"abc");
        let text = alloc::format!("{digest}");
        assert_eq!(text, "sha256/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(text.parse(), Ok(digest));
    }

    #[test]
    fn upper_case_short_and_unprefixed_texts_are_refused() {
        let upper = alloc::format!("{}", Digest::of(b"abc")).replace('a', "A");
        assert!(upper.parse::<Digest>().is_err());
        assert_eq!("sha256/ab".parse::<Digest>(), Err(DigestError::Hex));
        assert_eq!("ab".parse::<Digest>(), Err(DigestError::Prefix));
    }
}

//! Names that cannot be wrong: checked once where they enter, trusted afterwards.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::ops::Deref;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::limits::{ARTIFACT_NAME_BYTES, LABEL_KEY_BYTES, LABEL_VALUE_BYTES, NAME_BYTES, REASON_CHARS};

/// Why a text is not a name of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Empty where something must stand.
    #[error("{0} is empty")]
    Empty(&'static str),
    /// Longer than its limit.
    #[error("{0} is longer than {1}")]
    TooLong(&'static str, usize),
    /// A character that the kind does not allow.
    #[error("{0} has a character that is not allowed: {1}")]
    Character(&'static str, &'static str),
    /// A name that a file system gives a meaning of its own.
    #[error("{0} must not be a path, . or ..")]
    Path(&'static str),
}

/// Letters, digits and `. _ -`, beginning with a letter or digit: safe as a file name, a JSON key and a label.
fn plain(what: &'static str, text: &str, most: usize) -> Result<(), TextError> {
    if text.is_empty() {
        return Err(TextError::Empty(what));
    }
    if text.len() > most {
        return Err(TextError::TooLong(what, most));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
    if !text.chars().all(allowed) || !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(TextError::Character(what, "use letters, digits, . _ + - and begin with a letter or digit"));
    }
    Ok(())
}

fn printable(what: &'static str, text: &str, most_chars: usize) -> Result<(), TextError> {
    if text.chars().count() > most_chars {
        return Err(TextError::TooLong(what, most_chars));
    }
    if text.chars().any(char::is_control) {
        return Err(TextError::Character(what, "no control characters"));
    }
    Ok(())
}

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Checks `text`.
            ///
            /// # Errors
            /// When it breaks the rule of its kind.
            pub fn new(text: impl Into<String>) -> Result<Self, TextError> {
                let text = text.into();
                let check: fn(&'static str, &str) -> Result<(), TextError> = $check;
                check($what, &text)?;
                Ok(Self(text))
            }

            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = TextError;

            fn from_str(text: &str) -> Result<Self, TextError> {
                Self::new(text.to_owned())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).and_then(|text| Self::new(text).map_err(de::Error::custom))
            }
        }
    };
}

text!(
    /// What is released, e.g. `bcd`. At most 64 bytes of `A–Z a–z 0–9 . _ + -`.
    Product, "a product", |what, text| plain(what, text, NAME_BYTES)
);
text!(
    /// A release's version as its makers write it, e.g. `1.4.0`. Ordered by sequence, never by this text.
    Version, "a version", |what, text| plain(what, text, NAME_BYTES)
);
text!(
    /// A named group of nodes that shares one disruption budget.
    Pool, "a pool", |what, text| plain(what, text, NAME_BYTES)
);
text!(
    /// A node's name for people.
    NodeName, "a node name", |what, text| plain(what, text, NAME_BYTES)
);
text!(
    /// Operating system and architecture, e.g. `linux-amd64`.
    Platform, "a platform", |what, text| plain(what, text, NAME_BYTES)
);
text!(
    /// A rollout's id, e.g. `rollout_01j9…`.
    RolloutId, "a rollout id", |what, text| plain(what, text, NAME_BYTES)
);
text!(
    /// A label's key.
    LabelKey, "a label key", |what, text| plain(what, text, LABEL_KEY_BYTES)
);
text!(
    /// A label's value: printable, at most 256 bytes, may be empty.
    LabelValue, "a label value", |what, text| {
        if text.len() > LABEL_VALUE_BYTES { Err(TextError::TooLong(what, LABEL_VALUE_BYTES)) } else { printable(what, text, LABEL_VALUE_BYTES) }
    }
);
text!(
    /// A reason that a person gave: printable, at most 500 characters, may be empty.
    Reason, "a reason", |what, text| printable(what, text, REASON_CHARS)
);
text!(
    /// The name of one file of a release: a plain file name, never a path (case K6).
    ArtifactName, "an artifact name", |what, text| {
        if text == "." || text == ".." || text.contains(['/', '\\']) {
            return Err(TextError::Path(what));
        }
        plain(what, text, ARTIFACT_NAME_BYTES)
    }
);

impl Reason {
    /// No reason given.
    #[must_use]
    pub fn none() -> Self {
        Self(String::new())
    }

    /// `text` with control characters replaced and cut to the limit: for texts that machines wrote.
    #[must_use]
    pub fn lossy(text: &str) -> Self {
        Self(text.chars().take(REASON_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k6_artifact_names_are_plain_file_names() {
        for bad in ["../x", "a/b", ".", "..", "", "a\0b", "a\\b", ".hidden", &"x".repeat(300)] {
            assert!(ArtifactName::new(bad).is_err(), "{bad:?}");
        }
        assert!(ArtifactName::new("bcd-linux-amd64").is_ok());
    }

    #[test]
    fn a_reason_has_at_most_500_characters() {
        assert!(Reason::new("é".repeat(500)).is_ok());
        assert!(Reason::new("é".repeat(501)).is_err());
        assert_eq!(Reason::lossy(&"é\n".repeat(400)).chars().count(), 500);
    }
}

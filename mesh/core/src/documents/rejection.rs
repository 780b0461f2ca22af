//! Why a document is refused: one closed list of codes, the same in errors, logs, exit texts and metrics.

use alloc::string::String;
use core::fmt;

use serde::Serialize;

/// The reason code of a refused document (design, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Not a document of its kind: wrong JSON, field, range or relation.
    Malformed,
    /// The body is not in its one canonical form.
    NotCanonical,
    /// Too few distinct valid signatures by keys of the role.
    Threshold,
    /// A manifest or rollout for a product that nobody here runs or trusts.
    Product,
    /// Past its `expiresAt`.
    Expired,
    /// Issued more than a day ahead of a plausible clock.
    NotYetValid,
    /// Older than what is already known.
    Rollback,
    /// Another body under the same identity fields.
    Conflict,
    /// Over a bound of [`crate::limits`].
    TooLarge,
    /// For another fleet.
    Fleet,
    /// Signed by no key that is known for the role.
    UnknownKey,
    /// Beyond the guard rails that root signed.
    Limits,
    /// Its node or key was revoked.
    Revoked,
}

impl Reason {
    /// Every code, in the order in which they are written down.
    pub const ALL: [Self; 13] = [
        Self::Malformed,
        Self::NotCanonical,
        Self::Threshold,
        Self::Product,
        Self::Expired,
        Self::NotYetValid,
        Self::Rollback,
        Self::Conflict,
        Self::TooLarge,
        Self::Fleet,
        Self::UnknownKey,
        Self::Limits,
        Self::Revoked,
    ];

    /// The code as it is written: `not-canonical`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::NotCanonical => "not-canonical",
            Self::Threshold => "threshold",
            Self::Product => "product",
            Self::Expired => "expired",
            Self::NotYetValid => "not-yet-valid",
            Self::Rollback => "rollback",
            Self::Conflict => "conflict",
            Self::TooLarge => "too-large",
            Self::Fleet => "fleet",
            Self::UnknownKey => "unknown-key",
            Self::Limits => "limits",
            Self::Revoked => "revoked",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A refusal: the code, the field it is about, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {field}: {detail}")]
pub struct Rejection {
    /// The code.
    pub reason: Reason,
    /// The field, as in the JSON (`artifacts[2].sha256`), or `envelope`, `signatures`.
    pub field: String,
    /// What is wrong with it and the way out, in one sentence without a final stop.
    pub detail: String,
}

impl Rejection {
    /// A refusal for `reason` about `field`.
    pub fn new(reason: Reason, field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { reason, field: field.into(), detail: detail.into() }
    }

    /// Shorthand for the commonest code.
    pub fn malformed(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(Reason::Malformed, field, detail)
    }
}

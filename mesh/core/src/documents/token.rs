//! The enrollment token: a key that may sign certificates within bounds. Its rules come with enrollment by token.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::rejection::Rejection;
use super::rule::{ascending, at_most, expiry, positive};
use super::tag::{Spec1, TokenType};
use crate::digest::Digest;
use crate::limits::{LABELS, NAME_BYTES, NODES, TOKEN_SECONDS};
use crate::text::{LabelKey, LabelValue, Pool};
use crate::time::Timestamp;
use crate::trust::key::PublicKey;

/// Body of a `groundswell.token`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Token {
    /// Always `groundswell.token`.
    #[serde(rename = "type")]
    pub kind: TokenType,
    /// Always 1.
    pub spec: Spec1,
    /// The fleet's id.
    pub fleet: Digest,
    /// When it was signed.
    pub issued_at: Timestamp,
    /// At most 90 days later.
    pub expires_at: Timestamp,
    /// The key that may sign certificates.
    pub key: PublicKey,
    /// Pools that its certificates may name.
    pub pools: Vec<Pool>,
    /// Labels that its certificates must carry.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// Pattern of the names, `*` for any run of characters.
    pub name_pattern: String,
    /// How many nodes it may admit.
    pub max_nodes: u64,
}

impl Token {
    /// The rules that need no other document.
    ///
    /// # Errors
    /// `malformed` or `too-large`, naming the field.
    pub fn validate(&self) -> Result<(), Rejection> {
        expiry(self.issued_at, self.expires_at)?;
        if self.expires_at.since_seconds(self.issued_at) > TOKEN_SECONDS {
            return Err(Rejection::malformed("expiresAt", "a token lives at most 90 days"));
        }
        at_most(self.pools.len(), NODES, "pools")?;
        ascending(&self.pools, "pools")?;
        at_most(self.labels.len(), LABELS, "labels")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '*');
        if self.name_pattern.is_empty() || self.name_pattern.len() > NAME_BYTES || !self.name_pattern.chars().all(plain) {
            return Err(Rejection::malformed("namePattern", "a node name of at most 64 bytes in which * stands for any run"));
        }
        positive(self.max_nodes, "maxNodes")
    }
}

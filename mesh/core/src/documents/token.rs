//! The enrollment token: a key that may sign certificates within bounds. Its rules come with enrollment by token.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::tag::{Spec1, TokenType};
use crate::digest::Digest;
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

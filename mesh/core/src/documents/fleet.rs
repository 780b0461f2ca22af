//! The fleet document: who may sign what, within which guard rails.
//!
//! The fleet's id is the digest of its version 1. Version N+1 needs a threshold of N's root keys *and* of its own.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::rejection::Rejection;
use super::rule::{ascending, at_most, expiry, integer, positive};
use super::tag::{FleetType, Spec1};
use crate::digest::Digest;
use crate::limits::{NODES, PRODUCTS_SIGNED, ROLE_KEYS};
use crate::node_id::NodeId;
use crate::number::Ppm;
use crate::text::Product;
use crate::time::Timestamp;
use crate::trust::key::PublicKey;

/// Body of a `groundswell.fleet`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fleet {
    /// Always `groundswell.fleet`.
    #[serde(rename = "type")]
    pub kind: FleetType,
    /// Always 1.
    pub spec: Spec1,
    /// The fleet's id; absent (null) in version 1 alone, whose digest it is.
    pub fleet: Option<Digest>,
    /// 1, 2, 3 …
    pub version: u64,
    /// Digest of the version before; null in version 1.
    pub previous: Option<Digest>,
    /// When it was signed, by its signers' clock.
    pub issued_at: Timestamp,
    /// Nothing starts under an expired fleet document.
    pub expires_at: Timestamp,
    /// Keys and thresholds.
    pub roles: Roles,
    /// Guard rails that no rollout key can exceed.
    pub limits: Limits,
    /// A roster digest: certificates in it stay valid when the key that signed them is removed.
    pub anchor: Option<Digest>,
    /// Node ids that count for nothing any more, sorted.
    pub revoked: Vec<NodeId>,
}

/// Who may sign what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Roles {
    /// Signs fleet documents.
    pub root: Role,
    /// Signs releases, per product.
    pub release: BTreeMap<Product, Role>,
    /// Signs rosters and rollouts.
    pub rollout: Role,
    /// Signs node certificates and tokens.
    pub enroll: Role,
}

/// m of n keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Role {
    /// The keys, sorted by pin, at most 16.
    pub keys: Vec<PublicKey>,
    /// How many distinct ones must sign: 1 to the number of keys.
    pub threshold: u32,
}

/// Guard rails signed by root (capability A12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limits {
    /// Every wave soaks at least this long, in seconds.
    pub min_soak_seconds: u64,
    /// The first wave holds at most this share of the candidates; one node is always allowed.
    pub max_first_wave_ppm: Ppm,
    /// No pool's budget, urgent or not, exceeds this share.
    pub max_budget_ppm: Ppm,
}

impl Fleet {
    /// The rules that need no other document.
    ///
    /// # Errors
    /// `malformed` or `too-large`, naming the field.
    pub fn validate(&self) -> Result<(), Rejection> {
        positive(self.version, "version")?;
        let first = self.version == 1;
        for (field, is_null) in [("fleet", self.fleet.is_none()), ("previous", self.previous.is_none())] {
            if first != is_null {
                let detail = "null in version 1, whose digest is the fleet's id, and given in every later one";
                return Err(Rejection::malformed(field, detail));
            }
        }
        expiry(self.issued_at, self.expires_at)?;
        self.roles.validate()?;
        integer(self.limits.min_soak_seconds, "limits.minSoakSeconds")?;
        at_most(self.revoked.len(), NODES, "revoked")?;
        ascending(&self.revoked, "revoked")
    }
}

impl Roles {
    fn validate(&self) -> Result<(), Rejection> {
        self.root.validate("roles.root")?;
        self.rollout.validate("roles.rollout")?;
        self.enroll.validate("roles.enroll")?;
        at_most(self.release.len(), PRODUCTS_SIGNED, "roles.release")?;
        self.release.iter().try_for_each(|(product, role)| role.validate(&format!("roles.release.{product}")))
    }
}

impl Role {
    fn validate(&self, field: &str) -> Result<(), Rejection> {
        at_most(self.keys.len(), ROLE_KEYS, &format!("{field}.keys"))?;
        ascending(self.keys.iter().map(PublicKey::pin), &format!("{field}.keys"))?;
        let keys = u32::try_from(self.keys.len()).expect("at most 16 keys");
        if self.threshold == 0 || self.threshold > keys {
            return Err(Rejection::malformed(format!("{field}.threshold"), format!("must lie between 1 and its {keys} keys")));
        }
        Ok(())
    }
}

//! Trust that this node demands beyond the fleet document: more pins, higher thresholds, never lower ones.

use std::collections::{BTreeMap, BTreeSet};

use groundswell_core::text::Product;
use groundswell_core::trust::key::Pin;
use serde::Deserialize;

/// What this node demands of one role, on top of the fleet document. Empty: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TrustRaise {
    /// Only these keys count, of those that the fleet document lists; empty: all that it lists.
    #[serde(default)]
    pub pins: BTreeSet<Pin>,
    /// At least so many distinct keys must have signed; the higher of this and the fleet document's counts.
    #[serde(default)]
    pub threshold: u32,
}

/// Trust beyond the fleet document, by role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TrustRaises {
    /// For fleet documents.
    #[serde(default)]
    pub root: TrustRaise,
    /// For releases, by product.
    #[serde(default)]
    pub release: BTreeMap<Product, TrustRaise>,
    /// For rollouts and rosters.
    #[serde(default)]
    pub rollout: TrustRaise,
    /// For certificates and tokens.
    #[serde(default)]
    pub enroll: TrustRaise,
}

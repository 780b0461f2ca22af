//! A node's own say on trust: it may pin keys and raise thresholds beyond the fleet document, never lower them.
//!
//! It is asked before this node itself starts, never before it passes a document on or grants as a warden:
//! wardens refuse only on what records and documents say (design, section 7, rule 2).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;

use super::key::Pin;
use super::threshold::Signers;
use crate::documents::rejection::{Reason, Rejection};
use crate::text::Product;

/// What this node asks for beyond the fleet document. The default asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalTrust {
    /// For the fleet document in force.
    pub root: Raise,
    /// For releases, per product.
    pub release: BTreeMap<Product, Raise>,
    /// For rollouts.
    pub rollout: Raise,
    /// For this node's own certificate.
    pub enroll: Raise,
}

/// What is asked for one role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raise {
    /// At least this many distinct signers; below the fleet's threshold it changes nothing.
    pub threshold: u32,
    /// Only these keys count; empty: all of the role.
    pub pins: BTreeSet<Pin>,
}

impl Raise {
    /// `Ok` when `signers`, already judged by the fleet document, also satisfy this.
    ///
    /// # Errors
    /// `threshold`.
    pub fn require(&self, signers: &Signers, role: &str) -> Result<(), Rejection> {
        let have = signers.pins().filter(|pin| self.pins.is_empty() || self.pins.contains(*pin)).count();
        let need = if self.pins.is_empty() { self.threshold } else { self.threshold.max(1) };
        if u32::try_from(have).is_ok_and(|have| have >= need) {
            return Ok(());
        }
        let detail = format!("{have} of {need} signers that this node's own configuration asks for the {role} role");
        Err(Rejection::new(Reason::Threshold, "signatures", detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::SoftwareCrypto;
    use crate::trust::signing::SecretKey;
    use crate::trust::threshold::count_distinct;

    #[test]
    fn a_node_may_ask_for_more_and_never_for_less() {
        let (a, b) = (SecretKey::generate(&[1; 32]).unwrap(), SecretKey::generate(&[2; 32]).unwrap());
        let crypto = SoftwareCrypto::from_secret(&[1; 32]);
        let signers = count_distinct(b"body", &[a.endorse(b"body")], [a.public(), b.public()], &crypto);
        assert!(Raise::default().require(&signers, "rollout").is_ok());
        assert!(Raise { threshold: 1, pins: BTreeSet::new() }.require(&signers, "rollout").is_ok());
        assert!(Raise { threshold: 2, pins: BTreeSet::new() }.require(&signers, "rollout").is_err());
        assert!(Raise { threshold: 0, pins: BTreeSet::from([a.pin()]) }.require(&signers, "rollout").is_ok());
        assert!(Raise { threshold: 0, pins: BTreeSet::from([b.pin()]) }.require(&signers, "rollout").is_err());
    }
}

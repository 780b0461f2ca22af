//! The one function that counts signatures.
//!
//! A key counts once, however often it signed and under however many ids it is listed: keys are told apart by their
//! public key's bytes, which have one form. A signature is looked at only under the pin that it names, and only the first
//! few under each: whoever signs with a key signs once, and trying more costs whoever reads.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use super::key::{Pin, PublicKey};
use crate::crypto::Crypto;
use crate::digest::Digest;
use crate::documents::envelope::Signature;
use crate::documents::rejection::{Reason, Rejection};
use crate::limits::SIGNATURES_TRIED;

/// The distinct signers of a body, each with the signature that verified, in order of their pins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signers(BTreeMap<Pin, [u8; 64]>);

impl Signers {
    /// How many distinct keys signed.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether `pin` signed.
    #[must_use]
    pub fn contains(&self, pin: &Pin) -> bool {
        self.0.contains_key(pin)
    }

    /// Their pins, in order.
    pub fn pins(&self) -> impl Iterator<Item = &Pin> {
        self.0.keys()
    }

    /// Their signatures as an envelope carries them.
    #[must_use]
    pub fn signatures(&self) -> Vec<Signature> {
        self.0.iter().map(|(kid, sig)| Signature { kid: *kid, sig: *sig }).collect()
    }

    /// Adds other signers of the same body. True when any was new.
    pub fn extend(&mut self, other: &Self) -> bool {
        let before = self.0.len();
        for (kid, sig) in &other.0 {
            self.0.entry(*kid).or_insert(*sig);
        }
        self.0.len() > before
    }

    /// `Ok` when at least `threshold` of them are among `keys`.
    ///
    /// # Errors
    /// `unknown-key` when none is, else `threshold`; `role` names the role for the reader.
    pub fn require(&self, keys: &[PublicKey], threshold: u32, role: &str) -> Result<(), Rejection> {
        let distinct: BTreeMap<&[u8], Pin> = keys.iter().map(|key| (key.spki(), key.pin())).collect();
        let have = distinct.values().filter(|pin| self.contains(pin)).count();
        if u32::try_from(have).is_ok_and(|have| have >= threshold.max(1)) {
            return Ok(());
        }
        let (reason, detail) = match have {
            0 => (Reason::UnknownKey, format!("no valid signature by a key of the {role} role, {threshold} needed")),
            _ => (Reason::Threshold, format!("{have} of {threshold} needed signatures by distinct keys of the {role} role")),
        };
        Err(Rejection::new(reason, "signatures", detail))
    }
}

/// The distinct `keys` with a valid signature over `body` among `signatures`: among the first [`SIGNATURES_TRIED`] under
/// each key's pin. The body is hashed once.
#[must_use]
pub fn count_distinct<'a>(
    body: &[u8],
    signatures: &[Signature],
    keys: impl IntoIterator<Item = &'a PublicKey>,
    crypto: &dyn Crypto,
) -> Signers {
    let hash = Digest::of(body);
    // A key that is listed twice, or under several versions of the fleet document, is tried once.
    let mut tried: BTreeMap<Pin, Option<[u8; 64]>> = BTreeMap::new();
    for key in keys {
        tried.entry(key.pin()).or_insert_with_key(|pin| {
            let under = signatures.iter().filter(|entry| entry.kid == *pin).take(SIGNATURES_TRIED);
            under.map(|entry| entry.sig).find(|sig| crypto.verify_es256(key, &hash, sig))
        });
    }
    Signers(tried.into_iter().filter_map(|(pin, sig)| Some((pin, sig?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::SoftwareCrypto;
    use crate::trust::signing::SecretKey;

    fn key(seed: u8) -> SecretKey {
        SecretKey::generate(&[seed; 32]).unwrap()
    }

    fn count(signatures: &[Signature], keys: &[&SecretKey]) -> usize {
        let crypto = SoftwareCrypto::from_secret(&[1; 32]);
        count_distinct(b"body", signatures, keys.iter().map(|key| key.public()), &crypto).count()
    }

    #[test]
    fn k1_a_key_counts_once_however_often_it_signed_or_is_listed() {
        let (a, b) = (key(1), key(2));
        let signed = [a.endorse(b"body"), a.endorse(b"body")];
        assert_eq!(count(&signed, &[&a, &b]), 1);
        assert_eq!(count(&signed, &[&a, &a]), 1);
        let as_another = Signature { kid: b.pin(), ..a.endorse(b"body") };
        assert_eq!(count(&[a.endorse(b"body"), as_another], &[&a, &b]), 1);
        assert_eq!(count(&[a.endorse(b"body"), b.endorse(b"body")], &[&a, &b]), 2);
    }

    #[test]
    fn a_bad_signature_before_the_good_one_does_not_hide_it() {
        let a = key(1);
        assert_eq!(count(&[a.endorse(b"other"), a.endorse(b"body")], &[&a]), 1);
        assert_eq!(count(&[a.endorse(b"other")], &[&a]), 0);
        let behind = |bad: usize| [vec![a.endorse(b"other"); bad], vec![a.endorse(b"body")]].concat();
        assert_eq!(count(&behind(SIGNATURES_TRIED - 1), &[&a]), 1);
        assert_eq!(count(&behind(SIGNATURES_TRIED), &[&a]), 0, "a few are tried, not all");
    }

    #[test]
    fn many_signatures_under_one_key_cost_no_more_than_a_few() {
        struct Counting(SoftwareCrypto, core::cell::Cell<usize>);
        impl Crypto for Counting {
            fn node(&self) -> crate::node_id::NodeId {
                self.0.node()
            }
            fn sign(&self, message: &[u8]) -> [u8; 64] {
                self.0.sign(message)
            }
            fn verify_node(&self, node: &crate::node_id::NodeId, message: &[u8], signature: &[u8; 64]) -> bool {
                self.0.verify_node(node, message, signature)
            }
            fn verify_es256(&self, key: &PublicKey, hash: &Digest, signature: &[u8; 64]) -> bool {
                self.1.set(self.1.get() + 1);
                self.0.verify_es256(key, hash, signature)
            }
        }
        let a = key(1);
        let crypto = Counting(SoftwareCrypto::from_secret(&[1; 32]), core::cell::Cell::new(0));
        let bad = vec![a.endorse(b"other"); crate::limits::SIGNATURES];
        let listed_often = [a.public(), a.public(), a.public()];
        assert_eq!(count_distinct(b"body", &bad, listed_often, &crypto).count(), 0);
        assert_eq!(crypto.1.get(), SIGNATURES_TRIED);
    }

    #[test]
    fn the_threshold_is_met_exactly_at_its_number() {
        let (a, b, c) = (key(1), key(2), key(3));
        let keys = [a.public().clone(), b.public().clone(), c.public().clone()];
        let crypto = SoftwareCrypto::from_secret(&[1; 32]);
        let two = count_distinct(b"body", &[a.endorse(b"body"), c.endorse(b"body")], &keys, &crypto);
        assert!(two.require(&keys, 1, "rollout").is_ok());
        assert!(two.require(&keys, 2, "rollout").is_ok());
        assert_eq!(two.require(&keys, 3, "rollout").unwrap_err().reason, Reason::Threshold);
        assert_eq!(two.require(&[b.public().clone()], 1, "rollout").unwrap_err().reason, Reason::UnknownKey);
        let listed_twice = [a.public().clone(), a.public().clone()];
        assert_eq!(two.require(&listed_twice, 2, "rollout").unwrap_err().reason, Reason::Threshold);
        assert_eq!(Signers::default().require(&keys, 0, "rollout").unwrap_err().reason, Reason::UnknownKey);
    }
}

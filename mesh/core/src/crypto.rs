//! The two signature schemes behind one trait, so that the simulator can memoise them.
//!
//! ES256 (P-256) signs the few documents, Ed25519 the many records.

use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};

use crate::digest::Digest;
use crate::node_id::NodeId;
use crate::record::signed::{RecordError, SignedRecord};
use crate::trust::key::PublicKey;

/// What the core needs of cryptography.
pub trait Crypto: Send {
    /// This node's identity.
    fn node(&self) -> NodeId;
    /// Signs `message` with this node's Ed25519 key.
    fn sign(&self, message: &[u8]) -> [u8; 64];
    /// Whether `signature` is `node`'s Ed25519 signature over `message`.
    fn verify_node(&self, node: &NodeId, message: &[u8], signature: &[u8; 64]) -> bool;
    /// Whether `signature` (r‖s, low s) is `key`'s ES256 signature over the message whose SHA-256 is `hash`.
    fn verify_es256(&self, key: &PublicKey, hash: &Digest, signature: &[u8; 64]) -> bool;
    /// Reads a record's wire form: [`SignedRecord::verify`]. A simulator of many nodes may remember what came of the same
    /// bytes before, so that all of them share one record.
    ///
    /// # Errors
    /// As [`SignedRecord::verify`].
    fn open_record(&self, fleet: &Digest, bytes: &[u8]) -> Result<SignedRecord, RecordError> {
        SignedRecord::verify(fleet, bytes, self)
    }
}

/// [`Crypto`] in software: the real thing.
pub struct SoftwareCrypto {
    key: SigningKey,
}

impl SoftwareCrypto {
    /// From the 32 secret bytes of an Ed25519 key.
    #[must_use]
    pub fn from_secret(secret: &[u8; 32]) -> Self {
        Self { key: SigningKey::from_bytes(secret) }
    }
}

impl Crypto for SoftwareCrypto {
    fn node(&self) -> NodeId {
        NodeId(self.key.verifying_key().to_bytes())
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message).to_bytes()
    }

    fn verify_node(&self, node: &NodeId, message: &[u8], signature: &[u8; 64]) -> bool {
        let signature = ed25519_dalek::Signature::from_bytes(signature);
        // `verify_strict` also refuses small-order keys, so nobody can sign for two identities at once.
        VerifyingKey::from_bytes(&node.0).is_ok_and(|key| key.verify_strict(message, &signature).is_ok())
    }

    fn verify_es256(&self, key: &PublicKey, hash: &Digest, signature: &[u8; 64]) -> bool {
        key.verify_hash(hash, signature)
    }
}

impl core::fmt::Debug for SoftwareCrypto {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "SoftwareCrypto({})", self.node())
    }
}

//! P-256 public keys, known by their pin.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use p256::ecdsa::signature::hazmat::PrehashVerifier as _;
use p256::ecdsa::{Signature, VerifyingKey};
use p256::pkcs8::{DecodePublicKey as _, EncodePublicKey as _, LineEnding};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::digest::Digest;

/// A key's pin: `sha256/` + hex SHA-256 of its SPKI in DER.
pub type Pin = Digest;

/// A P-256 public key. In JSON as base64 of its SPKI in DER; the one canonical SPKI of an uncompressed point.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    key: VerifyingKey,
    spki: Vec<u8>,
    pin: Pin,
}

/// The bytes are not the SPKI of a P-256 key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is the base64 of the DER SubjectPublicKeyInfo of a P-256 key")]
pub struct KeyError;

/// A key as documents carry it beside its signers: `{kid, alg, spki}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListedKey {
    /// The key's pin.
    pub kid: Pin,
    /// Always ES256.
    pub alg: Algorithm,
    /// The key.
    pub spki: PublicKey,
}

/// The signature algorithm of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    /// ECDSA on P-256 with SHA-256.
    #[serde(rename = "ES256")]
    Es256,
}

impl PublicKey {
    /// From DER.
    ///
    /// # Errors
    /// When it is not the canonical SPKI of a P-256 key.
    pub fn from_spki(der: &[u8]) -> Result<Self, KeyError> {
        let key = VerifyingKey::from_public_key_der(der).map_err(|_| KeyError)?;
        let key = Self::from_key(key)?;
        if key.spki == der { Ok(key) } else { Err(KeyError) }
    }

    /// From a verifying key.
    ///
    /// # Errors
    /// Never for a valid key; the encoder's error is passed on as [`KeyError`].
    pub fn from_key(key: VerifyingKey) -> Result<Self, KeyError> {
        let spki = key.to_public_key_der().map_err(|_| KeyError)?.as_bytes().to_vec();
        let pin = Digest::of(&spki);
        Ok(Self { key, spki, pin })
    }

    /// From the PEM of an SPKI (`-----BEGIN PUBLIC KEY-----`), as `openssl pkey -pubout` writes it.
    ///
    /// # Errors
    /// When it is not the PEM of a P-256 key.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        Self::from_key(VerifyingKey::from_public_key_pem(pem).map_err(|_| KeyError)?)
    }

    /// Its SPKI as PEM.
    #[must_use]
    pub fn to_pem(&self) -> String {
        self.key.to_public_key_pem(LineEnding::LF).expect("a valid P-256 key always encodes")
    }

    /// Its pin.
    #[must_use]
    pub fn pin(&self) -> Pin {
        self.pin
    }

    /// Its SPKI in DER.
    #[must_use]
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// Whether `signature` (r‖s, low s) is this key's over `message`.
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.verify_hash(&Digest::of(message), signature)
    }

    /// The same over the message whose SHA-256 is `hash`: who tries many signatures of one message hashes it once.
    #[must_use]
    pub fn verify_hash(&self, hash: &Digest, signature: &[u8; 64]) -> bool {
        Signature::from_slice(signature).is_ok_and(|signature| {
            let low_s = signature.normalize_s() == signature;
            low_s && self.key.verify_prehash(&hash.0, &signature).is_ok()
        })
    }
}

impl PartialOrd for PublicKey {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PublicKey {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.pin.cmp(&other.pin)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(&self.spki))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.pin)
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_string())
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let der = STANDARD.decode(text).map_err(|_| de::Error::custom(KeyError))?;
        Self::from_spki(&der).map_err(de::Error::custom)
    }
}

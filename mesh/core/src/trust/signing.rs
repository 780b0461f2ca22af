//! The secret half of a key: made, kept as PKCS#8 PEM, and used offline by the tools.
//!
//! Signatures are deterministic (RFC 6979) with a low s, so signing the same body again gives the same bytes.

use alloc::string::{String, ToString};
use core::fmt;

use p256::ecdsa::SigningKey;
use p256::ecdsa::signature::Signer as _;
use p256::pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _, LineEnding};

use super::key::{Algorithm, ListedKey, Pin, PublicKey};
use crate::documents::envelope::Signature;

/// A P-256 signing key.
#[derive(Clone)]
pub struct SecretKey {
    key: SigningKey,
    public: PublicKey,
}

/// Why something is not a secret key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretKeyError {
    /// The text is not the PEM of a P-256 key.
    #[error("a signing key is a P-256 key in PKCS#8 PEM (-----BEGIN PRIVATE KEY-----)")]
    Pem,
    /// The random bytes are no scalar of the curve: draw again.
    #[error("these random bytes make no key: draw others")]
    Random,
}

impl SecretKey {
    /// From 32 random bytes.
    ///
    /// # Errors
    /// [`SecretKeyError::Random`] with a chance of 2^−32: draw again.
    pub fn generate(random: &[u8; 32]) -> Result<Self, SecretKeyError> {
        Self::from_key(SigningKey::from_slice(random).map_err(|_| SecretKeyError::Random)?)
    }

    /// From PKCS#8 PEM, as `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256` writes it.
    ///
    /// # Errors
    /// [`SecretKeyError::Pem`].
    pub fn from_pem(pem: &str) -> Result<Self, SecretKeyError> {
        Self::from_key(SigningKey::from_pkcs8_pem(pem).map_err(|_| SecretKeyError::Pem)?)
    }

    fn from_key(key: SigningKey) -> Result<Self, SecretKeyError> {
        let public = PublicKey::from_key(*key.verifying_key()).map_err(|_| SecretKeyError::Pem)?;
        Ok(Self { key, public })
    }

    /// As PKCS#8 PEM. Keep it where nobody else reads it.
    #[must_use]
    pub fn to_pem(&self) -> String {
        self.key.to_pkcs8_pem(LineEnding::LF).expect("a valid P-256 key always encodes").to_string()
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The pin of the public half.
    #[must_use]
    pub fn pin(&self) -> Pin {
        self.public.pin()
    }

    /// The public half as documents list it.
    #[must_use]
    pub fn listed(&self) -> ListedKey {
        ListedKey { kid: self.pin(), alg: Algorithm::Es256, spki: self.public.clone() }
    }

    /// ES256 over `message`: r‖s, low s.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let signature: p256::ecdsa::Signature = self.key.sign(message);
        signature.normalize_s().to_bytes().into()
    }

    /// The signature of a body as envelopes carry it.
    #[must_use]
    pub fn endorse(&self, body: &[u8]) -> Signature {
        Signature { kid: self.pin(), sig: self.sign(body) }
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.pin())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_from_its_pem_and_signs_the_same() {
        let key = SecretKey::generate(&[7; 32]).unwrap();
        let again = SecretKey::from_pem(&key.to_pem()).unwrap();
        assert_eq!(key.pin(), again.pin());
        assert_eq!(PublicKey::from_pem(&key.public().to_pem()), Ok(key.public().clone()));
        assert!(PublicKey::from_pem(&key.to_pem()).is_err());
        assert_eq!(key.sign(b"body"), again.sign(b"body"));
        assert!(key.public().verify(b"body", &key.sign(b"body")));
        assert!(!key.public().verify(b"other", &key.sign(b"body")));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        assert_eq!(SecretKey::from_pem("-----BEGIN PRIVATE KEY-----\n").unwrap_err(), SecretKeyError::Pem);
        assert_eq!(SecretKey::generate(&[0; 32]).unwrap_err(), SecretKeyError::Random);
        assert_eq!(SecretKey::generate(&[255; 32]).unwrap_err(), SecretKeyError::Random);
    }
}

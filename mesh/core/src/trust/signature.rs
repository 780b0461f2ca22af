//! Signatures as other tools write them: DER or r‖s, high or low s. Normalised here; inside an envelope only one form counts.

use p256::ecdsa::Signature;

/// The bytes are no ES256 signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a signature is ES256 in DER, or 64 bytes of r and s")]
pub struct SignatureError;

/// `bytes` in DER or as r‖s, as 64 bytes r‖s with a low s.
///
/// # Errors
/// When the bytes are neither.
pub fn normalise(bytes: &[u8]) -> Result<[u8; 64], SignatureError> {
    let signature = Signature::from_der(bytes).or_else(|_| Signature::from_slice(bytes)).map_err(|_| SignatureError)?;
    Ok(signature.normalize_s().to_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::signing::SecretKey;

    /// The order of P-256's group.
    const ORDER: &str = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551";

    fn negated(sig: [u8; 64]) -> [u8; 64] {
        let order: crate::digest::Hex32 = ORDER.parse().unwrap();
        let mut out = sig;
        let mut borrow = 0i16;
        for index in (0..32).rev() {
            let mut digit = i16::from(order.0[index]) - i16::from(sig[32 + index]) - borrow;
            borrow = i16::from(digit < 0);
            digit += 256 * borrow;
            out[32 + index] = u8::try_from(digit).unwrap();
        }
        out
    }

    #[test]
    fn a_high_s_does_not_count_until_it_is_normalised() {
        let key = SecretKey::generate(&[9; 32]).unwrap();
        let low = key.sign(b"body");
        let high = negated(low);
        assert!(!key.public().verify(b"body", &high));
        assert_eq!(normalise(&high), Ok(low));
    }

    #[test]
    fn der_is_taken_and_rubbish_is_not() {
        let key = SecretKey::generate(&[9; 32]).unwrap();
        let low = key.sign(b"body");
        let der = Signature::from_slice(&low).unwrap().to_der();
        assert_eq!(normalise(der.as_bytes()), Ok(low));
        assert_eq!(normalise(&[0; 64]), Err(SignatureError));
        assert_eq!(normalise(b"x"), Err(SignatureError));
    }
}

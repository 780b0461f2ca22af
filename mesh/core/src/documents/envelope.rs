//! The published form: `{"<kind>": base64(body), "signatures": [{"kid","sig"}]}`.
//!
//! Reading an envelope says nothing about trust. A document's identity is the digest of its *body*:
//! the same body with more signatures is the same document.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::rejection::{Reason, Rejection};
use super::{Kind, canonical};
use crate::digest::Digest;
use crate::limits::{DOCUMENT_BYTES, PUBLISHED_ROSTER_BYTES, ROSTER_BYTES, SIGNATURES};
use crate::trust::key::Pin;

/// One signature, not verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signature {
    /// The pin of the key that it claims.
    pub kid: Pin,
    /// ES256 over the body: r‖s. One with a high s is well-formed here and counts for nothing.
    pub sig: [u8; 64],
}

/// A published document, read but not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The outer kind.
    pub kind: Kind,
    /// The body's bytes.
    pub body: Vec<u8>,
    /// At most [`SIGNATURES`].
    pub signatures: Vec<Signature>,
}

impl Envelope {
    /// Reads the published form.
    ///
    /// # Errors
    /// `too-large` beyond the limits of its kind, else `malformed`.
    pub fn parse(bytes: &[u8]) -> Result<Self, Rejection> {
        within(bytes.len(), PUBLISHED_ROSTER_BYTES)?;
        let wire: Wire =
            canonical::parse(bytes).map_err(|rejection| Rejection { field: envelope_field(&rejection), ..rejection })?;
        within(bytes.len(), if wire.kind == Kind::Roster { PUBLISHED_ROSTER_BYTES } else { DOCUMENT_BYTES })?;
        if wire.signatures.len() > SIGNATURES {
            let detail = format!("{} signatures, at most {SIGNATURES} are looked at", wire.signatures.len());
            return Err(Rejection::new(Reason::TooLarge, "signatures", detail));
        }
        let body = STANDARD.decode(&wire.body).map_err(|_| Rejection::malformed(wire.kind.name(), "not the base64 of a body"))?;
        within(body.len(), ROSTER_BYTES)?;
        let signatures = wire.signatures.iter().enumerate().map(|(index, entry)| {
            let sig = STANDARD.decode(&entry.sig).ok().and_then(|bytes| bytes.try_into().ok());
            let sig = sig.ok_or_else(|| {
                let detail = "not the base64 of 64 bytes (r and s); swell release attach takes signatures in DER";
                Rejection::malformed(format!("signatures[{index}].sig"), detail)
            })?;
            Ok(Signature { kid: entry.kid, sig })
        });
        Ok(Self { kind: wire.kind, body, signatures: signatures.collect::<Result<_, Rejection>>()? })
    }

    /// The published form, in one form itself: canonical JSON.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Part {
            Body(String),
            Signatures(Vec<WireSignature>),
        }
        let signatures = self.signatures.iter().map(|entry| WireSignature { kid: entry.kid, sig: STANDARD.encode(entry.sig) });
        canonical::encode(&BTreeMap::from([
            (self.kind.name(), Part::Body(STANDARD.encode(&self.body))),
            ("signatures", Part::Signatures(signatures.collect())),
        ]))
    }

    /// The document's identity: SHA-256 of its body.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.body)
    }
}

fn within(size: usize, most: usize) -> Result<(), Rejection> {
    if size > most {
        return Err(Rejection::new(Reason::TooLarge, "envelope", format!("{size} bytes, at most {most} are read")));
    }
    Ok(())
}

fn envelope_field(rejection: &Rejection) -> String {
    if rejection.field == "body" { "envelope".into() } else { rejection.field.clone() }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireSignature {
    kid: Pin,
    sig: String,
}

/// The two entries of the outer object, in any order.
struct Wire {
    kind: Kind,
    body: String,
    signatures: Vec<WireSignature>,
}

impl<'de> Deserialize<'de> for Wire {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(WireVisitor)
    }
}

struct WireVisitor;

impl<'de> Visitor<'de> for WireVisitor {
    type Value = Wire;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("an envelope: one entry named after the document's kind, and signatures")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Wire, A::Error> {
        let (mut body, mut signatures) = (None, None);
        while let Some(key) = map.next_key::<String>()? {
            if key == "signatures" {
                if signatures.replace(map.next_value()?).is_some() {
                    return Err(de::Error::duplicate_field("signatures"));
                }
            } else {
                let kind = Kind::ALL.into_iter().find(|kind| kind.name() == key);
                let kind = kind.ok_or_else(|| de::Error::custom(format!("`{key}` is no kind of document")))?;
                if body.replace((kind, map.next_value()?)).is_some() {
                    return Err(de::Error::custom("more than one body"));
                }
            }
        }
        let (kind, body) = body.ok_or_else(|| de::Error::custom("no body: an entry named after the document's kind"))?;
        let signatures = signatures.ok_or_else(|| de::Error::missing_field("signatures"))?;
        Ok(Wire { kind, body, signatures })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Envelope {
        let signature = Signature { kid: Digest::of(b"key"), sig: [7; 64] };
        Envelope { kind: Kind::Release, body: b"{}".to_vec(), signatures: alloc::vec![signature] }
    }

    #[test]
    fn an_envelope_reads_back_as_it_was_written() {
        assert_eq!(Envelope::parse(&sample().to_bytes()), Ok(sample()));
        let text = String::from_utf8(sample().to_bytes()).unwrap();
        assert!(text.starts_with(r#"{"groundswell.release":"e30=","signatures":[{"kid":"sha256/"#), "{text}");
    }

    #[test]
    fn entries_that_do_not_belong_are_refused() {
        for bad in [
            r#"{"groundswell.release":"e30="}"#,
            r#"{"signatures":[]}"#,
            r#"{"groundswell.release":"e30=","groundswell.fleet":"e30=","signatures":[]}"#,
            r#"{"groundswell.release":"e30=","signatures":[],"signatures":[]}"#,
            r#"{"groundswell.release":"e30=","signatures":[],"note":1}"#,
            r#"{"groundswell.release":"e30","signatures":[]}"#,
            r#"{"groundswell.release":"e30=","signatures":[{"kid":"x","sig":"AA=="}]}"#,
            "[]",
            "",
        ] {
            assert_eq!(Envelope::parse(bad.as_bytes()).map_err(|rejection| rejection.reason), Err(Reason::Malformed), "{bad}");
        }
    }

    #[test]
    fn size_and_number_of_signatures_are_bounded() {
        let mut large = sample();
        large.body = alloc::vec![b' '; DOCUMENT_BYTES];
        assert_eq!(Envelope::parse(&large.to_bytes()).unwrap_err().reason, Reason::TooLarge);
        large.kind = Kind::Roster;
        assert!(Envelope::parse(&large.to_bytes()).is_ok());
        let mut many = sample();
        many.signatures = alloc::vec![Signature { kid: Digest::of(b"key"), sig: [7; 64] }; SIGNATURES + 1];
        assert_eq!(Envelope::parse(&many.to_bytes()).unwrap_err().reason, Reason::TooLarge);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Envelope::parse(&bytes);
        }
    }
}

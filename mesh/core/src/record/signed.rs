//! The signed wire form of a record: verified before it is stored or passed on.
//!
//! The signature covers a domain tag, the fleet id, and the encoded head and body, so a record of one fleet,
//! kind or node means nothing in another's place.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::grants::Grants;
use super::status::Status;
use super::sync_set::{SyncId, join_halves};
use super::{RecordKey, RecordKind, Stamp};
use crate::crypto::Crypto;
use crate::digest::Digest;
use crate::limits::{GRANTS_BYTES, STATUS_BYTES};
use crate::node_id::NodeId;

/// Version byte in front of every encoded record.
pub const VERSION: u8 = 1;
/// Most bytes of a signed record that are not its body: version, node, kind, stamp, the body's length, signature.
pub(super) const HEAD_BYTES: usize = 1 + 32 + 1 + 20 + 3 + 64;
const DOMAIN: &[u8] = b"groundswell.record.1\0";

/// The body of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordBody {
    /// See [`Status`].
    Status(Status),
    /// See [`Grants`].
    Grants(Grants),
}

/// A record whose signature was verified. Built only by [`SignedRecord::sign`] and [`SignedRecord::verify`].
///
/// It never changes, so copies share it: to clone one costs no more than to point at it.
#[derive(Clone, Debug)]
pub struct SignedRecord(Arc<Signed>);

#[derive(Debug)]
struct Signed {
    key: RecordKey,
    stamp: Stamp,
    body: RecordBody,
    bytes: Vec<u8>,
    sync_id: SyncId,
}

/// The bytes are the one encoding of everything else.
impl PartialEq for SignedRecord {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.bytes == other.0.bytes
    }
}

impl Eq for SignedRecord {}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Larger than its kind allows.
    #[error("a record larger than its kind allows")]
    TooLarge,
    /// Written by a newer protocol.
    #[error("a record of version {0}, which is not known here")]
    Version(u8),
    /// Not decodable, or not in its one encoding.
    #[error("a record that does not decode")]
    Malformed,
    /// Not signed by the node that it names.
    #[error("a record whose signature does not verify")]
    Signature,
}

/// What is encoded, before the signature.
#[derive(Serialize, Deserialize)]
struct Wire {
    node: NodeId,
    kind: RecordKind,
    stamp: Stamp,
    body: Vec<u8>,
}

impl SignedRecord {
    /// Signs `body` as this node's record under `stamp`. `None` when it is larger than its kind allows.
    #[must_use]
    pub fn sign(fleet: &Digest, stamp: Stamp, body: RecordBody, crypto: &dyn Crypto) -> Option<Self> {
        let (kind, encoded) = match &body {
            RecordBody::Status(status) => (RecordKind::Status, postcard::to_allocvec(status)),
            RecordBody::Grants(grants) => (RecordKind::Grants, postcard::to_allocvec(grants)),
        };
        let wire = Wire { node: crypto.node(), kind, stamp, body: encoded.ok()? };
        let mut bytes = alloc::vec![VERSION];
        bytes.extend(postcard::to_allocvec(&wire).ok()?);
        let signature = crypto.sign(&message(fleet, &bytes));
        bytes.extend(signature);
        let key = RecordKey { node: wire.node, kind };
        (bytes.len() <= limit(kind) && stamp < Stamp::PROOF).then(|| Self::new(key, stamp, body, bytes))
    }

    /// Decodes and verifies `bytes`. Accepts exactly what [`SignedRecord::sign`] makes, byte for byte.
    ///
    /// # Errors
    /// When the bytes are too large, of another version, malformed, or not signed by the node they name.
    pub fn verify<C: Crypto + ?Sized>(fleet: &Digest, bytes: &[u8], crypto: &C) -> Result<Self, RecordError> {
        if bytes.len() > GRANTS_BYTES.max(STATUS_BYTES) {
            return Err(RecordError::TooLarge);
        }
        let (signed, signature) = bytes.split_last_chunk::<64>().ok_or(RecordError::Malformed)?;
        let (version, encoded) = signed.split_first().ok_or(RecordError::Malformed)?;
        if *version != VERSION {
            return Err(RecordError::Version(*version));
        }
        let wire: Wire = exact(encoded)?;
        if bytes.len() > limit(wire.kind) {
            return Err(RecordError::TooLarge);
        }
        if wire.stamp >= Stamp::PROOF {
            return Err(RecordError::Malformed);
        }
        let body = match wire.kind {
            RecordKind::Status => RecordBody::Status(exact(&wire.body)?),
            RecordKind::Grants => RecordBody::Grants(exact(&wire.body)?),
        };
        if !crypto.verify_node(&wire.node, &message(fleet, signed), signature) {
            return Err(RecordError::Signature);
        }
        Ok(Self::new(RecordKey { node: wire.node, kind: wire.kind }, wire.stamp, body, bytes.to_vec()))
    }

    fn new(key: RecordKey, stamp: Stamp, body: RecordBody, bytes: Vec<u8>) -> Self {
        let sync_id = sync_id(&key, [bytes.as_slice()]);
        Self(Arc::new(Signed { key, stamp, body, bytes, sync_id }))
    }

    /// Reads whose record of which stamp `bytes` claim to be. Nothing is verified: for finding duplicates only.
    ///
    /// # Errors
    /// When the bytes are too large, of another version, or their head does not decode.
    pub fn peek(bytes: &[u8]) -> Result<(RecordKey, Stamp), RecordError> {
        if bytes.len() > GRANTS_BYTES.max(STATUS_BYTES) {
            return Err(RecordError::TooLarge);
        }
        let (version, encoded) = bytes.split_first().ok_or(RecordError::Malformed)?;
        if *version != VERSION {
            return Err(RecordError::Version(*version));
        }
        let ((node, kind, stamp), _) = postcard::take_from_bytes(encoded).map_err(|_| RecordError::Malformed)?;
        Ok((RecordKey { node, kind }, stamp))
    }

    /// Whose record of which kind.
    #[must_use]
    pub fn key(&self) -> RecordKey {
        self.0.key
    }

    /// Its place in its writer's order.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.0.stamp
    }

    /// What it says.
    #[must_use]
    pub fn body(&self) -> &RecordBody {
        &self.0.body
    }

    /// Its wire form.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// What sync compares of it.
    #[must_use]
    pub fn sync_id(&self) -> SyncId {
        self.0.sync_id
    }

    /// What it says, if it is a status.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        match &self.0.body {
            RecordBody::Status(status) => Some(status),
            RecordBody::Grants(_) => None,
        }
    }

    /// What it says, if it is grants.
    #[must_use]
    pub fn grants(&self) -> Option<&Grants> {
        match &self.0.body {
            RecordBody::Grants(grants) => Some(grants),
            RecordBody::Status(_) => None,
        }
    }
}

/// The id in sync of what is kept under `key`: one record, or the two of a proof, by their bytes.
pub(super) fn sync_id<'a>(key: &RecordKey, records: impl IntoIterator<Item = &'a [u8]>) -> SyncId {
    let mut of_key = blake3::Hasher::new_derive_key("groundswell 1 sync record key");
    of_key.update(&key.node.0);
    of_key.update(&[u8::from(key.kind == RecordKind::Grants)]);
    let mut of_content = blake3::Hasher::new_derive_key("groundswell 1 sync record content");
    for bytes in records {
        of_content.update(&(bytes.len() as u64).to_le_bytes());
        of_content.update(bytes);
    }
    join_halves(&of_key.finalize(), &of_content.finalize())
}

fn limit(kind: RecordKind) -> usize {
    match kind {
        RecordKind::Status => STATUS_BYTES,
        RecordKind::Grants => GRANTS_BYTES,
    }
}

fn message(fleet: &Digest, signed: &[u8]) -> Vec<u8> {
    [DOMAIN, &fleet.0, signed].concat()
}

/// Decodes all of `bytes` and insists that encoding again gives the same bytes.
fn exact<T: Serialize + for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, RecordError> {
    let value: T = postcard::from_bytes(bytes).map_err(|_| RecordError::Malformed)?;
    match postcard::to_allocvec(&value) {
        Ok(again) if again == bytes => Ok(value),
        _ => Err(RecordError::Malformed),
    }
}

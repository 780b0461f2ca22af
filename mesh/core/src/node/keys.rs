//! Where the node keeps what must survive a restart: the keys of [`super::effect::Effect::Persist`].
//!
//! Every value begins with a version byte. Documents and records are kept in their published form and verified again
//! when they are read, so a store that was tampered with can lose facts, but not forge them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::lease::warden::Warden;
use crate::node_id::NodeId;
use crate::record::grants::Promise;
use crate::record::{RecordKey, RecordKind};
use crate::text::{Product, RolloutId};

/// One entry of the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum StoreKey {
    /// A document's envelope, by body digest.
    Document(Digest),
    /// A roster's envelope, by body digest.
    Roster(Digest),
    /// A member's latest record, or the pair that convicts it.
    Record(NodeId, RecordKind),
    /// Incarnation, counter, and what amnesia is left.
    Own,
    /// A life.
    Life(Product),
    /// What this node promised as a warden.
    Warden,
    /// This node's up time.
    UpTime,
    /// When the records of nodes whose id begins with this byte last changed, in up time.
    Marks(u8),
    /// Waves of a rollout that this node saw pass, and whom it had excused.
    Passed(RolloutId),
    /// The floor time.
    FloorTime,
    /// Where peers were last reached.
    Remembered,
    /// Since when, in this node's up time, it knows that listed nodes are gone for good.
    Departed,
    /// For how long this node has had too few members as peers, in milliseconds.
    Lacking,
}

const VERSION: u8 = 1;

impl StoreKey {
    pub(super) fn record(key: RecordKey) -> Self {
        Self::Record(key.node, key.kind)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// `None` for keys of a newer version: they are left alone.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes)
    }
}

/// What the node of a store with these entries is bound to as a warden, by what is durable there, whatever it says: for
/// proofs that look at disks. Nothing where the store says nothing, or nothing that can be read.
#[must_use]
pub fn promises_kept(stored: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<Promise> {
    let warden = stored.get(&StoreKey::Warden.encode()).and_then(|bytes| Warden::from_bytes(bytes).ok());
    warden.map(|warden| warden.promises().cloned().collect()).unwrap_or_default()
}

/// What most keys and small values take, in bytes.
pub(super) const SMALL: usize = 64;

/// A value behind its version byte.
pub(super) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    encode_in(SMALL, value)
}

/// The same of a value that takes about so many bytes.
pub(super) fn encode_in<T: Serialize>(bytes: usize, value: &T) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(bytes);
    encoded.push(VERSION);
    postcard::to_extend(value, encoded).expect("plain data encodes into memory")
}

/// The same, with what older builds do not know behind it: they read what comes before.
pub(super) fn encode_with<T: Serialize, U: Serialize>(value: &T, more: &U) -> Vec<u8> {
    let mut bytes = encode(value);
    bytes.extend(postcard::to_allocvec(more).expect("plain data encodes into memory"));
    bytes
}

/// Reads what [`encode_with`] wrote; the defaults of `U` and `V` where an older build wrote it, with less behind it.
pub(super) fn decode_with<T, U, V>(bytes: &[u8]) -> Option<(T, U, V)>
where
    T: for<'de> Deserialize<'de>,
    U: for<'de> Deserialize<'de> + Default,
    V: for<'de> Deserialize<'de> + Default,
{
    let (&VERSION, encoded) = bytes.split_first()? else { return None };
    let (value, more) = postcard::take_from_bytes(encoded).ok()?;
    let (second, more) = take_or_default(more)?;
    let (third, _) = take_or_default(more)?;
    Some((value, second, third))
}

fn take_or_default<T: for<'de> Deserialize<'de> + Default>(bytes: &[u8]) -> Option<(T, &[u8])> {
    if bytes.is_empty() { Some((T::default(), bytes)) } else { postcard::take_from_bytes(bytes).ok() }
}

/// Reads what [`encode`] wrote; `None` when it is damaged or of another version.
pub(super) fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Option<T> {
    match bytes.split_first() {
        Some((&VERSION, encoded)) => postcard::from_bytes(encoded).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_and_a_newer_one_is_left_alone() {
        let key = StoreKey::Life(Product::new("bcd").unwrap());
        assert_eq!(StoreKey::decode(&key.encode()), Some(key));
        assert_eq!(StoreKey::decode(&[9, 3]), None);
        assert_eq!(StoreKey::decode(&[]), None);
    }
}

//! The identity of a node: its Ed25519 public key, shown as a libp2p PeerId.

use alloc::string::{String, ToString};
use core::cmp::Ordering;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An Ed25519 public key. Shown and read as the libp2p PeerId of that key (`12D3KooW…`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId(pub [u8; 32]);

/// By bytes. The first eight decide almost always: maps of nodes are searched for every record that comes.
impl Ord for NodeId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.head().cmp(&other.head()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for NodeId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The text is not the PeerId of an Ed25519 key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a node id is the PeerId of an Ed25519 key (12D3KooW…)")]
pub struct NodeIdError;

/// Identity multihash (0x00, 36 bytes) of a protobuf public key: type Ed25519 (0x08 0x01), 32 bytes (0x12 0x20).
const PREFIX: [u8; 6] = [0x00, 0x24, 0x08, 0x01, 0x12, 0x20];

impl NodeId {
    fn head(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// The PeerId's bytes (a multihash), as libp2p uses them.
    #[must_use]
    pub fn to_peer_id_bytes(self) -> [u8; 38] {
        let mut bytes = [0; 38];
        let (prefix, key) = bytes.split_at_mut(PREFIX.len());
        prefix.copy_from_slice(&PREFIX);
        key.copy_from_slice(&self.0);
        bytes
    }

    /// Reads a PeerId's bytes.
    ///
    /// # Errors
    /// When they are not the identity multihash of an Ed25519 key.
    pub fn from_peer_id_bytes(bytes: &[u8]) -> Result<Self, NodeIdError> {
        bytes.strip_prefix(&PREFIX).and_then(|key| key.try_into().ok()).map(Self).ok_or(NodeIdError)
    }

    /// The last eight characters of the PeerId: enough to tell nodes apart in a table.
    #[must_use]
    pub fn short(self) -> String {
        let text = self.to_string();
        text.get(text.len().saturating_sub(8)..).unwrap_or(&text).to_string()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&bs58::encode(self.to_peer_id_bytes()).into_string())
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for NodeId {
    type Err = NodeIdError;

    fn from_str(text: &str) -> Result<Self, NodeIdError> {
        if text.len() > 64 {
            return Err(NodeIdError);
        }
        let bytes = bs58::decode(text).into_vec().map_err(|_| NodeIdError)?;
        Self::from_peer_id_bytes(&bytes)
    }
}

impl Serialize for NodeId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.serialize(serializer) }
    }
}

impl<'de> Deserialize<'de> for NodeId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
        } else {
            <[u8; 32]>::deserialize(deserializer).map(Self)
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_node_id_reads_back_as_it_is_shown() {
        let id = NodeId([7; 32]);
        let text = id.to_string();
        assert!(text.starts_with("12D3KooW"), "{text}");
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(text.to_lowercase().parse::<NodeId>(), Err(NodeIdError));
    }

    #[test]
    fn node_ids_are_ordered_as_their_bytes_are() {
        let mut ids = Vec::new();
        for at in [0, 7, 8, 31] {
            for byte in [0, 1, 255] {
                let mut bytes = [7; 32];
                bytes[at] = byte;
                ids.push(NodeId(bytes));
            }
        }
        for (one, other) in ids.iter().flat_map(|one| ids.iter().map(move |other| (one, other))) {
            assert_eq!(one.cmp(other), one.0.cmp(&other.0));
        }
    }
}

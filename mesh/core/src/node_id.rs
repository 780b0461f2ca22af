//! The identity of a node: its Ed25519 public key, shown as a libp2p PeerId.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An Ed25519 public key. Shown and read as the libp2p PeerId of that key (`12D3KooW…`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub [u8; 32]);

/// The text is not the PeerId of an Ed25519 key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a node id is the PeerId of an Ed25519 key (12D3KooW…)")]
pub struct NodeIdError;

/// Identity multihash (0x00, 36 bytes) of a protobuf public key: type Ed25519 (0x08 0x01), 32 bytes (0x12 0x20).
const PREFIX: [u8; 6] = [0x00, 0x24, 0x08, 0x01, 0x12, 0x20];

impl NodeId {
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
    use super::*;

    #[test]
    fn a_node_id_reads_back_as_it_is_shown() {
        let id = NodeId([7; 32]);
        let text = id.to_string();
        assert!(text.starts_with("12D3KooW"), "{text}");
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(text.to_lowercase().parse::<NodeId>(), Err(NodeIdError));
    }
}

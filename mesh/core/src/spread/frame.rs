//! The neighbour protocol's frames: postcard behind a version byte, at most [`FRAME_BYTES`] each, every list bounded.
//!
//! A frame is a wire type only: what is inside (records, envelopes) is verified by whoever is handed it.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::sync::Turn;
use crate::limits::{FRAME_BYTES, FRAME_ITEMS};
use crate::record::{RecordKey, Stamp};

/// Version byte in front of every frame.
pub const VERSION: u8 = 1;

/// How many bytes of items a sender packs into one frame, or one item: the lists of a sync turn fit beside them.
pub(super) const PACKED_BYTES: usize = FRAME_BYTES / 2;

/// Why bytes are not a frame, or a frame is not in place. The peer that sent it loses standing; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Larger than [`FRAME_BYTES`].
    #[error("a frame of {0} bytes; the limit is {FRAME_BYTES}")]
    TooLarge(usize),
    /// Of a protocol version that is not known here.
    #[error("a frame of version {0}, which is not known here")]
    Version(u8),
    /// Does not decode, or has bytes left over.
    #[error("a frame that does not decode")]
    Malformed,
    /// A list longer than [`FRAME_ITEMS`].
    #[error("a frame with a list of {0} entries; the limit is {FRAME_ITEMS}")]
    TooMany(usize),
    /// Holds a record whose head does not decode.
    #[error("a frame with a record that does not decode")]
    Record,
    /// Sync ranges out of order, overlapping, or more than a session may open.
    #[error("a sync turn whose ranges overlap or are too many")]
    Ranges,
    /// From a peer that is not connected.
    #[error("a frame from a peer that is not connected")]
    NotConnected,
}

/// What neighbours say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Frame {
    /// Records that are new to the sender, and proofs.
    Records(Items),
    /// The same, from a holder to its wardens or back: no duplicate of it makes a link lazy.
    Direct(Items),
    /// What the sender has; a link that only announces is lazy.
    Announce(Vec<Held>),
    /// Send these, and push to me from now on.
    Graft(Vec<RecordKey>),
    /// I have what you push from elsewhere: only announce from now on.
    Prune,
    /// One turn of a sync session.
    Sync(Turn),
}

/// Things that travel, each in its own signed form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Items {
    /// Envelopes of documents.
    #[serde(with = "super::packed")]
    pub(super) documents: Vec<Vec<u8>>,
    /// Pairs of records under one stamp.
    pub(super) proofs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Records.
    #[serde(with = "super::packed")]
    pub(super) records: Vec<Vec<u8>>,
}

/// That something is kept under a key, and where it stands in the order of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    /// Under this key.
    pub(super) key: RecordKey,
    /// A record's stamp; [`Stamp::PROOF`] for a proof.
    pub(super) rank: Stamp,
}

impl Items {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.documents.len() + self.proofs.len() + self.records.len()
    }
}

impl Frame {
    /// The frame's bytes. Its writer has kept within the limits.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.expected_bytes());
        bytes.push(VERSION);
        let bytes = postcard::to_extend(self, bytes).expect("postcard writes every frame into a vector");
        assert!(bytes.len() <= FRAME_BYTES, "a frame of {} bytes was built", bytes.len());
        bytes
    }

    /// About how long its encoding is, so that it need not move while it grows.
    fn expected_bytes(&self) -> usize {
        const SMALL: usize = 64;
        match self {
            Self::Records(items) | Self::Direct(items) => {
                items.records.iter().map(|record| record.len() + 2).sum::<usize>() + SMALL
            }
            Self::Announce(held) => held.len() * 2 * SMALL + SMALL,
            Self::Graft(keys) => keys.len() * SMALL + SMALL,
            Self::Prune | Self::Sync(_) => SMALL,
        }
    }

    /// Reads a frame from a peer.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        if bytes.len() > FRAME_BYTES {
            return Err(FrameError::TooLarge(bytes.len()));
        }
        let (version, encoded) = bytes.split_first().ok_or(FrameError::Malformed)?;
        if *version != VERSION {
            return Err(FrameError::Version(*version));
        }
        let (frame, rest) = postcard::take_from_bytes::<Self>(encoded).map_err(|_| FrameError::Malformed)?;
        if !rest.is_empty() {
            return Err(FrameError::Malformed);
        }
        let longest = match &frame {
            Self::Records(items) | Self::Direct(items) => items.len(),
            Self::Announce(held) => held.len(),
            Self::Graft(keys) => keys.len(),
            Self::Prune => 0,
            Self::Sync(turn) => turn.longest_list(),
        };
        if longest > FRAME_ITEMS { Err(FrameError::TooMany(longest)) } else { Ok(frame) }
    }
}

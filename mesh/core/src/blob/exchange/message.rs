//! What two nodes that exchange pieces of one blob say to each other, and its bytes.
//!
//! A frame is `u8 tag | u32 length | payload`, integers big-endian. [`Message::lengths`] says which lengths a tag may
//! have, so a reader refuses a frame before it allocates for it; the payload is read by [`Message::decode`].
//! Bytes of pieces travel as [`Message::Part`]s of at most [`BLOB_PART_BYTES`], so that a large piece never stands in
//! front of a small word for long.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::blob::layout::Layout;
use crate::blob::piece_set::{PieceSet, PieceSetError};
use crate::limits::{BLOB_NEWS, BLOB_OFFERED, BLOB_PART_BYTES};

/// Bytes in front of a frame's payload.
pub const HEADER_BYTES: usize = 5;

/// One message about one blob. `S` is what the bytes of a part are held in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Tag 0: a bitmap of all that is held. The first message of either side; may come again.
    Holding(PieceSet),
    /// Tag 1: these pieces are held as well, 1 to [`BLOB_NEWS`] of them.
    Have(Vec<u32>),
    /// Tag 2: one of these pieces would be sent, the first rather than the last; 1 to [`BLOB_OFFERED`] of them.
    Offer {
        /// How long its last byte would take to leave, as things are, in milliseconds.
        wait_ms: u32,
        /// The pieces.
        pieces: Vec<u32>,
    },
    /// Tag 3: answers the oldest open offer: send this piece of it.
    Take(u32),
    /// Tag 4: answers the oldest open offer: all of it is here or comes from others.
    Pass,
    /// Tag 5: a piece that was taken is not needed any more.
    Cancel(u32),
    /// Tag 6: a piece that was taken will not come, or not the rest of it.
    Withdraw(u32),
    /// Tag 7: so many bytes of parts have been taken off the stream since the last receipt.
    Got(u32),
    /// Tag 8: bytes of a piece that was taken; parts of one piece come in order, without gaps.
    Part(Part),
}

/// Where the bytes of one [`Message::Part`] belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which piece.
    pub piece: u32,
    /// First byte within the piece.
    pub offset: u32,
    /// 1 to [`BLOB_PART_BYTES`] bytes.
    pub bytes: Vec<u8>,
}

/// Tag of [`Message::Part`].
pub const PART: u8 = 8;
/// Bytes of a part's payload in front of its own: where they belong.
pub const PLACE_BYTES: usize = 8;
/// Bytes in front of a part's own, header included.
pub const PART_HEADER_BYTES: usize = HEADER_BYTES + PLACE_BYTES;

impl Part {
    /// What stands in front of `length` bytes of a piece, 1 to [`BLOB_PART_BYTES`]; so they need not be copied into a
    /// message to be sent.
    #[must_use]
    pub fn header(piece: u32, offset: usize, length: usize) -> [u8; PART_HEADER_BYTES] {
        let number = |bytes: usize| u32::try_from(bytes).expect("a piece has 1 MiB at most").to_be_bytes();
        let ([l0, l1, l2, l3], [p0, p1, p2, p3], [o0, o1, o2, o3]) =
            (number(length + PLACE_BYTES), piece.to_be_bytes(), number(offset));
        [PART, l0, l1, l2, l3, p0, p1, p2, p3, o0, o1, o2, o3]
    }

    /// Reads where `length` bytes belong that follow: which piece, and from which byte of it on. So they can be read right into
    /// where they are kept.
    ///
    /// # Errors
    /// When the blob does not have such bytes.
    pub fn place(bytes: [u8; PLACE_BYTES], length: usize, layout: Layout) -> Result<(u32, u32), MessageError> {
        let [p0, p1, p2, p3, o0, o1, o2, o3] = bytes;
        let (piece, offset) = (u32::from_be_bytes([p0, p1, p2, p3]), u32::from_be_bytes([o0, o1, o2, o3]));
        let ends = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(length));
        let whole = layout.length(piece).ok_or(MessageError::Beyond(piece))?;
        if ends.is_none_or(|ends| ends > whole) { Err(MessageError::Beyond(piece)) } else { Ok((piece, offset)) }
    }
}

/// Why bytes are not a message. The peer that sent them broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// A tag that is not known here.
    #[error("a message with the unknown tag {0}")]
    Tag(u8),
    /// A length that this kind of message cannot have. Nothing was allocated for it.
    #[error("a message with tag {tag} and {found} bytes")]
    Length {
        /// What it claims to be.
        tag: u8,
        /// Its length in bytes.
        found: usize,
    },
    /// A bitmap that is none of this blob.
    #[error(transparent)]
    Bitmap(#[from] PieceSetError),
    /// It names a piece, or bytes of a piece, that the blob does not have.
    #[error("a message about piece {0}, or bytes of it, which the blob does not have")]
    Beyond(u32),
}

impl Message {
    /// Which lengths the payload of a message with this tag may have, in bytes.
    ///
    /// # Errors
    /// When there is no such message.
    pub fn lengths(tag: u8, layout: Layout) -> Result<RangeInclusive<usize>, MessageError> {
        let exactly = |bytes: usize| bytes..=bytes;
        Ok(match tag {
            0 => exactly(PieceSet::bytes_for(layout)),
            1 => 4..=4 * BLOB_NEWS,
            2 => 8..=4 + 4 * BLOB_OFFERED,
            3 | 5 | 6 | 7 => exactly(4),
            4 => exactly(0),
            PART => PLACE_BYTES + 1..=PLACE_BYTES + BLOB_PART_BYTES,
            _ => return Err(MessageError::Tag(tag)),
        })
    }

    /// Reads a header: tag and length of the payload, which is one that the tag may have.
    ///
    /// # Errors
    /// When the tag is unknown or the length impossible.
    pub fn header(bytes: [u8; HEADER_BYTES], layout: Layout) -> Result<(u8, usize), MessageError> {
        let [tag, length @ ..] = bytes;
        let found = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if Self::lengths(tag, layout)?.contains(&found) { Ok((tag, found)) } else { Err(MessageError::Length { tag, found }) }
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// When its length is impossible, or it speaks of pieces or bytes that the blob does not have.
    pub fn decode(tag: u8, mut payload: Vec<u8>, layout: Layout) -> Result<Self, MessageError> {
        let found = payload.len();
        if !Self::lengths(tag, layout)?.contains(&found) {
            return Err(MessageError::Length { tag, found });
        }
        let wrong = MessageError::Length { tag, found };
        Ok(match tag {
            0 => Self::Holding(PieceSet::from_bytes(layout, &payload)?),
            1 => Self::Have(pieces(&payload, layout).ok_or(wrong)??),
            2 => {
                let wait_ms = number(&payload).ok_or(wrong)?;
                Self::Offer { wait_ms, pieces: pieces(payload.get(4..).unwrap_or_default(), layout).ok_or(wrong)?? }
            }
            3 => Self::Take(piece(&payload, layout).ok_or(wrong)??),
            4 => Self::Pass,
            5 => Self::Cancel(piece(&payload, layout).ok_or(wrong)??),
            6 => Self::Withdraw(piece(&payload, layout).ok_or(wrong)??),
            7 => Self::Got(number(&payload).ok_or(wrong)?),
            _ => {
                let place = *payload.first_chunk().ok_or(wrong)?;
                let bytes = payload.split_off(PLACE_BYTES);
                let (piece, offset) = Part::place(place, bytes.len(), layout)?;
                Self::Part(Part { piece, offset, bytes })
            }
        })
    }

    /// The whole frame, header included.
    #[must_use]
    pub fn to_frame(&self) -> Vec<u8> {
        let mut frame = alloc::vec![0; HEADER_BYTES];
        let tag = match self {
            Self::Holding(held) => {
                frame.extend_from_slice(held.as_bytes());
                0
            }
            Self::Have(pieces) => {
                pieces.iter().for_each(|piece| frame.extend_from_slice(&piece.to_be_bytes()));
                1
            }
            Self::Offer { wait_ms, pieces } => {
                frame.extend_from_slice(&wait_ms.to_be_bytes());
                pieces.iter().for_each(|piece| frame.extend_from_slice(&piece.to_be_bytes()));
                2
            }
            Self::Take(number) | Self::Cancel(number) | Self::Withdraw(number) | Self::Got(number) => {
                frame.extend_from_slice(&number.to_be_bytes());
                match self {
                    Self::Take(_) => 3,
                    Self::Cancel(_) => 5,
                    Self::Withdraw(_) => 6,
                    _ => 7,
                }
            }
            Self::Pass => 4,
            Self::Part(part) => {
                frame.extend_from_slice(&part.piece.to_be_bytes());
                frame.extend_from_slice(&part.offset.to_be_bytes());
                frame.extend_from_slice(&part.bytes);
                PART
            }
        };
        let length = u32::try_from(frame.len() - HEADER_BYTES).expect("a message has 64 KiB and a few bytes at most");
        let [l0, l1, l2, l3] = length.to_be_bytes();
        for (to, byte) in frame.iter_mut().zip([tag, l0, l1, l2, l3]) {
            *to = byte;
        }
        frame
    }

    /// Length of its frame in bytes.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        HEADER_BYTES
            + match self {
                Self::Holding(held) => held.as_bytes().len(),
                Self::Have(pieces) => 4 * pieces.len(),
                Self::Offer { pieces, .. } => 4 + 4 * pieces.len(),
                Self::Take(_) | Self::Cancel(_) | Self::Withdraw(_) | Self::Got(_) => 4,
                Self::Pass => 0,
                Self::Part(part) => PLACE_BYTES + part.bytes.len(),
            }
    }
}

fn number(payload: &[u8]) -> Option<u32> {
    payload.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes))
}

fn known(piece: u32, layout: Layout) -> Result<u32, MessageError> {
    if piece < layout.count() { Ok(piece) } else { Err(MessageError::Beyond(piece)) }
}

fn piece(payload: &[u8], layout: Layout) -> Option<Result<u32, MessageError>> {
    number(payload).map(|piece| known(piece, layout))
}

/// `None` when it is not a whole number of pieces.
fn pieces(payload: &[u8], layout: Layout) -> Option<Result<Vec<u32>, MessageError>> {
    let (pieces, rest) = payload.as_chunks::<4>();
    rest.is_empty().then(|| pieces.iter().map(|bytes| known(u32::from_be_bytes(*bytes), layout)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn layout() -> Layout {
        Layout::of(20 * 65_536 - 7).unwrap()
    }

    fn read(frame: &[u8]) -> Result<Message, MessageError> {
        let (header, payload) = frame.split_first_chunk().unwrap();
        let (tag, length) = Message::header(*header, layout())?;
        assert_eq!(length, payload.len());
        Message::decode(tag, payload.to_vec(), layout())
    }

    #[test]
    fn what_cannot_be_is_refused_before_anything_is_allocated() {
        let header = |tag: u8, length: u32| {
            let [a, b, c, d] = length.to_be_bytes();
            Message::header([tag, a, b, c, d], layout())
        };
        let lengths =
            [(0, 2), (0, 4), (1, 0), (1, u32::MAX), (2, 4), (2, 40), (3, 3), (4, 1), (7, 5), (8, 8), (8, 65_545), (8, u32::MAX)];
        for (tag, length) in lengths {
            assert!(matches!(header(tag, length), Err(MessageError::Length { .. })), "{tag} {length}");
        }
        assert_eq!(header(9, 0), Err(MessageError::Tag(9)));
        assert_eq!(header(0, 3), Ok((0, 3)));
        assert_eq!(header(8, 65_544), Ok((8, 65_544)));
    }

    #[test]
    fn pieces_and_bytes_that_the_blob_does_not_have_are_refused() {
        let decode = |tag, payload: Vec<u8>| Message::decode(tag, payload, layout());
        assert_eq!(decode(2, vec![0, 0, 0, 9, 0, 0, 0, 20]), Err(MessageError::Beyond(20)));
        for tag in [1, 3, 5, 6] {
            assert_eq!(decode(tag, vec![0, 0, 0, 20]), Err(MessageError::Beyond(20)), "{tag}");
            assert_eq!(decode(tag, vec![255; 4]), Err(MessageError::Beyond(u32::MAX)), "{tag}");
        }
        let part = |piece: u32, offset: u32, bytes: usize| {
            decode(8, [piece.to_be_bytes().to_vec(), offset.to_be_bytes().to_vec(), vec![1; bytes]].concat())
        };
        assert!(part(19, 65_528, 1).is_ok());
        assert_eq!(part(19, 65_529, 1), Err(MessageError::Beyond(19)));
        assert_eq!(part(0, 1, 65_536), Err(MessageError::Beyond(0)));
        assert_eq!(part(0, u32::MAX, 9), Err(MessageError::Beyond(0)));
        assert_eq!(part(20, 0, 1), Err(MessageError::Beyond(20)));
        assert_eq!(decode(0, vec![0, 0, 0x10]), Err(MessageError::Bitmap(PieceSetError::Beyond)));
    }

    fn message() -> impl Strategy<Value = Message> {
        let pieces = |most| prop::collection::vec(0..20_u32, 1..=most);
        let set = prop::collection::vec(any::<bool>(), 20).prop_map(|bits| {
            let mut set = PieceSet::empty(layout());
            (0..20).zip(bits).filter(|(_, bit)| *bit).for_each(|(piece, _)| {
                set.insert(piece);
            });
            set
        });
        prop_oneof![
            set.prop_map(Message::Holding),
            pieces(BLOB_NEWS).prop_map(Message::Have),
            (any::<u32>(), pieces(BLOB_OFFERED)).prop_map(|(wait_ms, pieces)| Message::Offer { wait_ms, pieces }),
            (0..20_u32).prop_map(Message::Take),
            Just(Message::Pass),
            (0..20_u32).prop_map(Message::Cancel),
            (0..20_u32).prop_map(Message::Withdraw),
            any::<u32>().prop_map(Message::Got),
            (0..20_u32, 0..65_000_u32, 1..500_usize).prop_map(|(piece, offset, bytes)| Message::Part(Part {
                piece,
                offset,
                bytes: vec![7; bytes]
            })),
        ]
    }

    proptest! {
        #[test]
        fn a_message_is_read_as_it_was_written(message in message()) {
            let frame = message.to_frame();
            prop_assert_eq!(frame.len(), message.frame_bytes());
            if let Message::Part(part) = &message {
                let header = Part::header(part.piece, usize::try_from(part.offset).unwrap(), part.bytes.len());
                prop_assert_eq!(&frame, &[&header[..], &part.bytes].concat());
            }
            prop_assert_eq!(read(&frame), Ok(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_a_typed_error(tag in 0..12_u8, payload in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(message) = Message::decode(tag, payload.clone(), layout()) {
                prop_assert_eq!(message.to_frame().split_off(HEADER_BYTES), payload);
            }
        }
    }
}

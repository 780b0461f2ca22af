//! The blob protocol's bytes: requests and answers, read only within bounds known beforehand.
//!
//! A request is `u16 length, u32 number, postcard(Request)`; an answer is `u32 number, u8 tag, u32 length, payload`;
//! integers are big-endian. Answers come in the order of the requests. The asker knows what length each answer must
//! have and reads nothing longer; the server reads at most [`limits::REQUEST_BYTES`] per request.

use std::io;
use std::time::Duration;

use futures::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use groundswell_core::blob::exchange::MessageError;
use groundswell_core::blob::{HashList, Layout, PieceSet};
use groundswell_core::digest::Digest;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::limits;

/// What is asked. Variants keep their place for ever: postcard numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Size of a blob and how much of it is held.
    Describe {
        /// SHA-256 of the blob.
        blob: Digest,
    },
    /// The hash list of a blob.
    HashList {
        /// SHA-256 of the blob.
        blob: Digest,
    },
    /// Which pieces are held, as a bitmap.
    Have {
        /// SHA-256 of the blob.
        blob: Digest,
    },
    /// One piece.
    Piece {
        /// SHA-256 of the blob.
        blob: Digest,
        /// Which, from 0.
        piece: u32,
    },
    /// The published form of a document.
    Document {
        /// SHA-256 of its body.
        digest: Digest,
        /// The asker takes no more bytes than this.
        most_bytes: u32,
    },
}

/// Why a request was not met. Numbers are part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Refusal {
    /// The blob or document is not here.
    #[error("it is not here")]
    NotHere = 1,
    /// The piece is not held (yet).
    #[error("the piece is not held")]
    NotHeld = 2,
    /// The blob has no such piece.
    #[error("the blob has no such piece")]
    Beyond = 3,
    /// Longer than the asker takes.
    #[error("it is longer than was asked for")]
    TooLarge = 4,
    /// The server's disk failed.
    #[error("it cannot be read")]
    Failed = 5,
}

impl Refusal {
    fn of(number: u8) -> Option<Self> {
        [Self::NotHere, Self::NotHeld, Self::Beyond, Self::TooLarge, Self::Failed].into_iter().find(|r| *r as u8 == number)
    }
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Tag 0: one byte, a [`Refusal`].
    Refused(Refusal),
    /// Tag 1: `u64 size in bytes, u32 pieces held`.
    Description {
        /// Size of the whole blob.
        size_bytes: u64,
        /// How many pieces are held.
        held: u32,
    },
    /// Tag 2: 32 bytes per piece.
    HashList(Vec<u8>),
    /// Tag 3: a bitmap.
    Have(Vec<u8>),
    /// Tag 4: the piece's bytes.
    Piece(Vec<u8>),
    /// Tag 5: the document's bytes.
    Document(Vec<u8>),
}

/// An answer that may be written in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Long {
    /// As [`Answer::HashList`].
    HashList,
    /// As [`Answer::Piece`].
    Piece,
    /// As [`Answer::Document`].
    Document,
}

/// What an answer to a request must look like, so that its length is known before a byte of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A description: 12 bytes.
    Description,
    /// A hash list: exactly as long as the layout says.
    HashList(Layout),
    /// A bitmap: exactly as long as the layout says.
    Have(Layout),
    /// A piece of exactly this many bytes.
    Piece(usize),
    /// A document of at most this many bytes.
    Document(usize),
}

/// Why nothing more can be read from, or written to, a stream.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The peer ended the stream.
    #[error("the peer closed the stream")]
    Closed,
    /// No byte moved for [`limits::STALLED_AFTER`], or an answer was not whole within [`limits::ANSWER_WITHIN`].
    #[error("the peer stalled")]
    Stalled,
    /// The transport failed.
    #[error("the stream failed")]
    Io(#[source] io::Error),
    /// A request that cannot be read.
    #[error("the peer sent a request that cannot be read")]
    Request,
    /// A message that cannot be one about this blob.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// An answer to something that was not asked, out of order, or beyond what was asked.
    #[error("the peer answered request {found} instead of {expected}")]
    Number {
        /// The request whose turn it is.
        expected: u32,
        /// The request that it claims to answer.
        found: u32,
    },
    /// An answer of another kind than was asked for.
    #[error("the peer sent an answer of kind {tag} where {expected:?} was asked for")]
    Tag {
        /// What was asked for.
        expected: Expected,
        /// What came.
        tag: u8,
    },
    /// An answer shorter or longer than it can be. Nothing was allocated for it.
    #[error("the peer announced {found} bytes for {expected:?}")]
    Length {
        /// What was asked for.
        expected: Expected,
        /// What it announced.
        found: u32,
    },
}

impl WireError {
    /// Whether only a peer that breaks the protocol can have caused it.
    #[must_use]
    pub fn is_breach(&self) -> bool {
        matches!(self, Self::Request | Self::Message(_) | Self::Number { .. } | Self::Tag { .. } | Self::Length { .. })
    }
}

const DESCRIPTION_BYTES: usize = 12;

/// Writes a request; does not flush. Not cancel-safe: a dropped future may leave half a request in the stream.
///
/// # Errors
/// When the stream fails or takes nothing for [`limits::STALLED_AFTER`].
pub async fn write_request(stream: &mut (impl AsyncWrite + Unpin), number: u32, request: &Request) -> Result<(), WireError> {
    let body = postcard::to_allocvec(request).expect("a request has nothing that postcard cannot write");
    let length = u16::try_from(body.len()).expect("a request is at most 64 bytes");
    let mut frame = Vec::with_capacity(body.len() + 6);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&number.to_be_bytes());
    frame.extend_from_slice(&body);
    write_all(stream, &frame).await
}

/// Reads a request; `None` at the end of the stream or when nothing comes for `idle`. Not cancel-safe.
///
/// # Errors
/// When it is longer than [`limits::REQUEST_BYTES`] or not a request, or the stream fails in the middle of one.
pub async fn read_request(stream: &mut (impl AsyncRead + Unpin), idle: Duration) -> Result<Option<(u32, Request)>, WireError> {
    let mut first = [0; 1];
    match timeout(idle, stream.read(&mut first)).await {
        Err(_) | Ok(Ok(0)) => return Ok(None),
        Ok(Err(error)) => return Err(WireError::Io(error)),
        Ok(Ok(_)) => {}
    }
    let [high] = first;
    let mut rest = [0; 5];
    read_exact(stream, &mut rest).await?;
    let [low, number @ ..] = rest;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length == 0 || length > limits::REQUEST_BYTES {
        return Err(WireError::Request);
    }
    let mut body = [0; limits::REQUEST_BYTES];
    let body = body.get_mut(..length).ok_or(WireError::Request)?;
    read_exact(stream, body).await?;
    match postcard::take_from_bytes::<Request>(body) {
        Ok((request, [])) => Ok(Some((u32::from_be_bytes(number), request))),
        _ => Err(WireError::Request),
    }
}

/// Writes an answer and flushes. Not cancel-safe.
///
/// # Errors
/// When the stream fails or takes nothing for [`limits::STALLED_AFTER`].
pub async fn write_answer(stream: &mut (impl AsyncWrite + Unpin), number: u32, answer: &Answer) -> Result<(), WireError> {
    let mut description = [0; DESCRIPTION_BYTES];
    let refusal;
    let (tag, payload): (u8, &[u8]) = match answer {
        Answer::Refused(reason) => {
            refusal = [*reason as u8];
            (0, &refusal)
        }
        Answer::Description { size_bytes, held } => {
            let (size, count) = description.split_at_mut(8);
            size.copy_from_slice(&size_bytes.to_be_bytes());
            count.copy_from_slice(&held.to_be_bytes());
            (1, &description)
        }
        Answer::HashList(bytes) => (2, bytes),
        Answer::Have(bytes) => (3, bytes),
        Answer::Piece(bytes) => (4, bytes),
        Answer::Document(bytes) => (5, bytes),
    };
    let length = u32::try_from(payload.len()).expect("nothing is served that is longer than a published roster");
    write_header(stream, number, tag, length).await?;
    write_all(stream, payload).await?;
    flush(stream).await
}

/// Begins an answer of `length` bytes that come in parts, by [`write_part`]: what itself comes from afar is passed on as it
/// comes, so that the asker sees bytes move. Not cancel-safe.
///
/// # Errors
/// As [`write_answer`].
pub(crate) async fn begin_answer(
    stream: &mut (impl AsyncWrite + Unpin),
    number: u32,
    long: Long,
    length: u32,
) -> Result<(), WireError> {
    let tag = match long {
        Long::HashList => 2,
        Long::Piece => 4,
        Long::Document => 5,
    };
    write_header(stream, number, tag, length).await
}

async fn write_header(stream: &mut (impl AsyncWrite + Unpin), number: u32, tag: u8, length: u32) -> Result<(), WireError> {
    let [n0, n1, n2, n3] = number.to_be_bytes();
    let [l0, l1, l2, l3] = length.to_be_bytes();
    write_all(stream, &[n0, n1, n2, n3, tag, l0, l1, l2, l3]).await
}

/// Writes the next part of an answer that was begun, and flushes. Not cancel-safe.
///
/// # Errors
/// As [`write_answer`].
pub(crate) async fn write_part(stream: &mut (impl AsyncWrite + Unpin), part: &[u8]) -> Result<(), WireError> {
    write_all(stream, part).await?;
    flush(stream).await
}

/// Reads the answer to request `number`. Allocates only what `expected` allows. Not cancel-safe.
///
/// # Errors
/// [`WireError`]; after any of them the stream is of no more use.
pub async fn read_answer(stream: &mut (impl AsyncRead + Unpin), number: u32, expected: Expected) -> Result<Answer, WireError> {
    timeout(limits::ANSWER_WITHIN, read_answer_patiently(stream, number, expected)).await.unwrap_or(Err(WireError::Stalled))
}

/// Reads the head of the answer to a request for a piece of `length` bytes: what refuses it, or nothing, and then its
/// bytes follow, to be read by [`read_part`]. Not cancel-safe.
///
/// # Errors
/// [`WireError`]; after any of them the stream is of no more use.
pub(crate) async fn begin_piece(
    stream: &mut (impl AsyncRead + Unpin),
    number: u32,
    length: usize,
) -> Result<Option<Refusal>, WireError> {
    let expected = Expected::Piece(length);
    let (tag, _) = read_header(read_within(stream).await?, number, expected)?;
    if tag != 0 {
        return Ok(None);
    }
    let [reason] = read_within(stream).await?;
    Refusal::of(reason).map(Some).ok_or(WireError::Tag { expected, tag })
}

/// Reads the next so many bytes of an answer that was begun. Not cancel-safe.
///
/// # Errors
/// As [`read_answer`].
pub(crate) async fn read_part(stream: &mut (impl AsyncRead + Unpin), length: usize) -> Result<Vec<u8>, WireError> {
    let mut bytes = vec![0; length];
    let read = timeout(limits::ANSWER_WITHIN, read_exact(stream, &mut bytes)).await;
    read.unwrap_or(Err(WireError::Stalled)).map(|()| bytes)
}

async fn read_within<const N: usize>(stream: &mut (impl AsyncRead + Unpin)) -> Result<[u8; N], WireError> {
    let mut bytes = [0; N];
    let read = timeout(limits::ANSWER_WITHIN, read_exact(stream, &mut bytes)).await;
    read.unwrap_or(Err(WireError::Stalled)).map(|()| bytes)
}

/// Tag and length of an answer that may be one to request `number`.
fn read_header(header: [u8; 9], number: u32, expected: Expected) -> Result<(u8, usize), WireError> {
    let [n0, n1, n2, n3, tag, l0, l1, l2, l3] = header;
    let found = u32::from_be_bytes([n0, n1, n2, n3]);
    if found != number {
        return Err(WireError::Number { expected: number, found });
    }
    let announced = u32::from_be_bytes([l0, l1, l2, l3]);
    let length = usize::try_from(announced).map_err(|_| WireError::Length { expected, found: announced })?;
    if expected.allows(tag, length)? { Ok((tag, length)) } else { Err(WireError::Length { expected, found: announced }) }
}

async fn read_answer_patiently(
    stream: &mut (impl AsyncRead + Unpin),
    number: u32,
    expected: Expected,
) -> Result<Answer, WireError> {
    let mut header = [0; 9];
    read_exact(stream, &mut header).await?;
    let (tag, length) = read_header(header, number, expected)?;
    let announced = u32::try_from(length).unwrap_or(u32::MAX);
    let mut payload = vec![0; length];
    read_exact(stream, &mut payload).await?;
    match (tag, payload.as_slice()) {
        (0, [reason]) => Refusal::of(*reason).map(Answer::Refused).ok_or(WireError::Tag { expected, tag }),
        (1, [size @ .., h0, h1, h2, h3]) => {
            let size = size.try_into().map_err(|_| WireError::Length { expected, found: announced })?;
            Ok(Answer::Description { size_bytes: u64::from_be_bytes(size), held: u32::from_be_bytes([*h0, *h1, *h2, *h3]) })
        }
        (2, _) => Ok(Answer::HashList(payload)),
        (3, _) => Ok(Answer::Have(payload)),
        (4, _) => Ok(Answer::Piece(payload)),
        (5, _) => Ok(Answer::Document(payload)),
        _ => Err(WireError::Tag { expected, tag }),
    }
}

impl Expected {
    /// Whether an answer with this tag may have this length.
    fn allows(self, tag: u8, length: usize) -> Result<bool, WireError> {
        match (self, tag) {
            (_, 0) => Ok(length == 1),
            (Self::Description, 1) => Ok(length == DESCRIPTION_BYTES),
            (Self::HashList(layout), 2) => Ok(length == HashList::bytes_for(layout)),
            (Self::Have(layout), 3) => Ok(length == PieceSet::bytes_for(layout)),
            (Self::Piece(exactly), 4) => Ok(length == exactly),
            (Self::Document(most), 5) => Ok(length > 0 && length <= most),
            _ => Err(WireError::Tag { expected: self, tag }),
        }
    }
}

pub(crate) async fn read_exact(stream: &mut (impl AsyncRead + Unpin), mut into: &mut [u8]) -> Result<(), WireError> {
    while !into.is_empty() {
        match timeout(limits::STALLED_AFTER, stream.read(into)).await {
            Err(_) => return Err(WireError::Stalled),
            Ok(Err(error)) => return Err(WireError::Io(error)),
            Ok(Ok(0)) => return Err(WireError::Closed),
            Ok(Ok(read)) => into = into.get_mut(read..).unwrap_or_default(),
        }
    }
    Ok(())
}

pub(crate) async fn write_all(stream: &mut (impl AsyncWrite + Unpin), mut from: &[u8]) -> Result<(), WireError> {
    while !from.is_empty() {
        match timeout(limits::STALLED_AFTER, stream.write(from)).await {
            Err(_) => return Err(WireError::Stalled),
            Ok(Err(error)) => return Err(WireError::Io(error)),
            Ok(Ok(0)) => return Err(WireError::Closed),
            Ok(Ok(written)) => from = from.get(written..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// Sends what was written. Not cancel-safe.
///
/// # Errors
/// When the stream fails or takes nothing for [`limits::STALLED_AFTER`].
pub async fn flush(stream: &mut (impl AsyncWrite + Unpin)) -> Result<(), WireError> {
    match timeout(limits::STALLED_AFTER, stream.flush()).await {
        Err(_) => Err(WireError::Stalled),
        Ok(result) => result.map_err(WireError::Io),
    }
}

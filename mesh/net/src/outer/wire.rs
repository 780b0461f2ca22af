//! The bytes of `/groundswell/door/1`. They never change: what a build of today asks, a build of any later year answers.
//!
//! A frame is `u32 length | u8 tag | body`, the length counting tag and body; all integers are big-endian. Every message
//! has one form: what does not decode to the last byte is refused. The messages are listed in `docs/PROTOCOL.md`, their
//! bytes held by `tests/golden/door.txt`.

use std::io;

use futures::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::{RecordKind, Stamp};

use super::limits::{CERTIFICATE_BYTES, CHUNK_BYTES, FRAME_BYTES, LIST_ENTRIES, RECORD_BYTES, STAMP_ENTRIES};

/// What a visitor asks. The first message of a visit is `Hello`, and only that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Who it belongs to, and the published form of its own certificate; empty when it has none.
    Hello {
        /// The fleet's id.
        fleet: Digest,
        /// At most [`CERTIFICATE_BYTES`].
        certificate: Vec<u8>,
    },
    /// The fleet documents of versions above this one, lowest first.
    Fleets {
        /// The version that the visitor has; 0 for none.
        after: u64,
    },
    /// The visitor's own certificate of the highest serial that is known; two when two bodies share it.
    Certificate,
    /// Documents whose digest is above this one, in order of digests.
    Documents {
        /// All zero to begin with.
        after: Digest,
    },
    /// A chunk of a document's published form.
    Document {
        /// Its body digest.
        digest: Digest,
        /// Where the chunk begins, in bytes.
        offset: u64,
    },
    /// A chunk of a blob.
    Blob {
        /// Its SHA-256.
        sha256: Digest,
        /// Where the chunk begins, in bytes.
        offset: u64,
    },
    /// A chunk of a blob's hash list.
    Hashes {
        /// The blob's SHA-256.
        sha256: Digest,
        /// Where the chunk begins, in bytes.
        offset: u64,
    },
    /// Whose records of a kind there are, above this node in order of ids.
    Stamps {
        /// Which kind.
        kind: RecordKind,
        /// All zero to begin with.
        after: NodeId,
    },
    /// One record, or the two of a proof.
    Record {
        /// Which kind.
        kind: RecordKind,
        /// Whose.
        node: NodeId,
    },
    /// The visitor's own status record, version 1.
    Push {
        /// Its signed bytes.
        record: Vec<u8>,
    },
}

/// What the keeper of the door answers: one answer for each ask, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Not given.
    Refused(Refused),
    /// To a hello.
    Welcome(Standing),
    /// To `Fleets`, `Certificate` and `Documents`.
    List(Vec<Listed>),
    /// To `Document`, `Blob` and `Hashes`: empty at and beyond the end.
    Chunk {
        /// Size of the whole in bytes.
        total: u64,
        /// At most [`CHUNK_BYTES`].
        bytes: Vec<u8>,
    },
    /// To `Stamps`.
    Stamps(Vec<(NodeId, Stamp)>),
    /// To `Record`: one, or two that prove an equivocation. Each at most [`RECORD_BYTES`].
    Records(Vec<Vec<u8>>),
    /// To `Push`: taken, or known already.
    Taken,
}

/// A document that can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its kind.
    pub kind: Kind,
    /// Its body digest.
    pub digest: Digest,
    /// SHA-256 of its published form: another one under the same body has other signatures.
    pub published: Digest,
}

/// Why something is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The message breaks the protocol; the keeper closes.
    #[error("malformed")]
    Malformed,
    /// The keeper belongs to another fleet; it closes.
    #[error("fleet: it belongs to another fleet")]
    Fleet,
    /// Not for a visitor of this standing.
    #[error("not for a peer of this standing")]
    Standing,
    /// It is not here.
    #[error("it is not here")]
    NotHere,
    /// Too much at once, by this visitor or by all: ask again after so many milliseconds.
    #[error("ask again in {0} ms")]
    Later(u32),
    /// The pushed record is not taken: another's, no status, not verified, or its writer may write none.
    #[error("the record is not taken")]
    Record,
}

/// What a visitor is to the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// No certificate that ever counted: may pull the fleet documents and its own newest certificate.
    Stranger,
    /// Its certificate counted once: may also pull documents, records and blobs.
    Former,
    /// A member: may also push its own status record.
    Member,
}

/// A frame that breaks the protocol, or a stream that broke.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The stream broke or ended within a frame.
    #[error("the stream broke")]
    Io(#[from] io::Error),
    /// A frame is longer than it may be; nothing was allocated for it.
    #[error("a frame of {0} bytes, at most {1} are read")]
    TooLong(u64, usize),
    /// A frame is no message.
    #[error("a frame that is no message of the protocol")]
    Malformed,
}

/// Reads `body` front to back.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(WireError::Malformed)?;
        self.0 = rest;
        Ok(*head)
    }

    fn digest(&mut self) -> Result<Digest, WireError> {
        self.array().map(Digest)
    }

    fn node(&mut self) -> Result<NodeId, WireError> {
        self.array().map(NodeId)
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    fn byte(&mut self) -> Result<u8, WireError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(WireError::Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    /// All that is left, at most `most` bytes.
    fn rest(&mut self, most: usize) -> Result<Vec<u8>, WireError> {
        if self.0.len() > most {
            return Err(WireError::Malformed);
        }
        Ok(std::mem::take(&mut self.0).to_vec())
    }

    /// `each` until nothing is left, at most `most` times.
    fn list<T>(&mut self, most: usize, each: impl Fn(&mut Self) -> Result<T, WireError>) -> Result<Vec<T>, WireError> {
        let mut list = Vec::new();
        while !self.0.is_empty() {
            if list.len() >= most {
                return Err(WireError::Malformed);
            }
            list.push(each(self)?);
        }
        Ok(list)
    }

    fn kind(&mut self) -> Result<RecordKind, WireError> {
        match self.byte()? {
            0 => Ok(RecordKind::Status),
            1 => Ok(RecordKind::Grants),
            _ => Err(WireError::Malformed),
        }
    }

    fn end<T>(self, message: T) -> Result<T, WireError> {
        if self.0.is_empty() { Ok(message) } else { Err(WireError::Malformed) }
    }
}

fn record_kind(kind: RecordKind) -> u8 {
    match kind {
        RecordKind::Status => 0,
        RecordKind::Grants => 1,
    }
}

/// The kinds of documents as the door names them.
const KINDS: [(u8, Kind); 6] =
    [(1, Kind::Fleet), (2, Kind::Node), (3, Kind::Token), (4, Kind::Release), (5, Kind::Roster), (6, Kind::Rollout)];

impl Ask {
    /// Tag and body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let with = |tag: u8, parts: &[&[u8]]| [&[tag], parts.concat().as_slice()].concat();
        match self {
            Self::Hello { fleet, certificate } => with(1, &[&fleet.0, certificate]),
            Self::Fleets { after } => with(2, &[&after.to_be_bytes()]),
            Self::Certificate => with(3, &[]),
            Self::Documents { after } => with(4, &[&after.0]),
            Self::Document { digest, offset } => with(5, &[&digest.0, &offset.to_be_bytes()]),
            Self::Blob { sha256, offset } => with(6, &[&sha256.0, &offset.to_be_bytes()]),
            Self::Hashes { sha256, offset } => with(7, &[&sha256.0, &offset.to_be_bytes()]),
            Self::Stamps { kind, after } => with(8, &[&[record_kind(*kind)], &after.0]),
            Self::Record { kind, node } => with(9, &[&[record_kind(*kind)], &node.0]),
            Self::Push { record } => with(10, &[record]),
        }
    }

    /// Reads tag and body.
    ///
    /// # Errors
    /// `Malformed` for anything that [`Ask::encode`] does not make.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader(bytes);
        let ask = match reader.byte()? {
            1 => Self::Hello { fleet: reader.digest()?, certificate: reader.rest(CERTIFICATE_BYTES)? },
            2 => Self::Fleets { after: reader.u64()? },
            3 => Self::Certificate,
            4 => Self::Documents { after: reader.digest()? },
            5 => Self::Document { digest: reader.digest()?, offset: reader.u64()? },
            6 => Self::Blob { sha256: reader.digest()?, offset: reader.u64()? },
            7 => Self::Hashes { sha256: reader.digest()?, offset: reader.u64()? },
            8 => Self::Stamps { kind: reader.kind()?, after: reader.node()? },
            9 => Self::Record { kind: reader.kind()?, node: reader.node()? },
            10 => Self::Push { record: reader.rest(RECORD_BYTES)? },
            _ => return Err(WireError::Malformed),
        };
        reader.end(ask)
    }
}

impl Answer {
    /// Tag and body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Refused(refused) => {
                let (code, wait) = match refused {
                    Refused::Malformed => (1, 0),
                    Refused::Fleet => (2, 0),
                    Refused::Standing => (3, 0),
                    Refused::NotHere => (4, 0),
                    Refused::Later(wait_ms) => (5, *wait_ms),
                    Refused::Record => (6, 0),
                };
                [&[0, code], u32::to_be_bytes(wait).as_slice()].concat()
            }
            Self::Welcome(standing) => vec![
                1,
                match standing {
                    Standing::Stranger => 0,
                    Standing::Former => 1,
                    Standing::Member => 2,
                },
            ],
            Self::List(list) => {
                let mut bytes = vec![2];
                for Listed { kind, digest, published } in list {
                    bytes.extend(KINDS.iter().find(|(_, known)| known == kind).map(|(byte, _)| *byte));
                    bytes.extend_from_slice(&digest.0);
                    bytes.extend_from_slice(&published.0);
                }
                bytes
            }
            Self::Chunk { total, bytes } => [&[3], total.to_be_bytes().as_slice(), bytes].concat(),
            Self::Stamps(stamps) => {
                let mut bytes = vec![4];
                for (node, stamp) in stamps {
                    bytes.extend_from_slice(&node.0);
                    bytes.extend_from_slice(&stamp.incarnation.to_be_bytes());
                    bytes.extend_from_slice(&stamp.counter.to_be_bytes());
                }
                bytes
            }
            Self::Records(records) => {
                let mut bytes = vec![5];
                for record in records {
                    let length = u16::try_from(record.len()).expect("a record has at most RECORD_BYTES");
                    bytes.extend_from_slice(&length.to_be_bytes());
                    bytes.extend_from_slice(record);
                }
                bytes
            }
            Self::Taken => vec![6],
        }
    }

    /// Reads tag and body.
    ///
    /// # Errors
    /// `Malformed` for anything that [`Answer::encode`] does not make.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader(bytes);
        let answer = match reader.byte()? {
            0 => {
                let (code, wait_ms) = (reader.byte()?, u32::from_be_bytes(reader.array()?));
                Self::Refused(match (code, wait_ms) {
                    (1, 0) => Refused::Malformed,
                    (2, 0) => Refused::Fleet,
                    (3, 0) => Refused::Standing,
                    (4, 0) => Refused::NotHere,
                    (5, wait_ms) => Refused::Later(wait_ms),
                    (6, 0) => Refused::Record,
                    _ => return Err(WireError::Malformed),
                })
            }
            1 => Self::Welcome(match reader.byte()? {
                0 => Standing::Stranger,
                1 => Standing::Former,
                2 => Standing::Member,
                _ => return Err(WireError::Malformed),
            }),
            2 => Self::List(reader.list(LIST_ENTRIES, |reader| {
                let byte = reader.byte()?;
                let (_, kind) = KINDS.into_iter().find(|(known, _)| *known == byte).ok_or(WireError::Malformed)?;
                Ok(Listed { kind, digest: reader.digest()?, published: reader.digest()? })
            })?),
            3 => Self::Chunk { total: reader.u64()?, bytes: reader.rest(CHUNK_BYTES)? },
            4 => Self::Stamps(reader.list(STAMP_ENTRIES, |reader| {
                Ok((reader.node()?, Stamp { incarnation: reader.u64()?, counter: reader.u64()? }))
            })?),
            5 => {
                let records = reader.list(2, |reader| {
                    let length = usize::from(u16::from_be_bytes(reader.array()?));
                    if length > RECORD_BYTES {
                        return Err(WireError::Malformed);
                    }
                    reader.take(length).map(<[u8]>::to_vec)
                })?;
                if records.is_empty() {
                    return Err(WireError::Malformed);
                }
                Self::Records(records)
            }
            6 => Self::Taken,
            _ => return Err(WireError::Malformed),
        };
        reader.end(answer)
    }
}

/// Writes one frame and flushes it. Not cancel-safe: the stream is of no use after a write was dropped half-way.
///
/// # Errors
/// When the stream breaks.
pub async fn write_frame(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> Result<(), WireError> {
    debug_assert!(message.len() <= FRAME_BYTES, "a message that the other side would refuse");
    let length = u32::try_from(message.len()).expect("FRAME_BYTES fits 32 bits");
    stream.write_all(&[&length.to_be_bytes(), message].concat()).await?;
    Ok(stream.flush().await?)
}

/// Reads one frame of at most `most` bytes; `None` when the stream ended before it. Not cancel-safe.
///
/// # Errors
/// [`WireError::TooLong`] before anything is allocated; `Malformed` for an empty frame.
pub async fn read_frame(stream: &mut (impl AsyncRead + Unpin), most: usize) -> Result<Option<Vec<u8>>, WireError> {
    let mut length = [0; 4];
    let first = stream.read(&mut length).await?;
    if first == 0 {
        return Ok(None);
    }
    stream.read_exact(length.get_mut(first..).unwrap_or_default()).await?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > most {
        return Err(WireError::TooLong(u64::try_from(length).unwrap_or(u64::MAX), most));
    }
    if length == 0 {
        return Err(WireError::Malformed);
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(Some(message))
}

//! The bounds of the blob protocol, each with its reason. Piece sizes and windows are the core's.

use std::time::Duration;

use groundswell_core::limits;

/// Largest request frame: a digest, two numbers and the variant take 45 bytes.
pub const REQUEST_BYTES: usize = 64;
/// Published form of the largest roster.
pub const PUBLISHED_ROSTER_BYTES: usize = limits::PUBLISHED_ROSTER_BYTES;
/// A peer that sends or takes no byte for this long is given up for now. Long enough for a lossy radio link.
pub const STALLED_AFTER: Duration = Duration::from_secs(10);
/// One answer must be whole by then, so that a byte every nine seconds keeps nobody: 1 MiB at 70 kbit/s.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(120);
/// How often a peer that holds only part is asked what it has by now.
pub const HAVE_EVERY: Duration = Duration::from_millis(500);
/// A peer that had nothing needed for this long frees its place.
pub const USELESS_AFTER: Duration = Duration::from_secs(10);
/// First pause before a peer that could not help is asked again; doubles each time.
pub const RETRY_FIRST: Duration = Duration::from_millis(500);
/// Longest such pause.
pub const RETRY_MOST: Duration = Duration::from_secs(30);
/// How long a peer that sent what is provably not the blob is not asked for anything.
pub const CHARGED_FOR: Duration = Duration::from_secs(10 * 60);
/// Most peers remembered as charged; the oldest makes room.
pub const CHARGED_PEERS: usize = 256;
/// Own files found damaged at the end of a download this many times: then the disk is at fault, not chance.
pub const DAMAGED_TIMES: u32 = 3;
/// Most streams served at once; each holds at most one piece, so 32 MiB at the very most.
pub const SERVED_STREAMS: usize = 32;
/// Most streams served to one peer at once: one per blob that it fetches.
pub const SERVED_STREAMS_PER_PEER: usize = 4;
/// A stream on which nothing is asked for this long is closed by the server.
pub const SERVED_IDLE: Duration = Duration::from_secs(60);
/// Another peer is asked for a document when the ones before have not answered for this long.
pub const DOCUMENT_HEDGE: Duration = Duration::from_secs(2);
/// Most peers asked for one document at once: bounds what a slow answer can waste.
pub const DOCUMENT_PEERS: usize = 3;

const _: () = assert!(PUBLISHED_ROSTER_BYTES < u32::MAX as usize, "a length on the wire has 32 bits");

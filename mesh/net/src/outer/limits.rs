//! The bounds of the outer door, each with its reason. Those of the wire are part of the protocol and never change.

use std::time::Duration;

use groundswell_core::limits;

/// Part of the protocol: the most payload of one chunk, in bytes.
pub const CHUNK_BYTES: usize = 64 * 1024;
/// Part of the protocol: the longest certificate in a hello, in bytes. One with every label at its longest and every
/// signature has less than half of it.
pub const CERTIFICATE_BYTES: usize = 64 * 1024;
/// Part of the protocol: the longest record, in bytes.
pub const RECORD_BYTES: usize = limits::GRANTS_BYTES;
/// Part of the protocol: the longest frame, in bytes: a hello with the longest certificate, or a full chunk, and the head.
pub const FRAME_BYTES: usize = 64 * 1024 + 64;
/// Part of the protocol: the most entries of one list of documents, at 65 bytes each.
pub const LIST_ENTRIES: usize = 1_000;
/// Part of the protocol: the most entries of one list of stamps, at 48 bytes each.
pub const STAMP_ENTRIES: usize = 1_360;
/// Longest frame of a peer that has said hello: a push of the longest status record.
pub const REQUEST_BYTES: usize = limits::STATUS_BYTES + 64;

/// Visitors without a certificate that ever counted, at once; of one network at most as many as are free. Each holds one chunk
/// at most.
pub const STRANGERS: usize = 8;
/// Visitors whose certificate counted once, at once. Each standing has its own places and rates: neither a crowd of
/// strangers nor the fleet's own old keys keep members out. Each holds one chunk, and one piece of the blob that it fetches.
pub const FORMERS: usize = 8;
/// Members at once. Each holds as much as who was one once.
pub const MEMBERS: usize = 16;
/// Visits of one peer at once: one for documents and records, one for a blob.
pub const VISITS_PER_PEER: usize = 2;
/// A visitor that asks nothing for this long is shown out.
pub const IDLE: Duration = Duration::from_secs(30);
/// A visitor takes each answer within this time: 64 KiB at 17 kbit/s.
pub const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// No visit lasts longer: whoever needs more comes again and goes on where it was.
pub const VISIT: Duration = Duration::from_secs(15 * 60);
/// What answering one request costs beside the bytes of the answer, in bytes: so that many small ones are bounded too.
pub const REQUEST_COST: u64 = 256;
/// What looking at a certificate that is not known here costs, in bytes: up to 32 signatures to verify, 7 ms.
pub const PROOF_COST: u64 = 16 * 1024;
/// What a pushed record costs, in bytes: a signature to verify.
pub const PUSH_COST: u64 = 4 * 1024;
/// Requests that a visitor has under way: few enough that they never fill a stream that nobody reads.
pub const WINDOW: usize = 8;
/// How long a visitor waits for one answer, and for a keeper that says "later", in all its pauses.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// A visitor that is told "later" waits at least this long, whatever it is told: a keeper cannot make it ask in a loop.
pub const LATER_LEAST: Duration = Duration::from_millis(250);
/// What comes in chunks comes at this many bytes per second after [`ANSWER_WITHIN`], or the visit ends: 8 kbit/s, an eighth of
/// what the slowest bucket gives to one stranger.
pub const LEAST_PER_SECOND: u64 = 1_024;
/// Most documents that a visitor lets one keeper list: more than a shelf holds.
pub const LISTED: usize = limits::CERTIFICATES + limits::DOCUMENTS + LIST_ENTRIES;
/// Most fleet versions that a visitor walks in one visit.
pub const FLEETS: usize = limits::DOCUMENTS;

/// Most peers whose rate is remembered, of each standing; beyond it the one unheard of longest is forgotten.
pub const REMEMBERED: usize = 1_024;

/// How fast one visitor, and all of one standing together, are served: `burst` bytes at once, then `per_second`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Bytes at once.
    pub burst: u64,
    /// Bytes per second after that.
    pub per_second: u64,
}

/// A stranger pulls the fleet documents and one certificate: some dozen KiB, once.
pub const STRANGER: Rate = Rate { burst: 512 * 1024, per_second: 8 * 1024 };
/// All strangers together: less than a voice call, so that members notice nothing.
pub const ALL_STRANGERS: Rate = Rate { burst: 2 * 1024 * 1024, per_second: 64 * 1024 };
/// Who was a member once pulls the documents that make it one again; most others it gets as one.
pub const FORMER: Rate = Rate { burst: 8 * 1024 * 1024, per_second: 256 * 1024 };
/// All who were members once together.
pub const ALL_FORMERS: Rate = Rate { burst: 16 * 1024 * 1024, per_second: 1024 * 1024 };
/// A member pulls documents, records and a blob of some 10 MB.
pub const MEMBER: Rate = Rate { burst: 8 * 1024 * 1024, per_second: 512 * 1024 };
/// All members together.
pub const ALL_MEMBERS: Rate = Rate { burst: 16 * 1024 * 1024, per_second: 2 * 1024 * 1024 };

/// Certificates that one peer has looked at: eight, then one every 4 s. Paid by what the peer is by the documents here, from
/// buckets of their own: whom the keeper knows never waits for those whom it does not, and a member that it knows pays nothing.
pub const PROOFS: Rate = Rate { burst: 8 * PROOF_COST, per_second: PROOF_COST / 4 };
/// All of one standing together: 32, then eight per second; 6% of a processor at the worst. Others wait, see [`TURNS`].
pub const ALL_PROOFS: Rate = Rate { burst: 32 * PROOF_COST, per_second: 8 * PROOF_COST };

/// Peers of one standing whose certificates wait to be looked at: they have been within two seconds, well before a connection is
/// given up. Half of the connections that wait to be admitted; of one network at most as many as are free.
pub const TURNS: usize = 16;

const _: () = assert!(TURNS * 2 <= crate::config::UNADMITTED, "those that wait here never fill the door");
const _: () = assert!(CHUNK_BYTES + 64 <= FRAME_BYTES && CERTIFICATE_BYTES + 64 <= FRAME_BYTES);
const _: () = assert!(LIST_ENTRIES * 65 <= CHUNK_BYTES && STAMP_ENTRIES * 48 <= CHUNK_BYTES);
const _: () = assert!(2 * (RECORD_BYTES + 2) < FRAME_BYTES, "the two records of a proof fit one answer");
const _: () = assert!(STRANGER.burst > FRAME_BYTES as u64 + REQUEST_COST, "the longest answer can be paid for");
const _: () = assert!(PUSH_COST < FRAME_BYTES as u64);
const _: () = assert!(8 * LEAST_PER_SECOND <= STRANGER.per_second, "whoever is held back by its bucket is no liar");

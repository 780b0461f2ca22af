//! Every bound of the core, in one place, each with its reason (design, section 12).
//!
//! A limit reached is a typed rejection, never a crash and never a silent drop of something that mattered.

/// Largest published document (envelope) in bytes. Larger ones are `too-large` before they are parsed.
pub const DOCUMENT_BYTES: usize = 256 * 1024;
/// Largest roster blob in bytes: 10,000 nodes of about 200 bytes, four times over.
pub const ROSTER_BYTES: usize = 8 * 1024 * 1024;
/// Largest published form of a roster in bytes: its body in base64, and its signatures.
pub const PUBLISHED_ROSTER_BYTES: usize = ROSTER_BYTES.div_ceil(3) * 4 + 16 * 1024;
/// Most versions between a roster and the one that it calls settled: fewer than [`ROSTERS`], so that nodes can keep the
/// chain that rule 8 looks at beside the rosters that rollouts name.
pub const ROSTER_CHAIN: u64 = 32;
/// Largest signed `status` record in bytes; 10,000 of them are 20 MB on every node.
pub const STATUS_BYTES: usize = 2 * 1024;
/// Largest signed `grants` record in bytes.
pub const GRANTS_BYTES: usize = 16 * 1024;
/// Most promises of one warden: at about 165 bytes each they fit its grants record.
pub const PROMISES: usize = 96;
/// Longest log tail inside a status record, in bytes.
pub const LOG_TAIL_BYTES: usize = 200;
/// Most verdicts of one product kept in a status record.
pub const VERDICTS: usize = 8;
/// Most failed releases of one product that a node remembers not to try again.
pub const DENIED: usize = 32;
/// How often a failure before activation is tried again before it counts as the node's failure.
pub const RETRIES: u32 = 5;
/// First pause before such a retry, in milliseconds; it doubles.
pub const RETRY_FIRST_MS: u64 = 5_000;
/// Longest pause before such a retry, in milliseconds.
pub const RETRY_LONGEST_MS: u64 = 600_000;
/// A device that has not answered a confirm or a revert is asked again after this, in milliseconds: as often as a person
/// would, and never so often that a slow disk has two to do at once.
pub const ASK_AGAIN_MS: u64 = 60_000;
/// So often an orderly end of whoever starts a version on trial takes its last start back from those that count: a build
/// which has its machine restarted each time is not tried for ever.
pub const TRIAL_STOPS: u32 = 10;
/// Trials of the agent itself in a row that came to no verdict and in each of which it ended without having been told to, after
/// which it is to blame.
pub const TRIAL_ENDS: u32 = 3;
/// So many trials that come to no verdict follow each other after [`RETRY_LONGEST_MS`]; then that pause doubles each time,
pub const TRIALS_UNDOUBLED: u32 = 3;
/// and does so this often: up to five hours and twenty minutes.
pub const RETRY_DOUBLINGS: u32 = 5;
/// A machine that was to go back and came up with the version that is left is restarted again so often; then people must look.
pub const RESTARTS_BACK: u32 = 3;
/// So often a way back is begun before it goes on without what keeps failing, where there is something to go on to; the pauses
/// between make minutes of it. A machine is restarted whether or not the old version was made the next one, or it said what
/// it runs, for its boot loader may know a way back of its own; a first install is over although the command that stops it
/// fails.
pub const TRIES_BACK: u32 = 6;
/// After so long on a way back that does not end, in milliseconds, a node takes up what a newer rollout puts in its place: longer
/// than what merely takes its time.
pub const OVERTAKE_AFTER_MS: u64 = 600_000;
/// How long a version on trial whose time is over may say nothing of its health after this node restarted, in milliseconds:
/// a few looks of an ordinary check.
pub const HEALTH_AFTER_START_MS: u64 = 120_000;
/// So long after it woke, in milliseconds, or as long as it takes to confirm if that is less, nothing is vouched for: a few looks
/// of an ordinary check. A supervisor waits a minute longer than the upgrade's time.
pub const LOOK_AFTER_WAKING_MS: u64 = 30_000;
/// A machine that is never awake for so long has that in several stretches, and in the last at least this, in milliseconds.
pub const LOOK_EACH_WAKING_MS: u64 = 5_000;
/// A machine whose awake clock has fallen behind the boot clock by so many milliseconds more has slept.
pub const SLEPT_MS: u64 = 1_000;
/// Most blobs that a status record says its node can serve.
pub const SERVES: usize = 8;
/// Members' changed records are kept at least this often, in milliseconds: a crash before costs a sync, never a promise.
pub const SAVE_RECORDS_AFTER_MS: u64 = 2_000;
/// Most artifacts of a release.
pub const ARTIFACTS: usize = 256;
/// Most waves of a rollout.
pub const WAVES: usize = 64;
/// Most labels of a node.
pub const LABELS: usize = 32;
/// Longest label key, in bytes.
pub const LABEL_KEY_BYTES: usize = 64;
/// Longest label value, in bytes.
pub const LABEL_VALUE_BYTES: usize = 256;
/// Longest reason of a rollout generation, in characters.
pub const REASON_CHARS: usize = 500;
/// Longest name of a product, pool, node, version, platform or rollout, in bytes.
pub const NAME_BYTES: usize = 64;
/// Longest artifact name, in bytes: what common file systems take.
pub const ARTIFACT_NAME_BYTES: usize = 255;
/// Most signatures looked at on one envelope: more keys than any role lists.
pub const SIGNATURES: usize = 32;
/// Signatures under one key's pin in an envelope that are verified: an honest one has one of each key, and 32 bad ones under
/// one key would cost whoever reads it 7 ms.
pub const SIGNATURES_TRIED: usize = 4;
/// Most keys of one role.
pub const ROLE_KEYS: usize = 16;
/// Most `forgiven` entries of a rollout.
pub const FORGIVEN: usize = 1024;
/// Most addresses in a status record, and most `meet` addresses of a roster.
pub const ADDRESSES: usize = 8;
/// Most addresses in a roster's `meet`.
pub const MEET: usize = 16;
/// Longest dialable address, in bytes.
pub const ADDRESS_BYTES: usize = 160;
/// Most products on one node.
pub const PRODUCTS: usize = 8;
/// Most products that one fleet document names.
pub const PRODUCTS_SIGNED: usize = 256;
/// Most maintenance windows of a pool or rollout.
pub const WINDOWS: usize = 32;
/// Most nodes of one mesh (design, section 13).
pub const NODES: usize = 20_000;
/// Most records kept: two kinds per node.
pub const RECORDS: usize = 2 * NODES;
/// Most documents kept that are not certificates.
pub const DOCUMENTS: usize = 1_024;
/// Most (node, product) pairs of which verdicts that were taken back are remembered: more than may lie, less than a fleet.
pub const WITHDRAWN: usize = 1_024;
/// Most entries in one list of a neighbour frame: what 512 KiB of announcements hold, and no list of empty things.
pub const FRAME_ITEMS: usize = 8_192;
/// Most announced records that are waited for at once; what is beyond comes by sync.
pub const AWAITED: usize = 4_096;
/// Most neighbours remembered as having announced one record: enough to ask again twice after the first fails.
pub const ANNOUNCERS: usize = 3;
/// Records of one origin and kind passed on at once; further ones follow at [`ORIGIN_INTERVAL_MS`].
pub const ORIGIN_BURST: u32 = 20;
/// One further record of an origin and kind is passed on per this many milliseconds.
pub const ORIGIN_INTERVAL_MS: u64 = 10_000;
/// Most turns of one sync session: 20 times what moving a full ledger takes.
pub const SYNC_TURNS: u32 = 4_096;
/// Most ranges that one sync session may have open: 16 below each of the ranges of one frame.
pub const SYNC_RANGES: usize = 65_536;
/// Most peers whose addresses are remembered across restarts.
pub const REMEMBERED_PEERS: usize = 1_024;
/// Links that a node chooses by itself, at random among the members that it knows (design, section 5).
pub const OWN_LINKS: usize = 3;
/// A node goes to outer doors after it had fewer members as peers than it needs for so long, in milliseconds: a day, so that
/// no outage of a network or a site makes it (design, section 10).
pub const OUTER_AFTER_MS: u64 = 86_400_000;
/// As many members with a protocol in common are enough to live in the mesh: what a node keeps as its own links.
pub const OUTER_MEMBERS: usize = OWN_LINKS;
/// A visit at an outer door that has not ended by then never will, in milliseconds: more than the keeper allows.
pub const VISIT_LONGEST_MS: u64 = 20 * 60 * 1_000;
/// Most certificates kept: the two newest of each node, those that rosters name, and proof of conflicts.
pub const CERTIFICATES: usize = 3 * NODES;
/// Largest frame between neighbours, in bytes.
pub const FRAME_BYTES: usize = 512 * 1024;
/// Most neighbours connected at once.
pub const PEERS: usize = 64;
/// A sequence may exceed the highest one known by at most this much (case K4).
pub const SEQUENCE_JUMP: u64 = 1_000_000;
/// Largest integer that canonical JSON can carry exactly.
pub const JSON_INTEGER: u64 = (1 << 53) - 1;
/// A listed node unheard of for this long is dormant, in seconds.
pub const DORMANT_SECONDS: u64 = 7 * 86_400;
/// Deepest nesting of a canonical JSON value; documents need 5.
pub const JSON_DEPTH: usize = 32;
/// Most rosters kept: those that rollouts in force name, and the chain that leases need.
pub const ROSTERS: usize = 64;
/// Most generations of one rollout that one key alone may stack on each other. More need the threshold.
pub const BRAKES: usize = 16;
/// Longest life of an enrollment token, in seconds: 90 days.
pub const TOKEN_SECONDS: u64 = 90 * 86_400;
/// Longest notes of a release, in bytes.
pub const NOTES_BYTES: usize = 4 * 1024;
/// How far an `issuedAt` may lie past a plausible wall clock, in seconds.
pub const ISSUED_AHEAD_SECONDS: u64 = 86_400;

/// Largest blob in bytes: 16 GiB, so that the hash list of any blob stays at half a megabyte.
pub const BLOB_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// Blobs up to this size have small pieces, so that even a 1 MiB file can come from many peers at once.
pub const SMALL_BLOB_BYTES: u64 = 16 * 1024 * 1024;
/// Blobs up to this size have medium pieces; 200 MB is where the design starts pieces of 1 MiB.
pub const MEDIUM_BLOB_BYTES: u64 = 200 * 1000 * 1000;
/// Piece of a small blob: at most 256 of them. All piece sizes are powers of two, so that a piece is a subtree of BLAKE3.
pub const SMALL_PIECE_BYTES: u64 = 64 * 1024;
/// Piece of a medium blob: at most 1,526 of them. A piece is passed on once it is whole, so in a large fleet small pieces
/// are everywhere sooner: with 1,000 nodes it takes ten hops.
pub const MEDIUM_PIECE_BYTES: u64 = 128 * 1024;
/// Piece of a large blob; also the most that one answer of a peer can make a node hold before it is verified.
pub const LARGE_PIECE_BYTES: u64 = 1024 * 1024;
/// Most pieces of one blob: 16 GiB in pieces of 1 MiB; a hash list of 512 KiB, a bitmap of 2 KiB.
pub const BLOB_PIECES: u64 = BLOB_BYTES / LARGE_PIECE_BYTES;
/// Most bytes asked of one peer and not yet here: 40 ms at 400 Mbit/s, or 400 ms at 40 Mbit/s.
pub const BLOB_WINDOW_BYTES: u64 = 2 * 1024 * 1024;
/// Most pieces asked of one peer and not yet here, whatever their size: bounds the requests queued in a stream.
pub const BLOB_WINDOW_PIECES: usize = 16;
/// Refusals of a piece that a peer said it has, after which it is not asked any more: files do vanish, but not often.
pub const BLOB_REFUSALS: u32 = 8;

/// Most neighbours that one blob is exchanged with: so many that among 1,000 nodes nearly every one lacks something that
/// another neighbour has, until the end.
pub const BLOB_NEIGHBOURS: usize = 40;
/// How many members a node that fetches a blob sees to it that it is linked with, if there are as many. Twice as many make no
/// virtual swarm of 40 or 100 nodes faster, and each link costs traffic.
pub const BLOB_COMPANY: usize = 16;
/// Most bytes of a piece in one message: at 2 Mbit/s a word waits a quarter of a second behind it.
pub const BLOB_PART_BYTES: usize = 64 * 1024;
/// Most pieces announced in one message.
pub const BLOB_NEWS: usize = 256;
/// Most pieces in one offer: enough that one of them is new to a neighbour that is served by many.
pub const BLOB_OFFERED: usize = 8;
/// Most offers to one neighbour that wait for an answer: 2 MiB of small pieces while an answer is on its way.
pub const BLOB_OPEN_OFFERS: usize = 16;
/// Most pieces on their way here at once.
pub const BLOB_EXPECTED_PIECES: usize = 256;
/// Most bytes on their way here at once: what one download may hold in memory before it is verified.
pub const BLOB_EXPECTED_BYTES: u64 = 16 * 1024 * 1024;
/// Most bytes of one blob that were sent and not acknowledged, to all neighbours together. Nobody has more of it than is left
/// to all others, so that those who take much and acknowledge nothing share half of it and leave the rest.
pub const BLOB_WIRE_BYTES: u64 = 16 * 1024 * 1024;
/// Promises in a row that a neighbour took back before a byte came, after which it is given up: it may promise what is about
/// to arrive there, and each loss upstream costs it a few of them at once.
pub const BLOB_TAKEN_BACK: u32 = 16;
/// Pieces that a neighbour takes and calls off, without acknowledging as much as one piece meanwhile, after which it is given
/// up: each may have cost a read. All that is offered to it at once may be called off a few times over.
pub const BLOB_CALLED_OFF: u32 = 64;
/// Promised pieces in a row that did not come, after which a neighbour is given up.
pub const BLOB_BROKEN: u32 = 4;

const _: () = assert!(STATUS_BYTES < FRAME_BYTES && GRANTS_BYTES < FRAME_BYTES);
const _: () = assert!(DOCUMENT_BYTES < FRAME_BYTES, "one document fits one frame");
const _: () = assert!(LOG_TAIL_BYTES * 4 < STATUS_BYTES, "the tail never crowds out the facts");
const _: () = assert!(PROMISES * 168 < GRANTS_BYTES, "a full warden can still sign what it promised");
const _: () = assert!(SIGNATURES >= ROLE_KEYS && SIGNATURES_TRIED >= 1);
const _: () = assert!(2 * ROSTER_CHAIN <= ROSTERS as u64, "the chain since the settled roster fits, rivals included");
const _: () = assert!(SIGNATURES * 256 < PUBLISHED_ROSTER_BYTES - ROSTER_BYTES.div_ceil(3) * 4, "a full roster can be signed");
const _: () =
    assert!(SMALL_PIECE_BYTES.is_power_of_two() && MEDIUM_PIECE_BYTES.is_power_of_two() && LARGE_PIECE_BYTES.is_power_of_two());
const _: () = assert!(
    2 * BLOB_COMPANY <= BLOB_NEIGHBOURS && BLOB_NEIGHBOURS <= PEERS,
    "those who come find room beside those who were called"
);
const _: () = assert!(BLOB_WINDOW_BYTES >= LARGE_PIECE_BYTES, "the window takes at least one piece");
const _: () =
    assert!(SMALL_BLOB_BYTES / SMALL_PIECE_BYTES <= BLOB_PIECES && MEDIUM_BLOB_BYTES / MEDIUM_PIECE_BYTES < BLOB_PIECES);

//! The frames between agent and helper: their form, their bounds, and nothing else.
//!
//! ```text
//! version (1 byte) · kind (1 byte) · length (4 bytes, big endian) · body (length bytes)
//! ```
//!
//! A document's body is its published form; all others are postcard. Bodies are bounded by kind before anything is
//! allocated, and must be used up to the last byte. Numbers of kinds and the order of variants are for ever; new ones come last,
//! and whoever does not know them refuses the frame; any other change raises the version. Golden bytes: `agent/tests/it/helper_frames.rs`.

use groundswell_core::digest::Digest;
use groundswell_core::install::Contents;
use groundswell_core::limits::PUBLISHED_ROSTER_BYTES;
use groundswell_core::node::input::WentBack;
use groundswell_core::number::Sequence;
use groundswell_core::record::ClaimName;
use groundswell_core::record::status::Running;
use groundswell_core::text::{Product, Reason};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The only version that there is.
pub const VERSION: u8 = 1;
/// Version, kind, length.
pub const HEADER_BYTES: usize = 6;
/// Largest order: a reason of 500 characters, names and digests.
pub const ORDER_BYTES: usize = 4 * 1024;
/// Largest reply: a state with 32 builds that failed, two reasons, two paths.
pub const REPLY_BYTES: usize = 32 * 1024;

const _: () = assert!(ORDER_BYTES > 4 * groundswell_core::limits::REASON_CHARS + 1024, "any reason fits an order");
const _: () = assert!(PUBLISHED_ROSTER_BYTES <= u32::MAX as usize, "any document's length fits the header");

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the agent: a published document.
    Document,
    /// From the agent: an [`Order`].
    Order,
    /// From the helper: a [`Reply`].
    Reply,
}

impl Kind {
    /// Its number in the header.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Document => 1,
            Self::Order => 2,
            Self::Reply => 3,
        }
    }

    /// Most bytes of its body.
    #[must_use]
    pub fn most_bytes(self) -> usize {
        match self {
            Self::Document => PUBLISHED_ROSTER_BYTES,
            Self::Order => ORDER_BYTES,
            Self::Reply => REPLY_BYTES,
        }
    }
}

/// A header that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What follows.
    pub kind: Kind,
    /// How much of it, in bytes; within the kind's bound.
    pub length: usize,
}

/// Why bytes are no frame. Nothing was allocated for them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Another version.
    #[error("version {0} is not spoken here, only {VERSION}")]
    Version(u8),
    /// A kind that does not exist, or not in this direction.
    #[error("a frame of kind {0} is not expected")]
    Kind(u8),
    /// Longer than its kind may be.
    #[error("a frame of {found} bytes; at most {most} are read of its kind")]
    TooLarge {
        /// Announced.
        found: usize,
        /// Allowed.
        most: usize,
    },
    /// The body is not what the kind says.
    #[error("a body that cannot be read: {0}")]
    Body(String),
    /// An open file came with what does not take one, or more than one.
    #[error("an open file came along that was not asked for")]
    File,
}

impl Header {
    /// The bytes of a header.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let length = u32::try_from(self.length).unwrap_or(u32::MAX).to_be_bytes();
        let [a, b, c, d] = length;
        [VERSION, self.kind.number(), a, b, c, d]
    }

    /// Reads a header; `expected` says which kinds may come in this direction.
    ///
    /// # Errors
    /// [`FrameError`], the version first.
    pub fn decode(bytes: [u8; HEADER_BYTES], expected: &[Kind]) -> Result<Self, FrameError> {
        let [version, number, length @ ..] = bytes;
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        let kind = expected.iter().copied().find(|kind| kind.number() == number).ok_or(FrameError::Kind(number))?;
        let found = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let most = kind.most_bytes();
        if found > most { Err(FrameError::TooLarge { found, most }) } else { Ok(Self { kind, length: found }) }
    }
}

/// What the agent asks for, each about one product.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// What slots and journal say. Answered by [`Reply::State`].
    State {
        /// The product.
        product: Product,
    },
    /// Copy the open file that comes with this order into the idle slot.
    Stage {
        /// The product.
        product: Product,
        /// Body digest of the release.
        release: Digest,
    },
    /// Switch to what is staged, and start it on trial.
    Activate {
        /// The product.
        product: Product,
        /// Body digest of the release.
        release: Digest,
        /// The claim under which it happens, for the hooks' environment.
        claim: ClaimName,
    },
    /// Make what is on trial the good version, and its sequence the floor.
    Confirm {
        /// The product.
        product: Product,
        /// Body digest of the release.
        release: Digest,
    },
    /// Go back to the last confirmed version.
    Revert {
        /// The product.
        product: Product,
        /// Body digest of the release to leave.
        release: Digest,
        /// Why.
        reason: Reason,
        /// Whether the release is to blame, and so denied from then on.
        at_fault: bool,
    },
    /// The last upgrade that went back for a fault of its build. Answered by [`Reply::Failed`]; helpers from before it was there
    /// take it for no frame.
    Failed {
        /// The product.
        product: Product,
    },
}

impl Order {
    /// The product.
    #[must_use]
    pub fn product(&self) -> &Product {
        match self {
            Self::State { product }
            | Self::Stage { product, .. }
            | Self::Activate { product, .. }
            | Self::Confirm { product, .. }
            | Self::Revert { product, .. }
            | Self::Failed { product } => product,
        }
    }
}

/// What the helper answers: one reply to each document and each order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The document is kept.
    Taken {
        /// Its body digest.
        digest: Digest,
        /// It was not here before, or has signatures that were not.
        fresh: bool,
    },
    /// Nothing was done.
    Refused {
        /// What kind of refusal.
        why: Why,
        /// In words.
        text: Reason,
    },
    /// What there is.
    State(State),
    /// The order was carried out, or failed on the way; and what there is now.
    Done {
        /// What it came to.
        outcome: Outcome,
        /// What there is now.
        state: State,
    },
    /// The last upgrade that went back for a fault of its build, where there was one: whoever asked for it may have ended before
    /// it could write that down.
    Failed(Option<LastFailure>),
    /// What there is, in the middle of a way back that has not ended. Agents from before this was there take the reply for none, and
    /// ask again until it has: the state alone would tell them that all is at rest.
    GoesBack(GoingBack, State),
}

/// Kinds of refusal: what the agent does about them differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// The frame is none, or of a version that is not spoken; the connection ends.
    Frame,
    /// Too many connections; try again.
    Busy,
    /// The helper ends; try again.
    Stopping,
    /// The product is not in the helper's configuration.
    Product,
    /// The document is refused.
    Document,
    /// No document in force lets this node install it.
    Warrant,
    /// Documents let it, but not now.
    Held,
    /// The build failed here before, and no generation lets it be tried again.
    Denied,
    /// The open file is missing or is not a regular file of the signed size.
    File,
    /// The helper's own disk takes no writes; try again.
    Disk,
}

/// What an order came to: the device's reports in the helper's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The idle slot holds the release.
    Staged,
    /// It does not.
    StageFailed {
        /// For want of space.
        disk_full: bool,
        /// Why.
        reason: Reason,
    },
    /// The release runs on trial.
    Activated,
    /// It was not switched to, or not started.
    ActivateFailed {
        /// Why, with the last lines of output.
        reason: Reason,
        /// The release is to blame, or may be. A disk that takes no writes says nothing of it.
        at_fault: bool,
    },
    /// The release is good.
    Confirmed,
    /// It is not on trial, or nothing is known of why it cannot be confirmed.
    ConfirmFailed {
        /// Why.
        reason: Reason,
    },
    /// The old version runs again.
    Reverted {
        /// What runs now.
        running: Option<Running>,
        /// The last lines of output of what was left.
        output: Reason,
    },
    /// The disk does not let it be finished now; ask again.
    Again,
    /// The helper ends in the middle; its next start goes on.
    Stopping,
    /// What has to agree before it is confirmed does not. Agents from before this was there take the reply for none, and ask
    /// again until it agrees, or the helper's next start goes back.
    ConfirmRefused {
        /// Why.
        reason: Reason,
    },
}

/// What slots and journal of one product say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// What runs.
    pub running: Option<Running>,
    /// The floor.
    pub floor: Sequence,
    /// The release on trial.
    pub trial: Option<Digest>,
    /// What the helper's own start took back, and why.
    pub reverted: Option<TakenBack>,
    /// The release that waits in the idle slot, checked.
    pub staged: Option<Digest>,
    /// What failed here, oldest first, each by its release and by its build: at most 64.
    pub denied: Vec<Digest>,
    /// What `current` leads to, for health checks.
    pub launch: Option<Launched>,
}

/// A trial that a start of the helper ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenBack {
    /// Body digest of its release.
    pub release: Digest,
    /// Why.
    pub reason: Reason,
    /// The release is to blame, or may be. Otherwise it could not be tried, and nothing is known of it.
    pub at_fault: bool,
}

/// A way back that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoingBack {
    /// Body digest of the release that is left.
    pub release: Digest,
    /// Why.
    pub reason: Reason,
    /// The release is to blame, or may be.
    pub at_fault: bool,
    /// The claim under which it was activated.
    pub claim: Option<ClaimName>,
}

/// An upgrade that went back for a fault of its build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastFailure {
    /// The claim under which it was activated.
    pub claim: ClaimName,
    /// Body digest of its release.
    pub release: Digest,
    /// Why.
    pub reason: Reason,
}

impl From<WentBack> for LastFailure {
    fn from(WentBack { claim, release, reason }: WentBack) -> Self {
        Self { claim, release, reason }
    }
}

impl From<LastFailure> for WentBack {
    fn from(LastFailure { claim, release, reason }: LastFailure) -> Self {
        Self { claim, release, reason }
    }
}

/// A version that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launched {
    /// Which.
    pub contents: Contents,
    /// The folder of its slot.
    pub slot: String,
    /// Its binary.
    pub binary: String,
    /// The claim under which it is activated.
    pub claim: Option<ClaimName>,
    /// Whether it is on trial.
    pub trial: bool,
}

/// The body of an order.
#[must_use]
pub fn encode_order(order: &Order) -> Vec<u8> {
    encode(order)
}

/// Reads the body of an order.
///
/// # Errors
/// [`FrameError::Body`].
pub fn decode_order(body: &[u8]) -> Result<Order, FrameError> {
    decode(body)
}

/// The body of a reply.
#[must_use]
pub fn encode_reply(reply: &Reply) -> Vec<u8> {
    encode(reply)
}

/// Reads the body of a reply.
///
/// # Errors
/// [`FrameError::Body`].
pub fn decode_reply(body: &[u8]) -> Result<Reply, FrameError> {
    decode(body)
}

fn encode<T: Serialize>(content: &T) -> Vec<u8> {
    postcard::to_allocvec(content).expect("plain data of ours can always be written to memory")
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(body) {
        Ok((content, [])) => Ok(content),
        Ok((_, rest)) => Err(FrameError::Body(format!("{} bytes are left over", rest.len()))),
        Err(error) => Err(FrameError::Body(error.to_string())),
    }
}

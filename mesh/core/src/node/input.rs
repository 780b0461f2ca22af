//! Everything that can happen to a node: one closed enum.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::node_id::NodeId;
use crate::number::Sequence;
use crate::record::ClaimName;
use crate::record::status::{HoldNotice, Running};
use crate::text::{Product, Reason};

/// Everything that can happen to a node.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Input {
    /// Time passed: a wakeup asked for by `next_wakeup`, or an early one.
    Wake,
    /// A published document in any form, from anywhere; nothing about it is trusted yet.
    Document {
        /// The envelope's bytes.
        bytes: Vec<u8>,
        /// Where it came from; a ticket gets an [`super::effect::Effect::Answer`].
        source: Source,
    },
    /// The published form of a roster asked for by [`super::effect::Effect::FetchRoster`], from anywhere.
    Roster {
        /// The envelope's bytes.
        bytes: Vec<u8>,
        /// Where it came from.
        source: Source,
    },
    /// A peer proved its certificate and has a neighbour link now.
    PeerUp {
        /// Who.
        peer: NodeId,
        /// Whether this node dialled.
        dialled: bool,
        /// The address at which it was reached, when this node dialled.
        address: Option<String>,
    },
    /// The last link to a peer closed.
    PeerDown {
        /// Who.
        peer: NodeId,
    },
    /// A dial ended at a peer that had a link already, or at a member that has no place for one more: the answer to [`super::effect::Effect::Dial`] in place of
    /// [`Input::PeerUp`].
    Reached {
        /// Who answered there.
        peer: NodeId,
        /// The address.
        address: String,
    },
    /// A dial led to no connection: the answer to [`super::effect::Effect::Dial`] where there was no [`Input::PeerUp`].
    DialFailed {
        /// Who was expected.
        peer: Option<NodeId>,
        /// The addresses of the effect.
        addresses: Vec<String>,
    },
    /// A frame of the neighbour protocol from an admitted peer.
    Frame {
        /// From whom.
        peer: NodeId,
        /// Its bytes, at most [`crate::limits::FRAME_BYTES`].
        bytes: Vec<u8>,
    },
    /// Records that the keeper of an outer door showed on a visit: each alone, or the two of a proof.
    Shown {
        /// Who showed them; its identity the handshake proved, nothing more.
        keeper: NodeId,
        /// Their bytes.
        records: Vec<Vec<Vec<u8>>>,
    },
    /// How a visit ended: the answer to [`super::effect::Effect::Visit`], after all that it brought.
    Visited {
        /// At whose door, if anybody was reached.
        keeper: Option<NodeId>,
        /// How.
        end: VisitEnd,
    },
    /// A status record that a member handed over at the outer door, because it is too old for the mesh's protocol.
    Pushed {
        /// Who brought it: its writer, or it has no effect (S7).
        peer: NodeId,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// This node's own dialable addresses changed.
    Addresses(Vec<String>),
    /// A fact from the device about one product.
    Device {
        /// The product.
        product: Product,
        /// The fact.
        report: Report,
    },
    /// The set of whole blobs that this node can serve changed.
    Serves(BTreeSet<Digest>),
    /// The process is about to end in order: what this node said last goes out now, or a slot that it has just given
    /// back would look taken until it returns.
    Stopping,
}

/// How a visit at an outer door ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisitEnd {
    /// Everything that the keeper has for this node is here: documents, and records of both kinds. Counts only at a member's
    /// door.
    Complete,
    /// Only what a stranger gets, or not all.
    Partial,
    /// Nobody was there, or nothing was given.
    Failed,
}

/// Where bytes came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Gossip, from this peer; the mesh waits for the answer before it forwards.
    Gossip {
        /// Who delivered it.
        peer: NodeId,
        /// Names the message in the answer.
        ticket: u64,
    },
    /// A peer, over another protocol.
    Peer(NodeId),
    /// The keeper of an outer door, on a visit; the visit gets an answer.
    Visit {
        /// Who gave it; its identity the handshake proved, nothing more.
        keeper: NodeId,
        /// Names the document in the answer.
        ticket: u64,
    },
    /// This machine: the local API or a tool; gets an answer.
    Local {
        /// Names the request in the answer.
        ticket: u64,
    },
    /// The node's own store or configuration at start.
    Store,
}

impl Source {
    /// Who delivered it; `None` for what was here, or was handed over here.
    pub(super) fn peer(&self) -> Option<NodeId> {
        match self {
            Self::Gossip { peer, .. } | Self::Peer(peer) | Self::Visit { keeper: peer, .. } => Some(*peer),
            Self::Local { .. } | Self::Store => None,
        }
    }
}

/// Facts from the device, each about one product. The device executes; it decides nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// What the slots and the journal say, first thing after every start, once recovery is done.
    Recovered(Recovered),
    /// The artifact is whole and its digest was checked: answer to `Step::Fetch`.
    Fetched {
        /// SHA-256 of the artifact.
        sha256: Digest,
    },
    /// The download goes on, but no peer can give a piece now.
    NoSource {
        /// SHA-256 of the artifact.
        sha256: Digest,
    },
    /// The download failed for a reason that waiting alone does not cure.
    FetchFailed {
        /// SHA-256 of the artifact.
        sha256: Digest,
        /// What kind of failure.
        fault: Fault,
        /// Why.
        reason: Reason,
    },
    /// The idle slot holds the verified artifact: answer to `Step::Stage`.
    Staged {
        /// Body digest of the release.
        release: Digest,
    },
    /// Staging failed: answer to `Step::Stage`.
    StageFailed {
        /// Body digest of the release.
        release: Digest,
        /// What kind of failure.
        fault: Fault,
        /// Why.
        reason: Reason,
    },
    /// The new version was started: answer to `Step::Activate`. Health reports follow.
    Activated {
        /// Body digest of the release.
        release: Digest,
    },
    /// The switch or start failed: answer to `Step::Activate`. The core answers with `Step::Revert`.
    ActivateFailed {
        /// Body digest of the release.
        release: Digest,
        /// Why, with the last lines of output.
        reason: Reason,
        /// The release is to blame, or may be. A disk that takes no writes says nothing of it: it is tried again later.
        at_fault: bool,
    },
    /// The running version's health changed, or was probed for the first time.
    Health(Health),
    /// The slot is marked good, durably: answer to `Step::Confirm`.
    Confirmed {
        /// Body digest of the release.
        release: Digest,
    },
    /// Nothing was marked good, and nothing will be: answer to `Step::Confirm` where what it names is not on trial. The
    /// core answers with `Step::Revert`. What merely takes longer is not told.
    ConfirmFailed {
        /// Body digest of the release.
        release: Digest,
        /// Why.
        reason: Reason,
        /// The release is to blame, or may be; as in `ActivateFailed`.
        at_fault: bool,
    },
    /// The old version runs again: answer to `Step::Revert`.
    Reverted {
        /// Body digest of the release that was left.
        release: Digest,
        /// What runs now.
        running: Option<Running>,
        /// The last lines of output of what was left.
        output: Reason,
    },
    /// Local reasons not to be disrupted now: windows, inhibit files, disk, locks. Replaces the last set.
    Blocked(Vec<HoldNotice>),
    /// The operator's local say on versions changed.
    Policy(LocalPolicy),
}

/// Kinds of failure before activation: what the core does about them differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No space: held, tried again for as long as it takes (case B2).
    DiskFull,
    /// Anything else: tried again with a growing pause, a few times.
    Broken,
}

/// What the slots say after a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// What runs now.
    pub running: Option<Running>,
    /// The floor kept with the slots; the core keeps the higher of it and its own.
    pub floor: Sequence,
    /// A trial that is running and not confirmed: body digest of its release.
    pub trial: Option<Digest>,
    /// A trial on whose way back the old version does not start: body digest of its release, why it is left, and whether that is
    /// to blame. It is gone on with by [`Step::Revert`](super::effect::Step::Revert), or something else comes in its place.
    pub going_back: Option<Box<(Digest, Reason, bool)>>,
    /// A trial that was reverted by recovery: body digest of its release, and why.
    pub reverted: Option<(Digest, Reason)>,
    /// That release is to blame, or may be. Otherwise it could not be tried, and nothing is known of it.
    pub at_fault: bool,
    /// The claim under which that was activated, where the device knows it: the same release may be tried again under another.
    pub claim: Option<ClaimName>,
    /// The last upgrade that went back for a fault of its build. It is said again at every start: what was told of the end may
    /// be lost.
    pub failed: Option<Box<WentBack>>,
    /// The idle slot holds this release, verified.
    pub staged: Option<Digest>,
    /// What failed on this device, oldest first, each by its release and by its build
    /// ([`Denied::named`](crate::install::Denied::named)): the device's own list outlives the node's store (case I1).
    pub denied: Vec<Digest>,
}

impl Recovered {
    /// Of a device that has nothing under way, nothing staged, and of which nothing failed.
    #[must_use]
    pub fn at_rest(running: Option<Running>, floor: Sequence) -> Self {
        Self {
            running,
            floor,
            trial: None,
            going_back: None,
            reverted: None,
            at_fault: true,
            claim: None,
            failed: None,
            staged: None,
            denied: Vec::new(),
        }
    }
}

/// An upgrade that went back for a fault of its build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WentBack {
    /// The claim under which it was activated. It does not name the build: where a way back did not end another release takes the
    /// place of the one that failed, under the same claim.
    pub claim: ClaimName,
    /// Body digest of its release.
    pub release: Digest,
    /// Why it went back.
    pub reason: Reason,
}

/// Health of the running version, as its own check sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It passes.
    Healthy,
    /// It fails for its thresholds.
    Failing(Reason),
    /// It cannot be judged: throttled (429), or the network alone is at fault. Reverts nothing.
    Unknown(Reason),
}

/// The local say on versions (capabilities B13, B17).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalPolicy {
    /// Only this version may be installed.
    pub version_lock: Option<String>,
    /// Something else delivers this product: observe only.
    pub observe_only: bool,
}

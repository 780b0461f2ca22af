//! Everything that a node asks of its driver: one closed enum, run strictly in order.
//!
//! `Persist` is durable before the next effect runs; the core emits it before what depends on it.
//! That is how "persist before publish" holds by construction.

use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::documents::Kind;
use crate::documents::rejection::Rejection;
use crate::documents::release::Artifact;
use crate::node::hold::Hold;
use crate::node::visiting::Why;
use crate::node_id::NodeId;
use crate::record::status::{Outcome, Phase};
use crate::record::{ClaimName, Stamp};
use crate::text::{Pool, Product, Reason, RolloutId, Version};

/// One thing to do.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Write `value` under `key` (`None` removes it) and make it durable before going on.
    Persist {
        /// Where.
        key: Vec<u8>,
        /// What.
        value: Option<Vec<u8>>,
    },
    /// Publish a document by gossip.
    Gossip {
        /// Its envelope.
        bytes: Vec<u8>,
    },
    /// Answer the source of a document.
    Answer {
        /// The ticket of the source.
        ticket: u64,
        /// What became of it.
        outcome: Result<Accepted, Rejection>,
    },
    /// Send a frame to a neighbour; dropped when the link is gone (sync repairs it).
    Send {
        /// To whom.
        peer: NodeId,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Connect to a member at one of these addresses.
    Dial {
        /// Who is expected there.
        peer: Option<NodeId>,
        /// Where, most likely first.
        addresses: Vec<String>,
    },
    /// Visit an outer door: bring what it has as `Input::Document`, `Input::Roster` and `Input::Shown`, hand over `push`
    /// where this node is a member, and say how it ended by `Input::Visited`. One at a time.
    Visit {
        /// Whose; `None` for whoever is at the address.
        peer: Option<NodeId>,
        /// Where, most likely first.
        addresses: Vec<String>,
        /// This node's own status record.
        push: Option<Vec<u8>>,
    },
    /// Close all connections to a peer.
    Hangup {
        /// Whom.
        peer: NodeId,
        /// Why, for the log.
        reason: Reason,
    },
    /// Fetch the published form of a roster from any peer and bring it as `Input::Roster`.
    FetchRoster {
        /// Its body digest.
        digest: Digest,
        /// Its body's size in bytes.
        size_bytes: u64,
    },
    /// Something to do with a product's slots.
    Device {
        /// The product.
        product: Product,
        /// What.
        step: Step,
    },
    /// Something worth telling: the event stream, the log, metrics.
    Event(Event),
}

/// What became of a document that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// New here, and stored.
    New(Digest),
    /// Known already; more signatures may have been added.
    Known(Digest),
}

/// What a device does. Each is answered by a [`super::input::Report`] of the matching name, also after a failure.
/// `Confirm` and `Revert` may be asked for again while no answer comes: doing them twice is doing them once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Get the artifact from peers into the blob store and check its sha256.
    Fetch {
        /// Body digest of the release.
        release: Digest,
        /// What to get.
        artifact: Artifact,
    },
    /// Stop a fetch.
    CancelFetch {
        /// SHA-256 of the artifact.
        sha256: Digest,
    },
    /// Copy the artifact into the idle slot, checking its sha256 again.
    Stage {
        /// What to stage.
        install: Install,
    },
    /// Check the staged file's digest on the open descriptor, switch, start, and watch health.
    Activate {
        /// What to activate.
        install: Install,
        /// The claim under which it happens, for the hooks' environment.
        claim: ClaimName,
        /// How long the rollout gives it to be confirmed, in milliseconds: for what goes back by itself when nobody decides.
        within_ms: u64,
    },
    /// Mark the running slot good and raise the floor.
    Confirm {
        /// Body digest of the release.
        release: Digest,
    },
    /// Go back to the last confirmed slot.
    Revert {
        /// Body digest of the release to leave.
        release: Digest,
        /// Why.
        reason: Reason,
        /// Whether the release is to blame: the device then keeps it among those that failed.
        at_fault: bool,
    },
}

/// Everything that the device needs to know of a release to install it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// Body digest of the release.
    pub release: Digest,
    /// Its version.
    pub version: Version,
    /// Its sequence.
    pub sequence: crate::number::Sequence,
    /// The bare binary for this node's platform.
    pub artifact: Artifact,
}

/// Things worth telling. Each has a stable `kind` in the event stream; the agent adds time and number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A document came into force.
    DocumentAccepted {
        /// Its kind.
        kind: Kind,
        /// Its body digest.
        digest: Digest,
    },
    /// A document was refused.
    DocumentRejected {
        /// From which peer, if any.
        peer: Option<NodeId>,
        /// Why.
        rejection: Rejection,
    },
    /// Two bodies under one identity.
    DocumentConflict {
        /// Their kind.
        kind: Kind,
        /// Their digests.
        digests: [Digest; 2],
    },
    /// A frame was refused; the peer loses standing.
    FrameRejected {
        /// From which peer.
        peer: NodeId,
        /// Why.
        reason: Reason,
    },
    /// This node moved from one phase to another.
    PhaseChanged {
        /// The product.
        product: Product,
        /// The rollout, if one counts.
        rollout: Option<RolloutId>,
        /// Before.
        from: Phase,
        /// After.
        to: Phase,
        /// Why it holds, where it does.
        hold: Option<Hold>,
        /// Why, for failures.
        reason: Option<Reason>,
    },
    /// This node signed a verdict.
    VerdictSigned {
        /// The product.
        product: Product,
        /// The rollout.
        rollout: RolloutId,
        /// The verdict.
        outcome: Outcome,
        /// Why.
        reason: Reason,
    },
    /// As seen here, a wave opened.
    WaveOpened {
        /// The rollout.
        rollout: RolloutId,
        /// The wave, from 0.
        wave: u32,
    },
    /// As seen here, a wave passed.
    WavePassed {
        /// The rollout.
        rollout: RolloutId,
        /// The wave, from 0.
        wave: u32,
    },
    /// As seen here, the rollout is halted.
    Halted {
        /// The rollout.
        rollout: RolloutId,
        /// The wave whose ratio is exceeded.
        wave: u32,
        /// Failures in it.
        failures: u32,
        /// Members to which it applies.
        applicable: u32,
    },
    /// As seen here, the halt is over.
    Unhalted {
        /// The rollout.
        rollout: RolloutId,
    },
    /// This node, as a warden, granted a slot.
    Granted {
        /// The pool.
        pool: Pool,
        /// The slot.
        slot: u16,
        /// To whom.
        holder: NodeId,
        /// For which claim.
        claim: ClaimName,
    },
    /// A promise of this warden ended.
    GrantEnded {
        /// The pool.
        pool: Pool,
        /// The slot.
        slot: u16,
        /// Whose it was.
        holder: NodeId,
        /// Why it ended.
        why: Reason,
    },
    /// A node signed two records under one stamp: it counts for nothing any more.
    Convicted {
        /// The node.
        node: NodeId,
        /// The stamp.
        stamp: Stamp,
    },
    /// This node's store was set back: peers hold newer records of it.
    SetBack {
        /// The incarnation that it goes on under.
        incarnation: u64,
    },
    /// This node's status is too large to publish: too many products are configured here.
    StatusTooLarge {
        /// How large it would be, signed.
        size_bytes: usize,
    },
    /// This node begins to live through outer doors, or lives in the mesh again.
    OuterDoor {
        /// Why it begins; `None` when it ends.
        why: Option<Why>,
    },
    /// A member came or went.
    Peer {
        /// Who.
        peer: NodeId,
        /// Whether it is connected now.
        up: bool,
    },
}

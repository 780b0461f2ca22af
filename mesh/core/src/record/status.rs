//! The status record: what a node runs, where it stands in its rollout, what it claims, what it vouches for.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::ClaimName;
use crate::digest::Digest;
use crate::number::Sequence;
use crate::text::{Pool, Product, Reason, RolloutId, Version};
use crate::time::Timestamp;

/// Body of a status record. At most [`crate::limits::STATUS_BYTES`] signed and encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Where this node can be dialled, at most 8.
    pub addresses: Vec<String>,
    /// Mesh protocol versions that it speaks.
    pub protocols: Vec<u16>,
    /// Metered: serves nobody.
    pub lean: bool,
    /// One section per product that is configured on the node.
    pub products: BTreeMap<Product, Section>,
    /// Blobs that it can serve whole.
    pub serves: Vec<Digest>,
    /// The last lines of its log, at most 200 bytes.
    pub log: String,
}

/// A node's standing with one product.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// What runs; `None` before the first install.
    pub running: Option<Running>,
    /// What ran before the upgrade that this section tells of.
    pub from: Option<Running>,
    /// The floor: never runs anything older again.
    pub floor: Sequence,
    /// The rollout that counts for this node, and the digest of the generation that it obeys.
    pub rollout: Option<RolloutSeen>,
    /// Where it stands in that rollout.
    pub phase: Phase,
    /// Why it does not move.
    pub hold: Option<HoldNotice>,
    /// The claim that stands; none when nothing is claimed.
    pub claim: Option<Claim>,
    /// When the upgrade in progress started, by its own wall clock.
    pub started_at: Option<Timestamp>,
    /// Verdicts of rollouts, at most 8, oldest first.
    pub verdicts: Vec<Verdict>,
}

/// A version that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its version.
    pub version: Version,
    /// Its sequence.
    pub sequence: Sequence,
    /// Body digest of its release.
    pub release: Digest,
}

/// The generation that a node has seen and obeys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutSeen {
    /// The rollout.
    pub id: RolloutId,
    /// The generation's number.
    pub generation: u64,
    /// The generation's body digest.
    pub digest: Digest,
}

/// Where a node stands in a rollout (design, section 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// No rollout counts for it.
    #[default]
    Idle,
    /// Held; the hold says why.
    Waiting,
    /// Downloading.
    Fetching,
    /// Has the verified artifact.
    Staged,
    /// Has published a claim and collects grants.
    Claiming,
    /// May touch its running version: disrupted.
    Activating,
    /// The new version was healthy for `confirmAfter`; soaking.
    Confirmed,
    /// Vouched.
    Soaked,
    /// Back on the old version.
    RolledBack,
    /// Gave up, before or after activation.
    Failed,
    /// The rollout does not apply here; may end.
    Skipped,
}

/// A hold as records carry it: its code, and its end where that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldNotice {
    /// The code.
    pub code: HoldCode,
    /// When it ends, where known.
    pub until: Option<Timestamp>,
}

macro_rules! hold_codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a node does not move, as one word (shown by `explain` with its details).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum HoldCode { $($(#[$doc])* $name,)* }

        impl HoldCode {
            /// Every code, in the order in which they are written down.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The code as it is written.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

hold_codes! {
    /// No valid fleet document.
    NoFleet = "no-fleet",
    /// This node has no valid certificate.
    NoCertificate = "no-certificate",
    /// The rollout's roster has not arrived.
    RosterMissing = "roster-missing",
    /// The rollout's release has not arrived.
    ReleaseMissing = "release-missing",
    /// Two bodies under one identity.
    Conflict = "conflict",
    /// The rollout is paused.
    Paused = "paused",
    /// The rollout is aborted.
    Aborted = "aborted",
    /// Too many failures.
    Halted = "halted",
    /// A document expired.
    Expired = "expired",
    /// An earlier wave has not passed.
    WaveShut = "wave-shut",
    /// Nobody of an earlier wave has said anything.
    NoEvidence = "no-evidence",
    /// The wave's start time has not come.
    NotBefore = "not-before",
    /// The wave waits for a signed advance.
    Approval = "approval",
    /// Outside the maintenance window.
    Window = "window",
    /// A local file inhibits upgrades.
    Inhibited = "inhibited",
    /// Too little space.
    DiskFull = "disk-full",
    /// Downloading.
    Fetching = "fetching",
    /// The artifact cannot be had from any peer now.
    NoSource = "no-source",
    /// Not yet in touch with enough wardens after a start.
    Syncing = "syncing",
    /// The store was set back; waits before it takes part in leases again.
    Amnesia = "amnesia",
    /// The roster changed; wardens do not declare the newer one yet.
    RosterChange = "roster-change",
    /// Every slot of the pool is taken.
    SlotsTaken = "slots-taken",
    /// Waits for its turn in the wave's order.
    Queued = "queued",
    /// Waits for grants of its wardens.
    Granting = "granting",
    /// This node's own configuration asks for more signatures.
    LocalTrust = "local-trust",
    /// Beyond the guard rails that root signed.
    Limits = "limits",
    /// A newer release blocks this one.
    Blocked = "blocked",
    /// What runs here is a dead end.
    DeadEnd = "dead-end",
    /// Backs off after a failure before activation.
    Retry = "retry",
    /// The node is convicted of equivocation.
    Convicted = "convicted",
    /// The policy asks for a feature that this agent does not have.
    Unsupported = "unsupported",
    /// On the version already, and its own health check fails; or on trial beyond its time, and no check can judge it.
    Unhealthy = "unhealthy",
    /// The store or slots cannot be written.
    DeviceFault = "device-fault",
    /// What it would have to say of an upgrade does not fit its record.
    StatusTooLarge = "status-too-large",
    /// The product is the agent itself, and no supervisor runs it.
    NoSupervisor = "no-supervisor",
}

impl fmt::Display for HoldCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A claim on a slot of a pool's budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its name: the stamp of the record that first carried it.
    pub name: ClaimName,
    /// Random, so that a set-back store cannot repeat a name unnoticed.
    pub nonce: u64,
    /// The pool whose budget it uses.
    pub pool: Pool,
    /// The slot; `None` for the repair of a node that is down already.
    pub slot: Option<u16>,
    /// Body digest of the roster that fixes the slot's wardens.
    pub roster: Digest,
    /// What for.
    pub purpose: Purpose,
}

/// What a claim is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// A generation of a rollout, by body digest.
    Rollout(Digest),
    /// Other disruption, e.g. `reboot`.
    Other(Reason),
}

/// How a rollout ended at a node. Later variants outrank earlier ones (monotone per node, rollout and claim).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Healthy on the new version for the whole soak.
    Soaked,
    /// Back on the old version.
    RolledBack,
    /// Failed, before activation or by a regression after it.
    Failed,
}

/// A node's verdict on a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The rollout.
    pub rollout: RolloutId,
    /// Its claim; `None` for a verdict that needed none.
    pub claim: Option<ClaimName>,
    /// The verdict.
    pub outcome: Outcome,
    /// Why, with the last lines of output where there are any, at most 200 bytes.
    pub reason: Reason,
    /// When it confirmed, by its own wall clock.
    pub confirmed_at: Option<Timestamp>,
    /// When it vouched.
    pub soaked_at: Option<Timestamp>,
}

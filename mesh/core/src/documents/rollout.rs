//! The rollout descriptor: moves a scope of nodes to a release in waves (design, section 6).

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::tag::{RolloutType, Spec1};
use crate::digest::Digest;
use crate::node_id::NodeId;
use crate::number::{Generation, Ppm, Sequence};
use crate::record::ClaimName;
use crate::text::{LabelKey, LabelValue, Pool, Product, Reason, RolloutId, Version};
use crate::time::Timestamp;
use crate::trust::key::ListedKey;

/// Body of a `groundswell.rollout`: one generation of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rollout {
    /// Always `groundswell.rollout`.
    #[serde(rename = "type")]
    pub kind: RolloutType,
    /// Always 1.
    pub spec: Spec1,
    /// The fleet's id.
    pub fleet: Digest,
    /// The rollout's id, the same in all its generations.
    pub id: RolloutId,
    /// 1, 2, 3 …
    pub generation: Generation,
    /// Digest of the generation before; null in the first.
    pub previous: Option<Digest>,
    /// Apply, or only rehearse.
    pub mode: Mode,
    /// Running, paused, aborted.
    pub state: State,
    /// With `aborted`: send back the nodes that have not confirmed.
    pub rollback: bool,
    /// Why, for people.
    pub reason: Reason,
    /// Through windows, over metered links, with the urgent budget.
    pub urgent: bool,
    /// Only nodes that run this version; null: any.
    pub from: Option<Version>,
    /// What it moves to.
    pub release: ReleaseRef,
    /// Whom it may move: all its generations name the same roster.
    pub roster: RosterRef,
    /// Which listed nodes are candidates.
    pub scope: Scope,
    /// Attributes hashed instead of the node id, so that equal values stay together.
    pub hash_attributes: Vec<String>,
    /// Nodes that carry all of these labels stand behind the others: waves are filled from the others first. Absent: nobody.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub wary: BTreeMap<LabelKey, LabelValue>,
    /// 1 to 64 waves.
    pub waves: Vec<Wave>,
    /// A manual wave whose index is not below this stays shut.
    pub open_waves: u32,
    /// A wave passes only when this share of its applicable members soaked.
    pub min_soaked_ppm: Ppm,
    /// When to halt.
    pub halt: Halt,
    /// Health must hold this long before a node confirms, in seconds.
    pub confirm_after_seconds: u64,
    /// The watchdog decides within this time of the start, in seconds.
    pub upgrade_timeout_seconds: u64,
    /// A revert may take this much more, in seconds.
    pub revert_timeout_seconds: u64,
    /// A due node unheard of for this long is excused, in seconds of the observer's up time.
    pub offline_after_seconds: u64,
    /// How much later than due a node may vouch, in seconds.
    pub grace_seconds: u64,
    /// Nodes of later waves fetch ahead.
    pub prefetch: bool,
    /// When its nodes may start; empty: always.
    pub windows: Vec<Window>,
    /// Proof of soak of another environment that it asks for; filled by promotion.
    pub promotion: Option<Promotion>,
    /// Failures that operators accept; each generation contains its predecessor's.
    pub forgiven: Vec<Forgiven>,
    /// When it was signed.
    pub issued_at: Timestamp,
    /// Nothing starts under it after this.
    pub expires_at: Timestamp,
    /// The keys that its signers used.
    pub keys: Vec<ListedKey>,
}

/// What a rollout does at its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Upgrade.
    Apply,
    /// Fetch, verify, report readiness; activate nothing.
    Rehearse,
}

/// What a generation tells its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Go on as the gates allow.
    Running,
    /// Nothing starts.
    Paused,
    /// Nothing starts, for good.
    Aborted,
}

/// The release that a rollout moves to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseRef {
    /// Its product.
    pub product: Product,
    /// Its version.
    pub version: Version,
    /// Its sequence.
    pub sequence: Sequence,
    /// Its body digest.
    pub digest: Digest,
}

/// The roster that a rollout counts over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RosterRef {
    /// Its version.
    pub version: u64,
    /// Its *body* digest.
    pub digest: Digest,
    /// Size in bytes of its body; it bounds the fetch.
    pub size: u64,
}

/// Which listed nodes are candidates: those in any of `pools` (empty: all) that carry all labels of `match`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scope {
    /// Pool names, sorted; empty for all.
    pub pools: Vec<Pool>,
    /// Labels that a node must carry.
    #[serde(rename = "match")]
    pub labels: BTreeMap<LabelKey, LabelValue>,
}

/// One wave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wave {
    /// Nodes named by an attribute's values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Hosts>,
    /// Nodes that carry all these labels.
    #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<LabelKey, LabelValue>>,
    /// Cumulative share of the candidates, above 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent_ppm: Option<Ppm>,
    /// How long its nodes must stay healthy, in seconds.
    pub soak_seconds: u64,
    /// It waits this long after the wave before it passed, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<u64>,
    /// It does not open before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// It opens only when an operator signs the advance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

/// Who opens a wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Approval {
    /// A person who signs an advance.
    Manual,
}

/// Nodes named by an attribute's values. `name`, `node`, `pool`, `platform` or a label key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hosts {
    /// The attribute.
    pub attribute: String,
    /// Its values.
    pub values: Vec<String>,
}

/// When a rollout halts by itself: `failures ≥ minFailures` and `failures · 10^6 > maxFailurePpm · applicable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Halt {
    /// 0: any failure halts. 1,000,000: none does.
    pub max_failure_ppm: Ppm,
    /// Fewer failures than this never halt; at least 1.
    pub min_failures: u32,
}

/// A failure that operators accept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Forgiven {
    /// The node.
    pub node: NodeId,
    /// The claim, and with it every earlier one of that node; null for a failure before any claim.
    pub claim: Option<ClaimName>,
    /// Let that node try again.
    pub retry: bool,
}

/// A maintenance window: a weekly range or a cron expression with a time zone (capability B14).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Window {
    /// A weekly range or cron expression.
    pub when: String,
    /// IANA time zone.
    pub zone: String,
    /// Length in seconds, for cron expressions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length_seconds: Option<u64>,
}

/// Proof of soak of another environment (capability B15).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Promotion {
    /// The other fleet.
    pub fleet: Digest,
    /// What it must have soaked.
    pub environment: String,
}

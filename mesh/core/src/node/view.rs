//! What a node can show of itself and of the mesh as it sees it: plain data with a stable JSON form.
//!
//! These are the schema of every `--json` output and of the local API. They are built on demand, never stored.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::node_id::NodeId;
use crate::record::ClaimName;
use crate::record::status::{HoldCode, Outcome, Phase};
use crate::time::Timestamp;

/// This node: `swell status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Its id.
    pub node: NodeId,
    /// Its certified name; null without a certificate.
    pub name: Option<String>,
    /// Its pool; null for an observer.
    pub pool: Option<String>,
    /// Its platform.
    pub platform: Option<String>,
    /// The fleet's id.
    pub fleet: Digest,
    /// Version of the fleet document in force.
    pub fleet_version: Option<u64>,
    /// When that expires.
    pub fleet_expires_at: Option<Timestamp>,
    /// The newest roster known here.
    pub roster_version: Option<u64>,
    /// Expiry is judged at the later of this and the wall clock.
    pub floor_time: Timestamp,
    /// Connected members.
    pub peers: u32,
    /// Members whose status is known here, this node included.
    pub members: u32,
    /// Why this node lives through other nodes' outer doors, in words; null while it lives in the mesh.
    #[serde(default)]
    pub outer_door: Option<String>,
    /// One entry per product.
    pub products: Vec<ProductView>,
}

/// One product on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProductView {
    /// The product.
    pub product: String,
    /// The version that runs; null before the first install.
    pub version: Option<String>,
    /// Its sequence.
    pub sequence: Option<u64>,
    /// The floor.
    pub floor: u64,
    /// The rollout that counts here.
    pub rollout: Option<String>,
    /// Its generation.
    pub generation: Option<u64>,
    /// The version it moves to.
    pub target: Option<String>,
    /// This node's wave, from 0; null when it is in none.
    pub wave: Option<u32>,
    /// Where it stands.
    pub phase: Phase,
    /// Why it does not move.
    pub hold: Option<HoldView>,
    /// Its claim.
    pub claim: Option<ClaimName>,
    /// The slot of its claim.
    pub slot: Option<u16>,
}

/// A hold in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldView {
    /// Its code.
    pub code: HoldCode,
    /// One line for people.
    pub text: String,
    /// When it ends, where known.
    pub until: Option<Timestamp>,
}

/// One rollout as seen here: `swell rollouts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutView {
    /// Its id.
    pub id: String,
    /// Its highest generation known here.
    pub generation: u64,
    /// `running`, `paused`, `aborted`.
    pub state: String,
    /// Why, as its operators said.
    pub reason: String,
    /// The product.
    pub product: String,
    /// The version.
    pub version: String,
    /// The sequence.
    pub sequence: u64,
    /// The release's body digest.
    pub release: Digest,
    /// The roster's version.
    pub roster_version: u64,
    /// Whether a newer rollout took over all its nodes.
    pub superseded: bool,
    /// Whether its last wave has passed, as seen here.
    pub complete: bool,
    /// Set while it is halted: why.
    pub halted: Option<String>,
    /// Its waves.
    pub waves: Vec<WaveView>,
    /// Its candidates, in the order of waves.
    pub nodes: Vec<NodeRow>,
}

/// One wave of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaveView {
    /// From 0.
    pub index: u32,
    /// Whether it is the implicit last one, of nodes that the rollout's roster does not list.
    pub implicit: bool,
    /// Whether its nodes may start, halts and holds aside.
    pub open: bool,
    /// Whether it has passed.
    pub passed: bool,
    /// Why it is not open, or what it waits for to pass, or why it passed without evidence.
    pub note: String,
    /// Members that are in it and in no earlier one.
    pub members: u32,
    /// To whom it does not apply.
    pub not_applicable: u32,
    /// Signed nothing naming this generation or a later one.
    pub unseen: u32,
    /// Seen, and not started.
    pub waiting: u32,
    /// With a claim, activating, or confirmed and soaking.
    pub in_progress: u32,
    /// Vouched.
    pub soaked: u32,
    /// Failed, rolled back, or silent.
    pub failed: u32,
    /// Forgiven.
    pub forgiven: u32,
    /// Of unseen and waiting: excused as offline.
    pub excused: u32,
}

/// One node of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// Its id.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// Its wave, from 0.
    pub wave: u32,
    /// How the gate counts it.
    pub standing: Standing,
    /// Its phase as it last said.
    pub phase: Option<Phase>,
    /// Its hold as it last said.
    pub hold: Option<HoldCode>,
    /// What it ran before.
    pub from_version: Option<String>,
    /// What it runs.
    pub version: Option<String>,
    /// When its upgrade started.
    pub started_at: Option<Timestamp>,
    /// When it confirmed.
    pub confirmed_at: Option<Timestamp>,
    /// When it vouched.
    pub soaked_at: Option<Timestamp>,
    /// The claim that it holds or that its verdict is about: what `forgiven` names.
    pub claim: Option<ClaimName>,
    /// Its verdict.
    pub outcome: Option<Outcome>,
    /// Why it failed.
    pub error: Option<String>,
}

/// How a gate counts a member (design, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// The rollout does not apply to it.
    NotApplicable,
    /// It has signed nothing that names this generation or a later one.
    Unseen,
    /// Seen, not started.
    Waiting,
    /// With a claim, activating, or confirmed and not yet vouched for.
    InProgress,
    /// Vouched.
    Soaked,
    /// Failed, rolled back, or silent.
    Failed,
    /// Failed and accepted: out of every count.
    Forgiven,
}

/// One slot of a pool: `swell leases`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseView {
    /// The pool.
    pub pool: String,
    /// The slot, from 0.
    pub slot: u16,
    /// Its holder or claimant; null when it looks free.
    pub holder: Option<NodeId>,
    /// The holder's name.
    pub name: Option<String>,
    /// The claim.
    pub claim: Option<ClaimName>,
    /// The holder's phase as it last said.
    pub phase: Option<Phase>,
    /// What for: a rollout id or a reason.
    pub purpose: Option<String>,
    /// Grants seen for that claim.
    pub grants: u32,
    /// Grants needed.
    pub quorum: u32,
    /// The slot's wardens.
    pub wardens: u32,
    /// Version of the roster under which this is so.
    pub roster_version: u64,
    /// What older rosters keep it shut for; null when nothing does.
    pub waits_for: Option<String>,
    /// Seconds of this node's up time since the holder was last heard.
    pub heard_seconds: Option<u64>,
    /// When it ends if the holder stays silent, in seconds of up time; null: never, or not silent.
    pub presumed_lost_in_seconds: Option<u64>,
}

/// The newest roster as seen here, and how far leases have moved to it: what cutting the next one needs to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RosterView {
    /// The fleet's id.
    pub fleet: Digest,
    /// Its version.
    pub version: u64,
    /// Its body digest; of rivals, both.
    pub digests: Vec<Digest>,
    /// The version that this node has declared as a warden; null: none.
    pub declared: Option<u64>,
    /// Why this node declares no newer one.
    pub hold: Option<String>,
    /// What the next roster may call settled: promises under all older ones have ended in every slot (section 7, rule 8).
    pub settled: u64,
    /// What keeps `settled` from being `version`; null: nothing.
    pub waits_for: Option<String>,
}

/// One member as seen here: `swell peers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerView {
    /// Its id.
    pub node: NodeId,
    /// Its name.
    pub name: Option<String>,
    /// Its pool.
    pub pool: Option<String>,
    /// Whether it is connected now.
    pub connected: bool,
    /// Its addresses, from its own record.
    pub addresses: Vec<String>,
    /// Seconds of this node's up time since its status last changed here.
    pub heard_seconds: Option<u64>,
    /// Whether it is convicted of equivocation.
    pub convicted: bool,
    /// Versions it runs, `product version`.
    pub running: Vec<String>,
    /// Blobs that it says it can serve whole.
    pub serves: Vec<Digest>,
    /// Whether it is metered: it passes nothing on.
    #[serde(default)]
    pub lean: bool,
}

/// Why this node does not move: `swell explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The product.
    pub product: String,
    /// One line: what it is doing or waiting for.
    pub summary: String,
    /// Its hold.
    pub hold: Option<HoldView>,
    /// The facts behind it, one per line, most telling first.
    pub facts: Vec<String>,
    /// What would move it, one per line.
    pub ways_out: Vec<String>,
}

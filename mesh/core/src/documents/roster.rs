//! The roster: a signed, numbered list of the fleet's nodes with the pools' policy.
//!
//! Cut by the tools, carried as a blob, named by digest. Name, pool, labels and platform come from certificates alone.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::rejection::{Reason, Rejection};
use super::rollout::Window;
use super::rule::{ascending, at_most, integer, listed_keys, positive};
use super::tag::{RosterType, Spec1};
use crate::digest::Digest;
use crate::limits::{ADDRESS_BYTES, MEET, NODES, ROSTER_CHAIN};
use crate::node_id::NodeId;
use crate::number::Ppm;
use crate::text::Pool;
use crate::time::Timestamp;
use crate::trust::key::ListedKey;

/// Body of a `groundswell.roster`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Roster {
    /// Always `groundswell.roster`.
    #[serde(rename = "type")]
    pub kind: RosterType,
    /// Always 1.
    pub spec: Spec1,
    /// The fleet's id.
    pub fleet: Digest,
    /// 1, 2, 3 …
    pub version: u64,
    /// Digests of the version before: none for version 1, two to settle rivals.
    pub previous: Vec<Digest>,
    /// The version up to which all older rosters' promises are known to have ended (section 7, rule 8).
    pub settled: u64,
    /// When it was signed.
    pub issued_at: Timestamp,
    /// The keys that its signers used.
    pub keys: Vec<ListedKey>,
    /// Policy per pool.
    pub pools: BTreeMap<Pool, PoolPolicy>,
    /// The nodes, sorted by id.
    pub nodes: Vec<Listed>,
    /// Ids that left and never return, sorted.
    pub removed: Vec<NodeId>,
    /// Claims that are written off.
    pub written_off: Vec<WrittenOff>,
    /// At most 16 dialable addresses.
    pub meet: Vec<String>,
}

/// One listed node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Listed {
    /// The node.
    pub id: NodeId,
    /// Body digest of its certificate.
    pub certificate: Digest,
    /// Unheard of for 7 days when the roster was cut.
    pub dormant: bool,
}

/// A claim that holds nothing any more, nor does any earlier one of that node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenOff {
    /// The node.
    pub node: NodeId,
    /// The claim's name.
    pub claim: crate::record::ClaimName,
}

/// How a pool may be disrupted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolPolicy {
    /// Share of the pool's listed nodes that may be disrupted at once; at least one node always may.
    pub budget_ppm: Ppm,
    /// The same for urgent rollouts; not below `budgetPpm`.
    pub urgent_budget_ppm: Ppm,
    /// A holder starts within this many seconds of its claim or withdraws. 60; 2,400 where nodes are lean.
    pub start_within_seconds: u64,
    /// A holder unheard of for this long is presumed lost, in seconds of a warden's up time. 0: never.
    pub presume_lost_after_seconds: u64,
    /// Whom a slot's wardens are drawn from.
    pub wardens: Wardens,
    /// When nodes of the pool may be disrupted; empty: always.
    pub windows: Vec<Window>,
}

/// Whom a slot's wardens are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Wardens {
    /// The pool's own nodes, so that a site cut off can go on.
    Pool,
    /// All listed nodes of the fleet.
    Fleet,
}

impl PoolPolicy {
    fn validate(&self, field: &str) -> Result<(), Rejection> {
        if self.urgent_budget_ppm < self.budget_ppm {
            return Err(Rejection::malformed(format!("{field}.urgentBudgetPpm"), "must not lie below budgetPpm"));
        }
        positive(self.start_within_seconds, &format!("{field}.startWithinSeconds"))?;
        integer(self.presume_lost_after_seconds, &format!("{field}.presumeLostAfterSeconds"))?;
        Window::validate_all(&self.windows, &format!("{field}.windows"))
    }
}

impl Default for PoolPolicy {
    fn default() -> Self {
        let five_percent = Ppm::new(50_000).expect("50,000 is below 1,000,000");
        Self {
            budget_ppm: five_percent,
            urgent_budget_ppm: five_percent,
            start_within_seconds: 60,
            presume_lost_after_seconds: 86_400,
            wardens: Wardens::Pool,
            windows: Vec::new(),
        }
    }
}

impl Roster {
    /// The rules that need no other document.
    ///
    /// # Errors
    /// `malformed` or `too-large`, naming the field.
    pub fn validate(&self) -> Result<(), Rejection> {
        positive(self.version, "version")?;
        let previous = self.previous.len();
        if (self.version == 1) != (previous == 0) || previous > 2 {
            return Err(Rejection::malformed("previous", "none in version 1; later the version before, or both of two rivals"));
        }
        ascending(&self.previous, "previous")?;
        // A roster that nobody can have declared yet settles nothing.
        if self.settled >= self.version && self.version > 1 || self.settled > 1 && self.version == 1 {
            return Err(Rejection::malformed("settled", format!("must lie below version {}", self.version)));
        }
        if self.version.saturating_sub(self.settled) > ROSTER_CHAIN {
            let detail = format!("lies more than {ROSTER_CHAIN} versions below {}: retire wardens that are off", self.version);
            return Err(Rejection::new(Reason::TooLarge, "settled", detail));
        }
        listed_keys(&self.keys)?;
        at_most(self.pools.len(), NODES, "pools")?;
        self.pools.iter().try_for_each(|(pool, policy)| policy.validate(&format!("pools.{pool}")))?;
        at_most(self.nodes.len(), NODES, "nodes")?;
        ascending(self.nodes.iter().map(|node| node.id), "nodes")?;
        at_most(self.removed.len(), NODES, "removed")?;
        ascending(&self.removed, "removed")?;
        if let Some(index) = self.removed.iter().position(|id| self.listed(id).is_some()) {
            return Err(Rejection::malformed(format!("removed[{index}]"), "is listed in nodes too: what left never returns"));
        }
        at_most(self.written_off.len(), NODES, "writtenOff")?;
        ascending(self.written_off.iter().map(|entry| (entry.node, entry.claim)), "writtenOff")?;
        at_most(self.meet.len(), MEET, "meet")?;
        match self.meet.iter().position(|address| address.is_empty() || address.len() > ADDRESS_BYTES) {
            Some(index) => {
                Err(Rejection::malformed(format!("meet[{index}]"), format!("an address of 1 to {ADDRESS_BYTES} bytes")))
            }
            None => Ok(()),
        }
    }

    /// Whether `node` is listed.
    #[must_use]
    pub fn listed(&self, node: &NodeId) -> Option<&Listed> {
        self.nodes.binary_search_by(|listed| listed.id.cmp(node)).ok().and_then(|index| self.nodes.get(index))
    }
}

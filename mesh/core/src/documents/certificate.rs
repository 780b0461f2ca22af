//! The node certificate: which key is which node, in which pool, with which labels.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rejection::Rejection;
use super::rule::{at_most, expiry, positive};
use super::tag::{NodeType, Spec1};
use crate::digest::Digest;
use crate::limits::LABELS;
use crate::node_id::NodeId;
use crate::text::{LabelKey, LabelValue, NodeName, Platform, Pool};
use crate::time::Timestamp;

/// Body of a `groundswell.node`. The highest serial of a node counts; two bodies of one serial void both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Certificate {
    /// Always `groundswell.node`.
    #[serde(rename = "type")]
    pub kind: NodeType,
    /// Always 1.
    pub spec: Spec1,
    /// The fleet's id.
    pub fleet: Digest,
    /// The node's key.
    pub node: NodeId,
    /// 1, 2, 3 …
    pub serial: u64,
    /// When it was signed.
    pub issued_at: Timestamp,
    /// Optional end.
    pub expires_at: Option<Timestamp>,
    /// The node's name for people.
    pub name: NodeName,
    /// Its pool; null for an observer.
    pub pool: Option<Pool>,
    /// Its platform.
    pub platform: Platform,
    /// At most 32 labels; the channel is one.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// Final: the node counts for nothing any more.
    pub retired: bool,
}

impl Certificate {
    /// The rules that need no other document.
    ///
    /// # Errors
    /// `malformed` or `too-large`, naming the field.
    pub fn validate(&self) -> Result<(), Rejection> {
        positive(self.serial, "serial")?;
        at_most(self.labels.len(), LABELS, "labels")?;
        self.expires_at.map_or(Ok(()), |expires_at| expiry(self.issued_at, expires_at))
    }

    /// An operator's certificate: sees and publishes, is in no pool.
    #[must_use]
    pub fn is_observer(&self) -> bool {
        self.pool.is_none()
    }
}

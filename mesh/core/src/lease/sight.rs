//! What the lease rules see of the mesh: a narrow window on records, documents and silence.
//!
//! The node implements it over its ledger, its shelf and its presence; tests over plain maps.

use core::fmt;

use crate::node_id::NodeId;
use crate::record::grants::{Grants, Promise};
use crate::record::status::Status;
use crate::record::{ClaimName, Stamp};

/// The mesh as one node sees it now.
pub trait Sight {
    /// The newest status of a node and its stamp; `None` when none is known, or the node is convicted.
    fn status(&self, node: &NodeId) -> Option<(Stamp, &Status)>;
    /// The newest grants of a node. Of a convict: what it listed when last it was believed.
    fn grants(&self, node: &NodeId) -> Option<&Grants>;
    /// Every promise that a node lists, those of both records that convict it included: what it listed is still honoured.
    fn promises<'a>(&'a self, node: &NodeId) -> impl Iterator<Item = &'a Promise> + 'a;
    /// Whether the node signed two records under one stamp.
    fn is_convicted(&self, node: &NodeId) -> bool;
    /// Whether documents say that the node is gone for good.
    fn gone(&self, node: &NodeId) -> Option<Gone>;
    /// This observer's up time since it knows that the node is gone, in milliseconds; `None`: it is not, as far as it knows.
    fn gone_for_ms(&self, node: &NodeId) -> Option<u64>;
    /// The highest claim of the node that is named in `forgiven` of any valid rollout or `writtenOff` of any roster.
    /// Entries with a null claim do not count here: they end no grant.
    fn written_off(&self, node: &NodeId) -> Option<ClaimName>;
    /// This observer's up time since the node's status last changed, in milliseconds; `None`: nothing to count from.
    fn unheard_ms(&self, node: &NodeId) -> Option<u64>;
}

/// Why a node is gone for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Its certificate says `retired`.
    Retired,
    /// The fleet document revokes it.
    Revoked,
    /// A roster lists it as removed.
    Removed,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Retired => "retired",
            Self::Revoked => "revoked",
            Self::Removed => "removed from the roster",
        })
    }
}

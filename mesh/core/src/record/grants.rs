//! The grants record: what a node has promised as a warden, and under which roster.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::ClaimName;
use crate::digest::Digest;
use crate::node_id::NodeId;
use crate::text::Pool;

/// Body of a grants record. At most [`crate::limits::GRANTS_BYTES`] signed and encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grants {
    /// Body digest of the newest roster that this warden has declared.
    pub declared: Option<Digest>,
    /// Every promise that has not ended, sorted by pool and slot.
    pub promises: Vec<Promise>,
}

/// One promise: the slot is its holder's until the warden sees it end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Promise {
    /// The pool.
    pub pool: Pool,
    /// The slot.
    pub slot: u16,
    /// Who may disrupt itself.
    pub holder: NodeId,
    /// For this very claim.
    pub claim: ClaimName,
    /// The claim's nonce.
    pub nonce: u64,
    /// The claim's roster.
    pub roster: Digest,
}

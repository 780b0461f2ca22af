//! Who may speak: the question that the mesh asks its owner about every peer, right after the handshake.
//!
//! The exchange itself is in `door`; what a peer gets that is not let in, in [`crate::outer`]. What a proof is (a node certificate's envelope) is the owner's business.

use std::sync::Arc;

use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;

use crate::outer::OuterSource;

/// Answers whether a peer is a member of this fleet. Called from connection tasks, so it must not block for long:
/// verifying a few signatures is fine, waiting for IO is not.
pub trait Admission: Send + Sync + 'static {
    /// The fleet that this node belongs to. A peer that names another one is refused before its proof is looked at.
    fn fleet(&self) -> Digest;

    /// What proves this node's membership to others: at most [`crate::config::PROOF_BYTES`].
    /// Asked for each connection, so a renewed certificate is used at once.
    fn own_proof(&self) -> Vec<u8>;

    /// Whether `peer` is a member by what is known here already, whatever it shows: then [`Admission::admit`] costs nothing.
    /// All others wait their turn to be looked at. Whoever knows nobody says `false`.
    fn knows(&self, peer: NodeId) -> bool {
        let _ = peer;
        false
    }

    /// Whether `proof` makes `peer` a member. The handshake has shown that the peer holds the key of `peer`.
    ///
    /// # Errors
    /// The reason, which is told to the peer too (cut to 200 bytes): a reason code and one line, no secrets.
    fn admit(&self, peer: NodeId, proof: &[u8]) -> Result<(), String>;

    /// What this node gives at its outer door; `None` where it has none. Asked once, at the start.
    fn outer(&self) -> Option<Arc<dyn OuterSource>> {
        None
    }
}

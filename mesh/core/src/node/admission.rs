//! Whether a peer may enter: it proves its certificate right after the handshake, and has no effect before (S7).

use super::Node;
use crate::crypto::Crypto;
use crate::documents::Body;
use crate::documents::rejection::{Reason, Rejection};
use crate::node_id::NodeId;
use crate::time::Timestamp;
use crate::trust::shelf::Shelf;

impl Node {
    /// The published form of this node's newest certificate: what it shows to peers. `None` without one.
    #[must_use]
    pub fn own_proof(&self) -> Option<&[u8]> {
        let mine = self.shelf.certificates().find(|(_, certificate)| certificate.node == self.me);
        mine.and_then(|(digest, _)| self.shelf.envelope(&digest))
    }
}

/// Whether `peer`, whose key the handshake proved, may enter with `proof`, the published form of its certificate.
///
/// Judged against `shelf`; nothing is stored: give the proof to [`Node::handle`] as a document afterwards. A certificate
/// that is known here already outranks an older one in the proof, so a retired node stays out.
///
/// # Errors
/// Why it may not: `fleet`, `unknown-key`, `threshold`, `revoked`, `expired`, …
pub fn admit(shelf: &Shelf, peer: &NodeId, proof: &[u8], wall: Timestamp, crypto: &dyn Crypto) -> Result<(), Rejection> {
    if shelf.member(peer, wall).is_ok() {
        return Ok(());
    }
    // Before anything is copied: whoever knocks with anything else than its own certificate, signed as it must be, is a stranger.
    if !matches!(shelf.judge(proof, crypto)?, Body::Node(certificate) if certificate.node == *peer) {
        return Err(Rejection::new(Reason::Malformed, "node", "the proof is not the certificate of this peer"));
    }
    let mut trial = shelf.clone();
    trial.offer(proof, false, wall, crypto)?;
    trial.member(peer, wall).map(|_| ())
}

//! Whether a peer may enter: it proves its certificate right after the handshake, and has no effect before (S7).

use super::Node;
use crate::crypto::Crypto;
use crate::documents::rejection::Rejection;
use crate::node_id::NodeId;
use crate::time::Timestamp;
use crate::trust::shelf::{Shelf, Shown};

impl Node {
    /// The published form of this node's newest certificate: what it shows to peers. `None` without one.
    #[must_use]
    pub fn own_proof(&self) -> Option<&[u8]> {
        match self.shelf.newest_bodies(&self.me) {
            [one] => self.shelf.envelope(one),
            _ => None,
        }
    }
}

/// Whether `peer`, whose key the handshake proved, may enter with `proof`, the published form of its certificate.
///
/// Judged against `shelf`; nothing is stored: give the proof to [`Node::handle`] as a document afterwards. A certificate
/// that is known here already outranks an older one in the proof, so a retired node stays out. Whoever shares the shelf with
/// others takes the three steps of [`Shown`] by itself, so that they do not wait for signatures.
///
/// # Errors
/// Why it may not: `fleet`, `unknown-key`, `threshold`, `revoked`, `expired`, …
pub fn admit(shelf: &Shelf, peer: &NodeId, proof: &[u8], wall: Timestamp, crypto: &dyn Crypto) -> Result<(), Rejection> {
    if shelf.member(peer, wall).is_ok() {
        return Ok(());
    }
    let shown = Shown::look(proof, &shelf.fleet_id(), &shelf.enrolling_keys(), crypto)?;
    shelf.would_be_member(peer, &shown, wall)
}

//! The outer door, `/groundswell/door/1`: what a peer gets that cannot be admitted, for ever in the same bytes.
//!
//! A node whose certificate has expired, whose fleet document is a year old, or that speaks no protocol of today's mesh
//! can come here: it pulls what makes it a member again, and nothing that it says has any effect but its own status
//! record, if it is a member (guarantee S7). [`wire`] has the bytes, [`limits`] every bound, [`serve`] the keeper's side,
//! [`visit`] the visitor's, [`guide`] how a visitor's blobs come by the ordinary download. The negotiation is in `door`.
//! What may be given to whom is decided in [`serve`] alone.

pub(crate) mod bucket;
pub mod guide;
pub mod limits;
pub mod serve;
pub mod visit;
pub mod wire;

use std::sync::Arc;

use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::{RecordKind, Stamp};

use self::wire::{Listed, Refused, Standing};
use crate::blobs::BlobSource;

/// The protocol's name on a connection that is not admitted.
pub(crate) const PROTOCOL: &str = "/groundswell/door/1";

/// What the keeper of the door needs of its agent. All methods may block for a moment, on a lock or a disk.
pub trait OuterSource: Send + Sync + 'static {
    /// What `peer`, whose key the handshake proved, is by the documents that are here.
    fn standing(&self, peer: NodeId) -> Standing;

    /// The same with the certificate that it shows, in its published form: a few signatures to verify.
    fn prove(&self, peer: NodeId, certificate: &[u8]) -> Standing;

    /// The fleet documents of versions above `after`, lowest first; the bodies of one version beside each other. At most
    /// [`limits::LIST_ENTRIES`].
    fn fleets(&self, after: u64) -> Vec<Listed>;

    /// The newest certificate of a node; two when two bodies share its serial, none when it has none.
    fn certificate(&self, node: NodeId) -> Vec<Listed>;

    /// Documents with digests above `after`, in order; no rosters, which are had by the digest that a rollout names, and no
    /// tokens. At most [`limits::LIST_ENTRIES`].
    fn documents(&self, after: Digest) -> Vec<Listed>;

    /// Kind and length in bytes of a document's published form, and at most `most` bytes of it from `offset` on.
    fn document(&self, digest: &Digest, offset: u64, most: usize) -> Option<(Kind, u64, Vec<u8>)>;

    /// Whose records `peer` may read, above `after` in order of ids, at most [`limits::STAMP_ENTRIES`]: of `status` those of
    /// its rollouts and its pool, of `grants` those of its wardens, and its own of both.
    fn stamps(&self, peer: NodeId, kind: RecordKind, after: NodeId) -> Vec<(NodeId, Stamp)>;

    /// One record that `peer` may read, or the two of a proof; empty without one.
    fn record(&self, peer: NodeId, kind: RecordKind, node: NodeId) -> Vec<Vec<u8>>;

    /// The peer's own status record.
    ///
    /// # Errors
    /// `Record` unless it is a version-1 status record of `peer` itself and verifies; `Later`.
    fn push(&self, peer: NodeId, record: Vec<u8>) -> Result<(), Refused>;

    /// The blobs that it may have.
    fn blobs(&self) -> Arc<dyn BlobSource>;
}

//! What visitors at the outer door may have, from the documents and records in force here.
//!
//! Everything is read under the node's one lock, a page at a time; a pushed record is checked here and then goes to the
//! driver like everything else that happens.

use std::sync::{Arc, Mutex, PoisonError};

use groundswell_core::crypto::SoftwareCrypto;
use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::signed::SignedRecord;
use groundswell_core::record::{RecordKey, RecordKind, Stamp};
use groundswell_net::blobs::BlobSource;
use groundswell_net::outer::OuterSource;
use groundswell_net::outer::limits::{LIST_ENTRIES, STAMP_ENTRIES};
use groundswell_net::outer::wire::{Listed, Refused, Standing};
use tokio::sync::mpsc;

use crate::admission::SharedNode;
use crate::clock::Clock;
use crate::identity::Secret;

/// Pushed records that wait for the driver: one for each visitor that may be here, and some.
pub(crate) const PUSHES: usize = 32;

/// What a member handed over.
#[derive(Debug)]
pub(crate) enum Pushed {
    /// Its certificate, which was not known here: a document like any other.
    Certificate(NodeId, Vec<u8>),
    /// Its own status record.
    Status(NodeId, Vec<u8>),
}

/// [`OuterSource`] by the documents and records in force.
pub(crate) struct Keeper {
    node: SharedNode,
    fleet: Digest,
    clock: Clock,
    crypto: Mutex<SoftwareCrypto>,
    blobs: Arc<dyn BlobSource>,
    pushes: mpsc::Sender<Pushed>,
}

impl Keeper {
    /// The keeper, and where what is pushed comes out.
    pub(crate) fn new(
        node: SharedNode,
        fleet: Digest,
        secret: &Secret,
        blobs: Arc<dyn BlobSource>,
        clock: Clock,
    ) -> (Self, mpsc::Receiver<Pushed>) {
        let (pushes, pushed) = mpsc::channel(PUSHES);
        let crypto = Mutex::new(SoftwareCrypto::from_secret(secret));
        (Self { node, fleet, clock, crypto, blobs, pushes }, pushed)
    }

    fn listed(&self, digests: impl FnOnce(&groundswell_core::node::Node) -> Vec<(Digest, Kind)>) -> Vec<Listed> {
        let node = self.node.lock();
        let published = |digest: &Digest| node.shelf().envelope(digest).map(Digest::of);
        let listed =
            digests(&node).into_iter().filter_map(|(digest, kind)| Some(Listed { kind, digest, published: published(&digest)? }));
        listed.collect()
    }
}

impl OuterSource for Keeper {
    fn standing(&self, peer: NodeId) -> Standing {
        let node = self.node.lock();
        if node.shelf().member(&peer, self.clock.wall()).is_ok() {
            Standing::Member
        } else if node.shelf().was_member(&peer) {
            Standing::Former
        } else {
            Standing::Stranger
        }
    }

    fn prove(&self, peer: NodeId, certificate: &[u8]) -> Standing {
        let node = self.node.lock();
        let crypto = self.crypto.lock().unwrap_or_else(PoisonError::into_inner);
        let wall = self.clock.wall();
        if groundswell_core::node::admission::admit(node.shelf(), &peer, certificate, wall, &*crypto).is_ok() {
            // Not taken when the driver has much to do: it comes again with the next visit.
            drop(self.pushes.try_send(Pushed::Certificate(peer, certificate.to_vec())));
            Standing::Member
        } else if node.shelf().judge_former(&peer, certificate, &*crypto).is_ok() {
            Standing::Former
        } else {
            Standing::Stranger
        }
    }

    fn fleets(&self, after: u64) -> Vec<Listed> {
        self.listed(|node| node.shelf().fleets_after(after).take(LIST_ENTRIES).map(|digest| (digest, Kind::Fleet)).collect())
    }

    fn certificate(&self, peer: NodeId) -> Vec<Listed> {
        self.listed(|node| node.shelf().newest_bodies(&peer).iter().map(|digest| (*digest, Kind::Node)).collect())
    }

    fn documents(&self, after: Digest) -> Vec<Listed> {
        self.listed(|node| node.documents_after(after).take(LIST_ENTRIES).collect())
    }

    fn document(&self, digest: &Digest, offset: u64, most: usize) -> Option<(Kind, u64, Vec<u8>)> {
        let node = self.node.lock();
        let (published, body) = (node.shelf().envelope(digest)?, node.shelf().body(digest)?);
        let total = u64::try_from(published.len()).unwrap_or(u64::MAX);
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(published.len());
        let chunk = published.get(from..published.len().min(from.saturating_add(most)))?;
        Some((body.kind(), total, chunk.to_vec()))
    }

    fn stamps(&self, peer: NodeId, kind: RecordKind, after: NodeId) -> Vec<(NodeId, Stamp)> {
        self.node.lock().stamps_for(peer, kind, after).take(STAMP_ENTRIES).collect()
    }

    fn record(&self, peer: NodeId, kind: RecordKind, node: NodeId) -> Vec<Vec<u8>> {
        self.node.lock().record_for(peer, &RecordKey { node, kind }).into_iter().map(<[u8]>::to_vec).collect()
    }

    fn push(&self, peer: NodeId, record: Vec<u8>) -> Result<(), Refused> {
        let crypto = self.crypto.lock().unwrap_or_else(PoisonError::into_inner);
        let signed = SignedRecord::verify(&self.fleet, &record, &*crypto).map_err(|_| Refused::Record)?;
        drop(crypto);
        if signed.key() != (RecordKey { node: peer, kind: RecordKind::Status }) {
            return Err(Refused::Record);
        }
        self.pushes.try_send(Pushed::Status(peer, record)).map_err(|_| Refused::Later(1_000))
    }

    fn blobs(&self) -> Arc<dyn BlobSource> {
        Arc::clone(&self.blobs)
    }
}

//! What visitors at the outer door may have, from the documents and records in force here.
//!
//! Visitors must not slow the node down, whose one lock everything else waits for too. So under it nothing is hashed and no
//! signature is verified; lists are made once for each change of the documents, and of the records a part is looked at at a
//! time. A pushed record is checked here and then goes to the driver like everything else that happens.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use groundswell_core::crypto::SoftwareCrypto;
use groundswell_core::digest::Digest;
use groundswell_core::documents::{Body, Kind};
use groundswell_core::node::Node;
use groundswell_core::node::showing::Reads;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::signed::SignedRecord;
use groundswell_core::record::{RecordKey, RecordKind, Stamp};
use groundswell_core::trust::shelf::Shown;
use groundswell_net::blobs::BlobSource;
use groundswell_net::outer::OuterSource;
use groundswell_net::outer::limits::{FORMERS, LIST_ENTRIES, MEMBERS, STAMP_ENTRIES};
use groundswell_net::outer::wire::{Listed, Refused, Standing};
use tokio::sync::mpsc;

use crate::admission::SharedNode;
use crate::clock::Clock;
use crate::identity::Secret;

/// Records looked at before the node's lock is given back: about a millisecond.
const LOOKED_AT_ONCE: usize = 1_024;
/// Most visitors whose rights are remembered: of both kinds of records, for all who may be here.
const RIGHTS: usize = 2 * (FORMERS + MEMBERS);

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
    crypto: SoftwareCrypto,
    blobs: Arc<dyn BlobSource>,
    pushes: mpsc::Sender<Pushed>,
    published: Mutex<Arc<Published>>,
    rights: Mutex<Rights>,
}

/// What can be had, as of one revision of the documents here.
#[derive(Debug, Default)]
struct Published {
    /// `None` before it was looked at for the first time.
    revision: Option<u64>,
    /// With their versions, lowest first.
    fleets: Vec<(u64, Listed)>,
    /// Without rosters and tokens, in order of digests.
    documents: Vec<Listed>,
}

/// Whose records each visitor may read, as of one revision of the documents here.
#[derive(Debug, Default)]
struct Rights {
    revision: u64,
    reads: BTreeMap<(NodeId, RecordKind), Arc<Reads>>,
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
        let crypto = SoftwareCrypto::from_secret(secret);
        let (published, rights) = (Mutex::default(), Mutex::default());
        (Self { node, fleet, clock, crypto, blobs, pushes, published, rights }, pushed)
    }

    /// Made anew when a document has come or gone.
    fn published(&self) -> Arc<Published> {
        let mut published = lock(&self.published);
        let node = self.node.lock();
        if published.revision != Some(node.shelf().revision()) {
            *published = Arc::new(Published::of(&node));
        }
        Arc::clone(&published)
    }

    fn reads(&self, node: &Node, peer: NodeId, kind: RecordKind) -> Arc<Reads> {
        let mut rights = lock(&self.rights);
        let revision = node.shelf().revision();
        if rights.revision != revision || rights.reads.len() >= RIGHTS {
            *rights = Rights { revision, reads: BTreeMap::new() };
        }
        Arc::clone(rights.reads.entry((peer, kind)).or_insert_with(|| Arc::new(node.reads(peer, kind))))
    }
}

impl Published {
    fn of(node: &Node) -> Self {
        let shelf = node.shelf();
        let listed = |(digest, kind): (Digest, Kind)| {
            let published = shelf.published(&digest)?;
            Some(Listed { kind, digest, published })
        };
        let fleets = shelf.fleets_after(0).filter_map(|digest| match shelf.body(&digest) {
            Some(Body::Fleet(fleet)) => Some((fleet.version, listed((digest, Kind::Fleet))?)),
            _ => None,
        });
        let documents = node.documents_after(Digest([0; 32])).filter_map(listed);
        Self { revision: Some(shelf.revision()), fleets: fleets.collect(), documents: documents.collect() }
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
        let keys = self.node.lock().shelf().enrolling_keys();
        let Ok(shown) = Shown::look(certificate, &self.fleet, &keys, &self.crypto) else { return Standing::Stranger };
        let node = self.node.lock();
        if node.shelf().would_be_member(&peer, &shown, self.clock.wall()).is_ok() {
            // Not taken when the driver has much to do: it comes again with the next visit.
            drop(self.pushes.try_send(Pushed::Certificate(peer, certificate.to_vec())));
            Standing::Member
        } else if node.shelf().would_be_former(&peer, &shown).is_ok() {
            Standing::Former
        } else {
            Standing::Stranger
        }
    }

    fn fleets(&self, after: u64) -> Vec<Listed> {
        let published = self.published();
        let newer = published.fleets.iter().filter(|(version, _)| *version > after);
        newer.take(LIST_ENTRIES).map(|(_, listed)| *listed).collect()
    }

    fn certificate(&self, peer: NodeId) -> Vec<Listed> {
        let node = self.node.lock();
        let listed = |digest: &Digest| {
            let published = node.shelf().published(digest)?;
            Some(Listed { kind: Kind::Node, digest: *digest, published })
        };
        node.shelf().newest_bodies(&peer).iter().filter_map(listed).collect()
    }

    fn documents(&self, after: Digest) -> Vec<Listed> {
        let published = self.published();
        let from = published.documents.partition_point(|listed| listed.digest <= after);
        published.documents.iter().skip(from).take(LIST_ENTRIES).copied().collect()
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
        let (mut stamps, mut after) = (Vec::new(), after);
        loop {
            let mut looked_at = 0;
            {
                let node = self.node.lock();
                let reads = self.reads(&node, peer, kind);
                for (of, stamp) in node.stamps_for(&reads, after).take(LOOKED_AT_ONCE) {
                    looked_at += 1;
                    after = of;
                    stamps.extend(stamp.map(|stamp| (of, stamp)));
                    if stamps.len() >= STAMP_ENTRIES {
                        return stamps;
                    }
                }
            }
            if looked_at < LOOKED_AT_ONCE {
                return stamps;
            }
            std::thread::yield_now();
        }
    }

    fn record(&self, peer: NodeId, kind: RecordKind, of: NodeId) -> Vec<Vec<u8>> {
        let node = self.node.lock();
        let reads = self.reads(&node, peer, kind);
        node.record_for(&reads, of).into_iter().map(<[u8]>::to_vec).collect()
    }

    fn push(&self, peer: NodeId, record: Vec<u8>) -> Result<(), Refused> {
        let signed = SignedRecord::verify(&self.fleet, &record, &self.crypto).map_err(|_| Refused::Record)?;
        if signed.key() != (RecordKey { node: peer, kind: RecordKind::Status }) {
            return Err(Refused::Record);
        }
        // Its certificate waits for the driver: without that its record would be taken here and have no effect.
        if self.node.lock().shelf().member(&peer, self.clock.wall()).is_err() {
            return Err(Refused::Later(1_000));
        }
        self.pushes.try_send(Pushed::Status(peer, record)).map_err(|_| Refused::Later(1_000))
    }

    fn blobs(&self) -> Arc<dyn BlobSource> {
        Arc::clone(&self.blobs)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! A keeper of an outer door over plain memory, and visitors on pipes: the protocol without a mesh.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use groundswell_core::blob::{HashList, Layout, PieceSet};
use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::{RecordKind, Stamp};
use groundswell_net::blobs::{BlobSource, Described, Duplex, ReadError};
use groundswell_net::origin::Origin;
use groundswell_net::outer::OuterSource;
use groundswell_net::outer::serve::{OuterDoor, VisitError};
use groundswell_net::outer::wire::{self, Answer, Ask, Listed, Refused, Standing};
use tokio::task::JoinHandle;
use tokio_util::compat::TokioAsyncReadCompatExt;

pub(crate) const FLEET: Digest = Digest([1; 32]);

pub(crate) fn node(n: u8) -> NodeId {
    NodeId([n; 32])
}

/// Everything that a keeper may have: documents by digest, records, one blob.
#[derive(Default)]
pub(crate) struct Shelf {
    pub(crate) documents: BTreeMap<Digest, (Kind, Vec<u8>)>,
    pub(crate) certificates: BTreeMap<NodeId, Digest>,
    pub(crate) standings: BTreeMap<NodeId, Standing>,
    pub(crate) records: BTreeMap<(u8, NodeId), Vec<Vec<u8>>>,
    pub(crate) blob: Vec<u8>,
    pub(crate) pushed: Mutex<Vec<(NodeId, Vec<u8>)>>,
    /// How often something was looked up for an answer.
    pub(crate) looked_up: AtomicU32,
    pub(crate) pieces_read: Arc<AtomicU32>,
}

impl Shelf {
    /// A document whose body is its own name, in a published form of `length` bytes.
    pub(crate) fn add(&mut self, kind: Kind, name: &str, length: usize) -> Digest {
        let digest = Digest::of(name.as_bytes());
        let published = name.bytes().cycle().take(length).collect();
        self.documents.insert(digest, (kind, published));
        digest
    }

    fn listed(&self, digest: &Digest) -> Listed {
        let (kind, published) = &self.documents[digest];
        Listed { kind: *kind, digest: *digest, published: Digest::of(published) }
    }
}

fn number(kind: RecordKind) -> u8 {
    u8::from(kind == RecordKind::Grants)
}

impl OuterSource for Shelf {
    fn standing(&self, peer: NodeId) -> Standing {
        self.standings.get(&peer).copied().unwrap_or(Standing::Stranger)
    }
    fn prove(&self, _: NodeId, certificate: &[u8]) -> Standing {
        match certificate {
            b"once valid" => Standing::Former,
            b"renewed" => Standing::Member,
            _ => Standing::Stranger,
        }
    }
    fn fleets(&self, _: u64) -> Vec<Listed> {
        self.documents.iter().filter(|(_, (kind, _))| *kind == Kind::Fleet).map(|(digest, _)| self.listed(digest)).collect()
    }
    fn certificate(&self, node: NodeId) -> Vec<Listed> {
        self.certificates.get(&node).map(|digest| self.listed(digest)).into_iter().collect()
    }
    fn documents(&self, after: Digest) -> Vec<Listed> {
        self.documents.keys().filter(|digest| **digest > after).map(|digest| self.listed(digest)).take(2).collect()
    }
    fn document(&self, digest: &Digest, offset: u64, most: usize) -> Option<(Kind, u64, Vec<u8>)> {
        self.looked_up.fetch_add(1, Ordering::Relaxed);
        let (kind, bytes) = self.documents.get(digest)?;
        let from = usize::try_from(offset).unwrap().min(bytes.len());
        Some((*kind, bytes.len() as u64, bytes[from..bytes.len().min(from + most)].to_vec()))
    }
    fn stamps(&self, _: NodeId, kind: RecordKind, after: NodeId) -> Vec<(NodeId, Stamp)> {
        self.looked_up.fetch_add(1, Ordering::Relaxed);
        let of_kind = self.records.keys().filter(|(of, node)| *of == number(kind) && *node > after);
        of_kind.map(|(_, node)| (*node, Stamp { incarnation: 1, counter: 7 })).take(2).collect()
    }
    fn record(&self, _: NodeId, kind: RecordKind, node: NodeId) -> Vec<Vec<u8>> {
        self.records.get(&(number(kind), node)).cloned().unwrap_or_default()
    }
    fn push(&self, peer: NodeId, record: Vec<u8>) -> Result<(), Refused> {
        // As the agent does: a record is its writer's own, or nothing.
        if record.first() != Some(&peer.0[0]) {
            return Err(Refused::Record);
        }
        self.pushed.lock().unwrap().push((peer, record));
        Ok(())
    }
    fn blobs(&self) -> Arc<dyn BlobSource> {
        Arc::new(OneBlob(self.blob.clone(), Arc::clone(&self.pieces_read)))
    }
}

struct OneBlob(Vec<u8>, Arc<AtomicU32>);

impl OneBlob {
    fn layout(&self, sha256: &Digest) -> Option<Layout> {
        (Digest::of(&self.0) == *sha256).then(|| Layout::of(self.0.len() as u64).unwrap())
    }
}

impl BlobSource for OneBlob {
    fn describe(&self, sha256: &Digest) -> Option<Described> {
        let layout = self.layout(sha256)?;
        Some(Described { size_bytes: layout.size_bytes(), held: PieceSet::full(layout) })
    }
    fn hash_list(&self, sha256: &Digest) -> Option<HashList> {
        let layout = self.layout(sha256)?;
        let mut hasher = groundswell_core::blob::HashListBuilder::new(layout);
        hasher.update(&self.0);
        hasher.finish()
    }
    fn read_piece(&self, sha256: &Digest, piece: u32) -> Result<Vec<u8>, ReadError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let range = self.layout(sha256).ok_or(ReadError::NoBlob)?.range(piece).ok_or(ReadError::Beyond(piece))?;
        Ok(self.0[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()].to_vec())
    }
}

/// A visitor's end of a pipe, and how the keeper's side of the visit ended.
pub(crate) struct Visitor {
    pub(crate) stream: Box<dyn Duplex>,
    pub(crate) served: JoinHandle<Result<(), VisitError>>,
}

/// `peer` comes to the door, from a network of its own; nothing is said yet.
pub(crate) fn knock(door: &Arc<OuterDoor>, peer: NodeId) -> Visitor {
    knock_from(door, peer, Origin::V4([10, 0, peer.0[0]]))
}

/// The same from this network.
pub(crate) fn knock_from(door: &Arc<OuterDoor>, peer: NodeId, origin: Origin) -> Visitor {
    let (near, far) = tokio::io::duplex(1024);
    let door = Arc::clone(door);
    let served = tokio::spawn(async move {
        let mut far = far.compat();
        door.greet(peer, origin, &mut far).await?.serve(far).await
    });
    Visitor { stream: Box::new(near.compat()), served }
}

impl Visitor {
    /// One frame there and one back; `None` when the keeper closed.
    pub(crate) async fn raw(&mut self, message: &[u8]) -> Option<Answer> {
        wire::write_frame(&mut self.stream, message).await.ok()?;
        self.answer().await
    }

    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let frame = wire::read_frame(&mut self.stream, groundswell_net::outer::limits::FRAME_BYTES).await.ok()??;
        Some(Answer::decode(&frame).unwrap())
    }

    pub(crate) async fn ask(&mut self, ask: Ask) -> Answer {
        self.raw(&ask.encode()).await.expect("an answer")
    }

    pub(crate) async fn hello(&mut self, certificate: &[u8]) -> Answer {
        self.ask(Ask::Hello { fleet: FLEET, certificate: certificate.to_vec() }).await
    }
}

/// A visitor that was let in as what the shelf says it is.
pub(crate) async fn enter(door: &Arc<OuterDoor>, peer: NodeId) -> Visitor {
    let mut visitor = knock(door, peer);
    assert!(matches!(visitor.hello(b"").await, Answer::Welcome(_)));
    visitor
}

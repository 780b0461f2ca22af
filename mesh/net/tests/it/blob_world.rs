//! Peers in memory that hold blobs, each with its manner, and a sink that remembers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use futures::future::BoxFuture;
use groundswell_core::blob::{BlobName, HashList, HashListBuilder, Layout, PieceSet};
use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use groundswell_net::blobs::wire::{self, Answer, Request};
use groundswell_net::blobs::{
    BlobSource, Connect, ConnectError, Described, DocumentSource, Duplex, Fetcher, PieceSink, ReadError, Server, SinkError,
};
use groundswell_net::pieces::{Rates, Swarms, Terms};
use tokio::task::JoinSet;
use tokio_util::compat::TokioAsyncReadCompatExt as _;

pub(crate) const PIECE: usize = 65_536;

pub(crate) fn peer(n: u8) -> NodeId {
    NodeId([n; 32])
}

/// A blob and everything known of it.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) bytes: Vec<u8>,
    pub(crate) list: HashList,
    pub(crate) name: BlobName,
}

pub(crate) fn sample(size: usize) -> Sample {
    let bytes: Vec<u8> = (0..size).map(|i| u8::try_from((i / 5 + i % 17 + size) % 251).unwrap()).collect();
    let layout = Layout::of(u64::try_from(size).unwrap()).unwrap();
    let mut builder = HashListBuilder::new(layout);
    builder.update(&bytes);
    let list = builder.finish().unwrap();
    let name = BlobName { sha256: Digest::of(&bytes), size_bytes: layout.size_bytes(), blake3: list.root() };
    Sample { bytes, list, name }
}

impl Sample {
    pub(crate) fn layout(&self) -> Layout {
        self.list.layout()
    }

    pub(crate) fn piece(&self, piece: u32) -> Vec<u8> {
        let range = self.layout().range(piece).unwrap();
        self.bytes[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()].to_vec()
    }

    pub(crate) fn all(&self) -> PieceSet {
        PieceSet::full(self.layout())
    }

    pub(crate) fn some(&self, pieces: impl IntoIterator<Item = u32>) -> PieceSet {
        let mut set = PieceSet::empty(self.layout());
        pieces.into_iter().for_each(|piece| assert!(set.insert(piece)));
        set
    }
}

/// What a peer does when it is asked for a piece that it has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Honest,
    /// Sends the piece with one bit changed.
    Liar,
    /// Sends another hash list.
    BadList,
    /// Describes the blob with another size.
    BadSize,
    /// Says that it has everything, and refuses every piece.
    Miser,
    /// Answers everything but pieces, for which it keeps the stream open in silence.
    Stalling,
    /// Sends an answer that nobody asked for with each piece.
    Chatterbox,
}

/// A source with a manner. Counts the pieces asked of it.
pub(crate) struct Holder {
    sample: Sample,
    pub(crate) held: Mutex<PieceSet>,
    manner: Manner,
    asked: Mutex<Vec<u32>>,
    /// Where it waits for others before it gives its first piece.
    meet: Mutex<Option<Arc<Barrier>>>,
}

impl Holder {
    pub(crate) fn asked(&self) -> Vec<u32> {
        self.asked.lock().unwrap().clone()
    }
}

impl BlobSource for Holder {
    fn describe(&self, sha256: &Digest) -> Option<Described> {
        let size_bytes = self.sample.name.size_bytes + u64::from(self.manner == Manner::BadSize);
        (*sha256 == self.sample.name.sha256).then(|| Described { size_bytes, held: self.held.lock().unwrap().clone() })
    }

    fn hash_list(&self, sha256: &Digest) -> Option<HashList> {
        let list = match self.manner {
            Manner::BadList => sample(self.sample.bytes.len() - 1).list,
            _ => self.sample.list.clone(),
        };
        (*sha256 == self.sample.name.sha256).then_some(list)
    }

    fn read_piece(&self, _: &Digest, piece: u32) -> Result<Vec<u8>, ReadError> {
        self.asked.lock().unwrap().push(piece);
        let meet = self.meet.lock().unwrap().take();
        meet.map(|meet| meet.wait());
        if piece >= self.sample.layout().count() {
            return Err(ReadError::Beyond(piece));
        }
        if self.manner == Manner::Miser || !self.held.lock().unwrap().contains(piece) {
            return Err(ReadError::NotHeld(piece));
        }
        let mut bytes = self.sample.piece(piece);
        if self.manner == Manner::Liar {
            bytes[0] ^= 1;
        }
        Ok(bytes)
    }
}

impl DocumentSource for Holder {
    fn document(&self, digest: &Digest) -> Option<Vec<u8>> {
        let bytes = match self.manner {
            Manner::Liar => b"another document".to_vec(),
            _ => self.sample.bytes.clone(),
        };
        (*digest == self.sample.name.sha256).then_some(bytes)
    }
}

/// Peers by id, each behind an in-memory stream. Dropping it ends their tasks.
#[derive(Default)]
pub(crate) struct World {
    holders: Mutex<BTreeMap<NodeId, Arc<Holder>>>,
    serving: Mutex<JoinSet<()>>,
    connected: Mutex<Vec<NodeId>>,
}

impl World {
    pub(crate) fn with(peers: &[(u8, &Sample, Manner)]) -> Arc<Self> {
        let world = Arc::new(Self::default());
        peers.iter().for_each(|(n, sample, manner)| {
            world.add(*n, sample, *manner, sample.all());
        });
        world
    }

    pub(crate) fn add(&self, n: u8, sample: &Sample, manner: Manner, held: PieceSet) -> Arc<Holder> {
        let holder = Arc::new(Holder {
            sample: sample.clone(),
            held: Mutex::new(held),
            manner,
            asked: Mutex::default(),
            meet: Mutex::default(),
        });
        self.holders.lock().unwrap().insert(peer(n), Arc::clone(&holder));
        holder
    }

    pub(crate) fn holder(&self, n: u8) -> Arc<Holder> {
        Arc::clone(&self.holders.lock().unwrap()[&peer(n)])
    }

    /// None of these peers gives a piece before each of them was asked for one.
    pub(crate) fn meet(&self, peers: &[u8]) {
        let barrier = Arc::new(Barrier::new(peers.len()));
        peers.iter().for_each(|n| *self.holder(*n).meet.lock().unwrap() = Some(Arc::clone(&barrier)));
    }

    pub(crate) fn times_connected(&self, n: u8) -> usize {
        self.connected.lock().unwrap().iter().filter(|other| **other == peer(n)).count()
    }
}

impl Connect for World {
    fn connect(&self, peer: NodeId) -> BoxFuture<'static, Result<Box<dyn Duplex>, ConnectError>> {
        self.connected.lock().unwrap().push(peer);
        let holder = self.holders.lock().unwrap().get(&peer).cloned();
        let stream = holder.map(|holder| {
            let (here, there) = tokio::io::duplex(256 * 1024);
            self.serving.lock().unwrap().spawn(serve(holder, there.compat()));
            Box::new(here.compat()) as Box<dyn Duplex>
        });
        Box::pin(async move { stream.ok_or_else(|| ConnectError(format!("{peer} is not connected"))) })
    }
}

async fn serve(holder: Arc<Holder>, mut stream: impl Duplex) {
    if !matches!(holder.manner, Manner::Stalling | Manner::Chatterbox) {
        return Server::new(holder.clone(), holder).serve_stream(peer(0), stream).await;
    }
    while let Ok(Some((number, request))) = wire::read_request(&mut stream, std::time::Duration::from_secs(3_600)).await {
        let answer = match request {
            Request::Describe { blob } => {
                let described = holder.describe(&blob).unwrap();
                Answer::Description { size_bytes: described.size_bytes, held: described.held.held() }
            }
            Request::Have { blob } => Answer::Have(holder.describe(&blob).unwrap().held.as_bytes().to_vec()),
            Request::HashList { blob } => Answer::HashList(holder.hash_list(&blob).unwrap().to_bytes()),
            Request::Piece { blob, piece } if holder.manner == Manner::Chatterbox => {
                Answer::Piece(holder.read_piece(&blob, piece).unwrap())
            }
            Request::Piece { .. } | Request::Document { .. } => std::future::pending().await,
        };
        let _ = wire::write_answer(&mut stream, number, &answer).await;
        if let Answer::Piece(_) = answer {
            let _ = wire::write_answer(&mut stream, number, &answer).await;
        }
    }
}

/// Holds no blob.
pub(crate) struct NoBlobs;

impl BlobSource for NoBlobs {
    fn describe(&self, _: &Digest) -> Option<Described> {
        None
    }

    fn hash_list(&self, _: &Digest) -> Option<HashList> {
        None
    }

    fn read_piece(&self, _: &Digest, _: u32) -> Result<Vec<u8>, ReadError> {
        Err(ReadError::NoBlob)
    }
}

/// Fetches for `local`, and gives nothing.
pub(crate) fn fetcher(connect: Arc<dyn Connect>, local: NodeId) -> Fetcher {
    fetcher_within(connect, local, Rates::default())
}

/// The same, no faster than these rates.
pub(crate) fn fetcher_within(connect: Arc<dyn Connect>, local: NodeId, rates: Rates) -> Fetcher {
    let terms = Terms { serves: false, rates, ..Terms::default() };
    Fetcher::new(Swarms::new(connect, Arc::new(NoBlobs), local, terms))
}

/// A sink in memory.
pub(crate) struct Shelf {
    sample: Sample,
    pub(crate) pieces: Mutex<BTreeMap<u32, Vec<u8>>>,
    list: Mutex<Option<HashList>>,
    pub(crate) finished: Mutex<u32>,
    /// How often it did what pieces left to be done.
    pub(crate) kept_up: Mutex<u32>,
    /// Errors to give, the first at the next piece.
    pub(crate) piece_errors: Mutex<Vec<SinkError>>,
    /// Errors to give when everything is here.
    pub(crate) finish_errors: Mutex<Vec<SinkError>>,
    /// While this is held, no piece is stored.
    pub(crate) hangs: Mutex<()>,
    /// Bytes of pieces that were handed to it, stored or not.
    pub(crate) handed_bytes: AtomicUsize,
}

impl Shelf {
    pub(crate) fn new(sample: &Sample) -> Arc<Self> {
        Arc::new(Self {
            sample: sample.clone(),
            pieces: Mutex::default(),
            list: Mutex::default(),
            finished: Mutex::default(),
            kept_up: Mutex::default(),
            piece_errors: Mutex::default(),
            finish_errors: Mutex::default(),
            hangs: Mutex::default(),
            handed_bytes: AtomicUsize::new(0),
        })
    }

    pub(crate) fn is_whole(&self) -> bool {
        let pieces = self.pieces.lock().unwrap();
        *self.finished.lock().unwrap() > 0 && pieces.values().flatten().eq(self.sample.bytes.iter())
    }
}

impl PieceSink for Shelf {
    fn held(&self) -> PieceSet {
        self.sample.some(self.pieces.lock().unwrap().keys().copied())
    }

    fn hash_list(&self) -> Option<HashList> {
        self.list.lock().unwrap().clone()
    }

    fn keep_hash_list(&self, list: &HashList) -> Result<(), SinkError> {
        *self.list.lock().unwrap() = Some(list.clone());
        Ok(())
    }

    fn write_piece(&self, piece: u32, bytes: &[u8]) -> Result<(), SinkError> {
        self.handed_bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        drop(self.hangs.lock().unwrap());
        assert!(self.hash_list().is_some(), "the list is kept before the first piece");
        assert_eq!(self.sample.list.verify_piece(piece, bytes), Ok(()), "nothing unverified is stored");
        if let Some(error) = self.piece_errors.lock().unwrap().pop() {
            return Err(error);
        }
        self.pieces.lock().unwrap().insert(piece, bytes.to_vec());
        Ok(())
    }

    fn keep_up(&self) -> Result<(), SinkError> {
        *self.kept_up.try_lock().expect("one at a time") += 1;
        Ok(())
    }

    fn finish(&self) -> Result<(), SinkError> {
        *self.finished.lock().unwrap() += 1;
        match self.finish_errors.lock().unwrap().pop() {
            Some(SinkError::Damaged { pieces }) => {
                pieces.iter().for_each(|piece| {
                    self.pieces.lock().unwrap().remove(piece);
                });
                Err(SinkError::Damaged { pieces })
            }
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

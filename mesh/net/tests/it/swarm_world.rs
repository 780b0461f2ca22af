//! Nodes in memory that exchange a blob over streams of pieces, each with its rates and its manner.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use groundswell_core::blob::{HashList, PieceSet};
use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use groundswell_net::blobs::{
    BlobSource, Connect, ConnectError, Described, Duplex, FetchError, Fetcher, PieceSink as _, Progress, ReadError,
};
use groundswell_net::pieces::{Swarms, Terms};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::compat::TokioAsyncReadCompatExt as _;

use crate::blob_world::{Sample, Shelf, peer};

type Stream = tokio_util::compat::Compat<tokio::io::DuplexStream>;

/// Who can be reached, and how often each stream was opened.
#[derive(Default)]
pub(crate) struct Lines {
    doors: Mutex<BTreeMap<NodeId, mpsc::Sender<(NodeId, Stream)>>>,
    opened: Mutex<BTreeMap<(NodeId, NodeId), usize>>,
}

struct Line {
    lines: Arc<Lines>,
    local: NodeId,
}

impl Lines {
    /// A node that others reach through what is received here.
    pub(crate) fn door(&self, n: u8) -> mpsc::Receiver<(NodeId, Stream)> {
        let (door, incoming) = mpsc::channel(64);
        self.doors.lock().unwrap().insert(peer(n), door);
        incoming
    }

    /// A stream to a node, as if `from` had opened it.
    pub(crate) async fn open(&self, from: u8, to: u8) -> Stream {
        let (here, there) = tokio::io::duplex(256 * 1024);
        let door = self.doors.lock().unwrap()[&peer(to)].clone();
        assert!(door.send((peer(from), there.compat())).await.is_ok());
        here.compat()
    }

    pub(crate) fn opened(&self, from: u8, to: u8) -> usize {
        self.opened.lock().unwrap().get(&(peer(from), peer(to))).copied().unwrap_or(0)
    }
}

impl Connect for Line {
    fn connect(&self, peer: NodeId) -> BoxFuture<'static, Result<Box<dyn Duplex>, ConnectError>> {
        Box::pin(async move { Err(ConnectError(format!("{peer} answers no requests"))) })
    }

    fn pieces(&self, peer: NodeId) -> BoxFuture<'static, Result<Option<Box<dyn Duplex>>, ConnectError>> {
        *self.lines.opened.lock().unwrap().entry((self.local, peer)).or_default() += 1;
        let door = self.lines.doors.lock().unwrap().get(&peer).cloned();
        let local = self.local;
        Box::pin(async move {
            let door = door.ok_or_else(|| ConnectError(format!("{peer} is not connected")))?;
            let (here, there) = tokio::io::duplex(256 * 1024);
            door.send((local, there.compat())).await.map_err(|_| ConnectError(format!("{peer} has stopped")))?;
            Ok(Some(Box::new(here.compat()) as Box<dyn Duplex>))
        })
    }
}

/// What a node gives: what its shelf holds, perhaps not as it is.
struct Giver {
    sample: Sample,
    shelf: Arc<Shelf>,
    lies: bool,
}

impl BlobSource for Giver {
    fn describe(&self, sha256: &Digest) -> Option<Described> {
        let held: PieceSet = self.shelf.held();
        (*sha256 == self.sample.name.sha256).then_some(Described { size_bytes: self.sample.name.size_bytes, held })
    }

    fn hash_list(&self, sha256: &Digest) -> Option<HashList> {
        (*sha256 == self.sample.name.sha256).then(|| self.shelf.hash_list()).flatten()
    }

    fn read_piece(&self, _: &Digest, piece: u32) -> Result<Vec<u8>, ReadError> {
        let mut bytes = self.shelf.pieces.lock().unwrap().get(&piece).cloned().ok_or(ReadError::NotHeld(piece))?;
        if self.lies && piece.is_multiple_of(10) {
            bytes[0] ^= 1;
        }
        Ok(bytes)
    }
}

/// One node. Dropping it ends its streams.
pub(crate) struct Node {
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) swarms: Swarms,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) peers: watch::Sender<Vec<NodeId>>,
    sample: Sample,
    _serving: JoinSet<()>,
}

impl Node {
    pub(crate) fn new(lines: &Arc<Lines>, n: u8, sample: &Sample, peers: &[u8], terms: Terms) -> Self {
        Self::with(lines, n, sample, peers, terms, false)
    }

    /// One whose every tenth piece is another.
    pub(crate) fn liar(lines: &Arc<Lines>, n: u8, sample: &Sample, terms: Terms) -> Self {
        Self::with(lines, n, sample, &[], terms, true).holding(0..sample.layout().count())
    }

    fn with(lines: &Arc<Lines>, n: u8, sample: &Sample, peers: &[u8], terms: Terms, lies: bool) -> Self {
        let shelf = Shelf::new(sample);
        let giver = Giver { sample: sample.clone(), shelf: Arc::clone(&shelf), lies };
        let line = Line { lines: Arc::clone(lines), local: peer(n) };
        let swarms = Swarms::new(Arc::new(line), Arc::new(giver), peer(n), terms);
        let (serves, incoming) = (swarms.clone(), lines.door(n));
        let mut serving = JoinSet::new();
        serving.spawn(async move { serves.serve(incoming).await });
        let peers = watch::Sender::new(peers.iter().copied().filter(|it| *it != n).map(peer).collect());
        Self { shelf, swarms, progress: watch::Sender::default(), peers, sample: sample.clone(), _serving: serving }
    }

    /// It holds these pieces already.
    pub(crate) fn holding(self, pieces: impl IntoIterator<Item = u32>) -> Self {
        self.shelf.keep_hash_list(&self.sample.list).unwrap();
        pieces.into_iter().for_each(|piece| self.shelf.write_piece(piece, &self.sample.piece(piece)).unwrap());
        self
    }

    pub(crate) async fn fetch(&self) -> Result<(), FetchError> {
        let (peers, progress) = (self.peers.subscribe(), self.progress.clone());
        Fetcher::new(self.swarms.clone()).fetch(self.sample.name, self.shelf.clone(), peers, progress).await
    }
}

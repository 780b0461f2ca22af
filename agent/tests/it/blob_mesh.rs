//! Blobs from one agent's folder to another's, over real streams on loopback.

use std::sync::Arc;

use groundswell_agent::blobs::{Begun, BlobStore, Settings};
use groundswell_core::blob::{BlobName, HashList, HashListBuilder, Layout};
use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use groundswell_net::blobs::{BlobSource, DocumentSource, Fetcher, PieceSink as _, Progress, Server};
use groundswell_net::pieces::{Swarms, Terms};
use groundswell_net::{Admission, Config, Network, NetworkEvent};
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::workshop::PATIENCE;

struct Everybody;

impl Admission for Everybody {
    fn fleet(&self) -> Digest {
        Digest([1; 32])
    }
    fn own_proof(&self) -> Vec<u8> {
        Vec::new()
    }
    fn admit(&self, _: NodeId, _: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

struct NoDocuments;

impl DocumentSource for NoDocuments {
    fn document(&self, _: &Digest) -> Option<Vec<u8>> {
        None
    }
}

/// A node with a blob folder that serves what it has. Dropping it stops serving.
struct Node {
    network: Network,
    events: Receiver<NetworkEvent>,
    address: String,
    store: BlobStore,
    swarms: Swarms,
    serving: JoinSet<()>,
    _folder: TempDir,
}

impl Node {
    async fn start(seed: u8) -> Self {
        let config = Config { listen: vec!["/ip4/127.0.0.1/tcp/0".into()], ..Config::default() };
        let (network, events) = Network::start(config, [seed; 32], Arc::new(Everybody)).await.unwrap();
        let folder = TempDir::new().unwrap();
        let settings = Settings { folder: folder.path().into(), quota_bytes: 4 << 30, reserve_bytes: 0 };
        let store = BlobStore::open(settings).unwrap();
        let server = Server::new(Arc::new(store.clone()), Arc::new(NoDocuments));
        let mut serving = JoinSet::new();
        let source: Arc<dyn BlobSource> = Arc::new(store.clone());
        let swarms = Swarms::new(Arc::new(network.clone()), source, network.local_id(), Terms::default());
        let (passes, on) = (swarms.clone(), network.clone());
        serving.spawn(async move {
            tokio::join!(server.serve_network(&on), passes.serve_network(&on));
        });
        let mut node = Self { network, events, address: String::new(), store, swarms, serving, _folder: folder };
        node.address = node
            .hear(|event| match event {
                NetworkEvent::Addresses(addresses) => addresses.first().cloned(),
                _ => None,
            })
            .await;
        node
    }

    async fn hear<T>(&mut self, wanted: impl Fn(NetworkEvent) -> Option<T>) -> T {
        loop {
            let event = timeout(PATIENCE, self.events.recv()).await.unwrap().unwrap();
            if let Some(found) = wanted(event) {
                return found;
            }
        }
    }

    async fn join(&mut self, other: &mut Node) {
        self.network.dial(Some(other.network.local_id()), vec![other.address.clone()]).unwrap();
        let (here, there) = (self.network.local_id(), other.network.local_id());
        self.hear(|event| matches!(event, NetworkEvent::PeerUp { peer, .. } if peer == there).then_some(())).await;
        other.hear(|event| matches!(event, NetworkEvent::PeerUp { peer, .. } if peer == here).then_some(())).await;
    }

    /// Fetches until the end, or until `enough` says that it is time to stop.
    async fn fetch(&self, blob: BlobName, from: &[&Node], enough: impl Fn(&Progress) -> bool) {
        let Begun::Partial(partial) = self.store.download(blob).unwrap() else { return };
        let fetcher = Fetcher::new(self.swarms.clone());
        let peers = watch::channel(from.iter().map(|node| node.network.local_id()).collect()).1;
        let (progress, mut seen) = watch::channel(Progress::default());
        tokio::select! {
            fetched = timeout(PATIENCE, fetcher.fetch(blob, partial, peers, progress)) => fetched.unwrap().unwrap(),
            _ = seen.wait_for(|progress| enough(progress)) => {}
        }
    }

    async fn stop(mut self) {
        self.network.shutdown().await;
        self.serving.shutdown().await;
    }
}

fn hash_list(bytes: &[u8]) -> HashList {
    let mut builder = HashListBuilder::new(Layout::of(u64::try_from(bytes.len()).unwrap()).unwrap());
    builder.update(bytes);
    builder.finish().unwrap()
}

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|i| u8::try_from((i / 3 + i % 7) % 251).unwrap()).collect()
}

#[tokio::test]
async fn a_blob_passes_from_folder_to_folder_and_on_and_a_stopped_download_goes_on() {
    let (mut a, mut b, mut c) = (Node::start(1).await, Node::start(2).await, Node::start(3).await);
    b.join(&mut a).await;
    c.join(&mut b).await;
    let bytes = content(6_000_000);
    let list = hash_list(&bytes);
    let blob = BlobName { sha256: Digest::of(&bytes), size_bytes: list.layout().size_bytes(), blake3: list.root() };
    let Begun::Partial(partial) = a.store.download(blob).unwrap() else { panic!("nobody has it yet") };
    partial.keep_hash_list(&list).unwrap();
    let write = |pieces: std::ops::Range<usize>| {
        for (piece, bytes) in (0..).zip(bytes.chunks(65_536)).skip(pieces.start).take(pieces.len()) {
            partial.write_piece(piece, bytes).unwrap();
        }
    };
    write(0..30);
    b.fetch(blob, &[&a], |progress| progress.held == 30).await;
    assert!(!b.store.holds(&blob.sha256), "stopped where its source stopped");
    write(30..92);
    partial.finish().unwrap();
    partial.finish().expect("what is whole stays whole");
    b.fetch(blob, &[&a], |_| false).await;
    assert!(b.store.holds(&blob.sha256));
    assert_eq!(a.swarms.counters().sent_bytes, 6_000_000, "no piece was sent twice");
    c.fetch(blob, &[&b], |_| false).await;
    let mut read = Vec::new();
    std::io::Read::read_to_end(&mut c.store.open_verified(&blob.sha256).unwrap(), &mut read).unwrap();
    assert!(read == bytes);
    for node in [a, b, c] {
        node.stop().await;
    }
}

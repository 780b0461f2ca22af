//! Blobs between real nodes on loopback.

use std::sync::Arc;

use groundswell_net::blobs::{Progress, Server};
use groundswell_net::pieces::{Swarms, Terms};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::blob_world::{Manner, PIECE, Shelf, World, fetcher, peer, sample};
use crate::node::{Over, PATIENCE, TestNode};

#[tokio::test]
async fn a_blob_and_a_document_come_from_two_members_over_each_transport() {
    for over in [Over::Tcp, Over::Quic] {
        let sample = sample(50 * PIECE + 3);
        let world = World::with(&[(1, &sample, Manner::Honest), (2, &sample, Manner::Honest)]);
        world.meet(&[1, 2]);
        let mut local = TestNode::member(9, over).await;
        let mut serving = JoinSet::new();
        let mut suppliers = Vec::new();
        for n in [1, 2] {
            let mut supplier = TestNode::member(n, over).await;
            local.dial(&supplier);
            local.up(supplier.id()).await;
            supplier.up(local.id()).await;
            let (server, network) = (Server::new(world.holder(n), world.holder(n)), supplier.network.clone());
            let terms = Terms::default();
            let swarms = Swarms::new(Arc::new(network.clone()), world.holder(n), network.local_id(), terms);
            serving.spawn(async move {
                tokio::join!(server.serve_network(&network), swarms.serve_network(&network));
            });
            suppliers.push(supplier);
        }
        let peers: Vec<_> = suppliers.iter().map(TestNode::id).collect();
        let fetcher = fetcher(Arc::new(local.network.clone()), local.id());
        let (shelf, progress) = (Shelf::new(&sample), watch::Sender::new(Progress::default()));
        let fetched = fetcher.fetch(sample.name, shelf.clone(), watch::channel(peers.clone()).1, progress);
        timeout(PATIENCE, fetched).await.expect("in time").unwrap();
        assert!(shelf.is_whole(), "{over:?}");
        let accept = |bytes: &[u8]| bytes == sample.bytes;
        let document = fetcher.fetch_document(sample.name.sha256, sample.bytes.len(), &peers, accept).await.unwrap();
        assert_eq!(document.len(), sample.bytes.len());
        let unknown = fetcher.fetch_document(sample.name.sha256, 10_000, &[peer(77)], |_| true).await.unwrap_err();
        assert!(unknown.to_string().contains("not connected"), "{unknown}");
        for node in suppliers.iter().chain([&local]) {
            node.network.shutdown().await;
        }
        while serving.join_next().await.is_some() {}
    }
}

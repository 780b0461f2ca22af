//! Documents by gossip: nothing goes further than the agent lets it.

use groundswell_core::limits::DOCUMENT_BYTES;
use groundswell_net::{Forward, NetworkEvent};

use crate::node::{Over, TestNode};

/// Publishes until a message has gone out: before the peers' subscriptions are known it cannot.
async fn publish(node: &TestNode, bytes: &[u8]) {
    while node.network.counters().gossip_published == 0 {
        let tried = node.network.counters();
        node.network.gossip(bytes.to_vec()).expect("a free command queue");
        while node.network.counters() == tried {
            tokio::task::yield_now().await;
        }
    }
}

async fn gossip(node: &mut TestNode) -> (u64, Vec<u8>) {
    node.hear(|event| match event {
        NetworkEvent::Gossip { ticket, bytes, .. } => Some((ticket, bytes)),
        _ => None,
    })
    .await
}

/// `a — b — c` in a line.
async fn line(over: Over) -> (TestNode, TestNode, TestNode) {
    let (mut a, mut b, mut c) =
        (TestNode::member(1, over).await, TestNode::member(2, over).await, TestNode::member(3, over).await);
    a.dial(&b);
    c.dial(&b);
    a.up(b.id()).await;
    c.up(b.id()).await;
    let mut coming = vec![a.id(), c.id()];
    b.hear(|event| {
        coming.retain(|id| !matches!(&event, NetworkEvent::PeerUp { peer, .. } if peer == id));
        coming.is_empty().then_some(())
    })
    .await;
    (a, b, c)
}

#[tokio::test]
async fn a_message_goes_on_only_after_it_was_accepted() {
    let (a, mut b, mut c) = line(Over::Tcp).await;
    publish(&a, b"a document").await;
    let (ticket, bytes) = gossip(&mut b).await;
    assert_eq!(bytes, b"a document");
    // While b has not answered, c gets frames from b but not the document: what b sends later overtakes it.
    assert!(b.network.send(c.id(), b"marker".to_vec()));
    let first = c
        .hear(|event| match event {
            NetworkEvent::Frame { bytes, .. } | NetworkEvent::Gossip { bytes, .. } => Some(bytes),
            _ => None,
        })
        .await;
    assert_eq!(first, b"marker");
    b.network.answer(ticket, Forward::Accept).expect("a free command queue");
    assert_eq!(gossip(&mut c).await.1, b"a document");
}

#[tokio::test]
async fn a_rejected_or_ignored_message_goes_no_further() {
    for verdict in [Forward::Reject, Forward::Ignore] {
        let (a, mut b, mut c) = line(Over::Tcp).await;
        publish(&a, b"bad").await;
        let (ticket, _) = gossip(&mut b).await;
        b.network.answer(ticket, verdict).expect("a free command queue");
        // A second document from the same author does arrive, and it is the first that c hears of.
        a.network.gossip(b"good".to_vec()).expect("a free command queue");
        let (ticket, bytes) = gossip(&mut b).await;
        assert_eq!(bytes, b"good");
        b.network.answer(ticket, Forward::Accept).expect("a free command queue");
        assert_eq!(gossip(&mut c).await.1, b"good");
    }
}

#[tokio::test]
async fn the_largest_document_travels() {
    let (a, mut b, _c) = line(Over::Quic).await;
    let document = vec![b'x'; DOCUMENT_BYTES];
    publish(&a, &document).await;
    assert_eq!(gossip(&mut b).await.1.len(), DOCUMENT_BYTES);
}

//! The outer door on real connections: nobody is admitted there, and nothing else is offered.

use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::node_id::NodeId;
use groundswell_net::blobs::Progress;
use groundswell_net::outer::OuterSource;
use groundswell_net::outer::guide::Guide;
use groundswell_net::outer::visit::{Visit, VisitFailed};
use groundswell_net::outer::wire::{Ask, Standing};
use groundswell_net::{Admission, Config, Network, NetworkEvent};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::blob_world::{self, PIECE, Shelf as Sink, sample};
use crate::node::{Over, PATIENCE, Password, TestNode, listen};
use crate::outer_world::{FLEET, Shelf};
use crate::stranger::{MEMBERS_ONLY, Stranger};

/// Admits by a word, and has an outer door.
struct WithDoor(Password, Arc<Shelf>);

impl Admission for WithDoor {
    fn fleet(&self) -> Digest {
        self.0.fleet()
    }
    fn own_proof(&self) -> Vec<u8> {
        self.0.own_proof()
    }
    fn admit(&self, peer: NodeId, proof: &[u8]) -> Result<(), String> {
        self.0.admit(peer, proof)
    }
    fn outer(&self) -> Option<Arc<dyn OuterSource>> {
        Some(Arc::clone(&self.1) as Arc<dyn OuterSource>)
    }
}

pub(crate) async fn keeper(seed: u8, config: Config, shelf: Shelf) -> TestNode {
    let admission = Arc::new(WithDoor(Password { fleet: 1, own: "member" }, Arc::new(shelf)));
    let (network, events) = Network::start(config, [seed; 32], admission).await.expect("a free port");
    let mut node = TestNode { network, events, address: String::new() };
    node.address = node
        .hear(|event| match event {
            NetworkEvent::Addresses(addresses) => addresses.first().cloned(),
            _ => None,
        })
        .await;
    node
}

async fn visit(from: &TestNode, to: &TestNode) -> Result<(NodeId, Visit), VisitFailed> {
    let (peer, stream) = timeout(PATIENCE, from.network.visit(None, vec![to.address.clone()])).await.expect("in time")?;
    Ok((peer, Visit::begin(stream, FLEET, Vec::new()).await?))
}

#[tokio::test]
async fn a_peer_that_cannot_be_admitted_visits_over_each_transport_and_nobody_hears_of_it() {
    for over in [Over::Tcp, Over::Quic] {
        let mut shelf = Shelf::default();
        let fleet = shelf.add(Kind::Fleet, "fleet", 70_000);
        let mut keeper = keeper(1, listen(over), shelf).await;
        let mut outsider = TestNode::start(2, listen(over), Password { fleet: 1, own: "expired" }).await;
        outsider.dial(&keeper);
        let (id, reason) = keeper.refused().await;
        assert_eq!(id, outsider.id());
        assert!(reason.starts_with("revoked"), "{reason}");
        outsider.refused().await;
        let (peer, mut visit) = visit(&outsider, &keeper).await.unwrap();
        assert_eq!(peer, keeper.id());
        assert_eq!(visit.standing(), Standing::Stranger);
        assert_eq!(visit.document(fleet, 100_000).await.unwrap().len(), 70_000);
        drop(visit);
        assert_eq!(keeper.network.counters().door_visits, 1);
        assert!(!keeper.heard_of(outsider.id()) && !outsider.heard_of(keeper.id()));
        assert_eq!(keeper.network.counters().peers_admitted, 0);
    }
}

#[tokio::test]
async fn s7_a_visitor_negotiates_no_other_protocol_on_its_connection() {
    let mut keeper = keeper(1, listen(Over::Tcp), Shelf::default()).await;
    let mut stranger = Stranger::start();
    stranger.dial(&keeper.address);
    let mut stream = stranger.open("/groundswell/door/1").await.expect("the outer door");
    let hello = Ask::Hello { fleet: FLEET, certificate: Vec::new() }.encode();
    let length = u32::try_from(hello.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length, hello.as_slice()].concat()).await.unwrap();
    stream.flush().await.unwrap();
    let mut welcome = [0; 6];
    stream.read_exact(&mut welcome).await.unwrap();
    assert_eq!(welcome, [0, 0, 0, 2, 1, 0]);
    for protocol in MEMBERS_ONLY {
        assert!(stranger.open(protocol).await.is_none(), "{protocol}");
    }
    // The exchange of proofs runs on connections that do not visit: here its stream is let go unanswered.
    if let Some(mut exchange) = stranger.open("/groundswell/admit/1").await {
        let mut answer = [0];
        let read = async { exchange.read(&mut answer).await };
        assert!(matches!(timeout(PATIENCE, read).await.expect("in time"), Ok(0) | Err(_)));
    }
    assert!(!keeper.heard_of(stranger.id()));
}

#[tokio::test]
async fn a_stream_on_which_nobody_says_hello_is_closed_as_soon_as_any_silent_peer() {
    let config = Config { admit_within: Duration::from_secs(3), ..listen(Over::Tcp) };
    let mut keeper = keeper(1, config, Shelf::default()).await;
    let mut silent = Stranger::start();
    silent.dial(&keeper.address);
    let stream = silent.open("/groundswell/door/1").await.expect("the outer door");
    let ((peer, reason), ()) = futures::join!(keeper.refused(), silent.closed());
    assert_eq!((peer, reason.as_str()), (silent.id(), "it did not prove its certificate within 3000 ms"));
    drop(stream);
}

#[tokio::test]
async fn silent_half_open_and_endless_visitors_do_not_keep_members_out() {
    let config = Config { admit_within: 2 * PATIENCE, ..listen(Over::Tcp) };
    let mut keeper = keeper(1, config, Shelf::default()).await;
    let mut crowd = Vec::new();
    for _ in 0..8 {
        let mut stranger = Stranger::start();
        stranger.dial(&keeper.address);
        let mut stream = stranger.open("/groundswell/door/1").await.expect("the outer door");
        let hello = Ask::Hello { fleet: FLEET, certificate: Vec::new() }.encode();
        stream.write_all(&[&33_u32.to_be_bytes(), hello.as_slice()].concat()).await.unwrap();
        stream.flush().await.unwrap();
        crowd.push((stranger, stream));
    }
    let mut member = TestNode::member(2, Over::Tcp).await;
    member.dial(&keeper);
    member.up(keeper.id()).await;
    keeper.up(member.id()).await;
    assert!(member.network.send(keeper.id(), b"a frame".to_vec()));
    assert_eq!(keeper.frame().await.1, b"a frame");
}

#[tokio::test]
async fn a_member_may_be_visited_beside_its_link() {
    let mut shelf = Shelf::default();
    let fleet = shelf.add(Kind::Fleet, "fleet", 700);
    let mut keeper = keeper(1, listen(Over::Tcp), shelf).await;
    let mut member = TestNode::member(2, Over::Tcp).await;
    member.dial(&keeper);
    member.up(keeper.id()).await;
    keeper.up(member.id()).await;
    let (_, mut visit) = visit(&member, &keeper).await.unwrap();
    assert_eq!(visit.document(fleet, 1_000).await.unwrap().len(), 700);
    drop(visit);
    assert!(member.network.send(keeper.id(), b"still linked".to_vec()));
    assert_eq!(keeper.frame().await.1, b"still linked");
}

#[tokio::test]
async fn a_build_that_offers_only_the_outer_door_visits_and_is_visited_and_is_admitted_nowhere() {
    let mut shelf = Shelf::default();
    let fleet = shelf.add(Kind::Fleet, "fleet", 700);
    let mut today = keeper(1, listen(Over::Tcp), shelf).await;
    let mut shelf = Shelf::default();
    let older = shelf.add(Kind::Fleet, "older", 600);
    let mut old = keeper(2, Config { only_outer_door: true, ..listen(Over::Tcp) }, shelf).await;
    today.dial(&old);
    assert_eq!(today.refused().await, (old.id(), "it does not speak /groundswell/admit/1".into()));
    let other = TestNode::member(3, Over::Tcp).await;
    old.dial(&other);
    let (id, reason) = old.refused_by(other.id()).await;
    assert_eq!((id, reason.as_str()), (other.id(), "this build speaks only the outer door's protocol"));
    let (_, mut visited) = visit(&old, &today).await.unwrap();
    assert_eq!(visited.document(fleet, 1_000).await.unwrap().len(), 700);
    let (_, mut visited) = visit(&today, &old).await.unwrap();
    assert_eq!(visited.document(older, 1_000).await.unwrap().len(), 600);
}

#[tokio::test]
async fn where_there_is_no_outer_door_or_nobody_the_visitor_is_told() {
    let without = TestNode::member(1, Over::Tcp).await;
    let visitor = TestNode::member(2, Over::Tcp).await;
    let failed = |outcome: Result<(NodeId, Visit), VisitFailed>| match outcome {
        Err(VisitFailed::Unreachable(reason)) => reason,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was let in"),
    };
    assert_eq!(failed(visit(&visitor, &without).await), "it does not speak /groundswell/door/1");
    without.network.shutdown().await;
    let reason = failed(visit(&visitor, &without).await);
    assert!(reason.contains("127.0.0.1"), "{reason}");
    let nonsense = visitor.network.visit(None, vec!["nonsense".into()]).await;
    assert!(matches!(nonsense, Err(VisitFailed::Unreachable(_))));
}

#[tokio::test]
async fn a_blob_comes_through_two_outer_doors_by_the_ordinary_download() {
    let sample = sample(6 * PIECE + 3);
    let mut keepers = Vec::new();
    let local = TestNode::start(9, listen(Over::Tcp), Password { fleet: 1, own: "expired" }).await;
    for seed in [1, 2] {
        let mut shelf = Shelf { blob: sample.bytes.to_vec(), ..Shelf::default() };
        shelf.standings.insert(local.id(), Standing::Former);
        keepers.push(keeper(seed, listen(Over::Tcp), shelf).await);
    }
    let own = Arc::new(Password { fleet: 1, own: "expired" });
    let guide = Arc::new(Guide::new(local.network.clone(), own));
    guide.set_keepers(keepers.iter().map(|keeper| (keeper.id(), vec![keeper.address.clone()])).collect());
    let fetcher = blob_world::fetcher(guide, local.id());
    let peers: Vec<_> = keepers.iter().map(TestNode::id).collect();
    let (sink, progress) = (Sink::new(&sample), watch::Sender::new(Progress::default()));
    let fetched = fetcher.fetch(sample.name, sink.clone(), watch::channel(peers.clone()).1, progress);
    timeout(PATIENCE, fetched).await.expect("in time").unwrap();
    assert!(sink.is_whole());
    for keeper in &keepers {
        assert_eq!(keeper.network.counters().peers_admitted, 0);
    }
}

#[tokio::test]
async fn what_a_visitor_asks_is_answered_in_order_however_many_it_asks_at_once() {
    let mut shelf = Shelf::default();
    let names: Vec<String> = (0..40).map(|n| format!("certificate {n}")).collect();
    let visitor = TestNode::start(2, listen(Over::Tcp), Password { fleet: 1, own: "expired" }).await;
    shelf.standings.insert(visitor.id(), Standing::Former);
    for (n, name) in names.iter().enumerate() {
        shelf.add(Kind::Node, name, 500 + n);
    }
    let keeper = keeper(1, listen(Over::Tcp), shelf).await;
    let (_, mut visit) = visit(&visitor, &keeper).await.unwrap();
    let listed = visit.documents().await.unwrap();
    assert_eq!(listed.len(), 40);
    let documents = visit.small_documents(&listed, 1_000).await.unwrap();
    assert!(documents.iter().all(Option::is_some));
}

//! Outer doors whose keepers lie or hold back: what they say keeps nothing from a visitor that honest doors give it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use groundswell_agent::agent::Setting;
use groundswell_agent::clock::Clock;
use groundswell_agent::identity;
use groundswell_core::blob::HashList;
use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::{RecordKind, Stamp};
use groundswell_net::Network;
use groundswell_net::blobs::{BlobSource, Described, ReadError};
use groundswell_net::outer::OuterSource;
use groundswell_net::outer::wire::{Listed, Refused, Standing};

use crate::agents::{start, start_in};
use crate::fleet::{Published, World, free_port};
use crate::outer_door::Outsider;
use crate::workshop::PATIENCE;

/// Tells every visitor that it is a member, and lists what it is told to.
struct Liar {
    fleet: Digest,
    fleets: Vec<Listed>,
    documents: Vec<Listed>,
    bytes: BTreeMap<Digest, Vec<u8>>,
    given: Arc<AtomicUsize>,
    listed: Arc<AtomicUsize>,
}

impl OuterSource for Liar {
    fn standing(&self, _: NodeId) -> Standing {
        Standing::Member
    }
    fn prove(&self, _: NodeId, _: &[u8]) -> Standing {
        Standing::Member
    }
    fn fleets(&self, _: u64) -> Vec<Listed> {
        self.fleets.clone()
    }
    fn certificate(&self, _: NodeId) -> Vec<Listed> {
        Vec::new()
    }
    fn documents(&self, after: Digest) -> Vec<Listed> {
        self.listed.fetch_add(1, Ordering::Relaxed);
        self.documents.iter().filter(|listed| listed.digest > after).copied().collect()
    }
    fn document(&self, digest: &Digest, _: u64, _: usize) -> Option<(Kind, u64, Vec<u8>)> {
        let bytes = self.bytes.get(digest)?.clone();
        self.given.fetch_add(1, Ordering::Relaxed);
        Some((Kind::Fleet, u64::try_from(bytes.len()).unwrap(), bytes))
    }
    fn stamps(&self, _: NodeId, _: RecordKind, _: NodeId) -> Vec<(NodeId, Stamp)> {
        Vec::new()
    }
    fn record(&self, _: NodeId, _: RecordKind, _: NodeId) -> Vec<Vec<u8>> {
        Vec::new()
    }
    fn push(&self, _: NodeId, _: Vec<u8>) -> Result<(), Refused> {
        panic!("only to a member does a node hand its record")
    }
    fn blobs(&self) -> Arc<dyn BlobSource> {
        Arc::new(NoBlobs)
    }
}

struct NoBlobs;

impl BlobSource for NoBlobs {
    fn describe(&self, _: &Digest) -> Option<Described> {
        panic!("nobody asks a stranger for blobs")
    }
    fn hash_list(&self, _: &Digest) -> Option<HashList> {
        None
    }
    fn read_piece(&self, _: &Digest, _: u32) -> Result<Vec<u8>, ReadError> {
        Err(ReadError::NoBlob)
    }
}

fn listed(kind: Kind, published: &Published) -> Listed {
    Listed { kind, digest: published.digest, published: Digest::of(&published.bytes) }
}

/// Opens a liar's door on `port`, with these documents; it is open as long as what is returned.
async fn open(world: &World, port: u16, fleets: &[&Published], documents: &[(Kind, &Published)]) -> (Network, Arc<Liar>) {
    let bytes = fleets.iter().copied().chain(documents.iter().map(|(_, published)| *published));
    let mut documents: Vec<Listed> = documents.iter().map(|(kind, published)| listed(*kind, published)).collect();
    documents.sort_by_key(|listed| listed.digest);
    let liar = Arc::new(Liar {
        fleet: world.fleet.digest,
        fleets: fleets.iter().map(|published| listed(Kind::Fleet, published)).collect(),
        documents,
        bytes: bytes.map(|published| (published.digest, published.bytes.clone())).collect(),
        given: Arc::default(),
        listed: Arc::default(),
    });
    let config = groundswell_net::Config { listen: vec![format!("/ip4/127.0.0.1/tcp/{port}")], ..Default::default() };
    let admission = Arc::new(Outsider(liar.fleet, Some(Arc::<Liar>::clone(&liar))));
    let (network, mut events) = Network::start(config, identity::generate().unwrap(), admission).await.unwrap();
    tokio::spawn(async move { while events.recv().await.is_some() {} });
    (network, liar)
}

async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let waits = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waits).await.is_ok(), "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s7_what_a_liar_gave_out_of_order_and_under_another_kind_is_taken_at_an_honest_door() {
    let mut world = World::new();
    let (here, honest, liars) = (free_port(), free_port(), free_port());
    let keeper = world.machine("a1", honest, &[]);
    let device = world.machine("a2", here, &[liars, honest]);
    world.end_certificate(&device, 1);
    let clock = Clock::default();
    clock.advance_ms(2 * 86_400_000);
    let setting = || Setting { clock: clock.clone(), ..Setting::default() };
    // Two fleet versions later; the first of them is held back, the second called a release.
    let (second, third) = (world.rotate(0, Vec::new()), world.rotate(0, Vec::new()));
    let (open_door, liar) = open(&world, liars, &[], &[(Kind::Release, &third)]).await;
    let device = start_in(device, setting());
    until("the liar gave it", || liar.given.load(Ordering::Relaxed) > 0).await;

    let keeper = start_in(keeper, setting());
    keeper.until("up", |_| true).await;
    for document in [&second, &third].into_iter().cloned().chain(world.renew()) {
        keeper.client.publish(document.bytes).await.unwrap();
    }
    let status = device.until("it is a member", |status| status.node.peers == 1).await;
    assert_eq!(status.node.fleet_version, Some(3));
    open_door.shutdown().await;
    device.end().await;
    keeper.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s7_a_stranger_that_calls_the_visitor_a_member_and_has_nothing_gave_nothing() {
    let mut world = World::new();
    let (here, liars) = (free_port(), free_port());
    let mut device = world.machine("a2", here, &[liars]);
    device.certificate_file = None;
    let fleet = world.fleet.clone();
    let (open_door, liar) = open(&world, liars, &[&fleet], &[]).await;
    let device = start(device);
    until("it comes again and again, as after visits in vain", || liar.listed.load(Ordering::Relaxed) >= 3).await;
    let status = device.until("it says why", |status| status.agent.last_visit_failure.is_some()).await;
    let why = status.agent.last_visit_failure.unwrap();
    assert!(why.contains("no member"), "{why}");
    open_door.shutdown().await;
    device.end().await;
}

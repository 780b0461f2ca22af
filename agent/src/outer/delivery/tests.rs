//! What a visit hands over, judged by a real core, from keepers that give what they are told to.

use std::collections::{BTreeMap, BTreeSet};

use groundswell_core::crypto::SoftwareCrypto;
use groundswell_core::digest::Digest;
use groundswell_core::documents::envelope::Envelope;
use groundswell_core::documents::fleet::{Fleet, Limits, Role, Roles};
use groundswell_core::documents::tag::{FleetType, Spec1};
use groundswell_core::documents::{Body, Kind};
use groundswell_core::node::effect::Effect;
use groundswell_core::node::input::{Input, Source};
use groundswell_core::node::{Node, NodeConfig};
use groundswell_core::number::Ppm;
use groundswell_core::time::Timestamp;
use groundswell_core::trust::local::LocalTrust;
use groundswell_core::trust::signing::SecretKey;
use groundswell_net::outer::wire::{self, Answer, Ask, Refused, Standing};
use tokio_util::compat::TokioAsyncReadCompatExt as _;

use super::*;
use crate::clock::Clock;

const KEEPER: NodeId = NodeId([9; 32]);

/// Fleet documents, each signed by the one root that there is.
struct Chain(Vec<Vec<u8>>);

impl Chain {
    fn of(versions: u64, ahead_seconds: u64) -> Self {
        let root = SecretKey::generate(&[1; 32]).unwrap();
        let role = || Role { keys: vec![root.public().clone()], threshold: 1 };
        let mut fleet = Fleet {
            kind: FleetType,
            spec: Spec1,
            fleet: None,
            version: 1,
            previous: None,
            issued_at: now(),
            expires_at: now().plus_seconds(1_000_000),
            roles: Roles { root: role(), release: BTreeMap::new(), rollout: role(), enroll: role() },
            limits: Limits { min_soak_seconds: 0, max_first_wave_ppm: Ppm::ALL, max_budget_ppm: Ppm::ALL },
            anchor: None,
            revoked: Vec::new(),
        };
        let mut published = Vec::new();
        for version in 1..=versions {
            let body = Body::Fleet(fleet.clone()).encode();
            let (signatures, digest) = (vec![root.endorse(&body)], Digest::of(&body));
            fleet.fleet = Some(fleet.fleet.unwrap_or(digest));
            fleet.previous = Some(digest);
            fleet.version = version + 1;
            fleet.issued_at = now().plus_seconds(version * ahead_seconds);
            published.push(Envelope { kind: Kind::Fleet, body, signatures }.to_bytes());
        }
        Self(published)
    }

    fn version(&self, version: usize) -> &[u8] {
        &self.0[version - 1]
    }

    fn listed(&self, version: usize) -> Listed {
        let published = self.version(version);
        let digest = Envelope::parse(published).unwrap().digest();
        Listed { kind: Kind::Fleet, digest, published: Digest::of(published) }
    }
}

fn now() -> Timestamp {
    Timestamp::from_seconds(1_800_000_000)
}

/// A node with version 1, and its end of the way from visits.
struct Bench {
    node: SharedNode,
    delivery: Delivery,
    inbox: mpsc::Receiver<Brought>,
    brought: usize,
    wall: Timestamp,
}

impl Bench {
    fn with(chain: &Chain) -> Self {
        let config = NodeConfig {
            fleet: chain.listed(1).digest,
            platform: crate::agent::platform(),
            products: BTreeSet::new(),
            lean: false,
            local_trust: LocalTrust::default(),
            bootstrap: Vec::new(),
            silent: true,
            agent: None,
        };
        let crypto = Box::new(SoftwareCrypto::from_secret(&[7; 32]));
        let node = SharedNode::new(Node::open(config, crypto, [5; 32], Vec::new(), Clock::default().now()).unwrap());
        let (sender, inbox) = mpsc::channel(4);
        let mut bench = Self { delivery: Delivery::new(node.clone(), sender), node, inbox, brought: 0, wall: now() };
        bench.judge(chain.version(1).to_vec()).unwrap();
        bench
    }

    fn version(&self) -> u64 {
        self.node.lock().shelf().fleet().unwrap().version
    }

    /// As the driver does.
    fn judge(&mut self, bytes: Vec<u8>) -> Result<Accepted, Rejection> {
        let mut node = self.node.lock();
        let at = groundswell_core::time::Now { wall: self.wall, ..Clock::default().now() };
        node.handle(at, Input::Document { bytes, source: Source::Visit { keeper: KEEPER, ticket: 1 } });
        let answer = node.take_effects().into_iter().find_map(|effect| match effect {
            Effect::Answer { ticket: 1, outcome } => Some(outcome),
            _ => None,
        });
        answer.expect("an answer")
    }

    /// A visit at a keeper that lists these and gives those.
    async fn visit(&mut self, listed: &[Listed], gives: &[&[u8]]) -> Result<(), VisitFailed> {
        let (delivery, mut visit) = (self.delivery.clone(), at_keeper(listed, gives).await);
        let work = delivery.documents(&mut visit, KEEPER, listed);
        tokio::pin!(work);
        loop {
            tokio::select! {
                ended = &mut work => return ended,
                Some(brought) = self.inbox.recv() => {
                    let Brought::Document { bytes, verdict, .. } = brought else { panic!("only documents") };
                    self.brought += 1;
                    verdict.send(self.judge(bytes)).unwrap();
                }
            }
        }
    }

    /// The same, cut off before the first document is judged.
    async fn visit_cut_off(&mut self, listed: &[Listed], gives: &[&[u8]]) {
        let (delivery, mut visit) = (self.delivery.clone(), at_keeper(listed, gives).await);
        tokio::select! {
            _ = delivery.documents(&mut visit, KEEPER, listed) => panic!("nobody judged"),
            brought = self.inbox.recv() => drop(brought),
        }
    }
}

async fn at_keeper(listed: &[Listed], gives: &[&[u8]]) -> Visit {
    let (near, far) = tokio::io::duplex(1 << 20);
    let bytes: BTreeMap<Digest, Vec<u8>> =
        listed.iter().zip(gives).map(|(listed, bytes)| (listed.digest, bytes.to_vec())).collect();
    tokio::spawn(async move {
        let mut far = far.compat();
        while let Ok(Some(frame)) = wire::read_frame(&mut far, 70_000).await {
            let answer = match Ask::decode(&frame).unwrap() {
                Ask::Hello { .. } => Answer::Welcome(Standing::Former),
                Ask::Document { digest, .. } => match bytes.get(&digest) {
                    Some(bytes) => Answer::Chunk { total: u64::try_from(bytes.len()).unwrap(), bytes: bytes.clone() },
                    None => Answer::Refused(Refused::NotHere),
                },
                other => panic!("{other:?}"),
            };
            if wire::write_frame(&mut far, &answer.encode()).await.is_err() {
                return;
            }
        }
    });
    Visit::begin(Box::new(near.compat()), Digest([1; 32]), Vec::new()).await.unwrap()
}

#[tokio::test]
async fn what_was_refused_without_another_document_is_taken_in_the_visit_that_brings_it() {
    let chain = Chain::of(3, 0);
    let mut bench = Bench::with(&chain);
    // Held back: version 2.
    bench.visit(&[chain.listed(3)], &[chain.version(3)]).await.unwrap();
    bench.visit(&[chain.listed(3)], &[chain.version(3)]).await.unwrap();
    assert_eq!((bench.version(), bench.brought), (1, 1), "as long as nothing else is new it is not fetched again");
    bench.visit(&[chain.listed(2), chain.listed(3)], &[chain.version(2), chain.version(3)]).await.unwrap();
    assert_eq!(bench.version(), 3);
}

#[tokio::test]
async fn what_is_listed_under_another_kind_ends_the_visit_and_is_taken_at_the_next_door() {
    let chain = Chain::of(2, 0);
    let mut bench = Bench::with(&chain);
    for kind in [Kind::Release, Kind::Rollout, Kind::Node] {
        let ended = bench.visit(&[Listed { kind, ..chain.listed(2) }], &[chain.version(2)]).await;
        assert!(matches!(ended, Err(VisitFailed::Breach(_))), "{kind:?}");
    }
    bench.visit(&[chain.listed(2)], &[chain.version(2)]).await.unwrap();
    assert_eq!(bench.version(), 2);
}

#[tokio::test]
async fn what_a_wrong_clock_refused_is_taken_when_it_is_right() {
    let chain = Chain::of(2, 3 * 86_400);
    let mut bench = Bench::with(&chain);
    bench.visit(&[chain.listed(2)], &[chain.version(2)]).await.unwrap();
    assert_eq!(bench.version(), 1);
    bench.wall = now().plus_seconds(3 * 86_400);
    bench.visit(&[chain.listed(2)], &[chain.version(2)]).await.unwrap();
    assert_eq!(bench.version(), 2);
}

#[tokio::test]
async fn a_visit_that_is_cut_off_loses_nothing() {
    let chain = Chain::of(2, 0);
    let mut bench = Bench::with(&chain);
    bench.visit_cut_off(&[chain.listed(2)], &[chain.version(2)]).await;
    assert_eq!(bench.version(), 1);
    bench.visit(&[chain.listed(2)], &[chain.version(2)]).await.unwrap();
    assert_eq!(bench.version(), 2);
}

#[tokio::test]
async fn what_is_no_document_is_fetched_once() {
    let chain = Chain::of(1, 0);
    let mut bench = Bench::with(&chain);
    let noise = b"{\"release\":1}";
    let listed = Listed { kind: Kind::Release, digest: Digest([3; 32]), published: Digest::of(noise) };
    for _ in 0..3 {
        bench.visit(&[listed], &[noise]).await.unwrap();
    }
    assert_eq!(bench.brought, 1);
}

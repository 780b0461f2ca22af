//! The outer door of a real agent, and a node that comes back after a year through those of others.

use std::sync::Arc;
use std::time::Duration;

use groundswell_agent::agent::Setting;
use groundswell_agent::clock::Clock;
use groundswell_agent::config::Config;
use groundswell_agent::handle::StatusView;
use groundswell_agent::identity::{self, Secret};
use groundswell_core::crypto::SoftwareCrypto;
use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::signed::{RecordBody, SignedRecord};
use groundswell_core::record::status::Status;
use groundswell_core::record::{RecordKind, Stamp};
use groundswell_net::outer::OuterSource;
use groundswell_net::outer::visit::{Visit, VisitFailed};
use groundswell_net::outer::wire::{Refused, Standing};
use groundswell_net::{Admission, Network};

use crate::agents::{Running, start, start_in};
use crate::fleet::{Published, World, free_port};
use crate::workshop::PATIENCE;

const YEAR_MS: u64 = 400 * 86_400_000;

/// Says who it is, and admits nobody. It may have an outer door.
pub(crate) struct Outsider(pub(crate) Digest, pub(crate) Option<Arc<dyn OuterSource>>);

impl Admission for Outsider {
    fn fleet(&self) -> Digest {
        self.0
    }
    fn own_proof(&self) -> Vec<u8> {
        Vec::new()
    }
    fn admit(&self, _: NodeId, _: &[u8]) -> Result<(), String> {
        Err("nobody".into())
    }
    fn outer(&self) -> Option<Arc<dyn OuterSource>> {
        self.1.clone()
    }
}

fn secret_of(config: &Config) -> Secret {
    identity::read_key_file(&config.key_file).unwrap()
}

/// Visits the agent on `port` under `secret`, with a certificate or none.
async fn visit(world: &World, port: u16, secret: &Secret, certificate: &[u8]) -> Result<Visit, VisitFailed> {
    let admission = Arc::new(Outsider(world.fleet.digest, None));
    let config = groundswell_net::Config::default();
    let (network, _events) = Network::start(config, *secret, admission).await.unwrap();
    let (_, stream) = network.visit(None, vec![format!("/ip4/127.0.0.1/tcp/{port}")]).await?;
    // The network lives as long as its stream is needed: for the rest of the test.
    std::mem::forget(network);
    Visit::begin(stream, world.fleet.digest, certificate.to_vec()).await
}

async fn standing(world: &World, port: u16, secret: &Secret, certificate: &[u8]) -> Standing {
    visit(world, port, secret, certificate).await.unwrap().standing()
}

fn refused(outcome: Result<impl Sized, VisitFailed>) -> Refused {
    match outcome {
        Err(VisitFailed::Refused(refused)) => refused,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was given"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s7_forged_foreign_expired_and_revoked_certificates_get_what_each_of_them_may() {
    let mut world = World::new();
    let port = free_port();
    let config = world.machine("a1", port, &[]);
    // Two days later.
    let clock = Clock::default();
    clock.advance_ms(2 * 86_400_000);
    let agent = start_in(config, Setting { clock, ..Setting::default() });
    agent.until("up", |_| true).await;

    let old = identity::generate().unwrap();
    let cupboard = world.machine("cupboard", free_port(), &[]);
    let (kept, expired) = (secret_of(&cupboard), world.end_certificate(&cupboard, 1));
    // Without a certificate, with another's, with one of another fleet, with one that nobody of this fleet signed.
    let mut foreign = World::new();
    foreign.rotate(0, Vec::new());
    let forged = foreign.admit("old", &old, Some("pool"));
    assert_eq!(standing(&world, port, &old, b"").await, Standing::Stranger);
    assert_eq!(standing(&world, port, &old, &expired.bytes).await, Standing::Stranger, "another node's");
    assert_eq!(standing(&world, port, &old, &forged.bytes).await, Standing::Stranger);
    assert_eq!(standing(&world, port, &old, b"no certificate at all").await, Standing::Stranger);
    assert_eq!(standing(&world, port, &kept, &expired.bytes).await, Standing::Former);

    // A member's, newly signed; then the key that signed it is removed, and then root revokes the node.
    let other = identity::generate().unwrap();
    let valid = world.admit("a2", &other, Some("pool"));
    assert_eq!(standing(&world, port, &other, &valid.bytes).await, Standing::Member);
    agent.client.publish(world.rotate(0, Vec::new()).bytes).await.unwrap();
    assert_eq!(standing(&world, port, &other, &valid.bytes).await, Standing::Former);
    let node = identity::node_id(&other);
    agent.client.publish(world.rotate(0, vec![node]).bytes).await.unwrap();
    let mut revoked = visit(&world, port, &other, &valid.bytes).await.unwrap();
    assert_eq!(revoked.standing(), Standing::Stranger);
    // It may still learn that it is revoked, and nothing else.
    let fleets = revoked.fleets(0).await.unwrap();
    assert_eq!(fleets.len(), 3);
    assert_eq!(revoked.document(fleets[2].digest, 100_000).await.unwrap().len(), {
        let published = agent.client.get_bytes(&format!("/v1/documents/{}", fleets[2].digest.hex())).await.unwrap();
        published.len()
    });
    assert_eq!(refused(revoked.documents().await), Refused::Standing);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s7_only_a_members_own_status_record_is_taken_at_the_door_and_the_mesh_hears_of_it() {
    let mut world = World::new();
    let ports = [free_port(), free_port()];
    let configs = [world.machine("a1", ports[0], &[]), world.machine("a2", ports[1], &[ports[0]])];
    let (first, second) = (secret_of(&configs[0]), identity::generate().unwrap());
    let certificate = world.admit("outside", &second, Some("pool"));
    let agents = configs.map(start);
    for agent in &agents {
        agent.until("connected", |status| status.node.peers == 1).await;
    }
    let signed = |secret: &Secret, counter: u64| {
        let crypto = SoftwareCrypto::from_secret(secret);
        let stamp = Stamp { incarnation: 1, counter };
        SignedRecord::sign(&world.fleet.digest, stamp, RecordBody::Status(Status::default()), &crypto).unwrap()
    };
    let mut member = visit(&world, ports[0], &second, &certificate.bytes).await.unwrap();
    assert_eq!(member.standing(), Standing::Member);
    // Another's, a forged one, grants, and noise.
    assert_eq!(refused(member.push(signed(&first, 1_000).bytes().to_vec()).await), Refused::Record);
    let mut forged = signed(&second, 7).bytes().to_vec();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(refused(member.push(forged).await), Refused::Record);
    let grants = RecordBody::Grants(groundswell_core::record::grants::Grants::default());
    let crypto = SoftwareCrypto::from_secret(&second);
    let grants = SignedRecord::sign(&world.fleet.digest, Stamp { incarnation: 1, counter: 8 }, grants, &crypto).unwrap();
    assert_eq!(refused(member.push(grants.bytes().to_vec()).await), Refused::Record);
    assert_eq!(refused(member.push(vec![1; 100]).await), Refused::Record);

    // Its certificate is new to the keeper: it came with the hello, and is passed on like any other document.
    member.push(signed(&second, 9).bytes().to_vec()).await.unwrap();
    member.push(signed(&second, 9).bytes().to_vec()).await.unwrap();
    member.push(signed(&second, 10).bytes().to_vec()).await.unwrap();
    agents[1].until("the record has travelled", |status| status.node.members == 3).await;
    // It reads its own back, and those of its pool, once the other agent's has come too.
    let all_three = async {
        loop {
            let stamps = member.stamps(RecordKind::Status).await.unwrap();
            if stamps.len() >= 3 {
                return stamps;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let stamps = tokio::time::timeout(PATIENCE, all_three).await.expect("the records of its pool");
    let own = stamps.iter().find(|(node, _)| *node == identity::node_id(&second)).unwrap();
    assert_eq!(own.1, Stamp { incarnation: 1, counter: 10 });
    assert_eq!(stamps.len(), 3);
    for agent in agents {
        agent.end().await;
    }
}

async fn publish(agent: &Running, documents: impl IntoIterator<Item = Published>) {
    for document in documents {
        agent.client.publish(document.bytes).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_a_node_back_after_a_year_with_an_expired_certificate_becomes_a_member_again_without_a_visit() {
    let mut world = World::new();
    let ports = [free_port(), free_port(), free_port()];
    let configs = [world.machine("a1", ports[0], &[]), world.machine("a2", ports[1], &[ports[0]])];
    let sleeper = world.machine("a3", ports[2], &[ports[0]]);
    world.end_certificate(&sleeper, 90);
    let (one, two, three) = (start(configs[0].clone()), start(configs[1].clone()), start(sleeper.clone()));
    for agent in [&one, &two, &three] {
        agent.until("a mesh", |status| status.node.peers == 2).await;
    }
    // Into the cupboard, for four hundred days. Meanwhile root is renewed twice and certificates are signed by another key.
    three.end().await;
    one.end().await;
    two.end().await;
    let clock = Clock::default();
    clock.advance_ms(YEAR_MS);
    let setting = || Setting { clock: clock.clone(), ..Setting::default() };
    let (one, two) = (start_in(configs[0].clone(), setting()), start_in(configs[1].clone(), setting()));
    one.until("up", |_| true).await;
    let fleets = [world.rotate(20, Vec::new()), world.rotate(370, Vec::new())];
    publish(&one, fleets).await;
    publish(&one, world.renew()).await;
    for agent in [&one, &two] {
        agent.until("renewed", |status| status.node.fleet_version == Some(3) && status.node.peers == 1).await;
    }

    let back = start_in(sleeper, setting());
    // Peers may be there a moment before the certificate by which they came is told of.
    let is_member = |status: &StatusView| status.node.fleet_version == Some(3) && status.node.name.as_deref() == Some("a3");
    back.until("a member again", |status| status.node.peers == 2 && is_member(status)).await;
    let status = back.until("it needs no door any more", |status| status.node.outer_door.is_none()).await;
    assert!(status.node.members >= 2);
    let events: serde_json::Value = back.client.get("/v1/events?after=0").await.unwrap();
    let told = events.to_string();
    assert!(told.contains("outer-door") && told.contains("expired"), "{told}");
    for agent in [one, two, back] {
        agent.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_without_a_certificate_picks_it_up_at_any_members_door() {
    let mut world = World::new();
    let ports = [free_port(), free_port()];
    let first = start(world.machine("a1", ports[0], &[]));
    first.until("up", |_| true).await;
    let mut device = world.machine("a2", ports[1], &[ports[0]]);
    // It was not admitted when its image was made.
    device.certificate_file = None;
    let device = start(device);
    let status = device.until("it says why", |status| status.node.outer_door.is_some()).await;
    assert!(status.node.outer_door.unwrap().contains("no certificate"), "it names the reason");
    publish(&first, world.certificates().cloned().collect::<Vec<_>>()).await;
    // A peer may be there a moment before the certificate by which it came is told of.
    device.until("a member", |status| status.node.peers == 1 && status.node.name.as_deref() == Some("a2")).await;
    tokio::time::timeout(PATIENCE, async { device.end().await }).await.unwrap();
    first.end().await;
}

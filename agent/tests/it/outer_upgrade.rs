//! A build that speaks nothing of the mesh any more: it finds its own successor through the outer doors of ordinary agents.

use std::sync::Arc;

use groundswell_agent::agent::Setting;
use groundswell_agent::clock::Clock;
use groundswell_agent::identity;
use groundswell_agent::observer::files::ReleaseFiles;
use groundswell_agent::observer::publish::{NamedFile, Progress};
use groundswell_agent::observer::{Observer, Settings};
use groundswell_core::blob::BlobName;
use groundswell_core::documents::Kind;
use groundswell_core::node::view::{LeaseView, ProductView};
use groundswell_core::record::status::Phase;
use tokio::sync::watch;

use crate::agents::{named, start, start_in};
use crate::fleet::{World, agent_product, free_port, product, script};
use crate::workshop::PATIENCE;

const DAY_MS: u64 = 86_400_000;

fn of<'a>(products: &'a [ProductView], name: &str) -> &'a ProductView {
    products.iter().find(|view| view.product == name).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_speaks_only_the_outer_door_upgrades_itself_and_nothing_else_under_all_guarantees() {
    let mut world = World::new();
    let ports = [free_port(), free_port(), free_port(), free_port()];
    let [first, second, third, old] = ports;
    let configs = [world.machine("a1", first, &[]), world.machine("a2", second, &[first]), world.machine("a3", third, &[first])];
    let config = world.machine_with("old", old, &[first], &[product(), agent_product()]);
    let operator = identity::generate().unwrap();
    world.admit("operator", &operator, None);
    let agents = configs.map(start);
    for agent in &agents {
        agent.until("connected", |status| status.node.peers == 2).await;
    }
    let clock = Clock::default();
    let setting =
        Setting { clock: clock.clone(), only_outer_door: true, agent_product: Some(agent_product()), ..Setting::default() };
    let old = start_in(config, setting);
    old.until("up", |_| true).await;

    // Two rollouts count for the old node: of its service, and of its own agent.
    let program = "#!/bin/sh\nexec sleep 1000\n";
    let path = script(world.folder.path(), "program", program);
    let (service, service_body) = world.release("1.0.0", 1, program.as_bytes());
    let (successor, successor_body) = world.release_of(agent_product(), "2.0.0", 2, program.as_bytes());
    let (roster, named_roster) = world.roster();
    let rollouts = [
        world.rollout("service", &service, &service_body, &named_roster),
        world.rollout("agent", &successor, &successor_body, &named_roster),
    ];
    let name = BlobName::from(&successor_body.artifacts[0]);
    let mut files = ReleaseFiles::default();
    files.add(&name, &path).unwrap();
    let observer = Observer::start(
        Settings {
            fleet: world.fleet.digest,
            secret: operator,
            documents: world.known(),
            peers: vec![format!("/ip4/127.0.0.1/tcp/{first}")],
        },
        Arc::new(files),
    )
    .await
    .unwrap();
    observer.connected(PATIENCE).await.unwrap();
    let mut documents: Vec<_> = world.certificates().map(|published| named("certificate", Kind::Node, published)).collect();
    documents.push(named("service", Kind::Release, &service));
    documents.push(named("successor", Kind::Release, &successor));
    documents.push(named("roster", Kind::Roster, &roster));
    documents.extend(rollouts.iter().map(|rollout| named("rollout", Kind::Rollout, rollout)));
    let file = NamedFile { name: "program".to_owned(), release: successor.digest, sha256: name.sha256 };
    let (progress, _) = watch::channel(Progress::default());
    observer.publish(&documents, &[file], 1, PATIENCE, &progress).await.unwrap();
    observer.end().await.unwrap();

    // For a day it waits for members that speak as it does. It finds none, and says why.
    let status = old.until("it is turned away", |status| status.agent.counters["peers_refused"] > 0).await;
    assert_eq!((status.node.outer_door, status.node.fleet_version, status.node.peers), (None, Some(1), 0));
    assert_eq!(of(&status.node.products, "agent").phase, Phase::Idle);
    clock.advance_ms(DAY_MS - 600_000);
    let status = old.until("not yet a day", |_| true).await;
    assert_eq!(status.node.outer_door, None);
    clock.advance_ms(600_000);
    let status = old.until("a day", |status| status.node.outer_door.is_some()).await;
    assert!(status.node.outer_door.unwrap().contains("members with a protocol in common"));

    let status =
        old.until("its successor runs and is vouched for", |status| of(&status.node.products, "agent").phase == Phase::Soaked);
    let status = status.await;
    let own = of(&status.node.products, "agent");
    assert_eq!((own.version.as_deref(), own.floor), (Some("2.0.0"), 2));
    // Its service waits for the successor, and says for what.
    let held = of(&status.node.products, "svc");
    assert_eq!((held.phase, held.version.as_deref()), (Phase::Waiting, None));
    assert!(held.hold.as_ref().unwrap().text.contains("outer doors"), "{held:?}");
    // Nobody admitted it, and it admitted nobody: all of it went through the door.
    assert_eq!((status.agent.counters["peers_admitted"], status.node.peers), (0, 0));
    // The others saw it claim and confirm: its slot is free again, and its verdict counts.
    for agent in &agents {
        agent.until("it has heard of it", |status| status.node.members == 4).await;
        let is_free = |leases: &Vec<LeaseView>| leases.iter().all(|lease| lease.holder != Some(status.node.node));
        agent.sees("/v1/leases", is_free).await;
    }
    let pushes: u64 = {
        let mut pushes = 0;
        for agent in &agents {
            pushes += agent.until("up", |_| true).await.agent.counters["door_pushes"];
        }
        pushes
    };
    assert!(pushes >= 3, "claim, activation and verdict were handed over: {pushes}");
    old.end().await;
    for agent in agents {
        agent.end().await;
    }
}

const YEAR_MS: u64 = 400 * DAY_MS;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_a_build_too_old_for_the_mesh_comes_back_after_a_year_and_fetches_its_certificate_and_then_its_successor() {
    let mut world = World::new();
    let ports = [free_port(), free_port(), free_port(), free_port()];
    let [first, second, third, old] = ports;
    let configs = [world.machine("a1", first, &[]), world.machine("a2", second, &[first]), world.machine("a3", third, &[first])];
    let sleeper = world.machine_with("old", old, &[first], &[product(), agent_product()]);
    world.end_certificate(&sleeper, 90);
    let setting = |clock: &Clock, only_outer_door| Setting {
        clock: clock.clone(),
        only_outer_door,
        agent_product: only_outer_door.then(agent_product),
        ..Setting::default()
    };
    let before = start_in(sleeper.clone(), setting(&Clock::default(), true));
    before.until("it knows its fleet", |status| status.node.fleet_version == Some(1)).await;
    before.end().await;

    // Four hundred days in the cupboard. Meanwhile root is renewed, another key signs certificates, and its successor is rolled out.
    let clock = Clock::default();
    clock.advance_ms(YEAR_MS);
    let agents = configs.map(|config| start_in(config, setting(&clock, false)));
    for agent in &agents {
        agent.until("connected", |status| status.node.peers == 2).await;
    }
    let program = "#!/bin/sh\nexec sleep 1000\n";
    let path = script(world.folder.path(), "program", program);
    let mut documents = vec![world.rotate(20, Vec::new()), world.rotate(370, Vec::new())];
    documents.extend(world.renew());
    let (successor, body) = world.release_of(agent_product(), "2.0.0", 2, program.as_bytes());
    let (roster, named_roster) = world.roster();
    documents.extend([roster, successor.clone(), world.rollout("agent", &successor, &body, &named_roster)]);
    for document in documents {
        agents[0].client.publish(document.bytes).await.unwrap();
    }
    agents[0].client.put_blob(body.artifacts[0].sha256.into(), &path).await.unwrap();
    for agent in &agents {
        agent.until("renewed", |status| status.node.fleet_version == Some(3) && status.node.peers == 2).await;
    }

    // First the certificate, at once.
    let back = start_in(sleeper, setting(&clock, true));
    let status = back.until("it is a member again", |status| {
        status.node.fleet_version == Some(3) && status.node.name.as_deref() == Some("old") && status.node.outer_door.is_none()
    });
    let status = status.await;
    assert_eq!((of(&status.node.products, "agent").version.as_deref(), status.node.peers), (None, 0));
    let told: serde_json::Value = back.client.get("/v1/events?after=0").await.unwrap();
    assert!(told.to_string().contains("expired"), "{told}");
    // Then, after a day without anybody who speaks as it does, its successor.
    clock.advance_ms(DAY_MS);
    let status =
        back.until("its successor runs and is vouched for", |status| of(&status.node.products, "agent").phase == Phase::Soaked);
    let status = status.await;
    let own = of(&status.node.products, "agent");
    assert_eq!((own.version.as_deref(), own.floor), (Some("2.0.0"), 2));
    assert_eq!((status.agent.counters["peers_admitted"], status.node.peers), (0, 0), "all of it went through the door");
    back.end().await;
    for agent in agents {
        agent.end().await;
    }
}

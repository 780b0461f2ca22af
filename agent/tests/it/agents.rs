//! Whole agents in one process: real sockets, files and child processes.

use std::sync::Arc;
use std::time::Duration;

use groundswell_agent::agent::{self, AgentError, Setting};
use groundswell_agent::api::client::Client;
use groundswell_agent::config::Config;
use groundswell_agent::handle::StatusView;
use groundswell_agent::identity;
use groundswell_agent::observer::files::ReleaseFiles;
use groundswell_agent::observer::publish::{Named, NamedFile, Progress};
use groundswell_agent::observer::{Observer, ObserverError, Settings};
use groundswell_core::blob::BlobName;
use groundswell_core::documents::Kind;
use groundswell_core::node::view::Explanation;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::fleet::{World, free_port, script};
use crate::workshop::PATIENCE;

/// An agent that runs until it is stopped.
pub(crate) struct Running {
    pub(crate) client: Client,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), AgentError>>,
}

pub(crate) fn start(config: Config) -> Running {
    start_in(config, Setting::default())
}

pub(crate) fn start_in(config: Config, setting: Setting) -> Running {
    let client = Client::new(&config.socket);
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(agent::run_in(config, setting, async {
        let _ = stopped.await;
    }));
    Running { client, stop, task }
}

impl Running {
    pub(crate) async fn end(self) {
        let _ = self.stop.send(());
        self.task.await.unwrap().unwrap();
    }

    /// Looks at a view until it is as wanted.
    pub(crate) async fn sees<T: serde::de::DeserializeOwned>(&self, path: &str, wanted: impl Fn(&T) -> bool) -> T {
        let looked = tokio::time::timeout(PATIENCE, async {
            loop {
                match self.client.get::<T>(path).await {
                    Ok(view) if wanted(&view) => return view,
                    _ => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        });
        looked.await.unwrap_or_else(|_| panic!("{path} never became what it should"))
    }

    /// Looks until `done`; there is no event for everything that a test may look at.
    pub(crate) async fn until(&self, what: &str, done: impl Fn(&StatusView) -> bool) -> StatusView {
        let mut last = None;
        let waited = tokio::time::timeout(PATIENCE, async {
            let mut ticks = tokio::time::interval(Duration::from_millis(50));
            loop {
                ticks.tick().await;
                if let Ok(status) = self.client.get::<StatusView>("/v1/status").await {
                    if done(&status) {
                        return status;
                    }
                    last = Some(status);
                }
            }
        })
        .await;
        match waited {
            Ok(status) => status,
            Err(_) => {
                let explained: Result<Vec<Explanation>, _> = self.client.get("/v1/explain").await;
                panic!("{what}: {last:#?} {explained:#?}");
            }
        }
    }
}

pub(crate) fn named(name: &str, kind: Kind, published: &crate::fleet::Published) -> Named {
    Named { name: name.to_owned(), kind, digest: published.digest, bytes: published.bytes.clone() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_observer_publishes_to_one_agent_runs_on_all_and_can_be_pulled_from_another() {
    let mut world = World::new();
    let ports = [free_port(), free_port(), free_port()];
    let [first, second, third] = ports;
    // A line: the third knows only the second.
    let configs = [world.machine("a1", first, &[]), world.machine("a2", second, &[first]), world.machine("a3", third, &[second])];
    let operator = identity::generate().unwrap();
    world.admit("operator", &operator, None);
    let agents = configs.map(start);
    for agent in &agents {
        agent.until("connected", |status| status.node.peers > 0).await;
    }

    let program = b"#!/bin/sh\nexec sleep 1000\n";
    let path = script(world.folder.path(), "svc", std::str::from_utf8(program).unwrap());
    let (release, body) = world.release("1.0.0", 1, program);
    let (roster, named_roster) = world.roster();
    let rollout = world.rollout("r1", &release, &body, &named_roster);
    let name = BlobName::from(&body.artifacts[0]);
    let mut files = ReleaseFiles::default();
    files.add(&name, &path).unwrap();
    let settings = |port| Settings {
        fleet: world.fleet.digest,
        secret: operator,
        documents: world.known(),
        peers: vec![format!("/ip4/127.0.0.1/tcp/{port}")],
    };
    let observer = Observer::start(settings(first), Arc::new(files)).await.unwrap();
    observer.connected(PATIENCE).await.unwrap();
    let mut documents: Vec<Named> = world.certificates().map(|published| named("certificate", Kind::Node, published)).collect();
    documents.extend([
        named("release", Kind::Release, &release),
        named("roster", Kind::Roster, &roster),
        named("rollout", Kind::Rollout, &rollout),
    ]);
    let file = NamedFile { name: "svc".to_owned(), release: release.digest, sha256: name.sha256 };
    let (progress, _) = watch::channel(Progress::default());
    observer.publish(&documents, &[file], 2, PATIENCE, &progress).await.unwrap();
    observer.end().await.unwrap();

    for agent in &agents {
        let status = agent
            .until("soaked", |status| {
                status.node.products.iter().any(|it| it.phase == groundswell_core::record::status::Phase::Soaked)
            })
            .await;
        assert_eq!(status.node.products[0].version.as_deref(), Some("1.0.0"));
        assert!(status.agent.faults.is_empty());
    }

    let observer = Observer::start(settings(third), Arc::default()).await.unwrap();
    observer.connected(PATIENCE).await.unwrap();
    let pulled = observer.pull(PATIENCE).await.unwrap();
    for wanted in [release.digest, roster.digest, rollout.digest] {
        assert!(pulled.iter().any(|(digest, ..)| *digest == wanted), "{wanted}");
    }
    observer.end().await.unwrap();
    for agent in agents {
        agent.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_starts_again_goes_on_with_what_it_had() {
    let mut world = World::new();
    let config = world.machine("a1", free_port(), &[]);
    let (release, _) = world.release("1.0.0", 1, b"x");
    let agent = start(config.clone());
    let status = agent.until("up", |_| true).await;
    agent.client.publish(release.bytes.clone()).await.unwrap();
    agent.end().await;
    assert!(!config.socket.exists());
    let agent = start(config);
    assert_eq!(agent.until("up", |_| true).await.node.node, status.node.node);
    let kept = agent.client.get_bytes(&format!("/v1/documents/{}", release.digest.hex())).await.unwrap();
    assert_eq!(kept, release.bytes);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_artifact_that_is_handed_in_while_it_is_looked_for_ends_the_search() {
    let mut world = World::new();
    let config = world.machine("a1", free_port(), &[]);
    let agent = start(config);
    agent.until("up", |_| true).await;
    let program = b"#!/bin/sh\nexec sleep 1000\n";
    let path = script(world.folder.path(), "svc", std::str::from_utf8(program).unwrap());
    let (release, body) = world.release("1.0.0", 1, program);
    let (roster, named_roster) = world.roster();
    let rollout = world.rollout("r1", &release, &body, &named_roster);
    for document in [release, roster, rollout] {
        agent.client.publish(document.bytes).await.unwrap();
    }
    agent.until("looking", |status| !status.agent.downloads.is_empty()).await;
    agent.client.put_blob(body.artifacts[0].sha256.into(), &path).await.unwrap();
    let installed = |status: &StatusView| status.node.products.iter().any(|it| it.version.as_deref() == Some("1.0.0"));
    agent.until("installed", installed).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_without_anybody_to_talk_to_says_so() {
    let mut world = World::new();
    let operator = identity::generate().unwrap();
    let settings = |documents| Settings {
        fleet: world.fleet.digest,
        secret: operator,
        documents,
        peers: vec![format!("/ip4/127.0.0.1/tcp/{}", free_port())],
    };
    let nobody = Observer::start(settings(vec![world.fleet.bytes.clone()]), Arc::default()).await;
    assert!(matches!(nobody, Err(ObserverError::NoCertificate(_))));
    let settings_without_fleet = settings(Vec::new());
    assert!(matches!(Observer::start(settings_without_fleet, Arc::default()).await, Err(ObserverError::NoFleet(_))));
    let address = settings(Vec::new()).peers;
    world.admit("operator", &operator, None);
    let known = Settings { fleet: world.fleet.digest, secret: operator, documents: world.known(), peers: address };
    let observer = Observer::start(known, Arc::default()).await.unwrap();
    let error = observer.connected(Duration::from_secs(2)).await.unwrap_err();
    assert!(matches!(error, ObserverError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn what_is_wrong_at_the_start_is_told_with_the_file_and_a_way_out() {
    let mut world = World::new();
    let good = world.machine("a1", free_port(), &[]);
    let other = world.machine("a2", free_port(), &[]);
    let fails = async |config: Config| agent::run(config, std::future::pending()).await.unwrap_err();

    let error = fails(Config { certificate_file: other.certificate_file.clone(), ..good.clone() }).await;
    assert!(matches!(&error, AgentError::ForeignCertificate { .. }), "{error}");
    let error = fails(Config { documents: vec![], ..good.clone() }).await;
    assert!(matches!(&error, AgentError::NoFleet { .. } | AgentError::Document { .. }), "{error}");
    let missing = good.data_dir.join("nothing.json");
    let error = fails(Config { documents: vec![missing.clone()], ..good.clone() }).await;
    assert!(error.to_string().contains(&missing.display().to_string()), "{error}");
    let torn = world.folder.path().join("torn.json");
    std::fs::write(&torn, &world.fleet.bytes[..100]).unwrap();
    let error = fails(Config { documents: vec![torn.clone()], ..good.clone() }).await;
    assert!(matches!(&error, AgentError::Document { path, .. } if *path == torn), "{error}");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = vec![format!("/ip4/127.0.0.1/tcp/{}", taken.local_addr().unwrap().port())];
    let error = fails(Config { listen, ..good.clone() }).await;
    assert!(matches!(&error, AgentError::Mesh(_)), "{error}");
    let new = world.machine("a3", free_port(), &[]);
    std::fs::remove_file(&new.key_file).unwrap();
    let error = fails(new.clone()).await;
    assert!(error.to_string().contains(&new.key_file.display().to_string()), "{error}");
    // Nothing was broken by all that.
    let agent = start(good.clone());
    agent.until("up", |_| true).await;
    let error = fails(good).await;
    assert!(matches!(&error, AgentError::Identity(_)), "{error}");
    agent.end().await;
}

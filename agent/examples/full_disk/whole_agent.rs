//! A whole agent on a small disk that is full, read-only, or gone while it fetches and installs an upgrade: it says so, blames
//! nothing, keeps the version running that it has, and goes on by itself. Another agent, on the machine's own disk, has
//! everything.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use groundswell_agent::agent;
use groundswell_agent::api::client::Client;
use groundswell_agent::blobs::{BlobStore, Settings};
use groundswell_agent::config::Config;
use groundswell_agent::handle::StatusView;
use groundswell_core::digest::Digest;
use groundswell_core::documents::rollout::RosterRef;
use groundswell_core::node::view::ProductView;
use groundswell_core::record::status::{HoldCode, Phase};
use groundswell_net::pieces::{Rate, Rates, Terms};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Mounted, mount_move};
use crate::fleet::{self, Published, World, free_port};
use crate::workshop::{PATIENCE, runs};

/// Room for the store, the artifact, two slots, and what is to be kept free.
const SIZE: &str = "size=32m";
/// The artifact comes in some seconds.
const PER_SECOND: u64 = 768 * 1024;

struct Running {
    client: Client,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    fn start(config: Config) -> Self {
        let client = Client::new(&config.socket);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async {
            let run = agent::run_in(config, agent::Setting::default(), async {
                let _ = stopped.await;
            });
            run.await.unwrap();
        });
        Self { client, stop, task }
    }

    async fn until(&self, what: &str, done: impl Fn(&StatusView) -> bool) -> StatusView {
        let mut last = None;
        let looked = tokio::time::timeout(PATIENCE, async {
            loop {
                assert!(!self.task.is_finished(), "{what}: the agent has ended");
                if let Ok(status) = self.client.get::<StatusView>("/v1/status").await {
                    if done(&status) {
                        return status;
                    }
                    last = Some(status);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        looked.await.unwrap_or_else(|_| panic!("{what}: {last:#?}"))
    }

    async fn end(self) {
        let _ = self.stop.send(());
        self.task.await.unwrap();
    }
}

/// What is rolled out to both agents.
struct Upgrade {
    documents: Vec<Vec<u8>>,
    artifact: (Digest, PathBuf),
}

impl Upgrade {
    fn new(world: &World, version: &str, sequence: u64, program: &[u8], (roster, named): &(Published, RosterRef)) -> Self {
        let file = world.folder.path().join(version);
        fs::write(&file, program).unwrap();
        let (release, body) = world.release(version, sequence, program);
        let rollout = world.rollout(&format!("r{sequence}"), &release, &body, named);
        let documents = [release.bytes, roster.bytes.clone(), rollout.bytes].into();
        Self { documents, artifact: (body.artifacts.first().unwrap().sha256.into(), file) }
    }

    async fn roll_out(&self, to: &Running) {
        to.client.put_blob(self.artifact.0, &self.artifact.1).await.unwrap();
        for document in &self.documents {
            to.client.publish(document.clone()).await.unwrap();
        }
    }
}

/// Two agents in touch that run the first version, the second one's data on a small disk; and the next version, of which
/// nobody was told yet.
struct Scene {
    one: Running,
    two: Running,
    disk: Mounted,
    data: PathBuf,
    upgrade: Upgrade,
    /// Which process the first version is on the small disk.
    process: String,
    world: World,
}

fn product(status: &StatusView) -> &ProductView {
    status.node.products.first().unwrap()
}

fn installed(status: &StatusView) -> bool {
    product(status).version.as_deref() == Some("1.1.0")
}

/// Whether it says that its disk is full: of the product, or of its store, which is on the same disk.
fn says_full(status: &StatusView) -> bool {
    let held = product(status).hold.as_ref().is_some_and(|hold| hold.code == HoldCode::DiskFull);
    held || status.agent.faults.iter().any(|fault| fault.what == "store" && fault.detail.starts_with("disk-full: "))
}

impl Scene {
    /// The small disk is `part` of the data folder; all of it when that is empty.
    async fn new(part: &str) -> Result<Self, String> {
        Self::with_old_blob(part, 0).await
    }

    /// The same with an artifact of so many bytes, of an earlier run, that no rollout names.
    async fn with_old_blob(part: &str, old_bytes: usize) -> Result<Self, String> {
        let mut world = World::new();
        let ports = [free_port(), free_port()];
        let configs = [world.machine("a1", ports[0], &[]), world.machine("a2", ports[1], &[ports[0]])];
        let [first, second] = configs;
        let data = second.data_dir.clone();
        let disk = Mounted::over_with(&data.join(part), SIZE)?;
        if old_bytes > 0 {
            let settings = Settings { folder: data.join("blobs"), quota_bytes: u64::MAX, reserve_bytes: 0 };
            BlobStore::open(settings).unwrap().put_bytes(&vec![9; old_bytes]).unwrap();
        }
        let rates = Rates::new(Rate::UNBOUNDED, Rate::bytes_per_second(PER_SECOND));
        let swarm = Terms { rates, ..second.swarm.clone() };
        let second = Config { swarm, socket: world.folder.path().join("a2.sock"), ..second };
        let head = b"#!/bin/sh\nexec sleep 1000\n#";
        let padding = (0..3 * 1024 * 1024_u32).map(|at| b'a' + u8::try_from(at / 7 % 26).unwrap());
        let program: Vec<u8> = head.iter().copied().chain(padding).collect();
        let roster = world.roster();
        let before = Upgrade::new(&world, "1.0.0", 1, head, &roster);
        let upgrade = Upgrade::new(&world, "1.1.0", 2, &program, &roster);
        let (one, two) = (Running::start(first), Running::start(second));
        for agent in [&one, &two] {
            agent.until("in touch", |status| status.node.peers == 1).await;
        }
        before.roll_out(&one).await;
        for agent in [&one, &two] {
            agent.until("the first version is there", |status| product(status).phase == Phase::Soaked).await;
        }
        let note = fs::read(data.join("products").join(fleet::product().as_str()).join("run.json")).unwrap();
        let note: serde_json::Value = serde_json::from_slice(&note).unwrap();
        let process = note.get("process").unwrap().to_string();
        Ok(Self { one, two, disk, data, upgrade, process, world })
    }

    async fn roll_out(&self) {
        self.upgrade.roll_out(&self.one).await;
    }

    /// The version of before runs on, in the very process that it was.
    fn keeps_the_old_version(&self, status: &StatusView) {
        assert_eq!(product(status).version.as_deref(), Some("1.0.0"), "{status:#?}");
        assert!(runs(&self.process), "{status:#?}");
    }

    /// It is not installed, and nothing is to blame for that.
    fn blames_nothing(status: &StatusView) {
        let product = product(status);
        assert!(!matches!(product.phase, Phase::Failed | Phase::RolledBack), "{status:#?}");
    }

    /// The agent says that its disk is full, and goes on once there is room.
    async fn runs_full_and_goes_on(self) {
        let status = self.two.until("it says disk-full", says_full).await;
        Self::blames_nothing(&status);
        self.keeps_the_old_version(&status);
        self.disk.make_room();
        self.goes_on().await;
    }

    async fn goes_on(self) {
        self.two.until("it runs", installed).await;
        let status = self.two.until("it is well", |status| status.agent.faults.is_empty()).await;
        Self::blames_nothing(&status);
        self.two.end().await;
        self.one.end().await;
        drop(self.world);
    }
}

/// The disk runs full while the artifact comes.
pub(super) async fn full_in_the_middle_of_a_download() -> Result<(), String> {
    let scene = Scene::new("").await?;
    scene.roll_out().await;
    scene.two.until("it fetches", |status| !status.agent.downloads.is_empty()).await;
    scene.disk.fill();
    scene.runs_full_and_goes_on().await;
    Ok(())
}

/// There is room for the artifact and none for its copy in a slot: an old artifact gives way, and nothing else.
pub(super) async fn no_room_for_the_copy_in_a_slot() -> Result<(), String> {
    const OLD_BYTES: usize = 4 * 1024 * 1024;
    let scene = Scene::with_old_blob("", OLD_BYTES).await?;
    let old = Digest::of(&vec![9; OLD_BYTES]);
    let here = |status: &StatusView| status.agent.blobs.contains(&old);
    // Beside what is kept free: the artifact, and two thirds of it.
    scene.disk.fill_up_to(6 * 1024 * 1024);
    scene.roll_out().await;
    let artifact = scene.upgrade.artifact.0;
    let status = scene.two.until("it runs", installed).await;
    assert!(!here(&status) && status.agent.blobs.contains(&artifact), "{status:#?}");
    scene.goes_on().await;
    Ok(())
}

/// The disk is full when the node hears of the rollout: what it hears cannot be kept.
pub(super) async fn full_at_a_commit_of_the_store() -> Result<(), String> {
    let scene = Scene::new("").await?;
    scene.disk.fill();
    scene.roll_out().await;
    scene.runs_full_and_goes_on().await;
    Ok(())
}

/// Nothing can be written where artifacts are kept.
pub(super) async fn blobs_that_cannot_be_written() -> Result<(), String> {
    let scene = Scene::new("blobs").await?;
    scene.disk.remount("ro");
    scene.roll_out().await;
    let held = |status: &StatusView| product(status).hold.as_ref().is_some_and(|hold| hold.code == HoldCode::Retry);
    let status = scene.two.until("it tries again", held).await;
    Scene::blames_nothing(&status);
    scene.keeps_the_old_version(&status);
    scene.disk.remount("rw");
    scene.goes_on().await;
    Ok(())
}

/// The whole data folder is gone for a while.
pub(super) async fn a_data_folder_that_vanished() -> Result<(), String> {
    let scene = Scene::new("").await?;
    let away = scene.world.folder.path().join("away");
    fs::create_dir(&away).unwrap();
    mount_move(&scene.data, &away)?;
    scene.roll_out().await;
    let held = |status: &StatusView| product(status).hold.is_some() || !status.agent.faults.is_empty();
    let status = scene.two.until("it says that something is wrong", held).await;
    Scene::blames_nothing(&status);
    scene.keeps_the_old_version(&status);
    mount_move(&away, &scene.data)?;
    scene.goes_on().await;
    Ok(())
}

//! An agent without rights, a helper with some, and a rollout over both; either may die in the middle.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use groundswell_agent::api::client::Client;
use groundswell_agent::handle::StatusView;
use groundswell_agent::identity;
use groundswell_core::record::status::Phase;
use tokio::time::timeout;

use super::bench::{Bench, PATIENCE, appears, lend, own_account, spawn};
use super::world::program;
use crate::online::free_port;

const NOBODY: u32 = 65_534;

/// A helper, and an agent of another user beside it where tests may become others.
struct Pair {
    bench: Bench,
    account: (u32, u32),
    program: PathBuf,
    agent: Option<Child>,
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.kill_agent();
    }
}

impl Pair {
    /// Both run. `run` is what the helper starts a version by, in a shell, with `HOME` for the folder of everything.
    fn start(run: &str) -> Self {
        let account = if own_account().0 == 0 { (NOBODY, NOBODY) } else { own_account() };
        let mut bench = Bench::prepare("", "");
        let home = bench.home();
        let (uid, gid) = own_account();
        bench.configure(
            &format!("user = \"{uid}\"\ngroup = \"{gid}\""),
            &format!("user = \"{}\"\ngroup = \"{}\"", account.0, account.1),
        );
        bench.configure(&format!("{{binary}} >> {home}/started"), &run.replace("HOME", &home));
        let folder = bench.path("agent");
        fs::create_dir(&folder).unwrap();
        identity::write_key_file(&folder.join("node.key"), &bench.world.secret).unwrap();
        let papers = bench.world.papers(1);
        fs::write(folder.join("fleet.json"), bench.world.sign_fleet(&papers.fleet)).unwrap();
        fs::write(folder.join("node.json"), bench.world.sign_certificate(&papers.certificate)).unwrap();
        let port = free_port();
        let text = format!(
            r#"
data-dir = "data"
fleet = "{fleet}"
documents = ["fleet.json"]
key-file = "node.key"
certificate-file = "node.json"
listen = ["/ip4/127.0.0.1/tcp/{port}"]
socket = "agent.sock"
[limits]
keep-free = "1MiB"
[product.bcd]
activator = {{ type = "helper", socket = "{home}/helper.sock" }}
health = {{ type = "command", run = ["/bin/sh", "-c", "test $GROUNDSWELL_VERSION = 1.0 && test -r $GROUNDSWELL_BINARY"], interval = "200ms", timeout = "5s" }}
"#,
            fleet = bench.world.fleet_id(),
        );
        fs::write(folder.join("agent.toml"), text).unwrap();
        for name in ["", "node.key", "fleet.json", "node.json", "agent.toml"] {
            chown(folder.join(name), Some(account.0), Some(account.1)).unwrap();
        }
        let program = bench.path("swell");
        lend(Path::new(env!("CARGO_BIN_EXE_swell")), &program);
        bench.start();
        let mut pair = Self { bench, account, program, agent: None };
        pair.start_agent();
        pair
    }

    fn start_agent(&mut self) {
        let mut command = Command::new(&self.program);
        command.args(["agent", "--config"]).arg(self.bench.path("agent/agent.toml")).current_dir("/");
        if own_account().0 == 0 {
            command.uid(self.account.0).gid(self.account.1);
        }
        let mut child = spawn(command.stderr(Stdio::piped()));
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut seen = Vec::new();
        let up = log.any(|line| {
            seen.push(line.clone());
            line.contains("is running")
        });
        assert!(up, "the agent ended before it ran: {seen:#?}");
        std::thread::spawn(move || log.for_each(drop));
        self.agent = Some(child);
    }

    fn kill_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }

    fn client(&self) -> Client {
        Client::new(&self.bench.path("agent/agent.sock"))
    }

    /// Hands the agent everything for release 1.
    async fn publish(&self) {
        let papers = self.bench.world.papers(1);
        let artifact = self.bench.path("artifact");
        fs::write(&artifact, program(1)).unwrap();
        let sha256 = papers.release.artifacts.first().unwrap().sha256.into();
        self.client().put_blob(sha256, &artifact).await.unwrap();
        for document in self.bench.world.published(&papers).into_iter().skip(1) {
            self.client().publish(document).await.unwrap();
        }
    }

    /// Looks until the agent has soaked on release 1.
    async fn soaked(&self) -> StatusView {
        let mut last = None;
        let look = async {
            loop {
                if let Ok(status) = self.client().get::<StatusView>("/v1/status").await {
                    if status.node.products.iter().any(|it| it.phase == Phase::Soaked) {
                        return status;
                    }
                    last = Some(status);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        match timeout(PATIENCE, look).await {
            Ok(status) => status,
            Err(_) => panic!("{last:#?}"),
        }
    }

    /// Everything is as it must be after an install.
    async fn is_installed(&self) {
        let status = self.soaked().await;
        let product = status.node.products.first().unwrap();
        assert_eq!((product.version.as_deref(), product.floor), (Some("1.0"), 1));
        assert_eq!(self.bench.current(), Some(program(1)));
        let binary = fs::metadata(self.bench.path("data/products/bcd/current/bcd")).unwrap();
        assert_eq!((binary.uid(), binary.mode() & 0o7777), (own_account().0, 0o555), "the agent cannot change it");
        let agents: Vec<_> = fs::read_dir(self.bench.path("agent/data")).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert!(!agents.contains(&"products".into()), "the agent has no slots of its own: {agents:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_without_rights_installs_a_rollout_through_the_helper() {
    let pair = Pair::start("{binary} >> HOME/started");
    pair.publish().await;
    pair.is_installed().await;
    assert_eq!(pair.bench.started(), ["release 1"]);
}

const SLOW: &str = "touch HOME/starting; until test -e HOME/go; do sleep 0.05; done; {binary} >> HOME/started";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_helper_that_dies_in_the_middle_of_a_switch_goes_on_after_it() {
    let mut pair = Pair::start(SLOW);
    pair.publish().await;
    appears(&pair.bench.path("starting")).await;
    pair.bench.kill();
    fs::write(pair.bench.path("go"), "").unwrap();
    pair.bench.start();
    pair.is_installed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_dies_in_the_middle_of_a_switch_finds_it_done() {
    let mut pair = Pair::start(SLOW);
    pair.publish().await;
    appears(&pair.bench.path("starting")).await;
    pair.kill_agent();
    fs::write(pair.bench.path("go"), "").unwrap();
    pair.start_agent();
    pair.is_installed().await;
    assert_eq!(pair.bench.started(), ["release 1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_starts_before_its_helper_waits_for_it() {
    let mut pair = Pair::start("{binary} >> HOME/started");
    pair.kill_agent();
    pair.bench.kill();
    pair.start_agent();
    pair.publish().await;
    pair.bench.start();
    pair.is_installed().await;
}

//! One node of a fleet of real processes: its folder, its configuration, and its agent while that runs.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use groundswell_core::digest::Digest;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use super::api::Api;
use super::error::FleetError;
use super::plan::PRODUCT;
use super::processes::is_over;
use super::service;
use super::swell::Swell;
use super::wait::until;
use crate::lab::Host;

/// How long an agent may take until it answers on its socket: twelve of them share a processor.
const ANSWERS_WITHIN: Duration = Duration::from_secs(120);
/// How long an agent may take to end on SIGTERM: it stops its service first.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// Lines of the log in an error.
const LAST_LINES: usize = 12;

/// A node.
#[derive(Debug)]
pub struct Agent {
    name: String,
    pool: String,
    folder: PathBuf,
    place: Place,
    /// Its agent runs under its supervisor.
    supervised: bool,
    api: Api,
    running: Option<Child>,
}

/// Where an agent listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its port in the mesh.
    pub port: u16,
    /// Its service's, on loopback.
    pub service_port: u16,
    /// Its host in a lab; else it is on loopback.
    pub host: Option<Host>,
}

impl Place {
    fn ip(&self) -> Ipv4Addr {
        self.host.as_ref().map_or(Ipv4Addr::LOCALHOST, |host| host.address)
    }
}

/// The product, where it is the agent itself. The times are those of a test, on a busy machine.
const AGENT_ITSELF: &str = r#"[product.svc.activator]
type = "agent"

[product.svc.health]
type = "process"
interval = "250ms"

[supervise]
ready-within = "20s"
silence = "20s"
backoff = "200ms"
"#;

/// Where staging waits longer than what is measured takes.
const NO_STAGING: &str = r#"
[product.svc.hooks]
before-stage = ["/bin/sleep", "600"]
timeout = "11m"
"#;

/// What its configuration says.
#[derive(Clone, Debug)]
pub struct Configuration<'a> {
    /// The fleet's id.
    pub fleet: &'a str,
    /// The fleet document's file.
    pub document: &'a Path,
    /// Its certificate's file.
    pub certificate: &'a Path,
    /// Addresses that it knows.
    pub bootstrap: Vec<String>,
    /// The witness's socket.
    pub witness: &'a Path,
    /// Log filter.
    pub log: &'a str,
    /// The product is the agent itself.
    pub agents: bool,
    /// Nothing is staged for ten minutes after it was fetched.
    pub only_fetch: bool,
    /// It gives nobody anything.
    pub metered: bool,
}

impl Agent {
    /// A node in `folder`. Nothing runs.
    #[must_use]
    pub fn new(name: &str, pool: &str, folder: &Path, place: Place) -> Self {
        let api = Api::new(name, &folder.join("agent.sock"));
        let (name, pool, folder) = (name.to_owned(), pool.to_owned(), folder.to_path_buf());
        Self { name, pool, folder, place, supervised: false, api, running: None }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its pool.
    #[must_use]
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its local API.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Its host, where it is in a lab.
    #[must_use]
    pub fn host(&self) -> Option<&Host> {
        self.place.host.as_ref()
    }

    /// Where other members reach it.
    #[must_use]
    pub fn address(&self) -> String {
        format!("/ip4/{}/tcp/{}", self.place.ip(), self.place.port)
    }

    /// Its configuration's file.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.folder.join("agent.toml")
    }

    /// Its data folder.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Its agent's process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().and_then(Child::id)
    }

    /// Where it keeps an artifact, under its name once all of it is there.
    #[must_use]
    pub fn blob(&self, sha256: &Digest) -> PathBuf {
        self.data().join("blobs").join(sha256.hex().to_string())
    }

    /// The process of its agent, as its supervisor has written it down; `None` while that does not run.
    #[must_use]
    pub fn supervised_pid(&self) -> Option<u32> {
        let run = std::fs::read(self.data().join("supervise").join("run.json")).ok()?;
        let run: serde_json::Value = serde_json::from_slice(&run).ok()?;
        let pid = run.get("process")?.as_u64()?.try_into().ok()?;
        (!is_over(pid)).then_some(pid)
    }

    /// Writes its configuration.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn configure(&mut self, configuration: &Configuration<'_>) -> Result<(), FleetError> {
        let Configuration { fleet, document, certificate, bootstrap, log, agents, .. } = configuration;
        self.supervised = *agents;
        let product = if *agents { AGENT_ITSELF.to_owned() } else { self.service(configuration) };
        let staging = if configuration.only_fetch { NO_STAGING } else { "" };
        let quoted: Vec<String> = bootstrap.iter().map(|address| format!("\"{address}\"")).collect();
        let text = format!(
            r#"data-dir = "data"
fleet = "{fleet}"
documents = ["{document}"]
key-file = "node.key"
certificate-file = "{certificate}"
listen = ["{address}", "/ip4/{ip}/udp/{port}/quic-v1"]
bootstrap = [{bootstrap}]
mdns = false
lean = {metered}
socket = "agent.sock"

[log]
filter = "{log}"

{product}{staging}"#,
            metered = configuration.metered,
            document = document.display(),
            certificate = certificate.display(),
            address = self.address(),
            ip = self.place.ip(),
            port = self.place.port,
            bootstrap = quoted.join(", "),
        );
        let path = self.config_file();
        std::fs::write(&path, text).map_err(FleetError::io(format!("cannot write {}", path.display())))
    }

    /// The product, where it is the sample service. One that works is not called unhealthy for the seconds that its start takes on
    /// a busy machine.
    fn service(&self, configuration: &Configuration<'_>) -> String {
        format!(
            r#"[product.{PRODUCT}.activator]
type = "supervise"
run = ["{{binary}}", "sample-service"]
env = {{ {PORT} = "{service_port}", {WITNESS} = "{witness}", {NODE} = "{name}" }}
stop-timeout = "2s"
restart = {{ backoff = "500ms", backoff-max = "5s", stable-after = "2s" }}

[product.{PRODUCT}.health]
type = "http"
url = "http://127.0.0.1:{service_port}/health"
interval = "250ms"
timeout = "10s"
healthy-after = 1
unhealthy-after = 20
"#,
            witness = configuration.witness.display(),
            service_port = self.place.service_port,
            name = self.name,
            PORT = service::PORT,
            WITNESS = service::WITNESS,
            NODE = service::NODE,
        )
    }

    /// Starts its agent, leashed by `program` (this harness's binary) to the calling thread. Returns at once.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self, program: &Path, swell: &Swell) -> Result<(), FleetError> {
        let log = File::options().create(true).append(true).open(self.log_file());
        let log = log.map_err(FleetError::io(format!("cannot write {}", self.log_file().display())))?;
        let second = log.try_clone().map_err(FleetError::io("cannot share the log's file"))?;
        let mut command = match &self.place.host {
            // It becomes the program, so the leash holds.
            Some(host) => {
                let [ip, arguments @ ..] = host.enter();
                let mut command = Command::new(ip);
                command.args(arguments).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.arg("leash").arg(std::process::id().to_string()).arg("--").arg(swell.path());
        let what = if self.supervised { "supervise" } else { "agent" };
        command.args([what, "--config"]).arg(self.config_file());
        command.stdin(Stdio::null()).stdout(log).stderr(second).process_group(0).kill_on_drop(true);
        let child = command.spawn().map_err(FleetError::io(format!("cannot start the agent of {}", self.name)))?;
        self.running = Some(child);
        Ok(())
    }

    /// Waits until its agent answers.
    ///
    /// # Errors
    /// When it ends instead, or takes too long.
    pub async fn answers(&mut self) -> Result<(), FleetError> {
        let what = format!("the agent of {} answers", self.name);
        until(&what, ANSWERS_WITHIN, async || {
            self.check_running()?;
            Ok(self.api.status().await.map(|_| ()))
        })
        .await
    }

    /// An error when its agent has ended by itself.
    ///
    /// # Errors
    /// That.
    pub fn check_running(&mut self) -> Result<(), FleetError> {
        let Some(child) = &mut self.running else { return Ok(()) };
        match child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                self.running = None;
                Err(FleetError::Ended { node: self.name.clone(), status: status.to_string(), log: self.last_lines() })
            }
            Err(source) => Err(FleetError::Io { what: format!("cannot look at the agent of {}", self.name), source }),
        }
    }

    /// Waits until its agent ends by itself.
    ///
    /// # Errors
    /// When it goes on.
    pub async fn ends(&mut self) -> Result<ExitStatus, FleetError> {
        let late = || FleetError::Late {
            what: format!("the agent of {} ends", self.name),
            within: ENDS_WITHIN,
            seen: "it runs".to_owned(),
        };
        let Some(child) = &mut self.running else { return Err(FleetError::NoNode(self.name.clone())) };
        let status = tokio::time::timeout(ENDS_WITHIN, child.wait()).await.map_err(|_| late())?;
        self.running = None;
        status.map_err(FleetError::io(format!("cannot wait for the agent of {}", self.name)))
    }

    /// Asks its agent to end, and waits until it and its service have.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn stop(&mut self) -> Result<(), FleetError> {
        if self.running.is_some() {
            self.signal(Signal::TERM);
            self.ends().await?;
        }
        Ok(())
    }

    /// Kills its agent, and nothing else: its service stays, as after a crash.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn crash(&mut self) -> Result<(), FleetError> {
        self.signal(Signal::KILL);
        self.ends().await.map(|_| ())
    }

    /// Asks its agent to end, without waiting.
    pub(crate) fn ask_to_stop(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills its agent at once, if it runs.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        if let Some(mut child) = self.running.take() {
            // Killed on drop, and waited for by the runtime.
            let _ = child.try_wait();
        }
    }

    fn signal(&self, signal: Signal) {
        let group = self.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(group) = group {
            // One that has just ended is what is wanted.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Its agent's log.
    #[must_use]
    pub fn log_file(&self) -> PathBuf {
        self.folder.join("agent.log")
    }

    /// All that its agent logged.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// The end of its agent's log.
    #[must_use]
    pub fn last_lines(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines.split_at(lines.len().saturating_sub(LAST_LINES)).1.join("\n")
    }
}

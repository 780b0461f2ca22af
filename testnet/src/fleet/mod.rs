//! A fleet of real processes on this machine: real `swell` agents with their own folders, keys and ports.
//!
//! [`Fleet`] builds it in a temporary folder, as an operator would, and starts and stops agents. Everything it starts
//! ends with it: on drop, on panic, and when this process is killed (see [`leash`] and [`witness`]).
//! The demo and the whole-system tests stand on it. Use it on a single-threaded runtime: agents are leashed to the
//! thread that starts them.

pub mod agent;
pub mod api;
pub mod builds;
pub mod disruption;
pub mod error;
pub mod leash;
pub mod operator;
pub mod plan;
pub mod ports;
pub mod processes;
pub mod service;
pub mod swell;
pub mod wait;
pub mod witness;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use self::agent::{Agent, Configuration, Place};
use self::api::StatusView;
use self::error::FleetError;
use self::operator::{Operator, Signed};
use self::plan::{Links, Plan};
use self::processes::{Stray, kill, strays};
use self::swell::{Ran, Swell};
use self::wait::until;
use self::witness::Witness;

/// How long all agents together may take to end.
const END_WITHIN: Duration = Duration::from_secs(60);
/// How long what was killed may take to be gone.
const KILLED_WITHIN: Duration = Duration::from_secs(20);

/// The fleet. Ends everything that it started when it is dropped.
#[derive(Debug)]
pub struct Fleet {
    swell: Swell,
    program: PathBuf,
    operator: Operator,
    agents: Vec<Agent>,
    witness: Witness,
    // Last: the folder goes when all that runs in it has ended.
    folder: tempfile::TempDir,
}

impl Fleet {
    /// Builds a fleet; nothing runs yet. `program` is the binary of this crate, which has the sample service.
    ///
    /// # Errors
    /// When a file cannot be written, `swell` refuses, or ports are short.
    pub async fn build(swell: Swell, program: &Path, plan: &Plan) -> Result<Self, FleetError> {
        let mut folder = tempfile::Builder::new();
        folder.prefix("groundswell-");
        // To look at what is left of a fleet afterwards.
        folder.disable_cleanup(std::env::var_os("GROUNDSWELL_KEEP").is_some());
        let folder = folder.tempdir().map_err(FleetError::io("cannot make a temporary folder"))?;
        let root = folder.path().to_path_buf();
        let operator = Operator::new(swell.clone(), &root, program, plan).await?;
        let nodes: Vec<(String, String)> = plan.nodes().collect();
        let count = 2 * nodes.len();
        let mut ports = ports::free(count).ok_or(FleetError::NoPorts(count))?.into_iter();
        let mut agents = Vec::new();
        let mut requests = Vec::new();
        let mut hosts = plan.hosts.iter().cloned();
        for (name, pool) in &nodes {
            let home = root.join("nodes").join(name);
            std::fs::create_dir_all(&home).map_err(FleetError::io(format!("cannot make {}", home.display())))?;
            requests.push(operator.init_node(&home, name, pool).await?);
            let (port, service_port) = (ports.next().unwrap_or(0), ports.next().unwrap_or(0));
            agents.push(Agent::new(name, pool, &home, Place { port, service_port, host: hosts.next() }));
        }
        let admitted = operator.admit(&requests).await?;
        let socket = root.join("witness.sock");
        let witness = Witness::listen(&socket, nodes.iter().cloned().collect())?;
        let document = operator.fleet_folder().join("fleet-1.json");
        let addresses: Vec<String> = agents.iter().map(Agent::address).collect();
        for (index, agent) in agents.iter_mut().enumerate() {
            let known = match plan.links {
                Links::Hub => addresses.first().filter(|_| index > 0),
                Links::Line => index.checked_sub(1).and_then(|before| addresses.get(before)),
            };
            let certificate = admitted.get(agent.name()).ok_or_else(|| FleetError::NoNode(agent.name().to_owned()))?;
            agent.configure(&Configuration {
                fleet: operator.fleet_id(),
                document: &document,
                certificate: &certificate.file,
                bootstrap: known.cloned().into_iter().collect(),
                witness: &socket,
                log: &plan.log,
                agents: plan.agents,
                only_fetch: plan.only_fetch,
                metered: plan.metered && index > 0,
            })?;
        }
        Ok(Self { swell, program: program.to_path_buf(), operator, agents, witness, folder })
    }

    /// The folder of everything.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The operator.
    #[must_use]
    pub fn operator(&self) -> &Operator {
        &self.operator
    }

    /// The binary.
    #[must_use]
    pub fn swell(&self) -> &Swell {
        &self.swell
    }

    /// The services' witness.
    #[must_use]
    pub fn witness(&self) -> &Witness {
        &self.witness
    }

    /// The first agent: in a bench of bytes it has the artifact before all others.
    ///
    /// # Errors
    /// In a fleet of none.
    pub fn first(&self) -> Result<&Agent, FleetError> {
        self.agents().first().ok_or_else(|| FleetError::NoNode("edge-1".to_owned()))
    }

    /// All nodes.
    #[must_use]
    pub fn agents(&self) -> &[Agent] {
        &self.agents
    }

    /// A node by name.
    ///
    /// # Errors
    /// When there is none.
    pub fn agent(&self, name: &str) -> Result<&Agent, FleetError> {
        self.agents.iter().find(|agent| agent.name() == name).ok_or_else(|| FleetError::NoNode(name.to_owned()))
    }

    /// A node by name, to be started and stopped.
    ///
    /// # Errors
    /// When there is none.
    pub fn agent_mut(&mut self, name: &str) -> Result<&mut Agent, FleetError> {
        self.agents.iter_mut().find(|agent| agent.name() == name).ok_or_else(|| FleetError::NoNode(name.to_owned()))
    }

    /// Starts all agents that do not run, and waits until they answer.
    ///
    /// # Errors
    /// When one does not start or ends at once.
    pub async fn start(&mut self) -> Result<(), FleetError> {
        for agent in self.agents.iter_mut().filter(|agent| agent.pid().is_none()) {
            agent.start(&self.program, &self.swell)?;
        }
        for agent in &mut self.agents {
            agent.answers().await?;
        }
        Ok(())
    }

    /// Starts one agent, and waits until it answers.
    ///
    /// # Errors
    /// When it does not start or ends at once.
    pub async fn start_one(&mut self, name: &str) -> Result<(), FleetError> {
        self.spawn(name)?;
        self.agent_mut(name)?.answers().await
    }

    /// Starts one agent without waiting for it.
    ///
    /// # Errors
    /// When it does not start.
    pub fn spawn(&mut self, name: &str) -> Result<(), FleetError> {
        let (program, swell) = (self.program.clone(), self.swell.clone());
        self.agent_mut(name)?.start(&program, &swell)
    }

    /// What every running node says, by name.
    ///
    /// # Errors
    /// When one does not answer.
    pub async fn sample(&self) -> Result<BTreeMap<String, StatusView>, FleetError> {
        let mut sample = BTreeMap::new();
        for agent in self.agents.iter().filter(|agent| agent.pid().is_some()) {
            sample.insert(agent.name().to_owned(), agent.api().status().await?);
        }
        Ok(sample)
    }

    /// What those nodes say that answer now, by name: an agent that is being replaced does not.
    pub async fn sample_answering(&self) -> BTreeMap<String, StatusView> {
        let mut sample = BTreeMap::new();
        for agent in self.agents.iter().filter(|agent| agent.pid().is_some()) {
            if let Ok(status) = agent.api().status().await {
                sample.insert(agent.name().to_owned(), status);
            }
        }
        sample
    }

    /// An error when an agent has ended by itself.
    ///
    /// # Errors
    /// That.
    pub fn check(&mut self) -> Result<(), FleetError> {
        self.agents.iter_mut().try_for_each(Agent::check_running)
    }

    /// Waits until every running node knows every other node's record and is connected.
    ///
    /// # Errors
    /// When that does not come about in time.
    pub async fn meets(&mut self, within: Duration) -> Result<(), FleetError> {
        let running = u32::try_from(self.agents.iter().filter(|agent| agent.pid().is_some()).count()).unwrap_or(u32::MAX);
        until("all agents know each other", within, async || {
            self.check()?;
            let sample = self.sample().await?;
            let lonely: Vec<String> = sample
                .iter()
                .filter(|(_, status)| status.node.members < running || (running > 1 && status.node.peers == 0))
                .map(|(name, status)| format!("{name} knows {} and has {} peers", status.node.members, status.node.peers))
                .collect();
            Ok(if lonely.is_empty() { Ok(()) } else { Err(lonely.join(", ")) })
        })
        .await
    }

    /// Publishes a signed rollout with its release's files to one node.
    ///
    /// # Errors
    /// When `swell` does not succeed.
    pub async fn publish(&self, node: &str, version: &str, signed: &Signed) -> Result<(), FleetError> {
        let ran = self.try_publish(node, Some(&self.operator.release_folder(version)), signed).await?;
        if ran.code == Some(0) {
            return Ok(());
        }
        Err(FleetError::Swell { arguments: format!("publish {}", signed.id), code: ran.code, stderr: ran.stderr })
    }

    /// Publishes a signed generation, with a release folder or without, whatever comes of it.
    ///
    /// # Errors
    /// When `swell` cannot be run.
    pub async fn try_publish(&self, node: &str, release: Option<&Path>, signed: &Signed) -> Result<Ran, FleetError> {
        let mut arguments: Vec<String> = ["publish", "--within", "170s"].map(str::to_owned).into();
        arguments.extend(["--fleet".to_owned(), self.operator.fleet_folder().display().to_string()]);
        arguments.extend(["--key".to_owned(), self.operator.observer_key().display().to_string()]);
        arguments.extend(["--to".to_owned(), self.agent(node)?.address()]);
        // Of nodes that were never seen only these tell who they are.
        let certificates = std::fs::read_dir(self.operator.fleet_folder().join("certificates"));
        let certificates = certificates.map_err(FleetError::io("cannot read the fleet folder's certificates"))?;
        arguments.extend(certificates.flatten().map(|entry| entry.path().display().to_string()));
        arguments.extend(signed.roster.iter().map(|roster| roster.file.display().to_string()));
        arguments.extend(release.map(|folder| folder.display().to_string()));
        arguments.push(signed.rollout.file.display().to_string());
        self.swell.run(arguments).await
    }

    /// Ends all agents and services in order, and says what is left of them: nothing.
    pub async fn shut_down(mut self) -> Vec<Stray> {
        for agent in &self.agents {
            agent.ask_to_stop();
        }
        let _ = until("all agents end", END_WITHIN, async || {
            for agent in &mut self.agents {
                // Whether it ended well is not asked here.
                let _ = agent.check_running();
            }
            let running = self.agents.iter().filter(|agent| agent.pid().is_some()).count();
            Ok(if running == 0 { Ok(()) } else { Err(running) })
        })
        .await;
        strays(self.folder.path())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            agent.kill();
        }
        for pid in self.witness.pids() {
            kill(pid, Signal::KILL);
        }
        // Whatever else runs out of this folder was started by what ran in it. What was killed still writes there until it is gone.
        let began = Instant::now();
        loop {
            let left = strays(self.folder.path());
            if left.is_empty() || began.elapsed() >= KILLED_WITHIN {
                break;
            }
            for stray in left {
                kill(stray.pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

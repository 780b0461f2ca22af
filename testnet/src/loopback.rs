//! One agent fetches from another on this machine: how fast, with how much of the processor, and with how much memory, to a
//! file that is verified, durable and renamed. Beside a web server with `curl` and `sha256sum`, and beside `sendme`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::fleet::Fleet;
use crate::fleet::error::FleetError;
use crate::fleet::plan::{Plan, PoolPlan, RolloutPlan};
use crate::fleet::processes::usage;
use crate::fleet::service::Behaviour;
use crate::fleet::swell::Swell;
use crate::lab::usage::Usage;

/// Longest that one of them may take.
const WITHIN: Duration = Duration::from_secs(300);
/// How soon one looks again: far below what is measured.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Most that the fetching agent may grow.
const GROWTH_MIB: f64 = 32.0;
/// Most processor time, ÷ that of sendme.
const CPU: f64 = 1.5;

const NGINX: &str = "nginx";
/// Serves one folder with `sendfile`, where there is no nginx.
const STAND_IN: &str = include_str!("../bench/sendfile_server.py");

/// What is measured beside the agents, and may be missing on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Rival {
    /// nginx, with curl and sha256sum.
    Nginx,
    /// sendme.
    Sendme,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopbackBench {
    /// Size of the artifact in bytes.
    pub size_bytes: u64,
}

/// How one way went.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Way {
    /// Seconds until the file was there.
    pub took_s: f64,
    /// Millions of bytes a second.
    pub mb_per_s: f64,
    /// Processor seconds of both sides.
    pub cpu_s: f64,
}

/// What came of it. A way that did not run says why.
#[derive(Clone, Debug, serde::Serialize)]
pub struct LoopbackOutcome {
    /// Agents.
    pub agents: Way,
    /// How much more memory the fetching agent had at most than before, in MiB.
    pub growth_mib: f64,
    /// Which web server it was.
    pub web_server: &'static str,
    /// A web server, `curl`, `sha256sum`, `sync` and a rename.
    pub web: Result<Way, String>,
    /// sendme and `sync`.
    pub sendme: Result<Way, String>,
}

impl LoopbackOutcome {
    /// What ran, by name.
    pub fn ran(&self) -> [(String, Result<Way, String>); 3] {
        [
            ("agents".to_owned(), Ok(self.agents)),
            (format!("{}, curl and sha256sum", self.web_server), self.web.clone()),
            ("sendme and sync".to_owned(), self.sendme.clone()),
        ]
    }

    /// What is not as it must be. A comparison that could not be made shows nothing, unless it was waived: `without`.
    #[must_use]
    pub fn complaints(&self, without: &[Rival]) -> Vec<String> {
        let mut complaints = Vec::new();
        let nginx =
            if self.web_server == NGINX { self.web.as_ref().err().cloned() } else { Some("nginx is not in PATH".to_owned()) };
        for (rival, missing) in [(Rival::Nginx, nginx), (Rival::Sendme, self.sendme.as_ref().err().cloned())] {
            if let Some(reason) = missing.filter(|_| !without.contains(&rival)) {
                complaints.push(format!("not compared: {reason}"));
            }
        }
        if self.growth_mib > GROWTH_MIB {
            complaints.push(format!("memory: {:.1} MiB more, at most {GROWTH_MIB}", self.growth_mib));
        }
        if let Ok(sendme) = &self.sendme {
            if self.agents.mb_per_s < sendme.mb_per_s {
                complaints.push(format!("{:.0} MB/s, sendme has {:.0}", self.agents.mb_per_s, sendme.mb_per_s));
            }
            if self.agents.cpu_s > CPU * sendme.cpu_s {
                complaints.push(format!(
                    "{:.2} processor seconds, sendme needs {:.2}, of which {CPU} times are allowed",
                    self.agents.cpu_s, sendme.cpu_s
                ));
            }
        }
        complaints
    }
}

impl LoopbackBench {
    /// Runs all ways, one after the other.
    ///
    /// # Errors
    /// When the agents fail. What fails beside them is told in its place.
    pub async fn run(&self, program: &Path) -> Result<LoopbackOutcome, FleetError> {
        let own = fs::metadata(program).map_err(FleetError::io("cannot look at this program"))?.len();
        let padding = self.size_bytes.checked_sub(own).and_then(|bytes| usize::try_from(bytes).ok());
        let too_small = || FleetError::Io {
            what: format!("an artifact has at least the {own} bytes of its program"),
            source: std::io::ErrorKind::InvalidInput.into(),
        };
        let plan = Plan { padding_bytes: padding.ok_or_else(too_small)?, ..Plan::new(vec![PoolPlan::new("edge", 2, "1%")]) };
        let mut fleet = Fleet::build(Swell::find_or_build(program)?, program, &plan).await?;
        let (agents, growth_mib) = self.agents(&mut fleet).await?;
        let artifact = crate::lab::swarm::largest(&fleet.operator().release_folder("1.0.0"))?;
        let folder = tempfile::tempdir_in(fleet.folder()).map_err(FleetError::io("cannot make a temporary folder"))?;
        let file = folder.path().join("file");
        fs::copy(&artifact, &file).map_err(FleetError::io("cannot copy the artifact"))?;
        let (web_server, web) = self.web(folder.path()).await;
        let sendme = self.sendme(folder.path(), &file).await;
        drop(folder);
        fleet.shut_down().await;
        Ok(LoopbackOutcome { agents, growth_mib, web_server, web, sendme })
    }

    fn way(&self, took: Duration, cpu_s: f64) -> Way {
        let took_s = took.as_secs_f64();
        Way { took_s, mb_per_s: crate::lab::number(self.size_bytes) / took_s / 1e6, cpu_s }
    }

    /// One agent has the artifact and its rollout, and another one comes.
    async fn agents(&self, fleet: &mut Fleet) -> Result<(Way, f64), FleetError> {
        fleet.start_one("edge-1").await?;
        let operator = fleet.operator().clone();
        let folder = operator.release("1.0.0", 1, Behaviour::Good).await?;
        operator.rollout("1.0.0", &RolloutPlan::waves(&[(100, 0)]), "a bench").await?;
        let socket = fleet.agent("edge-1")?.api().socket().display().to_string();
        let paths = (operator.fleet_folder().display().to_string(), folder.display().to_string());
        fleet.swell().text(["publish", &paths.0, &paths.1, "--socket", &socket]).await?;
        fleet.spawn("edge-2")?;
        let started = Instant::now();
        let mut fetch = Watch::default();
        loop {
            if started.elapsed() > WITHIN {
                let seen = if fetch.has_begun { "it has begun" } else { "it has not begun" };
                return Err(FleetError::Late { what: "the fetch".to_owned(), within: WITHIN, seen: seen.to_owned() });
            }
            let agent = fleet.agent("edge-2")?;
            let (pid, resident) = (agent.pid(), agent.pid().and_then(usage).map_or(0, |usage| usage.resident_bytes));
            fetch.peak = fetch.peak.max(resident);
            if !fetch.has_begun {
                fetch.before = Some((Instant::now(), Usage::of(fleet)?));
                (fetch.resident, fetch.peak, fetch.is_exact) = (resident, resident, pid.is_some_and(Usage::forget_peak));
            }
            if let Ok(status) = agent.api().status().await {
                fetch.has_begun |= !(status.agent.downloads.is_empty() && status.agent.blobs.is_empty());
                if let (Some((at, before)), false) = (fetch.before, status.agent.blobs.is_empty()) {
                    let way = self.way(at.elapsed(), Usage::of(fleet)?.cpu_s - before.cpu_s);
                    let seen = pid.filter(|_| fetch.is_exact).map(Usage::of_process).transpose()?;
                    let peak = seen.map_or(fetch.peak, |usage| usage.peak_rss_bytes);
                    let growth = crate::lab::number(peak.saturating_sub(fetch.resident));
                    return Ok((way, growth / f64::from(1 << 20)));
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn web(&self, folder: &Path) -> (&'static str, Result<Way, String>) {
        let nginx = in_path("nginx");
        let name = if nginx.is_some() { NGINX } else { "a server in Python with sendfile, as a stand-in for nginx" };
        (name, self.web_with(nginx, folder).await)
    }

    async fn web_with(&self, nginx: Option<PathBuf>, folder: &Path) -> Result<Way, String> {
        let port = crate::fleet::ports::free(1).ok_or_else(|| FleetError::NoPorts(1).to_string())?.first().copied().unwrap_or(0);
        let text = match nginx {
            Some(_) => format!(
                "daemon off; master_process off; user root; pid {folder}/nginx.pid; error_log {folder}/nginx.log;\n\
                 events {{}}\nhttp {{ access_log off; sendfile on; server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n",
                folder = folder.display()
            ),
            None => STAND_IN.to_owned(),
        };
        let script = folder.join("server");
        fs::write(&script, text).map_err(|error| error.to_string())?;
        let mut command = match nginx {
            Some(nginx) => {
                let mut command = Command::new(nginx);
                command.arg("-c").arg(&script);
                command
            }
            None => {
                let mut command = Command::new("python3");
                command.arg(&script).arg(folder).arg(port.to_string());
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let server = command.spawn().map_err(|error| format!("the web server does not start: {error}"))?;
        let take = format!(
            "curl -sSf --retry 50 --retry-delay 0 --retry-connrefused -o part http://127.0.0.1:{port}/file \
             && sha256sum part && sync part && mv part whole && sync ."
        );
        let taken = self.timed(folder, &take, &server).await;
        drop(server);
        taken
    }

    async fn sendme(&self, folder: &Path, file: &Path) -> Result<Way, String> {
        let sendme = in_path("sendme").ok_or("sendme is not in PATH")?;
        let mut command = Command::new(&sendme);
        command.arg("send").arg(file).current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut sender = command.spawn().map_err(|error| error.to_string())?;
        let mut lines = BufReader::new(sender.stdout.take().ok_or("it has no output")?).lines();
        let ticket = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(ticket) = line.split_whitespace().find(|word| word.len() > 60 && word.starts_with("blob")) {
                    return Ok(ticket.to_owned());
                }
            }
            Err("it gave no ticket".to_owned())
        };
        let ticket = tokio::time::timeout(WITHIN, ticket).await.map_err(|_| "it gave no ticket".to_owned())??;
        let into = folder.join("received");
        fs::create_dir_all(&into).map_err(|error| error.to_string())?;
        self.timed(&into, &format!("'{}' receive {ticket} > /dev/null && sync file && sync .", sendme.display()), &sender).await
    }

    /// Runs a script of the shell; its time, with the processor time that it and the server used.
    async fn timed(&self, folder: &Path, script: &str, server: &Child) -> Result<Way, String> {
        let pid = server.id().ok_or("the server has ended")?;
        let before = Usage::of_process(pid).map_err(|error| error.to_string())?;
        let mut command = Command::new("bash");
        command.arg("-c").arg(format!("TIMEFORMAT='%U %S'; time {{ {script}; }} 2>errors > said"));
        command.current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
        let began = Instant::now();
        let ran = tokio::time::timeout(WITHIN, command.output()).await.map_err(|_| "it took too long".to_owned())?;
        let ran = ran.map_err(|error| error.to_string())?;
        let took = began.elapsed();
        let after = Usage::of_process(pid).map_err(|_| "the server has ended".to_owned())?;
        let told = String::from_utf8_lossy(&ran.stderr).into_owned();
        if !ran.status.success() {
            let errors = fs::read_to_string(folder.join("errors")).unwrap_or_default();
            return Err(format!("`{script}` ended with {}: {}", ran.status, errors.trim()));
        }
        let used: f64 = told.split_whitespace().filter_map(|text| text.parse::<f64>().ok()).sum();
        Ok(self.way(took, used + after.cpu_s - before.cpu_s))
    }
}

/// What is seen of the agent that fetches. What it had, and when, is as it was at the last look at which nothing had begun.
#[derive(Default)]
struct Watch {
    has_begun: bool,
    before: Option<(Instant, Usage)>,
    resident: u64,
    /// The most at any look.
    peak: u64,
    /// The kernel says what it was at most between looks too.
    is_exact: bool,
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|found| found.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_that_is_missed_is_named_and_so_is_what_did_not_run_unless_it_was_waived() {
        let way = |mb_per_s, cpu_s| Way { took_s: 1.0, mb_per_s, cpu_s };
        let fine = LoopbackOutcome {
            agents: way(300.0, 6.0),
            growth_mib: 20.0,
            web_server: "nginx",
            web: Ok(way(600.0, 2.0)),
            sendme: Err("sendme is not in PATH".to_owned()),
        };
        assert_eq!(fine.complaints(&[]), ["not compared: sendme is not in PATH"]);
        assert_eq!(fine.complaints(&[Rival::Sendme]), Vec::<String>::new());
        let bad = LoopbackOutcome { growth_mib: 33.0, sendme: Ok(way(310.0, 3.9)), ..fine };
        assert_eq!(bad.complaints(&[]).len(), 3);
        let stand_in = LoopbackOutcome { web_server: "a stand-in", ..bad };
        assert_eq!((stand_in.complaints(&[]).len(), stand_in.complaints(&[Rival::Nginx]).len()), (4, 3));
    }
}

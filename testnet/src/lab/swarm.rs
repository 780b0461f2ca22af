//! Real agents in the lab: how long an artifact takes to all of them, beside what their uplinks allow.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::Lab;
use super::beside;
use crate::fleet::Fleet;
use crate::fleet::error::FleetError;
use crate::fleet::plan::{Plan, PoolPlan, RolloutPlan};
use crate::fleet::service::Behaviour;
use crate::fleet::swell::Swell;

/// How long agents may take to know each other.
const MEET_WITHIN: Duration = Duration::from_secs(60);
/// Times the limit after which one gives up.
const PATIENCE: f64 = 8.0;
/// How soon one looks again.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwarmBench {
    /// Hosts beside the seed.
    pub nodes: usize,
    /// Their uplinks, in bits a second.
    pub rate: u64,
    /// The seed's.
    pub seed_rate: u64,
    /// Size of the artifact, in bytes; at least that of the program in it.
    pub size_bytes: u64,
    /// Whether libtorrent runs in the same lab afterwards.
    pub beside_libtorrent: bool,
}

/// What came of it. Times are seconds by the clock, from the moment of the rollout's publication.
#[derive(Clone, Debug, serde::Serialize)]
pub struct SwarmOutcome {
    /// Until the last agent had all of it, verified and durable.
    pub last_s: f64,
    /// The same of the one in the middle.
    pub median_s: f64,
    /// What the uplinks allow: the largest of F ÷ seed's uplink and N × F ÷ all uplinks.
    pub limit_s: f64,
    /// `last_s` ÷ `limit_s`.
    pub ratio_to_limit: f64,
    /// Bytes of pieces that the seed sent ÷ F.
    pub seed_copies: f64,
    /// Bytes of pieces that all sent ÷ (N × F).
    pub total_over_nf: f64,
    /// Processor seconds of all agents for each GB that arrived.
    pub cpu_s_per_gb: f64,
    /// Most memory that an agent had resident, in bytes.
    pub peak_rss_bytes: u64,
    /// libtorrent's time to the last host, where it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub libtorrent_last_s: Option<f64>,
    /// `last_s` ÷ libtorrent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_libtorrent: Option<f64>,
}

impl SwarmBench {
    /// What the uplinks allow, in seconds.
    #[must_use]
    pub fn limit_s(&self) -> f64 {
        let bits = bytes(self.size_bytes) * 8.0;
        let nodes = count(self.nodes);
        let all = bytes(self.seed_rate) + nodes * bytes(self.rate);
        (bits / bytes(self.seed_rate)).max(nodes * bits / all)
    }

    /// What is not as it must be (the bars of the issue: equal uplinks 1.12, others 1.25; seed 1.10 and total 1.06).
    #[must_use]
    pub fn complaints(&self, outcome: &SwarmOutcome) -> Vec<String> {
        let most = if self.seed_rate == self.rate { 1.12 } else { 1.25 };
        let bars = [
            ("the last agent, ÷ the limit", outcome.ratio_to_limit, most),
            ("copies from the seed", outcome.seed_copies, 1.10),
            ("bytes sent, ÷ what is needed", outcome.total_over_nf, 1.06),
            ("the last agent, ÷ libtorrent's", outcome.ratio_to_libtorrent.unwrap_or(0.0), 0.75),
        ];
        bars.iter().filter(|(_, is, most)| is > most).map(|(what, is, most)| format!("{what}: {is:.3}, at most {most}")).collect()
    }

    /// Builds the lab and runs.
    ///
    /// # Errors
    /// When there is no lab, an agent ends, or the artifact does not arrive.
    pub async fn run(&self, program: &Path) -> Result<SwarmOutcome, FleetError> {
        let uplinks: Vec<Option<u64>> =
            (0..=self.nodes).map(|at| Some(if at == 0 { self.seed_rate } else { self.rate })).collect();
        let lab = Lab::up(&uplinks)?;
        let own = std::fs::metadata(program).map_err(FleetError::io("cannot look at this program"))?.len();
        let padding = self.size_bytes.checked_sub(own).and_then(|bytes| usize::try_from(bytes).ok());
        let padding =
            padding.ok_or_else(|| super::refused(format!("an artifact has at least the {own} bytes of its program")))?;
        let pool = PoolPlan::new("edge", self.nodes + 1, "1%");
        let plan = Plan { padding_bytes: padding, hosts: lab.hosts().to_vec(), ..Plan::new(vec![pool]) };
        let mut fleet = Fleet::build(Swell::find_or_build(program)?, program, &plan).await?;
        fleet.start().await?;
        fleet.meets(MEET_WITHIN).await?;
        let mut outcome = self.spread(&fleet).await?;
        if self.beside_libtorrent {
            let folder = tempfile::tempdir().map_err(FleetError::io("cannot make a temporary folder"))?;
            let file = folder.path().join("file");
            let artifact = largest(&fleet.operator().release_folder("1.0.0"))?;
            std::fs::copy(&artifact, &file).map_err(FleetError::io("cannot copy the artifact"))?;
            fleet.shut_down().await;
            let took = beside::libtorrent(&lab, &file, folder.path()).await?;
            outcome.libtorrent_last_s = took.last().copied();
            outcome.ratio_to_libtorrent = took.last().map(|last| outcome.last_s / last);
        } else {
            fleet.shut_down().await;
        }
        Ok(outcome)
    }

    async fn spread(&self, fleet: &Fleet) -> Result<SwarmOutcome, FleetError> {
        let operator = fleet.operator();
        let seed = fleet.agents().first().ok_or_else(|| FleetError::NoNode("edge-1".to_owned()))?;
        let socket = seed.api().socket().display().to_string();
        let folder = operator.release("1.0.0", 1, Behaviour::Good).await?;
        fleet.swell().text(["publish", &folder.display().to_string(), "--socket", &socket]).await?;
        // One slot, and nobody confirms before the bench is over: one agent installs, the others only fetch.
        let plan =
            RolloutPlan { confirm_after_seconds: 3_600, upgrade_timeout_seconds: 7_200, ..RolloutPlan::waves(&[(100, 0)]) };
        let signed = operator.rollout("1.0.0", &plan, "a bench").await?;
        let sha256 = seed.api().status().await?.agent.blobs.first().copied();
        let sha256 = sha256.ok_or_else(|| super::refused("the seed does not hold the artifact".to_owned()))?;
        let before = Usage::of(fleet)?;

        let mut arguments = vec!["publish".to_owned(), "--socket".to_owned(), socket];
        arguments.extend(signed.roster.iter().map(|roster| roster.file.display().to_string()));
        arguments.push(signed.rollout.file.display().to_string());
        let began = Instant::now();
        fleet.swell().text(arguments).await?;
        let mut done: BTreeMap<&str, f64> = BTreeMap::new();
        while done.len() < self.nodes {
            for agent in fleet.agents().iter().skip(1).filter(|agent| !done.contains_key(agent.name())).collect::<Vec<_>>() {
                if agent.api().status().await?.agent.blobs.contains(&sha256) {
                    done.insert(agent.name(), began.elapsed().as_secs_f64());
                }
            }
            if began.elapsed().as_secs_f64() > self.limit_s() * PATIENCE {
                let what = "all agents have the artifact".to_owned();
                let seen = format!("{} of {} have it", done.len(), self.nodes);
                return Err(FleetError::Late { what, within: began.elapsed(), seen });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let used = Usage::of(fleet)?;
        let mut sent = Vec::new();
        for agent in fleet.agents() {
            let counters = agent.api().status().await?.agent.counters;
            sent.push(counters.get("pieces_sent_bytes").copied().unwrap_or(0));
        }
        let mut times: Vec<f64> = done.into_values().collect();
        times.sort_by(f64::total_cmp);
        let (size, nodes) = (bytes(self.size_bytes), count(self.nodes));
        let last_s = times.last().copied().unwrap_or(f64::INFINITY);
        Ok(SwarmOutcome {
            last_s,
            median_s: times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY),
            limit_s: self.limit_s(),
            ratio_to_limit: last_s / self.limit_s(),
            seed_copies: bytes(sent.first().copied().unwrap_or(0)) / size,
            total_over_nf: bytes(sent.iter().sum()) / (size * nodes),
            cpu_s_per_gb: (used.cpu_s - before.cpu_s) / (size * nodes / 1e9),
            peak_rss_bytes: used.peak_rss_bytes,
            libtorrent_last_s: None,
            ratio_to_libtorrent: None,
        })
    }
}

/// What the agents used since they started.
struct Usage {
    cpu_s: f64,
    peak_rss_bytes: u64,
}

impl Usage {
    fn of(fleet: &Fleet) -> Result<Self, FleetError> {
        let ticks = rustix::param::clock_ticks_per_second();
        let mut usage = Self { cpu_s: 0.0, peak_rss_bytes: 0 };
        for agent in fleet.agents() {
            let Some(pid) = agent.pid() else { continue };
            let read = |file: &str| {
                let path = format!("/proc/{pid}/{file}");
                std::fs::read_to_string(&path).map_err(FleetError::io(format!("cannot read {path}")))
            };
            // After the name in brackets: utime and stime are fields 14 and 15 of all.
            let stat = read("stat")?;
            let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
            let used: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
            usage.cpu_s += bytes(used) / bytes(ticks);
            let status = read("status")?;
            let peak =
                status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<u64>().ok());
            usage.peak_rss_bytes = usage.peak_rss_bytes.max(peak.unwrap_or(0) * 1024);
        }
        Ok(usage)
    }
}

fn largest(folder: &Path) -> Result<std::path::PathBuf, FleetError> {
    let entries = std::fs::read_dir(folder).map_err(FleetError::io(format!("cannot read {}", folder.display())))?;
    let sized = entries.flatten().filter_map(|entry| Some((entry.metadata().ok()?.len(), entry.path())));
    sized.max().map(|(_, path)| path).ok_or_else(|| super::refused(format!("{} is empty", folder.display())))
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn bytes(number: u64) -> f64 {
    number as f64
}

fn count(number: usize) -> f64 {
    bytes(u64::try_from(number).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(nodes: usize, seed_rate: u64) -> SwarmBench {
        SwarmBench { nodes, rate: 40_000_000, seed_rate, size_bytes: 104_857_600, beside_libtorrent: false }
    }

    #[test]
    fn the_limit_is_that_of_the_seed_or_of_all_uplinks_together() {
        assert!((bench(8, 40_000_000).limit_s() - 20.971_52).abs() < 1e-9);
        assert!((bench(8, 20_000_000).limit_s() - 41.943_04).abs() < 1e-9);
        // A seed without end leaves the others' uplinks: 8 F over 8 × 40 Mbit/s and its own.
        assert!((bench(8, 320_000_000).limit_s() - 10.485_76).abs() < 1e-9);
    }

    #[test]
    fn what_is_slower_or_sends_more_than_it_may_is_told() {
        let fine = SwarmOutcome {
            last_s: 22.0,
            median_s: 21.5,
            limit_s: 20.971_52,
            ratio_to_limit: 1.05,
            seed_copies: 1.01,
            total_over_nf: 1.0,
            cpu_s_per_gb: 1.0,
            peak_rss_bytes: 1,
            libtorrent_last_s: Some(35.0),
            ratio_to_libtorrent: Some(0.63),
        };
        let bench = bench(8, 40_000_000);
        assert_eq!(bench.complaints(&fine), Vec::<String>::new());
        let bad =
            SwarmOutcome { ratio_to_limit: 1.13, seed_copies: 1.11, total_over_nf: 1.07, ratio_to_libtorrent: Some(0.8), ..fine };
        assert_eq!(bench.complaints(&bad).len(), 4);
    }
}

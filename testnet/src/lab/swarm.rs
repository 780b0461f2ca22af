//! Real agents in the lab: how long an artifact takes to all of them, beside what their uplinks allow.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use groundswell_core::digest::Digest;

use super::beside;
use super::hostile::{Hostile, Manner};
use super::usage::Usage;
use super::{Lab, number};
use crate::bytes::Trial;
use crate::fleet::Fleet;
use crate::fleet::agent::Agent;
use crate::fleet::error::FleetError;
use crate::fleet::plan::{Plan, PoolPlan, RolloutPlan};
use crate::fleet::service::Behaviour;
use crate::fleet::swell::Swell;

/// How long agents may take to know each other.
const MEET_WITHIN: Duration = Duration::from_secs(60);
/// Times the limit after which one gives up.
const PATIENCE: f64 = 8.0;
/// How soon one looks again at the agents' files. No agent is asked for how far it is: answering would take the processor from
/// what is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How soon the seed is asked for its status again; with each look where it is to leave.
const STATUS_EVERY: Duration = Duration::from_millis(500);
/// How soon one looks at what the seed knows of the others.
const RECORDS_EVERY: Duration = Duration::from_millis(500);

/// The seed answers for its status within this, however busy it is.
pub(crate) const STATUS_MOST_S: f64 = 0.05;
/// What an agent says of itself is known at the seed within this.
pub(crate) const RECORD_MOST_S: f64 = 5.0;

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwarmBench {
    /// The swarm, and what must come of it. Its size is at least that of the program in the artifact.
    pub trial: Trial,
    /// Whether libtorrent runs in the same lab afterwards.
    pub beside_libtorrent: bool,
}

/// What came of it. Times are seconds by the clock, from the moment when the release, its roster and its rollout begin to be
/// published: nobody but the seed, which has the artifact, knows of them before.
#[derive(Clone, Debug, serde::Serialize)]
pub struct SwarmOutcome {
    /// Until the last agent had all of it, verified, flushed to the disk and under its name.
    pub last_s: f64,
    /// The same of the one in the middle.
    pub median_s: f64,
    /// What the uplinks allow: the largest of F ÷ seed's uplink and N × F ÷ all uplinks that give something.
    pub limit_s: f64,
    /// `last_s` ÷ `limit_s`.
    pub ratio_to_limit: f64,
    /// Bytes of pieces that the seed sent ÷ F.
    pub seed_copies: f64,
    /// Bytes of pieces that all agents sent ÷ (N × F).
    pub total_over_nf: f64,
    /// Processor seconds of all agents for each GB that arrived.
    pub cpu_s_per_gb: f64,
    /// Most memory that an agent had resident, in bytes.
    pub peak_rss_bytes: u64,
    /// The longest that the seed took to answer for its status meanwhile.
    pub status_worst_s: f64,
    /// The longest from when an agent had everything until the seed knew it from that agent's record; those that were last
    /// are not waited for.
    pub record_worst_s: f64,
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
        self.trial.setting.limit().as_secs_f64()
    }

    fn nodes(&self) -> usize {
        self.trial.setting.peer_rates.len()
    }

    /// How many of them give nothing.
    fn hostile(&self) -> usize {
        self.trial.setting.liars + self.trial.setting.stalled
    }

    /// What is not as it must be.
    #[must_use]
    pub fn complaints(&self, outcome: &SwarmOutcome) -> Vec<String> {
        let milli = |parts: u64| number(parts) / 1_000.0;
        let ratio = milli(u64::try_from(self.trial.ratio_milli).unwrap_or(u64::MAX));
        let bars = [
            ("the last agent, ÷ the limit", outcome.ratio_to_limit, ratio),
            ("copies from the seed", outcome.seed_copies, self.trial.seed_milli.map_or(f64::INFINITY, milli)),
            ("bytes sent, ÷ what is needed", outcome.total_over_nf, milli(self.trial.total_milli)),
            ("the last agent, ÷ libtorrent's", outcome.ratio_to_libtorrent.unwrap_or(0.0), 0.75),
            ("the seed's slowest answer for its status, in seconds", outcome.status_worst_s, STATUS_MOST_S),
            ("the slowest record, in seconds", outcome.record_worst_s, RECORD_MOST_S),
        ];
        bars.iter().filter(|(_, is, most)| is > most).map(|(what, is, most)| format!("{what}: {is:.3}, at most {most}")).collect()
    }

    /// Builds the lab and runs.
    ///
    /// # Errors
    /// When there is no lab, an agent ends, or the artifact does not arrive.
    pub async fn run(&self, program: &Path) -> Result<SwarmOutcome, FleetError> {
        let setting = &self.trial.setting;
        let uplinks: Vec<Option<u64>> =
            std::iter::once(&setting.seed_rate).chain(&setting.peer_rates).copied().map(Some).collect();
        let lab = Lab::up(&uplinks)?;
        let own = std::fs::metadata(program).map_err(FleetError::io("cannot look at this program"))?.len();
        let padding = setting.size_bytes.checked_sub(own).and_then(|bytes| usize::try_from(bytes).ok());
        let padding =
            padding.ok_or_else(|| super::refused(format!("an artifact has at least the {own} bytes of its program")))?;
        let pool = PoolPlan::new("edge", self.nodes() + 1, "1%");
        let plan = Plan { padding_bytes: padding, only_fetch: true, hosts: lab.hosts().to_vec(), ..Plan::new(vec![pool]) };
        let mut fleet = Fleet::build(Swell::find_or_build(program)?, program, &plan).await?;
        let names: Vec<String> = fleet.agents().iter().map(|agent| agent.name().to_owned()).collect();
        let honest: Vec<&String> = names.iter().take(1).chain(names.iter().skip(1 + self.hostile())).collect();
        for name in &honest {
            fleet.spawn(name)?;
        }
        for name in &honest {
            fleet.agent_mut(name)?.answers().await?;
        }
        fleet.meets(MEET_WITHIN).await?;
        let mut outcome = self.spread(&mut fleet, program).await?;
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

    /// Signs a release and its rollout, and gives the seed the artifact alone.
    async fn prepare(fleet: &Fleet) -> Result<Prepared, FleetError> {
        let operator = fleet.operator();
        let folder = operator.release("1.0.0", 1, Behaviour::Good).await?;
        let artifact = largest(&folder)?;
        let bytes = std::fs::read(&artifact).map_err(FleetError::io("cannot read the artifact"))?;
        let sha256 = fleet.first()?.api().put_blob(bytes).await?;
        let signed = operator.rollout("1.0.0", &RolloutPlan::waves(&[(100, 0)]), "a bench").await?;
        let mut documents = vec![folder.join("manifest.json")];
        documents.extend(signed.roster.map(|roster| roster.file));
        documents.push(signed.rollout.file);
        Ok(Prepared { documents, artifact, sha256 })
    }

    async fn spread(&self, fleet: &mut Fleet, program: &Path) -> Result<SwarmOutcome, FleetError> {
        let Prepared { documents, artifact, sha256 } = Self::prepare(fleet).await?;
        let mut hostile = self.start_hostile(fleet, program, &artifact).await?;
        let before = Usage::of(fleet)?;

        let mut arguments =
            vec!["publish".to_owned(), "--socket".to_owned(), fleet.first()?.api().socket().display().to_string()];
        arguments.extend(documents.iter().map(|document| document.display().to_string()));
        for peer in &mut hostile {
            peer.go().await?;
        }
        let mut watch = Watch::new(sha256);
        fleet.swell().text(arguments).await?;
        let wanted = self.nodes() - self.hostile();
        while watch.done.len() < wanted {
            watch.look(fleet, self.trial.setting.seed_leaves_after_ppm.is_some()).await?;
            if self
                .trial
                .setting
                .seed_leaves_after_ppm
                .is_some_and(|ppm| watch.seed_copies_ppm(self.trial.setting.size_bytes) >= ppm)
                && let Some(seed) = fleet.agents().first().filter(|seed| seed.pid().is_some())
            {
                let name = seed.name().to_owned();
                watch.left = Usage::of(fleet)?.cpu_s;
                fleet.agent_mut(&name)?.crash().await?;
                watch.left -= Usage::of(fleet)?.cpu_s;
            }
            if watch.began.elapsed().as_secs_f64() > self.limit_s() * PATIENCE {
                let what = "all agents have the artifact".to_owned();
                let seen = format!("{} of {wanted} have it", watch.done.len());
                return Err(FleetError::Late { what, within: watch.began.elapsed(), seen });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let used = Usage::of(fleet)?;
        self.sum_up(fleet, watch, Usage { cpu_s: used.cpu_s - before.cpu_s, ..used }).await
    }

    async fn start_hostile(&self, fleet: &Fleet, program: &Path, artifact: &Path) -> Result<Vec<Hostile>, FleetError> {
        let honest: Vec<String> = fleet.agents().iter().filter(|agent| agent.pid().is_some()).map(Agent::address).collect();
        let manners = std::iter::repeat_n(Manner::Lie, self.trial.setting.liars);
        let manners = manners.chain(std::iter::repeat_n(Manner::Stall, self.trial.setting.stalled));
        let mut hostile = Vec::new();
        for (agent, manner) in fleet.agents().iter().skip(1).zip(manners) {
            hostile.push(Hostile::start(program, agent, manner, artifact, &honest).await?);
        }
        Ok(hostile)
    }

    async fn sum_up(&self, fleet: &Fleet, mut watch: Watch, used: Usage) -> Result<SwarmOutcome, FleetError> {
        watch.ask_seed(fleet).await?;
        let mut sent = watch.seed_sent;
        for agent in fleet.agents().iter().skip(1).filter(|agent| agent.pid().is_some()) {
            let counters = agent.api().status().await?.agent.counters;
            sent += counters.get("pieces_sent_bytes").copied().unwrap_or(0);
        }
        let mut times: Vec<f64> = watch.done.values().copied().collect();
        times.sort_by(f64::total_cmp);
        let size = number(self.trial.setting.size_bytes);
        let needed = size * number(u64::try_from(self.nodes()).unwrap_or(u64::MAX));
        let last_s = times.last().copied().unwrap_or(f64::INFINITY);
        Ok(SwarmOutcome {
            last_s,
            median_s: times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY),
            limit_s: self.limit_s(),
            ratio_to_limit: last_s / self.limit_s(),
            seed_copies: number(watch.seed_sent) / size,
            total_over_nf: number(sent) / needed,
            cpu_s_per_gb: (used.cpu_s + watch.left) / (needed / 1e9),
            peak_rss_bytes: used.peak_rss_bytes,
            status_worst_s: watch.status_worst.as_secs_f64(),
            record_worst_s: watch.record_worst_s,
            libtorrent_last_s: None,
            ratio_to_libtorrent: None,
        })
    }
}

/// What is to be published once the clock runs, and the artifact, which the seed has before.
struct Prepared {
    documents: Vec<PathBuf>,
    artifact: PathBuf,
    sha256: Digest,
}

/// What is seen of a swarm while it runs.
struct Watch {
    sha256: Digest,
    began: Instant,
    /// The same by the clock of the file system.
    began_at: SystemTime,
    /// When each had everything, in seconds.
    done: BTreeMap<String, f64>,
    /// Of whom the seed knows it.
    known: BTreeMap<String, f64>,
    asked: Instant,
    looked_at_records: Instant,
    record_worst_s: f64,
    status_worst: Duration,
    seed_sent: u64,
    /// Processor seconds of a seed that has left.
    left: f64,
}

impl Watch {
    fn new(sha256: Digest) -> Self {
        let began = Instant::now();
        Self {
            sha256,
            began,
            began_at: SystemTime::now(),
            done: BTreeMap::new(),
            known: BTreeMap::new(),
            asked: began,
            looked_at_records: began,
            record_worst_s: 0.0,
            status_worst: Duration::ZERO,
            seed_sent: 0,
            left: 0.0,
        }
    }

    fn seed_copies_ppm(&self, size_bytes: u64) -> u64 {
        self.seed_sent.saturating_mul(1_000_000) / size_bytes.max(1)
    }

    /// Asks the seed for its status, unless it has left.
    async fn ask_seed(&mut self, fleet: &Fleet) -> Result<(), FleetError> {
        let Some(seed) = fleet.agents().first().filter(|seed| seed.pid().is_some()) else { return Ok(()) };
        self.asked = Instant::now();
        let status = seed.api().status().await?;
        self.status_worst = self.status_worst.max(self.asked.elapsed());
        self.seed_sent = status.agent.counters.get("pieces_sent_bytes").copied().unwrap_or(self.seed_sent);
        Ok(())
    }

    /// Looks at the files of all, and asks the seed for its status when it is time; `often` with each look.
    async fn look(&mut self, fleet: &Fleet, often: bool) -> Result<(), FleetError> {
        for agent in fleet.agents().iter().skip(1).filter(|agent| agent.pid().is_some()) {
            if self.done.contains_key(agent.name()) {
                continue;
            }
            if let Some(named) = named_at(&agent.blob(&self.sha256)) {
                let took = named.duration_since(self.began_at).unwrap_or_default();
                self.done.insert(agent.name().to_owned(), took.min(self.began.elapsed()).as_secs_f64());
            }
        }
        if often || self.asked.elapsed() >= STATUS_EVERY {
            self.ask_seed(fleet).await?;
        }
        let seed = fleet.agents().first().filter(|seed| seed.pid().is_some());
        if let Some(seed) = seed
            && self.looked_at_records.elapsed() >= RECORDS_EVERY
        {
            self.looked_at_records = Instant::now();
            let now = self.began.elapsed().as_secs_f64();
            for peer in seed.api().peers().await?.into_iter().filter(|peer| peer.serves.contains(&self.sha256)) {
                self.known.entry(peer.name.unwrap_or_default()).or_insert(now);
            }
            for (name, done) in &self.done {
                let known = self.known.get(name).copied().unwrap_or(now);
                self.record_worst_s = self.record_worst_s.max(known - done);
            }
        }
        Ok(())
    }
}

/// When a blob got its name, which comes after its sha256 was checked and its data flushed; `None` while it has none.
pub(crate) fn named_at(blob: &Path) -> Option<SystemTime> {
    let found = std::fs::metadata(blob).ok().filter(std::fs::Metadata::is_file)?;
    let (seconds, nanos) = (u64::try_from(found.ctime()).ok()?, u32::try_from(found.ctime_nsec()).ok()?);
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

pub(crate) fn largest(folder: &Path) -> Result<PathBuf, FleetError> {
    let entries = std::fs::read_dir(folder).map_err(FleetError::io(format!("cannot read {}", folder.display())))?;
    let sized = entries.flatten().filter_map(|entry| Some((entry.metadata().ok()?.len(), entry.path())));
    sized.max().map(|(_, path)| path).ok_or_else(|| super::refused(format!("{} is empty", folder.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_counts_from_when_it_got_its_name_however_late_one_looks() {
        let folder = tempfile::tempdir().unwrap();
        let (part, whole) = (folder.path().join("blob.part"), folder.path().join("blob"));
        std::fs::write(&part, b"all of it").unwrap();
        assert_eq!(named_at(&whole), None);
        let written = named_at(&part).unwrap();
        // The clock of a file system goes in steps.
        while named_at(&whole).is_none_or(|named| named <= written) {
            std::fs::rename(&part, &whole).or_else(|_| std::fs::rename(&whole, &part)).unwrap();
        }
        let named = named_at(&whole).unwrap();
        std::fs::File::open(&whole).unwrap().sync_all().unwrap();
        assert_eq!(named_at(&whole), Some(named));
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
            status_worst_s: 0.01,
            record_worst_s: 1.0,
            libtorrent_last_s: Some(35.0),
            ratio_to_libtorrent: Some(0.63),
        };
        let trial = Trial::all(8, 40_000_000, 104_857_600).remove(0);
        let bench = SwarmBench { trial, beside_libtorrent: false };
        assert!((bench.limit_s() - 20.971_52).abs() < 1e-6);
        assert_eq!(bench.complaints(&fine), Vec::<String>::new());
        let bad = SwarmOutcome {
            ratio_to_limit: 1.13,
            seed_copies: 1.11,
            total_over_nf: 1.07,
            ratio_to_libtorrent: Some(0.8),
            status_worst_s: 0.06,
            record_worst_s: 6.0,
            ..fine
        };
        assert_eq!(bench.complaints(&bad).len(), 6);
    }
}

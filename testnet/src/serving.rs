//! One agent gives an artifact to many others on this machine at full speed: how soon it answers for its status meanwhile, and
//! how soon another member knows what it says of itself.
//!
//! Those that take are metered, so everything comes from the one. What it says of itself changes when it gets a small
//! artifact of a release that everybody knows and nobody rolls out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::fleet::Fleet;
use crate::fleet::agent::Agent;
use crate::fleet::error::FleetError;
use crate::fleet::operator::platform;
use crate::fleet::plan::{PRODUCT, Plan, PoolPlan, RolloutPlan};
use crate::fleet::service::Behaviour;
use crate::fleet::swell::Swell;
use crate::lab::number;
use crate::lab::swarm::{RECORD_MOST_S, STATUS_MOST_S, largest, named_at};
use crate::lab::usage::Usage;

/// How long agents may take to know each other, and the small releases.
const MEET_WITHIN: Duration = Duration::from_secs(60);
/// Longest that all may take.
const WITHIN: Duration = Duration::from_secs(600);
/// How soon it is asked for its status again.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// How soon what it says of itself changes again, once that is known.
const CHANGE_EVERY: Duration = Duration::from_millis(500);
/// Small releases, and so the most changes.
const CHANGES: u64 = 16;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeBench {
    /// How many take.
    pub peers: usize,
    /// Size of the artifact in bytes.
    pub size_bytes: u64,
}

/// What came of it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ServeOutcome {
    /// Seconds until all had the artifact, verified, durable and renamed.
    pub took_s: f64,
    /// Millions of bytes a second that it gave.
    pub mb_per_s: f64,
    /// Its processor seconds for each GB that it gave.
    pub cpu_s_per_gb: f64,
    /// How often it was asked for its status meanwhile.
    pub status_asked: usize,
    /// The median of how long it took to answer.
    pub status_median_s: f64,
    /// The longest.
    pub status_worst_s: f64,
    /// How often what it says of itself changed meanwhile and became known.
    pub records: usize,
    /// The longest from a change until another member knew.
    pub record_worst_s: f64,
}

impl ServeOutcome {
    /// What is not as it must be.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let bars = [
            ("its slowest answer for its status, in seconds", self.status_worst_s, STATUS_MOST_S),
            ("its slowest record, in seconds", self.record_worst_s, RECORD_MOST_S),
        ];
        let missed = bars.iter().filter(|(_, is, most)| is > most);
        let mut complaints: Vec<String> = missed.map(|(what, is, most)| format!("{what}: {is:.3}, at most {most}")).collect();
        if self.records == 0 {
            complaints.push("nobody was told anything: it was over too soon".to_owned());
        }
        complaints
    }
}

impl ServeBench {
    /// Runs.
    ///
    /// # Errors
    /// When an agent ends, or the artifact does not arrive.
    pub async fn run(&self, program: &Path) -> Result<ServeOutcome, FleetError> {
        let own = std::fs::metadata(program).map_err(FleetError::io("cannot look at this program"))?.len();
        let padding_bytes = self.size_bytes.checked_sub(own).and_then(|bytes| usize::try_from(bytes).ok());
        let padding_bytes = padding_bytes.ok_or_else(|| FleetError::Io {
            what: format!("an artifact has at least the {own} bytes of its program"),
            source: std::io::ErrorKind::InvalidInput.into(),
        })?;
        let pool = PoolPlan::new("edge", self.peers + 1, "1%");
        let plan = Plan { padding_bytes, only_fetch: true, metered: true, ..Plan::new(vec![pool]) };
        let mut fleet = Fleet::build(Swell::find_or_build(program)?, program, &plan).await?;
        fleet.start().await?;
        fleet.meets(MEET_WITHIN).await?;
        let small = Self::small_releases(&fleet).await?;
        let outcome = self.serve(&fleet, small).await;
        fleet.shut_down().await;
        outcome
    }

    /// Signs releases of a few bytes and has everybody know them; their artifacts, which nobody has.
    async fn small_releases(fleet: &Fleet) -> Result<Vec<Vec<u8>>, FleetError> {
        let mut arguments = publishing(fleet.first()?);
        let mut artifacts = Vec::new();
        for sequence in 2..2 + CHANGES {
            let version = format!("1.0.{sequence}");
            let folder = fleet.operator().release_folder(&version);
            std::fs::create_dir_all(&folder).map_err(FleetError::io(format!("cannot make {}", folder.display())))?;
            let (file, content) = (folder.join(format!("{PRODUCT}-{}", platform())), version.clone().into_bytes());
            std::fs::write(&file, &content).map_err(FleetError::io(format!("cannot write {}", file.display())))?;
            fleet.operator().sign(&folder, &version, sequence).await?;
            arguments.push(folder.join("manifest.json").display().to_string());
            artifacts.push(content);
        }
        fleet.swell().text(arguments).await?;
        Ok(artifacts)
    }

    async fn serve(&self, fleet: &Fleet, small: Vec<Vec<u8>>) -> Result<ServeOutcome, FleetError> {
        let (operator, giver) = (fleet.operator(), fleet.first()?);
        let folder = operator.release("1.0.0", 1, Behaviour::Good).await?;
        let artifact = std::fs::read(largest(&folder)?).map_err(FleetError::io("cannot read the artifact"))?;
        let sha256 = giver.api().put_blob(artifact).await?;
        let signed = operator.rollout("1.0.0", &RolloutPlan::waves(&[(100, 0)]), "a bench").await?;
        let mut arguments = publishing(giver);
        let documents = [folder.join("manifest.json"), signed.rollout.file];
        let documents = documents.into_iter().chain(signed.roster.map(|roster| roster.file));
        arguments.extend(documents.map(|document| document.display().to_string()));
        let cpu = |fleet: &Fleet| -> Result<f64, FleetError> {
            let pid = fleet.agents().first().and_then(Agent::pid);
            Ok(pid.map(Usage::of_process).transpose()?.unwrap_or_default().cpu_s)
        };
        let before = cpu(fleet)?;
        let began = Instant::now();
        fleet.swell().text(arguments).await?;
        let all = async {
            let mut left: BTreeSet<PathBuf> = fleet.agents().iter().skip(1).map(|agent| agent.blob(&sha256)).collect();
            while !left.is_empty() {
                left.retain(|file| named_at(file).is_none());
                tokio::time::sleep(ASK_EVERY).await;
            }
            began.elapsed()
        };
        let mut answers = Vec::new();
        let mut records = Vec::new();
        let asks = async {
            loop {
                let asked = Instant::now();
                giver.api().status().await?;
                answers.push(asked.elapsed().as_secs_f64());
                tokio::time::sleep(ASK_EVERY).await;
            }
        };
        let changes = async {
            for content in small {
                tokio::time::sleep(CHANGE_EVERY).await;
                records.push(Self::becomes_known(fleet, content).await?.as_secs_f64());
            }
            std::future::pending().await
        };
        let took = tokio::select! {
            took = tokio::time::timeout(WITHIN, all) => took.map_err(|_| FleetError::Late {
                what: "all have the artifact".to_owned(),
                within: WITHIN,
                seen: "not all".to_owned(),
            })?,
            failed = asks => return Err(never(failed)),
            failed = changes => return Err(never(failed)),
        };
        let given = number(self.size_bytes) * number(u64::try_from(self.peers).unwrap_or(u64::MAX));
        answers.sort_by(f64::total_cmp);
        let worst = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
        Ok(ServeOutcome {
            took_s: took.as_secs_f64(),
            mb_per_s: given / took.as_secs_f64() / 1e6,
            cpu_s_per_gb: (cpu(fleet)? - before) / (given / 1e9),
            status_asked: answers.len(),
            status_median_s: answers.get(answers.len() / 2).copied().unwrap_or(0.0),
            status_worst_s: worst(&answers),
            records: records.len(),
            record_worst_s: worst(&records),
        })
    }

    /// How long it takes until another member knows that the one who gives has a small artifact too.
    async fn becomes_known(fleet: &Fleet, content: Vec<u8>) -> Result<Duration, FleetError> {
        let other = fleet.agents().last().ok_or_else(|| FleetError::NoNode("edge-2".to_owned()))?;
        let sha256 = fleet.first()?.api().put_blob(content).await?;
        let changed = Instant::now();
        loop {
            let peers = other.api().peers().await?;
            if peers.iter().any(|peer| peer.name.as_deref() == Some("edge-1") && peer.serves.contains(&sha256)) {
                return Ok(changed.elapsed());
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }
}

fn publishing(agent: &Agent) -> Vec<String> {
    ["publish", "--socket"].map(str::to_owned).into_iter().chain([agent.api().socket().display().to_string()]).collect()
}

/// What goes on until it fails.
fn never(failed: Result<std::convert::Infallible, FleetError>) -> FleetError {
    match failed {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_answers_late_or_tells_late_or_nothing_is_told() {
        let fine = ServeOutcome {
            took_s: 10.0,
            mb_per_s: 400.0,
            cpu_s_per_gb: 2.0,
            status_asked: 400,
            status_median_s: 0.002,
            status_worst_s: 0.049,
            records: 8,
            record_worst_s: 1.2,
        };
        assert_eq!(fine.complaints(), Vec::<String>::new());
        let late = ServeOutcome { status_worst_s: 0.051, record_worst_s: 5.1, ..fine.clone() };
        assert_eq!(late.complaints().len(), 2);
        assert_eq!(ServeOutcome { records: 0, record_worst_s: 0.0, ..fine }.complaints().len(), 1);
    }
}

//! The stage: a fleet of twelve, looked at all the time. Turns what the agents say into frames, figures and counts.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use groundswell_core::node::view::{LeaseView, RolloutView};
use groundswell_core::record::status::Phase;
use groundswell_testnet::fleet::Fleet;
use groundswell_testnet::fleet::api::StatusView;
use groundswell_testnet::fleet::disruption::Disruption;
use groundswell_testnet::fleet::error::FleetError;
use groundswell_testnet::fleet::operator::Signed;
use groundswell_testnet::fleet::plan::{Plan, PoolPlan};
use groundswell_testnet::fleet::swell::Swell;

use super::screen::{Frame, Row, Screen};

/// How soon everything is looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The fleet and how it is seen.
pub(crate) struct Stage {
    pub(crate) fleet: Fleet,
    pub(crate) plan: Plan,
    pub(crate) screen: Screen,
    pub(crate) disruption: Disruption,
    headline: String,
}

/// What was seen in one look.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// What each node says.
    pub(crate) nodes: BTreeMap<String, StatusView>,
    /// The rollouts as the first node sees them.
    pub(crate) rollouts: Vec<RolloutView>,
    /// The leases as the first node sees them.
    pub(crate) leases: Vec<LeaseView>,
}

/// When the agents learnt of a rollout, counted from the start of the command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Learnt {
    /// The first of them.
    pub(crate) first: Duration,
    /// The last of them.
    pub(crate) last: Duration,
}

impl Stage {
    /// Builds and starts the fleet.
    pub(crate) async fn set(swell: Swell, program: &Path, plain: bool) -> Result<Self, FleetError> {
        let pools = vec![PoolPlan::new("core", 3, "34%"), PoolPlan::new("edge", 6, "34%"), PoolPlan::new("lab", 3, "34%")];
        let plan = Plan { padding_bytes: 4 << 20, ..Plan::new(pools) };
        let fleet = Fleet::build(swell, program, &plan).await?;
        Ok(Self { fleet, plan, screen: Screen::new(plain), disruption: Disruption::default(), headline: String::new() })
    }

    /// A new chapter.
    pub(crate) fn chapter(&mut self, headline: &str) {
        self.headline = headline.to_owned();
        self.screen.note(headline);
    }

    /// Looks at everything once and shows it.
    pub(crate) async fn look(&mut self) -> Result<Look, FleetError> {
        self.fleet.check()?;
        let nodes = self.fleet.sample().await?;
        self.disruption.take(nodes.iter().map(|(name, status)| (name.as_str(), status)));
        let Some(first) = self.fleet.agents().first() else { return Err(FleetError::NoNode("first".to_owned())) };
        let (rollouts, leases) = (first.api().rollouts().await?, first.api().leases().await?);
        let look = Look { nodes, rollouts, leases };
        let frame = self.frame(&look);
        self.screen.show(&frame);
        Ok(look)
    }

    /// Looks until `done`, which says what is missing otherwise.
    pub(crate) async fn watch_until(
        &mut self,
        what: &str,
        within: Duration,
        done: impl Fn(&Look) -> Result<(), String>,
    ) -> Result<Look, FleetError> {
        let began = Instant::now();
        loop {
            let look = self.look().await?;
            let Err(seen) = done(&look) else { return Ok(look) };
            if began.elapsed() > within {
                return Err(FleetError::Late { what: what.to_owned(), within, seen });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Looks for that long.
    pub(crate) async fn watch_for(&mut self, time: Duration) -> Result<Look, FleetError> {
        let began = Instant::now();
        loop {
            let look = self.look().await?;
            if began.elapsed() >= time {
                return Ok(look);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Publishes to one node and times when all agents know it.
    pub(crate) async fn publish(&mut self, node: &str, version: &str, signed: &Signed) -> Result<Learnt, FleetError> {
        let began = Instant::now();
        let fleet = &self.fleet;
        let published = fleet.publish(node, version, signed);
        let learnt = async {
            let mut first = None;
            loop {
                let sample = fleet.sample().await?;
                let knows = |status: &StatusView| {
                    status.node.products.iter().any(|product| product.rollout.as_deref() == Some(signed.id.as_str()))
                };
                let known = sample.values().filter(|status| knows(status)).count();
                if known > 0 {
                    first.get_or_insert(began.elapsed());
                }
                if known == sample.len() || began.elapsed() > Duration::from_secs(30) {
                    let last = began.elapsed();
                    return Ok::<_, FleetError>(Learnt { first: first.unwrap_or(last), last });
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let (published, learnt) = tokio::join!(published, learnt);
        published?;
        learnt
    }

    fn frame(&self, look: &Look) -> Frame {
        let rollout = look.rollouts.iter().max_by_key(|rollout| rollout.sequence);
        Frame {
            headline: self.headline.clone(),
            rows: look.nodes.iter().map(|(name, status)| row(name, status)).collect(),
            waves: rollout.map(waves).unwrap_or_default(),
            leases: self.plan.pools.iter().map(|pool| leases(&pool.name, &look.leases)).collect(),
        }
    }
}

fn row(name: &str, status: &StatusView) -> Row {
    let Some(product) = status.node.products.first() else {
        return Row { node: name.to_owned(), ..Row::default() };
    };
    let download = status
        .agent
        .downloads
        .first()
        .map(|download| format!("{} of {} pieces from {} peers", download.held, download.pieces, download.peers));
    let holds = matches!(product.phase, Phase::Claiming | Phase::Activating);
    let slot = product.slot.filter(|_| holds).map(|slot| format!("slot {slot}"));
    let hold = product.hold.as_ref().map(|hold| hold.text.clone());
    let wave = product.wave.map(|wave| format!("wave {}", wave + 1));
    let detail: Vec<String> = [wave, slot, download, hold].into_iter().flatten().collect();
    Row {
        node: name.to_owned(),
        version: product.version.clone().unwrap_or_else(|| "-".to_owned()),
        phase: phase_name(product.phase),
        detail: detail.join(", "),
    }
}

/// A phase as the views write it.
pub(crate) fn phase_name(phase: Phase) -> String {
    serde_json::to_value(phase).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn waves(rollout: &RolloutView) -> Vec<String> {
    let state = match &rollout.halted {
        Some(why) => format!("HALTED: {}", why.strip_prefix("halted: ").unwrap_or(why)),
        None if rollout.complete => "complete".to_owned(),
        None => rollout.state.clone(),
    };
    let head = format!("rollout of {} (generation {}): {state}", rollout.version, rollout.generation);
    // The implicit last wave, of nodes that join late, is of interest once it has a member.
    let lines = rollout.waves.iter().filter(|wave| wave.members > 0).map(|wave| {
        let state = match (wave.passed, wave.open) {
            (true, _) => "passed",
            (false, true) => "open",
            (false, false) => "shut",
        };
        let note = if wave.note.is_empty() { String::new() } else { format!(": {}", wave.note) };
        format!(
            "  wave {} {state:<6} {} nodes, {} under way, {} soaked, {} failed{note}",
            wave.index + 1,
            wave.members,
            wave.in_progress,
            wave.soaked,
            wave.failed
        )
    });
    std::iter::once(head).chain(lines).collect()
}

fn leases(pool: &str, leases: &[LeaseView]) -> String {
    let slots = leases.iter().filter(|lease| lease.pool == pool).map(|lease| match &lease.name {
        Some(name) => format!("slot {} {name} ({} of {} grants)", lease.slot, lease.grants, lease.quorum),
        None => format!("slot {} free", lease.slot),
    });
    format!("  pool {pool:<5} {}", slots.collect::<Vec<_>>().join(", "))
}

//! What a fleet of real processes looks like: its pools, who knows whom at the start, how rollouts go.

use std::fmt::Write as _;

use crate::lab::Host;

/// The product that these fleets roll out.
pub const PRODUCT: &str = "svc";

/// A fleet to be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its pools.
    pub pools: Vec<PoolPlan>,
    /// Who knows whom at the start.
    pub links: Links,
    /// The agents' log filter.
    pub log: String,
    /// Bytes beside the program in each version, so that there is something to fetch.
    pub padding_bytes: usize,
    /// The product is the agent itself, and each agent runs under its supervisor. Otherwise it is the sample service.
    pub agents: bool,
    /// Nothing is staged for ten minutes after it was fetched: what is measured is the fetching.
    pub only_fetch: bool,
    /// All but the first are metered: what they fetch comes from the first alone.
    pub metered: bool,
    /// A host of a lab for each node; when there are none, all are on loopback.
    pub hosts: Vec<Host>,
}

/// One pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPlan {
    /// Its name; its nodes are `name-1`, `name-2` …
    pub name: String,
    /// How many nodes it has.
    pub nodes: usize,
    /// Its budget as `roster.toml` writes it: `"34%"`.
    pub budget: String,
}

/// Who knows whom at the start (`bootstrap`). All else they learn from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// All know the first node.
    Hub,
    /// Each knows the one before it.
    Line,
}

impl PoolPlan {
    /// A pool.
    #[must_use]
    pub fn new(name: &str, nodes: usize, budget: &str) -> Self {
        Self { name: name.to_owned(), nodes, budget: budget.to_owned() }
    }

    /// How many of its nodes may be disrupted at once, as the design counts them.
    #[must_use]
    pub fn slots(&self) -> usize {
        let percent: usize = self.budget.trim_end_matches('%').parse().unwrap_or(0);
        (self.nodes * percent / 100).max(1)
    }
}

impl Plan {
    /// A fleet of `pools`, all of whose nodes know the first.
    #[must_use]
    pub fn new(pools: Vec<PoolPlan>) -> Self {
        Self {
            pools,
            links: Links::Hub,
            log: "info".to_owned(),
            padding_bytes: 0,
            agents: false,
            only_fetch: false,
            metered: false,
            hosts: Vec::new(),
        }
    }

    /// Names of the nodes with their pools, in order.
    pub fn nodes(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.pools
            .iter()
            .flat_map(|pool| (1..=pool.nodes).map(move |number| (format!("{}-{number}", pool.name), pool.name.clone())))
    }

    /// `roster.toml`.
    #[must_use]
    pub fn roster_toml(&self) -> String {
        let mut text = "meet = []\n".to_owned();
        for pool in &self.pools {
            let _ = write!(text, "\n[pool.{}]\nbudget = \"{}\"\nstart-within = \"30s\"\n", pool.name, pool.budget);
        }
        text
    }
}

/// One wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WavePlan {
    /// Cumulative percent of the nodes.
    pub percent: u32,
    /// Its soak, in seconds.
    pub soak_seconds: u64,
}

/// How a rollout goes. The times are those of a test: an operator's are minutes and hours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutPlan {
    /// Its waves.
    pub waves: Vec<WavePlan>,
    /// Seconds of health before a node confirms.
    pub confirm_after_seconds: u64,
    /// The watchdog's time.
    pub upgrade_timeout_seconds: u64,
    /// Above this share of a wave it halts, in percent.
    pub max_failures_percent: u32,
    /// Seconds without a word after which a due node is excused.
    pub offline_after_seconds: u64,
    /// Seconds after its signing from which on nobody starts any more.
    pub expires_after_seconds: u64,
}

impl RolloutPlan {
    /// Waves of these cumulative percentages, with these soaks.
    #[must_use]
    pub fn waves(waves: &[(u32, u64)]) -> Self {
        Self {
            waves: waves.iter().map(|&(percent, soak_seconds)| WavePlan { percent, soak_seconds }).collect(),
            confirm_after_seconds: 1,
            upgrade_timeout_seconds: 60,
            max_failures_percent: 10,
            offline_after_seconds: 60,
            expires_after_seconds: 86_400,
        }
    }

    /// `rollout.toml` of a release in the fleet folder.
    #[must_use]
    pub fn to_toml(&self, version: &str, reason: &str) -> String {
        let Self { confirm_after_seconds, upgrade_timeout_seconds, max_failures_percent, .. } = self;
        let Self { offline_after_seconds, expires_after_seconds, .. } = self;
        let mut text = format!(
            "product = \"{PRODUCT}\"\nversion = \"{version}\"\nreason = \"{reason}\"\n\
             confirm-after = \"{confirm_after_seconds}s\"\nupgrade-timeout = \"{upgrade_timeout_seconds}s\"\n\
             revert-timeout = \"60s\"\noffline-after = \"{offline_after_seconds}s\"\ngrace = \"30s\"\n\
             expires-after = \"{expires_after_seconds}s\"\n\n\
             [halt]\nmax-failures = \"{max_failures_percent}%\"\n"
        );
        for WavePlan { percent, soak_seconds } in &self.waves {
            let _ = write!(text, "\n[[wave]]\npercent = \"{percent}%\"\nsoak = \"{soak_seconds}s\"\n");
        }
        text
    }
}

//! What a virtual swarm is made of, and what came of it beside the physical limit.

use std::time::Duration;

use groundswell_core::limits::BLOB_COMPANY;

/// With so many nodes a fleet is large.
const LARGE: usize = 100;

/// One swarm: a seed and `peers` others that want what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Size of the blob in bytes.
    pub size_bytes: u64,
    /// The seed's uplink in bits per second.
    pub seed_rate: u64,
    /// The uplink of each other node in bits per second. Downlinks are not the bound.
    pub peer_rates: Vec<u64>,
    /// With how many others each node sees to it that it is linked, those counted that chose it: as agents do that fetch. All
    /// are linked with all where there are not more.
    pub links: usize,
    /// One way, in addition to what a link takes to carry the bytes.
    pub delay: Duration,
    /// So many nodes send a bad piece in ten.
    pub liars: usize,
    /// So many nodes take pieces, promise pieces, and send none.
    pub stalled: usize,
    /// The seed leaves when it has sent so many whole copies, in parts per million.
    pub seed_leaves_after_ppm: Option<u64>,
    /// Of everything that is left to chance.
    pub seed: u64,
}

/// A setting with a name, and what must come of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// What it is called.
    pub name: String,
    /// What is tried.
    pub setting: Setting,
    /// Most that the last completion may be of the limit, in parts per thousand.
    pub ratio_milli: u128,
    /// Most bytes that the seed may send, in parts per thousand of the blob.
    pub seed_milli: Option<u64>,
    /// Most bytes that all may send, in parts per thousand of what all need.
    pub total_milli: u64,
}

impl Trial {
    /// What every change must pass, with `peers` others and links of `rate` bits per second: equal uplinks, a slow seed,
    /// a liar, two that stall, a seed that leaves, mixed uplinks.
    #[must_use]
    pub fn all(peers: usize, rate: u64, size_bytes: u64) -> Vec<Self> {
        let equal = Setting::equal(peers, rate, size_bytes);
        let settings = [
            equal.clone(),
            Setting { seed_rate: rate / 2, ..equal.clone() },
            Setting { liars: 1, ..equal.clone() },
            Setting { stalled: 2.min(peers), ..equal.clone() },
            Setting { seed_leaves_after_ppm: Some(1_100_000), ..equal.clone() },
            Setting { seed_rate: rate / 2, peer_rates: Setting::mixed_rates(peers, rate), ..equal },
        ];
        settings.into_iter().map(Self::of).collect()
    }

    /// A setting with what must come of it: with equal uplinks and nothing that goes wrong nearer to the limit than else,
    /// and nearest in a large fleet, where the end weighs less.
    #[must_use]
    pub fn of(setting: Setting) -> Self {
        let what = setting.what();
        let is_large = setting.peer_rates.len() >= LARGE;
        let ratio_milli = match what.is_empty() {
            true if is_large => 1_100,
            true => 1_120,
            false => 1_250,
        };
        Self {
            name: format!("{} {}", setting.peer_rates.len(), if what.is_empty() { "equal" } else { &what }),
            seed_milli: (what.is_empty() && !is_large).then_some(1_100),
            ratio_milli,
            total_milli: 1_060,
            setting,
        }
    }

    /// What is not as it must be, in words.
    #[must_use]
    pub fn complaints(&self, outcome: &Outcome) -> Vec<String> {
        let mut complaints = Vec::new();
        let peers = u64::try_from(self.setting.peer_rates.len()).unwrap_or(u64::MAX);
        if outcome.incomplete > 0 {
            complaints.push(format!("{} nodes are without it", outcome.incomplete));
        } else if outcome.ratio_milli() > self.ratio_milli {
            complaints.push(format!("{} of the limit, {} allowed", milli(outcome.ratio_milli()), milli(self.ratio_milli)));
        }
        let seed = outcome.seed_bytes.saturating_mul(1_000) / self.setting.size_bytes;
        if let Some(most) = self.seed_milli.filter(|most| seed > *most) {
            complaints.push(format!("the seed sent {} copies, {} allowed", milli(seed.into()), milli(most.into())));
        }
        let total = outcome.total_bytes.saturating_mul(1_000) / self.setting.size_bytes.saturating_mul(peers).max(1);
        if total > self.total_milli {
            complaints.push(format!(
                "{} of what is needed was sent, {} allowed",
                milli(total.into()),
                milli(self.total_milli.into())
            ));
        }
        complaints
    }
}

/// Parts per thousand, as people read them.
#[must_use]
pub fn milli(parts: u128) -> String {
    format!("{}.{:03}", parts / 1000, parts % 1000)
}

impl Setting {
    /// Equal uplinks of `rate` bits per second, all honest.
    #[must_use]
    pub fn equal(peers: usize, rate: u64, size_bytes: u64) -> Self {
        Self {
            size_bytes,
            seed_rate: rate,
            peer_rates: vec![rate; peers],
            links: BLOB_COMPANY,
            delay: Duration::from_millis(10),
            liars: 0,
            stalled: 0,
            seed_leaves_after_ppm: None,
            seed: 1,
        }
    }

    /// Uplinks from a twentieth of the rate up to all of it.
    #[must_use]
    pub fn mixed_rates(peers: usize, rate: u64) -> Vec<u64> {
        [20, 8, 4, 2, 1].into_iter().map(|part| rate / part).cycle().take(peers).collect()
    }

    /// What makes it harder than equal uplinks of honest nodes, in words; empty where nothing does.
    fn what(&self) -> String {
        let rates = (self.peer_rates.iter().min().copied().unwrap_or(0), self.peer_rates.iter().max().copied().unwrap_or(0));
        let mut what = Vec::new();
        if rates.0 < rates.1 {
            what.push("with mixed uplinks".to_owned());
        }
        if self.seed_rate < rates.1 {
            what.push("with a slow seed".to_owned());
        }
        if self.liars > 0 {
            what.push(format!("with {} that lie in ten", self.liars));
        }
        if self.stalled > 0 {
            what.push(format!("with {} that stall", self.stalled));
        }
        if self.seed_leaves_after_ppm.is_some() {
            what.push("and a seed that leaves".to_owned());
        }
        what.join(", ")
    }

    /// No way of spreading is faster: the seed must send everything once, and all uplinks together everything to all that
    /// are waited for. Nodes that stall or lie give nothing, and nobody waits for them.
    #[must_use]
    pub fn limit(&self) -> Duration {
        let useful = self.peer_rates.iter().skip(self.liars + self.stalled);
        let all = u64::try_from(useful.clone().count()).unwrap_or(u64::MAX).saturating_mul(self.size_bytes);
        let uplinks: u64 = self.seed_rate + useful.sum::<u64>();
        let once = micros(self.size_bytes, self.seed_rate);
        Duration::from_micros(once.max(micros(all, uplinks)))
    }
}

fn micros(bytes: u64, bits_per_second: u64) -> u64 {
    u64::try_from(u128::from(bytes) * 8 * 1_000_000 / u128::from(bits_per_second.max(1))).unwrap_or(u64::MAX)
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// When each node that completed had everything, in order. Liars and stalled nodes are not in it.
    pub done: Vec<Duration>,
    /// Nodes that should have completed and did not.
    pub incomplete: usize,
    /// The limit.
    pub limit: Duration,
    /// Bytes of pieces that the seed sent.
    pub seed_bytes: u64,
    /// Bytes of pieces that all sent together.
    pub total_bytes: u64,
    /// Bytes of everything else that was said.
    pub word_bytes: u64,
    /// Bytes of pieces that arrived and were not needed.
    pub wasted_bytes: u64,
    /// Events that were played.
    pub events: u64,
}

impl Outcome {
    /// When the last node had everything.
    #[must_use]
    pub fn last(&self) -> Duration {
        self.done.last().copied().unwrap_or(Duration::MAX)
    }

    /// When half of them had.
    #[must_use]
    pub fn median(&self) -> Duration {
        self.done.get(self.done.len() / 2).copied().unwrap_or(Duration::MAX)
    }

    /// Last completion ÷ limit, in parts per thousand; `u128::MAX` when some did not complete.
    #[must_use]
    pub fn ratio_milli(&self) -> u128 {
        if self.incomplete > 0 { u128::MAX } else { self.last().as_micros() * 1000 / self.limit.as_micros().max(1) }
    }
}

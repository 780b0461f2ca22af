//! The figures that the demo ends with.

use std::collections::BTreeMap;
use std::time::Duration;

use groundswell_core::node::view::RolloutView;
use groundswell_testnet::fleet::api::StatusView;
use groundswell_testnet::fleet::processes::{Usage, usage};
use serde::Serialize;

/// All figures; `--json` prints them as they are.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figures {
    /// Seconds of the whole demo, after the build.
    pub(crate) demo_seconds: f64,
    /// From the start of `swell publish` of version 2 until the last agent knew it.
    pub(crate) publish_to_last_agent_seconds: f64,
    /// From the first agent that knew version 2 to the last.
    pub(crate) first_to_last_agent_seconds: f64,
    /// The good rollout, from the start of `swell publish` until its last wave had passed.
    pub(crate) good_rollout_seconds: f64,
    /// Messages of one agent in the good rollout.
    pub(crate) messages: Messages,
    /// One agent at rest.
    pub(crate) idle: Idle,
    /// The `swell` binary that ran.
    pub(crate) binary_bytes: u64,
    /// Most nodes disrupted at once: by pool, its budget, what the records say, what the services say.
    pub(crate) disrupted: BTreeMap<String, Disrupted>,
    /// Whether all was as it must be.
    pub(crate) as_it_must_be: bool,
}

/// Most nodes of a pool disrupted at once.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Disrupted {
    /// Its slots.
    pub(crate) budget: usize,
    /// Activating at once, by the nodes' own records.
    pub(crate) by_records: usize,
    /// Without a healthy service at once, by the services' own word.
    pub(crate) by_services: usize,
}

/// Messages per agent: the mean over all of them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Messages {
    /// Frames to neighbours: records, announcements, sync.
    pub(crate) frames_sent: f64,
    /// Frames from neighbours.
    pub(crate) frames_received: f64,
    /// Bytes of these.
    pub(crate) bytes_received: f64,
    /// Records that this agent signed, status and grants, from its claim of version 1 to its claim of version 2.
    pub(crate) records_signed: f64,
    /// Documents heard by gossip.
    pub(crate) gossip_received: f64,
}

/// What an agent uses at rest: the mean over all of them, and the highest.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Idle {
    /// How long was looked.
    pub(crate) seconds: f64,
    /// Resident memory in bytes, mean.
    pub(crate) resident_bytes: u64,
    /// Resident memory in bytes, of the largest.
    pub(crate) resident_bytes_most: u64,
    /// Of the mean, memory that no file stands behind.
    pub(crate) anonymous_bytes: u64,
    /// Share of one processor, in percent, mean.
    pub(crate) processor_percent: f64,
    /// Share of one processor, in percent, of the busiest.
    pub(crate) processor_percent_most: f64,
}

impl Messages {
    /// The mean difference of two samples.
    pub(crate) fn between(before: &BTreeMap<String, StatusView>, after: &BTreeMap<String, StatusView>) -> Self {
        let mean = |counter: &str| {
            let read = |status: &StatusView| status.agent.counters.get(counter).copied().unwrap_or(0);
            let differences =
                after.iter().filter_map(|(name, status)| Some(read(status).saturating_sub(read(before.get(name)?))));
            mean(differences)
        };
        Self {
            frames_sent: mean("frames_sent"),
            frames_received: mean("frames_received"),
            bytes_received: mean("frame_bytes_received"),
            records_signed: 0.0,
            gossip_received: mean("gossip_received"),
        }
    }
}

impl Idle {
    /// Looks at processes for that long, and does nothing else.
    pub(crate) async fn watch(pids: &[u32], look_for: Duration) -> Self {
        let before: BTreeMap<u32, Usage> = pids.iter().filter_map(|pid| Some((*pid, usage(*pid)?))).collect();
        tokio::time::sleep(look_for).await;
        let after: BTreeMap<u32, Usage> = pids.iter().filter_map(|pid| Some((*pid, usage(*pid)?))).collect();
        let percent = |pid: &u32, now: &Usage| {
            let used = before.get(pid).map_or(Duration::ZERO, |then| now.processor.saturating_sub(then.processor));
            used.as_secs_f64() * 100.0 / look_for.as_secs_f64()
        };
        let percents: Vec<f64> = after.iter().map(|(pid, now)| percent(pid, now)).collect();
        let count = u64::try_from(after.len()).unwrap_or(u64::MAX).max(1);
        Self {
            seconds: look_for.as_secs_f64(),
            resident_bytes: after.values().map(|now| now.resident_bytes).sum::<u64>() / count,
            resident_bytes_most: after.values().map(|now| now.resident_bytes).max().unwrap_or(0),
            anonymous_bytes: after.values().map(|now| now.anonymous_bytes).sum::<u64>() / count,
            processor_percent: percents.iter().sum::<f64>() / f64::from(u32::try_from(percents.len()).unwrap_or(1).max(1)),
            processor_percent_most: percents.iter().copied().fold(0.0, f64::max),
        }
    }
}

/// Records that each agent signed between its claims in two rollouts, mean: claims are named by the number of the record
/// that first carried them.
pub(crate) fn records_between(first: Option<&RolloutView>, second: Option<&RolloutView>) -> f64 {
    let claims = |rollout: Option<&RolloutView>| -> BTreeMap<String, u64> {
        let nodes = rollout.into_iter().flat_map(|rollout| &rollout.nodes);
        nodes.filter_map(|node| Some((node.name.clone(), node.claim?.0.counter))).collect()
    };
    let (first, second) = (claims(first), claims(second));
    mean(second.iter().filter_map(|(node, counter)| Some(counter.saturating_sub(*first.get(node)?))))
}

/// The mean of counts. Counts beyond 2^32 count as that.
fn mean(counts: impl Iterator<Item = u64>) -> f64 {
    let counts: Vec<f64> = counts.map(|count| f64::from(u32::try_from(count).unwrap_or(u32::MAX))).collect();
    counts.iter().sum::<f64>() / f64::from(u32::try_from(counts.len()).unwrap_or(1).max(1))
}

/// Bytes as people read them.
pub(crate) fn mebibytes(bytes: u64) -> String {
    let tenths = bytes * 10 / (1024 * 1024);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

//! What a rollout without faults costs: time beside the ideal, records published, messages, steps, real time.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use groundswell_core::digest::Digest;
use groundswell_core::documents::rollout::Wave;
use groundswell_core::number::Ppm;
use groundswell_core::record::status::Phase;
use groundswell_core::record::{RecordKey, RecordKind};
use serde::Serialize;

use super::machine::Machine;
use super::world::{FRAME_KINDS, World};

/// Seconds that health must hold before a virtual device confirms.
const CONFIRM_AFTER_SECONDS: u64 = 58;
/// What one upgrade takes then, in milliseconds: healthy 2 s after the start, and 100 ms to confirm.
const UPGRADE_MS: u64 = 60_100;
const SOAK_SECONDS: u64 = 600;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Nodes, all in one pool.
    pub nodes: u32,
    /// The pool's budget.
    pub budget: Ppm,
    /// Least and most delay of a message, in milliseconds.
    pub delay_ms: (u64, u64),
    /// Share of messages lost.
    pub loss: Ppm,
    /// Of all that is random.
    pub seed: u64,
    /// On so many threads; what is measured, real time aside, does not depend on it.
    pub threads: usize,
}

impl Terms {
    /// So many nodes, a budget of 5 %, 50 to 300 ms of delay, no loss, on two threads.
    ///
    /// # Panics
    /// Never: five percent are a share.
    #[must_use]
    pub fn of(nodes: u32) -> Self {
        let budget = Ppm::new(50_000).expect("a share");
        Self { nodes, budget, delay_ms: (50, 300), loss: Ppm::ZERO, seed: 1, threads: 2 }
    }
}

/// One rollout with the default waves: what it cost from publishing to the last verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// Nodes.
    pub nodes: u32,
    /// Whether everybody was done within a virtual week.
    pub done: bool,
    /// From publishing to the last verdict, in milliseconds.
    pub took_ms: u64,
    /// Waves' ceil(n ÷ B) upgrades, one after the other, and soaks, in milliseconds.
    pub ideal_ms: u64,
    /// The former ÷ the latter.
    pub times_ideal: f64,
    /// Records that nodes signed in that time, in the mean.
    pub published_mean: f64,
    /// By the one that signed most.
    pub published_most: u64,
    /// Records that one node received ÷ those that were new to it, in the mean over all nodes: the copies of each.
    pub copies: f64,
    /// Frames that one node received, in the mean.
    pub frames_mean: f64,
    /// Their bytes.
    pub frame_bytes_mean: f64,
    /// How many of each kind, in the mean, by the kind's name.
    pub frames_by_kind: BTreeMap<&'static str, f64>,
    /// Times that a node woke by its own wish, in the mean.
    pub wakes_mean: f64,
    /// Dials of all nodes, founding aside.
    pub dials: u64,
    /// Links of a node in the end, in the mean.
    pub links_mean: f64,
    /// Of the node that has most.
    pub links_most: u64,
    /// Nodes that hold the newest status of every other node in the end.
    pub know_all: u32,
    /// Inputs handled, over all nodes.
    pub steps: u64,
    /// Real time from an empty world to the end, in milliseconds.
    pub real_ms: u64,
    /// The most memory that this process has held so far, in bytes; 0 where the system does not say.
    pub peak_rss_bytes: u64,
    /// Which bars were missed, and by how much: empty when the rollout cost no more than it may.
    pub missed: Vec<String>,
}

/// Most of the ideal time that a rollout may take, up to [`SMALL`] nodes …
const TIMES_IDEAL_SMALL: f64 = 1.03;
/// … and beyond.
const TIMES_IDEAL_LARGE: f64 = 1.04;
const SMALL: u32 = 200;
/// Most records that a node may sign for a rollout, in the mean.
const PUBLISHED: f64 = 20.0;
/// Most copies of a record that a node may receive, in the mean.
const COPIES: f64 = 2.5;

impl Measured {
    /// Holds what was measured against the bars. Where messages are lost only that everything arrives counts.
    fn judge(&mut self, terms: &Terms) {
        let mut missed = Vec::new();
        if !self.done {
            missed.push("not everybody vouched within a virtual week".to_string());
        }
        if self.know_all != self.nodes {
            missed.push(format!("{} of {} nodes hold everybody's newest", self.know_all, self.nodes));
        }
        let times = if terms.nodes <= SMALL { TIMES_IDEAL_SMALL } else { TIMES_IDEAL_LARGE };
        let bars = [
            ("time to finish ÷ ideal", self.times_ideal, times),
            ("records signed per node", self.published_mean, PUBLISHED),
            ("copies of a record", self.copies, COPIES),
        ];
        let over = bars.iter().filter(|(_, is, most)| terms.loss == Ppm::ZERO && (is > most || is.is_nan()));
        missed.extend(over.map(|(what, is, most)| format!("{what}: {is:.4}, at most {most}")));
        self.missed = missed;
    }
}

/// How many records a machine has signed, by its newest stamp.
pub(super) fn signed(machine: &Machine) -> u64 {
    let Some(node) = &machine.node else { return 0 };
    let stamps = [RecordKind::Status, RecordKind::Grants].map(|kind| node.ledger().stamp(&RecordKey { node: machine.id, kind }));
    stamps.into_iter().flatten().map(|stamp| stamp.counter).max().unwrap_or(0)
}

fn float(number: u64) -> f64 {
    number.to_string().parse().unwrap_or(f64::NAN)
}

fn share(of: u64, among: u64) -> f64 {
    float(of) / float(among.max(1))
}

/// How many records all nodes have received, and how many of them were new.
fn received(world: &World) -> (u64, u64) {
    let received = world.machines.iter().filter_map(|machine| Some(machine.node.as_ref()?.received()));
    received.fold((0, 0), |(all, fresh), one| (all + one.records, fresh + one.records - one.duplicates))
}

/// How many copies of a record a node has received, in the mean, since its start.
pub(super) fn copies(world: &World) -> f64 {
    let (all, fresh) = received(world);
    share(all, fresh)
}

/// How many nodes hold what every node has signed last of itself.
fn know_all(world: &World) -> u32 {
    let key = |machine: &Machine| RecordKey { node: machine.id, kind: RecordKind::Status };
    let own = |machine: &Machine| machine.node.as_ref().and_then(|node| node.ledger().stamp(&key(machine)));
    let newest: Vec<_> = world.machines.iter().map(|machine| (key(machine), own(machine))).collect();
    let knows = |machine: &&Machine| {
        let Some(node) = &machine.node else { return false };
        newest.iter().all(|(key, stamp)| node.ledger().stamp(key) >= *stamp)
    };
    u32::try_from(world.machines.iter().filter(knows).count()).unwrap_or(u32::MAX)
}

/// The most memory that this process has held, in bytes, as Linux counts it.
fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1_024
}

/// Runs one.
#[must_use]
pub fn rollout(terms: &Terms) -> Measured {
    let begun = Instant::now();
    let Terms { nodes, budget, .. } = *terms;
    let mut operator = super::operator::Operator::new(|_| {});
    let policy = operator.policies.entry(groundswell_core::text::Pool::new("edge").expect("a plain name")).or_default();
    (policy.budget_ppm, policy.urgent_budget_ppm) = (budget, budget);
    let mut world = World::measured(terms.seed, &[("edge", nodes)], Some(super::director::first()), operator, terms.threads);
    world.faults.delay_ms = (terms.delay_ms.0, terms.delay_ms.1.saturating_sub(terms.delay_ms.0));
    world.loss = terms.loss;
    world.run_for(120_000);
    let content = b"2.0.0";
    let (release, body) = world.operator.release("2.0.0", 2, content);
    let mut rollout = world.operator.rollout("rollout-2", &release, &body);
    let wave =
        |percent| Wave { percent_ppm: Some(Ppm::new(percent).expect("a share")), soak_seconds: SOAK_SECONDS, ..Wave::default() };
    rollout.waves = [10_000, 100_000, 500_000, 1_000_000].into_iter().map(wave).collect();
    rollout.open_waves = 4;
    rollout.confirm_after_seconds = CONFIRM_AFTER_SECONDS;
    rollout.upgrade_timeout_seconds = 900;
    rollout.revert_timeout_seconds = 300;
    rollout.offline_after_seconds = 1_800;
    rollout.grace_seconds = 1_800;
    let generation = world.operator.sign_rollout(&rollout);
    let before: Vec<u64> = world.machines.iter().map(signed).collect();
    let (steps, frames, bytes, at) = (world.steps, world.frames, world.frame_bytes, world.now_ms);
    let before_received = received(&world);
    let (kinds, wakes, dials) = (world.frames_by_kind, world.woken, world.dials);
    world.give_blob(0, Digest::of(content));
    world.publish(0, &release.bytes);
    world.publish(0, &generation.bytes);
    let done =
        world.run_until(7 * 86_400_000, |world| world.machines.iter().all(|machine| machine.phase() == Some(Phase::Soaked)));
    let published: Vec<u64> = world.machines.iter().map(signed).zip(before).map(|(now, before)| now - before).collect();
    let view = world.machines.first().and_then(|machine| Some(machine.node.as_ref()?.rollouts(machine.now(world.now_ms))));
    let slots = u64::from(world.budgets.values().copied().max().unwrap_or(1));
    let waves = view.unwrap_or_default().into_iter().flat_map(|view| view.waves).filter(|wave| wave.members > 0);
    let ideal_ms = waves.map(|wave| u64::from(wave.members).div_ceil(slots) * UPGRADE_MS + SOAK_SECONDS * 1_000).sum();
    let took_ms = world.now_ms - at;
    let now_received = received(&world);
    // What was signed last is still on its way.
    world.run_for(180_000);
    let links: Vec<u64> = world.machines.iter().map(|machine| machine.links.len() as u64).collect();
    let of_kind = world.frames_by_kind.iter().zip(kinds).map(|(now, before)| share(now - before, u64::from(nodes)));
    let mut measured = Measured {
        nodes,
        done,
        took_ms,
        ideal_ms,
        times_ideal: share(took_ms, ideal_ms),
        published_mean: share(published.iter().sum(), u64::from(nodes)),
        published_most: published.into_iter().max().unwrap_or(0),
        copies: share(now_received.0 - before_received.0, now_received.1 - before_received.1),
        frames_mean: share(world.frames - frames, u64::from(nodes)),
        frame_bytes_mean: share(world.frame_bytes - bytes, u64::from(nodes)),
        frames_by_kind: FRAME_KINDS.into_iter().zip(of_kind).collect(),
        wakes_mean: share(world.woken - wakes, u64::from(nodes)),
        dials: world.dials - dials,
        links_mean: share(links.iter().sum(), u64::from(nodes)),
        links_most: links.into_iter().max().unwrap_or(0),
        know_all: know_all(&world),
        steps: world.steps - steps,
        real_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        peak_rss_bytes: peak_rss_bytes(),
        missed: Vec::new(),
    };
    measured.judge(terms);
    measured
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.done { "everybody vouched" } else { "NOT everybody vouched" };
        writeln!(f, "{} nodes: {end} after {:.1} minutes", self.nodes, float(self.took_ms) / 60_000.0)?;
        writeln!(f, "time to finish ÷ ideal      {:.4}", self.times_ideal)?;
        writeln!(f, "records signed per node     {:.2} in the mean, {} at most", self.published_mean, self.published_most)?;
        writeln!(f, "copies of a record          {:.2} received per node", self.copies)?;
        writeln!(f, "bytes received per node     {:.0} in {:.0} frames", self.frame_bytes_mean, self.frames_mean)?;
        let kinds: Vec<String> = self.frames_by_kind.iter().map(|(kind, mean)| format!("{kind} {mean:.0}")).collect();
        writeln!(f, "frames by kind              {}", kinds.join(", "))?;
        writeln!(f, "woke by its own wish        {:.0} times per node", self.wakes_mean)?;
        writeln!(
            f,
            "links                       {:.1} in the mean, {} at most; {} dials",
            self.links_mean, self.links_most, self.dials
        )?;
        writeln!(f, "hold everybody's newest     {} of {}", self.know_all, self.nodes)?;
        writeln!(f, "inputs handled              {}", self.steps)?;
        writeln!(f, "real time                   {:.1} s", float(self.real_ms) / 1_000.0)?;
        writeln!(f, "most memory                 {:.0} MB", float(self.peak_rss_bytes) / 1e6)?;
        self.missed.iter().try_for_each(|missed| writeln!(f, "MISSED  {missed}"))
    }
}

//! What a rollout without faults costs: time beside the ideal, records published, messages, steps, real time.

use std::time::Instant;

use groundswell_core::digest::Digest;
use groundswell_core::documents::rollout::Wave;
use groundswell_core::number::Ppm;
use groundswell_core::record::status::Phase;
use groundswell_core::record::{RecordKey, RecordKind};

use super::machine::Machine;
use super::world::World;

/// Seconds that health must hold before a virtual device confirms.
const CONFIRM_AFTER_SECONDS: u64 = 58;
/// What one upgrade takes then, in milliseconds: healthy 2 s after the start, and 100 ms to confirm.
const UPGRADE_MS: u64 = 60_100;
const SOAK_SECONDS: u64 = 600;

/// One rollout over one pool of `nodes`, with the default waves.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Nodes.
    pub nodes: u32,
    /// Whether everybody was done within a virtual week.
    pub done: bool,
    /// From publishing to the last verdict, in milliseconds.
    pub took_ms: u64,
    /// Waves' ceil(n ÷ B) upgrades, one after the other, and soaks, in milliseconds.
    pub ideal_ms: u64,
    /// Records that nodes signed in that time, in the mean.
    pub published_mean: f64,
    /// By the one that signed most.
    pub published_most: u64,
    /// Frames that one node received, in the mean.
    pub frames_mean: f64,
    /// Their bytes.
    pub frame_bytes_mean: f64,
    /// Inputs handled, over all nodes.
    pub steps: u64,
    /// Real time, in milliseconds.
    pub real_ms: u128,
}

/// How many records a machine has signed, by its newest stamp.
pub(super) fn signed(machine: &Machine) -> u64 {
    let Some(node) = &machine.node else { return 0 };
    let stamps = [RecordKind::Status, RecordKind::Grants].map(|kind| node.ledger().stamp(&RecordKey { node: machine.id, kind }));
    stamps.into_iter().flatten().map(|stamp| stamp.counter).max().unwrap_or(0)
}

/// Runs one.
#[must_use]
pub fn rollout(nodes: u32, budget: Ppm) -> Measured {
    let mut operator = super::operator::Operator::new(|_| {});
    let policy = operator.policies.entry(groundswell_core::text::Pool::new("edge").expect("a plain name")).or_default();
    (policy.budget_ppm, policy.urgent_budget_ppm) = (budget, budget);
    let mut world = World::with_operator(1, &[("edge", nodes)], Some(super::director::first()), operator);
    world.faults.delay_ms = (50, 250);
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
    let begun = Instant::now();
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
    let mean = |sum: u64| f64::from(u32::try_from(sum).unwrap_or(u32::MAX)) / f64::from(nodes);
    Measured {
        nodes,
        done,
        took_ms: world.now_ms - at,
        ideal_ms,
        published_mean: mean(published.iter().sum()),
        published_most: published.into_iter().max().unwrap_or(0),
        frames_mean: mean(world.frames - frames),
        frame_bytes_mean: mean(world.frame_bytes - bytes),
        steps: world.steps - steps,
        real_ms: begun.elapsed().as_millis(),
    }
}

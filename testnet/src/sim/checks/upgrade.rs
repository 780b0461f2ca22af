//! S2 to S6 in one node's upgrade, by true time and true health: soak, confirmation, expiry, brakes, forged documents; and of L1
//! what can be told of one node alone.

use groundswell_core::documents::rollout::{Rollout, State};
use groundswell_core::node::Node;
use groundswell_core::text::RolloutId;

use super::super::machine::{Machine, Told};
use super::super::world::World;
use super::truth::Truth;

/// The time off is taken from wall clocks, which tell whole seconds, once per restart.
const RESTART_SLACK_MS: u64 = 1_000;

/// S2: what is vouched for has run since it was confirmed for the whole soak, by true time, and is healthy: for as long as
/// it takes to confirm, where it was installed under this rollout.
///
/// # Errors
/// What is missing.
pub fn s2_vouched(world: &World, machine: &Machine, rollout: &Rollout) -> Result<(), String> {
    let release = rollout.release.digest;
    let runs = machine.device.running().map(|running| running.release);
    if runs != Some(release) || machine.device.trial().is_some() {
        return Err(format!("vouches for {release}, and {runs:?} runs, trial {:?}", machine.device.trial()));
    }
    let Some(healthy_since) = machine.health.healthy_since_ms else {
        return Err(format!("vouches for {release}, whose health it was not told or is bad"));
    };
    // Without an upgrade of its own under this rollout there is nothing to soak.
    let Some(confirmed) = machine.confirmed.filter(|confirmed| machine.soaks(&rollout.id, confirmed)) else { return Ok(()) };
    let held_ms = world.now_ms - healthy_since;
    let confirm_ms = rollout.confirm_after_seconds * 1_000;
    if held_ms + confirm_ms / 100 + 1 < confirm_ms {
        return Err(format!("vouches after {held_ms} ms of health, {confirm_ms} ms are asked"));
    }
    let soak_ms = rollout.waves.iter().map(|wave| wave.soak_seconds).min().unwrap_or(0) * 1_000;
    let soaked_ms = world.now_ms - confirmed.at_ms;
    let restarts = u64::from(machine.life - confirmed.life);
    let slack_ms = soak_ms / 100 + 1 + restarts * RESTART_SLACK_MS;
    // Only the wall clock can tell how long a machine was off.
    let untold = restarts > 0 && machine.clock_set_ms >= confirmed.at_ms;
    if soaked_ms + slack_ms < soak_ms && !untold {
        return Err(format!("vouches {soaked_ms} ms after it confirmed, and its wave soaks for {soak_ms} ms"));
    }
    Ok(())
}

/// S6: what is confirmed was healthy without a break for as long as its rollout asks, since it was started here.
///
/// # Errors
/// For how long it was.
pub fn s6_confirmed(world: &World, machine: &Machine, rollout: &Rollout) -> Result<(), String> {
    let asked_ms = rollout.confirm_after_seconds * 1_000;
    let held_ms = machine.health.healthy_since_ms.map(|since| world.now_ms - since);
    match held_ms {
        Some(held_ms) if held_ms + asked_ms / 100 + 1 >= asked_ms => Ok(()),
        _ => Err(format!("confirms after {held_ms:?} ms of health, {asked_ms} ms are asked")),
    }
}

/// L1: what runs on trial is not sent back because its check has no judgement of it: that is no failure (case I6). An abort with
/// rollback sends it back all the same, and so does what was found wrong with it before.
///
/// # Errors
/// That it is.
pub fn l1_unblamed(machine: &Machine, rollout: Option<&Rollout>) -> Result<(), String> {
    let ordered = rollout.is_some_and(|rollout| rollout.state == State::Aborted && rollout.rollback);
    let Told { unclear, ordered_back, .. } = machine.health;
    if !unclear || ordered_back || ordered {
        return Ok(());
    }
    Err(format!("sends back {:?}, whose health cannot be judged", rollout.map(|rollout| &rollout.release.version)))
}

/// S3: nothing starts after the rollout, its release or the fleet document has expired, by the later of the node's wall
/// clock and the newest document that it has verified.
///
/// # Errors
/// What has expired.
pub fn s3_expiry(node: &Node, machine: &Machine, at_ms: u64, rollout: &Rollout) -> Result<(), String> {
    let time = machine.now(at_ms).wall.max(node.shelf().floor_time());
    let release = node.shelf().release(&rollout.release.digest).map(|release| release.expires_at);
    let fleet = node.shelf().fleet().map(|fleet| fleet.expires_at);
    for (what, end) in [("rollout", Some(rollout.expires_at)), ("release", release), ("fleet document", fleet)] {
        if end.is_none_or(|end| end <= time) {
            return Err(format!("starts at {time}, and the {what} ended at {end:?}"));
        }
    }
    Ok(())
}

/// S3: a document that nobody with a key has signed is in force nowhere.
///
/// # Errors
/// Which one is.
pub fn s3_forged(truth: &Truth, node: &Node) -> Result<(), String> {
    let kept = truth.forged.iter().find(|digest| node.shelf().envelope(digest).is_some());
    kept.map_or(Ok(()), |digest| Err(format!("keeps {digest}, which is forged")))
}

/// S4: nobody starts or grants under a rollout that is paused, aborted, or of two bodies under one number, as far as this
/// node has been told.
///
/// # Errors
/// What stands in the way.
pub fn s4_brakes(node: &Node, id: &RolloutId) -> Result<(), String> {
    let Some(known) = node.shelf().rollout(id) else { return Ok(()) };
    if known.bodies().count() > 1 {
        return Err(format!("acts under generation {} of {id}, of which it has two bodies", known.rollout.generation));
    }
    match known.rollout.state {
        State::Running => Ok(()),
        state => Err(format!("acts under {id}, which is {state:?} by generation {}", known.rollout.generation)),
    }
}

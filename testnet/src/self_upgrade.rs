//! Agents that upgrade themselves: the story that the command and the test of this crate tell of a real fleet.
//!
//! Good builds pass through waves; broken ones are left by their canaries, halt, and touch nobody else. One that shares no
//! protocol with the mesh any more fetches its successor through outer doors.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use groundswell_core::node::view::{NodeRow, ProductView, RolloutView};
use groundswell_core::record::status::Phase;

use crate::fleet::Fleet;
use crate::fleet::api::StatusView;
use crate::fleet::builds::{Build, OUTDATED};
use crate::fleet::error::FleetError;
use crate::fleet::operator::Signed;
use crate::fleet::plan::{PRODUCT, RolloutPlan};
use crate::fleet::wait::until;

/// Longest that one version may take, on a busy machine: a build that hangs takes 20 s of it, one that never joins 40 s.
const PATIENCE: Duration = Duration::from_secs(400);

/// Something that must be, and what differed where it was not.
pub type Check = (String, Option<String>);

/// How it is told: to whoever watches.
pub type Say<'a> = &'a mut dyn FnMut(&str);

/// Plays it on a fleet that runs nothing yet: two good builds one after the other, each of `broken`, and the way forward.
///
/// # Errors
/// When something takes too long, or cannot be done.
pub async fn play(fleet: &mut Fleet, broken: &[Build], say: Say<'_>) -> Result<Vec<Check>, FleetError> {
    let mut checks = Vec::new();
    fleet.start().await?;
    fleet.meets(PATIENCE).await?;
    let nodes = fleet.agents().len();
    say(&format!("{nodes} agents run under their supervisors, on the supervisors' own build"));
    let mut number = 0;
    for round in ["the first build from a slot", "the next one, in the other slot"] {
        number += 1;
        let version = everywhere(fleet, number, Build::Good).await?;
        say(&format!("build {version} runs on all {nodes}: {round}"));
        checks.push((format!("build {version} runs on all {nodes} agents"), None));
    }
    let good = format!("{number}.0.0");
    for build in broken {
        number += 1;
        let (version, name) = (format!("{number}.0.0"), build.name());
        let signed = publish(fleet, &version, number, *build).await?;
        let (rollout, sample) = halts(fleet, &signed, &good).await?;
        let canaries: Vec<&NodeRow> = rollout.nodes.iter().filter(|node| node.phase == Some(Phase::RolledBack)).collect();
        let first: BTreeSet<&str> = rollout.nodes.iter().filter(|node| node.wave == 0).map(|node| node.name.as_str()).collect();
        for canary in &canaries {
            say(&format!("build {version} ({name}) was left by {}: {}", canary.name, error(canary)));
        }
        let only_canaries = !canaries.is_empty() && canaries.iter().all(|canary| first.contains(canary.name.as_str()));
        checks.push((
            format!("build {version} ({name}) is left by canaries alone, and halts"),
            (!only_canaries).then(|| format!("{:?}", rollout.nodes)),
        ));
        let told = canaries.iter().all(|canary| error(canary).contains(reason(*build)));
        checks.push((
            format!("the verdicts on build {version} ({name}) say why"),
            (!told).then(|| canaries.iter().map(|canary| error(canary)).collect::<Vec<_>>().join("; ")),
        ));
        checks.push((format!("all {nodes} agents run build {good} again"), (sample.len() != nodes).then(|| table(&sample))));
    }
    number += 1;
    let version = everywhere(fleet, number, Build::Good).await?;
    say(&format!("build {version} runs on all {nodes}: the way forward"));
    checks.push((format!("build {version}, the way forward, runs on all {nodes} agents"), None));
    Ok(checks)
}

/// Plays it on a fleet that runs: a build from a slot is outdated on one node, which shares no protocol with the others any
/// more; they go on to the next build, and it finds that through their outer doors. `number` is that of the outdated build.
///
/// # Errors
/// When something takes too long, or cannot be done.
pub async fn left_behind(fleet: &mut Fleet, number: u64, say: Say<'_>) -> Result<Vec<Check>, FleetError> {
    let old = everywhere(fleet, number, Build::Outdated).await?;
    let name = fleet.agents().last().map(|agent| agent.name().to_owned()).unwrap_or_default();
    let agent = fleet.agent_mut(&name)?;
    agent.stop().await?;
    let file = agent.folder().join(OUTDATED);
    std::fs::write(&file, "").map_err(FleetError::io(format!("cannot write {}", file.display())))?;
    // Before it is back: from its first visit on it has something to do, and does not pause for minutes.
    let new = format!("{}.0.0", number + 1);
    publish(fleet, &new, number + 1, Build::Good).await?;
    fleet.start_one(&name).await?;
    let (outside, outdated) = until(&format!("{name} has nothing but outer doors"), PATIENCE, async || {
        fleet.check()?;
        let agent = fleet.agent(&name)?;
        let status = agent.api().status().await?;
        let outside = status.node.outer_door.clone().filter(|_| status.node.peers == 0);
        let seen = || format!("{} peers, {:?}", status.node.peers, status.node.outer_door);
        Ok(outside.zip(agent.supervised_pid()).ok_or_else(seen))
    })
    .await?;
    say(&format!("{name} is left behind on build {old}: {outside}"));

    let nodes = fleet.agents().len();
    // What it said of its peers as long as it ran the outdated build, and what the others gave and took at their doors: the
    // most seen, for each is replaced meanwhile and counts anew.
    let (mut admitted, mut given, mut pushed) = (0, 0, 0);
    let again = until(&format!("build {new} is everywhere, and {name} a member again"), PATIENCE, async || {
        fleet.check()?;
        let sample = fleet.sample_answering().await;
        let count = |status: &StatusView, counter: &str| status.agent.counters.get(counter).copied().unwrap_or_default();
        for (_, status) in sample.iter().filter(|(other, _)| **other != name) {
            given = given.max(count(status, "door_bytes_sent"));
            pushed = pushed.max(count(status, "door_pushes"));
        }
        // As long as the outdated one runs no other does: the next one may say for a moment that it is on its build.
        let is_outdated = fleet.agent(&name)?.supervised_pid() == Some(outdated);
        if let Some(status) = sample.get(&name).filter(|_| is_outdated) {
            admitted = admitted.max(count(status, "peers_admitted")).max(u64::from(status.node.peers));
        }
        let there = |product: &ProductView| product.phase == Phase::Soaked && product.version.as_deref() == Some(&new);
        let done = sample.values().filter(|status| status.node.products.iter().any(there)).count();
        let again = sample.get(&name).map(|status| &status.node).filter(|node| node.peers > 0 && node.outer_door.is_none());
        Ok(match again.map(|node| node.peers).filter(|_| done == nodes) {
            Some(peers) => Ok(peers),
            None => Err(table(&sample)),
        })
    })
    .await?;
    say(&format!("build {new} runs on all {nodes}; {name} fetched it through outer doors and has {again} peers"));
    Ok(vec![
        (
            format!("build {old} of {name}, which shares no protocol with the mesh, was nobody's peer"),
            (admitted > 0).then(|| format!("{admitted} peers")),
        ),
        (format!("{name} runs build {new} and is a member again"), None),
        (
            "what it needed came through outer doors, and what it said went there".to_owned(),
            (given == 0 || pushed == 0).then(|| format!("{given} bytes, {pushed} records")),
        ),
    ])
}

/// Plays what tells nothing about a build: neither it nor the one before it finds a peer, for all others are gone. Then there
/// is no verdict. On a fleet that runs nothing yet, on a machine that gives a process a network of its own.
///
/// # Errors
/// When something takes too long, or cannot be done.
pub async fn inconclusive(fleet: &mut Fleet, say: Say<'_>) -> Result<Vec<Check>, FleetError> {
    fleet.start().await?;
    fleet.meets(PATIENCE).await?;
    let good = everywhere(fleet, 1, Build::Good).await?;
    let plan = RolloutPlan { upgrade_timeout_seconds: 15, ..RolloutPlan::waves(&[(10, 1), (100, 1)]) };
    let signed = publish_by(fleet, "2.0.0", 2, Build::Lonely, &plan).await?;
    let canary = until("a canary tries the build", PATIENCE, async || {
        let sample = fleet.sample_answering().await;
        let tries = |(_, status): &(&String, &StatusView)| status.node.products.iter().any(|it| it.phase == Phase::Activating);
        Ok(sample.iter().find(tries).map(|(name, _)| name.clone()).ok_or_else(|| table(&sample)))
    })
    .await?;
    let others: Vec<String> = fleet.agents().iter().map(|agent| agent.name().to_owned()).filter(|name| *name != canary).collect();
    for other in &others {
        fleet.agent_mut(other)?.crash().await?;
    }
    say(&format!("{canary} tries a build that finds no peer, and the others are gone"));
    until("the canary is done with it", PATIENCE, async || {
        let sample = fleet.sample_answering().await;
        let rests = |it: &ProductView| it.version.as_deref() == Some(&good) && it.phase == Phase::Waiting;
        let is_back = sample.get(&canary).is_some_and(|status| status.node.products.iter().any(rests));
        Ok(if is_back { Ok(()) } else { Err(table(&sample)) })
    })
    .await?;
    let denied = std::fs::read_to_string(fleet.agent(&canary)?.data().join("products").join(PRODUCT).join("denied.json"));
    let is_denied = denied.is_ok_and(|text| text.contains("2.0.0"));
    fleet.start().await?;
    fleet.meets(PATIENCE).await?;
    say("the others are back");
    // After its restart it says nothing before it has heard from a peer.
    let row = until("the canary has said so", PATIENCE, async || {
        let of_canary = |rollout: RolloutView| {
            let mut nodes = rollout.nodes.into_iter().filter(|_| rollout.id == signed.id);
            nodes.find(|node| node.name == canary)
        };
        let rollouts = fleet.agent(others.first().unwrap_or(&canary))?.api().rollouts().await.unwrap_or_default();
        let row = rollouts.into_iter().find_map(of_canary);
        // Who asks was crashed and may know nothing of the canary yet; that is no answer of the canary's.
        let says_other = |row: &NodeRow| row.phase.is_some_and(|phase| phase != Phase::Activating);
        Ok(row.filter(says_other).ok_or_else(|| "it is still trying, or nothing of it has come".to_owned()))
    })
    .await?;
    let without_verdict = row.phase == Some(Phase::Waiting) && row.outcome.is_none() && row.error.is_none();
    let differs = format!("{row:?}, denied {is_denied}");
    let mut checks = vec![(
        format!("{canary} runs {good} again, without a verdict on a build of which nothing is known"),
        (!without_verdict || is_denied).then_some(differs),
    )];
    let mut halted = Vec::new();
    for agent in fleet.agents() {
        let rollouts = agent.api().rollouts().await?;
        halted.extend(rollouts.into_iter().filter(|rollout| rollout.id == signed.id && rollout.halted.is_some()));
    }
    checks.push(("nobody halts for it".to_owned(), halted.first().map(|rollout| format!("{:?}", rollout.halted))));
    Ok(checks)
}

fn error(node: &NodeRow) -> &str {
    node.error.as_deref().unwrap_or_default()
}

/// What a verdict on a broken build must say.
fn reason(build: Build) -> &'static str {
    match build {
        Build::Good | Build::Outdated => "",
        Build::Panics => "cannot read its own configuration",
        Build::Hangs => "not up within",
        Build::Lonely => "no peer answered",
    }
}

async fn publish(fleet: &Fleet, version: &str, sequence: u64, build: Build) -> Result<Signed, FleetError> {
    // An agent that is replaced ends, starts, and finds its peers again within the upgrade's time. One that never does uses it up.
    let upgrade_timeout_seconds = if build == Build::Lonely { 40 } else { 120 };
    let plan = RolloutPlan { upgrade_timeout_seconds, ..RolloutPlan::waves(&[(10, 1), (50, 1), (100, 1)]) };
    publish_by(fleet, version, sequence, build, &plan).await
}

async fn publish_by(fleet: &Fleet, version: &str, sequence: u64, build: Build, plan: &RolloutPlan) -> Result<Signed, FleetError> {
    let operator = fleet.operator();
    operator.build(version, sequence, build).await?;
    let signed = operator.rollout(version, plan, "a build of the agent").await?;
    let first = fleet.agents().first().map(|agent| agent.name().to_owned()).unwrap_or_default();
    fleet.publish(&first, version, &signed).await?;
    Ok(signed)
}

/// Rolls a build that is good out and waits until all run it and vouch for it; its version.
async fn everywhere(fleet: &mut Fleet, number: u64, build: Build) -> Result<String, FleetError> {
    let version = format!("{number}.0.0");
    publish(fleet, &version, number, build).await?;
    let nodes = fleet.agents().len();
    until(&format!("build {version} is everywhere"), PATIENCE, async || {
        fleet.check()?;
        let sample = fleet.sample_answering().await;
        let there = |product: &ProductView| product.phase == Phase::Soaked && product.version.as_deref() == Some(&version);
        let done = sample.values().filter(|status| status.node.products.iter().any(there)).count();
        Ok(if done == nodes { Ok(()) } else { Err(table(&sample)) })
    })
    .await?;
    Ok(version)
}

/// Waits until a rollout is halted as everybody sees it, and all run `good` and do nothing.
async fn halts(
    fleet: &mut Fleet,
    signed: &Signed,
    good: &str,
) -> Result<(RolloutView, BTreeMap<String, StatusView>), FleetError> {
    let nodes = fleet.agents().len();
    until(&format!("{} halts and all are back on {good}", signed.id), PATIENCE, async || {
        fleet.check()?;
        let sample = fleet.sample_answering().await;
        let at_rest = |product: &ProductView| {
            product.version.as_deref() == Some(good) && !matches!(product.phase, Phase::Activating | Phase::Claiming)
        };
        let resting = sample.values().filter(|status| status.node.products.iter().any(at_rest)).count();
        let mut seen = Vec::new();
        for agent in fleet.agents() {
            let rollouts = agent.api().rollouts().await.unwrap_or_default();
            seen.extend(rollouts.into_iter().filter(|rollout| rollout.id == signed.id && rollout.halted.is_some()));
        }
        let halted = seen.len();
        Ok(match seen.pop().filter(|_| halted == nodes && resting == nodes) {
            Some(rollout) => Ok((rollout, sample)),
            None => Err(format!("{halted} see the halt; {}", table(&sample))),
        })
    })
    .await
}

fn table(sample: &BTreeMap<String, StatusView>) -> String {
    let row = |(name, status): (&String, &StatusView)| {
        let products = status.node.products.iter();
        let products: Vec<String> =
            products.map(|product| format!("{:?} on {:?} {:?}", product.phase, product.version, product.hold)).collect();
        format!("{name}: {}", products.join(", "))
    };
    sample.iter().map(row).collect::<Vec<_>>().join("; ")
}

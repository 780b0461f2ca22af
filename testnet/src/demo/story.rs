//! The story: a first version, a good one, a bad one, the way forward; and what must be true of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use groundswell_core::node::view::{Explanation, RolloutView};
use groundswell_core::record::status::{HoldCode, Phase};
use groundswell_testnet::fleet::error::FleetError;
use groundswell_testnet::fleet::operator::Signed;
use groundswell_testnet::fleet::plan::RolloutPlan;
use groundswell_testnet::fleet::service::Behaviour;
use groundswell_testnet::fleet::swell::Swell;
use groundswell_testnet::fleet::witness::Change;

use super::DemoArgs;
use super::expectations::Expectations;
use super::figures::{Disrupted, Figures, Idle, Messages, mebibytes, records_between};
use super::stage::{Look, Stage, phase_name};

/// Longest that anything may take before the demo gives up.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long the halted fleet is watched: nobody starts any more.
const WATCH_THE_HALT: Duration = Duration::from_secs(4);
/// How long agents at rest are measured, and how long they may settle before.
const IDLE_FOR: Duration = Duration::from_secs(5);
const SETTLE_FOR: Duration = Duration::from_secs(2);

/// Tells it. Whether all was as it must be. `folder` is where everything is, for whoever looks for what is left.
pub(super) async fn tell(swell: Swell, program: &Path, args: &DemoArgs, folder: &mut PathBuf) -> Result<bool, FleetError> {
    let began = Instant::now();
    let mut expectations = Expectations::default();
    let mut figures = Figures { binary_bytes: size_of(swell.path()), ..Figures::default() };

    println!("Making keys, a fleet folder and 12 certificates; starting 12 agents.");
    let mut stage = Stage::set(swell, program, args.plain).await?;
    *folder = stage.fleet.folder().to_path_buf();
    println!("Everything is in {}.", folder.display());
    stage.fleet.start().await?;
    stage.chapter("12 agents run; they find each other");
    stage.fleet.meets(PATIENCE).await?;

    first_version(&mut stage, &mut expectations).await?;
    good_version(&mut stage, &mut expectations, &mut figures).await?;
    let explained = bad_version(&mut stage, &mut expectations).await?;
    way_forward(&mut stage, &mut expectations).await?;

    stage.chapter("at rest; measuring one agent's memory and processor time");
    tokio::time::sleep(SETTLE_FOR).await;
    let pids: Vec<u32> = stage.fleet.agents().iter().filter_map(|agent| agent.pid()).collect();
    figures.idle = Idle::watch(&pids, IDLE_FOR).await;
    let last = stage.look().await?;
    budgets(&stage, &mut expectations, &mut figures);

    let table = table(&last);
    let left = stage.fleet.shut_down().await;
    expectations.check("no process is left behind", left.is_empty(), || format!("{left:?}"));
    figures.demo_seconds = began.elapsed().as_secs_f64();
    expectations.check("under two minutes", figures.demo_seconds < 120.0, || format!("{:.0} s", figures.demo_seconds));
    figures.as_it_must_be = expectations.hold();
    conclude(&table, &explained, &expectations, &figures, args.json);
    Ok(expectations.hold())
}

/// Signs a version and a rollout of it.
async fn sign(
    stage: &Stage,
    version: &str,
    sequence: u64,
    behaviour: Behaviour,
    plan: &RolloutPlan,
) -> Result<Signed, FleetError> {
    let operator = stage.fleet.operator();
    operator.release(version, sequence, behaviour).await?;
    operator.rollout(version, plan, "the demo").await
}

async fn first_version(stage: &mut Stage, expectations: &mut Expectations) -> Result<(), FleetError> {
    stage.chapter("version 1: signed offline, handed to core-1; all at once, within each pool's budget");
    let signed = sign(stage, "1.0.0", 1, Behaviour::Good, &RolloutPlan::waves(&[(100, 1)])).await?;
    stage.publish("core-1", "1.0.0", &signed).await?;
    let look = stage.watch_until("version 1 is everywhere", PATIENCE, |look| everywhere(look, "1.0.0")).await?;
    expectations.check("version 1 runs on all 12 nodes", runs(&look, "1.0.0") == 12, || table(&look));
    stage.fleet.witness().count();
    Ok(())
}

async fn good_version(stage: &mut Stage, expectations: &mut Expectations, figures: &mut Figures) -> Result<(), FleetError> {
    stage.chapter("version 2: handed to edge-3 alone; waves of 2, 4 and 6 nodes, each soaks before the next starts");
    let plan = RolloutPlan::waves(&[(10, 3), (50, 2), (100, 1)]);
    let signed = sign(stage, "2.0.0", 2, Behaviour::Good, &plan).await?;
    let before = stage.fleet.sample().await?;
    let began = Instant::now();
    let learnt = stage.publish("edge-3", "2.0.0", &signed).await?;
    stage.screen.note(&format!("all 12 agents know version 2, {:.2} s after `swell publish` began", learnt.last.as_secs_f64()));
    let done = |look: &Look| everywhere(look, "2.0.0").and_then(|()| complete(look, &signed.id));
    let look = stage.watch_until("version 2 is everywhere", PATIENCE, done).await?;
    figures.good_rollout_seconds = began.elapsed().as_secs_f64();
    figures.publish_to_last_agent_seconds = learnt.last.as_secs_f64();
    figures.first_to_last_agent_seconds = learnt.last.saturating_sub(learnt.first).as_secs_f64();
    figures.messages = Messages::between(&before, &look.nodes);
    figures.messages.records_signed = records_between(find(&look, "rollout-1.0.0"), find(&look, &signed.id));
    expectations.check("version 2, handed to one node, runs on all 12", runs(&look, "2.0.0") == 12, || table(&look));
    let sizes: Vec<u32> = find(&look, &signed.id)
        .map(|rollout| rollout.waves.iter().map(|wave| wave.members).filter(|members| *members > 0).collect())
        .unwrap_or_default();
    expectations.check("its waves were 2, 4 and 6 nodes", sizes == [2, 4, 6], || format!("{sizes:?}"));
    let early = started_early(find(&look, &signed.id));
    expectations.check("nobody started before the wave before had soaked", early.is_empty(), || early.join(", "));
    Ok(())
}

async fn bad_version(stage: &mut Stage, expectations: &mut Expectations) -> Result<Vec<Explanation>, FleetError> {
    stage.chapter("version 3: it starts, and its health check fails");
    let plan = RolloutPlan::waves(&[(10, 3), (50, 2), (100, 1)]);
    let signed = sign(stage, "3.0.0", 3, Behaviour::Unhealthy, &plan).await?;
    let services_before = stage.fleet.witness().observed().len();
    stage.publish("lab-2", "3.0.0", &signed).await?;
    let halted = |look: &Look| {
        let why = find(look, &signed.id).and_then(|rollout| rollout.halted.clone());
        let under_way = look.nodes.iter().filter(|(_, status)| {
            status.node.products.iter().any(|product| matches!(product.phase, Phase::Activating | Phase::Claiming))
        });
        let under_way: Vec<&String> = under_way.map(|(name, _)| name).collect();
        match why {
            Some(_) if under_way.is_empty() => everyone_runs(look, "2.0.0"),
            Some(_) => Err(format!("still under way: {under_way:?}")),
            None => Err("it is not halted".to_owned()),
        }
    };
    stage.watch_until("the bad version halts and its canaries are back", PATIENCE, halted).await?;
    stage.screen.note("the canaries are back on version 2 and the fleet has halted; nobody else moves");
    let look = stage.watch_for(WATCH_THE_HALT).await?;

    let canaries: BTreeSet<String> = look
        .nodes
        .iter()
        .filter(|(_, status)| status.node.products.iter().any(|product| product.phase == Phase::RolledBack))
        .map(|(name, _)| name.clone())
        .collect();
    let first_wave = find(&look, &signed.id)
        .map(|rollout| rollout.nodes.iter().filter(|node| node.wave == 0).map(|node| node.name.clone()).collect::<BTreeSet<_>>());
    let first_wave = first_wave.unwrap_or_default();
    expectations.check(
        "version 3 was tried by nodes of its first wave alone, and they went back",
        !canaries.is_empty() && canaries.is_subset(&first_wave),
        || format!("went back: {canaries:?}, first wave: {first_wave:?}"),
    );
    let observed = stage.fleet.witness().observed();
    let moved: BTreeSet<String> = observed
        .iter()
        .skip(services_before)
        .filter(|observed| observed.change != Change::Healthy || observed.version != "2.0.0")
        .map(|observed| observed.node.clone())
        .collect();
    expectations
        .check("nobody else's service was touched", moved.is_subset(&canaries), || format!("{moved:?} against {canaries:?}"));
    expectations.check("version 2 runs on all 12 nodes again", runs(&look, "2.0.0") == 12, || table(&look));
    let mut blind = Vec::new();
    for agent in stage.fleet.agents() {
        let rollouts = agent.api().rollouts().await?;
        if !rollouts.iter().any(|rollout| rollout.id == signed.id && rollout.halted.is_some()) {
            blind.push(agent.name().to_owned());
        }
    }
    expectations.check("every agent sees the halt", blind.is_empty(), || blind.join(", "));
    let waiting = stage.fleet.agents().iter().find(|agent| !canaries.contains(agent.name()));
    let mut explained = Vec::new();
    if let Some(agent) = waiting {
        explained = agent.api().explain().await?;
        let told = stage.fleet.swell().text(["explain", "--socket", &agent.api().socket().display().to_string()]).await?;
        stage.screen.note(&format!("`swell explain` on {}: {}", agent.name(), told.lines().next().unwrap_or_default()));
    }
    let says_halted = explained.iter().any(|one| one.hold.as_ref().is_some_and(|hold| hold.code == HoldCode::Halted));
    expectations.check("a waiting node explains that the rollout is halted", says_halted, || format!("{explained:?}"));
    Ok(explained)
}

async fn way_forward(stage: &mut Stage, expectations: &mut Expectations) -> Result<(), FleetError> {
    stage.chapter("version 4: the way forward over the halted one");
    let signed = sign(stage, "4.0.0", 4, Behaviour::Good, &RolloutPlan::waves(&[(10, 2), (50, 1), (100, 1)])).await?;
    stage.publish("core-2", "4.0.0", &signed).await?;
    let done = |look: &Look| everywhere(look, "4.0.0").and_then(|()| complete(look, &signed.id));
    let look = stage.watch_until("version 4 is everywhere", PATIENCE, done).await?;
    expectations.check("version 4 runs on all 12 nodes", runs(&look, "4.0.0") == 12, || table(&look));
    let healthy = stage.fleet.witness().healthy();
    let served = healthy.values().filter(|version| *version == "4.0.0").count();
    expectations.check("all 12 services serve version 4", served == 12, || format!("{healthy:?}"));
    Ok(())
}

/// No pool ever had more disrupted than its budget, by the records and by the services.
fn budgets(stage: &Stage, expectations: &mut Expectations, figures: &mut Figures) {
    let (records, services) = (stage.disruption.most(), stage.fleet.witness().most_down());
    for pool in &stage.plan.pools {
        let most = |counts: &BTreeMap<String, usize>| counts.get(&pool.name).copied().unwrap_or(0);
        let disrupted = Disrupted { budget: pool.slots(), by_records: most(records), by_services: most(&services) };
        let within = disrupted.by_records <= disrupted.budget && disrupted.by_services <= disrupted.budget;
        let name = format!("pool {}: never more than {} of {} nodes disrupted at once", pool.name, disrupted.budget, pool.nodes);
        expectations.check(&name, within, || format!("{disrupted:?}"));
        figures.disrupted.insert(pool.name.clone(), disrupted);
    }
}

fn find<'a>(look: &'a Look, id: &str) -> Option<&'a RolloutView> {
    look.rollouts.iter().find(|rollout| rollout.id == id)
}

fn runs(look: &Look, version: &str) -> usize {
    look.nodes
        .values()
        .filter(|status| status.node.products.iter().any(|product| product.version.as_deref() == Some(version)))
        .count()
}

fn everyone_runs(look: &Look, version: &str) -> Result<(), String> {
    let count = runs(look, version);
    if count == look.nodes.len() { Ok(()) } else { Err(format!("{count} of {} run {version}", look.nodes.len())) }
}

/// Every node runs `version` and has vouched for it.
fn everywhere(look: &Look, version: &str) -> Result<(), String> {
    everyone_runs(look, version)?;
    let phases = look.nodes.iter().flat_map(|(name, status)| status.node.products.iter().map(move |product| (name, product)));
    let open: Vec<String> = phases
        .filter(|(_, product)| product.phase != Phase::Soaked)
        .map(|(name, product)| format!("{name} is {}", phase_name(product.phase)))
        .collect();
    if open.is_empty() { Ok(()) } else { Err(open.join(", ")) }
}

fn complete(look: &Look, id: &str) -> Result<(), String> {
    let complete = find(look, id).is_some_and(|rollout| rollout.complete);
    if complete { Ok(()) } else { Err("its last wave has not passed".to_owned()) }
}

/// Nodes that started before half of the wave before had soaked, by the times in their own records.
fn started_early(rollout: Option<&RolloutView>) -> Vec<String> {
    let Some(rollout) = rollout else { return vec!["the rollout is not known".to_owned()] };
    let mut early = Vec::new();
    for wave in rollout.waves.iter().skip(1) {
        let soaked = rollout.nodes.iter().filter(|node| node.wave + 1 == wave.index).filter_map(|node| node.soaked_at);
        let Some(soaked) = soaked.max() else { continue };
        let nodes = rollout.nodes.iter().filter(|node| node.wave == wave.index);
        early.extend(nodes.filter(|node| node.started_at.is_some_and(|started| started < soaked)).map(|node| node.name.clone()));
    }
    early
}

fn table(look: &Look) -> String {
    let mut text = format!("{:<9} {:<6} {:<8} state\n", "node", "pool", "version");
    for (name, status) in &look.nodes {
        let pool = status.node.pool.as_deref().unwrap_or("-");
        for product in &status.node.products {
            let version = product.version.as_deref().unwrap_or("-");
            text.push_str(&format!("{name:<9} {pool:<6} {version:<8} {}\n", phase_name(product.phase)));
        }
    }
    text
}

fn size_of(path: &Path) -> u64 {
    path.metadata().map(|metadata| metadata.len()).unwrap_or(0)
}

fn conclude(table: &str, explained: &[Explanation], expectations: &Expectations, figures: &Figures, json: bool) {
    println!("\n{table}");
    println!("Most disrupted at once   budget   by the records   by the services");
    for (pool, disrupted) in &figures.disrupted {
        println!("{pool:<22} {:>8} {:>16} {:>17}", disrupted.budget, disrupted.by_records, disrupted.by_services);
    }
    println!("\nWhat a waiting node said while version 3 was halted:");
    for one in explained {
        println!("  {}", one.summary);
        for fact in &one.facts {
            println!("    {fact}");
        }
        for way in &one.ways_out {
            println!("    way out: {way}");
        }
    }
    println!("\nWhat must be:");
    for expectation in expectations.all() {
        match &expectation.differs {
            None => println!("  yes  {}", expectation.name),
            Some(seen) => println!("  NO   {}: {seen}", expectation.name),
        }
    }
    let Figures { messages, idle, .. } = figures;
    println!("\nFigures:");
    println!("  from `swell publish` to the last of 12 agents knowing   {:.2} s", figures.publish_to_last_agent_seconds);
    println!("  from the first agent knowing to the last                {:.2} s", figures.first_to_last_agent_seconds);
    println!("  the good rollout, publish to last wave passed           {:.1} s", figures.good_rollout_seconds);
    println!(
        "  messages of one agent in it (mean of 12)                {:.0} frames sent, {:.0} received ({:.0} KiB), {:.1} records signed, {:.1} documents heard",
        messages.frames_sent,
        messages.frames_received,
        messages.bytes_received / 1024.0,
        messages.records_signed,
        messages.gossip_received
    );
    println!(
        "  memory of one agent at rest                             {} resident, {} of it its own (largest {})",
        mebibytes(idle.resident_bytes),
        mebibytes(idle.anonymous_bytes),
        mebibytes(idle.resident_bytes_most)
    );
    println!(
        "  processor time of one agent at rest                     {:.2} % of one processor (busiest {:.2} %)",
        idle.processor_percent, idle.processor_percent_most
    );
    println!("  the swell binary                                        {}", mebibytes(figures.binary_bytes));
    println!("  the whole demo                                          {:.0} s", figures.demo_seconds);
    let verdict = if figures.as_it_must_be { "All was as it must be." } else { "Something differs from what must be." };
    println!("\n{verdict}");
    if json {
        println!("{}", serde_json::to_string(figures).expect("plain numbers always have a JSON form"));
    }
}

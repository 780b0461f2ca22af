//! Real agents under real supervisors upgrade themselves, and leave builds of themselves that are broken.

use std::io::Write as _;

use groundswell_testnet::fleet::Fleet;
use groundswell_testnet::fleet::builds::{Build, alone};
use groundswell_testnet::fleet::error::FleetError;
use groundswell_testnet::fleet::plan::{Plan, PoolPlan};
use groundswell_testnet::self_upgrade::{Check, inconclusive, left_behind, play};

use super::system_stage::{PATIENCE, program, swell};

async fn three_agents() -> Fleet {
    let plan = Plan { agents: true, ..Plan::new(vec![PoolPlan::new("edge", 3, "34%")]) };
    Fleet::build(swell(), program(), &plan).await.expect("the fleet is built")
}

/// Whether a process may have a network of its own: nothing can be cut off from its peers otherwise. Where it may not that is
/// said past the harness, which keeps what passing tests print; where the test command found that it may (the variable
/// `GROUNDSWELL_CUTS_OFF` is set) it is a failure.
fn can_be_cut_off() -> bool {
    let can = alone().is_some();
    if !can {
        let why = "`unshare --net` does not work here";
        assert!(std::env::var_os("GROUNDSWELL_CUTS_OFF").is_none(), "{why}, though this machine allows it");
        let thread = std::thread::current();
        let _ = writeln!(std::io::stderr(), "NOT TESTED: {}: {why}", thread.name().unwrap_or_default());
    }
    can
}

/// All was as it must be, and nothing is left behind.
async fn ends_well(fleet: Fleet, checks: Result<Vec<Check>, FleetError>, told: &[String]) {
    let logs = || fleet.agents().iter().map(|agent| format!("== {}\n{}\n", agent.name(), agent.last_lines())).collect::<String>();
    let checks = checks.unwrap_or_else(|error| panic!("{error}\n{}\n{}", told.join("\n"), logs()));
    let differs: Vec<_> = checks.iter().filter(|(_, differs)| differs.is_some()).collect();
    assert!(differs.is_empty(), "{differs:?}\n{}", logs());
    let left = fleet.shut_down().await;
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[tokio::test]
async fn a_supervised_agent_that_shares_no_protocol_with_the_mesh_any_more_replaces_itself_through_outer_doors() {
    let mut fleet = three_agents().await;
    fleet.start().await.expect("all agents start");
    fleet.meets(PATIENCE).await.expect("all agents meet");
    let mut told = Vec::new();
    let checks = left_behind(&mut fleet, 1, &mut |line| told.push(line.to_owned())).await;
    ends_well(fleet, checks, &told).await;
}

#[tokio::test]
async fn a_build_that_finds_no_peer_where_the_old_one_finds_none_either_has_no_verdict() {
    if !can_be_cut_off() {
        return;
    }
    let mut fleet = three_agents().await;
    let mut told = Vec::new();
    let checks = inconclusive(&mut fleet, &mut |line| told.push(line.to_owned())).await;
    ends_well(fleet, checks, &told).await;
}

#[tokio::test]
async fn three_agents_upgrade_themselves_and_leave_builds_that_are_broken() {
    let mut fleet = three_agents().await;
    let mut told = Vec::new();
    let mut broken = vec![Build::Panics, Build::Hangs];
    broken.extend(can_be_cut_off().then_some(Build::Lonely));
    let checks = play(&mut fleet, &broken, &mut |line| told.push(line.to_owned())).await;
    ends_well(fleet, checks, &told).await;
}

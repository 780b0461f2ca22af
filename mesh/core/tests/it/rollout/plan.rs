//! The offline schedule.

use groundswell_core::documents::rollout::{Approval, Wave};
use groundswell_core::rollout::plan::plan;
use groundswell_core::rollout::wave::Waves;
use groundswell_core::time::Timestamp;

use super::fixture::*;

#[test]
fn b19_the_plan_is_the_schedule_of_a_rollout_in_which_nothing_fails() {
    let waiting = Wave { wait_seconds: Some(60), approval: Some(Approval::Manual), ..percent(1_000_000) };
    let rollout = rollout("rollout_a", vec![percent(500_000), waiting]);
    let certificates: Vec<_> = (0..10).map(|n| certificate(n, if n < 6 { "edge" } else { "core" })).collect();
    let start = Timestamp::from_seconds(1_000_000);
    let plan = plan(&rollout, &members(&certificates), &pools(), start, 100);
    let waves = Waves::assign(&rollout, &members(&certificates));
    for (index, wave) in (0..).zip(&plan.waves) {
        let nodes: Vec<_> = wave.nodes.iter().map(|planned| planned.node).collect();
        assert_eq!(nodes, waves.members(index));
        assert_eq!(wave.pools.values().sum::<u32>() as usize, nodes.len());
        let edge = u64::from(wave.pools.get(&pool("edge")).copied().unwrap_or(0));
        let core = u64::from(wave.pools.get(&pool("core")).copied().unwrap_or(0).div_ceil(2));
        assert_eq!(wave.confirmed_at, wave.opens_at.plus_seconds(edge.max(core) * 100), "one slot, and two");
        assert_eq!(wave.passes_at, wave.confirmed_at.plus_seconds(600));
    }
    assert_eq!(plan.waves[0].opens_at, start);
    assert_eq!(plan.waves[1].opens_at, plan.waves[0].passes_at.plus_seconds(60));
    assert!(plan.waves[1].approval && !plan.waves[0].approval);
    assert!(plan.late_joiners && plan.left_out.is_empty());
}

#[test]
fn b19_an_empty_wave_passes_at_once_and_a_start_time_is_kept() {
    let mut rollout = rollout("rollout_a", percents(&[10_000, 500_000, 700_000, 1_000_000]));
    rollout.waves[1].not_before = Some(Timestamp::from_seconds(2_000_000));
    let certificates = fleet(3);
    let plan = plan(&rollout, &members(&certificates), &pools(), Timestamp::from_seconds(1_000_000), 100);
    assert_eq!(plan.waves[1].opens_at, Timestamp::from_seconds(2_000_000));
    assert_eq!(plan.waves[3].nodes.len(), 0);
    assert_eq!(plan.waves[3].passes_at, plan.waves[2].passes_at);
}

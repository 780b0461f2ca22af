//! The core's exchange of pieces in virtual time: how near it comes to the physical limit, whatever goes wrong.

use groundswell_testnet::bytes::{Setting, Trial, run};

const MIB: u64 = 1024 * 1024;
const MBIT: u64 = 1_000_000;

#[test]
fn a_swarm_comes_as_near_to_the_limit_as_it_must_whatever_goes_wrong() {
    for trial in Trial::all(8, 40 * MBIT, 50 * MIB) {
        let outcome = run(&trial.setting);
        assert_eq!(trial.complaints(&outcome), Vec::<String>::new(), "{}: {outcome:?}", trial.name);
    }
}

#[test]
fn sixteen_nodes_with_equal_uplinks_come_near_to_the_limit() {
    let all = Trial::all(16, 40 * MBIT, 50 * MIB);
    let trial = all.first().expect("the first is with equal uplinks");
    let outcome = run(&trial.setting);
    assert_eq!(trial.complaints(&outcome), Vec::<String>::new(), "{outcome:?}");
}

#[test]
fn one_node_alone_fills_the_link_of_a_seed_far_away() {
    let setting = Setting { delay: std::time::Duration::from_millis(50), ..Setting::equal(1, 40 * MBIT, 50 * MIB) };
    let outcome = run(&setting);
    assert_eq!((outcome.incomplete, outcome.seed_bytes), (0, 50 * MIB));
    assert!(outcome.ratio_milli() < 1_150, "{outcome:?}");
}

#[test]
fn the_same_setting_has_the_same_outcome() {
    let setting = Setting { liars: 1, ..Setting::equal(6, 10 * MBIT, 4 * MIB) };
    assert_eq!(run(&setting), run(&setting));
}

#[test]
fn a_bar_that_is_not_reached_is_named() {
    let all = Trial::all(4, 10 * MBIT, 4 * MIB);
    let first = all.first().expect("the first is with equal uplinks");
    let strict = Trial { ratio_milli: 900, seed_milli: Some(500), total_milli: 500, ..first.clone() };
    assert_eq!(strict.complaints(&run(&strict.setting)).len(), 3);
}

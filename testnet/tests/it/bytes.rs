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

/// Mbit/s, MiB, milliseconds one way, and most that the last completion may be of the limit in the mean of two seeds, in parts
/// per thousand: what helps long ways easily hurts thin lines.
const WAYS: [(u64, u64, u64, u128); 5] =
    [(4, 4, 2, 1_500), (10, 8, 2, 1_280), (40, 25, 10, 1_170), (10, 8, 40, 1_720), (40, 25, 40, 1_860)];

#[test]
fn neither_long_ways_nor_thin_lines_are_further_from_the_limit_than_they_were() {
    for (rate, size, delay, most) in WAYS {
        let delay = std::time::Duration::from_millis(delay);
        let ratio = |seed| run(&Setting { delay, seed, ..Setting::equal(16, rate * MBIT, size * MIB) }).ratio_milli();
        let mean = u128::midpoint(ratio(1), ratio(2));
        assert!(mean <= most, "{mean} of the limit at {rate} Mbit/s and {delay:?}, {most} allowed");
    }
}

#[test]
fn nobody_waits_for_nodes_that_stall_or_lie() {
    let spoiled = Setting { liars: 1, stalled: 2, ..Setting::equal(8, 40 * MBIT, 50 * MIB) };
    assert_eq!(spoiled.limit(), Setting::equal(5, 40 * MBIT, 50 * MIB).limit());
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

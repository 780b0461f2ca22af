//! The Byzantine margin of section 7: with as many lying wardens as a pool tolerates S1 holds, with one more it can break; either
//! way it is reported.

use groundswell_testnet::sim::margin::{tolerated, tried};

/// Each row of the table of quorums, and both of its ends.
const SIZES: [u32; 7] = [3, 4, 6, 7, 8, 9, 10];

#[test]
fn as_many_wardens_as_tolerated_may_lie_and_the_budget_holds() {
    assert_eq!(SIZES.map(tolerated), [0, 1, 1, 2, 2, 2, 2]);
    for nodes in SIZES {
        let within = tried(nodes, tolerated(nodes), 0..3);
        assert_eq!(within.broken, 0, "{nodes} nodes: {within:?}");
        assert!(within.failures.is_empty(), "{nodes} nodes: {within:?}");
        assert_eq!(within.reported, if within.liars > 0 { within.worlds } else { 0 }, "{nodes} nodes: {within:?}");
    }
}

#[test]
fn with_one_liar_more_two_nodes_are_disrupted_at_once_and_liars_are_convicted() {
    let mut convicted = 0;
    for nodes in SIZES {
        let beyond = tried(nodes, tolerated(nodes) + 1, 0..4);
        assert!(beyond.broken > 0, "{nodes} nodes: {beyond:?}");
        assert!(beyond.failures.is_empty(), "{nodes} nodes: {beyond:?}");
        assert_eq!(beyond.reported, beyond.worlds, "{nodes} nodes: {beyond:?}");
        convicted += beyond.convicted;
    }
    // Only where both halves have seen records under the same number is there a proof.
    assert!(convicted > 0);
}

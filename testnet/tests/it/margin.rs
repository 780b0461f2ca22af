//! The Byzantine margin of section 7: with as many lying wardens as a pool tolerates S1 holds, with one more it can break.

use groundswell_testnet::sim::margin::{tolerated, tried};

#[test]
fn as_many_wardens_as_tolerated_may_lie_and_the_budget_holds() {
    for nodes in [4, 7] {
        let within = tried(nodes, tolerated(nodes), 0..3);
        assert_eq!(within.broken, 0, "{nodes} nodes: {within:?}");
        assert!(within.failures.is_empty(), "{nodes} nodes: {within:?}");
    }
}

#[test]
fn with_one_liar_more_two_nodes_are_disrupted_at_once_and_liars_are_convicted() {
    let mut convicted = 0;
    for nodes in [3, 7] {
        let beyond = tried(nodes, tolerated(nodes) + 1, 0..4);
        assert!(beyond.broken > 0, "{nodes} nodes: {beyond:?}");
        assert!(beyond.failures.is_empty(), "{nodes} nodes: {beyond:?}");
        convicted += beyond.convicted;
    }
    // Only where both halves have seen records under the same number is there a proof.
    assert!(convicted > 0);
}

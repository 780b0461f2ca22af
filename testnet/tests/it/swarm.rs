//! The swarm's fixed seeds. What a seed found becomes a story of its own: a seed means another world after each change.

use std::sync::atomic::{AtomicU64, Ordering};

use groundswell_testnet::sim::swarm;

/// Seeds that every change must pass.
const FIXED: u64 = 48;

/// Runs seeds, two at a time; what failed, each with the line that runs it again.
fn failures(seeds: &[u64]) -> Vec<String> {
    let next = AtomicU64::new(0);
    let work = || {
        let mut failed = Vec::new();
        while let Some(seed) = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).ok().and_then(|at| seeds.get(at)) {
            let outcome = swarm::run(*seed);
            failed.extend(outcome.failure.as_ref().map(|failure| format!("{}  # {failure}", swarm::reproduction(*seed))));
        }
        failed
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mut failed = work();
        failed.extend(other.join().expect("the swarm catches what breaks"));
        failed
    })
}

#[test]
fn the_first_seeds_keep_every_guarantee() {
    let seeds: Vec<u64> = (0..FIXED).collect();
    let failed = failures(&seeds);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn the_same_seed_does_the_same_and_another_does_not() {
    assert_eq!(swarm::run(7), swarm::run(7));
    assert_ne!(swarm::run(7).trace, swarm::run(8).trace);
}

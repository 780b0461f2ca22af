//! The swarm's fixed seeds, and one from the commit. What a seed found becomes a story of its own: a seed means another
//! world after each change.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use groundswell_testnet::sim::swarm;

/// Seeds that every change must pass.
const FIXED: u64 = 16;
/// Taken when there is no commit to ask.
const WITHOUT_A_COMMIT: u64 = 20_261_130;

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

/// The seed that a commit's name spells: its first 15 hexadecimal digits.
fn seed_of(commit: &str) -> Option<u64> {
    u64::from_str_radix(commit.get(..15)?, 16).ok()
}

/// The seed of the commit that is checked out.
fn seed_of_head() -> Option<u64> {
    let git = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(Path::new(env!("CARGO_MANIFEST_DIR"))).output().ok()?;
    seed_of(std::str::from_utf8(&git.stdout).ok()?)
}

#[test]
fn the_first_seeds_and_the_commits_own_keep_every_guarantee() {
    let own = seed_of_head().unwrap_or_else(|| {
        println!("there is no commit to take a seed from: {WITHOUT_A_COMMIT} stands in");
        WITHOUT_A_COMMIT
    });
    let seeds: Vec<u64> = (0..FIXED).chain([own]).collect();
    let failed = failures(&seeds);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn the_same_seed_does_the_same_and_another_does_not() {
    assert_eq!(swarm::run(7), swarm::run(7));
    assert_ne!(swarm::run(7).trace, swarm::run(8).trace);
}

#[test]
fn a_commit_spells_a_seed_and_nothing_else_does() {
    assert_eq!(seed_of("00000000000002affffffff"), Some(42));
    assert_eq!(seed_of("not a commit at all"), None);
    assert_eq!(seed_of(""), None);
}

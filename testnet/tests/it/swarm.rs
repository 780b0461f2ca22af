//! The swarm's fixed seeds, and one that the commit gives. What a seed found becomes a story of its own: a seed means another
//! world after each change.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use groundswell_testnet::sim::director::play;
use groundswell_testnet::sim::draw::draw;
use groundswell_testnet::sim::script::Script;
use groundswell_testnet::sim::swarm;

/// Seeds that every change must pass.
const FIXED: u64 = 48;
/// Of each only what happens in so many virtual milliseconds, then the world is healed: enough for most faults to meet.
const BEGINNING_MS: u64 = 12 * 60_000;

/// The beginning of what a seed draws.
fn beginning(seed: u64) -> Script {
    let mut script = draw(seed);
    script.lasts_ms = script.lasts_ms.min(BEGINNING_MS);
    let lasts_ms = script.lasts_ms;
    script.acts.retain(|scheduled| scheduled.at_ms <= lasts_ms);
    script
}

/// Plays scripts, two at a time; what failed, each with the line that plays it again.
fn failures(scripts: &[Script]) -> Vec<String> {
    let next = AtomicU64::new(0);
    let work = || {
        let mut failed = Vec::new();
        while let Some(script) = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).ok().and_then(|at| scripts.get(at)) {
            if let Some(failure) = play(script).failure {
                let file = std::env::temp_dir().join(format!("groundswell-seed-{}.toml", script.seed));
                std::fs::write(&file, script.to_toml()).expect("a script can be written");
                failed.push(format!("groundswell-testnet sim replay {}  # {failure}", file.display()));
            }
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
    let scripts: Vec<Script> = (0..FIXED).map(beginning).collect();
    let failed = failures(&scripts);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Another seed for each commit: whoever builds an archive of the sources has no commit, and no such seed.
#[test]
fn the_seed_that_the_commit_gives_keeps_every_guarantee() {
    let told = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let hash = told.ok().filter(|told| told.status.success()).and_then(|told| String::from_utf8(told.stdout).ok());
    let seed = hash.and_then(|hash| u64::from_str_radix(hash.get(..15)?, 16).ok());
    if let Some(seed) = seed {
        // Its beginning, as of the others: a whole one may be a world of half an hour.
        let failed = failures(&[beginning(seed)]);
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}

#[test]
fn the_same_seed_does_the_same_and_another_does_not() {
    assert_eq!(swarm::run(7), swarm::run(7));
    assert_ne!(swarm::run(7).trace, swarm::run(8).trace);
}

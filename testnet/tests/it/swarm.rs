//! The swarm's fixed seeds, and one that the commit gives. What a seed found becomes a story of its own: a seed means another
//! world after each change.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use groundswell_testnet::sim::director::play;
use groundswell_testnet::sim::script::Script;
use groundswell_testnet::sim::swarm::{self, Part};

/// Seeds that every change must pass.
const FIXED: u64 = 200;

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
    let scripts: Vec<Script> = (0..FIXED).map(|seed| Part::WHOLE.of(seed)).collect();
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
        let failed = failures(&[Part::WHOLE.of(seed)]);
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}

#[test]
fn the_same_seed_does_the_same_and_another_does_not() {
    let [seven, again, eight] = [7, 7, 8].map(|seed| swarm::run(seed, Part::WHOLE));
    assert_eq!(seven, again);
    assert_ne!(seven.trace, eight.trace);
}

/// What is looked for in a part of a seed, because that costs less, is what the whole seed does until then.
#[test]
fn a_part_of_a_seed_is_how_the_whole_begins() {
    let whole = Part::WHOLE.of(5);
    let part = Part { beginning_ms: Some(60_000), unhealed: true }.of(5);
    assert_eq!((part.lasts_ms, part.progress.as_ref()), (60_000, None));
    assert!(part.acts.len() < whole.acts.len() && whole.progress.is_some());
    assert!(part.acts.iter().all(|act| act.at_ms <= 60_000) && whole.acts.starts_with(&part.acts));
    let until_healed = Part { beginning_ms: None, unhealed: true }.of(5);
    assert_eq!((until_healed.acts, until_healed.lasts_ms), (whole.acts, whole.lasts_ms));
}

//! Each scenario in `testnet/scenarios` plays as it expects, and as its golden text beside it tells.
//!
//! `UPDATE_DOCS=1 cargo test -p groundswell-testnet scenarios` writes the golden texts anew; read the diff.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use groundswell_testnet::sim::director::play;
use groundswell_testnet::sim::script::Script;

pub(crate) fn scenarios() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let entries = fs::read_dir(folder).expect("the folder of scenarios can be read");
    let paths = entries.map(|entry| entry.expect("a folder entry can be read").path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    paths.sort();
    paths
}

pub(crate) fn read(path: &Path) -> Script {
    let text = fs::read_to_string(path).expect("a scenario is UTF-8");
    Script::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Plays one and holds it against its golden text; what is wrong with it.
fn wrong(path: &Path) -> Option<String> {
    let script = read(path);
    let told = format!("{}\n\n{}", script.story, play_or(path, &script).unwrap_or_else(|why| format!("FAILED: {why}\n")));
    let golden = path.with_extension("txt");
    if told.contains("FAILED: ") {
        return Some(format!("{}:\n{told}", path.display()));
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&golden, &told).expect("a golden text can be written");
    }
    let known = fs::read_to_string(&golden).unwrap_or_default();
    (known != told).then(|| {
        format!(
            "{} differs, run UPDATE_DOCS=1 cargo test -p groundswell-testnet scenarios and read the diff:\n{told}",
            golden.display()
        )
    })
}

fn play_or(path: &Path, script: &Script) -> Result<String, String> {
    let outcome = play(script);
    match outcome.failure {
        None => Ok(outcome.told),
        Some(failure) => Err(format!("{}{failure}  # groundswell-testnet sim replay {}", outcome.told, path.display())),
    }
}

#[test]
fn every_scenario_goes_as_it_is_told() {
    let paths = scenarios();
    assert!(paths.len() >= 15, "the walk found too few scenarios to be right: {paths:?}");
    let next = AtomicUsize::new(0);
    let work = || {
        let mut wrongs = Vec::new();
        while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            wrongs.extend(wrong(path));
        }
        wrongs
    };
    let wrongs = std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mut wrongs = work();
        wrongs.extend(other.join().expect("the director catches what breaks"));
        wrongs
    });
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
}

#[test]
fn every_scenario_says_what_it_is_about_and_what_it_expects() {
    for path in scenarios() {
        let script = read(&path);
        assert!(!script.story.is_empty() && !script.expect.is_empty(), "{}", path.display());
    }
}

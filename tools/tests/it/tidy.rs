//! The house rules as a test: what people forget, checked on every run.
//!
//! Each rule names the file and the way out. Exceptions stand here, each with its reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A file is a chapter; beyond this it is a book.
const HARD_LIMIT_LINES: usize = 600;

/// Packages in `Cargo.lock`: each one is build time, upkeep and trust.
const PACKAGES: usize = 480;

/// Crates that a crate's own manifest may name: the arrows of the design, section 3.
const ARROWS: &[(&str, &[&str])] = &[
    ("mesh/core", &[]),
    ("mesh/net", &["groundswell-core"]),
    ("agent", &["groundswell-core", "groundswell-net"]),
    // groundswell-testnet: for a command that rehearses, should there be one (design, section 3).
    ("tools", &["groundswell-core", "groundswell-net", "groundswell-agent", "groundswell-testnet"]),
    ("testnet", &["groundswell-core"]),
];

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tools/ lies in the workspace").to_path_buf()
}

pub(crate) fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a source folder can be read") {
        let path = entry.expect("a folder entry can be read").path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
}

pub(crate) fn rust_files() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for part in ["mesh", "agent", "tools", "testnet"] {
        files(&workspace().join(part), "rs", &mut found);
    }
    found.sort();
    assert!(found.len() > 50, "the walk found too few files to be right: {}", found.len());
    found.into_iter().map(|path| (path.clone(), fs::read_to_string(&path).expect("sources are UTF-8"))).collect()
}

#[test]
fn every_file_begins_by_saying_what_lives_in_it() {
    let silent: Vec<_> = rust_files().into_iter().filter(|(_, text)| !text.starts_with("//!")).map(|(path, _)| path).collect();
    assert!(silent.is_empty(), "begin each file with a //! comment: {silent:#?}");
}

#[test]
fn no_file_outgrows_a_chapter() {
    let long: Vec<_> = rust_files()
        .into_iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > HARD_LIMIT_LINES)
        .collect();
    assert!(long.is_empty(), "split these, or argue here: {long:#?}");
}

#[test]
fn no_file_is_named_after_nothing() {
    let vague: Vec<_> = rust_files()
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| {
            path.file_stem().is_some_and(|stem| ["utils", "helpers", "common", "misc", "types"].iter().any(|name| stem == *name))
        })
        .collect();
    assert!(vague.is_empty(), "name these after what they hold: {vague:#?}");
}

#[test]
fn nothing_unfinished_is_left_in_the_sources() {
    let marks = ["todo!(", "unimplemented!(", "FIXME", "XXX", "#[ignore]"];
    let here = Path::new(file!()).file_name().expect("this file has a name");
    let unfinished: Vec<_> = rust_files()
        .into_iter()
        .filter(|(path, _)| path.file_name() != Some(here))
        .filter(|(_, text)| marks.iter().any(|mark| text.contains(mark)))
        .map(|(path, _)| path)
        .collect();
    assert!(unfinished.is_empty(), "finish these: {unfinished:#?}");
}

#[test]
fn crates_depend_only_along_the_arrows() {
    for (folder, allowed) in ARROWS {
        let text = fs::read_to_string(workspace().join(folder).join("Cargo.toml")).expect("each crate has a manifest");
        let manifest: toml::Table = text.parse().expect("manifests are TOML");
        for section in ["dependencies", "build-dependencies"] {
            let Some(table) = manifest.get(section).and_then(toml::Value::as_table) else { continue };
            for name in table.keys().filter(|name| name.starts_with("groundswell") || *name == "swell") {
                assert!(allowed.contains(&name.as_str()), "{folder} must not depend on {name}");
            }
        }
    }
}

#[test]
fn the_core_stays_pure() {
    for (path, text) in rust_files().into_iter().filter(|(path, _)| path.to_string_lossy().contains("mesh/core/src")) {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for word in ["std::", "HashMap", "HashSet", "Instant", "SystemTime"] {
            let found = code.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| line.contains(word));
            assert!(!found, "{} names {word}: the core has no IO, no clock and no unordered map", path.display());
        }
    }
}

#[test]
fn foreign_types_stop_where_the_design_says() {
    for (path, text) in rust_files() {
        let path = path.strip_prefix(workspace()).expect("sources lie in the workspace").to_string_lossy().into_owned();
        if path.contains("/tests/") {
            continue;
        }
        if text.contains("libp2p::") {
            assert!(path.starts_with("mesh/net/"), "{path} names libp2p: its types stop in mesh/net");
        }
        if text.contains("sled::") {
            assert_eq!(path, "agent/src/store.rs", "{path} names sled: its types stop in agent/src/store.rs");
        }
    }
}

#[test]
fn the_dependency_tree_stays_lean() {
    let lock: toml::Table =
        fs::read_to_string(workspace().join("Cargo.lock")).expect("Cargo.lock is committed").parse().expect("Cargo.lock is TOML");
    let packages = lock.get("package").and_then(toml::Value::as_array).map_or(0, Vec::len);
    assert!(packages <= PACKAGES, "{packages} packages, {PACKAGES} allowed: is each new one worth its build time and upkeep?");
}

#[test]
fn every_link_in_the_documents_resolves() {
    let mut pages = vec![workspace().join("README.md"), workspace().join("CONTRIBUTING.md"), workspace().join("CHANGELOG.md")];
    files(&workspace().join("docs"), "md", &mut pages);
    let mut broken = BTreeMap::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            let folder = page.parent().expect("a page lies in a folder");
            if !folder.join(file).exists() {
                broken.insert(format!("{} → {target}", page.display()), ());
            }
        }
    }
    assert!(broken.is_empty(), "broken links: {:#?}", broken.keys().collect::<Vec<_>>());
}

//! Each case that the design or the field has taught is told somewhere in the tree, by its number: as a test whose name
//! begins with it (`d13_…`), or as a scenario that lists it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::scenarios::{read, scenarios};

/// Evidence and halts, leases, time, and the mesh: cases of the field that fleets show.
const FIELD: &[&str] = &[
    "G1", "G2", "G3", "G4", "G5", "G6", "G7", "L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8", "T4", "T5", "M3", "M4", "M6", "I1",
    "I2", "I3", "I4", "I5", "I6", "I7", "B1", "B2", "B3", "B4", "B5", "K6",
];
/// Cases of the design are D1 to this.
const LAST_OF_THE_DESIGN: u32 = 46;

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a source folder can be read") {
        let path = entry.expect("a folder entry can be read").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The cases in the name of a test: `l2_g3_a_node_…` tells L2 and G3.
fn cases_in(name: &str) -> impl Iterator<Item = String> {
    let number = |part: &&str| part.len() > 1 && part[1..].bytes().all(|byte| byte.is_ascii_digit());
    name.split('_').take_while(number).map(str::to_uppercase)
}

/// Every case that a test is named after.
fn tested() -> BTreeSet<String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("testnet/ lies in the workspace");
    let mut files = Vec::new();
    for part in ["mesh", "agent", "tools", "testnet"] {
        rust_files(&workspace.join(part), &mut files);
    }
    let mut found = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("sources are UTF-8");
        let mut marked = false;
        for line in text.lines().map(str::trim_start) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                marked = true;
            } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| marked) {
                found.extend(cases_in(rest.split('(').next().unwrap_or_default()));
                marked = false;
            }
        }
    }
    found
}

#[test]
fn every_case_is_told_somewhere() {
    let mut told = tested();
    for path in scenarios() {
        told.extend(read(&path).cases);
    }
    let design = (1..=LAST_OF_THE_DESIGN).map(|number| format!("D{number}"));
    let missing: Vec<String> = design.chain(FIELD.iter().map(ToString::to_string)).filter(|case| !told.contains(case)).collect();
    assert!(missing.is_empty(), "no test is named after these, and no scenario lists them: {missing:?}");
}

#[test]
fn a_name_tells_its_cases_and_nothing_else() {
    assert_eq!(cases_in("l2_g3_a_node_that_was_off").collect::<Vec<_>>(), ["L2", "G3"]);
    assert_eq!(cases_in("a_good_release").count(), 0);
}

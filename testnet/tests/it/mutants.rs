//! The mutants can be built: each text that they break stands in the core exactly once. `sim mutants` runs them.

use std::path::Path;
use std::process::Command;

use groundswell_testnet::mutants::{Mutant, PACKAGE, apply, can_be_switched, lay_out};

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("testnet/ lies in the workspace")
}

#[test]
fn every_mutant_breaks_one_place_of_the_core_as_it_is() {
    let mutants = Mutant::all(workspace()).unwrap();
    let changed = apply(workspace(), &mutants).unwrap_or_else(|error| panic!("{error}"));
    assert!(changed.keys().all(|file| file.starts_with("mesh/core/src/")));
    assert!(can_be_switched(workspace()).unwrap());
    for mutant in &mutants {
        let switch = format!("crate::mutant({})", mutant.number);
        assert!(changed.values().any(|text| text.contains(&switch)), "{} changes nothing", mutant.name);
    }
}

#[test]
fn cargo_takes_the_copy_that_the_mutants_are_laid_out_in() {
    let folder = tempfile::tempdir().unwrap();
    lay_out(workspace(), &Mutant::all(workspace()).unwrap(), folder.path()).unwrap_or_else(|error| panic!("{error}"));
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["tree", "--offline", "--package", PACKAGE, "--manifest-path"]).arg(folder.path().join("Cargo.toml"));
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8_lossy(&output.stdout);
    assert!(tree.contains("groundswell-core") && !tree.contains("libp2p"), "{tree}");
}

/// Else every run of `sim mutants` would build the copy anew.
#[test]
fn what_lies_there_as_it_should_is_not_written_again_and_what_is_gone_goes() {
    let folder = tempfile::tempdir().unwrap();
    let mutants = Mutant::all(workspace()).unwrap();
    let written = |file: &str| std::fs::metadata(folder.path().join(file)).unwrap().modified().unwrap();
    lay_out(workspace(), &mutants, folder.path()).unwrap();
    let files = ["Cargo.toml", "mesh/core/src/lib.rs", "mesh/core/src/lease/start.rs", "testnet/src/main.rs"];
    let before = files.map(written);
    let stray = folder.path().join("mesh/core/src/stray.rs");
    std::fs::write(&stray, "").unwrap();
    std::fs::write(folder.path().join("mesh/core/src/time.rs"), "spoiled").unwrap();
    lay_out(workspace(), &mutants, folder.path()).unwrap();
    assert_eq!(files.map(written), before);
    assert!(!stray.exists());
    assert_ne!(std::fs::read_to_string(folder.path().join("mesh/core/src/time.rs")).unwrap(), "spoiled");
}

#[test]
fn a_known_seed_is_one_of_those_that_the_swarm_must_find_a_mutant_within() {
    for mutant in Mutant::all(workspace()).unwrap() {
        assert!(mutant.seed.is_none_or(|seed| seed < 1_000), "{}: {:?}", mutant.name, mutant.seed);
    }
}

#[test]
fn every_guarantee_of_safety_and_every_rule_that_must_be_broken_has_a_mutant() {
    let mutants = Mutant::all(workspace()).unwrap();
    for guarantee in ["S1", "S2", "S3", "S4", "S5", "S6", "S7", "L1", "L3"] {
        assert!(mutants.iter().any(|mutant| mutant.guarantee == guarantee), "{guarantee} has no mutant");
    }
    let named = [
        "quorum-size",
        "persist-before-publish",
        "claim-names",
        "release-before-verdict",
        "soak",
        "floor",
        "silence-is-success",
        "silence-is-nothing",
        "amnesia",
        "seal",
        "monotone-verdicts",
        "unclear-is-healthy",
        "unclear-is-failing",
    ];
    for name in named {
        assert!(mutants.iter().any(|mutant| mutant.name == name), "{name} is missing");
    }
}

//! `fleet init`, `fleet show`, `node init`, `node admit`.

use std::os::unix::fs::PermissionsExt as _;

use crate::desk::Desk;

#[test]
fn a_fleet_is_made_with_keys_apart_from_what_is_public() {
    let desk = Desk::new();
    let made = desk.json(&[
        "fleet",
        "init",
        "fleet",
        "--keys",
        "keys",
        "--product",
        "bcd",
        "--rollout-keys",
        "2",
        "--rollout-threshold",
        "2",
    ]);
    assert!(made["fleet"].as_str().unwrap().starts_with("sha256/"));
    assert_eq!(desk.files("fleet"), ["certificates", "fleet-1.json", "roster.toml"]);
    let keys = desk.files("keys");
    for key in ["root.pem", "release.pem", "rollout-1.pem", "rollout-2.pem", "enroll.pem", "operator.key"] {
        assert!(keys.contains(&key.to_string()), "{keys:?}");
        let mode = std::fs::metadata(desk.path("keys").join(key)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{key}");
    }
    let shown = desk.json(&["fleet", "show", "fleet"]);
    assert_eq!(shown["fleet"], made["fleet"]);
    assert!(desk.done(&["fleet", "show", "fleet"]).contains("rollout 2 of 2"));
}

#[test]
fn a_fleet_is_not_made_twice_nor_with_secrets_in_its_folder() {
    let desk = Desk::with_fleet(&[]);
    let before = desk.read("fleet/fleet-1.json");
    let error = desk.fails(2, &["fleet", "init", "fleet", "--keys", "other", "--product", "bcd"]);
    assert!(error.contains("holds a fleet already"), "{error}");
    assert_eq!((desk.read("fleet/fleet-1.json"), desk.files("other").len()), (before, 0));
    let error = desk.fails(2, &["fleet", "init", "new", "--keys", "new/keys", "--product", "bcd"]);
    assert!(error.contains("public"), "{error}");
    desk.fails(2, &["fleet", "init", "new", "--keys", "k", "--product", "bcd", "--root-threshold", "2"]);
    desk.fails(2, &["fleet", "init", "new", "--keys", "k"]);
    assert_eq!((desk.files("new").len(), desk.files("k").len()), (0, 0));
}

#[test]
fn a_node_asks_and_is_admitted_once() {
    let desk = Desk::with_fleet(&[]);
    desk.done(&[
        "node",
        "init",
        "--dir",
        "a1",
        "--name",
        "a1",
        "--pool",
        "edge",
        "--platform",
        "linux-amd64",
        "--label",
        "channel=stable",
    ]);
    let mode = std::fs::metadata(desk.path("a1/node.key")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let admit = ["node", "admit", "fleet", "--key", "keys/enroll.pem", "a1/a1.req"];
    let admitted = desk.json(&admit);
    assert_eq!((&admitted[0]["serial"], &admitted[0]["fresh"]), (&1.into(), &true.into()));
    let certificate = desk.read("fleet/certificates/a1.json");
    let again = desk.json(&admit);
    assert_eq!((&again[0]["serial"], &again[0]["fresh"]), (&1.into(), &false.into()));
    assert_eq!(desk.read("fleet/certificates/a1.json"), certificate);
    let error = desk.fails(2, &["node", "init", "--dir", "a1", "--name", "a2", "--pool", "edge"]);
    assert!(error.contains("keeps its identity"), "{error}");
    assert_eq!(desk.files("a1"), ["a1.req", "node.key"]);
}

#[test]
fn all_requests_are_admitted_or_none() {
    let desk = Desk::with_fleet(&[]);
    for (dir, name) in [("one", "a1"), ("two", "a1"), ("three", "a3")] {
        desk.done(&["node", "init", "--dir", dir, "--name", name, "--pool", "edge"]);
    }
    let error =
        desk.fails(2, &["node", "admit", "fleet", "--key", "keys/enroll.pem", "three/a3.req", "one/a1.req", "two/a1.req"]);
    assert!(error.contains("two/a1.req") && error.contains("name"), "{error}");
    assert_eq!(desk.files("fleet/certificates"), ["operator.json"]);
    desk.write("bad.req", "{}");
    desk.fails(2, &["node", "admit", "fleet", "--key", "keys/enroll.pem", "three/a3.req", "bad.req"]);
    let error = desk.fails(4, &["node", "admit", "fleet", "--key", "keys/release.pem", "three/a3.req"]);
    assert!(error.contains("unknown-key"), "{error}");
    let error = desk.fails(2, &["node", "admit", "fleet", "--key", "keys/missing.pem", "three/a3.req"]);
    assert!(error.contains("keys/missing.pem"), "{error}");
    assert_eq!(desk.files("fleet/certificates"), ["operator.json"]);
}

#[test]
fn a_folder_that_was_tampered_with_is_refused_by_file_and_reason() {
    let desk = Desk::with_fleet(&[]);
    desk.admit(&[("a1", "edge")]);
    let other = Desk::with_fleet(&[]);
    other.admit(&[("b1", "edge")]);
    desk.write("fleet/certificates/b1.json", &other.read("fleet/certificates/b1.json"));
    let error = desk.fails(4, &["fleet", "show", "fleet"]);
    assert!(error.contains("b1.json") && error.contains("fleet:"), "{error}");
    desk.write("fleet/certificates/b1.json", "{\"groundswell.node\":\"\"");
    let error = desk.fails(4, &["fleet", "show", "fleet"]);
    assert!(error.contains("b1.json") && error.contains("malformed"), "{error}");
    let error = desk.fails(2, &["fleet", "show", "nowhere"]);
    assert!(error.contains("fleet-1.json"), "{error}");
}

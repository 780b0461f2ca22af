//! `release keygen`, `sign`, `cosign`, `verify`.

use crate::desk::Desk;

const SIGN: [&str; 9] = ["release", "sign", "out", "--product", "bcd", "--version", "1.0.0", "--sequence", "1"];

/// A desk with two keys and a folder to release; gives their pins.
fn desk() -> (Desk, String, String) {
    let desk = Desk::new();
    let pin = |name: &str| desk.done(&["release", "keygen", "--out", name]).trim().to_string();
    let (a, b) = (pin("a.pem"), pin("b.pem"));
    desk.write("out/bcd-linux-amd64", "#!/bin/sh\n");
    desk.write("out/notes.txt", "first");
    (desk, a, b)
}

#[test]
fn a1_a2_two_keys_sign_and_both_are_needed() {
    let (desk, a, b) = desk();
    assert!(a.starts_with("sha256/") && a.len() == 71, "{a}");
    desk.done(&[&SIGN[..], &["--key", "a.pem", "--cosigners", "b.pem.pub"]].concat());
    let verify = ["release", "verify", "out/manifest.json", "--pins", &a, &b, "--threshold", "2", "--dir", "out"];
    let error = desk.fails(4, &verify);
    assert!(error.contains("threshold: signatures: 1 of 2"), "{error}");
    desk.done(&["release", "cosign", "out/manifest.json", "--key", "b.pem"]);
    let verified = desk.json(&verify);
    assert_eq!((verified["signers"].as_array().unwrap().len(), &verified["files"]), (2, &2.into()));
    let again = desk.json(&["release", "cosign", "out/manifest.json", "--key", "b.pem"]);
    assert_eq!((&again["added"], &again["signatures"]), (&false.into(), &2.into()));
    let commas = format!("{a},{b}");
    desk.done(&["release", "verify", "out/manifest.json", "--pins", &commas, "--threshold", "2"]);
}

#[test]
fn k1_one_key_given_twice_signs_once() {
    let (desk, a, b) = desk();
    let error = desk.fails(2, &[&SIGN[..], &["--key", "a.pem", "--key", "a.pem"]].concat());
    assert!(error.contains("one key signs once"), "{error}");
    desk.done(&[&SIGN[..], &["--key", "a.pem"]].concat());
    let text = desk.read("out/manifest.json");
    let start = text.find("{\"kid\"").unwrap();
    let entry = &text[start..text.len() - 2];
    desk.write("twice.json", &text.replace(entry, &format!("{entry},{entry}")));
    let error = desk.fails(4, &["release", "verify", "twice.json", "--pins", &a, &b, "--threshold", "2"]);
    assert!(error.contains("threshold"), "{error}");
}

#[test]
fn files_that_differ_are_refused_by_name() {
    let (desk, a, _) = desk();
    desk.done(&[&SIGN[..], &["--key", "a.pem"]].concat());
    let verify = ["release", "verify", "out/manifest.json", "--pins", &a, "--dir", "out"];
    desk.done(&verify);
    desk.write("out/notes.txt", "other");
    let error = desk.fails(4, &verify);
    assert!(error.contains("artifacts[1].sha256") && error.contains("out/notes.txt"), "{error}");
    std::fs::remove_file(desk.path("out/notes.txt")).unwrap();
    assert!(desk.fails(4, &verify).contains("missing"));
}

#[test]
fn a_tampered_manifest_is_refused_with_its_reason() {
    let (desk, a, _) = desk();
    desk.done(&[&SIGN[..], &["--key", "a.pem"]].concat());
    let text = desk.read("out/manifest.json");
    let verify = ["release", "verify", "bad.json", "--pins", &a];
    desk.write("bad.json", &text.replace("groundswell.release", "groundswell.rollout"));
    assert!(desk.fails(4, &verify).contains("malformed"));
    let start = text.find(":\"").unwrap() + 2;
    let body = &text[start..start + text[start..].find('"').unwrap()];
    let change = |from: &str, to: &str| {
        use base64::Engine as _;
        let engine = base64::engine::general_purpose::STANDARD;
        let decoded = String::from_utf8(engine.decode(body).unwrap()).unwrap();
        assert!(decoded.contains(from), "{decoded}");
        text.replace(body, &engine.encode(decoded.replace(from, to)))
    };
    desk.write("bad.json", &change("\"sequence\":1", "\"sequence\":2"));
    assert!(desk.fails(4, &verify).contains("unknown-key: signatures"));
    desk.write("bad.json", &change("\"sequence\":1", "\"sequence\": 1"));
    assert!(desk.fails(4, &verify).contains("not-canonical"));
    let error = desk.fails(2, &["release", "verify", "missing.json", "--pins", &a]);
    assert!(error.contains("missing.json"), "{error}");
    desk.fails(2, &["release", "verify", "bad.json", "--pins", &a, "--threshold", "2"]);
    assert!(desk.fails(4, &["release", "verify", "out/manifest.json", "--pins", &a, "--product", "other"]).contains("product"));
}

#[test]
fn an_expired_release_is_refused_and_a_key_is_never_overwritten() {
    let (desk, a, _) = desk();
    desk.fails(2, &[&SIGN[..], &["--key", "a.pem", "--expires-after", "0s"]].concat());
    assert!(!desk.files("out").contains(&"manifest.json".to_string()));
    desk.done(&[&SIGN[..], &["--key", "a.pem", "--expires-after", "1s"]].concat());
    // Judged by the clock at use: wait for the second to pass on the clock itself.
    let started = std::time::Instant::now();
    let verify = ["release", "verify", "out/manifest.json", "--pins", &a];
    while desk.run(&verify).code == 0 {
        assert!(started.elapsed().as_secs() < 30, "it never expires");
    }
    assert!(desk.fails(4, &verify).contains("expired: expiresAt"));
    let secret = desk.read("a.pem");
    desk.fails(2, &["release", "keygen", "--out", "a.pem"]);
    assert_eq!(desk.read("a.pem"), secret);
}

#[test]
fn a14_one_version_is_not_signed_twice_with_other_bytes() {
    let desk = Desk::with_fleet(&[]);
    desk.release("1.0.0", "1");
    desk.write("other/linux-amd64", "#!/bin/sh\nother\n");
    let line = ["release", "sign", "other", "--product", "bcd", "--key", "keys/release.pem", "--fleet", "fleet"];
    for (version, sequence) in [("1.0.0", "2"), ("1.0.1", "1")] {
        let error = desk.fails(4, &[&line[..], &["--version", version, "--sequence", sequence]].concat());
        assert!(error.contains("conflict"), "{error}");
    }
    assert_eq!(desk.files("other"), ["linux-amd64"]);
    assert_eq!(desk.files("fleet/releases"), ["bcd-1.0.0.json"]);
    let stranger = ["--version", "1.0.1", "--sequence", "2", "--product", "unknown"];
    let line = ["release", "sign", "other", "--key", "keys/release.pem", "--fleet", "fleet"];
    assert!(desk.fails(4, &[&line[..], &stranger].concat()).contains("product"));
    assert!(
        desk.fails(
            2,
            &[
                "release",
                "sign",
                "out/1.0.0",
                "--product",
                "bcd",
                "--version",
                "1.0.0",
                "--sequence",
                "9",
                "--key",
                "keys/release.pem"
            ]
        )
        .contains("manifest")
    );
}

//! Golden bytes: the published form of each kind, from fixed keys. A change here changes what fleets have signed.

use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::tag::{Spec1, TokenType};
use groundswell_core::documents::token::Token;

use crate::fixture::{Fixture, at, next, secret, sign};

#[test]
fn the_published_forms_are_what_they_were() {
    let fixture = Fixture::new();
    let (release, roster, rollout) = fixture.scene();
    let token = Token {
        kind: TokenType,
        spec: Spec1,
        fleet: fixture.id(),
        issued_at: at(5),
        expires_at: at(86_400),
        key: secret(41).public().clone(),
        pools: vec!["edge".parse().unwrap()],
        labels: std::collections::BTreeMap::new(),
        name_pattern: "edge-*".into(),
        max_nodes: 10,
    };
    let documents = [
        ("fleet", fixture.fleet_bytes()),
        ("release", fixture.release_bytes(&release)),
        ("node", fixture.certificate_bytes(&fixture.certificate(31, 1))),
        ("token", sign(&Body::Token(token), &[&fixture.enroll])),
        ("roster", fixture.roster_bytes(&roster)),
        ("rollout", fixture.signed(&rollout)),
        ("rollout generation 2", fixture.signed(&next(&rollout))),
    ];
    let digests: Vec<String> =
        documents.iter().map(|(name, bytes)| format!("{name} {} {}", bytes.len(), Digest::of(bytes))).collect();
    let golden = include_str!("golden/documents.txt");
    assert_eq!(digests.join("\n"), golden.trim_end());
}

#[test]
fn a_certificate_reads_like_this() {
    let fixture = Fixture::new();
    let body = String::from_utf8(Body::Node(fixture.certificate(31, 1)).encode()).unwrap();
    assert_eq!(body, include_str!("golden/certificate.json").trim_end());
}

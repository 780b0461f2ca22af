//! A certificate that a peer shows at a door: judged as if it were taken in, without being taken in, each signature once.

use std::cell::Cell;

use groundswell_core::crypto::{Crypto, SoftwareCrypto};
use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::certificate::Certificate;
use groundswell_core::documents::envelope::{Envelope, Signature};
use groundswell_core::documents::fleet::Fleet;
use groundswell_core::documents::rejection::Reason;
use groundswell_core::limits::{SIGNATURES, SIGNATURES_TRIED};
use groundswell_core::node::admission::admit;
use groundswell_core::node_id::NodeId;
use groundswell_core::trust::key::PublicKey;
use groundswell_core::trust::shelf::{Shelf, Shown};
use groundswell_core::trust::signing::SecretKey;

use crate::fixture::{Fixture, at, crypto, digest, node, offer, role, secret, sign};

/// Counts what is verified.
struct Counting(SoftwareCrypto, Cell<usize>);

impl Crypto for Counting {
    fn node(&self) -> NodeId {
        self.0.node()
    }
    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message)
    }
    fn verify_node(&self, node: &NodeId, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_node(node, message, signature)
    }
    fn verify_es256(&self, key: &PublicKey, hash: &Digest, signature: &[u8; 64]) -> bool {
        self.1.set(self.1.get() + 1);
        self.0.verify_es256(key, hash, signature)
    }
}

fn next_fleet(before: &Fleet, fixture: &Fixture, change: impl FnOnce(&mut Fleet)) -> Fleet {
    let previous = Some(digest(&Body::Fleet(before.clone())));
    let issued_at = at(60 * before.version);
    let mut fleet = Fleet { fleet: Some(fixture.id()), version: before.version + 1, previous, issued_at, ..before.clone() };
    change(&mut fleet);
    fleet
}

/// What the shelf would say had it taken the proof in.
fn trial(shelf: &Shelf, peer: &NodeId, proof: &[u8]) -> Result<(), Reason> {
    let mut trial = shelf.clone();
    trial.offer(proof, false, at(3600), &crypto()).map_err(|rejection| rejection.reason)?;
    trial.member(peer, at(3600)).map(|_| ()).map_err(|rejection| rejection.reason)
}

#[test]
fn a_proof_is_judged_as_if_it_had_been_taken_in() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let with = |seed: u8, serial: u64, change: fn(&mut Certificate)| {
        let mut certificate = fixture.certificate(seed, serial);
        change(&mut certificate);
        fixture.certificate_bytes(&certificate)
    };
    let expired = |certificate: &mut Certificate| certificate.expires_at = Some(at(10));
    let same = |_: &mut Certificate| {};
    // 32 has expired here, 33 is retired, 34 has two bodies, 35 is revoked.
    for known in [with(32, 5, expired), with(33, 2, |it| it.retired = true), with(34, 1, same), with(35, 1, same)] {
        offer(&mut shelf, &known).unwrap();
    }
    offer(&mut shelf, &with(34, 1, |it| it.name = "twin".parse().unwrap())).unwrap();
    let second = next_fleet(&fixture.fleet, &fixture, |fleet| fleet.revoked = vec![node(35)]);
    offer(&mut shelf, &sign(&Body::Fleet(second), &[&fixture.root])).unwrap();
    let proofs = [
        (31, with(31, 1, same)),
        (31, with(31, 1, expired)),
        (31, with(31, 1, |it| it.expires_at = Some(at(7_200)))),
        (31, with(31, 1, |it| it.retired = true)),
        (31, with(31, 1, |it| it.issued_at = at(10 * 86_400))),
        (31, with(31, 1, |it| it.fleet = Digest([9; 32]))),
        (31, sign(&Body::Node(fixture.certificate(31, 1)), &[&secret(99)])),
        (31, b"{}".to_vec()),
        (32, with(32, 6, same)),
        (32, with(32, 5, same)),
        (32, with(32, 5, expired)),
        (32, with(32, 4, same)),
        (33, with(33, 1, same)),
        (33, with(33, 3, same)),
        (34, with(34, 1, same)),
        (34, with(34, 2, same)),
        (35, with(35, 2, same)),
    ];
    for (number, (seed, proof)) in proofs.into_iter().enumerate() {
        let peer = node(seed);
        let judged = admit(&shelf, &peer, &proof, at(3600), &crypto()).map_err(|rejection| rejection.reason);
        assert_eq!(judged, trial(&shelf, &peer, &proof), "proof {number}");
    }
    let anothers = admit(&shelf, &node(36), &with(31, 1, same), at(3600), &crypto());
    assert_eq!(anothers.unwrap_err().reason, Reason::Malformed);
}

#[test]
fn a_forged_certificate_costs_its_signatures_once_however_many_versions_and_keys_there_are() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let more: Vec<SecretKey> = (100..108).map(secret).collect();
    let keys: Vec<&SecretKey> = more.iter().chain([&fixture.enroll]).collect();
    let mut before = fixture.fleet.clone();
    for _ in 0..20 {
        before = next_fleet(&before, &fixture, |fleet| fleet.roles.enroll = role(&keys, 1));
        offer(&mut shelf, &sign(&Body::Fleet(before.clone()), &[&fixture.root])).unwrap();
    }
    // As many signatures as there can be, all under one key, none of them good.
    let body = Body::Node(fixture.certificate(31, 1)).encode();
    let kid = fixture.enroll.pin();
    let signatures = (0..SIGNATURES).map(|n| Signature { kid, sig: [u8::try_from(n).unwrap() + 1; 64] }).collect();
    let forged = Envelope { kind: groundswell_core::documents::Kind::Node, body, signatures }.to_bytes();
    let counting = Counting(crypto(), Cell::new(0));
    let shown = Shown::look(&forged, &fixture.id(), &shelf.enrolling_keys(), &counting).unwrap();
    assert!(shelf.would_be_member(&node(31), &shown, at(3600)).is_err());
    assert!(shelf.would_be_former(&node(31), &shown).is_err());
    assert_eq!(counting.1.get(), SIGNATURES_TRIED, "and of those only a few");
}

#[test]
fn a_key_that_was_removed_while_its_signature_was_looked_at_makes_no_member_any_more() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let proof = fixture.certificate_bytes(&fixture.certificate(31, 1));
    let shown = Shown::look(&proof, &fixture.id(), &shelf.enrolling_keys(), &crypto()).unwrap();
    assert_eq!(shelf.would_be_member(&node(31), &shown, at(3600)), Ok(()));
    let second = next_fleet(&fixture.fleet, &fixture, |fleet| fleet.roles.enroll = role(&[&secret(77)], 1));
    offer(&mut shelf, &sign(&Body::Fleet(second), &[&fixture.root])).unwrap();
    assert_eq!(shelf.would_be_member(&node(31), &shown, at(3600)).unwrap_err().reason, Reason::UnknownKey);
    assert_eq!(shelf.would_be_former(&node(31), &shown), Ok(()), "it was one");
}

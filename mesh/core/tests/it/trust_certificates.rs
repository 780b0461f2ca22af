//! Node certificates: serials, conflicts, retirement, expiry at use, another fleet's.

use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::certificate::Certificate;
use groundswell_core::documents::rejection::Reason;

use crate::fixture::{Fixture, at, crypto, digest, node, offer, refused, secret, sign};

#[test]
fn the_highest_serial_counts_in_whatever_order_they_come() {
    let fixture = Fixture::new();
    for order in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
        let mut shelf = fixture.shelf();
        for serial in order {
            let _ = offer(&mut shelf, &fixture.certificate_bytes(&fixture.certificate(31, serial)));
        }
        assert_eq!(shelf.certificate(&node(31)).unwrap().serial, 3);
        let kept: Vec<u64> =
            shelf.inventory().filter_map(|(digest, _)| shelf.certificate_by_digest(&digest)).map(|c| c.serial).collect();
        assert_eq!(kept.len(), 2, "superseded twice is dropped: {kept:?}");
    }
}

#[test]
fn a_certificate_that_a_roster_names_stays_however_old() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let first = fixture.certificate(31, 1);
    let roster = fixture.roster(1, std::slice::from_ref(&first));
    let roster_digest = shelf.offer_roster(&fixture.roster_bytes(&roster), &crypto()).unwrap().digest;
    assert!(shelf.roster_members(&roster_digest).is_none());
    for serial in [3, 2, 1, 4] {
        offer(&mut shelf, &fixture.certificate_bytes(&fixture.certificate(31, serial))).unwrap();
    }
    assert_eq!(shelf.roster_members(&roster_digest).unwrap()[0].1.serial, 1);
    assert!(shelf.missing_certificates(&roster_digest, 10).is_empty());
}

#[test]
fn two_bodies_of_one_serial_void_both_and_a_higher_serial_settles_it() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let one = fixture.certificate(31, 2);
    let other = Certificate { name: "other".parse().unwrap(), ..one.clone() };
    offer(&mut shelf, &fixture.certificate_bytes(&fixture.certificate(31, 1))).unwrap();
    offer(&mut shelf, &fixture.certificate_bytes(&one)).unwrap();
    let offered = offer(&mut shelf, &fixture.certificate_bytes(&other)).unwrap();
    let mut pair = [digest(&Body::Node(one.clone())), digest(&Body::Node(other))];
    pair.sort();
    assert_eq!(offered.conflict, Some(pair));
    assert_eq!(shelf.certificate(&node(31)), None);
    assert_eq!(shelf.member(&node(31), at(0)).unwrap_err().reason, Reason::Conflict);
    let third = Certificate { name: "third".parse().unwrap(), ..one };
    assert_eq!(refused(&mut shelf, &fixture.certificate_bytes(&third)).0, Reason::Conflict);
    offer(&mut shelf, &fixture.certificate_bytes(&fixture.certificate(31, 3))).unwrap();
    assert!(shelf.member(&node(31), at(0)).is_ok());
}

#[test]
fn retirement_is_final_in_whatever_order_it_comes() {
    let fixture = Fixture::new();
    let retired = Certificate { retired: true, ..fixture.certificate(31, 2) };
    let mut shelf = fixture.shelf();
    offer(&mut shelf, &fixture.certificate_bytes(&retired)).unwrap();
    let back = fixture.certificate_bytes(&fixture.certificate(31, 3));
    assert_eq!(refused(&mut shelf, &back).0, Reason::Revoked);
    let mut shelf = fixture.shelf();
    for serial in [3, 4, 5] {
        offer(&mut shelf, &fixture.certificate_bytes(&fixture.certificate(31, serial))).unwrap();
    }
    offer(&mut shelf, &fixture.certificate_bytes(&retired)).unwrap();
    assert_eq!(shelf.member(&node(31), at(0)).unwrap_err().reason, Reason::Revoked);
}

#[test]
fn k3_a_certificate_expires_at_use_not_at_receipt() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let short = Certificate { expires_at: Some(at(100)), ..fixture.certificate(31, 1) };
    offer(&mut shelf, &fixture.certificate_bytes(&short)).unwrap();
    assert!(shelf.member(&node(31), at(99)).is_ok());
    assert_eq!(shelf.member(&node(31), at(100)).unwrap_err().reason, Reason::Expired);
    assert_eq!(shelf.member(&node(32), at(0)).unwrap_err().reason, Reason::UnknownKey);
}

#[test]
fn d26_a_certificate_of_another_fleet_under_the_same_key_is_refused() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let foreign = Certificate { fleet: Digest::of(b"another fleet"), ..fixture.certificate(31, 1) };
    assert_eq!(refused(&mut shelf, &fixture.certificate_bytes(&foreign)), (Reason::Fleet, "fleet".into()));
}

#[test]
fn signatures_that_were_not_verified_are_stripped_and_good_ones_are_merged() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let [a, b, c] = &fixture.rollout;
    let (_, _, rollout) = fixture.scene();
    let body = Body::Rollout(rollout);
    let offered = offer(&mut shelf, &sign(&body, &[a, b, &secret(99)])).unwrap();
    let mut sorted = [a, b];
    sorted.sort_by_key(|key| key.pin());
    assert_eq!(offered.envelope, sign(&body, &sorted), "the stranger's signature is gone, the rest in order of pins");
    let again = offer(&mut shelf, &sign(&body, &[a])).unwrap();
    assert!(!again.fresh && !again.changed);
    let more = offer(&mut shelf, &sign(&body, &[c])).unwrap();
    assert!(!more.fresh && more.changed);
    assert_eq!(shelf.signers(&more.digest).unwrap().count(), 3);
}

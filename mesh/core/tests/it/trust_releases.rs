//! Releases: who may sign which product, conflicts, how far a sequence may jump.

use groundswell_core::documents::Body;
use groundswell_core::documents::rejection::Reason;
use groundswell_core::limits::{JSON_INTEGER, SEQUENCE_JUMP};
use groundswell_core::text::Product;

use crate::fixture::{Fixture, offer, refused, secret, sign};

#[test]
fn only_a_release_key_of_a_known_product_counts() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let mut release = fixture.release("1.0.0", 1);
    let by_stranger = sign(&Body::Release(release.clone()), &[&secret(99), &fixture.enroll]);
    assert_eq!(refused(&mut shelf, &by_stranger), (Reason::UnknownKey, "signatures".into()));
    release.product = Product::new("other").unwrap();
    assert_eq!(refused(&mut shelf, &fixture.release_bytes(&release)), (Reason::Product, "product".into()));
}

#[test]
fn the_same_release_again_is_known() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let bytes = fixture.release_bytes(&fixture.release("1.0.0", 1));
    assert!(offer(&mut shelf, &bytes).unwrap().fresh);
    let again = offer(&mut shelf, &bytes).unwrap();
    assert!(!again.fresh && !again.changed && again.conflict.is_none());
}

#[test]
fn the_same_version_with_another_sequence_is_a_conflict_and_so_is_the_reverse() {
    let fixture = Fixture::new();
    for (version, sequence) in [("1.0.0", 2), ("1.0.1", 1)] {
        let mut shelf = fixture.shelf();
        let first = offer(&mut shelf, &fixture.release_bytes(&fixture.release("1.0.0", 1))).unwrap();
        let second = offer(&mut shelf, &fixture.release_bytes(&fixture.release(version, sequence))).unwrap();
        assert!(second.conflict.is_some_and(|pair| pair.contains(&first.digest) && pair.contains(&second.digest)));
        assert!(shelf.release_conflicted(&first.digest) && shelf.release_conflicted(&second.digest));
        let settled = offer(&mut shelf, &fixture.release_bytes(&fixture.release("1.1.0", 9))).unwrap();
        assert!(!shelf.release_conflicted(&settled.digest));
    }
}

#[test]
fn a_third_body_is_refused_and_leaves_no_trace() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    for sequence in [1, 2] {
        offer(&mut shelf, &fixture.release_bytes(&fixture.release("1.0.0", sequence))).unwrap();
    }
    assert_eq!(refused(&mut shelf, &fixture.release_bytes(&fixture.release("1.0.0", 900_000))).0, Reason::Conflict);
    assert_eq!(refused(&mut shelf, &fixture.release_bytes(&fixture.release("2.0.0", 1_500_000))).0, Reason::TooLarge);
}

#[test]
fn k4_a_stolen_key_cannot_close_the_channel_with_the_largest_sequence() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    offer(&mut shelf, &fixture.release_bytes(&fixture.release("1.0.0", 14))).unwrap();
    let last = fixture.release_bytes(&fixture.release("9.9.9", JSON_INTEGER));
    assert_eq!(refused(&mut shelf, &last), (Reason::TooLarge, "sequence".into()));
    assert!(offer(&mut shelf, &fixture.release_bytes(&fixture.release("1.0.1", 14 + SEQUENCE_JUMP))).is_ok());
    let (_, roster, _) = fixture.scene();
    let rollout = fixture.rollout("rollout_last", &fixture.release("9.9.9", JSON_INTEGER), &roster);
    assert_eq!(refused(&mut shelf, &fixture.signed(&rollout)), (Reason::TooLarge, "release.sequence".into()));
}

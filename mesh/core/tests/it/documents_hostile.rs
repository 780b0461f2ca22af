//! Every decoder on arbitrary and mutated bytes: never a panic, and only one form of anything is taken.

use std::sync::LazyLock;

use groundswell_core::documents::envelope::Envelope;
use groundswell_core::documents::{Body, Kind};
use groundswell_core::trust::shelf::Shelf;
use proptest::prelude::*;

use crate::fixture::{Fixture, at, crypto};

/// Signed once: signing is the slow part.
static DOCUMENTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let fixture = Fixture::new();
    let (release, roster, rollout) = fixture.scene();
    vec![
        fixture.fleet_bytes(),
        fixture.release_bytes(&release),
        fixture.roster_bytes(&roster),
        fixture.signed(&rollout),
        fixture.certificate_bytes(&fixture.certificate(31, 1)),
    ]
});

static SHELF: LazyLock<Shelf> = LazyLock::new(|| Fixture::new().shelf());

fn mutate(bytes: &mut Vec<u8>, at: usize, with: u8, how: u8) {
    let at = at % bytes.len();
    match how % 4 {
        0 => bytes[at] = with,
        1 => bytes.insert(at, with),
        2 => drop(bytes.remove(at)),
        _ => bytes.truncate(at),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_mutated_body_is_refused_or_means_exactly_its_bytes(
        which in 0usize..5, at in any::<usize>(), with in any::<u8>(), how in any::<u8>()
    ) {
        let envelope = Envelope::parse(&DOCUMENTS[which]).unwrap();
        let mut body = envelope.body;
        mutate(&mut body, at, with, how);
        if let Ok(parsed) = Body::parse(envelope.kind, &body) {
            prop_assert_eq!(parsed.encode(), body);
        }
    }

    #[test]
    fn a_mutated_envelope_never_panics_the_shelf(
        which in 0usize..5, place in any::<usize>(), with in any::<u8>(), how in any::<u8>()
    ) {
        let mut shelf = SHELF.clone();
        let mut bytes = DOCUMENTS[which].clone();
        mutate(&mut bytes, place, with, how);
        let _ = shelf.offer(&bytes, false, at(3600), &crypto());
        let _ = shelf.offer_roster(&bytes, &crypto());
    }

    #[test]
    fn arbitrary_bytes_are_no_body(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0usize..6) {
        prop_assert!(Body::parse(Kind::ALL[kind], &bytes).is_err());
    }
}

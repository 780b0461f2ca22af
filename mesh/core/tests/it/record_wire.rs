//! The wire form of records: golden bytes, one encoding only, nothing accepted that was not signed, and trimming.

use std::sync::LazyLock;

use groundswell_core::crypto::SoftwareCrypto;
use groundswell_core::digest::Digest;
use groundswell_core::limits::{LOG_TAIL_BYTES, STATUS_BYTES};
use groundswell_core::node_id::NodeId;
use groundswell_core::number::Sequence;
use groundswell_core::record::fit::{Oversize, fit};
use groundswell_core::record::grants::{Grants, Promise};
use groundswell_core::record::signed::{RecordBody, RecordError, SignedRecord};
use groundswell_core::record::status::{
    Claim, HoldCode, HoldNotice, Outcome, Phase, Purpose, RolloutSeen, Running, Section, Status, Verdict,
};
use groundswell_core::record::{ClaimName, RecordKey, RecordKind, Stamp};
use groundswell_core::text::{Pool, Product, Reason, RolloutId, Version};
use groundswell_core::time::Timestamp;
use proptest::prelude::*;

const FLEET: Digest = Digest([0xf1; 32]);
const STAMP: Stamp = Stamp { incarnation: 7, counter: 412 };

fn crypto() -> SoftwareCrypto {
    SoftwareCrypto::from_secret(&[1; 32])
}

fn rollout(number: usize) -> RolloutId {
    RolloutId::new(format!("rollout_{number:02}")).unwrap()
}

fn verdict(number: usize, outcome: Outcome) -> Verdict {
    Verdict {
        rollout: rollout(number),
        claim: Some(ClaimName(STAMP)),
        outcome,
        reason: Reason::new("exit code 3: cannot open the database ".repeat(5)).unwrap(),
        confirmed_at: Some(Timestamp::from_seconds(1_796_000_000)),
        soaked_at: None,
    }
}

fn section() -> Section {
    let running = |version: &str, sequence: u8| Running {
        version: Version::new(version).unwrap(),
        sequence: Sequence::new(sequence.into()).unwrap(),
        release: Digest([sequence; 32]),
    };
    Section {
        running: Some(running("1.4.0", 14)),
        from: Some(running("1.3.9", 13)),
        floor: Sequence::new(13).unwrap(),
        rollout: Some(RolloutSeen { id: rollout(1), generation: 2, digest: Digest([9; 32]) }),
        phase: Phase::Claiming,
        hold: Some(HoldNotice { code: HoldCode::Granting, until: None }),
        claim: Some(Claim {
            name: ClaimName(STAMP),
            nonce: 99,
            pool: Pool::new("edge").unwrap(),
            slot: Some(3),
            roster: Digest([5; 32]),
            purpose: Purpose::Rollout(Digest([9; 32])),
        }),
        started_at: Some(Timestamp::from_seconds(1_796_000_000)),
        verdicts: vec![Verdict { reason: Reason::none(), ..verdict(0, Outcome::Soaked) }],
    }
}

fn full_status() -> Status {
    Status {
        addresses: vec!["/ip4/192.0.2.1/tcp/7700".into(), "/ip4/192.0.2.1/udp/7700/quic-v1".into()],
        protocols: vec![1],
        lean: false,
        products: [(Product::new("bcd").unwrap(), section())].into(),
        serves: vec![Digest([4; 32])],
        log: "ready".into(),
    }
}

fn full_grants() -> Grants {
    let promise = Promise {
        pool: Pool::new("edge").unwrap(),
        slot: 3,
        holder: NodeId([8; 32]),
        claim: ClaimName(STAMP),
        nonce: 99,
        roster: Digest([5; 32]),
    };
    Grants { declared: Some(Digest([5; 32])), promises: vec![promise] }
}

fn records() -> &'static [SignedRecord] {
    static RECORDS: LazyLock<Vec<SignedRecord>> = LazyLock::new(|| {
        let bodies = [RecordBody::Status(full_status()), RecordBody::Grants(full_grants())];
        bodies.into_iter().map(|body| SignedRecord::sign(&FLEET, STAMP, body, &crypto()).unwrap()).collect()
    });
    &RECORDS
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn golden_bytes_of_both_kinds() {
    // A change here is a change of the protocol: raise the version byte, and say so in docs/PROTOCOL.md.
    let golden = include_str!("../golden/records.txt");
    let written: String = records().iter().map(|record| format!("{}\n", hex(record.bytes()))).collect();
    assert_eq!(written, golden);
}

#[test]
fn a_signed_record_verifies_as_what_it_was() {
    for record in records() {
        assert_eq!(SignedRecord::verify(&FLEET, record.bytes(), &crypto()).as_ref(), Ok(record));
        assert_eq!(SignedRecord::peek(record.bytes()), Ok((record.key(), record.stamp())));
    }
}

#[test]
fn a_record_means_nothing_in_another_fleet() {
    for record in records() {
        assert_eq!(SignedRecord::verify(&Digest([2; 32]), record.bytes(), &crypto()), Err(RecordError::Signature));
    }
}

#[test]
fn a_record_of_another_version_says_so() {
    let mut bytes = records()[0].bytes().to_vec();
    bytes[0] = 2;
    assert_eq!(SignedRecord::verify(&FLEET, &bytes, &crypto()), Err(RecordError::Version(2)));
    assert_eq!(SignedRecord::verify(&FLEET, &[1; 40_000], &crypto()), Err(RecordError::TooLarge));
    assert_eq!(SignedRecord::verify(&FLEET, &[], &crypto()), Err(RecordError::Malformed));
}

#[test]
fn no_record_is_signed_under_the_stamp_that_stands_for_proofs() {
    assert_eq!(SignedRecord::sign(&FLEET, Stamp::PROOF, RecordBody::Grants(Grants::default()), &crypto()), None);
}

#[test]
fn a_status_beyond_2_kib_is_not_signed() {
    let status = Status { log: "x".repeat(3_000), ..Status::default() };
    assert_eq!(SignedRecord::sign(&FLEET, STAMP, RecordBody::Status(status), &crypto()), None);
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_no_record(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(SignedRecord::verify(&FLEET, &bytes, &crypto()).is_err());
        _ = SignedRecord::peek(&bytes);
    }

    #[test]
    fn a_record_changed_in_any_place_is_refused(kind in 0..2_usize, at in any::<prop::sample::Index>(), flip in 1..=255_u8) {
        let mut bytes = records()[kind].bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(SignedRecord::verify(&FLEET, &bytes, &crypto()).is_err());
    }

    #[test]
    fn a_record_cut_or_lengthened_is_refused(kind in 0..2_usize, keep in any::<prop::sample::Index>(), more in 1..80_usize) {
        let bytes = records()[kind].bytes();
        prop_assert!(SignedRecord::verify(&FLEET, &bytes[..keep.index(bytes.len())], &crypto()).is_err());
        let longer = [bytes, &vec![0; more]].concat();
        prop_assert!(SignedRecord::verify(&FLEET, &longer, &crypto()).is_err());
    }

    #[test]
    fn any_status_that_fits_reads_back(log in "[ -~]{0,200}", lean in any::<bool>(), nonce in any::<u64>(), counter in any::<u64>()) {
        let mut status = Status { log, lean, ..full_status() };
        for section in status.products.values_mut() {
            section.claim.as_mut().unwrap().nonce = nonce;
        }
        let stamp = Stamp { incarnation: 1, counter };
        let record = SignedRecord::sign(&FLEET, stamp, RecordBody::Status(status.clone()), &crypto()).unwrap();
        let read = SignedRecord::verify(&FLEET, record.bytes(), &crypto()).unwrap();
        prop_assert_eq!(read.status(), Some(&status));
        prop_assert_eq!(read.key(), RecordKey { node: record.key().node, kind: RecordKind::Status });
    }
}

fn section_of(status: &mut Status) -> &mut Section {
    status.products.values_mut().next().unwrap()
}

fn signs(status: &Status) -> bool {
    SignedRecord::sign(&FLEET, Stamp { incarnation: u64::MAX, counter: 1 }, RecordBody::Status(status.clone()), &crypto())
        .is_some()
}

#[test]
fn a_status_that_fits_is_left_alone() {
    let mut status = full_status();
    assert_eq!(fit(&mut status, |_| true), Ok(()));
    assert_eq!(status, full_status());
}

#[test]
fn the_log_tail_goes_first_and_its_end_is_what_stays() {
    let mut status = Status { log: format!("{}é end", "x".repeat(900)), ..full_status() };
    assert_eq!(fit(&mut status, |_| false), Ok(()));
    assert!(status.log.ends_with("é end") && status.log.len() <= LOG_TAIL_BYTES);

    section_of(&mut status).verdicts = (0..7).map(|number| verdict(number, Outcome::Failed)).collect();
    let before = status.clone();
    assert_eq!(fit(&mut status, |_| true), Ok(()));
    assert_eq!(status.log, "");
    assert_eq!(status, Status { log: String::new(), ..before });
    assert!(signs(&status));
}

#[test]
fn the_oldest_verdict_of_a_finished_rollout_goes_next() {
    let mut status = full_status();
    section_of(&mut status).verdicts = (0..8).map(|number| verdict(number, Outcome::Failed)).collect();
    // 0 is still going on: it stays, though it is the oldest.
    assert_eq!(fit(&mut status, |id| *id != rollout(0)), Ok(()));
    let left: Vec<RolloutId> = section_of(&mut status).verdicts.iter().map(|verdict| verdict.rollout.clone()).collect();
    assert!(left.len() < 8 && left.contains(&rollout(0)) && left.contains(&rollout(7)) && !left.contains(&rollout(1)));
    assert!(signs(&status));
    assert_eq!(status.serves.len(), 1, "no more than needed goes");
}

#[test]
fn verdicts_of_running_rollouts_claims_and_phases_never_go() {
    let mut status = full_status();
    status.serves = vec![Digest([1; 32]); 40];
    section_of(&mut status).verdicts = (0..8).map(|number| verdict(number, Outcome::Failed)).collect();
    let claim = section_of(&mut status).claim.clone();
    assert_eq!(fit(&mut status, |_| false), Ok(()));
    assert_eq!(section_of(&mut status).verdicts.len(), 8);
    assert_eq!(section_of(&mut status).claim, claim);
    assert!(status.serves.len() < 40);
    assert!(signs(&status));
}

#[test]
fn more_than_eight_verdicts_are_cut_and_too_many_products_are_named() {
    let mut status = full_status();
    section_of(&mut status).verdicts =
        (0..12).map(|number| verdict(number, if number < 3 { Outcome::Failed } else { Outcome::Soaked })).collect();
    assert_eq!(fit(&mut status, |_| false), Ok(()));
    let verdicts = &section_of(&mut status).verdicts;
    assert_eq!(verdicts.iter().filter(|verdict| verdict.outcome == Outcome::Failed).count(), 3, "failures outlive successes");
    assert_eq!(verdicts.len(), 8);

    for number in 0..12 {
        status.products.insert(Product::new(format!("product-{number}")).unwrap(), section());
    }
    let Err(Oversize { bytes }) = fit(&mut status, |_| false) else { panic!("13 products do not fit") };
    assert!(bytes > STATUS_BYTES);
}

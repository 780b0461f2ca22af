//! The margin of section 7: with as many of a slot's wardens lying as it allows no slot has two holders; one more may do it,
//! and who says two things under one number is convicted wherever both arrive.

use groundswell_core::crypto::SoftwareCrypto;
use groundswell_core::lease::claim::SeenClaim;
use groundswell_core::lease::start::{MadeAt, Start, StartFacts, may_start};
use groundswell_core::lease::wardens::Quorum;
use groundswell_core::record::grants::Grants;
use groundswell_core::record::ledger::{Ledger, Merged};
use groundswell_core::record::signed::{RecordBody, SignedRecord};

use super::fleet::{Fleet, digest, roster};
use super::mesh::{Mesh, node, stamp};
use super::stage::at;

const A: u8 = 50;
const B: u8 = 51;

/// Whether the holder of `claim` starts, when `liars` tell it what it wants to hear.
fn starts(fleet: &Fleet, number: u8, claim: &SeenClaim, liars: &[groundswell_core::node_id::NodeId]) -> bool {
    let mut told: Mesh = fleet.mesh.clone();
    for liar in liars {
        let lie = Grants { declared: Some(digest(number)), promises: vec![claim.promise()] };
        told.grants.insert(*liar, lie);
    }
    let now = at(100, 100);
    let facts = StartFacts {
        made: Some(MadeAt::now(&now)),
        now,
        start_within_ms: 60_000,
        stopped: false,
        older_generation: false,
        roster_moved: false,
        wardens: fleet.map(number).wardens(&claim.slot),
        synced: Ok(()),
    };
    may_start(claim, &facts, &told) == Start::Yes
}

/// Under one roster of `nodes` nodes, `liars` of the slot's wardens promise everybody everything; the honest ones are split
/// between A and B as it suits the liars best. Whether both start.
fn both_start(nodes: u8, liars: usize) -> bool {
    let wardens = Quorum::of(usize::from(nodes)).unwrap();
    let honest = wardens.wardens - liars;
    (0..=honest).any(|for_a| {
        let mut fleet = Fleet::with(vec![roster(1, 1, &[], 1, 0..nodes, 1)]);
        let w = fleet.wardens(1, 0);
        let (lying, honest) = w.split_at(liars);
        let (first, second) = honest.split_at(for_a);
        let a = fleet.claims(A, 5, 0, 1);
        fleet.all_look(first, &[1]);
        let b = fleet.claims(B, 7, 0, 1);
        // These heard of B alone.
        let whole = fleet.mesh.clone();
        fleet.mesh.statuses.remove(&node(A));
        fleet.all_look(second, &[1]);
        fleet.mesh.statuses = whole.statuses;
        starts(&fleet, 1, &a, lying) && starts(&fleet, 1, &b, lying)
    })
}

#[test]
fn with_as_many_liars_as_a_slot_tolerates_it_never_has_two_holders_and_one_more_breaks_it() {
    for nodes in [1, 3, 4, 5, 6, 7, 8, 9, 20] {
        let may_lie = Quorum::of(usize::from(nodes)).unwrap().may_lie;
        for liars in 0..=may_lie {
            assert!(!both_start(nodes, liars), "{nodes} nodes, {liars} liars");
        }
        assert!(both_start(nodes, may_lie + 1), "{nodes} nodes, {} liars: the table promises no more", may_lie + 1);
    }
}

/// Liars at a change of rosters: they promised A under the old one, and say that they have gone on and listed nothing.
fn breaks_at_a_change(liars: usize) -> bool {
    let mut fleet = Fleet::with(vec![roster(1, 1, &[], 1, 0..9, 1), roster(2, 2, &[1], 1, 10..19, 1)]);
    let w = fleet.wardens(1, 0);
    let (lying, honest) = w.split_at(liars);
    let a = fleet.claims(A, 5, 0, 1);
    // A needs six; the liars are among those that grant it.
    fleet.all_look(&w[..6], &[1]);
    assert!(starts(&fleet, 1, &a, lying));
    fleet.starts(A, &a);
    fleet.all_look(honest, &[1, 2]);
    for liar in lying {
        fleet.mesh.grants.insert(*liar, Grants { declared: Some(digest(2)), promises: Vec::new() });
    }
    let b = fleet.claims(B, 7, 0, 2);
    let x = fleet.wardens(2, 0);
    fleet.all_look(&x, &[1, 2]);
    starts(&fleet, 2, &b, &[])
}

#[test]
fn nor_at_a_change_of_rosters() {
    assert!(!breaks_at_a_change(0) && !breaks_at_a_change(1) && !breaks_at_a_change(2));
    assert!(breaks_at_a_change(3), "one more than may lie");
}

#[test]
fn a_liar_that_says_two_things_under_one_number_is_convicted_and_counts_for_nothing() {
    let crypto = SoftwareCrypto::from_secret(&[7; 32]);
    let mut fleet = Fleet::with(vec![roster(1, 1, &[], 1, 0..4, 1)]);
    let (a, b) = (fleet.claims(A, 5, 0, 1), fleet.claims(B, 7, 0, 1));
    let says = |claim: &SeenClaim| {
        let grants = Grants { declared: Some(digest(1)), promises: vec![claim.promise()] };
        SignedRecord::sign(&digest(9), stamp(3), RecordBody::Grants(grants), &crypto).unwrap()
    };
    let mut ledger = Ledger::new();
    assert_eq!(ledger.merge(says(&a)), Merged::New);
    assert_eq!(ledger.merge(says(&b)), Merged::Convicted, "reported by everyone that sees both");
    let liar = says(&a).key().node;
    assert!(ledger.is_convicted(&liar));
    assert_eq!(ledger.promises(&liar).count(), 2, "what it listed is still honoured");
    // Convicted, it grants nothing: of four wardens three must be left.
    let w = fleet.wardens(1, 0);
    fleet.all_look(&w[1..3], &[1]);
    fleet.mesh.convicted.insert(w[0]);
    assert!(!starts(&fleet, 1, &a, &w[..1]));
}

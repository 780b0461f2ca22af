//! Rollouts: thresholds, generations in any order, rivals, and the brake that one key may pull.

use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::rejection::Reason;
use groundswell_core::documents::rollout::{Forgiven, Rollout, State};
use groundswell_core::limits::BRAKES;
use groundswell_core::number::Ppm;
use groundswell_core::text::{Product, Reason as Because, RolloutId};
use groundswell_core::trust::local::{LocalTrust, Raise};
use groundswell_core::trust::shelf::Shelf;

use crate::fixture::{Fixture, at, crypto, digest, next, node, offer, paused, refused, sign};

fn id() -> RolloutId {
    RolloutId::new("rollout_a").unwrap()
}

fn state(shelf: &Shelf) -> State {
    shelf.rollout(&id()).unwrap().state()
}

fn generation(shelf: &Shelf) -> u64 {
    shelf.rollout(&id()).unwrap().rollout.generation.get()
}

/// A shelf with generation 1 in force, running.
fn running(fixture: &Fixture) -> (Shelf, Rollout) {
    let mut shelf = fixture.shelf();
    let (_, _, rollout) = fixture.scene();
    offer(&mut shelf, &fixture.signed(&rollout)).unwrap();
    (shelf, rollout)
}

#[test]
fn k1_two_signatures_of_one_key_are_one() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let (_, _, rollout) = fixture.scene();
    let [a, b, _] = &fixture.rollout;
    let twice = sign(&Body::Rollout(rollout.clone()), &[a, a]);
    assert_eq!(refused(&mut shelf, &twice), (Reason::Threshold, "signatures".into()));
    let foreign = sign(&Body::Rollout(rollout.clone()), &[a, &fixture.release]);
    assert_eq!(refused(&mut shelf, &foreign), (Reason::Threshold, "signatures".into()));
    assert!(offer(&mut shelf, &sign(&Body::Rollout(rollout), &[a, b])).is_ok());
}

#[test]
fn d26_a_rollout_of_another_fleet_or_of_an_unknown_product_is_refused() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let (_, _, rollout) = fixture.scene();
    let foreign = Rollout { fleet: Digest::of(b"another"), ..rollout.clone() };
    assert_eq!(refused(&mut shelf, &fixture.signed(&foreign)).0, Reason::Fleet);
    let mut unknown = rollout;
    unknown.release.product = Product::new("other").unwrap();
    assert_eq!(refused(&mut shelf, &fixture.signed(&unknown)), (Reason::Product, "release.product".into()));
}

#[test]
fn k2_k3_an_expired_rollout_is_taken_and_judged_at_use() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let (_, _, rollout) = fixture.scene();
    let late = at(60 * 86_400);
    shelf.offer(&fixture.signed(&rollout), false, late, &crypto()).unwrap();
    assert!(shelf.rollout(&id()).unwrap().rollout.expires_at < shelf.time(late));
}

#[test]
fn one_key_pauses_and_aborts_but_does_not_resume() {
    let fixture = Fixture::new();
    let (mut shelf, first) = running(&fixture);
    let brake = Rollout { reason: Because::new("smoke in the lab").unwrap(), ..paused(&first) };
    offer(&mut shelf, &fixture.signed_by_one(&brake)).unwrap();
    assert_eq!(state(&shelf), State::Paused);
    let resumed = Rollout { state: State::Running, ..next(&brake) };
    assert_eq!(refused(&mut shelf, &fixture.signed_by_one(&resumed)).0, Reason::Threshold);
    let aborted = Rollout { state: State::Aborted, ..next(&brake) };
    let mut with_rollback = aborted.clone();
    with_rollback.rollback = true;
    assert_eq!(refused(&mut shelf, &fixture.signed_by_one(&with_rollback)).0, Reason::Threshold);
    offer(&mut shelf, &fixture.signed_by_one(&aborted)).unwrap();
    assert_eq!(state(&shelf), State::Aborted);
    let revived = Rollout { state: State::Running, ..next(&aborted) };
    assert_eq!(refused(&mut shelf, &fixture.signed(&revived)), (Reason::Rollback, "state".into()));
}

#[test]
fn d45_a_brake_by_one_key_smuggles_nothing() {
    let fixture = Fixture::new();
    let (mut shelf, first) = running(&fixture);
    let brake = paused(&first);
    let forgiving = Rollout { forgiven: vec![Forgiven { node: node(31), claim: None, retry: true }], ..brake.clone() };
    let lowering = Rollout { min_soaked_ppm: Ppm::ZERO, ..brake.clone() };
    let leaping = Rollout { generation: brake.generation.next().unwrap(), ..brake.clone() };
    let unlinked = Rollout { previous: Some(Digest::of(b"elsewhere")), ..brake.clone() };
    for smuggled in [forgiving, lowering, leaping, unlinked] {
        assert_eq!(refused(&mut shelf, &fixture.signed_by_one(&smuggled)), (Reason::Threshold, "signatures".into()));
    }
    assert!(offer(&mut shelf, &fixture.signed_by_one(&brake)).is_ok());
}

#[test]
fn a_brake_acts_after_the_rollout_has_expired() {
    let fixture = Fixture::new();
    let (mut shelf, first) = running(&fixture);
    let brake = Rollout { issued_at: first.expires_at.plus_seconds(5), ..paused(&first) };
    shelf.offer(&fixture.signed_by_one(&brake), false, brake.issued_at, &crypto()).unwrap();
    assert_eq!(state(&shelf), State::Paused);
}

#[test]
fn d7_two_brakes_at_once_still_brake_and_the_next_number_settles_it() {
    let fixture = Fixture::new();
    let (mut shelf, first) = running(&fixture);
    let one = paused(&first);
    let other = Rollout { issued_at: one.issued_at.plus_seconds(1), ..one.clone() };
    offer(&mut shelf, &fixture.signed_by_one(&one)).unwrap();
    let offered = offer(&mut shelf, &fixture.signed_by_one(&other)).unwrap();
    assert!(offered.conflict.is_some());
    assert!(shelf.rollout(&id()).unwrap().conflicted);
    assert_eq!(state(&shelf), State::Paused);
    let aborted = Rollout { state: State::Aborted, ..next(&other) };
    let mut braked = shelf.clone();
    offer(&mut braked, &fixture.signed_by_one(&aborted)).unwrap();
    assert_eq!(state(&braked), State::Aborted);
    let resumed = Rollout { state: State::Running, ..next(&one) };
    offer(&mut shelf, &fixture.signed(&resumed)).unwrap();
    assert_eq!(state(&shelf), State::Running);
    assert!(!shelf.rollout(&id()).unwrap().conflicted);
}

#[test]
fn a_brake_against_an_advance_of_the_same_number_pauses() {
    let fixture = Fixture::new();
    let (mut shelf, first) = running(&fixture);
    let advance = Rollout { open_waves: 2, ..next(&first) };
    offer(&mut shelf, &fixture.signed(&advance)).unwrap();
    assert_eq!(state(&shelf), State::Running);
    offer(&mut shelf, &fixture.signed_by_one(&paused(&first))).unwrap();
    assert_eq!(state(&shelf), State::Paused);
}

#[test]
fn two_aborts_are_an_abort() {
    let fixture = Fixture::new();
    let (mut shelf, first) = running(&fixture);
    let one = Rollout { state: State::Aborted, ..next(&first) };
    let other = Rollout { issued_at: one.issued_at.plus_seconds(1), ..one.clone() };
    offer(&mut shelf, &fixture.signed_by_one(&one)).unwrap();
    offer(&mut shelf, &fixture.signed_by_one(&other)).unwrap();
    assert_eq!(state(&shelf), State::Aborted);
}

#[test]
fn generations_may_come_in_any_order_and_end_the_same() {
    let fixture = Fixture::new();
    let (_, _, first) = fixture.scene();
    let second = paused(&first);
    let third = Rollout { state: State::Running, ..next(&second) };
    let all = [first, second, third];
    for order in [[0, 1, 2], [2, 1, 0], [2, 0, 1], [1, 2, 0], [1, 0, 2], [0, 2, 1]] {
        let mut shelf = fixture.shelf();
        for index in order {
            let _ = offer(&mut shelf, &fixture.signed(&all[index]));
        }
        assert_eq!((generation(&shelf), state(&shelf)), (3, State::Running), "{order:?}");
        assert!(shelf.rollout_by_digest(&digest(&Body::Rollout(all[0].clone()))).is_none(), "superseded twice");
        assert_eq!(refused(&mut shelf, &fixture.signed(&all[0])).0, Reason::Rollback);
    }
}

#[test]
fn what_a_brake_stands_on_stays_and_survives_a_restart() {
    let fixture = Fixture::new();
    let (mut shelf, first) = running(&fixture);
    let mut last = first;
    for _ in 0..BRAKES {
        last = paused(&last);
        offer(&mut shelf, &fixture.signed_by_one(&last)).unwrap();
    }
    assert_eq!(refused(&mut shelf, &fixture.signed_by_one(&paused(&last))).0, Reason::Threshold);
    let stored: Vec<Vec<u8>> = shelf.inventory().map(|(digest, _)| shelf.envelope(&digest).unwrap().to_vec()).collect();
    let mut again = fixture.empty_shelf();
    assert_eq!(again.restore(stored, &crypto()), []);
    assert_eq!(again.drop_fallen(), []);
    assert_eq!(state(&again), State::Paused);
    let resumed = Rollout { state: State::Running, ..next(&last) };
    offer(&mut shelf, &fixture.signed(&resumed)).unwrap();
    let further = next(&resumed);
    let dropped = offer(&mut shelf, &fixture.signed(&further)).unwrap().dropped;
    assert_eq!(dropped.len(), BRAKES + 1, "the chain leaves with the last that stood on it");
}

#[test]
fn a_generation_keeps_what_its_rollout_is_and_what_was_forgiven() {
    let fixture = Fixture::new();
    let (mut shelf, first) = running(&fixture);
    let forgiving = Rollout { forgiven: vec![Forgiven { node: node(31), claim: None, retry: true }], ..next(&first) };
    let mut moved = next(&first);
    moved.roster.version += 1;
    assert_eq!(refused(&mut shelf, &fixture.signed(&moved)), (Reason::Malformed, "roster".into()));
    offer(&mut shelf, &fixture.signed(&forgiving)).unwrap();
    let forgetting = Rollout { forgiven: Vec::new(), ..next(&forgiving) };
    assert_eq!(refused(&mut shelf, &fixture.signed(&forgetting)), (Reason::Malformed, "forgiven".into()));
}

#[test]
fn a_successor_of_an_abort_that_came_first_falls_when_the_abort_comes() {
    let fixture = Fixture::new();
    let (mut shelf, first) = running(&fixture);
    let aborted = Rollout { state: State::Aborted, ..next(&first) };
    let revived = Rollout { state: State::Running, ..next(&aborted) };
    let revived_digest = offer(&mut shelf, &fixture.signed(&revived)).unwrap().digest;
    let offered = offer(&mut shelf, &fixture.signed_by_one(&aborted)).unwrap();
    assert_eq!(offered.dropped, [revived_digest]);
    assert_eq!(state(&shelf), State::Aborted);
}

#[test]
fn every_wave_soaks_at_least_as_long_as_root_demands() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let (_, _, mut rollout) = fixture.scene();
    rollout.waves[1].soak_seconds = 9;
    assert_eq!(refused(&mut shelf, &fixture.signed(&rollout)), (Reason::Limits, "waves[1].soakSeconds".into()));
}

#[test]
fn a_rollout_that_misstates_its_release_is_refused_or_falls_when_the_release_comes() {
    let fixture = Fixture::new();
    let (release, _, mut rollout) = fixture.scene();
    rollout.release.sequence = groundswell_core::number::Sequence::new(2).unwrap();
    let mut shelf = fixture.shelf();
    offer(&mut shelf, &fixture.release_bytes(&release)).unwrap();
    assert_eq!(refused(&mut shelf, &fixture.signed(&rollout)), (Reason::Malformed, "release".into()));
    let mut shelf = fixture.shelf();
    let wrong = offer(&mut shelf, &fixture.signed(&rollout)).unwrap().digest;
    assert_eq!(offer(&mut shelf, &fixture.release_bytes(&release)).unwrap().dropped, [wrong]);
    assert!(shelf.rollout(&id()).is_none());
}

#[test]
fn a_node_may_ask_for_more_than_the_fleet_before_it_starts_itself() {
    let fixture = Fixture::new();
    let local = LocalTrust { rollout: Raise { threshold: 3, ..Raise::default() }, ..LocalTrust::default() };
    let mut shelf = Shelf::new(fixture.id(), local);
    offer(&mut shelf, &fixture.fleet_bytes()).unwrap();
    let (release, _, rollout) = fixture.scene();
    let release = offer(&mut shelf, &fixture.release_bytes(&release)).unwrap().digest;
    let digest = offer(&mut shelf, &fixture.signed(&rollout)).unwrap().digest;
    assert!(shelf.locally_trusted(&release).is_ok());
    assert_eq!(shelf.locally_trusted(&digest).unwrap_err().reason, Reason::Threshold);
    offer(&mut shelf, &fixture.signed_by_one(&rollout)).unwrap();
    assert!(shelf.locally_trusted(&digest).is_ok());
}

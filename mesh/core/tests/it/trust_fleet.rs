//! Fleet documents: the first by its digest, later ones by the root before them and their own; floor time; revocation.

use groundswell_core::documents::Body;
use groundswell_core::documents::fleet::Fleet;
use groundswell_core::documents::rejection::Reason;
use groundswell_core::spread::{Documents, Paper};

use crate::fixture::{Fixture, at, crypto, digest, node, offer, refused, role, secret, sign};

fn version(fixture: &Fixture, before: &Fleet, version: u64) -> Fleet {
    Fleet {
        fleet: Some(fixture.id()),
        version,
        previous: Some(digest(&Body::Fleet(before.clone()))),
        issued_at: before.issued_at.plus_seconds(86_400),
        ..before.clone()
    }
}

#[test]
fn nothing_is_taken_before_the_fleet_document_and_only_the_right_one_is() {
    let fixture = Fixture::new();
    let mut shelf = fixture.empty_shelf();
    let certificate = fixture.certificate_bytes(&fixture.certificate(31, 1));
    assert_eq!(refused(&mut shelf, &certificate).0, Reason::Fleet);
    let other = Fleet { expires_at: at(5), ..fixture.fleet.clone() };
    assert_eq!(refused(&mut shelf, &sign(&Body::Fleet(other), &[&fixture.root])).0, Reason::Fleet);
    let unsigned = sign(&Body::Fleet(fixture.fleet.clone()), &[&secret(99)]);
    assert_eq!(refused(&mut shelf, &unsigned).0, Reason::UnknownKey);
    assert!(offer(&mut shelf, &fixture.fleet_bytes()).unwrap().fresh);
    assert!(offer(&mut shelf, &certificate).unwrap().fresh);
}

#[test]
fn a_machine_in_1970_takes_its_first_fleet_document() {
    let fixture = Fixture::new();
    let mut shelf = fixture.empty_shelf();
    let wall = groundswell_core::time::Timestamp::from_seconds(5);
    shelf.offer(&fixture.fleet_bytes(), false, wall, &crypto()).unwrap();
    assert_eq!(shelf.floor_time(), at(0));
    let release = fixture.release_bytes(&fixture.release("1.0.0", 1));
    shelf.offer(&release, false, wall, &crypto()).unwrap();
    assert_eq!(shelf.time(wall), at(2));
}

#[test]
fn k5_a_node_walks_three_versions_each_signed_by_the_root_before_and_its_own() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let (second_root, third_root) = (secret(51), secret(52));
    let mut two = version(&fixture, &fixture.fleet, 2);
    two.roles.root = role(&[&second_root], 1);
    let mut three = version(&fixture, &two, 3);
    three.roles.root = role(&[&third_root], 1);
    let three_bytes = sign(&Body::Fleet(three.clone()), &[&second_root, &third_root]);

    assert_eq!(refused(&mut shelf, &three_bytes), (Reason::Fleet, "previous".into()));
    let by_old_alone = sign(&Body::Fleet(two.clone()), &[&fixture.root]);
    assert_eq!(refused(&mut shelf, &by_old_alone).0, Reason::UnknownKey);
    let by_new_alone = sign(&Body::Fleet(two.clone()), &[&second_root]);
    assert_eq!(refused(&mut shelf, &by_new_alone).0, Reason::UnknownKey);

    shelf.offer(&sign(&Body::Fleet(two), &[&fixture.root, &second_root]), false, at(400 * 86_400), &crypto()).unwrap();
    shelf.offer(&three_bytes, false, at(400 * 86_400), &crypto()).unwrap();
    assert_eq!(shelf.fleet().unwrap().version, 3);
    assert_eq!(shelf.inventory().count(), 3, "all versions stay for those who walk later");
}

#[test]
fn l2_one_sync_brings_every_version_that_a_node_missed_and_what_the_last_one_vouches_for() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let mut newest = fixture.fleet.clone();
    let enroll = secret(61);
    for number in 2..=12 {
        newest = version(&fixture, &newest, number);
        newest.roles.enroll = role(&[&enroll], 1);
        offer(&mut shelf, &sign(&Body::Fleet(newest.clone()), &[&fixture.root])).unwrap();
    }
    let certificate = sign(&Body::Node(fixture.certificate(31, 1)), &[&enroll]);
    offer(&mut shelf, &certificate).unwrap();
    // As sync gives them, whatever their digests.
    let mut papers: Vec<Paper> = Documents::inventory(&shelf).range(&[]).map(|(_, paper)| *paper).collect();
    papers.sort();
    let mut missed_them = fixture.shelf();
    for paper in papers {
        offer(&mut missed_them, shelf.envelope(&paper.digest).unwrap()).unwrap();
    }
    assert_eq!(missed_them.fleet().unwrap().version, 12);
    assert!(missed_them.member(&node(31), at(3600)).is_ok());
}

#[test]
fn a_rival_version_stops_everything_until_a_later_one_names_one_of_them() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let two = version(&fixture, &fixture.fleet, 2);
    let rival = Fleet { revoked: vec![node(31)], ..two.clone() };
    offer(&mut shelf, &sign(&Body::Fleet(two), &[&fixture.root])).unwrap();
    assert!(!shelf.fleet_conflicted());
    let offered = offer(&mut shelf, &sign(&Body::Fleet(rival.clone()), &[&fixture.root])).unwrap();
    assert!(offered.conflict.is_some());
    assert!(shelf.fleet_conflicted());
    assert_eq!(shelf.member(&node(31), at(0)).unwrap_err().reason, Reason::Revoked, "a rival's revocation already counts");
    let three = version(&fixture, &rival, 3);
    shelf.offer(&sign(&Body::Fleet(three), &[&fixture.root]), false, at(3 * 86_400), &crypto()).unwrap();
    assert!(!shelf.fleet_conflicted());
    assert_eq!(shelf.fleet().unwrap().version, 3);
}

#[test]
fn d25_a_clock_in_2099_moves_no_floor_and_a_fleet_version_resets_it() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let (release, _, mut rollout) = fixture.scene();
    offer(&mut shelf, &fixture.release_bytes(&release)).unwrap();
    rollout.issued_at = "2099-01-01T00:00:00Z".parse().unwrap();
    rollout.expires_at = "2099-06-01T00:00:00Z".parse().unwrap();
    assert_eq!(refused(&mut shelf, &fixture.signed(&rollout)), (Reason::NotYetValid, "issuedAt".into()));
    assert_eq!(shelf.floor_time(), at(2));

    // A machine whose clock stands below the floor cannot tell, and takes it; root sets its floor right again.
    let wall = groundswell_core::time::Timestamp::from_seconds(5);
    shelf.offer(&fixture.signed(&rollout), false, wall, &crypto()).unwrap();
    assert_eq!(shelf.floor_time(), rollout.issued_at);
    let two = version(&fixture, &fixture.fleet, 2);
    shelf.offer(&sign(&Body::Fleet(two), &[&fixture.root]), false, wall, &crypto()).unwrap();
    assert_eq!(shelf.floor_time(), at(86_400));
}

#[test]
fn an_issue_a_day_ahead_is_taken_and_a_second_more_is_not() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let mut release = fixture.release("1.0.0", 1);
    release.issued_at = at(3600 + 86_401);
    assert_eq!(refused(&mut shelf, &fixture.release_bytes(&release)).0, Reason::NotYetValid);
    release.issued_at = at(3600 + 86_400);
    assert!(offer(&mut shelf, &fixture.release_bytes(&release)).is_ok());
}

#[test]
fn what_a_new_version_no_longer_vouches_for_leaves() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let (release, _, rollout) = fixture.scene();
    let release_digest = offer(&mut shelf, &fixture.release_bytes(&release)).unwrap().digest;
    let rollout_digest = offer(&mut shelf, &fixture.signed(&rollout)).unwrap().digest;
    let certificate = offer(&mut shelf, &fixture.certificate_bytes(&fixture.certificate(31, 1))).unwrap().digest;
    let mut two = version(&fixture, &fixture.fleet, 2);
    two.roles.enroll = role(&[&secret(61)], 1);
    two.roles.rollout = role(&[&secret(62)], 1);
    let offered = offer(&mut shelf, &sign(&Body::Fleet(two), &[&fixture.root])).unwrap();
    let mut expected = vec![rollout_digest, certificate];
    expected.sort();
    assert_eq!(offered.dropped, expected);
    assert!(shelf.release(&release_digest).is_some());
    assert_eq!(shelf.rollouts().count(), 0);
}

#[test]
fn what_left_and_lies_in_the_store_again_does_not_count_again() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let (release, roster, rollout) = fixture.scene();
    let listed = fixture.certificate(31, 1);
    let all = [fixture.release_bytes(&release), fixture.signed(&rollout), fixture.certificate_bytes(&listed)];
    for bytes in &all {
        offer(&mut shelf, bytes).unwrap();
    }
    shelf.offer_roster(&fixture.roster_bytes(&roster), &crypto()).unwrap();
    let brake = fixture.signed(&crate::fixture::paused(&rollout));
    offer(&mut shelf, &brake).unwrap();
    let mut two = version(&fixture, &fixture.fleet, 2);
    two.roles.rollout = role(&[&secret(62)], 1);
    let newer = sign(&Body::Fleet(two.clone()), &[&fixture.root]);
    let left = offer(&mut shelf, &newer).unwrap().dropped;
    assert_eq!(left.len(), 3, "roster, rollout, and the brake with it");

    // The store has all of them once more: the power failed before their removal was on disk.
    let mut stored = vec![fixture.fleet_bytes(), newer.clone(), fixture.roster_bytes(&roster), brake];
    stored.extend(all);
    let mut again = fixture.empty_shelf();
    assert_eq!(again.restore(stored.clone(), &crypto()), []);
    let mut fallen = again.drop_fallen();
    fallen.sort();
    assert_eq!(fallen, left);
    assert!(again.inventory().eq(shelf.inventory()));
    assert_eq!((again.rollouts().count(), again.rosters().count()), (0, 0));
    assert_eq!(again.drop_fallen(), []);

    // Under two bodies of one version nothing starts, and nobody knows any more which was here first: nothing falls.
    let rival = Fleet { revoked: vec![node(32)], ..two };
    stored.push(sign(&Body::Fleet(rival), &[&fixture.root]));
    let mut conflicted = fixture.empty_shelf();
    assert_eq!(conflicted.restore(stored, &crypto()), []);
    assert_eq!(conflicted.drop_fallen(), []);
    assert!(conflicted.fleet_conflicted());
}

#[test]
fn d24_the_anchor_keeps_certificates_of_a_removed_key_and_no_later_ones() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let listed = fixture.certificate(31, 1);
    let roster = fixture.roster(1, std::slice::from_ref(&listed));
    let kept = offer(&mut shelf, &fixture.certificate_bytes(&listed)).unwrap();
    shelf.offer_roster(&fixture.roster_bytes(&roster), &crypto()).unwrap();
    let mut two = version(&fixture, &fixture.fleet, 2);
    two.roles.enroll = role(&[&secret(61)], 1);
    two.anchor = Some(digest(&Body::Roster(roster)));
    let offered = offer(&mut shelf, &sign(&Body::Fleet(two), &[&fixture.root])).unwrap();
    assert_eq!(offered.dropped, []);
    assert!(shelf.member(&node(31), at(0)).is_ok());
    let later = fixture.certificate_bytes(&fixture.certificate(32, 1));
    assert_eq!(refused(&mut shelf, &later).0, Reason::UnknownKey);

    // A node that starts with its store has the same.
    let stored: Vec<Vec<u8>> = shelf
        .inventory()
        .map(|(digest, _)| digest)
        .chain(shelf.rosters().map(|(digest, _)| digest))
        .map(|digest| shelf.envelope(&digest).unwrap().to_vec())
        .collect();
    let mut again = fixture.empty_shelf();
    assert_eq!(again.restore(stored, &crypto()), []);
    assert_eq!(again.drop_fallen(), [], "what the anchor keeps stands");
    assert_eq!(again.envelope(&kept.digest), Some(kept.envelope.as_slice()));
}

#[test]
fn the_store_is_verified_again_in_any_order_but_not_by_time() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let (release, roster, rollout) = fixture.scene();
    for bytes in [fixture.release_bytes(&release), fixture.signed(&rollout)] {
        offer(&mut shelf, &bytes).unwrap();
    }
    shelf.offer_roster(&fixture.roster_bytes(&roster), &crypto()).unwrap();
    let mut stored =
        vec![fixture.signed(&rollout), fixture.roster_bytes(&roster), fixture.release_bytes(&release), fixture.fleet_bytes()];
    stored.push(b"rubbish".to_vec());
    let mut again = fixture.empty_shelf();
    let refused = again.restore(stored, &crypto());
    assert_eq!(refused.len(), 1);
    again.restore_floor_time(shelf.floor_time());
    assert!(again.inventory().eq(shelf.inventory()));
    assert_eq!(again.rollouts().collect::<Vec<_>>(), shelf.rollouts().collect::<Vec<_>>());
    assert_eq!(again.floor_time(), shelf.floor_time());
}

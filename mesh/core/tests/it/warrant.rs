//! What documents alone warrant on one node, and each way in which they do not.

use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::release::Block;
use groundswell_core::documents::rollout::{Forgiven, State};
use groundswell_core::node::hold::Hold;
use groundswell_core::node::warrant::{Asking, Unwarranted, Warrant, warrant};
use groundswell_core::node_id::NodeId;
use groundswell_core::number::Sequence;
use groundswell_core::record::status::Running;
use groundswell_core::record::{ClaimName, Stamp};
use groundswell_core::rollout::applies::Skip;
use groundswell_core::text::{Platform, Pool, Reason, RolloutId, Version};
use groundswell_core::time::Timestamp;
use groundswell_core::trust::shelf::Shelf;

use super::fixture::*;

/// Node 31 with its certificate, the roster that lists it, the release and its rollout.
fn shelf(fixture: &Fixture) -> Shelf {
    let mut shelf = fixture.shelf();
    let (release, roster, rollout) = fixture.scene();
    offer(&mut shelf, &fixture.certificate_bytes(&fixture.certificate(31, 1))).unwrap();
    offer(&mut shelf, &fixture.roster_bytes(&roster)).unwrap();
    offer(&mut shelf, &fixture.release_bytes(&release)).unwrap();
    offer(&mut shelf, &fixture.signed(&rollout)).unwrap();
    shelf
}

/// What is true on the machine that asks.
struct Machine {
    node: NodeId,
    platform: Platform,
    version_lock: Option<&'static str>,
    running: Option<Running>,
    floor: Sequence,
    wall: Timestamp,
}

fn ask(shelf: &Shelf, release: &Digest, change: impl FnOnce(&mut Machine)) -> Result<Warrant, Unwarranted> {
    let platform = Platform::new("linux-amd64").unwrap();
    let (floor, wall) = (Sequence::default(), at(3600));
    let mut machine = Machine { node: node(31), platform, version_lock: None, running: None, floor, wall };
    change(&mut machine);
    let Machine { node, platform, version_lock, running, floor, wall } = &machine;
    let (product, running) = (product(), running.as_ref());
    let (version_lock, floor, wall) = (*version_lock, *floor, *wall);
    warrant(shelf, &Asking { node, product: &product, release, platform, version_lock, running, floor, wall })
}

fn first(fixture: &Fixture) -> Digest {
    digest(&Body::Release(fixture.scene().0))
}

#[test]
fn a_listed_node_is_warranted_the_release_of_the_rollout_in_force() {
    let fixture = Fixture::new();
    let shelf = shelf(&fixture);
    let release = first(&fixture);
    let given = ask(&shelf, &release, |_| {}).unwrap();
    assert_eq!((given.install.release, given.install.artifact.size, given.retry), (release, 1000, None));
    assert_eq!(given.rollout, RolloutId::new("rollout_a").unwrap());
}

#[test]
fn a_node_that_came_later_is_warranted_it_by_its_newest_certificate() {
    let fixture = Fixture::new();
    let mut shelf = shelf(&fixture);
    offer(&mut shelf, &fixture.certificate_bytes(&fixture.certificate(40, 1))).unwrap();
    let late = node(40);
    assert!(ask(&shelf, &first(&fixture), |asking| asking.node = late).is_ok());
}

#[test]
fn nothing_is_warranted_without_the_documents() {
    let fixture = Fixture::new();
    let release = first(&fixture);
    assert_eq!(ask(&fixture.empty_shelf(), &release, |_| {}), Err(Unwarranted::NoFleet));
    let mut shelf = fixture.shelf();
    assert!(matches!(ask(&shelf, &release, |_| {}), Err(Unwarranted::NotAMember(_))));
    let (manifest, roster, rollout) = fixture.scene();
    offer(&mut shelf, &fixture.certificate_bytes(&fixture.certificate(31, 1))).unwrap();
    assert_eq!(ask(&shelf, &release, |_| {}), Err(Unwarranted::Held(Hold::ReleaseMissing)));
    offer(&mut shelf, &fixture.release_bytes(&manifest)).unwrap();
    assert_eq!(ask(&shelf, &release, |_| {}), Err(Unwarranted::NoRollout(product())), "a release alone moves nobody");
    offer(&mut shelf, &fixture.signed(&rollout)).unwrap();
    assert_eq!(ask(&shelf, &release, |_| {}), Err(Unwarranted::RosterMissing(digest(&Body::Roster(roster.clone())))));
    offer(&mut shelf, &fixture.roster_bytes(&roster)).unwrap();
    assert!(ask(&shelf, &release, |_| {}).is_ok());
}

#[test]
fn a_certificate_that_the_roster_names_must_be_here() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let (manifest, roster, rollout) = fixture.scene();
    let newer = fixture.certificate(31, 2);
    offer(&mut shelf, &fixture.certificate_bytes(&newer)).unwrap();
    for bytes in [fixture.release_bytes(&manifest), fixture.roster_bytes(&roster), fixture.signed(&rollout)] {
        offer(&mut shelf, &bytes).unwrap();
    }
    let named = digest(&Body::Node(fixture.certificate(31, 1)));
    assert_eq!(ask(&shelf, &first(&fixture), |_| {}), Err(Unwarranted::CertificateMissing(named)));
}

#[test]
fn what_operators_stopped_is_not_warranted() {
    let fixture = Fixture::new();
    let release = first(&fixture);
    let (_, _, rollout) = fixture.scene();
    let mut stopped = shelf(&fixture);
    offer(&mut stopped, &fixture.signed_by_one(&paused(&rollout))).unwrap();
    assert!(matches!(ask(&stopped, &release, |_| {}), Err(Unwarranted::Held(Hold::Paused(_)))));
    let mut stopped = shelf(&fixture);
    let aborted = groundswell_core::documents::rollout::Rollout { state: State::Aborted, ..next(&rollout) };
    offer(&mut stopped, &fixture.signed_by_one(&aborted)).unwrap();
    assert!(matches!(ask(&stopped, &release, |_| {}), Err(Unwarranted::Held(Hold::Aborted(_)))));
    let mut stopped = shelf(&fixture);
    for reason in ["one", "other"] {
        let mut rival = next(&rollout);
        rival.reason = Reason::new(reason).unwrap();
        offer(&mut stopped, &fixture.signed(&rival)).unwrap();
    }
    assert_eq!(ask(&stopped, &release, |_| {}), Err(Unwarranted::Held(Hold::Conflict("rollout generation"))));
    let mut blocked = shelf(&fixture);
    let mut newer = fixture.release("1.1.0", 2);
    newer.blocks = vec![Block { digest: release, reason: Reason::new("eats disks").unwrap() }];
    offer(&mut blocked, &fixture.release_bytes(&newer)).unwrap();
    assert!(matches!(ask(&blocked, &release, |_| {}), Err(Unwarranted::Held(Hold::Blocked(_)))));
}

#[test]
fn what_has_expired_is_not_warranted_by_the_later_of_clock_and_floor_time() {
    let fixture = Fixture::new();
    let shelf = shelf(&fixture);
    let release = first(&fixture);
    let late = at(31 * 86_400);
    assert!(matches!(ask(&shelf, &release, |asking| asking.wall = late), Err(Unwarranted::Held(Hold::Expired("rollout", _)))));
    let in_1970 = Timestamp::default();
    assert!(ask(&shelf, &release, |asking| asking.wall = in_1970).is_ok());
}

#[test]
fn what_the_machine_itself_says_counts() {
    let fixture = Fixture::new();
    let shelf = shelf(&fixture);
    let release = first(&fixture);
    let refused = |change: &dyn Fn(&mut Machine)| ask(&shelf, &release, change).unwrap_err();
    let floor = Sequence::new(2).unwrap();
    assert!(matches!(refused(&|asking| asking.floor = floor), Unwarranted::Skip(Skip::Floor { .. })));
    assert!(matches!(refused(&|asking| asking.version_lock = Some("0.9")), Unwarranted::Skip(Skip::VersionLock(_))));
    let arm = Platform::new("linux-arm64").unwrap();
    assert!(matches!(ask(&shelf, &release, |asking| asking.platform = arm), Err(Unwarranted::Skip(Skip::NoArtifact(_)))));
    let runs = Running { version: Version::new("1.0.0").unwrap(), sequence: Sequence::new(1).unwrap(), release };
    assert_eq!(ask(&shelf, &release, |asking| asking.running = Some(runs)), Err(Unwarranted::AlreadyThere));
}

#[test]
fn who_is_outside_of_the_scope_or_left_is_not_warranted() {
    let fixture = Fixture::new();
    let release = first(&fixture);
    let (manifest, roster, mut rollout) = fixture.scene();
    rollout.scope.pools = vec![Pool::new("other").unwrap()];
    let mut outside = fixture.shelf();
    for bytes in [
        fixture.certificate_bytes(&fixture.certificate(31, 1)),
        fixture.roster_bytes(&roster),
        fixture.release_bytes(&manifest),
        fixture.signed(&rollout),
    ] {
        offer(&mut outside, &bytes).unwrap();
    }
    assert_eq!(ask(&outside, &release, |_| {}), Err(Unwarranted::NoRollout(product())));
    let mut left = shelf(&fixture);
    let retired = groundswell_core::documents::certificate::Certificate { retired: true, ..fixture.certificate(31, 2) };
    offer(&mut left, &fixture.certificate_bytes(&retired)).unwrap();
    assert!(matches!(ask(&left, &release, |_| {}), Err(Unwarranted::NotAMember(_))));
    let mut removed = shelf(&fixture);
    let mut newer = fixture.roster(2, &[fixture.certificate(32, 1)]);
    newer.removed = vec![node(31)];
    offer(&mut removed, &fixture.roster_bytes(&newer)).unwrap();
    assert_eq!(ask(&removed, &release, |_| {}), Err(Unwarranted::Removed));
}

#[test]
fn a_newer_rollout_takes_over_and_a_rival_pauses_both() {
    let fixture = Fixture::new();
    let release = first(&fixture);
    let (_, roster, _) = fixture.scene();
    let newer = fixture.release("1.1.0", 2);
    let mut over = shelf(&fixture);
    offer(&mut over, &fixture.release_bytes(&newer)).unwrap();
    offer(&mut over, &fixture.signed(&fixture.rollout("rollout_b", &newer, &roster))).unwrap();
    assert!(matches!(ask(&over, &release, |_| {}), Err(Unwarranted::OtherRelease { .. })));
    assert!(ask(&over, &digest(&Body::Release(newer)), |_| {}).is_ok());
    let mut rivals = shelf(&fixture);
    let (manifest, ..) = fixture.scene();
    offer(&mut rivals, &fixture.signed(&fixture.rollout("rollout_c", &manifest, &roster))).unwrap();
    assert!(matches!(ask(&rivals, &release, |_| {}), Err(Unwarranted::Rivals(..))));
}

#[test]
fn a_generation_that_lets_the_node_try_again_says_so() {
    let fixture = Fixture::new();
    let mut shelf = shelf(&fixture);
    let (_, _, rollout) = fixture.scene();
    let mut again = next(&rollout);
    again.forgiven = vec![Forgiven { node: node(31), claim: None, retry: true }];
    offer(&mut shelf, &fixture.signed(&again)).unwrap();
    let given = ask(&shelf, &first(&fixture), |_| {}).unwrap();
    assert!(given.forgives(None) && !given.forgives(Some(claim(1))), "what failed before any claim, and no more");
    assert!(given.is_after_forgiveness(claim(1)));
}

#[test]
fn what_is_forgiven_is_what_failed_up_to_the_claim_that_is_named() {
    let fixture = Fixture::new();
    let mut shelf = shelf(&fixture);
    let (_, _, rollout) = fixture.scene();
    let mut again = next(&rollout);
    let entry = |claim: Option<ClaimName>, retry| Forgiven { node: node(31), claim, retry };
    let other = Forgiven { node: node(32), claim: Some(claim(9)), retry: true };
    again.forgiven = vec![entry(None, true), entry(Some(claim(2)), true), entry(Some(claim(7)), false), other];
    again.forgiven.sort_by_key(|entry| (entry.node, entry.claim));
    offer(&mut shelf, &fixture.signed(&again)).unwrap();
    let given = ask(&shelf, &first(&fixture), |_| {}).unwrap();
    let forgiven: Vec<bool> = [None, Some(1), Some(2), Some(3), Some(7)].map(|at| given.forgives(at.map(claim))).into();
    assert_eq!(forgiven, [true, true, true, false, false], "a later claim failed anew, and so did one without a retry");
    let after: Vec<bool> = [1, 2, 3].map(|at| given.is_after_forgiveness(claim(at))).into();
    assert_eq!(after, [false, false, true], "a further try has a later claim");
}

fn claim(counter: u64) -> ClaimName {
    ClaimName(Stamp { incarnation: 1, counter })
}

#[test]
fn a_shelf_without_part_in_leases_keeps_only_rosters_that_count() {
    let fixture = Fixture::new();
    let mut shelf = shelf(&fixture);
    for version in 2..=4 {
        offer(&mut shelf, &fixture.roster_bytes(&fixture.roster(version, &[fixture.certificate(31, 1)]))).unwrap();
    }
    let digest_of = |shelf: &Shelf, version| shelf.rosters().find(|(_, roster)| roster.version == version).unwrap().0;
    let new = digest_of(&shelf, 2);
    assert_eq!(shelf.drop_rosters_but_for_rollouts(&new).len(), 1);
    let kept: Vec<u64> = shelf.rosters().map(|(_, roster)| roster.version).collect();
    assert_eq!(kept, [1, 2, 4], "the rollout names 1, 2 has just come, and 4 is the newest");
}

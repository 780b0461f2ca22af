//! What survives a restart, a set-back store, and a newer roster (rules 2, 7, 8).

use groundswell_core::lease::budget::PoolMap;
use groundswell_core::lease::governing::Rosters;
use groundswell_core::lease::warden::{Decision, Facts, Refusal, Warden, WardenError};
use groundswell_core::record::grants::Grants;
use groundswell_core::record::status::Phase;

use super::mesh::{claim, edge, node, policy, roster, seen};

use super::stage::{DAY_MS, Watch};

#[test]
fn promises_survive_a_restart_and_the_record_says_the_same() {
    let mut watch = Watch::over(9, 1);
    watch.mesh.says(node(2), 5, Phase::Claiming, Some(claim(5, 0)));
    watch.considers();
    let before = watch.warden.record();
    watch.restarts();
    assert_eq!(watch.warden.record(), before);
    assert_eq!(before.declared, Some(roster()));
    watch.mesh.says(node(1), 7, Phase::Claiming, Some(claim(7, 0)));
    assert_eq!(watch.holders(), [node(2)]);
}

#[test]
fn damaged_promises_are_an_error_and_never_an_empty_list() {
    assert_eq!(Warden::from_bytes(&[]), Err(WardenError::Malformed));
    assert_eq!(Warden::from_bytes(&[2, 0]), Err(WardenError::Version(2)));
    assert_eq!(Warden::from_bytes(&[1, 9, 9]), Err(WardenError::Malformed));
    let mut bytes = Warden::default().to_bytes();
    assert_eq!(bytes, [1, 0, 0, 0], "golden bytes");
    bytes.push(0);
    assert_eq!(Warden::from_bytes(&bytes), Err(WardenError::Malformed), "nothing may follow");
}

#[test]
fn d34_a_set_back_warden_waits_declares_nothing_and_then_honours_what_stands() {
    let mut watch = Watch::over(9, 1);
    let lost = seen(node(2), &claim(5, 0)).promise();
    let taken_back = Grants { declared: Some(roster()), promises: vec![lost.clone()] };
    watch.warden.set_back(Some(&taken_back), 0, Some(DAY_MS));
    watch.mesh.says(node(2), 5, Phase::Activating, Some(claim(5, 0)));
    watch.mesh.says(node(4), 7, Phase::Claiming, Some(claim(7, 0)));
    let considered = watch.considers();
    assert_eq!(considered.look_again_after_ms, Some(DAY_MS));
    assert_eq!(watch.warden.record(), Grants { declared: None, promises: vec![lost.clone()] });
    // A day of up time later both standing claims count as granted by it, so neither can count on it.
    watch.restarts();
    (0..9).for_each(|number| watch.synced.note(node(number)));
    watch.up_ms = DAY_MS;
    let other = seen(node(4), &claim(7, 0)).promise();
    assert_eq!(watch.considers().decisions, [Decision::Adopt(other), Decision::Remembers]);
    assert_eq!(watch.warden.record().declared, Some(roster()));
    watch.mesh.says(node(2), 6, Phase::Confirmed, None);
    assert_eq!(watch.holders(), [node(4)]);
    assert_eq!(watch.warden.amnesia_left_ms(watch.up_ms), None, "it is not mute for ever");
}

#[test]
fn a_warden_with_a_newer_roster_in_sight_goes_on_under_the_one_it_declared() {
    let mut watch = Watch::over(9, 1);
    watch.considers();
    let seats = (0..9).map(|number| groundswell_core::lease::budget::Seat { node: node(number), pool: edge(), dormant: false });
    let newer = groundswell_core::digest::Digest([2; 32]);
    let second = PoolMap::new(newer, 2, &[roster()], 0, &[(edge(), policy(1, 9))].into(), seats);
    let rosters = Rosters::new([&watch.map, &second]);
    let mut under_second = claim(7, 0);
    under_second.roster = newer;
    watch.mesh.says(node(1), 7, Phase::Claiming, Some(under_second));
    watch.mesh.says(node(2), 5, Phase::Claiming, Some(claim(5, 0)));
    let claims = watch.mesh.candidates();
    let facts = Facts { me: watch.me, rosters: &rosters, claims: &claims, sight: &watch.mesh, synced: &watch.synced, up_ms: 0 };
    let considered = watch.warden.consider(&facts);
    let hold = considered.roster_hold.expect("roster-change");
    assert!(hold.to_string().contains("roster-change"), "{hold}");
    assert_eq!(considered.refusals.len(), 1);
    assert_eq!(considered.refusals[0].1, Refusal::Roster);
    assert_eq!(watch.warden.promises().map(|promise| promise.holder).collect::<Vec<_>>(), [node(2)]);
}

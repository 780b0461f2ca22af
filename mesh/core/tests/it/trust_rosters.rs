//! Rosters: signed like rollouts, fetched when named, rivals, what their policy demands.

use groundswell_core::documents::rejection::Reason;
use groundswell_core::number::Ppm;
use groundswell_core::text::Pool;

use crate::fixture::{Fixture, crypto, offer, refused, sign};

#[test]
fn a_rollout_in_force_asks_for_its_roster_until_it_is_here() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let (_, roster, rollout) = fixture.scene();
    offer(&mut shelf, &fixture.signed(&rollout)).unwrap();
    assert_eq!(shelf.wanted_rosters(), std::slice::from_ref(&rollout.roster));
    let offered = shelf.offer_roster(&fixture.roster_bytes(&roster), &crypto()).unwrap();
    assert_eq!(offered.digest, rollout.roster.digest);
    assert_eq!(shelf.wanted_rosters(), []);
    assert!(!shelf.inventory().any(|(digest, _)| digest == offered.digest), "rosters are fetched, not carried");
}

#[test]
fn one_rollout_key_signs_no_roster() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let (_, roster, _) = fixture.scene();
    let one = sign(&groundswell_core::documents::Body::Roster(roster), &[&fixture.rollout[0]]);
    assert_eq!(shelf.offer_roster(&one, &crypto()).unwrap_err().reason, Reason::Threshold);
}

#[test]
fn a_budget_above_what_root_allows_is_refused() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let (_, mut roster, _) = fixture.scene();
    roster.pools.get_mut(&Pool::new("edge").unwrap()).unwrap().urgent_budget_ppm = Ppm::new(500_001).unwrap();
    let rejection = shelf.offer_roster(&fixture.roster_bytes(&roster), &crypto()).unwrap_err();
    assert_eq!((rejection.reason, rejection.field.as_str()), (Reason::Limits, "pools.edge.urgentBudgetPpm"));
}

#[test]
fn of_rival_rosters_none_is_declared_until_a_later_one_settles_it() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let (_, roster, _) = fixture.scene();
    let rival = fixture.roster(1, &[fixture.certificate(31, 1)]);
    let first = shelf.offer_roster(&fixture.roster_bytes(&roster), &crypto()).unwrap();
    let second = shelf.offer_roster(&fixture.roster_bytes(&rival), &crypto()).unwrap();
    assert!(second.conflict.is_some());
    assert!(shelf.roster_conflicted(&first.digest) && shelf.roster_conflicted(&second.digest));
    let mut next = fixture.roster(2, &[fixture.certificate(31, 1)]);
    next.previous = second.conflict.unwrap().to_vec();
    let third = shelf.offer_roster(&fixture.roster_bytes(&next), &crypto()).unwrap();
    assert!(!shelf.roster_conflicted(&first.digest) && !shelf.roster_conflicted(&third.digest));
    assert_eq!(shelf.rosters().map(|(_, roster)| roster.version).collect::<Vec<_>>(), [1, 1, 2]);
}

#[test]
fn an_upgrade_that_may_outlast_presumed_loss_is_refused_before_or_after_the_roster_comes() {
    let fixture = Fixture::new();
    let (release, mut roster, _) = fixture.scene();
    // start 60 + upgrade 900 + revert 300 = 1260, of which the double just fits 2520.
    for (after, fits) in [(2520, true), (2519, false), (0, true)] {
        roster.pools.get_mut(&Pool::new("edge").unwrap()).unwrap().presume_lost_after_seconds = after;
        let rollout = fixture.rollout("rollout_a", &release, &roster);
        let (roster, rollout) = (fixture.roster_bytes(&roster), fixture.signed(&rollout));
        let mut shelf = fixture.shelf();
        shelf.offer_roster(&roster, &crypto()).unwrap();
        assert_eq!(offer(&mut shelf, &rollout).is_ok(), fits, "{after}");
        let mut shelf = fixture.shelf();
        let digest = offer(&mut shelf, &rollout).unwrap().digest;
        let dropped = shelf.offer_roster(&roster, &crypto()).unwrap().dropped;
        assert_eq!(dropped, if fits { vec![] } else { vec![digest] });
        assert_eq!(shelf.rollouts().count(), usize::from(fits));
    }
}

#[test]
fn a_rollout_that_misstates_its_roster_is_refused() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let (_, roster, mut rollout) = fixture.scene();
    shelf.offer_roster(&fixture.roster_bytes(&roster), &crypto()).unwrap();
    rollout.roster.size += 1;
    assert_eq!(refused(&mut shelf, &fixture.signed(&rollout)), (Reason::Malformed, "roster".into()));
}

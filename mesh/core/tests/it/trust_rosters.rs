//! Rosters: signed like rollouts, fetched when named, rivals, what their policy demands.

use groundswell_core::digest::Digest;
use groundswell_core::documents::rejection::Reason;
use groundswell_core::documents::roster::{Listed, PoolPolicy, WrittenOff};
use groundswell_core::limits::{NODES, ROSTER_BYTES, ROSTER_CHAIN};
use groundswell_core::node_id::NodeId;
use groundswell_core::number::Ppm;
use groundswell_core::record::{ClaimName, Stamp};
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

#[test]
fn the_largest_roster_is_taken_in_its_published_form_too() {
    let fixture = Fixture::new();
    let (_, mut roster, _) = fixture.scene();
    let id = |kind: u8, number: u32| {
        let mut bytes = [kind; 32];
        bytes[1..5].copy_from_slice(&number.to_be_bytes());
        NodeId(bytes)
    };
    let all = 0..u32::try_from(NODES).unwrap();
    let listed = |number| Listed { id: id(0, number), certificate: Digest([7; 32]), dormant: false };
    roster.nodes = all.clone().map(listed).collect();
    roster.removed = all.clone().map(|number| id(1, number)).collect();
    let claim = ClaimName(Stamp { incarnation: 1, counter: 1 });
    roster.written_off = all.map(|number| WrittenOff { node: id(2, number), claim }).collect();
    let pools = |count: u32| (0..count).map(|number| (Pool::new(format!("pool-{number:05}")).unwrap(), PoolPolicy::default()));
    roster.pools = pools(4_000).collect();
    let bytes = fixture.roster_bytes(&roster);
    assert!(bytes.len() > ROSTER_BYTES, "{} bytes of base64", bytes.len());
    fixture.shelf().offer_roster(&bytes, &crypto()).unwrap();
    roster.pools = pools(20_000).collect();
    let rejection = fixture.shelf().offer_roster(&fixture.roster_bytes(&roster), &crypto()).unwrap_err();
    assert_eq!(rejection.reason, Reason::TooLarge);
}

#[test]
fn a_roster_settles_nothing_that_nobody_can_have_declared_and_no_longer_chain_than_nodes_keep() {
    let fixture = Fixture::new();
    let refused = |version: u64, settled: u64| {
        let mut roster = fixture.roster(version, &[fixture.certificate(31, 1)]);
        roster.settled = settled;
        roster.previous = if version == 1 { Vec::new() } else { vec![Digest([9; 32])] };
        fixture.shelf().offer_roster(&fixture.roster_bytes(&roster), &crypto()).err().map(|rejection| rejection.reason)
    };
    assert_eq!([refused(1, 1), refused(2, 1), refused(1, 0)], [None; 3]);
    assert_eq!([refused(2, 2), refused(1, 2)], [Some(Reason::Malformed); 2]);
    assert_eq!(refused(ROSTER_CHAIN + 1, 1), None);
    assert_eq!(refused(ROSTER_CHAIN + 2, 1), Some(Reason::TooLarge));
}

#[test]
fn the_chain_that_leases_need_is_asked_for_and_kept_and_nothing_else() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let mut previous = Vec::new();
    let mut published = Vec::new();
    for version in 1..=6 {
        let mut roster = fixture.roster(version, &[fixture.certificate(31, 1)]);
        roster.previous = previous;
        roster.settled = if version < 5 { 1 } else { 3 };
        let bytes = fixture.roster_bytes(&roster);
        previous = vec![groundswell_core::documents::envelope::Envelope::parse(&bytes).unwrap().digest()];
        published.push((previous[0], bytes));
    }
    let digests: Vec<Digest> = published.iter().map(|(digest, _)| *digest).collect();
    let here = |shelf: &groundswell_core::trust::shelf::Shelf| shelf.rosters().map(|(digest, _)| digest).collect::<Vec<_>>();
    let missing = |shelf: &groundswell_core::trust::shelf::Shelf| {
        shelf.missing_forerunners().into_iter().map(|wanted| (wanted.version, wanted.digest)).collect::<Vec<_>>()
    };
    // A node that comes late has the newest one only: each that comes names the one before, back to the settled one.
    for version in (3..=6).rev() {
        shelf.offer_roster(&published[version - 1].1, &crypto()).unwrap();
        let next = if version > 3 { vec![(version as u64 - 1, digests[version - 2])] } else { Vec::new() };
        assert_eq!(missing(&shelf), next);
    }
    for (_, bytes) in &published[..2] {
        shelf.offer_roster(bytes, &crypto()).unwrap();
    }
    // Where newer ones come first, what lies below the gap is kept until it is closed.
    let mut early = fixture.shelf();
    for version in [1, 2, 3, 5, 6] {
        early.offer_roster(&published[version - 1].1, &crypto()).unwrap();
        assert_eq!(early.drop_superseded_rosters(), []);
    }
    early.offer_roster(&published[3].1, &crypto()).unwrap();
    assert_eq!(early.drop_superseded_rosters(), digests[..2]);
    // This node has declared version 2, whose own chain reaches back to version 1.
    shelf.pin_rosters([digests[1]].into());
    assert_eq!(shelf.drop_superseded_rosters(), []);
    shelf.pin_rosters([digests[3]].into());
    assert_eq!(shelf.drop_superseded_rosters(), []);
    shelf.pin_rosters([digests[5]].into());
    assert_eq!(shelf.drop_superseded_rosters(), digests[..2]);
    assert_eq!(here(&shelf), digests[2..]);
}

/// The swarm found a node that had not declared the roster that governs, let its forerunner go because two rivals called it
/// settled, and could claim nothing any more.
#[test]
fn while_rivals_are_open_the_roster_before_them_keeps_the_chain_that_it_asks_for() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let (mut digests, mut published) = (Vec::new(), Vec::new());
    for (version, settled, budget) in [(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 3, 1), (4, 3, 2)] {
        let mut roster = fixture.roster(version, &[fixture.certificate(31, 1)]);
        roster.previous = digests.get(usize::try_from(version).unwrap().wrapping_sub(2)).copied().into_iter().collect();
        roster.settled = settled;
        roster.meet = (0..budget).map(|at| format!("sim/{at}")).collect();
        let bytes = fixture.roster_bytes(&roster);
        digests.push(groundswell_core::documents::envelope::Envelope::parse(&bytes).unwrap().digest());
        published.push(bytes);
    }
    for bytes in &published {
        shelf.offer_roster(bytes, &crypto()).unwrap();
    }
    assert_eq!(shelf.drop_superseded_rosters(), [], "version 3 asks for what lies before it");
    let mut late = fixture.shelf();
    for bytes in &published[2..] {
        late.offer_roster(bytes, &crypto()).unwrap();
    }
    let missing: Vec<Digest> = late.missing_forerunners().into_iter().map(|wanted| wanted.digest).collect();
    assert_eq!(missing, [digests[1]]);
}

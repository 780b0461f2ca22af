//! Rule 8 by the cases' numbers: what a warden waits for before it grants under a newer roster, and that it then goes on.
//!
//! W, X and Y are the wardens of the slot under versions 1, 2 and 3; A holds, B wants the slot.

use groundswell_core::lease::governing::RosterHold;
use groundswell_core::lease::handover::Waiting;
use groundswell_core::lease::sight::Gone;
use groundswell_core::lease::warden::{Decision, Refusal};
use groundswell_core::record::grants::Grants;
use groundswell_core::record::status::{Claim, Phase};

use super::fleet::{Fleet, digest, granted, roster, waits};
use super::mesh::{claim, name, node, seen, slot};
use super::stage::DAY_MS;

const A: u8 = 50;
const B: u8 = 51;

fn holder_of(version: u64, number: u16) -> Waiting {
    Waiting::Holder { version, slot: number, holder: node(A) }
}

fn wardens_of(version: u64, number: u16, have: usize, need: usize) -> Waiting {
    Waiting::Wardens { version, slot: number, have, need }
}

#[test]
fn leases_go_on_under_the_new_roster_once_the_old_promise_has_ended() {
    let mut fleet = Fleet::with(vec![roster(1, 1, &[], 1, 0..9, 1), roster(2, 2, &[1], 1, 10..19, 1)]);
    let (w, x) = (fleet.wardens(1, 0), fleet.wardens(2, 0));
    let a = fleet.claims(A, 5, 0, 1);
    fleet.all_look(&w, &[1]);
    assert!(fleet.has_quorum(1, &a));
    fleet.starts(A, &a);
    let b = fleet.claims(B, 7, 0, 2);
    let considered = fleet.looks(x[0], &[1, 2]);
    assert_eq!(considered.decisions, [Decision::Declare(digest(2))]);
    assert_eq!(waits(&considered), [wardens_of(1, 0, 0, 6)]);
    assert!(considered.look_again_after_ms.is_some(), "what it waits for may be silence");
    fleet.all_look(&w, &[1, 2]);
    assert_eq!(waits(&fleet.looks(x[0], &[1, 2])), [holder_of(1, 0)], "W list it still");
    assert!(fleet.has_quorum(1, &a), "and A goes on");
    fleet.confirms(A, &a);
    fleet.all_look(&x, &[1, 2]);
    assert!(fleet.has_quorum(2, &b));
}

#[test]
fn an_old_warden_grants_nothing_under_the_old_roster_once_it_has_declared_the_new_one() {
    let mut fleet = Fleet::with(vec![roster(1, 1, &[], 1, 0..9, 1), roster(2, 2, &[1], 1, 0..9, 1)]);
    let w = fleet.wardens(1, 0);
    fleet.all_look(&w, &[1, 2]);
    let late = fleet.claims(A, 5, 0, 1);
    let considered = fleet.looks(w[0], &[1, 2]);
    assert_eq!(considered.refusals, [(late.clone(), Refusal::Roster)]);
    let again = fleet.claims(A, 6, 0, 2);
    assert!(granted(&fleet.looks(w[0], &[1, 2]), &again), "claimed anew; the same wardens have nothing to wait for");
}

#[test]
fn d2_two_roster_changes_inside_one_lease() {
    let rosters = vec![roster(1, 1, &[], 1, 0..9, 1), roster(2, 2, &[1], 1, 10..19, 1), roster(3, 3, &[2], 1, 20..29, 1)];
    let mut fleet = Fleet::with(rosters);
    let (w, x, y) = (fleet.wardens(1, 0), fleet.wardens(2, 0), fleet.wardens(3, 0));
    let a = fleet.claims(A, 5, 0, 1);
    fleet.all_look(&w, &[1]);
    fleet.starts(A, &a);
    fleet.all_look(&x, &[1, 2, 3]);
    let b = fleet.claims(B, 7, 0, 3);
    assert_eq!(waits(&fleet.looks(y[0], &[1, 2, 3])), [wardens_of(1, 0, 0, 6)], "X declared with empty lists: not enough");
    assert_eq!(fleet.settled(y[0], 3).0, 1);
    fleet.all_look(&w, &[1, 2, 3]);
    assert_eq!(waits(&fleet.looks(y[0], &[1, 2, 3])), [holder_of(1, 0)]);
    fleet.confirms(A, &a);
    fleet.all_look(&y, &[1, 2, 3]);
    assert!(fleet.has_quorum(3, &b));
    assert_eq!(fleet.settled(y[0], 3), (3, None), "now nobody needs to look back again");
}

#[test]
fn d3_l8_a_lowered_budget_waits_for_the_slot_that_is_no_more() {
    let mut fleet = Fleet::with(vec![roster(1, 1, &[], 1, 0..9, 2), roster(2, 2, &[1], 1, 0..9, 1)]);
    let w = fleet.wardens(1, 1);
    let a = fleet.claims(A, 5, 1, 1);
    fleet.all_look(&w, &[1]);
    fleet.starts(A, &a);
    fleet.all_look(&w, &[1, 2]);
    let b = fleet.claims(B, 7, 0, 2);
    fleet.all_look(&w, &[1, 2]);
    assert_eq!(waits(&fleet.looks(w[0], &[1, 2])), [holder_of(1, 1)], "slot 0 has the same wardens and waits all the same");
    assert_eq!(fleet.support(2, &b).0, 0);
    fleet.confirms(A, &a);
    fleet.all_look(&w, &[1, 2]);
    assert!(fleet.has_quorum(2, &b));
}

#[test]
fn d4_half_declare_one_rival_half_the_other_and_no_slot_has_two_holders() {
    let rosters = vec![roster(1, 1, &[], 1, 0..9, 1), roster(2, 2, &[1], 1, 10..19, 1), roster(3, 2, &[1], 1, 20..29, 1)];
    for to_the_first in 0..=9 {
        let mut fleet = Fleet::with(rosters.clone());
        let w = fleet.wardens(1, 0);
        let (first, second) = w.split_at(to_the_first);
        fleet.all_look(&w, &[1]);
        fleet.all_look(first, &[1, 2]);
        fleet.all_look(second, &[1, 3]);
        let (a, b) = (fleet.claims(A, 5, 0, 2), fleet.claims(B, 7, 0, 3));
        let (x, y) = (fleet.wardens(2, 0), fleet.wardens(3, 0));
        fleet.all_look(&x, &[1, 2]);
        fleet.all_look(&y, &[1, 3]);
        let opened = (fleet.has_quorum(2, &a), fleet.has_quorum(3, &b));
        assert_eq!(opened, (to_the_first >= 6, to_the_first <= 3), "{to_the_first} declared the first");
        // Whoever hears of both declares neither newly, and says so.
        let considered = fleet.looks(node(52), &[1, 2, 3]);
        assert_eq!(considered.roster_hold, Some(RosterHold::Rivals { version: 2 }));
    }
}

#[test]
fn d4_the_next_version_names_both_rivals_and_leases_go_on() {
    let rosters = vec![
        roster(1, 1, &[], 1, 0..9, 1),
        roster(2, 2, &[1], 1, 10..19, 1),
        roster(3, 2, &[1], 1, 20..29, 1),
        roster(4, 3, &[2, 3], 1, 30..39, 1),
    ];
    let mut fleet = Fleet::with(rosters);
    let (w, x, y, z) = (fleet.wardens(1, 0), fleet.wardens(2, 0), fleet.wardens(3, 0), fleet.wardens(4, 0));
    fleet.all_look(&w, &[1]);
    fleet.all_look(&w[..5], &[1, 2]);
    fleet.all_look(&w[5..], &[1, 3]);
    fleet.all_look(&x, &[1, 2]);
    fleet.all_look(&y, &[1, 3]);
    let b = fleet.claims(B, 7, 0, 4);
    let all = [1, 2, 3, 4];
    fleet.all_look(&z, &all);
    assert_eq!(waits(&fleet.looks(z[0], &all)), [wardens_of(2, 0, 0, 6)], "W went to either, and both count");
    fleet.all_look(&x, &all);
    assert_eq!(waits(&fleet.looks(z[0], &all)), [wardens_of(2, 0, 0, 6)], "the other rival's wardens too");
    fleet.all_look(&y, &all);
    fleet.all_look(&z, &all);
    assert!(fleet.has_quorum(4, &b));
}

#[test]
fn d22_a_slot_whose_wardens_were_retired_one_after_the_other_still_moves() {
    let rosters = vec![
        roster(1, 1, &[], 1, 0..3, 1),
        roster(2, 2, &[1], 1, 1..4, 1),
        roster(3, 3, &[2], 1, 2..5, 1),
        roster(4, 4, &[3], 1, 3..6, 1),
    ];
    let mut fleet = Fleet::with(rosters);
    fleet.all_look(&[node(0), node(1), node(2)], &[1]);
    for number in 0..3 {
        fleet.mesh.gone.insert(node(number), Gone::Retired);
    }
    let now = fleet.wardens(4, 0);
    let b = fleet.claims(B, 7, 0, 4);
    let all = [1, 2, 3, 4];
    let known_for = |fleet: &mut Fleet, ms: u64| (0..3).for_each(|number| _ = fleet.mesh.gone_for_ms.insert(node(number), ms));
    known_for(&mut fleet, DAY_MS - 1);
    fleet.all_look(&now, &all);
    assert_eq!(fleet.support(4, &b).0, 0);
    known_for(&mut fleet, DAY_MS);
    fleet.all_look(&now, &all);
    assert!(fleet.has_quorum(4, &b));
    assert_eq!(fleet.settled(now[0], 4), (4, None));
}

#[test]
fn d27_settled_is_not_raised_over_a_promise_that_stands() {
    let rosters = vec![roster(1, 1, &[], 1, 0..9, 1), roster(2, 2, &[1], 1, 10..19, 1), roster(3, 3, &[2], 1, 20..29, 1)];
    let mut fleet = Fleet::with(rosters);
    let (w, x, y) = (fleet.wardens(1, 0), fleet.wardens(2, 0), fleet.wardens(3, 0));
    let a = fleet.claims(A, 5, 0, 1);
    fleet.all_look(&w, &[1]);
    fleet.starts(A, &a);
    fleet.all_look(&x, &[1, 2]);
    // Looks free to who asks X alone; the test asks W.
    assert_eq!(fleet.settled(x[0], 2), (1, Some(wardens_of(1, 0, 0, 6))));
    fleet.all_look(&w, &[1, 2]);
    assert_eq!(fleet.settled(x[0], 2), (1, Some(holder_of(1, 0))));
    let b = fleet.claims(B, 7, 0, 3);
    fleet.all_look(&y, &[1, 2, 3]);
    fleet.all_look(&y, &[1, 2, 3]);
    assert_eq!(fleet.support(3, &b).0, 0, "version 3 says settled 1, and Y waits for W");
    fleet.confirms(A, &a);
    assert_eq!(fleet.settled(x[0], 2), (2, None));
}

#[test]
fn d28_a_slot_that_was_gone_in_between_is_looked_for_where_it_was() {
    let rosters = vec![roster(1, 1, &[], 1, 0..9, 2), roster(2, 2, &[1], 1, 10..19, 1), roster(3, 3, &[2], 1, 20..29, 2)];
    let mut fleet = Fleet::with(rosters);
    let (w, x, y) = (fleet.wardens(1, 1), fleet.wardens(2, 0), fleet.wardens(3, 1));
    let a = fleet.claims(A, 5, 1, 1);
    fleet.all_look(&w, &[1]);
    fleet.starts(A, &a);
    fleet.all_look(&x, &[1, 2, 3]);
    let b = fleet.claims(B, 7, 1, 3);
    assert_eq!(waits(&fleet.looks(y[0], &[1, 2, 3])), [wardens_of(1, 1, 0, 6)], "that version 2 had no such slot says nothing");
    fleet.all_look(&w, &[1, 2, 3]);
    assert_eq!(waits(&fleet.looks(y[0], &[1, 2, 3])), [holder_of(1, 1)]);
    fleet.confirms(A, &a);
    fleet.all_look(&y, &[1, 2, 3]);
    assert!(fleet.has_quorum(3, &b));
}

#[test]
fn d29_same_wardens_are_compared_with_each_older_roster() {
    let rosters = vec![roster(1, 1, &[], 1, 0..9, 1), roster(2, 2, &[1], 1, 10..19, 1), roster(3, 3, &[2], 1, 10..19, 1)];
    let mut fleet = Fleet::with(rosters);
    let (w, x) = (fleet.wardens(1, 0), fleet.wardens(3, 0));
    let a = fleet.claims(A, 5, 0, 1);
    fleet.all_look(&w, &[1]);
    fleet.starts(A, &a);
    let b = fleet.claims(B, 7, 0, 3);
    assert_eq!(waits(&fleet.looks(x[0], &[1, 2, 3])), [wardens_of(1, 0, 0, 6)], "versions 2 and 3 agree, 1 and 3 do not");
    fleet.all_look(&w, &[1, 2, 3]);
    fleet.confirms(A, &a);
    fleet.all_look(&x, &[1, 2, 3]);
    assert!(fleet.has_quorum(3, &b), "of version 2 there is nothing to wait for");
}

#[test]
fn d30_a_shrink_two_versions_ago_is_still_waited_for() {
    let rosters = vec![roster(1, 1, &[], 1, 0..9, 2), roster(2, 2, &[1], 1, 0..9, 1), roster(3, 3, &[2], 1, 0..9, 1)];
    let mut fleet = Fleet::with(rosters);
    let w = fleet.wardens(1, 1);
    let a = fleet.claims(A, 5, 1, 1);
    fleet.all_look(&w, &[1]);
    fleet.starts(A, &a);
    fleet.all_look(&w, &[1, 2, 3]);
    let b = fleet.claims(B, 7, 0, 3);
    fleet.all_look(&w, &[1, 2, 3]);
    assert_eq!(waits(&fleet.looks(w[0], &[1, 2, 3])), [holder_of(1, 1)]);
    fleet.confirms(A, &a);
    fleet.all_look(&w, &[1, 2, 3]);
    assert!(fleet.has_quorum(3, &b));
}

#[test]
fn d31_a_slot_that_two_rivals_add_is_opened_by_the_old_wardens_of_slot_0_and_once() {
    let rosters = vec![roster(1, 1, &[], 1, 0..9, 1), roster(2, 2, &[1], 1, 10..19, 2), roster(3, 2, &[1], 1, 20..29, 2)];
    for to_the_first in 0..=9 {
        let mut fleet = Fleet::with(rosters.clone());
        let w = fleet.wardens(1, 0);
        fleet.all_look(&w[..to_the_first], &[1, 2]);
        fleet.all_look(&w[to_the_first..], &[1, 3]);
        let (a, b) = (fleet.claims(A, 5, 1, 2), fleet.claims(B, 7, 1, 3));
        let (x, y) = (fleet.wardens(2, 1), fleet.wardens(3, 1));
        fleet.all_look(&x, &[1, 2]);
        fleet.all_look(&y, &[1, 3]);
        let opened = (fleet.has_quorum(2, &a), fleet.has_quorum(3, &b));
        assert_eq!(opened, (to_the_first >= 6, to_the_first <= 3), "{to_the_first} declared the first");
    }
}

#[test]
fn d31_a_new_slot_waits_for_word_and_not_for_the_promise_on_slot_0() {
    let mut fleet = Fleet::with(vec![roster(1, 1, &[], 1, 0..9, 1), roster(2, 2, &[1], 1, 10..19, 2)]);
    let w = fleet.wardens(1, 0);
    let a = fleet.claims(A, 5, 0, 1);
    fleet.all_look(&w, &[1]);
    fleet.starts(A, &a);
    let x = fleet.wardens(2, 1);
    assert_eq!(fleet.opens(x[0], 2, 1), Err(wardens_of(1, 0, 0, 6)));
    fleet.all_look(&w, &[1, 2]);
    assert_eq!((fleet.opens(x[0], 2, 0), fleet.opens(x[0], 2, 1)), (Err(holder_of(1, 0)), Ok(())));
}

#[test]
fn d32_a_rival_that_is_not_on_the_chain_seals_nothing_whatever_its_number() {
    let rosters = vec![
        roster(1, 1, &[], 1, 0..9, 1),
        roster(2, 2, &[1], 1, 10..19, 1),
        roster(3, 2, &[1], 1, 20..29, 1),
        roster(4, 3, &[2], 1, 30..39, 1),
    ];
    let mut fleet = Fleet::with(rosters);
    let (w, x, z) = (fleet.wardens(1, 0), fleet.wardens(2, 0), fleet.wardens(4, 0));
    // Five of W went to the first rival, four to the other; one of the four lies and says both.
    fleet.all_look(&w[..5], &[1, 2]);
    fleet.all_look(&w[5..], &[1, 3]);
    fleet.all_look(&x, &[1, 2]);
    fleet.claims(B, 7, 0, 4);
    let known = [1, 2, 3, 4];
    fleet.all_look(&z, &known);
    assert_eq!(waits(&fleet.looks(z[0], &known)), [wardens_of(1, 0, 5, 6)], "four declared a version 2, but not this one");
    let off = Some(RosterHold::OffChain { declared: 2, newest: 3 });
    assert_eq!(fleet.looks(w[8], &known).roster_hold, off, "and cannot go on to version 3");
    fleet.mesh.grants.insert(w[8], Grants { declared: Some(digest(4)), promises: Vec::new() });
    assert_eq!(waits(&fleet.looks(z[0], &known)), [wardens_of(2, 0, 0, 6)], "the liar is within the bound: six of nine");
}

#[test]
fn d33_a_retired_warden_may_have_promised_what_nobody_saw() {
    let mut fleet = Fleet::with(vec![roster(1, 1, &[], 1, 0..4, 1), roster(2, 2, &[1], 1, 1..5, 1)]);
    let w = fleet.wardens(1, 0);
    let a = fleet.claims(A, 5, 0, 1);
    fleet.all_look(&w, &[1]);
    fleet.starts(A, &a);
    // Of four wardens one is retired with its word unseen, and one lies that it has promised nothing.
    fleet.all_look(&w, &[1, 2]);
    fleet.mesh.grants.remove(&node(0));
    fleet.mesh.gone.insert(node(0), Gone::Retired);
    fleet.mesh.gone_for_ms.insert(node(0), DAY_MS - 1);
    fleet.mesh.grants.insert(w[3], Grants { declared: Some(digest(2)), promises: Vec::new() });
    let reader = node(4);
    assert_eq!(fleet.opens(reader, 2, 0), Err(holder_of(1, 0)), "the liar alone is no quorum");
    fleet.mesh.gone_for_ms.insert(node(0), DAY_MS);
    assert_eq!(fleet.opens(reader, 2, 0), Err(holder_of(1, 0)), "nor are both");
    // What was seen is honoured until it ends, however long the warden has been gone.
    let listed = Grants { declared: Some(digest(1)), promises: vec![a.promise()] };
    fleet.mesh.grants.insert(node(0), listed);
    fleet.confirms(A, &a);
    assert_eq!(fleet.opens(reader, 2, 0), Ok(()));
}

#[test]
fn a_revoked_warden_is_not_believed_and_counts_once_it_is_known_long_enough() {
    let mut fleet = Fleet::with(vec![roster(1, 1, &[], 1, 0..1, 1), roster(2, 2, &[1], 1, 1..2, 1)]);
    fleet.all_look(&[node(0)], &[1, 2]);
    assert_eq!(fleet.opens(node(1), 2, 0), Ok(()));
    fleet.mesh.gone.insert(node(0), Gone::Revoked);
    assert_eq!(fleet.opens(node(1), 2, 0), Err(wardens_of(1, 0, 0, 1)), "its key may be another's");
    fleet.mesh.gone_for_ms.insert(node(0), DAY_MS);
    assert_eq!(fleet.opens(node(1), 2, 0), Ok(()));
    fleet.mesh.gone.clear();
    fleet.mesh.gone_for_ms.clear();
    fleet.mesh.convicted.insert(node(0));
    assert_eq!(fleet.opens(node(1), 2, 0), Err(wardens_of(1, 0, 0, 1)), "nor is a convict");
}

#[test]
fn d34_a_set_back_warden_does_not_declare_a_newer_roster_over_a_promise_of_its_former_life() {
    let mut fleet = Fleet::with(vec![roster(1, 1, &[], 1, 0..1, 1), roster(2, 2, &[1], 1, 1..2, 1)]);
    let (w, x) = (node(0), node(1));
    let a = fleet.claims(A, 5, 0, 1);
    fleet.all_look(&[w], &[1]);
    fleet.starts(A, &a);
    // Its store goes back to before the promise, and no peer has its newest record.
    *fleet.warden(w) = Default::default();
    fleet.warden(w).set_back(None, 0, Some(DAY_MS));
    let considered = fleet.looks(w, &[1, 2]);
    assert_eq!((considered.decisions, fleet.mesh.grants[&w].declared), (vec![], None));
    fleet.claims(B, 7, 0, 2);
    fleet.looks(x, &[1, 2]);
    assert_eq!(waits(&fleet.looks(x, &[1, 2])), [wardens_of(1, 0, 0, 1)]);
    // It is no warden under version 2; it honours what stands on the slot that it had under version 1.
    fleet.up_ms = DAY_MS;
    let considered = fleet.looks(w, &[1, 2]);
    assert!(considered.decisions.contains(&Decision::Adopt(a.promise())), "{considered:?}");
    assert_eq!(fleet.mesh.grants[&w].declared, Some(digest(2)), "it is not mute for ever");
    assert_eq!(waits(&fleet.looks(x, &[1, 2])), [holder_of(1, 0)]);
    fleet.confirms(A, &a);
    let b = seen(node(B), &Claim { roster: digest(2), ..claim(7, 0) });
    assert!(granted(&fleet.looks(x, &[1, 2]), &b));
}

#[test]
fn d35_one_liar_cannot_block_a_slot_with_a_phantom_claim() {
    let mut fleet = Fleet::with(vec![roster(1, 1, &[], 1, 0..9, 1), roster(2, 2, &[1], 1, 10..19, 1)]);
    let (w, x) = (fleet.wardens(1, 0), fleet.wardens(2, 0));
    fleet.all_look(&w, &[1, 2]);
    let phantom = fleet.claims(A, 5, 0, 1);
    for liars in 1..=3 {
        let lie = Grants { declared: Some(digest(2)), promises: vec![phantom.promise()] };
        fleet.mesh.grants.insert(w[liars - 1], lie);
        assert_eq!(fleet.opens(x[0], 2, 0), Ok(()), "{} of nine have ended: a quorum is six", 9 - liars);
    }
    let lie = Grants { declared: Some(digest(2)), promises: vec![phantom.promise()] };
    fleet.mesh.grants.insert(w[3], lie);
    assert_eq!(fleet.opens(x[0], 2, 0), Err(holder_of(1, 0)));
}

#[test]
fn a_lost_holder_under_an_old_roster_is_freed_by_silence_or_by_writing_it_off_and_only_what_was() {
    let lost = || {
        let mut fleet = Fleet::with(vec![roster(1, 1, &[], 1, 0..9, 1), roster(2, 2, &[1], 1, 10..19, 1)]);
        let w = fleet.wardens(1, 0);
        let a = fleet.claims(A, 5, 0, 1);
        fleet.all_look(&w, &[1]);
        fleet.starts(A, &a);
        fleet.all_look(&w, &[1, 2]);
        fleet
    };
    let mut fleet = lost();
    let x = fleet.wardens(2, 0)[0];
    fleet.mesh.unheard_ms.insert(node(A), DAY_MS - 1);
    assert_eq!(fleet.opens(x, 2, 0), Err(holder_of(1, 0)));
    fleet.mesh.unheard_ms.insert(node(A), DAY_MS);
    assert_eq!(fleet.opens(x, 2, 0), Ok(()), "presumed lost by the reader's own count");
    let mut fleet = lost();
    fleet.mesh.written_off.insert(node(A), name(4));
    assert_eq!(fleet.opens(x, 2, 0), Err(holder_of(1, 0)), "an earlier claim of that node");
    fleet.mesh.written_off.insert(node(A), name(5));
    assert_eq!(fleet.opens(x, 2, 0), Ok(()));
}

#[test]
fn silence_from_before_a_claim_that_was_never_heard_ends_no_promise_that_others_list() {
    let mut fleet = Fleet::with(vec![roster(1, 1, &[], 1, 0..9, 1), roster(2, 2, &[1], 1, 10..19, 1)]);
    let (w, x) = (fleet.wardens(1, 0), fleet.wardens(2, 0)[0]);
    let a = fleet.claims(A, 5, 0, 1);
    fleet.all_look(&w, &[1]);
    fleet.starts(A, &a);
    fleet.all_look(&w, &[1, 2]);
    // A is at work. X heard of it last a day ago, before the claim, or never; the lists of W have come.
    fleet.mesh.unheard_ms.insert(node(A), DAY_MS);
    fleet.mesh.says(node(A), 4, Phase::Staged, None);
    assert_eq!(fleet.opens(x, 2, 0), Err(holder_of(1, 0)));
    fleet.mesh.statuses.remove(&node(A));
    assert_eq!(fleet.opens(x, 2, 0), Err(holder_of(1, 0)));
    fleet.mesh.says(node(A), 5, Phase::Claiming, Some(Claim { roster: digest(1), ..claim(5, 0) }));
    assert_eq!(fleet.opens(x, 2, 0), Ok(()), "heard, and silent for a day since");
}

#[test]
fn a_policy_that_is_tightened_cuts_no_upgrade_short_that_began_before() {
    let hasty = {
        let seats = (10..19).map(|number| groundswell_core::lease::budget::Seat {
            node: node(number),
            pool: super::mesh::edge(),
            dormant: false,
        });
        let policy =
            groundswell_core::documents::roster::PoolPolicy { presume_lost_after_seconds: 60, ..super::mesh::policy(1, 9) };
        groundswell_core::lease::budget::PoolMap::new(
            digest(2),
            2,
            &[digest(1)],
            1,
            &[(super::mesh::edge(), policy)].into(),
            seats,
        )
    };
    let mut fleet = Fleet::with(vec![roster(1, 1, &[], 1, 0..9, 1), hasty]);
    let w = fleet.wardens(1, 0);
    let a = fleet.claims(A, 5, 0, 1);
    fleet.all_look(&w, &[1]);
    fleet.starts(A, &a);
    fleet.all_look(&w, &[1, 2]);
    let x = fleet.wardens(2, 0)[0];
    fleet.mesh.unheard_ms.insert(node(A), DAY_MS - 1);
    assert_eq!(fleet.opens(x, 2, 0), Err(holder_of(1, 0)));
    assert_eq!(fleet.looks(w[0], &[1, 2]).decisions, [], "nor does the old warden end its own promise");
    fleet.mesh.unheard_ms.insert(node(A), DAY_MS);
    assert_eq!(fleet.opens(x, 2, 0), Ok(()));
}

#[test]
fn a_roster_that_is_missing_on_the_chain_keeps_slots_shut_and_says_which() {
    let rosters = vec![roster(1, 1, &[], 1, 0..9, 1), roster(3, 3, &[2], 1, 0..9, 1)];
    let fleet = Fleet::with(rosters);
    assert_eq!(fleet.opens(node(0), 3, 0), Err(Waiting::Roster { version: 2 }));
    assert_eq!(fleet.settled(node(0), 3), (2, Some(Waiting::Roster { version: 2 })));
    let settled = Fleet::with(vec![roster(3, 3, &[2], 3, 0..9, 1)]);
    assert_eq!(settled.opens(node(0), 3, 0), Ok(()), "below what is settled nobody looks");
    assert!(settled.map(3).wardens(&slot(1)).is_none());
}

#[test]
fn a_pool_that_begins_with_a_roster_has_no_old_wardens_to_wait_for() {
    let first = {
        let seats = (0..9).map(|number| groundswell_core::lease::budget::Seat {
            node: node(number),
            pool: groundswell_core::text::Pool::new("core").unwrap(),
            dormant: false,
        });
        groundswell_core::lease::budget::PoolMap::new(digest(1), 1, &[], 1, &std::collections::BTreeMap::new(), seats)
    };
    let fleet = Fleet::with(vec![first, roster(2, 2, &[1], 1, 10..19, 1)]);
    assert_eq!(fleet.opens(node(10), 2, 0), Ok(()));
    assert_eq!(fleet.settled(node(10), 2).0, 1, "what the old pool promised is another matter");
}

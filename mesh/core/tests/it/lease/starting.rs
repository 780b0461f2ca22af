//! When a holder may start, and when it withdraws (rules 1, 3, 6), by the cases' numbers.

use groundswell_core::lease::sight::Gone;
use groundswell_core::lease::start::{MadeAt, Start, Votes, Withdraw};
use groundswell_core::lease::synced::{Synced, Syncing};
use groundswell_core::record::status::Phase;

use super::mesh::{claim, name, node, seen};

use super::stage::{Holder, Watch, at};

#[test]
fn a_quorum_of_grants_for_this_very_claim_lets_it_start_and_one_fewer_does_not() {
    for (nodes, quorum) in [(9, 6), (7, 5), (4, 3), (3, 2), (1, 1)] {
        let mut holder = Holder::in_a_pool_of(nodes);
        holder.granted_by(quorum - 1);
        let Start::Wait { have, need, missing } = holder.may_start() else { panic!("{nodes} nodes: must wait") };
        assert_eq!((have, need, missing.len()), (quorum - 1, quorum, holder.wardens().nodes.len() + 1 - quorum));
        holder.granted_by(quorum);
        assert_eq!(holder.may_start(), Start::Yes, "{nodes} nodes");
    }
}

#[test]
fn d5_after_a_restart_a_claim_with_its_quorum_is_withdrawn() {
    let mut holder = Holder::in_a_pool_of(9);
    holder.granted_by(9);
    // Another boot: both clocks at zero, the old grants in sight.
    (holder.made, holder.now) = (None, at(0, 0));
    assert_eq!(holder.may_start(), Start::Withdraw(Withdraw::Restarted));
}

#[test]
fn d11_grants_for_a_claim_of_a_former_life_do_not_count() {
    let mut holder = Holder::in_a_pool_of(9);
    holder.granted_by(9);
    // The snapshot repeats the name; the nonce is drawn anew.
    holder.claim.nonce += 1;
    let Start::Withdraw(why) = holder.may_start() else { panic!("must not start") };
    assert_eq!(why, Withdraw::LostVote);
}

#[test]
fn d12_a_pause_between_claim_and_quorum_stops_it() {
    let mut holder = Holder::in_a_pool_of(9);
    holder.granted_by(5);
    holder.stopped = true;
    holder.granted_by(6);
    assert_eq!(holder.may_start(), Start::Withdraw(Withdraw::Stopped));
}

#[test]
fn the_start_time_runs_by_the_larger_of_the_two_clocks() {
    let mut holder = Holder::in_a_pool_of(3);
    holder.granted_by(2);
    holder.now = at(160, 160);
    assert_eq!(holder.may_start(), Start::Yes, "60 s are not more than 60 s");
    for late in [at(161, 160), at(100, 161)] {
        holder.now = late;
        assert_eq!(holder.may_start(), Start::Withdraw(Withdraw::TooLate { elapsed_ms: 61_000 }));
    }
    // A wall clock that is set back does not lengthen it.
    holder.now = at(161, 7);
    assert!(matches!(holder.may_start(), Start::Withdraw(Withdraw::TooLate { .. })));
}

#[test]
fn a_newer_running_generation_does_not_void_grants_that_are_there() {
    let mut holder = Holder::in_a_pool_of(9);
    holder.older_generation = true;
    holder.granted_by(6);
    assert_eq!(holder.may_start(), Start::Yes);
    holder.mesh.grants.clear();
    holder.granted_by(5);
    assert_eq!(holder.may_start(), Start::Withdraw(Withdraw::OlderGeneration));
    assert!(!Withdraw::OlderGeneration.pauses() && Withdraw::LostVote.pauses());
}

#[test]
fn a_holder_that_is_not_synced_yet_does_not_start() {
    let mut holder = Holder::in_a_pool_of(9);
    holder.granted_by(9);
    holder.synced = Err(Syncing { have: 1, need: 2 });
    assert!(matches!(holder.may_start(), Start::Wait { .. }));
}

#[test]
fn a_written_off_claim_never_starts() {
    let mut holder = Holder::in_a_pool_of(3);
    holder.granted_by(3);
    holder.mesh.written_off.insert(node(0), name(5));
    assert_eq!(holder.may_start(), Start::Withdraw(Withdraw::WrittenOff));
}

#[test]
fn a_vote_is_lost_when_a_quorum_cannot_be_reached_any_more() {
    let mut holder = Holder::in_a_pool_of(9);
    let rival = seen(node(1), &claim(8, 0));
    holder.mesh.says(node(1), 8, Phase::Claiming, Some(claim(8, 0)));
    let wardens = holder.wardens().nodes.clone();
    for warden in wardens.iter().rev().take(3) {
        holder.mesh.grants_to(*warden, &[&rival]);
    }
    assert!(matches!(holder.may_start(), Start::Wait { .. }));
    holder.mesh.grants_to(wardens[5], &[&rival]);
    assert_eq!(holder.may_start(), Start::Withdraw(Withdraw::LostVote));
    // The rival gives it back: its grants are only late to leave.
    holder.mesh.says(node(1), 9, Phase::Staged, None);
    assert!(matches!(holder.may_start(), Start::Wait { .. }));
}

#[test]
fn grants_of_convicted_and_departed_wardens_count_for_nothing_but_what_they_list_stands() {
    let mut holder = Holder::in_a_pool_of(9);
    holder.granted_by(6);
    let wardens = holder.wardens().clone();
    holder.mesh.convicted.insert(wardens.nodes[0]);
    assert!(matches!(holder.may_start(), Start::Wait { have: 5, .. }));
    holder.mesh.gone.insert(wardens.nodes[1], Gone::Retired);
    assert!(matches!(holder.may_start(), Start::Wait { have: 4, .. }));
    let votes = Votes::count(&holder.claim, &wardens, &holder.mesh);
    assert_eq!(votes.against, [wardens.nodes[0], wardens.nodes[1]]);
}

#[test]
fn a_warden_that_lists_two_live_promises_on_a_slot_has_granted_neither() {
    let mut holder = Holder::in_a_pool_of(3);
    let rival = seen(node(1), &claim(8, 0));
    holder.mesh.says(node(1), 8, Phase::Claiming, Some(claim(8, 0)));
    let mine = holder.claim.clone();
    for warden in holder.wardens().nodes.clone() {
        holder.mesh.grants_to(warden, &[&mine, &rival]);
    }
    assert_eq!(holder.may_start(), Start::Withdraw(Withdraw::LostVote));
    holder.mesh.says(node(1), 9, Phase::Staged, None);
    assert_eq!(holder.may_start(), Start::Yes, "bound by nobody else now");
}

#[test]
fn d21_a_wrong_wall_clock_starves_nobody() {
    // A warden is never told the wall time; a holder measures only how long ago it claimed.
    let mut holder = Holder::in_a_pool_of(7);
    holder.made = Some(MadeAt::now(&at(100, 0)));
    holder.now = at(130, 30);
    holder.granted_by(5);
    assert_eq!(holder.may_start(), Start::Yes, "its clock stands in 1970");
}

#[test]
fn l5_asking_twice_gives_the_same_answer() {
    let mut holder = Holder::in_a_pool_of(9);
    holder.granted_by(6);
    assert_eq!(holder.may_start(), holder.may_start());
    let mut watch = Watch::over(9, 1);
    watch.mesh.says(node(3), 5, Phase::Claiming, Some(claim(5, 0)));
    let first = watch.considers();
    assert_eq!(first.decisions.len(), 2, "declares and grants: {first:?}");
    let again = watch.considers();
    assert_eq!((again.decisions, again.refusals), (vec![], vec![]));
}

#[test]
fn d17_fleets_of_one_two_and_three() {
    // One: it grants itself and needs nobody.
    let mut one = Watch::over(1, 1);
    one.synced = Synced::default();
    one.mesh.says(node(0), 5, Phase::Claiming, Some(claim(5, 0)));
    assert_eq!(one.holders(), [node(0)]);
    // Two: the one warden's grant is enough, and nobody else's is.
    let mut two = Holder::in_a_pool_of(2);
    assert_eq!((two.wardens().nodes.len(), two.wardens().quorum), (1, 1));
    assert!(matches!(two.may_start(), Start::Wait { have: 0, need: 1, .. }));
    two.granted_by(1);
    assert_eq!(two.may_start(), Start::Yes);
    // Three: two of three.
    let mut three = Holder::in_a_pool_of(3);
    three.granted_by(2);
    assert_eq!(three.may_start(), Start::Yes);
}

#[test]
fn a_claim_whose_wardens_have_moved_on_is_made_anew_unless_it_has_its_quorum() {
    let mut holder = Holder::in_a_pool_of(9);
    holder.roster_moved = true;
    holder.granted_by(5);
    assert_eq!(holder.may_start(), Start::Withdraw(Withdraw::RosterMoved), "the sixth will never grant it");
    holder.granted_by(6);
    assert_eq!(holder.may_start(), Start::Yes, "they go on listing what they promised");
}

#[test]
fn t4_a_wall_clock_that_jumps_costs_a_claim_at_worst() {
    let mut holder = Holder::in_a_pool_of(9);
    holder.granted_by(6);
    for back in [0, 40, 99] {
        holder.now = at(101, back);
        assert_eq!(holder.may_start(), Start::Yes, "back by an hour or to 1970: the other clock counts");
    }
    holder.now = at(101, 100 + 86_400);
    assert_eq!(holder.may_start(), Start::Withdraw(Withdraw::TooLate { elapsed_ms: 86_400_000 }), "a day ahead");
    holder.made = Some(MadeAt::now(&holder.now));
    assert_eq!(holder.may_start(), Start::Yes, "and claimed again it starts at once: no refusal for good");
}

//! Who is excused, who is silent, and when: by the observer's own up time alone.

use groundswell_core::node::view::Standing;
use groundswell_core::record::status::{HoldCode, HoldNotice, Phase};
use groundswell_core::rollout::report::MemberReport;
use groundswell_core::rollout::tally::Renewal;

use super::fixture::*;

/// One wave of 30 nodes; the front of their pool is 8 wide.
fn thirty() -> Observer {
    Observer::of(&rollout("rollout_a", percents(&[1_000_000])), fleet(30))
}

const OFFLINE: u64 = 1_800;
const DAY: u64 = 86_400;

#[test]
fn m3_the_time_that_the_observer_was_down_counts_against_nobody() {
    let mut observer = thirty();
    let canary = observer.member(0, 0);
    observer.hears(canary, activating(1));
    let heard = observer.up_ms;
    // The site is without power for a week; up time stands. Then the same record comes from the store.
    observer.sleeps(7 * DAY);
    let mut observer = observer.restarted(&[(canary, activating(1), heard)]);
    observer.waits(10);
    assert_eq!(observer.standing(canary), Standing::InProgress);
    assert!((0..30).all(|k| !observer.excused(observer.member(0, k))));
    observer.waits(60 + 900 + 300 + 1_800);
    assert_eq!(observer.standing(canary), Standing::Failed);
}

#[test]
fn m6_a_canary_that_said_it_was_waiting_and_was_unplugged_is_excused() {
    let mut observer = thirty();
    let canary = observer.member(0, 0);
    observer.hears(canary, ready());
    assert_eq!(observer.progress.tally().renewal(&canary), Renewal::EveryThird);
    for _ in 0..5 {
        observer.waits(OFFLINE / 3);
        observer.hears(canary, ready());
    }
    observer.waits(OFFLINE - 1);
    assert!(!observer.excused(canary));
    observer.waits(1);
    assert!(observer.excused(canary));
    assert_eq!(observer.standing(canary), Standing::Waiting, "excused, not failed");
    observer.hears(canary, ready());
    assert!(!observer.excused(canary), "an excuse lasts until it is heard of");
}

#[test]
fn m6_a_healthy_node_in_a_long_soak_is_never_silent() {
    let mut rollout = rollout("rollout_a", percents(&[1_000_000]));
    rollout.waves[0].soak_seconds = DAY;
    let mut observer = Observer::of(&rollout, fleet(3));
    let canary = observer.member(0, 0);
    observer.hears(canary, activating(1));
    observer.waits(500);
    observer.hears(canary, said(Phase::Confirmed));
    observer.waits(DAY + 1_799);
    assert_eq!(observer.standing(canary), Standing::InProgress);
    assert_eq!(observer.progress.tally().renewal(&canary), Renewal::Daily, "soak is not disruption");
    observer.waits(1);
    assert_eq!(observer.standing(canary), Standing::Failed, "it has not vouched within soak and grace");
}

#[test]
fn d13_a_long_soak_outlasts_the_upgrade_timeout_in_peace() {
    let mut rollout = rollout("rollout_a", percents(&[1_000_000]));
    rollout.waves[0].soak_seconds = DAY;
    let mut observer = Observer::of(&rollout, fleet(20));
    let canary = observer.member(0, 0);
    observer.hears(canary, activating(1));
    observer.waits(900);
    observer.hears(canary, said(Phase::Confirmed));
    observer.waits(12 * 3_600);
    assert_eq!(observer.standing(canary), Standing::InProgress);
    observer.hears(canary, soaked(1));
    assert_eq!(observer.standing(canary), Standing::Soaked);
}

#[test]
fn d36_a_node_that_died_while_fetching_is_excused_within_a_day_and_a_bit() {
    let mut observer = thirty();
    let dead = observer.member(0, 0);
    observer.hears(dead, said(Phase::Fetching));
    observer.waits(DAY + OFFLINE - 1);
    assert!(!observer.excused(dead));
    observer.waits(1);
    assert!(observer.excused(dead));
}

#[test]
fn d37_whoever_moves_up_to_the_front_after_hours_is_not_excused_at_that_instant() {
    let mut observer = thirty();
    let order: Vec<_> = (0..30).map(|k| observer.member(0, k)).collect();
    for node in &order {
        observer.hears(*node, ready());
    }
    assert_eq!(observer.progress.tally().ahead_of(&order[8]), Some(8));
    assert_eq!(observer.progress.tally().renewal(&order[8]), Renewal::Daily);
    // For five hours the first eight renew; the ninth has nothing to say.
    for _ in 0..30 {
        observer.waits(OFFLINE / 3);
        for node in &order[..8] {
            observer.hears(*node, ready());
        }
    }
    observer.hears(order[0], claiming(9));
    assert_eq!(observer.progress.tally().renewal(&order[8]), Renewal::EveryThird);
    assert!(!observer.excused(order[8]));
    observer.waits(OFFLINE - 1);
    assert!(!observer.excused(order[8]));
    observer.waits(1);
    assert!(observer.excused(order[8]));
}

#[test]
fn d38_after_a_resume_every_waiting_member_is_unseen_until_it_names_the_new_generation() {
    let mut observer = thirty();
    let (one, two) = (observer.member(0, 0), observer.member(0, 1));
    observer.hears(one, ready());
    observer.hears(two, ready());
    observer.waits(10 * OFFLINE);
    observer.hears(one, ready());
    observer.hears(two, ready());
    let second = next(observer.progress.rollout());
    observer.follow(&second);
    assert_eq!(observer.standing(one), Standing::Unseen);
    assert!(!observer.excused(one), "the generation is new here: it had no time to answer");
    observer.hears(one, at_generation(2, ready()));
    assert_eq!(observer.standing(one), Standing::Waiting);
    observer.waits(OFFLINE);
    assert!(observer.excused(two), "it never answered");
}

#[test]
fn d39_dead_in_activating_is_never_excused_and_becomes_a_failure() {
    let mut observer = thirty();
    let dead = observer.member(0, 0);
    observer.hears(dead, activating(1));
    for _ in 0..3 {
        observer.waits(1_000);
        assert!(!observer.excused(dead));
    }
    assert_eq!(observer.standing(dead), Standing::InProgress);
    observer.waits(60);
    assert_eq!(observer.standing(dead), Standing::Failed);
    assert!(!observer.excused(dead));
    assert_eq!(observer.progress.tally().failures().collect::<Vec<_>>(), [(dead, Some(claim(1)))]);
}

#[test]
fn a_renewed_claim_is_still_the_same_claim() {
    let mut observer = thirty();
    let stuck = observer.member(0, 0);
    for _ in 0..6 {
        observer.hears(stuck, claiming(1));
        observer.waits(600);
    }
    assert_eq!(observer.standing(stuck), Standing::Failed, "its claim stayed as it was for an hour");
    observer.hears(stuck, claiming(2));
    assert_eq!(observer.standing(stuck), Standing::InProgress, "a new claim starts the clock again");
}

#[test]
fn a_late_verdict_retracts_silence() {
    let mut observer = thirty();
    let slow = observer.member(0, 0);
    observer.hears(slow, activating(1));
    observer.waits(4_000);
    assert!(observer.progress.halted().is_none_or(|halted| halted.failures == 1));
    assert_eq!(observer.standing(slow), Standing::Failed);
    observer.hears(slow, soaked(1));
    assert_eq!(observer.standing(slow), Standing::Soaked);
    assert!(observer.progress.halted().is_none());
}

#[test]
fn d40_a_node_that_sleeps_at_night_still_vouches_at_the_end_of_its_soak() {
    let mut rollout = rollout("rollout_a", percents(&[1_000_000]));
    rollout.waves[0].soak_seconds = DAY;
    let mut observer = Observer::of(&rollout, fleet(2));
    let sleeper = observer.member(0, 0);
    observer.hears(sleeper, said(Phase::Confirmed));
    observer.waits(16 * 3_600);
    assert_eq!(observer.standing(sleeper), Standing::InProgress, "eight hours of silence are nothing in a soak of a day");
    observer.waits(8 * 3_600 + 60);
    observer.hears(sleeper, soaked(1));
    assert_eq!(observer.standing(sleeper), Standing::Soaked);
}

#[test]
fn d14_dead_nodes_at_the_head_are_excused_and_leave_the_front_to_others() {
    let mut observer = thirty();
    let order: Vec<_> = (0..30).map(|k| observer.member(0, k)).collect();
    for node in &order {
        observer.hears(*node, ready());
    }
    observer.waits(OFFLINE);
    assert!(order[..8].iter().all(|node| observer.excused(*node)));
    assert_eq!(observer.progress.tally().ahead_of(&order[8]), Some(0));
    assert_eq!(observer.progress.tally().renewal(&order[15]), Renewal::EveryThird);
    assert!(!observer.excused(order[8]));
}

#[test]
fn a_local_hold_without_an_end_keeps_the_gate_shut_and_is_named() {
    let mut observer = Observer::of(&rollout("rollout_a", percents(&[10_000, 1_000_000])), fleet(10));
    let canary = observer.member(0, 0);
    let hold = Some(HoldNotice { code: HoldCode::Inhibited, until: None });
    for _ in 0..5 {
        observer.hears(canary, MemberReport { hold, ..said(Phase::Staged) });
        observer.waits(DAY);
        assert!(!observer.excused(canary), "it owes no more than a record a day");
    }
    let name = observer.certificates.iter().find(|certificate| certificate.node == canary).unwrap().name.clone();
    assert!(observer.why(1).contains(name.as_str()), "{}", observer.why(1));
}

#[test]
fn a_wave_that_opens_excuses_nobody_at_that_instant() {
    let mut observer = Observer::of(&rollout("rollout_a", percents(&[10_000, 1_000_000])), fleet(10));
    let long_gone = observer.member(1, 0);
    observer.hears(long_gone, said(Phase::Waiting));
    observer.waits(5 * DAY);
    assert!(!observer.excused(long_gone), "its wave is not open");
    observer.hears_wave(0, &soaked(1));
    assert!(observer.open(1) && !observer.excused(long_gone));
    observer.waits(OFFLINE);
    assert!(observer.excused(long_gone));
}

#[test]
fn counting_an_old_record_again_is_not_hearing_of_the_node() {
    let mut observer = thirty();
    let canary = observer.member(0, 0);
    observer.hears(canary, ready());
    let heard = observer.up_ms;
    observer.waits(OFFLINE);
    assert!(observer.excused(canary));
    observer.progress.hear(&canary, ready(), heard);
    observer.settle();
    assert!(observer.excused(canary));
}

#[test]
fn a_convict_with_a_claim_stays_a_failure_and_without_one_is_excused_in_time() {
    let mut observer = thirty();
    let (one, two) = (observer.member(0, 0), observer.member(0, 1));
    observer.hears(one, MemberReport { convicted: true, claim: Some(claim(1)), ..MemberReport::default() });
    observer.hears(two, MemberReport { convicted: true, ..MemberReport::default() });
    assert_eq!(observer.standing(one), Standing::Failed);
    assert_eq!(observer.standing(two), Standing::Unseen);
    observer.waits(OFFLINE);
    assert!(observer.excused(two));
}

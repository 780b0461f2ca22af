//! A life while a version is on trial: what is to blame for its end, across restarts too, and what no check can judge.

use alloc::boxed::Box;

use super::*;

#[test]
fn b2_a_release_that_could_not_be_tried_is_not_blamed_and_is_tried_again_later() {
    let ordered = mission("r", 2);
    let tried_later = |life: &mut Life, at: u64| {
        assert_eq!((life.kept.phase, &life.kept.claim), (Phase::Waiting, &None), "the claim ends");
        assert_eq!((life.kept.verdicts.len(), life.kept.denied.len()), (0, 0), "without a verdict");
        advance(life, at + SECOND, &ordered);
        assert!(matches!(life.now.hold, Some(Hold::Retry { .. })), "{:?}", life.now.hold);
        let asked = steps(&advance(life, at + RETRY_LONGEST_MS + SECOND, &ordered));
        assert!(!asked.is_empty(), "{asked:?}");
    };
    let untried = |life: &mut Life| {
        let (release, reason) = (ordered.release, Reason::lossy("disk-full"));
        steps(&life.report(now(SECOND), Report::ActivateFailed { release, reason, at_fault: false }))
    };
    let mut life = activating(&ordered);
    assert!(matches!(&untried(&mut life)[..], [Step::Revert { at_fault: false, .. }]));
    assert_eq!(advance(&mut life, 2 * SECOND, &ordered), [], "asked, and waits");
    let again = steps(&advance(&mut life, SECOND + ASK_AGAIN_MS, &ordered));
    assert!(matches!(&again[..], [Step::Revert { at_fault: false, .. }]), "{again:?}");
    assert_eq!(back_on_one(&mut life, 3 * ASK_AGAIN_MS, 2), []);
    tried_later(&mut life, 3 * ASK_AGAIN_MS);

    // The same across a restart, and where the device finds it by itself; also where it had told that already, and the node ended
    // before it could write it down.
    let reverted = Some((ordered.release, Reason::lossy("disk-full")));
    for (asked, reverted) in [(true, &reverted), (false, &reverted), (true, &None), (false, &None)] {
        let mut life = activating(&ordered);
        if asked {
            untried(&mut life);
        }
        let mut life = Life::open(life.kept, now(0));
        let recovered = Recovered { reverted: reverted.clone(), at_fault: false, ..at_rest_on_one() };
        assert_eq!(life.report(now(1), Report::Recovered(recovered)), []);
        tried_later(&mut life, 1);
    }
}

#[test]
fn what_a_device_had_told_before_the_node_ended_is_not_forgotten_and_counts_for_its_own_claim_alone() {
    let ordered = mission("r", 2);
    let restarted = |recovered| {
        let mut life = Life::open(activating(&ordered).kept, now(0));
        let acts = life.report(now(1), Report::Recovered(recovered));
        (life, acts)
    };
    let reason = Reason::lossy("started 3 times");
    // It took the trial back by itself and blamed the build; its list says so again.
    let named = || Vec::from([ordered.release, build_of(&ordered)]);
    let went_back = |claim, release| {
        let reason = reason.clone();
        Some(Box::new(WentBack { claim: name(claim), release, reason }))
    };
    let failed = Recovered { failed: went_back(5, ordered.release), denied: named(), ..at_rest_on_one() };
    let (life, acts) = restarted(failed.clone());
    assert!(matches!(&acts[..], [Act::Verdict(_, Outcome::RolledBack, why)] if *why == reason), "{acts:?}");
    assert_eq!(life.kept.denied, named());
    // What was asked for keeps its own reason.
    let mut life = activating(&ordered);
    life.report(now(SECOND), Report::Activated { release: ordered.release });
    life.report(now(SECOND), Report::Health(Health::Failing(Reason::lossy("500"))));
    advance(&mut life, 2 * SECOND, &ordered);
    let mut life = Life::open(life.kept, now(0));
    let acts = life.report(now(1), Report::Recovered(failed.clone()));
    assert!(matches!(&acts[..], [Act::Verdict(_, _, why)] if why.as_str() == "unhealthy: 500"), "{acts:?}");
    // What it says of an earlier claim on the same release was forgiven since.
    let reverted = Some((ordered.release, reason.clone()));
    let earlier = Some(name(4));
    let (life, acts) = restarted(Recovered { reverted: reverted.clone(), claim: earlier, ..at_rest_on_one() });
    assert_eq!((acts, life.kept.phase, life.kept.verdicts.len()), (Vec::new(), Phase::Waiting, 0));
    // Nor what it says of the release in whose place this one was to come, under the same claim.
    for other in [went_back(4, ordered.release), went_back(5, digest(7))] {
        let (life, acts) = restarted(Recovered { failed: other, denied: Vec::new(), ..failed.clone() });
        assert_eq!((acts, life.kept.phase, life.kept.verdicts.len()), (Vec::new(), Phase::Waiting, 0));
        assert_eq!(life.kept.denied, []);
    }
    for claim in [None, Some(name(5))] {
        let (life, acts) = restarted(Recovered { reverted: reverted.clone(), claim, ..at_rest_on_one() });
        assert!(matches!(acts[..], [Act::Verdict(_, Outcome::RolledBack, _)]), "{acts:?}");
        assert!(life.kept.denied.contains(&ordered.release));
    }
}

#[test]
fn a_switch_that_has_not_come_to_an_end_in_time_denies_nothing() {
    let ordered = mission("r", 2);
    let over = ordered.upgrade_timeout_ms + SECOND;
    for company in [None, Some(true), Some(false)] {
        let mut life = activating(&ordered);
        life.now.company = company;
        assert!(matches!(steps(&advance(&mut life, over, &ordered))[..], [Step::Revert { at_fault: false, .. }]));
        back_on_one(&mut life, over + SECOND, 2);
        assert_eq!((life.kept.phase, life.kept.denied.len()), (Phase::RolledBack, 0));
    }
}

fn unclear() -> Report {
    Report::Health(Health::Unknown(Reason::lossy("status 429")))
}

/// On trial since second 1, and no check can judge it since second 2.
fn unclear_on_trial(ordered: &Mission) -> Life {
    let mut life = activating(ordered);
    life.report(now(SECOND), Report::Activated { release: ordered.release });
    life.report(now(2 * SECOND), unclear());
    life
}

#[test]
fn i6_what_no_check_can_judge_is_not_sent_back_by_time_alone() {
    let ordered = mission("r", 2);
    let over = ordered.upgrade_timeout_ms + SECOND;
    let day = 24 * 3_600 * SECOND;
    let waiting = || {
        let mut life = unclear_on_trial(&ordered);
        for at in [over, day] {
            assert_eq!(advance(&mut life, at, &ordered), []);
            assert_eq!(life.now.hold, Some(Hold::Undecided(Reason::lossy("status 429"))));
        }
        assert_eq!((life.kept.phase, life.kept.verdicts.len()), (Phase::Activating, 0));
        life
    };
    // Health that holds for `confirmAfter` confirms, and no earlier.
    let mut life = waiting();
    life.report(now(day), Report::Health(Health::Healthy));
    let held = day + ordered.confirm_after_ms;
    assert_eq!(advance(&mut life, held - 1, &ordered), []);
    assert_eq!(life.deadline(now(held - 1)), Some(Time(held)));
    assert_eq!(steps(&advance(&mut life, held, &ordered)), [Step::Confirm { release: ordered.release }]);
    assert_eq!(life.now.hold, None);
    // Bad health goes back at once, and the release is to blame.
    let mut life = waiting();
    life.report(now(day), Report::Health(Health::Failing(Reason::lossy("500"))));
    assert!(matches!(steps(&advance(&mut life, day, &ordered))[..], [Step::Revert { at_fault: true, .. }]));
    // So does an abort with rollback, and nobody is.
    let aborted = Mission { aborted: Some(true), ..ordered.clone() };
    assert!(matches!(steps(&advance(&mut waiting(), day, &aborted))[..], [Step::Revert { at_fault: false, .. }]));
    // What has never said anything has had its time.
    let mut life = activating(&ordered);
    life.report(now(SECOND), Report::Activated { release: ordered.release });
    assert!(matches!(steps(&advance(&mut life, over, &ordered))[..], [Step::Revert { at_fault: true, .. }]));
}

#[test]
fn i6_health_that_comes_late_because_no_check_could_judge_has_its_time_too() {
    let ordered = mission("r", 2);
    let over = ordered.upgrade_timeout_ms + 3;
    let mut life = unclear_on_trial(&ordered);
    life.report(now(over - 2 * SECOND), Report::Health(Health::Healthy));
    assert_eq!(advance(&mut life, over, &ordered), []);
    assert_eq!(steps(&advance(&mut life, over + 3 * SECOND, &ordered)), [Step::Confirm { release: ordered.release }]);
}

#[test]
fn i6_a_restart_of_the_node_does_not_end_the_wait() {
    let ordered = mission("r", 2);
    let mut kept = unclear_on_trial(&ordered);
    kept.put_down(now(ordered.upgrade_timeout_ms + SECOND));
    let restarted = || {
        let mut life = Life::open(kept.kept.clone(), now(0));
        let recovered = Recovered { running: Some(running(2, 2)), trial: Some(ordered.release), ..at_rest_on_one() };
        assert_eq!(life.report(now(0), Report::Recovered(recovered)), []);
        assert_eq!(advance(&mut life, SECOND, &ordered), [], "nobody has looked yet");
        assert!(matches!(life.now.hold, Some(Hold::Undecided(_))));
        life
    };
    let mut life = restarted();
    life.report(now(2 * SECOND), unclear());
    assert_eq!(advance(&mut life, HEALTH_AFTER_START_MS, &ordered), []);
    let mut life = restarted();
    life.report(now(2 * SECOND), Report::Health(Health::Healthy));
    assert_eq!(advance(&mut life, 3 * SECOND, &ordered), []);
    assert_eq!(steps(&advance(&mut life, 7 * SECOND, &ordered)), [Step::Confirm { release: ordered.release }]);
    // And one that goes on to say nothing goes back.
    let mut life = restarted();
    assert_eq!(life.deadline(now(SECOND)), Some(Time(HEALTH_AFTER_START_MS)));
    assert!(matches!(steps(&advance(&mut life, HEALTH_AFTER_START_MS, &ordered))[..], [Step::Revert { at_fault: true, .. }]));
}

#[test]
fn i6_a_build_of_the_agent_that_no_check_can_judge_goes_back_and_is_not_blamed() {
    let ordered = mission("r", 2);
    let over = ordered.upgrade_timeout_ms + SECOND;
    let mut life = unclear_on_trial(&ordered);
    life.now.company = Some(true);
    assert!(matches!(steps(&advance(&mut life, over, &ordered))[..], [Step::Revert { at_fault: false, .. }]));
    assert_eq!(back_on_one(&mut life, over + SECOND, 2), []);
    assert_eq!((life.kept.phase, life.kept.verdicts.len(), life.kept.denied.len()), (Phase::Waiting, 0, 0));
    // Where no peer has answered it either, whether one answers the old build decides.
    let mut life = unclear_on_trial(&ordered);
    life.now.company = Some(false);
    assert!(matches!(steps(&advance(&mut life, over, &ordered))[..], [Step::Revert { at_fault: false, .. }]));
    assert_eq!(back_on_one(&mut life, over + SECOND, 2), []);
    assert!(life.kept.attempt.as_ref().is_some_and(|attempt| attempt.proof.is_some()));
}

/// Awake for `awake_ms`, and asleep for `slept_ms` between.
fn woken_at(awake_ms: u64, slept_ms: u64) -> Now {
    Now { awake_ms, ..now(awake_ms + slept_ms) }
}

fn advance_at(life: &mut Life, at: Now, mission: &Mission) -> Vec<Step> {
    steps(&life.advance(at, Some(mission), &mut |_, _| unreachable!("it has begun")))
}

#[test]
fn what_was_healthy_before_the_machine_slept_is_confirmed_only_once_it_was_looked_at_since() {
    let ordered = mission("r", 2);
    let mut life = activating(&ordered);
    life.report(now(SECOND), Report::Activated { release: ordered.release });
    life.report(now(SECOND), Report::Health(Health::Healthy));
    // Nobody looked for ten minutes.
    let slept_ms = 600 * SECOND;
    let woke = woken_at(2 * SECOND, slept_ms);
    assert_eq!(advance_at(&mut life, woke, &ordered), []);
    assert_eq!(life.deadline(woke), Some(Time(woke.boot.0 + 4 * SECOND)), "it has held for one");
    assert_eq!(life.deadline(woken_at(6 * SECOND, slept_ms)), Some(Time(woke.boot.0 + ordered.confirm_after_ms)));
    // The monitor found it as it was, and says nothing.
    assert_eq!(advance_at(&mut life, woken_at(6 * SECOND, slept_ms), &ordered), []);
    let held = advance_at(&mut life, woken_at(7 * SECOND, slept_ms), &ordered);
    assert_eq!(held, [Step::Confirm { release: ordered.release }]);
}

#[test]
fn health_that_holds_whenever_a_machine_is_awake_is_held_however_short_that_is() {
    let ordered = Mission { confirm_after_ms: 60 * SECOND, ..mission("r", 2) };
    let mut life = activating(&ordered);
    life.report(now(SECOND), Report::Activated { release: ordered.release });
    life.report(now(SECOND), Report::Health(Health::Healthy));
    assert_eq!(advance_at(&mut life, woken_at(40 * SECOND, 0), &ordered), []);
    let slept_ms = 300 * SECOND;
    assert_eq!(advance_at(&mut life, woken_at(40 * SECOND, slept_ms), &ordered), []);
    assert_eq!(advance_at(&mut life, woken_at(69 * SECOND, slept_ms), &ordered), []);
    let held = advance_at(&mut life, woken_at(70 * SECOND, slept_ms), &ordered);
    assert_eq!(held, [Step::Confirm { release: ordered.release }]);
}

#[test]
fn a_machine_that_is_never_awake_for_long_is_looked_at_in_all_its_stretches_together() {
    let asleep = 300 * SECOND;
    // Healthy for 60 seconds awake, for 30 since the last long look, and for five in this stretch.
    for (awake, confirmed) in [(40, 70), (20, 90), (10, 85), (6, 77)] {
        let ordered = Mission { confirm_after_ms: 60 * SECOND, ..mission("r", 2) };
        let mut life = activating(&ordered);
        life.report(now(SECOND), Report::Activated { release: ordered.release });
        life.report(now(SECOND), Report::Health(Health::Healthy));
        let asks = (2..=200).find(|second| {
            let at = woken_at(second * SECOND, second / awake * asleep);
            !advance_at(&mut life, at, &ordered).is_empty()
        });
        assert_eq!(asks, Some(confirmed), "awake for {awake} s at a time");
    }
    // The agent itself comes to an end of its time as well, and nobody is to blame for what nobody could look at.
    for (awake, answered) in [(20, true), (4, true), (4, false), (20, false)] {
        let ordered = Mission { confirm_after_ms: 60 * SECOND, ..mission("r", 2) };
        let mut life = activating(&ordered);
        life.now.company = Some(answered);
        life.report(now(SECOND), Report::Activated { release: ordered.release });
        life.report(now(SECOND), Report::Health(Health::Healthy));
        let over = ordered.upgrade_timeout_ms / SECOND + 200;
        let mut asked =
            (2..over).flat_map(|second| advance_at(&mut life, woken_at(second * SECOND, second / awake * asleep), &ordered));
        let first = asked.next();
        let may_be = matches!(first, Some(Step::Revert { at_fault: false, .. })) || (awake == 20 && answered);
        assert!(may_be, "awake for {awake} s at a time, answered: {answered}: {first:?}");
        let unproven = life.kept.attempt.as_ref().is_some_and(|it| it.reverting.as_ref().is_some_and(|it| it.unproven));
        assert!(!unproven, "awake for {awake} s at a time");
    }
}

#[test]
fn a_soak_that_ends_while_the_machine_sleeps_is_vouched_for_once_health_has_held_since_it_woke() {
    let ordered = mission("r", 2);
    let mut life = confirming(&ordered);
    life.report(now(7 * SECOND), Report::Confirmed { release: ordered.release });
    let slept_ms = 3_600 * SECOND;
    assert_eq!(advance_at(&mut life, woken_at(8 * SECOND, slept_ms), &ordered), []);
    assert_eq!(life.kept.phase, Phase::Confirmed, "time asleep counts, but health has to hold at its end");
    advance_at(&mut life, woken_at(13 * SECOND, slept_ms), &ordered);
    assert_eq!(life.kept.phase, Phase::Soaked);
    // What it turns out to be on waking counts.
    let mut life = confirming(&ordered);
    life.report(now(7 * SECOND), Report::Confirmed { release: ordered.release });
    life.report(woken_at(8 * SECOND, slept_ms), Report::Health(Health::Failing(Reason::lossy("gone"))));
    advance_at(&mut life, woken_at(13 * SECOND, slept_ms), &ordered);
    assert_eq!(life.kept.phase, Phase::Failed);
}

#[test]
fn a_version_that_nobody_had_looked_at_when_the_machine_fell_asleep_is_not_blamed_on_waking() {
    let ordered = mission("r", 2);
    let mut life = activating(&ordered);
    life.report(now(SECOND), Report::Activated { release: ordered.release });
    let slept_ms = ordered.upgrade_timeout_ms;
    assert_eq!(advance_at(&mut life, woken_at(2 * SECOND, slept_ms), &ordered), []);
    assert!(matches!(life.now.hold, Some(Hold::Undecided(_))));
    life.report(woken_at(3 * SECOND, slept_ms), Report::Health(Health::Healthy));
    assert_eq!(advance_at(&mut life, woken_at(3 * SECOND, slept_ms), &ordered), []);
    let held = advance_at(&mut life, woken_at(8 * SECOND, slept_ms), &ordered);
    assert_eq!(held, [Step::Confirm { release: ordered.release }]);
}

#[test]
fn clocks_that_are_read_one_after_the_other_are_no_sleep() {
    let ordered = mission("r", 2);
    let mut life = activating(&ordered);
    life.report(now(SECOND), Report::Activated { release: ordered.release });
    life.report(now(SECOND), Report::Health(Health::Healthy));
    let asked = advance_at(&mut life, woken_at(5 * SECOND, SECOND), &ordered);
    assert_eq!(asked, [], "a second is one");
    let mut life = activating(&ordered);
    life.report(now(SECOND), Report::Activated { release: ordered.release });
    life.report(now(SECOND), Report::Health(Health::Healthy));
    let asked = advance_at(&mut life, woken_at(6 * SECOND - 999, 999), &ordered);
    assert_eq!(asked, [Step::Confirm { release: ordered.release }]);
}

#[test]
fn a_stage_that_failed_beside_a_way_back_is_no_failure_of_the_next_try() {
    let ordered = mission("r", 2);
    let mut life = activating(&ordered);
    let reason = || Reason::lossy("no");
    life.report(now(SECOND), Report::ActivateFailed { release: ordered.release, reason: reason(), at_fault: false });
    let failed = || Report::StageFailed { release: ordered.release, fault: Fault::Broken, reason: reason() };
    for second in 2..2 + u64::from(RETRIES) + 2 {
        life.now.staging = Some(ordered.release);
        assert_eq!(life.report(now(second * SECOND), failed()), []);
    }
    assert_eq!(back_on_one(&mut life, 20 * SECOND, 2), []);
    life.now.staging = Some(ordered.release);
    assert_eq!(life.report(now(30 * SECOND), failed()), []);
    assert_eq!((life.kept.phase, life.kept.verdicts.len()), (Phase::Waiting, 0));
}

#[test]
fn a_new_generation_ends_the_pause_after_what_came_to_no_verdict() {
    let ordered = mission("r", 2);
    let mut life = activating(&ordered);
    let reason = Reason::lossy("no");
    life.report(now(SECOND), Report::ActivateFailed { release: ordered.release, reason, at_fault: false });
    assert_eq!(back_on_one(&mut life, 2 * SECOND, 2), []);
    assert_eq!(steps(&advance(&mut life, 3 * SECOND, &ordered)), []);
    let seen = RolloutSeen { generation: 2, digest: digest(102), ..ordered.seen.clone() };
    let again = Mission { seen, ..ordered };
    assert!(matches!(steps(&advance(&mut life, 4 * SECOND, &again))[..], [Step::Fetch { .. } | Step::Stage { .. }]));
}

//! The life of an agent that is its own product: whether a peer answers, and what a restart of it takes away.

use super::*;

/// The agent itself: on trial and healthy since second 1, and no peer has answered.
fn alone_on_trial(ordered: &Mission) -> Life {
    let mut life = activating(ordered);
    life.now.company = Some(false);
    life.report(now(SECOND), Report::Activated { release: ordered.release });
    life.report(now(SECOND), Report::Health(Health::Healthy));
    life
}

/// The same, back on the old build after the upgrade's time.
fn alone_and_back(ordered: &Mission) -> Life {
    let mut life = alone_on_trial(ordered);
    let timeout = ordered.upgrade_timeout_ms + 10;
    let asked = steps(&advance(&mut life, timeout, ordered));
    assert!(matches!(&asked[..], [Step::Revert { reason, .. }] if reason.as_str().contains("no peer answered")), "{asked:?}");
    assert_eq!(back_on_one(&mut life, timeout + SECOND, 2), [], "nothing is known yet");
    assert_eq!((life.kept.phase, life.kept.running.clone()), (Phase::Activating, Some(running(1, 1))));
    life
}

#[test]
fn the_agent_itself_confirms_only_once_a_peer_has_answered() {
    let ordered = mission("r", 2);
    let mut life = alone_on_trial(&ordered);
    assert_eq!(advance(&mut life, 60 * SECOND, &ordered), []);
    life.now.company = Some(true);
    assert_eq!(steps(&advance(&mut life, 61 * SECOND, &ordered)), [Step::Confirm { release: ordered.release }]);
}

#[test]
fn a_build_of_the_agent_that_reaches_no_peer_failed_if_the_old_one_does() {
    let ordered = mission("r", 2);
    let mut life = alone_and_back(&ordered);
    let at = ordered.upgrade_timeout_ms + 20 * SECOND;
    assert_eq!(advance(&mut life, at, &ordered), [], "the old build gets the same time");
    life.now.company = Some(true);
    let acts = advance(&mut life, at + SECOND, &ordered);
    let [Act::Device(told), Act::Verdict(_, Outcome::RolledBack, reason)] = &acts[..] else { panic!("{acts:?}") };
    assert!(reason.as_str().contains("no peer answered"), "{reason}");
    assert_eq!(life.kept.phase, Phase::RolledBack);
    assert_eq!(life.kept.denied, [ordered.release, build_of(&ordered)]);
    // The device went back without blame, and has to know it too: its list outlives this store.
    assert_eq!(*told, Step::Revert { release: ordered.release, reason: reason.clone(), at_fault: true });
    assert_eq!(back_on_one(&mut life, at + 2 * SECOND, 2), []);
    assert_eq!(life.kept.phase, Phase::RolledBack);
}

#[test]
fn a_build_of_the_agent_is_not_judged_where_the_old_one_reaches_no_peer_either() {
    let ordered = mission("r", 2);
    let mut life = alone_and_back(&ordered);
    let began = ordered.upgrade_timeout_ms + 10 + SECOND;
    let over = began + ordered.upgrade_timeout_ms;
    assert_eq!(life.deadline(now(began + 1)), Some(Time(over)));
    assert_eq!(advance(&mut life, over, &ordered), []);
    assert_eq!((life.kept.phase, &life.kept.claim), (Phase::Waiting, &None), "the claim ends");
    assert_eq!((life.kept.verdicts.len(), life.kept.denied.len()), (0, 0), "without a verdict");
    // It is tried again, later.
    advance(&mut life, over + SECOND, &ordered);
    assert!(matches!(life.now.hold, Some(Hold::Retry { .. })), "{:?}", life.now.hold);
    let later = over + RETRY_LONGEST_MS + SECOND;
    let asked = steps(&advance(&mut life, later, &ordered));
    assert!(matches!(&asked[..], [Step::Fetch { .. }]), "{asked:?}");
}

#[test]
fn a_restart_while_the_old_build_looks_for_a_peer_changes_nothing() {
    let ordered = mission("r", 2);
    let kept = alone_and_back(&ordered).kept;
    let mut life = Life::open(kept, now(0));
    life.now.company = Some(false);
    assert_eq!(life.report(now(1), Report::Recovered(at_rest_on_one())), []);
    assert_eq!(life.kept.phase, Phase::Activating);
    life.now.company = Some(true);
    let acts = advance(&mut life, 2, &ordered);
    assert!(matches!(&acts[..], [Act::Device(Step::Revert { .. }), Act::Verdict(_, Outcome::RolledBack, _)]), "{acts:?}");
    assert_eq!(life.kept.denied, [ordered.release, build_of(&ordered)], "whatever the restart forgot");
}

#[test]
fn a_build_of_the_agent_that_is_unhealthy_is_at_fault_whoever_answers() {
    let ordered = mission("r", 2);
    let mut life = alone_on_trial(&ordered);
    life.report(now(2 * SECOND), Report::Health(Health::Failing(Reason::lossy("broken"))));
    let asked = steps(&advance(&mut life, 3 * SECOND, &ordered));
    assert!(matches!(&asked[..], [Step::Revert { .. }]));
    assert!(matches!(&back_on_one(&mut life, 4 * SECOND, 2)[..], [Act::Verdict(_, Outcome::RolledBack, _)]));
}

#[test]
fn an_agent_without_a_supervisor_is_never_replaced_and_says_so() {
    let ordered = Mission { unsupported: Some(Hold::NoSupervisor), ..mission("r", 2) };
    let mut life = on_version_one();
    assert_eq!(advance(&mut life, SECOND, &ordered), []);
    assert_eq!(life.now.hold, Some(Hold::NoSupervisor));
}

/// On trial in a run that began at 0 after this much time in which it did not run, with a store that was put down at `before`.
fn taken_up(ordered: &Mission, company: bool, off_seconds: u64) -> Life {
    let before = alone_on_trial(ordered);
    let began = now(2 * SECOND).wall.seconds() + off_seconds;
    let at = |ms: u64| Now { awake_ms: ms, boot: Time(ms), wall: Timestamp::from_seconds(began + ms / SECOND) };
    let mut life = Life::open(before.kept, at(0));
    life.now.company = Some(company);
    let recovered = Recovered { running: Some(running(2, 2)), trial: Some(ordered.release), ..at_rest_on_one() };
    assert_eq!(life.report(at(1), Report::Recovered(recovered)), []);
    life
}

#[test]
fn an_agent_on_trial_that_was_off_for_longer_than_its_time_is_looked_at_first_and_not_blamed() {
    let ordered = mission("r", 2);
    let off_seconds = ordered.upgrade_timeout_ms / SECOND + 3_600;
    let goes_back = |mut life: Life, at: u64| {
        let asked = steps(&advance(&mut life, at, &ordered));
        assert!(matches!(asked[..], [Step::Revert { at_fault: false, .. }]), "{asked:?}");
        assert_eq!(back_on_one(&mut life, at + SECOND, 2), []);
        assert_eq!((life.kept.phase, life.kept.verdicts.len(), life.kept.denied.len()), (Phase::Waiting, 0, 0));
    };
    for company in [true, false] {
        for health in [None, Some(Health::Healthy), Some(Health::Unknown(Reason::lossy("status 429")))] {
            let mut life = taken_up(&ordered, company, off_seconds);
            assert_eq!(advance(&mut life, 2, &ordered), [], "company {company}, {health:?}");
            assert!(matches!(life.now.hold, Some(Hold::Undecided(_))));
            let confirms = company && health == Some(Health::Healthy);
            if let Some(health) = health {
                life.report(now(3 * SECOND), Report::Health(health));
            }
            if confirms {
                let asked = steps(&advance(&mut life, 3 * SECOND + ordered.confirm_after_ms, &ordered));
                assert_eq!(asked, [Step::Confirm { release: ordered.release }]);
                continue;
            }
            assert_eq!(advance(&mut life, HEALTH_AFTER_START_MS, &ordered), []);
            assert_eq!(life.deadline(now(HEALTH_AFTER_START_MS)), Some(Time(HEALTH_AFTER_START_MS + 1)));
            goes_back(life, HEALTH_AFTER_START_MS + 1);
        }
        // What fails is to blame, however long it was off.
        let mut life = taken_up(&ordered, company, off_seconds);
        life.report(now(3 * SECOND), Report::Health(Health::Failing(Reason::lossy("500"))));
        assert!(matches!(steps(&advance(&mut life, 3 * SECOND, &ordered))[..], [Step::Revert { at_fault: true, .. }]));
    }
}

#[test]
fn an_agent_whose_time_is_short_is_looked_at_for_no_longer_than_that_before_its_supervisor_ends_it() {
    let ordered = Mission { upgrade_timeout_ms: 60 * SECOND, ..mission("r", 2) };
    let mut life = taken_up(&ordered, true, 3_600);
    for at in [2, 16 * SECOND, 60 * SECOND] {
        assert_eq!(advance(&mut life, at, &ordered), [], "at {at}");
    }
    let over = 60 * SECOND + 1;
    assert_eq!(life.deadline(now(60 * SECOND)), Some(Time(over)));
    assert!(matches!(steps(&advance(&mut life, over, &ordered))[..], [Step::Revert { at_fault: false, .. }]));
    back_on_one(&mut life, over + SECOND, 2);
    assert_eq!((life.kept.phase, life.kept.verdicts.len(), life.kept.denied.len()), (Phase::Waiting, 0, 0));
}

#[test]
fn an_agent_that_was_merely_handed_over_has_no_time_beyond_its_own() {
    let ordered = mission("r", 2);
    let over = ordered.upgrade_timeout_ms;
    let mut life = taken_up(&ordered, false, 20);
    life.report(now(SECOND), Report::Health(Health::Healthy));
    assert!(matches!(steps(&advance(&mut life, over, &ordered))[..], [Step::Revert { at_fault: false, .. }]));
    back_on_one(&mut life, over + SECOND, 2);
    assert!(life.kept.attempt.as_ref().is_some_and(|attempt| attempt.proof.is_some()), "the old build decides");
    // One that never says anything of its health has had its time.
    let mut life = taken_up(&ordered, true, 20);
    assert!(matches!(steps(&advance(&mut life, over, &ordered))[..], [Step::Revert { at_fault: true, .. }]));
}

//! A way back that does not end, and what a newer rollout puts in its place: the claim stands until one of them runs.

use alloc::boxed::Box;

use super::*;
use crate::lease::claim::stands;
use crate::limits::OVERTAKE_AFTER_MS;

/// The rollout that counts instead, of release 3.
fn newer() -> Mission {
    let mission = mission("s", 3);
    Mission { seen: RolloutSeen { digest: digest(101), ..mission.seen.clone() }, ..mission }
}

fn fault() -> Report {
    Report::Blocked(Vec::from([HoldNotice { code: HoldCode::DeviceFault, until: None }]))
}

/// Release 2 fails at second 2, and its way back does not end.
fn going_back() -> Life {
    let ordered = mission("r", 2);
    let mut life = activating(&ordered);
    life.report(now(SECOND), Report::Activated { release: ordered.release });
    life.report(now(SECOND), Report::Health(Health::Failing(Reason::lossy("500"))));
    assert!(matches!(steps(&advance(&mut life, 2 * SECOND, &ordered))[..], [Step::Revert { .. }]));
    life.report(now(3 * SECOND), fault());
    life
}

/// What is asked for at `at`, beside the way back itself.
fn asked(life: &mut Life, at: u64, mission: &Mission) -> Vec<Step> {
    let mut asked = steps(&advance(life, at, mission));
    asked.retain(|step| !matches!(step, Step::Revert { .. }));
    assert_eq!(life.kept.phase, Phase::Activating);
    let claim = life.kept.claim.clone().expect("it is disrupted");
    assert!(claim.name == name(5) && stands(&life.section(), &claim), "S1: no slot is given back");
    asked
}

const LONG: u64 = 3 * SECOND + OVERTAKE_AFTER_MS;

#[test]
fn s1_a_newer_release_takes_the_place_of_a_way_back_that_does_not_end_under_the_claim_that_stands() {
    let (mut life, newer) = (going_back(), newer());
    let sha256 = digest(3);
    assert_eq!(asked(&mut life, LONG - 2 * SECOND, &newer), [], "it may end yet");
    let mut at = LONG;
    // A stage that fails again and again ends nothing.
    for _ in 0..RETRIES + 2 {
        assert!(matches!(asked(&mut life, at, &newer)[..], [Step::Fetch { .. }]));
        life.report(now(at), Report::Fetched { sha256 });
        assert!(matches!(asked(&mut life, at, &newer)[..], [Step::Stage { .. }]));
        let reason = Reason::lossy("no");
        life.report(now(at), Report::StageFailed { release: newer.release, fault: Fault::Broken, reason });
        assert_eq!(asked(&mut life, at, &newer), []);
        at += RETRY_LONGEST_MS + SECOND;
    }
    asked(&mut life, at, &newer);
    life.report(now(at), Report::Fetched { sha256 });
    asked(&mut life, at, &newer);
    life.report(now(at), Report::Staged { release: newer.release });
    let acts = advance(&mut life, at, &newer);
    let [Act::Verdict(rollout, Outcome::Failed, reason), Act::Device(Step::Activate { claim, .. })] = &acts[..] else {
        panic!("{acts:?}")
    };
    assert_eq!((rollout.as_str(), *claim), ("r", name(5)), "the failure is told, and the claim stands");
    assert!(reason.contains("what ran before does not start: unhealthy: 500"), "{reason}");
    assert!(life.kept.denied.contains(&digest(2)));
    assert_eq!(asked(&mut life, at, &newer), []);
    life.report(now(at), Report::Activated { release: newer.release });
    life.report(now(at), Report::Health(Health::Healthy));
    assert_eq!(asked(&mut life, at + 6 * SECOND, &newer), [Step::Confirm { release: newer.release }]);
    life.report(now(at), Report::Confirmed { release: newer.release });
    assert_eq!(life.kept.phase, Phase::Confirmed);
}

#[test]
fn an_old_version_that_runs_after_all_is_a_verdict_under_the_claim() {
    let (mut life, newer) = (going_back(), newer());
    assert!(matches!(asked(&mut life, LONG, &newer)[..], [Step::Fetch { .. }]));
    let acts = back_on_one(&mut life, LONG, 2);
    assert!(matches!(&acts[..], [Act::Verdict(rollout, Outcome::RolledBack, _)] if rollout.as_str() == "r"), "{acts:?}");
    assert_eq!(life.kept.verdicts.first().and_then(|verdict| verdict.claim), Some(name(5)));
}

#[test]
fn only_what_could_start_takes_the_place_of_a_way_back() {
    let shut = Err(Hold::NoFleet);
    let missions = [
        Mission { gate: shut, ..newer() },
        Mission { aborted: Some(false), ..newer() },
        Mission { unsupported: Some(Hold::NoFleet), ..newer() },
        Mission { install: None, ..newer() },
        mission("s", 2),
        mission("r", 2),
    ];
    for mission in missions {
        let mut life = going_back();
        life.report(now(4 * SECOND), Report::Staged { release: mission.release });
        assert_eq!(asked(&mut life, LONG, &mission), [], "{mission:?}");
    }
    // A local block holds the start, and nothing before it.
    let mut life = going_back();
    life.report(now(4 * SECOND), Report::Staged { release: digest(3) });
    life.report(now(4 * SECOND), Report::Blocked(Vec::from([HoldNotice { code: HoldCode::Inhibited, until: None }])));
    assert_eq!(asked(&mut life, LONG, &newer()), []);
    life.report(now(LONG), fault());
    assert!(matches!(asked(&mut life, LONG, &newer())[..], [Step::Activate { .. }]));
}

#[test]
fn what_could_not_take_the_place_of_a_way_back_for_no_fault_of_its_own_is_tried_once_more_in_time() {
    for at_fault in [false, true] {
        let (mut life, newer) = (going_back(), newer());
        let mut at = LONG;
        life.report(now(at), Report::Staged { release: newer.release });
        assert!(matches!(asked(&mut life, at, &newer)[..], [Step::Activate { .. }]));
        for _ in 0..3 {
            let reason = Reason::lossy("too many processes");
            life.report(now(at), Report::ActivateFailed { release: newer.release, reason, at_fault });
            assert_eq!(asked(&mut life, at + OVERTAKE_AFTER_MS - SECOND, &newer), [], "the way back goes on");
            at += OVERTAKE_AFTER_MS;
            let again = asked(&mut life, at, &newer);
            if at_fault {
                assert_eq!(again, []);
                continue;
            }
            assert!(matches!(again[..], [Step::Fetch { .. } | Step::Stage { .. }]), "{again:?}");
            life.report(now(at), Report::Fetched { sha256: digest(3) });
            asked(&mut life, at, &newer);
            life.report(now(at), Report::Staged { release: newer.release });
            assert!(matches!(asked(&mut life, at, &newer)[..], [Step::Activate { claim, .. }] if claim == name(5)));
        }
    }
}

#[test]
fn a_way_back_that_did_not_end_before_a_restart_goes_on_after_it() {
    let told = |release| {
        let going_back = Some(Box::new((digest(release), Reason::lossy("unhealthy: 500"), true)));
        Report::Recovered(Recovered { going_back, ..at_rest_on_one() })
    };
    // Whether or not it was asked for: the device may have come to that by itself.
    for kept in [going_back().kept, activating(&mission("r", 2)).kept] {
        let mut life = Life::open(kept, now(0));
        let acts = steps(&life.report(now(1), told(2)));
        assert!(matches!(&acts[..], [Step::Revert { release, .. }] if *release == digest(2)), "{acts:?}");
        life.report(now(2), fault());
        assert_eq!(asked(&mut life, SECOND, &newer()), []);
        assert!(matches!(asked(&mut life, LONG, &newer())[..], [Step::Fetch { .. }]));
        let acts = back_on_one(&mut life, LONG, 2);
        assert!(matches!(&acts[..], [Act::Verdict(_, Outcome::RolledBack, _)]), "{acts:?}");
    }
    // It ended just before the device would have put release 3 in its place: nothing is known of that.
    let mut life = Life::open(activating(&newer()).kept, now(0));
    let acts = steps(&life.report(now(1), told(2)));
    assert!(matches!(&acts[..], [Step::Revert { release, at_fault: false, .. }] if *release == newer().release), "{acts:?}");
    assert!(matches!(asked(&mut life, LONG, &newer())[..], [Step::Fetch { .. }]), "and it is tried again");
    let kept = life.kept.clone();
    assert_eq!(back_on_one(&mut life, LONG, 3), []);
    assert_eq!((life.kept.phase, life.kept.verdicts.len(), life.kept.denied.len()), (Phase::Waiting, 0, 0));
    // It ends once more, and the old version runs at its next start: release 2 failed under the same claim, and release 3 is not to
    // blame for that.
    let reason = Reason::lossy("unhealthy: 500");
    let failed = Some(Box::new(WentBack { claim: name(5), release: digest(2), reason: reason.clone() }));
    let over = Recovered { reverted: Some((digest(2), reason)), claim: Some(name(5)), failed, ..at_rest_on_one() };
    for kept in [kept, activating(&newer()).kept] {
        for reverted in [over.reverted.clone(), None] {
            let mut life = Life::open(kept.clone(), now(0));
            let over = Recovered { reverted, ..over.clone() };
            assert_eq!(life.report(now(1), Report::Recovered(over)), []);
            assert_eq!((life.kept.phase, life.kept.verdicts.len(), life.kept.denied.len()), (Phase::Waiting, 0, 0));
        }
    }
    // The device had come as far as to start release 3, and was not able to.
    let unable = |life: &mut Life| {
        let going_back = Some(Box::new((digest(3), Reason::lossy("too many processes"), false)));
        steps(&life.report(now(1), Report::Recovered(Recovered { going_back, ..at_rest_on_one() })))
    };
    let mut life = Life::open(activating(&newer()).kept, now(0));
    let acts = unable(&mut life);
    assert!(matches!(&acts[..], [Step::Revert { release, at_fault: false, .. }] if *release == digest(3)), "{acts:?}");
    assert!(matches!(asked(&mut life, LONG, &newer())[..], [Step::Fetch { .. }]), "and it is tried again");
    // An order that takes it back stays one.
    let aborted = Mission { aborted: Some(true), ..newer() };
    let mut life = activating(&newer());
    assert!(matches!(steps(&advance(&mut life, SECOND, &aborted))[..], [Step::Revert { at_fault: false, .. }]));
    let mut life = Life::open(life.kept, now(0));
    unable(&mut life);
    assert_eq!(asked(&mut life, LONG, &newer()), []);
    // A store that knows nothing of it.
    let mut life = Life::open(Kept::default(), now(0));
    let acts = steps(&life.report(now(1), told(2)));
    assert!(matches!(&acts[..], [Step::Revert { release, .. }] if *release == digest(2)), "{acts:?}");
    assert!(!life.now.recovered);
}

#[test]
fn s1_a_newer_release_takes_the_place_of_an_orphan_whose_way_back_does_not_end_once_its_claim_is_known() {
    let told = Recovered { running: Some(running(2, 2)), trial: Some(digest(2)), ..at_rest_on_one() };
    let orphan = || {
        let mut life = Life::open(Kept::default(), now(0));
        life.report(now(0), Report::Recovered(told.clone()));
        life.report(now(0), fault());
        life
    };
    let claim = activating(&newer()).kept.claim.unwrap();
    let others = |life: &mut Life, at: u64, mission: &Mission| {
        let mut asked = steps(&advance(life, at, mission));
        asked.retain(|step| !matches!(step, Step::Revert { .. }));
        asked
    };
    // Without its claim it says nothing and starts nothing; nor does it put what is left in its own place.
    assert_eq!(others(&mut orphan(), LONG, &newer()), []);
    let mut life = orphan();
    life.take_back(&claim);
    assert_eq!(others(&mut life, LONG, &mission("r", 2)), []);
    assert_eq!(others(&mut life, SECOND, &newer()), [], "it may end yet");
    assert!(matches!(others(&mut life, LONG, &newer())[..], [Step::Fetch { .. }]));
    life.report(now(LONG), Report::Fetched { sha256: digest(3) });
    assert!(matches!(others(&mut life, LONG, &newer())[..], [Step::Stage { .. }]));
    let reason = Reason::lossy("no");
    life.report(now(LONG), Report::StageFailed { release: newer().release, fault: Fault::Broken, reason });
    assert_eq!(others(&mut life, LONG, &newer()), [], "it pauses");
    assert_eq!(life.section().rollout, None, "it has begun nothing of that rollout");
    life.report(now(LONG), Report::Staged { release: newer().release });
    assert!(matches!(asked(&mut life, LONG, &newer())[..], [Step::Activate { claim, .. }] if claim == name(5)));
    assert_eq!((life.now.orphan, life.kept.verdicts.len(), life.kept.denied.len()), (None, 0, 0));
    life.report(now(LONG), Report::Activated { release: newer().release });
    life.report(now(LONG), Report::Health(Health::Healthy));
    assert_eq!(asked(&mut life, LONG + 6 * SECOND, &newer()), [Step::Confirm { release: newer().release }]);
    // A claim that the set-back store remembers is none that stands.
    let mut life = orphan();
    (life.kept.phase, life.kept.claim) = (Phase::Soaked, Some(claim.clone()));
    assert_eq!(others(&mut life, LONG, &newer()), []);
    // One whose way back ends is over, as ever.
    let mut life = orphan();
    life.take_back(&claim);
    back_on_one(&mut life, LONG, 2);
    assert_eq!((life.now.recovered, life.kept.phase, &life.kept.claim), (true, Phase::Waiting, &None));
}

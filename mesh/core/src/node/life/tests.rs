//! A life by itself: what it asks of the device, and what it signs.

use alloc::vec::Vec;

use super::super::effect::{Install, Step};
use super::super::hold::Hold;
use super::super::input::{Fault, Health, Recovered, Report, WentBack};
use super::advance::Asking;
use super::{Act, Kept, Life, Mission, Turn};
use crate::digest::{Digest, Hex32};
use crate::documents::release::Artifact;
use crate::install::Contents;
use crate::limits::{ASK_AGAIN_MS, HEALTH_AFTER_START_MS, LOOK_AFTER_WAKING_MS, RETRIES, RETRY_LONGEST_MS};
use crate::number::Sequence;
use crate::record::status::{Claim, HoldCode, HoldNotice, Outcome, Phase, Purpose, RolloutSeen, Running};
use crate::record::{ClaimName, Stamp};
use crate::text::{ArtifactName, Pool, Reason, RolloutId, Version};
use crate::time::{Now, Time, Timestamp};

mod overtake;
mod own;
mod trial;

const SECOND: u64 = 1_000;

fn now(ms: u64) -> Now {
    Now { awake_ms: ms, boot: Time(ms), wall: Timestamp::from_seconds(1_800_000_000 + ms / SECOND) }
}

fn digest(of: u8) -> Digest {
    Digest([of; 32])
}

fn running(sequence: u64, release: u8) -> Running {
    let version = Version::new(alloc::format!("{sequence}.0.0")).unwrap();
    Running { version, sequence: Sequence::new(sequence).unwrap(), release: digest(release) }
}

fn name(counter: u64) -> ClaimName {
    ClaimName(Stamp { incarnation: 1, counter })
}

fn mission(rollout: &str, release: u8) -> Mission {
    let Running { version, sequence, .. } = running(2, release);
    let artifact = Artifact {
        name: ArtifactName::new("svc").unwrap(),
        platform: None,
        sha256: Hex32([release; 32]),
        size: 1,
        blake3: Hex32([release; 32]),
    };
    Mission {
        seen: RolloutSeen { id: RolloutId::new(rollout).unwrap(), generation: 1, digest: digest(100) },
        install: Some(Install { release: digest(release), version, sequence, artifact }),
        release: digest(release),
        skip: None,
        aborted: None,
        retry: None,
        prefetch: true,
        gate: Ok(()),
        unsupported: None,
        soak_ms: 30 * SECOND,
        confirm_after_ms: 5 * SECOND,
        upgrade_timeout_ms: 600 * SECOND,
    }
}

/// What a device says that runs version 1 and has nothing under way.
fn at_rest_on_one() -> Recovered {
    Recovered::at_rest(Some(running(1, 1)), Sequence::new(1).unwrap())
}

fn on_version_one() -> Life {
    let mut life = Life::open(Kept::default(), now(0));
    life.report(now(0), Report::Recovered(at_rest_on_one()));
    life
}

/// Moves it with a lease protocol that lets it start at once.
fn advance(life: &mut Life, at: u64, mission: &Mission) -> Vec<Act> {
    life.advance(now(at), Some(mission), &mut |_, asking| match asking {
        Asking::Claim => Turn::Claim(Some(0)),
        Asking::Start => Turn::Start,
    })
}

fn steps(acts: &[Act]) -> Vec<Step> {
    let steps = acts.iter().filter_map(|act| match act {
        Act::Device(step) => Some(step.clone()),
        _ => None,
    });
    steps.collect()
}

/// Staged, claimed under `name(5)` and started: the device was asked to activate.
fn activating(mission: &Mission) -> Life {
    let mut life = on_version_one();
    life.report(now(1), Report::Staged { release: mission.release });
    assert_eq!(advance(&mut life, 2, mission), [Act::Claim(Some(0))]);
    life.kept.claim = Some(Claim {
        name: name(5),
        nonce: 1,
        pool: Pool::new("edge").unwrap(),
        slot: Some(0),
        roster: digest(9),
        purpose: Purpose::Rollout(digest(100)),
    });
    life.kept.phase = Phase::Claiming;
    assert!(matches!(steps(&advance(&mut life, 3, mission))[..], [Step::Activate { .. }]));
    life
}

/// The same, started and healthy since second 1, and asked to confirm at second 6.
fn confirming(mission: &Mission) -> Life {
    let mut life = activating(mission);
    life.report(now(SECOND), Report::Activated { release: mission.release });
    life.report(now(SECOND), Report::Health(Health::Healthy));
    let asked = steps(&advance(&mut life, 6 * SECOND, mission));
    assert_eq!(asked, [Step::Confirm { release: mission.release }]);
    life
}

fn back_on_one(life: &mut Life, at: u64, release: u8) -> Vec<Act> {
    let report = Report::Reverted { release: digest(release), running: Some(running(1, 1)), output: Reason::none() };
    life.report(now(at), report)
}

#[test]
fn an_abort_with_rollback_does_not_stop_what_is_being_confirmed() {
    let ordered = mission("r", 2);
    let mut life = confirming(&ordered);
    let aborted = Mission { aborted: Some(true), ..ordered.clone() };
    assert_eq!(advance(&mut life, 7 * SECOND, &aborted), []);
    life.report(now(8 * SECOND), Report::Confirmed { release: ordered.release });
    assert_eq!(life.kept.phase, Phase::Confirmed);
    assert_eq!(life.kept.floor, Sequence::new(2).unwrap());
}

#[test]
fn a_confirm_that_is_not_answered_is_asked_for_again_and_so_is_a_revert() {
    let ordered = mission("r", 2);
    let mut life = confirming(&ordered);
    let again = 6 * SECOND + ASK_AGAIN_MS;
    assert_eq!(life.deadline(now(7 * SECOND)), Some(Time(again)));
    assert_eq!(advance(&mut life, again - 1, &ordered), []);
    assert_eq!(steps(&advance(&mut life, again, &ordered)), [Step::Confirm { release: ordered.release }]);
    assert_eq!(advance(&mut life, again + 1, &ordered), [], "asked, and waits");

    let mut life = activating(&ordered);
    life.report(now(SECOND), Report::ActivateFailed { release: ordered.release, reason: Reason::lossy("no"), at_fault: true });
    let asked = steps(&advance(&mut life, SECOND + ASK_AGAIN_MS, &ordered));
    assert!(matches!(&asked[..], [Step::Revert { reason, .. }] if *reason == Reason::lossy("no")), "{asked:?}");
}

#[test]
fn what_cannot_be_confirmed_goes_back() {
    let ordered = mission("r", 2);
    let mut life = confirming(&ordered);
    let failed = |at_fault| Report::ConfirmFailed { release: ordered.release, reason: Reason::lossy("no"), at_fault };
    let asked = steps(&life.report(now(7 * SECOND), failed(true)));
    assert!(matches!(asked[..], [Step::Revert { at_fault: true, .. }]), "{asked:?}");
    back_on_one(&mut life, 8 * SECOND, 2);
    assert_eq!(life.kept.phase, Phase::RolledBack);
    // A device that knows of no trial says nothing of the release.
    let mut life = confirming(&ordered);
    let asked = steps(&life.report(now(7 * SECOND), failed(false)));
    assert!(matches!(asked[..], [Step::Revert { at_fault: false, .. }]), "{asked:?}");
    back_on_one(&mut life, 8 * SECOND, 2);
    assert_eq!((life.kept.phase, life.kept.verdicts.len(), life.kept.denied.len()), (Phase::Waiting, 0, 0));
}

#[test]
fn a_second_answer_to_one_revert_does_not_end_the_next_upgrade() {
    let ordered = mission("r", 2);
    let mut life = activating(&ordered);
    assert_eq!(back_on_one(&mut life, SECOND, 2), []);
    assert_eq!(life.kept.phase, Phase::Activating, "nobody asked for it in this upgrade");
}

#[test]
fn a_verdict_is_told_once() {
    let ordered = mission("r", 2);
    let mut life = confirming(&ordered);
    life.report(now(7 * SECOND), Report::Confirmed { release: ordered.release });
    assert_eq!(advance(&mut life, 36 * SECOND, &ordered), [], "one second of the soak is left");
    let told = advance(&mut life, 37 * SECOND, &ordered);
    assert!(matches!(told[..], [Act::Verdict(_, Outcome::Soaked, _)]), "{told:?}");
    for second in 38..100 {
        assert_eq!(advance(&mut life, second * SECOND, &ordered), []);
    }
    assert_eq!(life.kept.verdicts.len(), 1);
}

#[test]
fn nobody_vouches_for_a_version_whose_health_is_not_known() {
    let ordered = mission("r", 1);
    let mut life = on_version_one();
    assert_eq!(advance(&mut life, SECOND, &ordered), []);
    assert_eq!(life.kept.phase, Phase::Waiting);
    life.report(now(2 * SECOND), Report::Health(Health::Unknown(Reason::lossy("throttled"))));
    assert_eq!(advance(&mut life, 3 * SECOND, &ordered), []);
    life.report(now(4 * SECOND), Report::Health(Health::Healthy));
    let told = advance(&mut life, 5 * SECOND, &ordered);
    assert!(matches!(told[..], [Act::Verdict(_, Outcome::Soaked, _)]), "{told:?}");
}

#[test]
fn only_a_release_that_is_at_fault_is_denied_to_later_rollouts() {
    // An order took it back.
    let ordered = mission("r", 2);
    let mut life = activating(&ordered);
    let aborted = Mission { aborted: Some(true), ..ordered.clone() };
    assert!(matches!(steps(&advance(&mut life, SECOND, &aborted))[..], [Step::Revert { .. }]));
    back_on_one(&mut life, 2 * SECOND, 2);
    assert_eq!((life.kept.phase, &life.kept.denied[..]), (Phase::RolledBack, &[][..]));
    // The next rollout of the same bytes finds nothing against them.
    let next = mission("s", 2);
    life.report(now(1), Report::Staged { release: next.release });
    assert_eq!(advance(&mut life, 2, &next), [Act::Claim(Some(0))]);
    // Its health failed, and nobody tries it again here.
    let mut life = activating(&ordered);
    life.report(now(SECOND), Report::Activated { release: ordered.release });
    life.report(now(SECOND), Report::Health(Health::Failing(Reason::lossy("500"))));
    advance(&mut life, 2 * SECOND, &ordered);
    back_on_one(&mut life, 3 * SECOND, 2);
    assert_eq!(life.kept.denied, [ordered.release, build_of(&ordered)]);
    let told = advance(&mut life, 4 * SECOND, &next);
    assert!(matches!(told[..], [Act::Verdict(_, Outcome::Failed, _)]), "{told:?}");
}

fn build_of(mission: &Mission) -> Digest {
    Contents::of(mission.install.as_ref().unwrap()).build()
}

/// Rollout `s` of another release, with the version and the bytes of release 2.
fn the_same_again() -> Mission {
    let mut again = mission("s", 3);
    again.install.as_mut().unwrap().artifact.sha256 = Hex32([2; 32]);
    again
}

#[test]
fn d1_a_build_that_failed_is_not_tried_again_under_another_release_until_that_is_forgiven() {
    let ordered = mission("r", 2);
    let fails = |mut life: Life| {
        life.report(now(2 * SECOND), Report::Health(Health::Failing(Reason::lossy("500"))));
        advance(&mut life, 2 * SECOND, &ordered);
        back_on_one(&mut life, 3 * SECOND, 2);
        assert_eq!(life.kept.denied, [ordered.release, build_of(&ordered)]);
        life
    };
    let on_trial = || {
        let mut life = activating(&ordered);
        life.report(now(SECOND), Report::Activated { release: ordered.release });
        life
    };
    let restarted = || {
        let mut life = Life::open(on_trial().kept, now(SECOND));
        let recovered = Recovered { running: Some(running(2, 2)), trial: Some(ordered.release), ..at_rest_on_one() };
        life.report(now(SECOND), Report::Recovered(recovered));
        life
    };
    // What the device remembers, where the node's store is lost.
    let told = || {
        let mut life = Life::open(Kept::default(), now(0));
        let denied = Vec::from([ordered.release, build_of(&ordered)]);
        life.report(now(0), Report::Recovered(Recovered { denied, ..at_rest_on_one() }));
        life
    };
    for mut life in [fails(on_trial()), fails(restarted()), told()] {
        let again = the_same_again();
        assert!(matches!(advance(&mut life, 4 * SECOND, &again)[..], [Act::Verdict(_, Outcome::Failed, _)]));
        let forgiven = Mission { retry: Some(None), ..again };
        assert!(matches!(steps(&advance(&mut life, 5 * SECOND, &forgiven))[..], [Step::Fetch { .. }]));
    }
    // The same bytes as another version, or the version with other bytes, is another build.
    let mut other = the_same_again();
    other.install.as_mut().unwrap().version = Version::new("2.0.1").unwrap();
    for other in [other, mission("s", 3)] {
        assert!(matches!(steps(&advance(&mut told(), SECOND, &other))[..], [Step::Fetch { .. }]));
    }
}

/// Lets every fetch fail until the life gives up.
fn fail_to_fetch(life: &mut Life, mut at: u64, mission: &Mission) -> u64 {
    for _ in 0..=RETRIES {
        at += 3_600 * SECOND;
        advance(life, at, mission);
        let fault = Fault::Broken;
        life.report(now(at), Report::FetchFailed { sha256: digest(2), fault, reason: Reason::lossy("no route") });
    }
    at
}

#[test]
fn d1_a_failure_after_a_forgiven_one_is_a_new_failure_also_before_any_claim() {
    let ordered = mission("r", 2);
    let mut life = activating(&ordered);
    life.report(now(SECOND), Report::ActivateFailed { release: ordered.release, reason: Reason::lossy("no"), at_fault: true });
    back_on_one(&mut life, 2 * SECOND, 2);
    let forgiven = Mission { retry: Some(Some(name(5))), ..ordered.clone() };
    life.now.next_name = name(9);
    let at = fail_to_fetch(&mut life, 3 * SECOND, &forgiven);
    assert_eq!(life.kept.phase, Phase::Failed);
    let failures: Vec<_> = life.kept.verdicts.iter().map(|verdict| verdict.claim).collect();
    assert_eq!(failures, [Some(name(5)), Some(name(9))], "named, so that it can be told from what was forgiven");
    for later in 1..100 {
        assert_eq!(advance(&mut life, at + later * SECOND, &forgiven), [], "it has failed, and stays so");
        assert_eq!(life.kept.phase, Phase::Failed);
    }
    // Forgiven by that name it tries again; so does one that failed before any claim, twice.
    let again = Mission { retry: Some(Some(name(9))), ..ordered.clone() };
    assert!(matches!(steps(&advance(&mut life, at + 200 * SECOND, &again))[..], [Step::Fetch { .. }]));
    let mut life = on_version_one();
    let at = fail_to_fetch(&mut life, 0, &ordered);
    let forgiven = Mission { retry: Some(None), ..ordered };
    fail_to_fetch(&mut life, at, &forgiven);
    let failures: Vec<_> = life.kept.verdicts.iter().map(|verdict| verdict.claim).collect();
    assert_eq!(failures, [None, Some(ClaimName::default())]);
    assert_eq!(life.now.hold, None::<Hold>);
}

#[test]
fn a_trial_that_the_store_does_not_know_is_taken_back_before_anything_else() {
    let mut life = Life::open(Kept::default(), now(0));
    let recovered = Recovered { running: Some(running(2, 2)), trial: Some(digest(2)), ..at_rest_on_one() };
    assert!(matches!(steps(&life.report(now(0), Report::Recovered(recovered)))[..], [Step::Revert { .. }]));
    assert!(!life.now.recovered, "until then it cannot say what runs");
    assert_eq!(advance(&mut life, ASK_AGAIN_MS - 1, &mission("r", 3)), []);
    assert_eq!(life.deadline(now(1)), Some(Time(ASK_AGAIN_MS)));
    assert!(matches!(steps(&advance(&mut life, ASK_AGAIN_MS, &mission("r", 3)))[..], [Step::Revert { .. }]));
    back_on_one(&mut life, ASK_AGAIN_MS + 1, 2);
    assert!(life.now.recovered);
    assert_eq!(life.kept.running, Some(running(1, 1)));
}

#[test]
fn t5_a_release_that_waits_staged_gives_way_to_the_one_that_supersedes_it() {
    let waiting = |rollout, release| Mission { gate: Err(Hold::Paused("until Monday".into())), ..mission(rollout, release) };
    let mut life = on_version_one();
    life.report(now(1), Report::Staged { release: digest(2) });
    assert_eq!(steps(&advance(&mut life, 2, &waiting("r", 2))), []);
    let asked = steps(&advance(&mut life, 3, &waiting("later", 3)));
    assert!(matches!(&asked[..], [Step::Fetch { release, .. }] if *release == digest(3)), "{asked:?}");
    life.report(now(4), Report::Staged { release: digest(3) });
    assert_eq!(advance(&mut life, 5, &waiting("later", 3)), []);
    assert_eq!(advance(&mut life, 6, &mission("later", 3)), [Act::Claim(Some(0))], "what is staged now is the newer one");
}

#[test]
fn b2_a_full_disk_under_a_download_is_tried_again_for_as_long_as_it_takes_and_blames_nothing() {
    let ordered = mission("r", 2);
    let mut life = on_version_one();
    let mut at = SECOND;
    for _ in 0..10 * RETRIES {
        let asked = steps(&advance(&mut life, at, &ordered));
        assert!(matches!(asked[..], [Step::Fetch { .. }]), "{asked:?}");
        let failed = Report::FetchFailed { sha256: digest(2), fault: Fault::DiskFull, reason: Reason::lossy("disk-full") };
        assert_eq!(life.report(now(at), failed), []);
        assert_eq!(advance(&mut life, at + 1, &ordered), [], "it pauses");
        let full = HoldNotice { code: HoldCode::DiskFull, until: None };
        assert_eq!((life.kept.phase, &life.now.hold), (Phase::Waiting, &Some(Hold::Local(full))));
        let due = life.deadline(now(at + 1)).expect("it tries again by itself").0;
        assert!(due <= at + RETRY_LONGEST_MS, "after {} ms", due - at);
        at = due;
    }
    assert_eq!((life.kept.verdicts.len(), life.kept.denied.len(), life.kept.tries), (0, 0, None));
    advance(&mut life, at, &ordered);
    life.report(now(at), Report::Fetched { sha256: digest(2) });
    assert!(matches!(steps(&advance(&mut life, at, &ordered))[..], [Step::Stage { .. }]));
}

//! When waves pass and open, and when they hold.

use groundswell_core::documents::rollout::{Approval, Forgiven, State, Wave};
use groundswell_core::node::view::Standing;
use groundswell_core::record::status::{HoldCode, HoldNotice, Outcome, Phase, Section, Status};
use groundswell_core::rollout::applies::Skip;
use groundswell_core::rollout::gate::Verdict;
use groundswell_core::rollout::progress::Change;
use groundswell_core::rollout::report::MemberReport;
use groundswell_core::time::Timestamp;

use super::fixture::*;

/// 20 nodes in waves of 2, 8 and 10.
fn twenty() -> Observer {
    Observer::of(&rollout("rollout_a", percents(&[100_000, 500_000, 1_000_000])), fleet(20))
}

#[test]
fn a_wave_opens_when_the_one_before_has_soaked() {
    let mut observer = twenty();
    assert!(observer.open(0) && !observer.open(1));
    assert_eq!(observer.hears(observer.member(0, 0), soaked(1)), []);
    let changes = observer.hears(observer.member(0, 1), soaked(1));
    assert!(matches!(&changes[..], [Change::Passed(passed), Change::Opened(1)] if passed.wave == 0), "{changes:?}");
    assert!(observer.open(1) && !observer.open(2));
    assert!(observer.why(2).contains("wave 3 waits for wave 2: 8 of 8 not done"), "{}", observer.why(2));
}

#[test]
fn w4_a_wave_that_applies_to_nobody_passes_at_once_and_says_so() {
    let mut observer = twenty();
    observer.hears_wave(0, &skipped());
    assert!(observer.open(1));
    assert_eq!(observer.progress.verdict(0), Verdict::NobodyApplies);
    assert_eq!(observer.progress.note(0), "passed at once: it applies to none of its members");

    let three = Observer::of(&rollout("rollout_a", percents(&[10_000, 100_000, 500_000, 1_000_000])), fleet(3));
    assert_eq!(three.progress.verdict(3), Verdict::Empty);
    assert!(!three.progress.passed(3) && !three.progress.complete(), "an empty last wave does not outrun the first");
}

#[test]
fn g1_staged_and_gone_is_not_success() {
    let mut observer = twenty();
    observer.hears_wave(0, &soaked(1));
    observer.hears(observer.member(1, 0), activating(1));
    for k in 1..8 {
        observer.hears(observer.member(1, k), soaked(1));
    }
    assert!(!observer.open(2));
    observer.waits(60 + 900 + 300 + 1_800);
    assert_eq!(observer.standing(observer.member(1, 0)), Standing::Failed);
    assert!(observer.progress.halted().is_some());
}

#[test]
fn g2_no_records_at_all_hold_and_say_so() {
    let mut observer = twenty();
    observer.waits(1_800);
    assert!(observer.excused(observer.member(0, 0)) && observer.excused(observer.member(0, 1)));
    assert!(!observer.open(1));
    assert_eq!(observer.progress.verdict(0), Verdict::NoEvidence);
    assert!(observer.why(1).contains("no evidence"), "{}", observer.why(1));
    assert!(observer.progress.halted().is_none());
}

#[test]
fn g3_a_node_that_was_off_is_excused_and_no_failure() {
    let mut observer = twenty();
    observer.hears(observer.member(0, 0), soaked(1));
    observer.waits(1_799);
    assert!(!observer.open(1));
    let changes = observer.waits(1);
    assert!(observer.open(1), "{}", observer.why(1));
    assert_eq!(observer.progress.tally().wave_counts(0).failed, 0);
    assert!(matches!(&changes[0], Change::Passed(passed) if passed.excused.contains(&observer.member(0, 1))));
    // It returns and converges.
    observer.hears(observer.member(0, 1), activating(4));
    assert!(observer.open(1));
    observer.hears(observer.member(0, 1), soaked(4));
    assert_eq!(observer.standing(observer.member(0, 1)), Standing::Soaked);
}

#[test]
fn g4_a_pause_turns_no_waiting_node_into_a_timeout() {
    let mut observer = twenty();
    observer.hears_wave(0, &ready());
    let mut paused = next(observer.progress.rollout());
    paused.state = State::Paused;
    observer.follow(&paused);
    let hold = Some(HoldNotice { code: HoldCode::Paused, until: None });
    observer.hears_wave(0, &MemberReport { hold, ..at_generation(2, said(Phase::Waiting)) });
    observer.waits(3 * 3_600);
    assert_eq!(observer.why(0), "the rollout is paused");
    let counts = observer.progress.tally().wave_counts(0);
    assert_eq!((counts.waiting, counts.failed, counts.excused), (2, 0, 0));
}

#[test]
fn d16_a_wave_of_one_holds_while_its_canary_is_off_and_passes_when_that_is_forgiven() {
    let mut observer = Observer::of(&rollout("rollout_a", percents(&[10_000, 1_000_000])), fleet(5));
    let canary = observer.member(0, 0);
    observer.waits(10_000);
    assert!(observer.why(1).contains("no evidence"), "{}", observer.why(1));
    let mut second = next(observer.progress.rollout());
    second.forgiven = vec![Forgiven { node: canary, claim: None, retry: false }];
    observer.follow(&second);
    assert_eq!(observer.standing(canary), Standing::Forgiven);
    assert_eq!(observer.progress.verdict(0), Verdict::NobodyApplies);
    assert!(observer.open(1));
}

#[test]
fn d18_an_excused_node_that_returns_shuts_nothing_and_its_failure_counts() {
    let mut observer = twenty();
    let (first, late) = (observer.member(0, 0), observer.member(0, 1));
    observer.hears(first, soaked(1));
    observer.waits(1_800);
    observer.hears(observer.member(1, 0), activating(2));
    for report in [ready(), claiming(5), activating(5), said(Phase::Confirmed)] {
        assert_eq!(observer.hears(late, report), [], "nothing flaps");
        assert!(observer.open(1));
    }
    // Nor after a restart of the observer, which remembers whom it had excused.
    let heard = observer.up_ms;
    let mut observer = observer.restarted(&[(first, soaked(1), heard), (late, said(Phase::Confirmed), heard)]);
    assert!(observer.open(1));
    observer.hears(observer.member(1, 0), failed(2));
    assert_eq!(observer.progress.halted().map(|halted| halted.wave), Some(1), "a later wave's failure is not forgotten");
    observer.hears(late, failed(5));
    assert!(observer.why(1).contains("halted: 1 of 2 in wave 1"), "{}", observer.why(1));
}

#[test]
fn too_few_soaked_is_a_hold_that_says_how_many() {
    let mut rollout = rollout("rollout_a", percents(&[200_000, 1_000_000]));
    rollout.min_soaked_ppm = ppm(750_000);
    let mut observer = Observer::of(&rollout, fleet(20));
    observer.hears(observer.member(0, 0), soaked(1));
    observer.hears(observer.member(0, 1), soaked(1));
    observer.waits(1_800);
    assert_eq!(observer.progress.verdict(0), Verdict::TooFewSoaked { soaked: 2, needed: 3 });
    assert!(observer.why(1).contains("only 2 of wave 1 soaked, 3 needed"), "{}", observer.why(1));
    let mut lower = next(&rollout);
    lower.min_soaked_ppm = ppm(500_000);
    observer.follow(&lower);
    assert!(observer.open(1));
}

#[test]
fn d44_a_skip_that_ends_brings_the_node_back() {
    let mut observer = twenty();
    observer.hears(observer.member(0, 0), soaked(1));
    observer.hears(observer.member(0, 1), skipped());
    assert!(observer.open(1));
    observer.hears(observer.member(0, 1), ready());
    assert!(!observer.open(1), "it applies again, and nobody had excused it");
    observer.hears(observer.member(0, 1), soaked(3));
    assert!(observer.open(1));
}

#[test]
fn d46_a_node_without_the_product_shuts_no_gate() {
    let mut observer = twenty();
    let rollout = observer.progress.rollout().clone();
    let report = MemberReport::of(&Status::default(), &rollout);
    assert_eq!(report.skip, Some(Skip::NotConfigured));
    observer.hears_wave(0, &report);
    assert!(observer.open(1));
}

#[test]
fn a_verdict_outranks_a_later_skip() {
    let mut observer = twenty();
    let gone_on = |outcome| MemberReport { verdicts: vec![(Some(claim(1)), outcome)], ..skipped() };
    observer.hears(observer.member(0, 0), gone_on(Outcome::Soaked));
    observer.hears(observer.member(0, 1), gone_on(Outcome::RolledBack));
    assert_eq!(observer.standing(observer.member(0, 0)), Standing::Soaked);
    assert_eq!(observer.standing(observer.member(0, 1)), Standing::Failed);
}

#[test]
fn w8_a_node_taken_out_of_the_fleet_leaves_the_denominators_but_not_its_failure() {
    let mut observer = twenty();
    let (one, two) = (observer.member(0, 0), observer.member(0, 1));
    observer.hears(one, soaked(1));
    observer.hears(two, activating(1).gone(Skip::Retired));
    assert!(observer.open(1), "{}", observer.why(1));
    observer.hears(two, failed(1).gone(Skip::Retired));
    assert_eq!(observer.standing(two), Standing::Failed, "only forgiveness clears a failure");
    observer.hears(two, failed(1).gone(Skip::Revoked));
    assert_eq!(observer.standing(two), Standing::NotApplicable, "nothing that a revoked key signs has an effect");
}

#[test]
fn a_node_on_the_version_already_vouches_without_a_claim() {
    let mut observer = twenty();
    observer.hears_wave(0, &MemberReport { verdicts: vec![(None, Outcome::Soaked)], ..said(Phase::Soaked) });
    assert!(observer.open(1));
}

#[test]
fn a_record_that_says_soaked_without_a_verdict_vouches_for_nothing() {
    let mut observer = twenty();
    observer.hears_wave(0, &said(Phase::Soaked));
    assert!(!observer.open(1));
    assert_eq!(observer.standing(observer.member(0, 0)), Standing::InProgress);
}

#[test]
fn verdicts_count_across_generations_and_a_claim_of_an_older_one_still_stands() {
    let mut observer = twenty();
    observer.hears(observer.member(0, 0), soaked(1));
    observer.hears(observer.member(0, 1), activating(1));
    let second = next(observer.progress.rollout());
    observer.follow(&second);
    assert_eq!(observer.standing(observer.member(0, 0)), Standing::Soaked);
    assert_eq!(observer.standing(observer.member(0, 1)), Standing::InProgress);
}

#[test]
fn a_manual_wave_waits_for_a_signed_advance_and_still_for_evidence() {
    let manual = Wave { approval: Some(Approval::Manual), ..percent(1_000_000) };
    let first = rollout("rollout_a", vec![percent(100_000), manual]);
    let mut observer = Observer::of(&first, fleet(20));
    let mut advanced = next(&first);
    advanced.open_waves = 2;
    observer.hears(observer.member(0, 0), soaked(1));
    observer.hears(observer.member(0, 1), soaked(1));
    assert!(observer.why(1).contains("waits for a signed advance"), "{}", observer.why(1));
    observer.follow(&advanced);
    assert!(observer.open(1));

    let mut early = Observer::of(&first, fleet(20));
    early.follow(&advanced);
    assert!(early.why(1).contains("not done"), "an advance never replaces evidence: {}", early.why(1));
}

#[test]
fn a_wait_counts_from_when_this_observer_saw_the_wave_before_pass() {
    let waiting = Wave { wait_seconds: Some(3_600), ..percent(1_000_000) };
    let mut observer = Observer::of(&rollout("rollout_a", vec![percent(100_000), waiting]), fleet(20));
    observer.waits(50_000);
    observer.hears_wave(0, &soaked(1));
    observer.waits(3_599);
    assert!(!observer.open(1));
    assert_eq!(observer.progress.wakeup().0, Some(observer.up_ms + 1_000));
    observer.waits(1);
    assert!(observer.open(1));
}

#[test]
fn a_start_time_is_the_one_use_of_wall_time() {
    let later = Wave { not_before: Some(Timestamp::from_seconds(1_700_001_000)), ..percent(1_000_000) };
    let mut observer = Observer::of(&rollout("rollout_a", vec![percent(100_000), later]), fleet(20));
    observer.hears_wave(0, &soaked(1));
    assert!(observer.why(1).contains("does not open before 2023"), "{}", observer.why(1));
    assert_eq!(observer.progress.wakeup().1, Some(Timestamp::from_seconds(1_700_001_000)));
    observer.sleeps(1_000);
    assert!(observer.open(1));
}

#[test]
fn late_joiners_form_an_implicit_last_wave() {
    let mut observer = Observer::of(&rollout("rollout_a", percents(&[200_000, 1_000_000])), fleet(5));
    let newcomer = certificate(77, "edge");
    let member = members(std::slice::from_ref(&newcomer)).remove(0);
    assert!(observer.progress.join(&member));
    assert_eq!(observer.progress.tally().wave_counts(2).members, 0, "only those seen count");
    observer.hears(node(77), ready());
    assert_eq!(observer.progress.tally().wave_counts(2).members, 1);
    assert!(!observer.open(2));
    observer.hears_wave(0, &soaked(1));
    observer.hears_wave(1, &soaked(1));
    assert!(observer.progress.complete() && observer.open(2));
    observer.hears(node(77), failed(1));
    assert_eq!(observer.progress.halted().map(|halted| (halted.wave, halted.applicable)), Some((2, 1)));
}

#[test]
fn a_rollout_that_is_not_for_everybody_takes_no_late_joiners() {
    let labels = [].into();
    let named = Wave { labels: Some(labels), ..Wave::default() };
    let mut observer = Observer::of(&rollout("rollout_a", vec![named]), fleet(2));
    let newcomer = certificate(77, "edge");
    assert!(!observer.progress.join(&members(std::slice::from_ref(&newcomer))[0]));
}

#[test]
fn an_unknown_node_is_in_no_wave_and_told_so() {
    let observer = twenty();
    let gate = observer.progress.gate_of(&node(500));
    assert!(format!("{gate:?}").contains("NoWave"), "{gate:?}");
}

#[test]
fn a_section_of_another_rollout_says_nothing_but_its_verdicts() {
    let rollout = rollout("rollout_a", percents(&[1_000_000]));
    let mut section = Section {
        running: None,
        from: None,
        floor: rollout.release.sequence,
        rollout: None,
        phase: Phase::Activating,
        hold: None,
        claim: None,
        started_at: None,
        verdicts: Vec::new(),
    };
    assert_eq!(MemberReport::of_section(&section, &rollout), MemberReport::default());
    section.rollout = Some(groundswell_core::record::status::RolloutSeen {
        id: rollout.id.clone(),
        generation: 3,
        digest: groundswell_core::digest::Digest::of(b"g3"),
    });
    let report = MemberReport::of_section(&section, &rollout);
    assert_eq!((report.generation, report.phase), (Some(3), Phase::Activating));
}

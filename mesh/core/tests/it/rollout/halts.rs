//! Halts, and what forgiveness clears.

use groundswell_core::documents::rollout::{Forgiven, Rollout, State};
use groundswell_core::node::view::Standing;
use groundswell_core::record::status::{Outcome, Phase};
use groundswell_core::rollout::progress::Change;
use groundswell_core::rollout::report::MemberReport;

use super::fixture::*;

fn halting_at(max_failure_ppm: u32, min_failures: u32) -> Rollout {
    let mut rollout = rollout("rollout_a", percents(&[500_000, 1_000_000]));
    rollout.halt.max_failure_ppm = ppm(max_failure_ppm);
    rollout.halt.min_failures = min_failures;
    rollout
}

/// The number of failures, of 10 in the first wave, at which it halts.
fn halts_after(max_failure_ppm: u32, min_failures: u32) -> Option<usize> {
    let mut observer = Observer::of(&halting_at(max_failure_ppm, min_failures), fleet(20));
    (0..10).find(|k| {
        observer.hears(observer.member(0, *k), failed(1));
        observer.progress.halted().is_some()
    })
}

#[test]
fn w9_no_failure_allowed_means_any_halts_and_all_allowed_means_none_does() {
    assert_eq!(halts_after(0, 1), Some(0));
    assert_eq!(halts_after(1_000_000, 1), None);
    assert_eq!(halts_after(100_000, 1), Some(1), "one of ten is the ratio, two exceed it");
    assert_eq!(halts_after(99_999, 1), Some(0));
    assert_eq!(halts_after(0, 3), Some(2));
}

#[test]
fn a_halt_shuts_every_wave_and_is_told_once() {
    let mut observer = Observer::of(&halting_at(0, 1), fleet(20));
    let changes = observer.hears(observer.member(0, 0), failed(1));
    assert!(matches!(changes[..], [Change::Halted(_)]), "{changes:?}");
    assert_eq!(observer.hears(observer.member(0, 1), failed(1)), []);
    assert!(observer.why(0).contains("halted: 2 of 10 in wave 1 failed"), "{}", observer.why(0));
    assert!(!observer.open(0) && !observer.open(1));
}

#[test]
fn a_failure_in_a_wave_that_is_not_open_halts_too() {
    let mut observer = Observer::of(&halting_at(50_000, 1), fleet(20));
    observer.hears(observer.member(1, 0), failed(1));
    assert_eq!(observer.progress.halted().map(|halted| halted.wave), Some(1));
}

#[test]
fn d8_a_pause_and_a_resume_heal_nothing_and_keep_the_evidence() {
    let mut observer = Observer::of(&halting_at(0, 1), fleet(20));
    observer.hears(observer.member(0, 0), failed(1));
    observer.hears(observer.member(0, 1), soaked(1));
    let mut paused = next(observer.progress.rollout());
    paused.state = State::Paused;
    observer.follow(&paused);
    let mut resumed = next(&paused);
    resumed.state = State::Running;
    observer.follow(&resumed);
    assert!(observer.why(0).contains("halted"), "{}", observer.why(0));
    assert_eq!(observer.standing(observer.member(0, 1)), Standing::Soaked);
}

#[test]
fn g6_a_failure_is_cleared_by_naming_it_and_by_nothing_else() {
    let mut observer = Observer::of(&halting_at(0, 1), fleet(20));
    let bad = observer.member(0, 0);
    observer.hears(bad, failed(3));
    let mut named_too_early = next(observer.progress.rollout());
    named_too_early.forgiven = vec![Forgiven { node: bad, claim: Some(claim(2)), retry: false }];
    observer.follow(&named_too_early);
    assert!(observer.progress.halted().is_some(), "an earlier claim clears nothing of this one");
    let mut named = next(&named_too_early);
    named.forgiven.push(Forgiven { node: bad, claim: Some(claim(3)), retry: true });
    assert_eq!(observer.follow(&named), [Change::Unhalted]);
    assert_eq!(observer.standing(bad), Standing::Forgiven);
    assert_eq!(observer.progress.tally().wave_counts(0).applicable(), 9, "out of every count");
    assert!(observer.progress.tally().forgiveness().lets_retry(&bad, Some(claim(3))));
}

#[test]
fn d1_forgiven_and_failed_again_is_a_failure() {
    let mut observer = Observer::of(&halting_at(0, 1), fleet(20));
    let bad = observer.member(0, 0);
    observer.hears(bad, failed(3));
    let mut second = next(observer.progress.rollout());
    second.forgiven = vec![Forgiven { node: bad, claim: Some(claim(3)), retry: true }];
    observer.follow(&second);
    let old = (Some(claim(3)), Outcome::Failed);
    observer.hears(bad, MemberReport { verdicts: vec![old], ..claiming(7) });
    assert_eq!(observer.standing(bad), Standing::InProgress, "it counts again once it claims anew");
    observer.hears(bad, MemberReport { verdicts: vec![old, (Some(claim(7)), Outcome::RolledBack)], ..said(Phase::RolledBack) });
    assert_eq!(observer.standing(bad), Standing::Failed);
    assert!(observer.progress.halted().is_some());
    observer.hears(bad, MemberReport { verdicts: vec![old, (Some(claim(7)), Outcome::Soaked)], ..said(Phase::Soaked) });
    assert_eq!(observer.standing(bad), Standing::Soaked);
}

#[test]
fn d1_silence_in_the_soak_after_a_forgiven_claim_is_a_new_failure() {
    let mut observer = Observer::of(&halting_at(0, 1), fleet(20));
    let bad = observer.member(0, 0);
    observer.hears(bad, failed(3));
    let mut second = next(observer.progress.rollout());
    second.forgiven = vec![Forgiven { node: bad, claim: Some(claim(3)), retry: true }];
    observer.follow(&second);
    let old = (Some(claim(3)), Outcome::Failed);
    observer.hears(bad, MemberReport { verdicts: vec![old], ..activating(7) });
    observer.hears(bad, MemberReport { verdicts: vec![old], ..said(Phase::Confirmed) });
    assert_eq!(observer.standing(bad), Standing::InProgress, "its claim is given back, and was a later one");
    observer.waits(600 + 1_800);
    assert_eq!(observer.standing(bad), Standing::Failed);
}

#[test]
fn a_failure_before_any_claim_is_cleared_by_a_null_claim() {
    let mut observer = Observer::of(&halting_at(0, 1), fleet(20));
    let bad = observer.member(0, 0);
    observer.hears(bad, MemberReport { verdicts: vec![(None, Outcome::Failed)], ..said(Phase::Failed) });
    assert_eq!(observer.progress.tally().failures().collect::<Vec<_>>(), [(bad, None)]);
    let mut second = next(observer.progress.rollout());
    second.forgiven = vec![Forgiven { node: bad, claim: None, retry: false }];
    observer.follow(&second);
    assert_eq!(observer.standing(bad), Standing::Forgiven);
    observer.hears(bad, at_generation(2, failed(1)));
    assert_eq!(observer.standing(bad), Standing::Failed, "it ends no later claim");
}

#[test]
fn a_regression_of_a_soaked_node_halts_what_has_not_started() {
    let mut observer = Observer::of(&halting_at(0, 1), fleet(20));
    observer.hears_wave(0, &soaked(1));
    assert!(observer.open(1));
    observer.hears(observer.member(0, 0), failed(1));
    assert!(!observer.open(1));
}

#[test]
fn a_wave_in_which_everything_failed_passes_only_where_the_descriptor_asks_for_no_evidence() {
    let mut observer = Observer::of(&halting_at(1_000_000, 1), fleet(4));
    observer.hears_wave(0, &failed(1));
    assert!(observer.why(1).contains("only 0 of wave 1 soaked, 1 needed"), "{}", observer.why(1));
    let mut reckless = next(observer.progress.rollout());
    reckless.min_soaked_ppm = ppm(0);
    observer.follow(&reckless);
    assert!(observer.open(1));
}

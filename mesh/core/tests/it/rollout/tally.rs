//! The tally is a cache: whatever happens in whatever order, its counts are what its members' standings say.

use std::collections::BTreeMap;

use groundswell_core::node::view::Standing;
use groundswell_core::record::status::Phase;
use groundswell_core::rollout::applies::Skip;
use groundswell_core::rollout::report::MemberReport;
use groundswell_core::rollout::tally::WaveCounts;
use proptest::prelude::*;

use super::fixture::*;

#[derive(Clone, Debug)]
enum Step {
    Hear(usize, MemberReport),
    Wait(u64),
    NextGeneration,
    Restart,
}

fn report() -> impl Strategy<Value = MemberReport> {
    let kind = prop_oneof![
        Just(ready()),
        Just(said(Phase::Fetching)),
        Just(skipped()),
        Just(said(Phase::Confirmed)),
        Just(MemberReport { convicted: true, ..MemberReport::default() }),
        Just(soaked(1).gone(Skip::Revoked)),
        Just(ready().gone(Skip::Removed)),
        (1_u64..4).prop_map(claiming),
        (1_u64..4).prop_map(activating),
        (1_u64..4).prop_map(soaked),
        (1_u64..4).prop_map(failed),
    ];
    (kind, 1_u64..4).prop_map(|(report, generation)| at_generation(generation, report))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_usize..24, report()).prop_map(|(n, report)| Step::Hear(n, report)),
        4 => (1_u64..100_000).prop_map(Step::Wait),
        1 => Just(Step::NextGeneration),
        1 => Just(Step::Restart),
    ]
}

/// Counts by asking each member.
fn counted_by_hand(observer: &Observer) -> Vec<WaveCounts> {
    let tally = observer.progress.tally();
    let mut waves = vec![WaveCounts::default(); tally.counts().len()];
    for node in tally.nodes() {
        let wave = tally.place_of(node).unwrap().wave;
        let standing = tally.standing(node).unwrap();
        if wave == observer.progress.waves().count() && standing == Standing::Unseen {
            continue;
        }
        let counts = &mut waves[wave as usize];
        counts.members += 1;
        *match standing {
            Standing::NotApplicable => &mut counts.not_applicable,
            Standing::Unseen => &mut counts.unseen,
            Standing::Waiting => &mut counts.waiting,
            Standing::InProgress => &mut counts.in_progress,
            Standing::Soaked => &mut counts.soaked,
            Standing::Failed => &mut counts.failed,
            Standing::Forgiven => &mut counts.forgiven,
        } += 1;
        counts.excused += u32::from(tally.is_excused(node));
    }
    for (wave, counts) in (0..).zip(&mut waves) {
        counts.blocking = u32::try_from(tally.blocking(wave).count()).unwrap();
    }
    waves
}

proptest! {
    #[test]
    fn counts_are_what_the_standings_say(steps in proptest::collection::vec(step(), 0..120)) {
        let mut observer = Observer::of(&rollout("rollout_a", percents(&[100_000, 500_000, 1_000_000])), fleet(20));
        let newcomers: Vec<_> = (20..24).map(|n| certificate(n, "core")).collect();
        for member in members(&newcomers) {
            observer.progress.join(&member);
        }
        for step in steps {
            match step {
                Step::Hear(n, report) => drop(observer.hears(node(n), report)),
                Step::Wait(seconds) => drop(observer.waits(seconds)),
                Step::NextGeneration => {
                    let next = next(observer.progress.rollout());
                    observer.follow(&next);
                }
                Step::Restart => observer = observer.restarted(&[]),
            }
            prop_assert_eq!(observer.progress.tally().counts(), counted_by_hand(&observer));
            let next = observer.progress.tally().next_deadline();
            prop_assert!(next.is_none_or(|at| at > observer.up_ms), "a deadline passed unnoticed");
            for wave in 0..3 {
                prop_assert!(!observer.progress.passed(wave) || (0..wave).all(|before| observer.progress.passed(before)));
            }
        }
    }

    #[test]
    fn what_was_heard_counts_the_same_in_any_order(reports in proptest::collection::btree_map(0_usize..20, report(), 0..20)) {
        let rollout = rollout("rollout_a", percents(&[100_000, 500_000, 1_000_000]));
        let hear = |order: Vec<(&usize, &MemberReport)>| {
            let mut observer = Observer::of(&rollout, fleet(20));
            for (n, report) in order {
                observer.progress.hear(&node(*n), report.clone(), observer.up_ms);
            }
            observer.settle();
            let standings: BTreeMap<_, _> = (0..20).map(|n| (n, observer.standing(node(n)))).collect();
            (standings, observer.progress.halted(), (0..4).map(|wave| observer.progress.passed(wave)).collect::<Vec<_>>())
        };
        prop_assert_eq!(hear(reports.iter().collect()), hear(reports.iter().rev().collect()));
    }
}

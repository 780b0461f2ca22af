//! What a rollout costs beside the ideal, in virtual time: the design's budgets, held on a fleet that is small enough for every
//! change. Larger ones: `groundswell-testnet sim measure`.

use groundswell_core::number::Ppm;
use groundswell_testnet::sim::measure::{Measured, Terms, rollout};

#[test]
fn a_rollout_over_forty_nodes_stays_within_its_budgets_of_time_and_records() {
    let measured = rollout(&Terms::of(40));
    assert!(measured.missed.is_empty(), "{measured}");
    assert!(measured.done && measured.times_ideal >= 1.0 && measured.copies >= 1.0, "{measured}");
}

#[test]
fn what_is_measured_does_not_depend_on_the_number_of_threads() {
    let [one, three] = [1, 3].map(|threads| rollout(&Terms { threads, ..Terms::of(70) }));
    assert!(one.done, "{one}");
    let same = Measured { real_ms: one.real_ms, peak_rss_bytes: one.peak_rss_bytes, ..three };
    assert_eq!(one, same);
}

#[test]
fn with_every_tenth_message_lost_everything_still_arrives() {
    let measured = rollout(&Terms { loss: Ppm::new(100_000).unwrap(), seed: 2, ..Terms::of(20) });
    assert!(measured.missed.is_empty(), "{measured}");
    assert!(measured.done && measured.know_all == 20, "{measured}");
}

//! How the agent keeps a supervised process running: the pauses between its starts, and what ends their growth.
//!
//! Pauses are known by what comes of them within any patience: with growth that nothing ends, the last start here would come
//! after minutes, or hours.

use std::fs;
use std::time::Duration;

use groundswell_agent::config::{Activator, RestartPolicy};
use groundswell_core::node::input::{Health, Report};
use tokio::time::{sleep, timeout};

use crate::workshop::{Bench, PATIENCE, Workshop, content};

fn with(backoff_ms: u64, backoff_max_ms: u64, stable_after_ms: u64) -> Workshop {
    let mut workshop = Workshop::supervising();
    let Activator::Supervise(supervise) = &mut workshop.config.activator else { unreachable!() };
    let ms = Duration::from_millis;
    supervise.restart =
        RestartPolicy { backoff: ms(backoff_ms), backoff_max: ms(backoff_max_ms), stable_after: ms(stable_after_ms) };
    workshop
}

/// Notes when it was started, in nanoseconds; then `then`, for the `$n`-th time.
fn noting(workshop: &Workshop, then: &str) -> String {
    let times = workshop.path("times");
    format!("date +%s%N >> {0}; n=$(wc -l < {0}); {then}", times.display())
}

async fn runs(workshop: &Workshop, then: &str) -> Bench {
    let (mut bench, _) = workshop.device().await;
    let one = workshop.release(1, &noting(workshop, then));
    bench.stage(&one).await;
    assert!(matches!(bench.activate(&one).await, Report::Activated { .. }));
    bench
}

async fn starts(workshop: &Workshop, how_often: usize) -> Vec<Duration> {
    let look = async {
        while workshop.lines("times").len() < how_often {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("started {:?}", workshop.lines("times")));
    let times: Vec<u64> = workshop.lines("times").iter().map(|time| time.parse().unwrap()).collect();
    times.windows(2).map(|pair| Duration::from_nanos(pair[1].saturating_sub(pair[0]))).collect()
}

#[tokio::test]
async fn a_process_that_ends_again_and_again_is_started_after_pauses_that_double() {
    let workshop = with(100, 3_600_000, 3_600_000);
    let bench = runs(&workshop, "test $n -gt 5 || exit 3; exec sleep 1000").await;
    let pauses = starts(&workshop, 6).await;
    for (pause, least_ms) in pauses.iter().zip([100, 200, 400, 800, 1_600]) {
        assert!(*pause >= Duration::from_millis(least_ms), "{pauses:?}");
    }
    bench.shutdown().await;
}

#[tokio::test]
async fn no_pause_is_longer_than_the_longest() {
    // The twelfth would be three minutes long.
    let workshop = with(100, 200, 3_600_000);
    let bench = runs(&workshop, "exit 3").await;
    starts(&workshop, 13).await;
    bench.shutdown().await;
}

#[tokio::test]
async fn a_process_that_ran_for_long_enough_is_started_after_the_first_pause_again() {
    // Without that the ninth pause would be a minute and a half long.
    let workshop = with(200, 3_600_000, 300);
    let bench = runs(&workshop, "sleep 0.5; exit 3").await;
    starts(&workshop, 12).await;
    bench.shutdown().await;
}

#[tokio::test]
async fn a_process_that_cannot_be_started_again_is_tried_again_and_fails_its_health_meanwhile() {
    let workshop = with(20, 50, 20);
    let pid = workshop.path("pid");
    let mut bench = runs(&workshop, &format!("echo $$ > {}; exec sleep 1000", pid.display())).await;
    bench.until_health(|health| *health == Health::Healthy).await;
    // The shell has opened its script by then.
    let process = content(&pid).await.parse().ok().and_then(rustix::process::Pid::from_raw).unwrap();
    let binary = workshop.product_folder().join("slots/a/bcd");
    let away = workshop.path("away");
    fs::rename(&binary, &away).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    let health = bench.until_health(|health| matches!(health, Health::Failing(_))).await;
    assert!(matches!(&health, Health::Failing(why) if why.contains("cannot run") || why.contains("signal 9")), "{health:?}");
    fs::rename(&away, &binary).unwrap();
    bench.until_health(|health| *health == Health::Healthy).await;
    assert_eq!(starts(&workshop, 2).await.len(), 1);
    bench.shutdown().await;
}

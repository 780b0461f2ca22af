//! What an agent hears of a way back that has not ended, of a switch that failed, and of what was taken back behind its back.

use std::fs;
use std::time::Duration;

use groundswell_agent::helper::wire::{GoingBack, Order, Outcome, Reply};
use groundswell_core::limits::TRIES_BACK;
use tokio::time::{sleep, timeout};

use super::bench::{Bench, PATIENCE, claim, outcome};
use super::world::{Papers, product, program};

/// A helper of which a release does not start while there is a file of its version's name.
fn bench() -> Bench {
    let mut bench = Bench::prepare("", "trial-starts = 1");
    let run = format!("{{binary}} >> {}/started", bench.home());
    let breaks = format!("{run} && test ! -e {}/$GROUNDSWELL_VERSION || (echo no database; exit 1)", bench.home());
    bench.configure(&run, &breaks);
    bench
}

/// On the way back from release 2, which was begun as often as any; release 1 does not start. Nothing runs but the helper.
async fn going_back() -> (Bench, Papers) {
    let mut bench = bench();
    bench.start();
    bench.installed(&bench.world.papers(1), &program(1)).await;
    let two = bench.world.papers(2);
    let mut client = bench.staged(&two, &program(2)).await;
    assert_eq!(outcome(&client.activate(two.id()).await), &Outcome::Activated);
    fs::write(bench.path("1.0"), "").unwrap();
    assert_eq!(outcome(&client.revert(two.id()).await), &Outcome::Again);
    // An agent that starts now hears of it, although `current` leads to the old version already.
    is_going_back(&bench.client().await.told().await, &two, "unhealthy");
    bench.kill();
    bench.rewrite_mark(|mark| mark["revert"]["tries"] = TRIES_BACK.into());
    (bench, two)
}

fn is_going_back(told: &Reply, papers: &Papers, says: &str) {
    let Reply::GoesBack(GoingBack { release, reason, at_fault, claim: of }, state) = told else { panic!("{told:?}") };
    assert_eq!((*release, *at_fault, *of), (papers.id(), true, Some(claim())));
    assert!(reason.contains(says), "{reason}");
    assert_eq!((state.trial, &state.reverted), (None, &None));
}

#[tokio::test]
async fn s6_a_helper_that_starts_on_a_way_back_without_an_end_is_heard_and_a_newer_release_takes_its_place() {
    let (mut bench, two) = going_back().await;
    bench.start();
    is_going_back(&timeout(PATIENCE, bench.client().await.told()).await.expect("it answers"), &two, "unhealthy");
    let three = bench.world.papers(3);
    let mut client = bench.installed(&three, &program(3)).await;
    let state = client.state().await;
    assert_eq!((state.running.map(|running| running.release), state.floor.get()), (Some(three.id()), 3));
    assert_eq!(bench.current(), Some(program(3)));
}

#[tokio::test]
async fn s6_a_way_back_without_an_end_is_gone_on_with_where_nobody_asks_for_it() {
    let (mut bench, two) = going_back().await;
    bench.start();
    is_going_back(&bench.client().await.told().await, &two, "unhealthy");
    fs::remove_file(bench.path("1.0")).unwrap();
    let ends = async {
        loop {
            if let Reply::State(state) = bench.client().await.told().await {
                return state;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    let state = timeout(PATIENCE, ends).await.expect("it ends");
    assert_eq!(state.running.map(|running| running.sequence.get()), Some(1));
    let taken = state.reverted.expect("an agent that starts later is told of it");
    assert_eq!((taken.release, taken.at_fault), (two.id(), true));
    assert!(taken.reason.contains("unhealthy"), "{}", taken.reason);
}

#[tokio::test]
async fn s6_an_agent_that_starts_anew_after_a_switch_failed_hears_that_this_has_to_be_taken_back() {
    let mut bench = bench();
    bench.start();
    bench.installed(&bench.world.papers(1), &program(1)).await;
    let two = bench.world.papers(2);
    let mut client = bench.staged(&two, &program(2)).await;
    fs::write(bench.path("2.0"), "").unwrap();
    // The agent ends before it hears of this.
    assert!(matches!(outcome(&client.activate(two.id()).await), Outcome::ActivateFailed { at_fault: true, .. }));
    is_going_back(&bench.client().await.told().await, &two, "no database");
    assert!(matches!(outcome(&client.revert(two.id()).await), Outcome::Reverted { .. }));
    let state = client.state().await;
    assert_eq!(state.running.map(|running| running.sequence.get()), Some(1));
}

#[tokio::test]
async fn an_agent_that_has_not_heard_of_what_a_start_took_back_hears_why_when_it_asks() {
    for at_fault in [true, false] {
        let mut bench = bench();
        bench.start();
        bench.installed(&bench.world.papers(1), &program(1)).await;
        let two = bench.world.papers(2);
        bench.staged(&two, &program(2)).await.activate(two.id()).await;
        bench.kill();
        // In other runs of the machine, which it may have taken down, or in this one.
        bench.rewrite_mark(|mark| match at_fault {
            true => mark["watch"] = serde_json::json!({ "starts": 3, "boot": "another run" }),
            false => *mark = serde_json::json!({ "activate": { "starts": 1, "boot": mark["watch"]["boot"] } }),
        });
        bench.start();
        let mut client = bench.client().await;
        let taken = client.state().await.reverted.expect("the start took it back");
        assert_eq!(taken.at_fault, at_fault);
        let reason = taken.reason;
        assert!(reason.contains("without being confirmed"), "{reason}");
        // The agent's check has found the old version healthy, or not.
        let refused = match at_fault {
            true => Outcome::ConfirmRefused { reason: reason.clone() },
            false => Outcome::ConfirmFailed { reason: reason.clone() },
        };
        assert_eq!(outcome(&client.confirm(two.id()).await), &refused);
        let reply = client.revert(two.id()).await;
        assert!(matches!(outcome(&reply), Outcome::Reverted { output, .. } if *output == reason), "{reply:?}");
        // The word that it was given itself is not said to it again.
        let order = Order::Revert { product: product(), release: two.id(), reason, at_fault };
        let reply = client.order(&order, None).await;
        assert!(matches!(outcome(&reply), Outcome::Reverted { output, .. } if output.is_empty()), "{reply:?}");
    }
}

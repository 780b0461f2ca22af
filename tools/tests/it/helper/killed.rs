//! kill −9 of the helper inside every hook of an install: before each of its steps and after it.
//!
//! The list of places is the core's own, so none can be forgotten. After each, the next start and the same orders again
//! must end as if nothing had happened.

use std::fs;

use groundswell_agent::helper::wire::{Outcome, Reply};
use groundswell_core::install::Hook;
use rustix::process::Signal;

use super::bench::{Bench, appears, outcome};
use super::world::{Papers, program};

/// A helper whose hook at this place says that it has come there, and waits until it may go on.
fn waiting_at(hook: Hook) -> Bench {
    let mut bench = Bench::prepare("", "");
    let wait = "touch HOME/there; until test -e HOME/go; do sleep 0.01; done".replace("HOME", &bench.home());
    bench.append(&format!("[product.bcd.hooks]\n{} = [\"/bin/sh\", \"-c\", \"{wait}\"]\n", hook.name()));
    bench.start();
    bench
}

/// Stages, activates, and confirms or reverts, from wherever it is; the last outcome.
async fn carry_through(bench: &Bench, papers: &Papers, confirm: bool) -> Option<Outcome> {
    let mut client = bench.client().await;
    for document in bench.world.published(papers) {
        client.document(&document).await;
    }
    if client.state().await.running.map(|running| running.release) != Some(papers.id()) {
        let file = bench.file("artifact", &program(2));
        client.stage(papers.id(), Some(&file)).await;
        client.activate(papers.id()).await;
    }
    let last = if confirm { client.confirm(papers.id()).await } else { client.revert(papers.id()).await };
    match last {
        Reply::Done { .. } => Some(outcome(&last).clone()),
        _ => None,
    }
}

/// Installs release 1; then release 2 until the hook is reached, ends the helper there, and carries it through again.
async fn is_killed_at(hook: Hook) {
    let confirm = !matches!(hook, Hook::BeforeRevert | Hook::AfterRevert);
    let mut bench = waiting_at(hook);
    // The first install passes the hook without waiting.
    fs::write(bench.path("go"), "").unwrap();
    let one = bench.world.papers(1);
    bench.installed(&one, &program(1)).await;
    for name in ["go", "there"] {
        let _ = fs::remove_file(bench.path(name));
    }
    let two = bench.world.papers(2);
    let there = bench.path("there");
    tokio::select! {
        _ = carry_through(&bench, &two, confirm) => panic!("{} was not reached", hook.name()),
        () = appears(&there) => {}
    }
    bench.kill();
    fs::write(bench.path("go"), "").unwrap();
    bench.start();
    let last = carry_through(&bench, &two, confirm).await;
    let state = bench.client().await.state().await;
    let runs = state.running.map(|running| running.release);
    assert_eq!(state.trial, None, "{}", hook.name());
    if confirm {
        assert_eq!((last, runs), (Some(Outcome::Confirmed), Some(two.id())), "{}", hook.name());
        assert_eq!((state.floor.get(), bench.current()), (2, Some(program(2))), "{}", hook.name());
    } else {
        assert!(matches!(last, Some(Outcome::Reverted { .. })), "{}: {last:?}", hook.name());
        // By its release, and by its build.
        let denied = (state.denied.first().copied(), state.denied.len());
        assert_eq!((runs, denied), (Some(one.id()), (Some(two.id()), 2)), "{}", hook.name());
        assert_eq!((state.floor.get(), bench.current()), (1, Some(program(1))), "{}", hook.name());
    }
}

#[tokio::test]
async fn s6_a_helper_that_is_killed_inside_any_hook_goes_on_to_the_right_end() {
    for hook in Hook::ALL {
        is_killed_at(hook).await;
    }
}

#[test]
fn a_helper_passes_over_signals_that_mean_nothing_and_ends_in_order_when_its_terminal_closes() {
    let mut bench = Bench::running();
    assert_eq!(bench.signalled(&[Signal::USR1, Signal::USR2, Signal::HUP]).code(), Some(0));
    assert!(!bench.path("helper.sock").exists(), "it took its socket away");
}

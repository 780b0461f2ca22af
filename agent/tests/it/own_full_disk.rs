//! The agent's own upgrade on a disk that runs full at every place of it: before each operation of each order, with the space
//! that is held in reserve and without it. The places are made from the lists of operations, so a new step cannot be forgotten.
//!
//! Whatever is written, there is always a build to run, a good one is never blamed, and it goes on when space returns.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use groundswell_agent::install::executor::Executor;
use groundswell_core::install::{Entry, Mark, Operation, Slot};
use groundswell_core::node::effect::Step;
use groundswell_core::node::input::Recovered;
use groundswell_core::text::Reason;
use tokio::time::timeout;

use super::own_upgrade::{Machine, Order, before_on, goes_on, plan};
use super::scarce::{PLENTY, Scarce};

/// What an agent says that was asked to be replaced.
const ENDS: &str = "the device stops";

/// Starts what is to run while the disk is full; nothing, where the agent waits for space.
async fn up_on_a_full_disk(machine: &mut Machine) -> Option<(Executor, Recovered)> {
    timeout(Duration::from_secs(60), machine.up()).await.ok()
}

/// One place of one order; how many there are.
async fn full_after(done: usize, order: Order, first: bool, in_reserve: bool) -> usize {
    let scarce = Scarce::new();
    let (mut machine, mut agent, old, new) = before_on(Machine::on(Arc::new(scarce.clone())), order, first).await;
    let before_slot = old.as_ref().map(|_| Slot::A);
    let operations = plan(&agent.found().await.unwrap(), order, &new);
    let when = format!("{order:?}, first install {first}, full after {done} of {}, reserve {in_reserve}", operations.len());
    for operation in operations.iter().take(done) {
        let _ = agent.perform_one(operation).await;
    }
    if !in_reserve {
        let reserves = [machine.folder().join("reserve"), machine.data().join("supervise/trial.reserve")];
        for reserve in reserves.into_iter().chain([machine.data().join("supervise/boots.reserve")]) {
            fs::remove_file(reserve).unwrap();
        }
    }
    scarce.leave(0);
    for operation in operations.iter().skip(done) {
        let Err(failure) = agent.perform_one(operation).await else { continue };
        if failure.reason == ENDS {
            break;
        }
        // The last entry of what is done can wait.
        let is_done = matches!(operation, Operation::Note(Entry { mark: Mark::Closed, .. }));
        assert!(!in_reserve || is_done, "{when}: {operation}: {failure}");
        assert!(!failure.at_fault, "{when}: the build is not to blame: {failure}");
        if order == Order::Activate {
            let (release, reason) = (new.release, Reason::lossy(&failure.reason));
            let _ = agent.execute(&Step::Revert { release, reason, at_fault: false }).await;
        }
        break;
    }
    drop(agent);
    let is_blamed = |recovered: &Recovered| {
        order != Order::Revert
            && (recovered.denied.contains(&new.release) || (recovered.reverted.is_some() && recovered.at_fault))
    };
    let up = up_on_a_full_disk(&mut machine).await;
    if in_reserve {
        let (_, recovered) = up.as_ref().unwrap_or_else(|| panic!("{when}: it waits for space"));
        match order {
            Order::Activate => assert_eq!(recovered.trial, Some(new.release), "{when}: {recovered:?}"),
            Order::Confirm => assert_eq!((recovered.trial, recovered.floor), (None, new.sequence), "{when}: {recovered:?}"),
            Order::Revert => assert_eq!(machine.slot, before_slot, "{when}: {recovered:?}"),
        }
    }
    assert!(!up.as_ref().is_some_and(|(_, recovered)| is_blamed(recovered)), "{when}: it is blamed");
    drop(up);

    scarce.leave(PLENTY);
    let (agent, recovered) = machine.up().await;
    assert!(!is_blamed(&recovered), "{when}: it is blamed: {recovered:?}");
    goes_on(&mut machine, agent, &recovered, order, (before_slot, &new), &when).await;
    operations.len()
}

#[tokio::test(start_paused = true)]
async fn b2_a_disk_that_runs_full_at_any_place_of_the_agents_own_upgrade_blames_no_build_and_leaves_one_to_run() {
    for first in [false, true] {
        for order in [Order::Activate, Order::Confirm, Order::Revert] {
            for in_reserve in [true, false] {
                let mut done = 0;
                while done < full_after(done, order, first, in_reserve).await {
                    done += 1;
                }
                assert!(done > 3, "{order:?}: {done} places");
            }
        }
    }
}

//! Boot loaders that a machine cannot tell what to start, and those that start something else by themselves.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use groundswell_agent::config::{HelperProduct, ProductConfig};
use groundswell_agent::helper::archive::Pins;
use groundswell_agent::helper::desk::{self, Desk};
use groundswell_agent::helper::memory::Memory;
use groundswell_agent::helper::wire::{self, Reply};
use groundswell_agent::install::files::OnDisk;
use groundswell_core::node_id::NodeId;
use groundswell_core::text::Platform;
use groundswell_core::trust::local::LocalTrust;
use tokio::sync::watch;

use super::*;
use crate::workshop::product;

/// The desk of a helper that was started on this machine, and may warrant nothing new.
async fn desk(board: &Board) -> Desk {
    let ProductConfig { activator, hooks, version_lock, trial_starts, .. } = board.workshop.config.clone();
    let (folder, room, boot) = (board.workshop.product_folder(), board.workshop.room, board.workshop.boot.clone());
    let config = HelperProduct { activator, hooks, version_lock, trial_starts };
    let settings = desk::Settings { product: product(), folder: folder.clone(), config, room, artifact_bytes: 1 << 20, boot };
    let pins = Pins {
        fleet: Digest::of(b"fleet"),
        node: NodeId([7; 32]),
        trust: LocalTrust::default(),
        products: BTreeSet::from([product()]),
        platform: Platform::new("linux-amd64").unwrap(),
    };
    let memory = Arc::new(Mutex::new(Memory::new(pins, Arc::new(OnDisk), folder)));
    let (stop, stopping) = watch::channel(false);
    // A sender that is gone means "stop": this one lives as long as the test.
    std::mem::forget(stop);
    let mut desk = Desk::open(settings, Arc::new(OnDisk), memory, stopping).await.unwrap();
    assert!(desk.recover().await);
    desk
}

#[tokio::test]
async fn s6_a_helper_too_says_that_a_boot_loader_does_not_stay_and_that_the_machine_left_its_system() {
    for adapter in ["rauc", "swupdate"] {
        let mut board = Board::on_one(adapter).await;
        let two = board.two.clone();
        let one_is_in = board.next();
        drop(board.hand_over(&two).await);
        board.boot();
        let mut helper = desk(&board).await;
        fs::copy(board.workshop.path("machine/runs"), board.workshop.path("machine/broken")).unwrap();
        let Reply::Done { outcome: wire::Outcome::ConfirmRefused { reason }, state } = helper.confirm(two.release).await else {
            panic!("{adapter}: the boot loader does not answer")
        };
        assert!(reason.contains("hook before-confirm") && state.floor.get() == 1, "{adapter}: {reason}");
        fs::remove_file(board.workshop.path("machine/broken")).unwrap();
        let reply = helper.confirm(two.release).await;
        assert!(matches!(reply, Reply::Done { outcome: wire::Outcome::Confirmed, .. }), "{adapter}: {reply:?}");
        drop(helper);
        // It does not come up one day.
        for next in [&one_is_in, &board.next()] {
            board.note("next", next);
            board.boot();
            let state = desk(&board).await.state(true).await.unwrap();
            let runs = (next != &one_is_in).then_some(two.release);
            let told = (state.running.map(|running| running.release), state.launch.map(|launched| launched.contents.release));
            assert_eq!((told, state.trial, state.reverted), ((runs, runs), None, None), "{adapter}");
        }
    }
}

#[tokio::test]
async fn s6_a_system_that_cannot_tell_its_boot_loader_to_stay_is_not_confirmed() {
    for adapter in ["rauc", "swupdate"] {
        let mut board = Board::on_one(adapter).await;
        let two = board.two.clone();
        drop(board.hand_over(&two).await);
        let (mut executor, _) = board.restarted().await;
        fs::copy(board.workshop.path("machine/runs"), board.workshop.path("machine/broken")).unwrap();
        let outcome = executor.execute(&Step::Confirm { release: two.release }).await;
        assert!(
            matches!(&outcome, Outcome::Report(Report::ConfirmFailed { reason, at_fault: true, .. }) if reason.contains("hook before-confirm")),
            "{adapter}: {outcome:?}"
        );
        assert_eq!(executor.found().await.unwrap().floor().get(), 1, "{adapter}");
        // It was for a moment: what is asked for again is done.
        fs::remove_file(board.workshop.path("machine/broken")).unwrap();
        board.confirm(&mut executor, &two).await;
    }
}

#[tokio::test]
async fn s6_a_machine_that_leaves_the_confirmed_system_says_so_and_makes_it_the_next_one_again() {
    for adapter in ADAPTERS {
        let mut board = Board::on_one(adapter).await;
        let two = board.two.clone();
        let one_is_in = board.next();
        drop(board.hand_over(&two).await);
        let (mut executor, _) = board.restarted().await;
        board.confirm(&mut executor, &two).await;
        drop(executor);
        // It does not come up one day.
        board.note("next", &one_is_in);
        let (executor, recovered) = board.restarted().await;
        assert_eq!((recovered.running, recovered.trial, recovered.reverted), (None, None, None), "{adapter}");
        assert_eq!((recovered.floor.get(), board.next_version().as_str()), (2, "2.0"), "{adapter}");
        drop(executor);
        let (executor, recovered) = board.restarted().await;
        assert_eq!(recovered.running.map(|running| running.release), Some(two.release), "{adapter}");
        drop(executor);
        // And again: the same is not installed beside itself, and a newer one is.
        board.note("next", &one_is_in);
        let (mut executor, _) = board.restarted().await;
        let outcome = executor.execute(&Step::Stage { install: two }).await;
        assert!(
            matches!(&outcome, Outcome::Report(Report::StageFailed { reason, .. }) if reason.contains("left this version")),
            "{outcome:?}"
        );
        drop(executor);
        board.note("next", &one_is_in);
        drop(board.restarted().await);
        let three = system(&board.workshop, adapter, 3);
        drop(board.hand_over(&three).await);
        let (mut executor, recovered) = board.restarted().await;
        assert_eq!(recovered.trial, Some(three.release), "{adapter}");
        board.confirm(&mut executor, &three).await;
    }
}

#[tokio::test]
async fn s6_where_nothing_leads_back_the_machine_is_restarted_all_the_same_and_its_boot_loader_has_its_chance() {
    for adapter in ADAPTERS {
        let mut board = Board::on_two_without_a_way_back(adapter).await;
        let two = board.two.clone();
        // An agent that dies soon after each start comes to it as well.
        for _ in 0..2 {
            let tried = board.workshop.lines("machine/ran").len();
            board.recovers_until(|board| board.workshop.lines("machine/ran").len() > tried + 6).await;
        }
        board.recovers_until(|board| board.restarts() == 2).await;
        // The boot loader takes the other system, for this once.
        let (new, old) = (board.next(), if board.next() == "a" { "b" } else { "a" });
        board.note("next", old);
        board.boot();
        board.note("next", &new);
        let mut executor = board.hasty().await;
        let recovered = executor.recover().await.unwrap();
        assert_eq!(recovered.reverted, Some((two.release, Reason::lossy("unhealthy"))), "{adapter}");
        assert_eq!(recovered.running.map(|running| running.release), Some(board.one.release), "{adapter}");
        assert_eq!((board.restarts(), board.next_version().as_str()), (2, "1.0"), "{adapter}: from now on");
    }
}

#[tokio::test]
async fn s6_a_machine_that_runs_its_old_system_is_not_restarted_because_nothing_makes_that_the_next_one() {
    for adapter in ADAPTERS {
        let mut board = Board::on_two_without_a_way_back(adapter).await;
        let two = board.two.clone();
        board.recovers_until(|board| board.restarts() == 2).await;
        // The boot loader takes the old system, for this once, and that cannot write to it either.
        let (new, old) = (board.next(), if board.next() == "a" { "b" } else { "a" });
        board.note("next", old);
        board.boot();
        board.note("next", &new);
        fs::copy(board.workshop.path("machine/runs"), board.workshop.path("machine/broken")).unwrap();
        let recovered = board.hasty().await.recover().await.unwrap();
        let (release, reason) = recovered.reverted.expect("the old system runs");
        assert_eq!((release, board.restarts()), (two.release, 2), "{adapter}");
        assert!(reason.contains("unhealthy") && reason.contains("back"), "{adapter}: {reason}");
        assert_eq!(recovered.running.map(|running| running.release), Some(board.one.release), "{adapter}");
        // It takes the new one again: the next start finds that.
        let (_, recovered) = board.restarted().await;
        assert_eq!((recovered.running, board.next_version().as_str()), (None, "1.0"), "{adapter}");
    }
}

#[tokio::test]
async fn s6_a_first_system_is_not_left_as_long_as_nothing_says_what_the_machine_runs() {
    for adapter in ADAPTERS {
        let mut board = Board::delivered(adapter);
        let one = board.one.clone();
        drop(board.hand_over(&one).await);
        let (mut executor, _) = board.restarted().await;
        assert_eq!(board.revert(&mut executor, &one).await, Outcome::Again, "{adapter}");
        drop(executor);
        let (booted, away) = (board.workshop.path("scripts/booted-version"), board.workshop.path("scripts/away"));
        fs::rename(&booted, &away).unwrap();
        board.boot();
        let before = board.restarts();
        board.recovers_until(|board| board.restarts() > before).await;
        fs::rename(&away, &booted).unwrap();
        let (_, recovered) = board.restarted().await;
        assert_eq!(recovered.reverted.map(|(release, _)| release), Some(one.release), "{adapter}");
        assert_eq!((recovered.running, board.next_version().as_str()), (None, "0.9"), "{adapter}");
    }
}

#[tokio::test]
async fn s6_a_machine_that_never_goes_back_is_restarted_three_times_and_then_stays_and_is_told() {
    for adapter in ADAPTERS {
        let mut board = Board::on_two_without_a_way_back(adapter).await;
        for restart in 0..3 {
            board.recovers_until(|board| board.restarts() == 2 + restart).await;
            board.boot();
        }
        let asked = board.asked();
        board.recovers_until(|board| board.asked() > asked + 10).await;
        assert_eq!((board.restarts(), board.next_version().as_str()), (4, "2.0"), "{adapter}: the hand-over's, and three");
        let mut bench = board.workshop.begun_device();
        let Report::Blocked(holds) = bench.next().await else { panic!("{adapter}: nothing true could be told") };
        assert!(holds.iter().any(|hold| hold.code == HoldCode::DeviceFault), "{adapter}: {holds:?}");
        bench.shutdown().await;
    }
}

//! Updates of the operating system: an updater, a boot loader and a machine made of files and a small program.
//!
//! `loader/next` is the system that the machine comes up with, `loader/runs` the one that it runs. The stand-in for an
//! updater does what RAUC, SWUpdate and ostree do with a real boot loader: write the other system, make it the next one.

use std::fs;
use std::time::Duration;

use groundswell_agent::config::{Activator, CommandActivator, Reboot};
use groundswell_agent::install::executor::{Executor, Outcome};
use groundswell_core::install::{Boot, Contents, Hook};
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Recovered, Report};
use groundswell_core::text::Reason;

use crate::workshop::{Workshop, claim};

/// A machine with system 1.0 confirmed, after its restart into it.
struct Machine {
    workshop: Workshop,
    one: Install,
    two: Install,
    boots: u32,
}

impl Machine {
    async fn on_one() -> Self {
        let mut workshop = Workshop::noting_starts();
        fs::create_dir(workshop.path("loader")).unwrap();
        let run = "echo install $GROUNDSWELL_VERSION >> updater; cat $GROUNDSWELL_BINARY > other; echo $GROUNDSWELL_VERSION > loader/next";
        workshop.config.activator = Activator::Command(CommandActivator {
            run: workshop.shell(run),
            back: Some(workshop.shell("echo back $GROUNDSWELL_VERSION >> updater; echo $GROUNDSWELL_VERSION > loader/next")),
            stop: Some(workshop.shell("echo stop $GROUNDSWELL_VERSION >> updater; echo none > loader/next")),
            timeout: Duration::from_secs(20),
            reboot: Some(Reboot {
                run: workshop.shell("echo reboot >> updater"),
                booted: workshop.shell("test $(cat loader/runs) = $GROUNDSWELL_VERSION"),
                timeout: Duration::from_millis(200),
            }),
        });
        let good = workshop.shell("echo mark-good $GROUNDSWELL_VERSION >> updater");
        workshop.config.hooks.commands.insert(Hook::AfterConfirm, good);
        let (one, two) = (workshop.release(1, "system one"), workshop.release(2, "system two"));
        let mut machine = Self { workshop, one, two, boots: 0 };
        let one = machine.one.clone();
        let mut executor = machine.executor().await;
        executor.recover().await.unwrap();
        executor.execute(&Step::Stage { install: one.clone() }).await;
        machine.hand_over(&mut executor, &one).await;
        let (mut executor, recovered) = machine.restarted().await;
        assert_eq!(recovered.trial, Some(one.release));
        machine.confirm(&mut executor, &one).await;
        fs::remove_file(machine.workshop.path("updater")).unwrap();
        machine
    }

    async fn executor(&self) -> Executor {
        self.workshop.executor().await
    }

    /// Activates, up to the restart of the machine, which the agent does not live to see.
    async fn hand_over(&self, executor: &mut Executor, install: &Install) {
        let order = Step::Activate { install: install.clone(), claim: claim(), within_ms: 900_000 };
        // The stand-in for `reboot` stops nobody, so here the agent is what gives up first.
        let outcome = executor.execute(&order).await;
        assert!(
            matches!(&outcome, Outcome::Report(Report::ActivateFailed { reason, .. }) if reason.contains("did not go down")),
            "{outcome:?}"
        );
    }

    /// The machine comes up with what the boot loader has next, and the agent starts.
    async fn restarted(&mut self) -> (Executor, Recovered) {
        fs::copy(self.workshop.path("loader/next"), self.workshop.path("loader/runs")).unwrap();
        self.boots += 1;
        self.workshop.boot = Boot(format!("boot {}", self.boots));
        let mut executor = self.executor().await;
        let recovered = executor.recover().await.expect("nothing stops it");
        (executor, recovered)
    }

    /// The agent has started and staged version 2.
    async fn staged(&self) -> Executor {
        let mut executor = self.executor().await;
        executor.recover().await.unwrap();
        executor.execute(&Step::Stage { install: self.two.clone() }).await;
        executor
    }

    /// Version 2 was handed over, and the machine restarted.
    async fn on_trial(&mut self) -> (Executor, Recovered) {
        let mut executor = self.staged().await;
        self.hand_over(&mut executor, &self.two).await;
        drop(executor);
        self.restarted().await
    }

    fn command(&mut self) -> &mut CommandActivator {
        let Activator::Command(command) = &mut self.workshop.config.activator else { unreachable!() };
        command
    }

    async fn confirm(&self, executor: &mut Executor, install: &Install) {
        let outcome = executor.execute(&Step::Confirm { release: install.release }).await;
        assert_eq!(outcome, Outcome::Report(Report::Confirmed { release: install.release }));
    }

    fn updater(&self) -> Vec<String> {
        self.workshop.lines("updater")
    }

    fn next(&self) -> String {
        self.workshop.lines("loader/next").concat()
    }
}

#[tokio::test]
async fn a_system_is_handed_over_and_confirmed_after_the_restart_of_the_machine() {
    let mut machine = Machine::on_one().await;
    let two = machine.two.clone();
    let (mut executor, recovered) = machine.on_trial().await;
    assert_eq!(recovered.trial, Some(two.release), "the trial begins after the restart");
    assert_eq!(recovered.floor.get(), 1);
    machine.confirm(&mut executor, &two).await;
    assert_eq!(machine.updater(), ["install 2.0", "reboot", "mark-good 2.0"]);
    assert!(fs::read_to_string(machine.workshop.path("other")).unwrap().contains("system two"), "the updater got the very file");
    drop(executor);
    let (_, recovered) = machine.restarted().await;
    assert_eq!((recovered.trial, recovered.floor.get()), (None, 2));
}

#[tokio::test]
async fn a_boot_loader_that_went_back_by_itself_is_a_rolled_back_verdict() {
    let mut machine = Machine::on_one().await;
    let two = machine.two.clone();
    let mut executor = machine.staged().await;
    machine.hand_over(&mut executor, &two).await;
    drop(executor);
    // The new system did not come up: the loader's counter ran out.
    fs::write(machine.workshop.path("loader/next"), "1.0\n").unwrap();
    let (_, recovered) = machine.restarted().await;
    let (release, reason) = recovered.reverted.expect("the trial is over");
    assert_eq!(release, two.release);
    assert!(reason.contains("did not start from 2.0"), "{reason}");
    assert_eq!(recovered.running.map(|running| running.release), Some(machine.one.release));
    assert_eq!(recovered.denied, [two.release, Contents::of(&two).build()]);
    assert_eq!(machine.updater(), ["install 2.0", "reboot", "back 1.0"], "and no further restart");
}

#[tokio::test]
async fn a_system_that_is_unhealthy_after_the_restart_goes_back_by_another_restart() {
    let mut machine = Machine::on_one().await;
    let two = machine.two.clone();
    let (mut executor, _) = machine.on_trial().await;
    let reason = Reason::lossy("unhealthy");
    let outcome = executor.execute(&Step::Revert { release: two.release, reason: reason.clone(), at_fault: true }).await;
    assert_eq!(outcome, Outcome::Again, "not reverted before the machine runs the old system");
    assert_eq!(machine.next(), "1.0");
    drop(executor);
    let (_, recovered) = machine.restarted().await;
    assert_eq!(recovered.reverted, Some((two.release, reason)));
    assert_eq!(recovered.running.map(|running| running.release), Some(machine.one.release));
    assert_eq!(machine.updater(), ["install 2.0", "reboot", "back 1.0", "reboot"]);
    let (_, recovered) = machine.restarted().await;
    assert_eq!((recovered.trial, recovered.reverted), (None, None), "said once");
}

#[tokio::test]
async fn s6_a_boot_loader_that_does_not_go_back_is_told_again_and_nothing_is_said_before_the_old_system_runs() {
    let mut machine = Machine::on_one().await;
    let two = machine.two.clone();
    let back = "echo back $GROUNDSWELL_VERSION >> updater; test -e stubborn || echo $GROUNDSWELL_VERSION > loader/next";
    let back = machine.workshop.shell(back);
    machine.command().back = Some(back);
    let (mut executor, _) = machine.on_trial().await;
    machine.workshop.touch("stubborn");
    let reason = Reason::lossy("unhealthy");
    executor.execute(&Step::Revert { release: two.release, reason: reason.clone(), at_fault: true }).await;
    drop(executor);
    // It comes up with the version that is left.
    machine.boots += 1;
    machine.workshop.boot = Boot(format!("boot {}", machine.boots));
    let mut executor = machine.executor().await;
    let told_again = async {
        while machine.updater().ends_with(&["reboot".to_owned()]) && machine.updater().len() == 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        while !machine.updater().ends_with(&["reboot".to_owned()]) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        recovered = executor.recover() => panic!("nothing true could be said: {recovered:?}"),
        () = told_again => {}
    }
    drop(executor);
    assert_eq!(machine.updater(), ["install 2.0", "reboot", "back 1.0", "reboot", "back 1.0", "reboot"]);
    // Now it goes back.
    fs::write(machine.workshop.path("loader/next"), "1.0\n").unwrap();
    let (_, recovered) = machine.restarted().await;
    assert_eq!(recovered.reverted, Some((two.release, reason)));
    assert_eq!(recovered.running.map(|running| running.release), Some(machine.one.release));
}

#[tokio::test]
async fn a_hand_over_that_was_cut_short_is_not_the_systems_fault() {
    let mut machine = Machine::on_one().await;
    let two = machine.two.clone();
    // The agent dies before the loader is told.
    let dying = machine.workshop.shell("exit 1");
    let run = std::mem::replace(&mut machine.command().run, dying);
    let mut executor = machine.staged().await;
    executor.execute(&Step::Activate { install: two.clone(), claim: claim(), within_ms: 900_000 }).await;
    drop(executor);
    machine.command().run = run;
    let (_, recovered) = machine.restarted().await;
    assert_eq!(recovered.reverted.map(|reverted| reverted.0), Some(two.release));
    assert!(!recovered.at_fault && recovered.denied.is_empty());
    assert_eq!(recovered.running.map(|running| running.release), Some(machine.one.release));
}

#[tokio::test]
async fn a_machine_that_cannot_be_restarted_keeps_its_old_system_as_the_next_one_too() {
    let machine = Machine::on_one().await;
    let two = machine.two.clone();
    let mut executor = machine.staged().await;
    machine.hand_over(&mut executor, &two).await;
    assert_eq!(machine.next(), "2.0");
    let outcome =
        executor.execute(&Step::Revert { release: two.release, reason: Reason::lossy("no restart"), at_fault: true }).await;
    assert!(
        matches!(&outcome, Outcome::Report(Report::Reverted { running: Some(running), .. }) if running.release == machine.one.release),
        "{outcome:?}"
    );
    assert_eq!(machine.next(), "1.0");
    assert_eq!(machine.updater(), ["install 2.0", "reboot", "back 1.0"]);
}

#[tokio::test]
async fn a_power_cut_while_a_system_is_handed_over_never_hands_it_over_again() {
    let mut machine = Machine::on_one().await;
    let two = machine.two.clone();
    // The agent dies once the loader is told.
    let dying = "echo install $GROUNDSWELL_VERSION >> updater; echo $GROUNDSWELL_VERSION > loader/next; exit 1";
    let mut run = machine.workshop.shell(dying);
    std::mem::swap(&mut machine.command().run, &mut run);
    let mut executor = machine.staged().await;
    executor.execute(&Step::Activate { install: two.clone(), claim: claim(), within_ms: 900_000 }).await;
    drop(executor);
    machine.command().run = run;
    let (_, recovered) = machine.restarted().await;
    assert_eq!(recovered.trial, Some(two.release), "the machine runs it: the trial goes on");
    assert_eq!(machine.updater(), ["install 2.0"]);
}

#[tokio::test]
async fn s6_a_machine_is_not_restarted_before_the_old_system_is_the_next_one() {
    for at_start_up in [false, true] {
        let mut machine = Machine::on_one().await;
        let two = machine.two.clone();
        let back = machine.workshop.shell(
            "echo back $GROUNDSWELL_VERSION >> updater; test ! -e locked || { echo the loader is locked; exit 1; }
            echo $GROUNDSWELL_VERSION > loader/next",
        );
        machine.command().back = Some(back);
        let (mut executor, _) = machine.on_trial().await;
        machine.workshop.touch("locked");
        let order = Step::Revert { release: two.release, reason: Reason::lossy("unhealthy"), at_fault: true };
        assert_eq!(executor.execute(&order).await, Outcome::Again, "not reverted: the machine would come up with 2.0");
        let unlock = || fs::remove_file(machine.workshop.path("locked")).unwrap();
        let restarts = || machine.updater().iter().filter(|line| *line == "reboot").count();
        assert_eq!((machine.next().as_str(), restarts()), ("2.0", 1));
        if at_start_up {
            drop(executor);
            let mut executor = machine.executor().await;
            let before = machine.updater().len();
            let recovering = tokio::spawn(async move { executor.recover().await });
            // It is tried, and nothing is told.
            while machine.updater().len() < before + 3 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(!recovering.is_finished());
            assert_eq!((machine.next().as_str(), restarts()), ("2.0", 1));
            unlock();
            while restarts() < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            recovering.abort();
        } else {
            unlock();
            assert_eq!(executor.execute(&order).await, Outcome::Again, "not before the machine runs the old system");
            drop(executor);
        }
        assert_eq!(machine.next(), "1.0");
        let (_, recovered) = machine.restarted().await;
        let (release, reason) = recovered.reverted.expect("now it is");
        assert_eq!(release, two.release);
        assert!(reason.contains("unhealthy"), "{reason}");
        assert_eq!(recovered.running.map(|running| running.release), Some(machine.one.release));
    }
}

#[tokio::test]
async fn a_first_system_that_was_staged_before_stop_was_asked_for_is_not_handed_over_without_it() {
    let mut workshop = Workshop::noting_starts();
    let command = |workshop: &Workshop, stop: Option<Vec<String>>| {
        let reboot = Reboot { run: workshop.shell("true"), booted: workshop.shell("true"), timeout: Duration::from_millis(50) };
        let run = workshop.shell("echo install >> updater");
        Activator::Command(CommandActivator { run, back: None, stop, timeout: Duration::from_secs(20), reboot: Some(reboot) })
    };
    workshop.config.activator = command(&workshop, Some(workshop.shell("true")));
    let one = workshop.release(1, "system one");
    let mut executor = workshop.executor().await;
    executor.recover().await.unwrap();
    executor.execute(&Step::Stage { install: one.clone() }).await;
    drop(executor);
    workshop.config.activator = command(&workshop, None);
    let mut executor = workshop.executor().await;
    assert_eq!(executor.recover().await.unwrap().staged, Some(one.release));
    let outcome = executor.execute(&Step::Activate { install: one.clone(), claim: claim(), within_ms: 900_000 }).await;
    let Outcome::Report(Report::ActivateFailed { reason, at_fault: false, .. }) = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("activator.stop is missing"), "{reason}");
    assert_eq!(workshop.lines("updater"), Vec::<String>::new());
}

//! A way back whose old version does not start, by any means: nothing says that it is over, and a newer release takes its place.

use std::time::Duration;

use groundswell_agent::config::Activator;
use groundswell_agent::install::executor::{Executor, Outcome};
use groundswell_agent::install::way_back::Pauses;
use groundswell_core::install::machine::{self, Plan};
use groundswell_core::install::{Hook, Operation};
use groundswell_core::limits::TRIES_BACK;
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Recovered, Report};
use groundswell_core::record::status::{HoldCode, HoldNotice};
use groundswell_core::text::Reason;

use crate::workshop::{Workshop, claim};

/// Release 2 was left for release 1, which does not start while there is a file `broken`.
struct Site {
    workshop: Workshop,
    one: Install,
    two: Install,
    three: Install,
}

impl Site {
    fn new() -> Self {
        let mut workshop = Workshop::noting_starts();
        let run =
            workshop.shell("echo start $GROUNDSWELL_VERSION >> started; test $GROUNDSWELL_VERSION != 1.0 || test ! -e broken");
        let Activator::Command(command) = &mut workshop.config.activator else { panic!("a command starts it") };
        command.run = run;
        let (one, two, three) = (workshop.release(1, "one"), workshop.release(2, "two"), workshop.release(3, "three"));
        Self { workshop, one, two, three }
    }

    /// The agent starts, and waits for nothing.
    async fn executor(&self) -> Executor {
        let pause = Duration::from_millis(1);
        self.workshop.executor().await.pausing(Pauses { start: pause, first: pause, longest: pause }).heard()
    }

    async fn recovered(&self) -> (Executor, Recovered) {
        let mut executor = self.executor().await;
        let recovered = executor.recover().await.expect("it is told what there is");
        (executor, recovered)
    }

    /// On the way back from release 2, begun so often.
    async fn going_back(&self, tries: u32) -> Executor {
        let mut executor = self.executor().await;
        executor.recover().await.unwrap();
        for install in [&self.one, &self.two] {
            assert_eq!(stage(&mut executor, install).await, Outcome::Report(Report::Staged { release: install.release }));
            let started = activate(&mut executor, install).await;
            assert_eq!(started, Outcome::Report(Report::Activated { release: install.release }));
            if install == &self.one {
                executor.execute(&Step::Confirm { release: install.release }).await;
            }
        }
        self.workshop.touch("broken");
        for _ in 0..tries {
            assert_eq!(executor.execute(&leave(&self.two)).await, Outcome::Again);
        }
        executor
    }

    fn starts_again(&self) {
        std::fs::remove_file(self.workshop.path("broken")).unwrap();
    }
}

async fn stage(executor: &mut Executor, install: &Install) -> Outcome {
    executor.execute(&Step::Stage { install: install.clone() }).await
}

async fn activate(executor: &mut Executor, install: &Install) -> Outcome {
    executor.execute(&Step::Activate { install: install.clone(), claim: claim(), within_ms: 900_000 }).await
}

fn leave(install: &Install) -> Step {
    Step::Revert { release: install.release, reason: Reason::lossy("unhealthy"), at_fault: true }
}

fn is_over(recovered: &Recovered) -> bool {
    recovered.going_back.is_none() && recovered.trial.is_none()
}

#[tokio::test]
async fn s6_a_newer_release_takes_the_place_of_a_way_back_that_does_not_end() {
    let site = Site::new();
    let mut executor = site.going_back(TRIES_BACK - 1).await;
    let early = stage(&mut executor, &site.three).await;
    assert!(
        matches!(&early, Outcome::Report(Report::StageFailed { reason, .. }) if reason.contains("not confirmed yet")),
        "{early:?}"
    );
    executor.execute(&leave(&site.two)).await;
    // What is left does not come in its own place.
    let itself = stage(&mut executor, &site.two).await;
    assert!(matches!(&itself, Outcome::Report(Report::StageFailed { .. })), "{itself:?}");
    assert_eq!(stage(&mut executor, &site.three).await, Outcome::Report(Report::Staged { release: site.three.release }));
    // The way back is not over for that, at a start of the agent either.
    drop(executor);
    let (mut executor, recovered) = site.recovered().await;
    let expected = (site.two.release, Reason::lossy("unhealthy"), true);
    assert_eq!(recovered.going_back.as_deref(), Some(&expected));
    assert_eq!((recovered.reverted, recovered.trial), (None, None));
    assert_eq!(activate(&mut executor, &site.three).await, Outcome::Report(Report::Activated { release: site.three.release }));
    let denied = executor.found().await.unwrap().denied;
    assert_eq!(denied.iter().map(|denied| denied.release).collect::<Vec<_>>(), [site.two.release], "what was left is denied");
    let outcome = executor.execute(&Step::Confirm { release: site.three.release }).await;
    assert_eq!(outcome, Outcome::Report(Report::Confirmed { release: site.three.release }));
    drop(executor);
    let (_, recovered) = site.recovered().await;
    assert_eq!((is_over(&recovered), recovered.running.map(|running| running.release)), (true, Some(site.three.release)));
}

#[tokio::test]
async fn s6_what_could_not_be_tried_takes_the_place_of_its_own_way_back_once_it_can() {
    let site = Site::new();
    let mut executor = site.going_back(0).await;
    let leave = Step::Revert { release: site.two.release, reason: Reason::lossy("too many processes"), at_fault: false };
    for _ in 1..TRIES_BACK {
        assert_eq!(executor.execute(&leave).await, Outcome::Again);
        assert!(matches!(stage(&mut executor, &site.two).await, Outcome::Report(Report::StageFailed { .. })));
    }
    assert_eq!(executor.execute(&leave).await, Outcome::Again);
    assert_eq!(stage(&mut executor, &site.two).await, Outcome::Report(Report::Staged { release: site.two.release }));
    assert_eq!(activate(&mut executor, &site.two).await, Outcome::Report(Report::Activated { release: site.two.release }));
    assert_eq!(executor.found().await.unwrap().denied, []);
    let outcome = executor.execute(&Step::Confirm { release: site.two.release }).await;
    assert_eq!(outcome, Outcome::Report(Report::Confirmed { release: site.two.release }));
}

#[tokio::test]
async fn s6_an_old_version_that_starts_after_all_ends_the_way_back_whatever_was_staged_meanwhile() {
    for staged in [false, true] {
        let site = Site::new();
        let mut executor = site.going_back(TRIES_BACK).await;
        if staged {
            stage(&mut executor, &site.three).await;
        }
        site.starts_again();
        let outcome = executor.execute(&leave(&site.two)).await;
        let Outcome::Report(Report::Reverted { running, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(running.map(|running| running.release), Some(site.one.release));
        // The next upgrade works.
        assert_eq!(stage(&mut executor, &site.three).await, Outcome::Report(Report::Staged { release: site.three.release }));
        assert_eq!(
            activate(&mut executor, &site.three).await,
            Outcome::Report(Report::Activated { release: site.three.release })
        );
    }
}

#[tokio::test]
async fn s6_what_could_not_take_the_place_of_a_way_back_either_leaves_it_under_way() {
    for fails in ["hook", "start"] {
        let mut site = Site::new();
        if fails == "hook" {
            let hook = site.workshop.shell("test $GROUNDSWELL_VERSION != 3.0");
            site.workshop.config.hooks.commands.insert(Hook::BeforeActivate, hook);
        } else {
            let Activator::Command(command) = &mut site.workshop.config.activator else { panic!("a command starts it") };
            command.run.last_mut().expect("a script").push_str(" && test $GROUNDSWELL_VERSION != 3.0");
        }
        let mut executor = site.going_back(TRIES_BACK).await;
        stage(&mut executor, &site.three).await;
        let outcome = activate(&mut executor, &site.three).await;
        assert!(matches!(&outcome, Outcome::Report(Report::ActivateFailed { .. })), "{fails}: {outcome:?}");
        assert_eq!(executor.execute(&leave(&site.three)).await, Outcome::Again, "{fails}: the old version does not run");
        site.starts_again();
        let outcome = executor.execute(&leave(&site.three)).await;
        let Outcome::Report(Report::Reverted { running, .. }) = outcome else { panic!("{fails}: {outcome:?}") };
        assert_eq!(running.map(|running| running.release), Some(site.one.release), "{fails}");
    }
}

#[tokio::test]
async fn s6_the_old_release_itself_may_take_the_place_of_a_way_back_and_where_it_cannot_that_goes_on() {
    let mut site = Site::new();
    let mut executor = site.going_back(TRIES_BACK).await;
    assert_eq!(stage(&mut executor, &site.one).await, Outcome::Report(Report::Staged { release: site.one.release }));
    drop(executor);
    let hook = site.workshop.shell("exit 1");
    site.workshop.config.hooks.commands.insert(Hook::BeforeActivate, hook);
    let (mut executor, _) = site.recovered().await;
    let outcome = activate(&mut executor, &site.one).await;
    assert!(matches!(&outcome, Outcome::Report(Report::ActivateFailed { .. })), "{outcome:?}");
    assert_eq!(executor.execute(&leave(&site.one)).await, Outcome::Again, "the old version does not run");
    site.starts_again();
    let outcome = executor.execute(&leave(&site.one)).await;
    let Outcome::Report(Report::Reverted { running, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(running.map(|running| running.release), Some(site.one.release));
}

#[tokio::test]
async fn s6_an_agent_that_ends_while_a_release_takes_the_place_of_a_way_back_says_nothing_false() {
    for at in 0.. {
        let site = Site::new();
        let mut executor = site.going_back(TRIES_BACK).await;
        let plan = async |executor: &Executor, staging: bool| {
            let found = executor.found().await.unwrap();
            let plan = match staging {
                true => machine::stage(&found, &site.three),
                false => machine::activate(&found, &site.three, claim(), site.workshop.config.manner()),
            };
            let Ok(Plan::Do(operations)) = plan else { panic!("{plan:?}") };
            operations
        };
        let mut left = at;
        let mut started = false;
        'cut: for staging in [true, false] {
            for operation in plan(&executor, staging).await {
                if left == 0 {
                    break 'cut;
                }
                left -= 1;
                executor.perform_one(&operation).await.unwrap();
                started |= matches!(operation, Operation::Start(..));
            }
        }
        if left > 0 {
            assert!(at > 8, "a stage and an activation are more than that");
            break;
        }
        drop(executor);
        let (mut executor, recovered) = site.recovered().await;
        assert!(!is_over(&recovered), "cut at {at}, started: {started}: {recovered:?}");
        // It is not lost: the old version comes back as soon as it can.
        site.starts_again();
        let release = recovered.trial.or(recovered.going_back.map(|going_back| going_back.0)).unwrap();
        let leave = Step::Revert { release, reason: Reason::lossy("unhealthy"), at_fault: false };
        let outcome = executor.execute(&leave).await;
        let Outcome::Report(Report::Reverted { running, .. }) = outcome else { panic!("cut at {at}: {outcome:?}") };
        assert_eq!(running.map(|running| running.release), Some(site.one.release), "cut at {at}");
    }
}

#[tokio::test]
async fn a_release_that_cannot_be_staged_meanwhile_neither_ends_the_hold_nor_delays_the_way_back() {
    let mut site = Site::new();
    drop(site.going_back(TRIES_BACK).await);
    let hook = site.workshop.shell("exit 1");
    site.workshop.config.hooks.commands.insert(Hook::BeforeStage, hook);
    let mut bench = site.workshop.begun_device();
    let going_back = |report| match report {
        Report::Recovered(recovered) => Some(recovered.going_back.is_some()),
        _ => None,
    };
    assert!(bench.until(going_back).await);
    bench.device.step(leave(&site.two)).unwrap();
    let is_held = |holds: &[HoldNotice]| holds.iter().any(|hold| hold.code == HoldCode::DeviceFault);
    bench.until(|report| matches!(&report, Report::Blocked(holds) if is_held(holds)).then_some(())).await;
    let failed = bench.stage(&site.three).await;
    assert!(matches!(&failed, Report::StageFailed { reason, .. } if reason.contains("before-stage")), "{failed:?}");
    // Nobody asks for it again: it is under way.
    site.starts_again();
    // The hold ends with it, which may be told a moment before.
    let mut ends = false;
    loop {
        match bench.next().await {
            Report::Reverted { running, .. } => {
                assert_eq!(running.map(|running| running.release), Some(site.one.release));
                break;
            }
            Report::Blocked(holds) if !ends => ends = !is_held(&holds),
            other => assert!(!ends, "the hold ended before the way back: {other:?}"),
        }
    }
    bench.shutdown().await;
}

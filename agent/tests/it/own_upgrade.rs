//! The agent's own upgrade with kill −9 at every place: of the agent between any two of its operations, and of its supervisor
//! with it. The places are made from the lists of operations, so a new step cannot be forgotten.
//!
//! Files, executor and the supervisor's decisions are the real ones; processes are none: a build that "runs" is a slot.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use groundswell_agent::config::{Activator, HooksConfig};
use groundswell_agent::install::activate::Starter;
use groundswell_agent::install::disk::{Disk, Place};
use groundswell_agent::install::executor::{Executor, Outcome};
use groundswell_agent::install::files::{Files, OnDisk};
use groundswell_agent::install::slots::{Room, verify_file};
use groundswell_agent::supervise::marks::{Marks, Run};
use groundswell_agent::supervise::own::{Own, Supervisor};
use groundswell_core::install::machine::{self, Cause, Plan};
use groundswell_core::install::recovery::recover;
use groundswell_core::install::supervision::{Action, Boots, Input, Reading, Supervision, Terms};
use groundswell_core::install::{Boot, Counted, Found, Hook, Manner, Operation, Slot};
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Recovered, Report};
use groundswell_core::record::{ClaimName, Stamp};
use groundswell_core::text::Reason;
use groundswell_core::time::{Now, Time, Timestamp};
use tokio::sync::watch;

use super::workshop::{Workshop, product};

const MOST_BOOTS: u32 = 3;
/// What the hooks of a trial may take.
const HOOKS: Duration = Duration::from_secs(90);
/// As a product of type `agent` has it.
pub(crate) const MANNER: Manner = Manner { trial_starts: MOST_BOOTS, counted: Counted::Elsewhere, restarts_machine: true };
/// A supervisor of these tests lives for one start.
const TERMS: Terms = Terms {
    ready_within_ms: 1_000,
    silence_ms: 1_000,
    stop_within_ms: 1_000,
    backoff_ms: 1,
    backoff_longest_ms: 1,
    stable_after_ms: 1_000,
};
const NOW: Now = Now { awake_ms: 0, boot: Time(0), wall: Timestamp::LAST };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Activate,
    Confirm,
    Revert,
}

/// A machine with a supervisor: which build runs, and how often one was started.
pub(crate) struct Machine {
    pub(crate) workshop: Workshop,
    files: Arc<dyn Files>,
    pub(crate) slot: Option<Slot>,
    runs: u32,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self::on(Arc::new(OnDisk))
    }

    /// On another disk than the machine's own.
    pub(crate) fn on(files: Arc<dyn Files>) -> Self {
        Self { workshop: Workshop::noting_starts(), files, slot: None, runs: 0 }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.workshop.path("data")
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.data().join("products").join(product().as_str())
    }

    fn marks(&self) -> Marks {
        Marks::new(Arc::clone(&self.files), &self.data(), Some(product().as_str()))
    }

    /// A supervisor starts a build: what it decides by the files alone, for the one before was killed too.
    pub(crate) fn supervise(&mut self) {
        let marks = self.marks();
        // What it stands on, first of all.
        std::fs::create_dir_all(marks.folder()).unwrap();
        marks.make_reserve();
        let run = Run { boot: "another run of the machine".to_owned(), began_ms: NOW.awake_ms };
        let mut supervision = Supervision::new(TERMS);
        let mut inputs = VecDeque::from([Input::Begin]);
        while let Some(input) = inputs.pop_front() {
            for action in supervision.handle(NOW, input) {
                match action {
                    Action::Look => inputs.push_back(Input::Found(marks.facts(&run, NOW))),
                    Action::Count { trial, boots, stops } => {
                        let written = marks.write_boots(&Boots { trial, boots, stops, given_up: None });
                        inputs.push_back(Input::Written(written.is_ok()));
                    }
                    Action::GiveUp { trial, boots, reason } => {
                        let written = marks.write_boots(&Boots { trial, boots, stops: 0, given_up: Some(reason) });
                        inputs.push_back(Input::Written(written.is_ok()));
                    }
                    // It does no harm when that fails.
                    Action::Remember(named) => drop(marks.remember(&named)),
                    Action::Start(build) => {
                        self.slot = build.named().map(|named| {
                            let binary = self.folder().join("slots").join(named.slot.name()).join(product().as_str());
                            verify_file(&OnDisk, &binary, named.size_bytes, named.sha256).expect("what is started is whole");
                            named.slot
                        });
                        return;
                    }
                    _ => {}
                }
            }
        }
        panic!("nothing is started");
    }

    /// The agent in the slot that runs, before its recovery.
    async fn agent(&mut self) -> Executor {
        self.runs += 1;
        let place = Place {
            files: Arc::clone(&self.files),
            folder: self.folder(),
            product: product(),
            boot: Boot(format!("run {}", self.runs)),
            room: Room::ENDLESS,
        };
        let disk = Disk::open(place, self.workshop.shelf()).unwrap();
        let (restart, mut asked) = watch::channel(false);
        let (stop, stopping) = watch::channel(false);
        // An agent that is to be replaced ends.
        tokio::spawn(async move {
            let _ = asked.wait_for(|asked| *asked).await;
            stop.send_replace(true);
            std::future::pending::<()>().await;
        });
        let supervisor = Some(Supervisor { slot: self.slot });
        let own = Own { marks: self.marks(), supervisor, most_boots: MOST_BOOTS, hooks: HOOKS, restart: Arc::new(restart) };
        let starter = Starter::open(&Activator::Agent, &self.folder(), Some(own)).await;
        Executor::new(Arc::new(disk), starter, self.workshop.config.hooks.clone(), MANNER, stopping)
    }

    /// Starts what is to run until an agent has recovered.
    pub(crate) async fn up(&mut self) -> (Executor, Recovered) {
        for _ in 0..6 {
            self.supervise();
            let mut agent = self.agent().await;
            if let Some(recovered) = agent.recover().await {
                let found = agent.found().await.unwrap();
                assert_eq!(found.current, self.slot, "`current` leads to what runs");
                return (agent, recovered);
            }
        }
        panic!("it is replaced again and again");
    }

    /// Stages a version and hands over to it; the agent has ended.
    async fn hand_over(&mut self, mut agent: Executor, install: &Install) {
        let staged = agent.execute(&Step::Stage { install: install.clone() }).await;
        assert_eq!(staged, Outcome::Report(Report::Staged { release: install.release }));
        let step = Step::Activate { install: install.clone(), claim: claim_of(install), within_ms: 60_000 };
        assert_eq!(agent.execute(&step).await, Outcome::Stopping);
    }

    async fn confirm(&mut self, agent: &mut Executor, install: &Install) {
        let confirmed = agent.execute(&Step::Confirm { release: install.release }).await;
        assert_eq!(confirmed, Outcome::Report(Report::Confirmed { release: install.release }));
    }

    /// Stages, hands over, and confirms.
    async fn install(&mut self, agent: Executor, install: &Install) -> Executor {
        self.hand_over(agent, install).await;
        let (mut agent, recovered) = self.up().await;
        assert_eq!(recovered.trial, Some(install.release));
        self.confirm(&mut agent, install).await;
        agent
    }
}

/// No two upgrades happen under one claim.
pub(crate) fn claim_of(install: &Install) -> ClaimName {
    ClaimName(Stamp { incarnation: 1, counter: install.sequence.get() })
}

pub(crate) fn plan(found: &Found, order: Order, install: &Install) -> Vec<Operation> {
    let cause = Cause { reason: Reason::lossy("unhealthy"), at_fault: true };
    let plan = match order {
        Order::Activate => machine::activate(found, install, claim_of(install), MANNER),
        Order::Confirm => machine::confirm(found, install.release),
        Order::Revert => Ok(machine::revert(found, install.release, &cause, MANNER)),
    };
    match plan {
        Ok(Plan::Do(operations)) => operations,
        other => panic!("{order:?}: {other:?}"),
    }
}

/// Version 1 runs and is confirmed (or nothing is installed, for a first install), and all is done that comes before `order`.
async fn before(order: Order, first: bool) -> (Machine, Executor, Option<Install>, Install) {
    before_on(Machine::new(), order, first).await
}

/// The same on this machine.
pub(crate) async fn before_on(mut machine: Machine, order: Order, first: bool) -> (Machine, Executor, Option<Install>, Install) {
    let old = (!first).then(|| machine.workshop.release(1, "echo one"));
    let new = machine.workshop.release(2, "echo two");
    let (mut agent, _) = machine.up().await;
    if let Some(old) = &old {
        agent = machine.install(agent, old).await;
    }
    if order == Order::Activate {
        agent.execute(&Step::Stage { install: new.clone() }).await;
    } else {
        machine.hand_over(agent, &new).await;
        agent = machine.up().await.0;
    }
    (machine, agent, old, new)
}

async fn kill_everywhere(order: Order, first: bool) -> usize {
    let mut done = 0;
    loop {
        let (mut machine, mut agent, old, new) = before(order, first).await;
        let before_slot = old.as_ref().map(|_| Slot::A);
        let operations = plan(&agent.found().await.unwrap(), order, &new);
        if done > operations.len() {
            return operations.len();
        }
        let when = format!("{order:?}, first install {first}, killed after {done} of {}", operations.len());
        for operation in operations.iter().take(done) {
            // A restart is never done: the agent ends in it.
            let _ = agent.perform_one(operation).await;
        }
        drop(agent);

        let (agent, recovered) = machine.up().await;
        let on_trial = recovered.trial == Some(new.release);
        match order {
            Order::Activate => assert_eq!(on_trial, done > 0, "{when}: {recovered:?}"),
            Order::Confirm => {
                let confirmed = recovered.trial.is_none() && recovered.floor == new.sequence;
                assert!(on_trial || confirmed, "{when}: {recovered:?}");
            }
            Order::Revert if done == 0 => assert!(on_trial, "{when}: {recovered:?}"),
            Order::Revert => {
                let (release, reason) = recovered.reverted.clone().unwrap_or_else(|| (new.release, Reason::lossy("unhealthy")));
                assert_eq!((release, reason.as_str()), (new.release, "unhealthy"), "{when}");
                assert_eq!(machine.slot, before_slot, "{when}");
                assert!(recovered.denied.contains(&new.release), "{when}: {recovered:?}");
            }
        }
        goes_on(&mut machine, agent, &recovered, order, (before_slot, &new), &when).await;
        done += 1;
    }
}

/// An order that was interrupted goes on to its end, and the next version can be installed.
pub(crate) async fn goes_on(
    machine: &mut Machine,
    mut agent: Executor,
    recovered: &Recovered,
    order: Order,
    (before_slot, new): (Option<Slot>, &Install),
    when: &str,
) {
    let on_trial = recovered.trial == Some(new.release);
    if order == Order::Revert {
        if on_trial {
            let step = Step::Revert { release: new.release, reason: Reason::lossy("unhealthy"), at_fault: true };
            assert_eq!(agent.execute(&step).await, Outcome::Stopping, "{when}");
            agent = machine.up().await.0;
        }
        assert_eq!(machine.slot, before_slot, "{when}");
    } else {
        if !on_trial && recovered.floor < new.sequence {
            machine.hand_over(agent, new).await;
            agent = machine.up().await.0;
        }
        if agent.found().await.unwrap().open().is_some() {
            machine.confirm(&mut agent, new).await;
        }
        drop(agent);
        agent = machine.up().await.0;
        assert_eq!(agent.found().await.unwrap().floor(), new.sequence, "{when}");
        assert_ne!(machine.slot, before_slot, "{when}");
    }
    let next = machine.workshop.release(3, "echo three");
    let agent = machine.install(agent, &next).await;
    assert_eq!(agent.found().await.unwrap().floor(), next.sequence, "{when}");
}

#[tokio::test]
async fn s6_a_kill_between_any_two_operations_of_the_agents_own_upgrade_ends_on_the_right_build() {
    for first in [false, true] {
        for order in [Order::Activate, Order::Confirm, Order::Revert] {
            let places = kill_everywhere(order, first).await;
            assert!(places > 3, "{order:?}: {places} places");
        }
    }
}

#[tokio::test]
async fn i7_a_build_that_dies_at_any_place_of_its_start_is_left_after_three_boots_with_the_reason() {
    for first in [false, true] {
        let mut done = 0;
        loop {
            let (mut machine, agent, old, new) = before(Order::Activate, first).await;
            machine.hand_over(agent, &new).await;
            let mut operations = 0;
            for boot in 1..=MOST_BOOTS {
                machine.supervise();
                assert_ne!(machine.slot, old.as_ref().map(|_| Slot::A));
                let Reading::Said(boots) = machine.marks().boots() else { panic!("the boot is counted") };
                assert_eq!(boots.boots, boot);
                let mut agent = machine.agent().await;
                let start = recover(&agent.found().await.unwrap(), MANNER).operations;
                operations = operations.max(start.len());
                for operation in start.iter().take(done) {
                    agent.perform_one(operation).await.unwrap();
                }
            }
            let (agent, recovered) = machine.up().await;
            let (release, reason) = recovered.reverted.expect("it went back");
            assert_eq!(release, new.release);
            assert!(reason.as_str().contains("started 3 times without being confirmed"), "{reason}");
            assert_eq!(machine.slot, old.as_ref().map(|_| Slot::A));
            assert!(agent.found().await.unwrap().open().is_none());
            assert!(recovered.denied.contains(&new.release), "case I1");
            if done == operations {
                break;
            }
            done += 1;
        }
        assert!(done > 2, "{done} places");
    }
}

#[tokio::test]
async fn s5_an_old_build_that_finishes_the_confirm_of_the_new_one_gives_way_to_it() {
    for first in [false, true] {
        let (mut machine, mut agent, _, new) = before(Order::Confirm, first).await;
        let home = machine.slot;
        for operation in plan(&agent.found().await.unwrap(), Order::Confirm, &new) {
            if matches!(operation, Operation::Bless(_)) {
                break;
            }
            agent.perform_one(&operation).await.unwrap();
        }
        drop(agent);
        // It cannot go on, again and again: its supervisor gives up.
        while machine.slot == home {
            machine.supervise();
        }
        let mut old = machine.agent().await;
        assert_eq!(old.recover().await, None, "it tells nothing, and ends");
        assert_eq!(old.found().await.unwrap().floor(), new.sequence);
        drop(old);
        let (agent, recovered) = machine.up().await;
        assert_eq!((machine.slot, recovered.trial, recovered.floor), (home, None, new.sequence));
        assert_eq!(recovered.running.map(|running| running.release), Some(new.release));
        assert!(agent.found().await.unwrap().open().is_none());
    }
}

#[tokio::test]
async fn i4_a_second_upgrade_of_the_agent_waits_while_the_first_is_unconfirmed_and_touches_no_slot() {
    let (mut machine, mut agent, _, new) = before(Order::Confirm, false).await;
    let binary = |machine: &Machine, slot: Slot| {
        std::fs::read(machine.folder().join("slots").join(slot.name()).join(product().as_str())).unwrap()
    };
    let files = |machine: &Machine| [Slot::A, Slot::B].map(|slot| binary(machine, slot));
    let (slots, trial) = (files(&machine), machine.marks().trial());
    let next = machine.workshop.release(3, "echo three");
    let staged = agent.execute(&Step::Stage { install: next.clone() }).await;
    let Outcome::Report(Report::StageFailed { reason, .. }) = staged else { panic!("it must wait: {staged:?}") };
    assert!(reason.contains("2.0 is not confirmed yet"), "{reason}");
    let step = Step::Activate { install: next.clone(), claim: claim_of(&next), within_ms: 60_000 };
    let activated = agent.execute(&step).await;
    assert!(matches!(activated, Outcome::Report(Report::ActivateFailed { .. })), "{activated:?}");
    assert_eq!((files(&machine), machine.marks().trial()), (slots, trial));
    // Its supervisor goes on with the first one.
    drop(agent);
    let (mut agent, recovered) = machine.up().await;
    assert_eq!((machine.slot, recovered.trial), (Some(Slot::B), Some(new.release)));
    machine.confirm(&mut agent, &new).await;
    let agent = machine.install(agent, &next).await;
    assert_eq!(agent.found().await.unwrap().floor(), next.sequence);
}

#[tokio::test]
async fn an_agent_that_is_its_supervisors_own_build_does_not_say_that_it_is_the_confirmed_one() {
    let (mut machine, agent, old, _) = before(Order::Activate, false).await;
    let old = old.unwrap();
    drop(agent);
    // The confirmed build could not be started.
    machine.slot = None;
    let mut agent = machine.agent().await;
    let recovered = agent.recover().await.unwrap();
    assert_eq!((recovered.running, recovered.floor), (None, old.sequence));
    assert_eq!(agent.running().1, None, "and its health is not that one's");
    drop(agent);
    let (agent, recovered) = machine.up().await;
    assert_eq!(recovered.running.map(|running| running.release), Some(old.release));
    assert!(agent.running().1.is_some());
}

#[tokio::test]
async fn an_agent_without_a_supervisor_replaces_nothing() {
    let machine = Machine::new();
    let own = Own {
        marks: machine.marks(),
        supervisor: None,
        most_boots: MOST_BOOTS,
        hooks: HOOKS,
        restart: Arc::new(watch::channel(false).0),
    };
    let new = machine.workshop.release(1, "echo one");
    let place = Place {
        files: Arc::new(OnDisk),
        folder: machine.folder(),
        product: product(),
        boot: Boot("this".to_owned()),
        room: Room::ENDLESS,
    };
    let disk = Disk::open(place, machine.workshop.shelf()).unwrap();
    let starter = Starter::open(&Activator::Agent, &machine.folder(), Some(own)).await;
    let (_stop, stopping) = watch::channel(false);
    let hooks = HooksConfig::clone(&machine.workshop.config.hooks);
    let mut agent = Executor::new(Arc::new(disk), starter, hooks, MANNER, stopping);
    agent.recover().await.unwrap();
    agent.execute(&Step::Stage { install: new.clone() }).await;
    let step = Step::Activate { claim: claim_of(&new), install: new, within_ms: 60_000 };
    let Outcome::Report(Report::ActivateFailed { reason, at_fault, .. }) = agent.execute(&step).await else {
        panic!("it is refused")
    };
    assert!(reason.as_str().contains("swell supervise") && !at_fault, "{reason}");
    assert_eq!(machine.marks().trial(), Reading::Absent);
}

fn confirm_within(machine: &Machine) -> u64 {
    let Reading::Said(mark) = machine.marks().trial() else { panic!("it is asked for") };
    mark.confirm_within_seconds
}

#[tokio::test]
async fn a_trial_may_take_the_rollouts_time_a_minute_and_what_hooks_may_take() {
    let (mut machine, agent, _, new) = before(Order::Activate, false).await;
    machine.hand_over(agent, &new).await;
    assert_eq!(confirm_within(&machine), 60 + 60 + HOOKS.as_secs());
    let mut hooks = HooksConfig { timeout: Duration::from_secs(45), ..HooksConfig::default() };
    assert_eq!(hooks.in_a_trial(), Duration::ZERO);
    for (hook, seconds) in
        [(Hook::BeforeStage, 0), (Hook::AfterActivate, 45), (Hook::BeforeRevert, 90), (Hook::BeforeConfirm, 90)]
    {
        hooks.commands.insert(hook, vec!["true".to_owned()]);
        assert_eq!(hooks.in_a_trial().as_secs(), seconds, "{hook:?}");
    }
}

#[tokio::test]
async fn a_trial_that_a_crash_kept_from_being_handed_over_gets_the_rollouts_time_all_the_same() {
    let (mut machine, mut agent, _, new) = before(Order::Activate, false).await;
    // It is killed once the journal says that it starts the new build, before it has named it.
    let place = machine.marks().folder().join("trial.json");
    std::fs::remove_file(&place).unwrap();
    std::fs::create_dir_all(place.join("in-its-place")).unwrap();
    let step = Step::Activate { install: new.clone(), claim: claim_of(&new), within_ms: 3_600_000 };
    let outcome = agent.execute(&step).await;
    assert!(matches!(&outcome, Outcome::Report(Report::ActivateFailed { at_fault: false, .. })), "{outcome:?}");
    drop(agent);
    std::fs::remove_dir_all(&place).unwrap();
    machine.supervise();
    let mut agent = machine.agent().await;
    assert_eq!(agent.recover().await, None, "it ends to be replaced");
    assert_eq!(confirm_within(&machine), 3_600 + 60 + HOOKS.as_secs());
}

#[tokio::test]
async fn a_build_that_rotted_in_its_slot_after_its_first_boot_is_not_to_blame() {
    for is_rotten in [true, false] {
        let (mut machine, agent, old, new) = before(Order::Activate, false).await;
        machine.hand_over(agent, &new).await;
        machine.supervise();
        let binary = machine.folder().join("slots/b").join(product().as_str());
        let content = std::fs::read(&binary).unwrap();
        if is_rotten {
            std::fs::remove_file(&binary).unwrap();
            std::fs::write(&binary, vec![0; content.len()]).unwrap();
        }
        let trial = claim_of(&new).to_string();
        let given_up = Some("it cannot be started: the file is damaged".to_owned());
        machine.marks().write_boots(&Boots { trial, boots: 1, stops: 0, given_up }).unwrap();
        let (_, recovered) = machine.up().await;
        assert_eq!(recovered.reverted.map(|(release, _)| release), Some(new.release));
        assert_eq!(recovered.running.map(|running| running.release), old.map(|old| old.release));
        assert_eq!((recovered.at_fault, recovered.denied.is_empty()), (!is_rotten, is_rotten));
    }
}

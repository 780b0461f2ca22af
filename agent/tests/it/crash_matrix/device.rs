//! A device without a runtime: the real plans and the real file operations, over any file system; what starts versions
//! is a few numbers.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use groundswell_agent::install::disk::{Disk, Failure, Place};
use groundswell_agent::install::files::Files;
use groundswell_agent::install::slots::Room;
use groundswell_core::install::machine::{self, Cause, Plan};
use groundswell_core::install::recovery::{self, Ending};
use groundswell_core::install::{Boot, Contents, Entry, Found, Manner, Mark, Operation, Slot};
use groundswell_core::node::effect::Install;
#[cfg(test)]
use groundswell_core::node::effect::Step;
use groundswell_core::text::Reason;

use super::fate::Fate;
use crate::workshop::{Workshop, claim, product};

/// An enum, and all of it: what is added is in both.
macro_rules! orders {
    ($(#[$about:meta])* $name:ident: $($order:ident),+) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($order),+ }

        impl $name {
            pub(crate) const ALL: [Self; [$(stringify!($order)),+].len()] = [$(Self::$order),+];
        }
    };
}

orders! {
    /// What is done to an install, in the order of a life: the node's orders, and what the device does by itself.
    Order: Stage, Unstage, Activate, Leave, Confirm, Forgiven, Revert, Abort, Reclaim
}

/// Names the variants of an enum: one that is added does not compile before it stands here.
macro_rules! kinds {
    ($name:ident, $all:ident, $of:ident: $($kind:ident),+) => {
        fn $name(what: &$of) -> &'static str {
            match what { $($of::$kind { .. } => concat!(stringify!($of), "::", stringify!($kind))),+ }
        }

        const $all: &[&str] = &[$(concat!(stringify!($of), "::", stringify!($kind))),+];
    };
}

kinds!(kind, OPERATIONS, Operation:
    Note, Empty, Fill, Verify, Hook, Point, Start, Keep, Stop, Restart, Booted, Left, Describe, Bless, Deny, Forgive);
kinds!(mark, MARKS, Mark: Stage, Switch, Activate, Reboot, Watch, Confirm, Revert, Closed);

/// What changes nothing: the end never falls within it.
const READ_ONLY: [&str; 3] = ["Operation::Verify", "Operation::Booted", "Operation::Left"];

/// Within which operations and notes of the journal the end has come: what was never cut short is proven by no cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Rc<RefCell<BTreeSet<&'static str>>>);

impl Seen {
    fn take(&self, what: &Operation) {
        let mut kinds = self.0.borrow_mut();
        kinds.insert(kind(what));
        if let Operation::Note(Entry { mark: noted, .. }) = what {
            kinds.insert(mark(noted));
        }
    }

    /// What was never cut short.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let kinds = self.0.borrow();
        let writes = |kind: &&str| !READ_ONLY.contains(kind);
        OPERATIONS.iter().chain(MARKS).copied().filter(writes).filter(|kind| !kinds.contains(kind)).collect()
    }
}

impl Order {
    /// The order that a step of the core is; none where a step touches no file of an install. A new step does not compile
    /// before it stands here.
    #[cfg(test)]
    pub(crate) fn of(step: &Step) -> Option<Self> {
        match step {
            Step::Stage { .. } => Some(Self::Stage),
            Step::Activate { .. } => Some(Self::Activate),
            Step::Confirm { .. } => Some(Self::Confirm),
            Step::Revert { at_fault: true, .. } => Some(Self::Revert),
            Step::Revert { at_fault: false, .. } => Some(Self::Abort),
            Step::Fetch { .. } | Step::CancelFetch { .. } => None,
        }
    }

    /// What was done before it.
    pub(crate) fn earlier(self) -> &'static [Self] {
        match self {
            Self::Stage | Self::Unstage => &[],
            Self::Activate => &[Self::Stage],
            Self::Leave | Self::Confirm | Self::Revert | Self::Abort => &[Self::Stage, Self::Activate],
            // A build that failed, and that a generation forgave.
            Self::Forgiven => &[Self::Stage, Self::Activate, Self::Revert, Self::Stage, Self::Activate],
            Self::Reclaim => &[Self::Stage, Self::Activate, Self::Revert],
        }
    }

    /// Whether it has hooks: what only gives space back has none, nor has an orderly end of the agent.
    pub(crate) fn has_hooks(self) -> bool {
        !matches!(self, Self::Unstage | Self::Leave | Self::Reclaim)
    }

    /// Whether the release is to blame, where it goes back.
    pub(crate) fn blames(self) -> bool {
        self != Self::Abort
    }
}

pub(crate) fn reason() -> Reason {
    Reason::lossy("unhealthy")
}

/// What runs, by sequence: 0 is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    /// The version that runs. Where versions need the machine restarted: the system that it came up with.
    pub(crate) runs: u64,
    /// The system that it comes up with the next time.
    pub(crate) primed: u64,
    /// Counts its starts.
    pub(crate) boots: u64,
}

/// Why a list of operations stopped.
enum Stop {
    Failed(Box<(Operation, Failure)>),
    /// The machine was restarted.
    Restarted,
}

fn stop(operation: &Operation, failure: Failure) -> Stop {
    Stop::Failed(Box::new((operation.clone(), failure)))
}

/// One start of the agent on the device.
pub(crate) struct Device {
    disk: Disk,
    fate: Fate,
    manner: Manner,
    pub(crate) machine: Machine,
    seen: Seen,
}

/// What a stage does before it fills the slot: a failed one leaves that.
pub(crate) fn emptied(stage: &[Operation]) -> &[Operation] {
    let fill = stage.iter().position(|operation| matches!(operation, Operation::Fill(..)));
    &stage[..fill.expect("a stage fills a slot")]
}

impl Device {
    /// `None` when the end comes while the files are opened.
    pub(crate) fn new(
        workshop: &Workshop,
        files: Arc<dyn Files>,
        fate: Fate,
        manner: Manner,
        machine: Machine,
        seen: Seen,
    ) -> Option<Self> {
        let place = Place {
            files,
            folder: workshop.product_folder(),
            product: product(),
            boot: Boot(format!("boot {}", machine.boots)),
            room: Room::ENDLESS,
        };
        match Disk::open(place, workshop.shelf()) {
            Ok(disk) => Some(Self { disk, fate, manner, machine, seen }),
            Err(error) => {
                assert!(fate.has_ended(), "the disk cannot be opened: {error}");
                None
            }
        }
    }

    pub(crate) fn found(&self) -> Found {
        self.disk.found().unwrap_or_else(|failure| {
            assert!(self.fate.has_ended(), "{failure}");
            Found::default()
        })
    }

    pub(crate) fn plan(&self, order: Order, install: &Install) -> Vec<Operation> {
        let found = self.found();
        let plan = match order {
            Order::Stage => machine::stage(&found, install),
            Order::Activate => machine::activate(&found, install, claim(), self.manner),
            Order::Confirm | Order::Forgiven => machine::confirm(&found, install.release),
            Order::Revert | Order::Abort => {
                let cause = Cause { reason: reason(), at_fault: order.blames() };
                Ok(machine::revert(&found, install.release, &cause, self.manner))
            }
            Order::Unstage => Ok(Plan::Do(machine::unstage(&found))),
            Order::Leave => Ok(Plan::Do(machine::stop(&found, self.manner).into_iter().collect())),
            Order::Reclaim => Ok(Plan::Do(machine::reclaim(&found))),
        };
        match plan {
            Ok(Plan::Do(operations)) if !operations.is_empty() => operations,
            other => panic!("{order:?}: {other:?}"),
        }
    }

    /// A stage that fails while it copies.
    pub(crate) fn fail_to_stage(&mut self, install: &Install) {
        let stage = self.plan(Order::Stage, install);
        assert!(self.run(emptied(&stage)).is_ok(), "nothing is cut short");
    }

    /// Carries an order out as far as fate lets it. `true`: the machine restarts for it.
    pub(crate) fn carry_out(&mut self, order: Order, install: &Install) -> bool {
        let operations = self.plan(order, install);
        match self.run(&operations) {
            Ok(()) => false,
            Err(Stop::Restarted) => true,
            Err(Stop::Failed(failed)) => {
                assert!(self.fate.has_ended(), "{order:?}: {}: {}", failed.0, failed.1);
                false
            }
        }
    }

    /// Finishes or takes back what the last start left, as the executor does; `None` where the machine restarts for it.
    pub(crate) fn recover(&mut self) -> Option<Ending> {
        let mut recovery = recovery::recover(&self.found(), self.manner);
        if matches!(recovery.ending, Ending::Trial(_) | Ending::Restarting) {
            match self.run(&recovery.operations) {
                Ok(()) => return Some(recovery.ending),
                Err(Stop::Restarted) => return None,
                Err(Stop::Failed(failed)) => {
                    let (operation, failure) = *failed;
                    recovery = recovery::give_up(&self.found(), &blame(&failure), self.manner, &operation, failure.answered);
                }
            }
        }
        loop {
            match self.insist(&recovery.operations) {
                Err(Stop::Restarted) => return None,
                Err(Stop::Failed(failed)) if !self.fate.has_ended() => {
                    recovery = recovery::try_again(&self.found(), self.manner, failed.1.answered);
                }
                Ok(()) | Err(Stop::Failed(_)) => return Some(recovery.ending),
            }
        }
    }

    fn run(&mut self, operations: &[Operation]) -> Result<(), Stop> {
        operations.iter().try_for_each(|operation| self.perform(operation))
    }

    /// Goes on after a failure, but for a machine that restarts, or does not run what it should.
    fn insist(&mut self, operations: &[Operation]) -> Result<(), Stop> {
        for operation in operations {
            match self.perform(operation) {
                Err(Stop::Failed(_)) if !matches!(operation, Operation::Booted(..) | Operation::Left(..)) => {}
                done => done?,
            }
        }
        Ok(())
    }

    fn perform(&mut self, operation: &Operation) -> Result<(), Stop> {
        let before = self.fate.has_ended();
        let done = self.attempt(operation);
        if !before && self.fate.has_ended() {
            assert!(!READ_ONLY.contains(&kind(operation)), "{operation} changes something");
            self.seen.take(operation);
        }
        done
    }

    fn attempt(&mut self, operation: &Operation) -> Result<(), Stop> {
        let done = match operation {
            Operation::Start(_, contents) => {
                let sequence = contents.sequence.get();
                if self.manner.restarts_machine {
                    self.touch(|machine| machine.primed = sequence)
                } else {
                    self.touch(|machine| machine.runs = sequence)
                }
            }
            Operation::Keep(_, contents) if !self.manner.restarts_machine => {
                let sequence = contents.sequence.get();
                self.touch(|machine| machine.runs = sequence)
            }
            Operation::Stop(..) => self.touch(|machine| (machine.runs, machine.primed) = (0, 0)),
            Operation::Restart(..) => {
                let restarted = self.touch(Machine::restart);
                return Err(restarted.map_or_else(|failure| stop(operation, failure), |()| Stop::Restarted));
            }
            Operation::Booted(_, contents) if self.machine.runs == contents.sequence.get() => Ok(()),
            Operation::Booted(..) => Err(Failure { answered: true, ..Failure::broken("another version") }),
            Operation::Left(_, contents) if self.machine.runs != contents.sequence.get() => Ok(()),
            Operation::Left(..) => Err(Failure { answered: true, ..Failure::broken("it still runs") }),
            Operation::Hook(..) | Operation::Keep(..) => self.touch(|_| {}),
            _ => self.disk.perform(operation),
        };
        done.map_err(|failure| stop(operation, failure))
    }

    /// Something outside the disk: cut short inside, it may have happened.
    fn touch(&mut self, change: impl FnOnce(&mut Machine)) -> Result<(), Failure> {
        let before = self.fate.has_ended();
        let done = self.fate.call(|| {}, || Ok(()));
        let was_made = done.is_ok() || (!before && self.fate.ended_after());
        if was_made {
            change(&mut self.machine);
        }
        done.map_err(|error| Failure::broken(error.to_string()))
    }

    /// S6: which version the machine finds when it follows `current`, whole and as signed; 0 is nothing.
    pub(crate) fn current(&self, installs: &[&Install]) -> u64 {
        let Some(slot) = self.found().current else { return 0 };
        let whole = installs.iter().find(|install| self.holds(slot, install));
        whole.map_or_else(|| panic!("current leads to what is not whole: {:?}", self.found()), |install| install.sequence.get())
    }

    fn holds(&self, slot: Slot, install: &Install) -> bool {
        let contents = Contents::of(install);
        self.disk.slots().verify(slot, &contents).is_ok()
    }
}

impl Machine {
    /// The machine goes down and comes up.
    pub(crate) fn restart(&mut self) {
        self.boots += 1;
        self.runs = self.primed;
    }
}

fn blame(failure: &Failure) -> Cause {
    Cause { reason: failure.with_output(), at_fault: failure.at_fault }
}

//! The power fails at every call to the disk that a supervisor, or an agent that is its own product, makes in the life of an
//! upgrade: the small files that both share.
//!
//! Files and decisions are the real ones; a build that runs is a number. What was true before the cut must be true after it:
//! starts are counted, what was given up stays so, what was confirmed stays confirmed, and there is always a build to run.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use groundswell_agent::install::files::Files;
use groundswell_agent::install::slots::{Slots, verify_file};
use groundswell_agent::supervise::marks::{self, Marks, TrialMark};
use groundswell_core::digest::Digest;
use groundswell_core::install::supervision::{Action, Boots, Build, End, Input, Named, NotStarted, Supervision, Terms};
use groundswell_core::install::{Confirmed, Contents, Slot};
use groundswell_core::number::Sequence;
use groundswell_core::text::{Product, Version};
use groundswell_core::time::{Now, Time, Timestamp};

use super::Report;
use super::fate::{Fate, Phase};
use super::memory::{Loss, Memory, Syncs, Tree};

const MOST_BOOTS: u32 = 3;
const TERMS: Terms = Terms {
    ready_within_ms: 1_000,
    silence_ms: 1_000,
    stop_within_ms: 1_000,
    backoff_ms: 1,
    backoff_longest_ms: 4,
    stable_after_ms: 1_000,
};
const TRIAL: &str = "1.7";

/// What the build on trial does with each of its boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Confirms,
    Crashes,
    /// It goes back by itself, and the old build takes the trial's mark away.
    GoesBack,
}

/// What was done and seen, however often the power failed.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Starts of the build on trial.
    starts: u32,
    /// The file that asks for the trial was there for good.
    asked: bool,
    given_up: bool,
    confirmed: bool,
    /// The old build is at work again, and has said so.
    back: bool,
}

/// One run of the machine.
struct Run {
    memory: Memory,
    life: Life,
    known: Known,
}

fn this_run() -> marks::Run {
    marks::Run { boot: "a run".to_owned(), began_ms: 0 }
}

fn at(ms: u64) -> Now {
    Now { awake_ms: ms, boot: Time(ms), wall: Timestamp::LAST }
}

fn data() -> PathBuf {
    PathBuf::from("/data")
}

fn product() -> Product {
    Product::new("swell").expect("a name")
}

fn bytes(slot: Slot) -> Vec<u8> {
    format!("the build in slot {}", slot.name()).into_bytes()
}

fn named(slot: Slot) -> Named {
    Named { slot, sha256: Digest::of(&bytes(slot)), size_bytes: bytes(slot).len() as u64 }
}

fn contents(slot: Slot) -> Contents {
    let Named { sha256, size_bytes, .. } = named(slot);
    let sequence = if slot == Slot::A { 1 } else { 2 };
    Contents {
        release: Digest::of(slot.name().as_bytes()),
        version: Version::new(format!("{sequence}.0")).expect("a version"),
        sequence: Sequence::new(sequence).expect("a number"),
        sha256,
        size_bytes,
    }
}

/// The matrix, on a disk of which some syncs may lie.
pub(crate) fn matrix(syncs: Syncs) -> Report {
    let mut report = Report::default();
    for life in [Life::Confirms, Life::Crashes, Life::GoesBack] {
        let (cells, failures) = (report.cells, report.failures.len());
        let before = before();
        let fate = Fate::kind(false);
        let mut run = Run { memory: Memory::new(before.clone(), fate.clone(), syncs), life, known: Known::default() };
        run.upgrade();
        let calls = fate.calls();
        for (at, phase) in (0..calls).flat_map(|at| Phase::of(at).iter().map(move |phase| (at, *phase))) {
            for loss in Loss::ALL {
                let name = format!("supervisor, {life:?} {at} {phase:?} {loss:?}");
                report.cell(&name, || {
                    let fate = Fate::kind(false);
                    fate.set(at, phase);
                    let memory = Memory::new(before.clone(), fate.clone(), syncs);
                    let mut run = Run { memory, life, known: Known::default() };
                    run.upgrade();
                    assert!(fate.has_ended(), "there are fewer calls than were counted");
                    let memory = Memory::new(run.memory.tree().after(loss), Fate::kind(false), syncs);
                    Run { memory, ..run }.ends_well();
                });
            }
        }
        report.lines.push(format!(
            "supervisor, {life:?}: {calls} calls, {} cells, {} failed",
            report.cells - cells,
            report.failures.len() - failures
        ));
    }
    report
}

/// A machine whose confirmed build is in slot a, and which has another one in slot b.
fn before() -> Tree {
    let memory = Memory::new(Tree::empty(), Fate::kind(false), Syncs::Honest);
    let run = Run { memory, life: Life::Confirms, known: Known::default() };
    let files = run.files();
    files.make_folder(&data()).expect("the disk takes it");
    files.make_folder(&data().join("products")).expect("the disk takes it");
    let slots = run.slots().expect("the disk takes it");
    for slot in [Slot::A, Slot::B] {
        let folder = slots.slot_folder(slot);
        files.make_folder(&folder).expect("the disk takes it");
        let mut file = files.create(&slots.binary(slot), 0o555).expect("the disk takes it");
        file.write_all(&bytes(slot)).and_then(|()| file.sync()).expect("the disk takes it");
        files.sync_folder(&folder).expect("the disk takes it");
    }
    slots.bless(&Confirmed { slot: Slot::A, contents: contents(Slot::A) }).expect("the disk takes it");
    for folder in [Path::new("/"), &data(), &data().join("products"), &data().join("products/swell/slots")] {
        files.sync_folder(folder).expect("the disk takes it");
    }
    run.memory.tree()
}

/// Where the world stops for a look: this build runs.
enum Stop {
    Runs(Build),
    Off,
}

impl Run {
    fn files(&self) -> Arc<dyn Files> {
        Arc::new(self.memory.clone())
    }

    fn marks(&self) -> Marks {
        Marks::new(self.files(), &data(), Some("swell"))
    }

    fn slots(&self) -> std::io::Result<Slots> {
        Slots::open(self.files(), &data().join("products/swell"), product())
    }

    /// The confirmed agent hands over, and everything that follows.
    fn upgrade(&mut self) {
        let mut supervisor = Supervision::new(TERMS);
        let Stop::Runs(_) = self.go(&mut supervisor, Input::Begin) else { return };
        self.marks().make_reserve();
        if self.ask() {
            self.live(&mut supervisor, true);
        }
    }

    /// The agent asks for the trial.
    fn ask(&mut self) -> bool {
        let Named { slot, sha256, size_bytes } = named(Slot::B);
        let mark = TrialMark {
            trial: TRIAL.to_owned(),
            slot,
            sha256,
            size_bytes,
            most_boots: MOST_BOOTS,
            confirm_within_seconds: 600,
            boot: "a run".to_owned(),
            since_ms: 0,
            since_awake_ms: Some(0),
        };
        let asked = self.marks().write_trial(&mark).is_ok();
        self.known.asked |= asked;
        asked
    }

    /// What runs does what it does until the old build is at work again, or the new one is confirmed. `asks`: what ran last
    /// asks to be replaced.
    fn live(&mut self, supervisor: &mut Supervision, asks: bool) {
        let mut end = End { code: 85, asked: asks, said: "it ended".to_owned() };
        for _ in 0..4 * MOST_BOOTS {
            let Stop::Runs(build) = self.go(supervisor, Input::Ended(end.clone())) else { return };
            match (build, self.life) {
                (Build::Trial { .. }, Life::Confirms) => {
                    let blessed =
                        self.slots().and_then(|slots| slots.bless(&Confirmed { slot: Slot::B, contents: contents(Slot::B) }));
                    if blessed.is_err() {
                        return;
                    }
                    self.known.confirmed = true;
                    // The supervisor sees it, and writes it down too.
                    self.go(supervisor, Input::Found(self.marks().facts(&this_run(), at(0))));
                    return;
                }
                (Build::Trial { .. }, Life::Crashes) => end = End { code: 101, asked: false, said: "it crashed".to_owned() },
                (Build::Trial { .. }, Life::GoesBack) => {
                    if self.marks().clear_trial().is_err() {
                        return;
                    }
                    end = End { code: 85, asked: true, said: "it goes back".to_owned() };
                    self.known.back = true;
                }
                (Build::Confirmed(_), _) => {
                    // The old build takes down that it is over.
                    self.known.back |= self.marks().clear_trial().is_ok();
                    return;
                }
                (Build::Own, _) => panic!("there are whole builds"),
            }
        }
        panic!("it has no end");
    }

    /// Carries out what a supervisor decides until a build runs; `Off` once the power is.
    fn go(&mut self, supervisor: &mut Supervision, input: Input) -> Stop {
        let mut now = at(0);
        let mut inputs = VecDeque::from([input]);
        for _ in 0..100 {
            if self.memory.is_off() {
                return Stop::Off;
            }
            let Some(input) = inputs.pop_front() else {
                if let Some(build) = supervisor.runs() {
                    return Stop::Runs(build.clone());
                }
                now.awake_ms += supervisor.wait_ms(now).unwrap_or_default();
                inputs.push_back(Input::Wake);
                continue;
            };
            for action in supervisor.handle(now, input) {
                // Nobody is there to do anything.
                if self.memory.is_off() {
                    return Stop::Off;
                }
                inputs.extend(self.perform(action));
            }
        }
        panic!("nothing is started");
    }

    fn perform(&mut self, action: Action) -> Option<Input> {
        let marks = self.marks();
        match action {
            Action::Look => return Some(Input::Found(marks.facts(&this_run(), at(0)))),
            Action::Count { trial, boots, stops } => {
                let written = marks.write_boots(&Boots { trial, boots, stops, given_up: None });
                return Some(Input::Written(written.is_ok()));
            }
            Action::GiveUp { trial, boots, reason } => {
                let written = marks.write_boots(&Boots { trial, boots, stops: 0, given_up: Some(reason) });
                self.known.given_up |= written.is_ok();
                return Some(Input::Written(written.is_ok()));
            }
            Action::Remember(named) => drop(marks.remember(&named)),
            Action::Start(build) => return Some(Input::Started(self.start(&build))),
            _ => {}
        }
        None
    }

    fn start(&mut self, build: &Build) -> Result<(), NotStarted> {
        let named = build.named().expect("there are whole builds");
        let path = data().join("products/swell/slots").join(named.slot.name()).join("swell");
        verify_file(&self.memory, &path, named.size_bytes, named.sha256).expect("what is started is whole");
        if matches!(build, Build::Trial { .. }) {
            self.known.starts += 1;
            assert!(self.known.starts <= MOST_BOOTS, "started {} times", self.known.starts);
            assert!(!self.known.given_up, "started after it was given up");
            assert!(!self.known.back, "started after the way back was done");
        }
        Ok(())
    }

    /// After the power has come back: the machine ends where it must, and goes on from there.
    fn ends_well(mut self) {
        let known = self.known.clone();
        let mut supervisor = Supervision::new(TERMS);
        let Stop::Runs(build) = self.go(&mut supervisor, Input::Begin) else { panic!("the power is on") };
        // Whether all that there was to try had been tried.
        let over = match self.life {
            Life::Confirms => false,
            // A boot is counted before it happens.
            Life::Crashes => known.starts + 1 >= MOST_BOOTS,
            Life::GoesBack => known.starts > 0,
        };
        match &build {
            Build::Confirmed(named) if named.slot == Slot::B => assert_eq!(self.life, Life::Confirms, "it was never confirmed"),
            Build::Confirmed(_) => {
                assert!(!known.confirmed, "what was confirmed is left");
                assert!(!known.asked || over, "the trial is forgotten");
            }
            Build::Trial { .. } => assert!(!known.confirmed, "what was confirmed is on trial again"),
            Build::Own => panic!("there are whole builds"),
        }
        if matches!(build, Build::Trial { .. }) {
            self.life_of_a_boot(&mut supervisor);
        }
        let settled = match supervisor.runs() {
            Some(Build::Confirmed(named)) => named.slot,
            other => panic!("{other:?} runs"),
        };
        let tried = known.asked || matches!(build, Build::Trial { .. });
        assert!(!tried || (settled == Slot::B) == (self.life == Life::Confirms), "it ends on slot {}", settled.name());
        // Should the file that names the confirmed build be lost now, what the supervisor has seen of it counts.
        let lost = data().join("products/swell/confirmed.json");
        self.memory.remove_file(&lost).expect("it is there");
        let mut next = Supervision::new(TERMS);
        let Stop::Runs(again) = self.go(&mut next, Input::Begin) else { panic!("the power is on") };
        assert!(matches!(&again, Build::Confirmed(named) if named.slot == settled), "{again} instead of slot {}", settled.name());
    }

    fn life_of_a_boot(&mut self, supervisor: &mut Supervision) {
        match self.life {
            Life::Confirms => {
                let slots = self.slots().expect("the disk takes it");
                slots.bless(&Confirmed { slot: Slot::B, contents: contents(Slot::B) }).expect("the disk takes it");
                self.go(supervisor, Input::Found(self.marks().facts(&this_run(), at(0))));
            }
            Life::Crashes => {
                let end = End { code: 101, asked: false, said: "it crashed".to_owned() };
                for _ in 0..2 * MOST_BOOTS {
                    if let Stop::Runs(Build::Confirmed(_)) = self.go(supervisor, Input::Ended(end.clone())) {
                        return;
                    }
                }
            }
            Life::GoesBack => {
                self.marks().clear_trial().expect("the disk takes it");
                let end = End { code: 85, asked: true, said: "it goes back".to_owned() };
                self.go(supervisor, Input::Ended(end));
            }
        }
    }
}

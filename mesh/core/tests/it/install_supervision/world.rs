//! A machine that the supervisor's decisions are carried out on: a disk, a child, time, and what must hold at each start.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use groundswell_core::digest::Digest;
use groundswell_core::install::Slot;
use groundswell_core::install::supervision::{
    Action, Announcement, Boots, Build, End, Facts, Input, Named, NotStarted, Reading, Supervision, Terms, Trial,
};
use groundswell_core::time::{Now, Time, Timestamp};

pub(super) const TERMS: Terms = Terms {
    ready_within_ms: 120_000,
    silence_ms: 60_000,
    stop_within_ms: 30_000,
    backoff_ms: 1_000,
    backoff_longest_ms: 60_000,
    stable_after_ms: 60_000,
};
/// How often a confirmed build is tried before another takes its place.
pub(super) const MOST_TRIES: u32 = 6;
pub(super) const MOST_BOOTS: u32 = 3;
pub(super) const TRIAL_MS: u64 = 900_000;

/// A disk, a child, and what was seen of both.
pub(super) struct World {
    pub(super) machine: Supervision,
    pub(super) now_ms: u64,
    /// How long the machine slept.
    pub(super) slept_ms: u64,
    pub(super) disk: Facts,
    /// When the trial began.
    pub(super) trial_since_ms: u64,
    /// When the supervisor did.
    pub(super) began_ms: u64,
    pub(super) writes_fail: bool,
    /// Builds whose file is damaged.
    pub(super) damaged: BTreeSet<Digest>,
    /// Builds that the kernel cannot run.
    pub(super) unrunnable: BTreeSet<Digest>,
    /// Orderly stops of a trial that was well.
    pub(super) stops: u32,
    /// So many of the next starts fail for a reason that passes.
    pub(super) failing: u32,
    /// Starts of confirmed builds fail so for ever; their files are whole.
    pub(super) confirmed_fails: bool,
    /// How often in a row a confirmed build could not be started so.
    pub(super) refused: u32,
    pub(super) child: Option<Build>,
    /// The kernel has killed it or it was asked to end: it ends with the next look at time.
    pub(super) dying: bool,
    pub(super) deaf: bool,
    pub(super) ended: Option<u8>,
    pub(super) starts: BTreeMap<String, u32>,
    pub(super) given_up: BTreeSet<String>,
    pub(super) builds: u8,
    pub(super) said: Vec<Announcement>,
    /// The supervisor is killed before its so-many-th action from now.
    pub(super) killed_in: Option<usize>,
    pub(super) all: Vec<Action>,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            machine: Supervision::new(TERMS),
            now_ms: 1_000_000,
            slept_ms: 0,
            disk: Facts::default(),
            trial_since_ms: 0,
            began_ms: 1_000_000,
            writes_fail: false,
            damaged: BTreeSet::new(),
            unrunnable: BTreeSet::new(),
            stops: 0,
            failing: 0,
            confirmed_fails: false,
            refused: 0,
            child: None,
            dying: false,
            deaf: false,
            ended: None,
            starts: BTreeMap::new(),
            given_up: BTreeSet::new(),
            builds: 0,
            said: Vec::new(),
            killed_in: None,
            all: Vec::new(),
        }
    }

    /// A world in which a confirmed build runs and is up.
    pub(super) fn settled() -> Self {
        let mut world = Self::new();
        world.disk.confirmed = Reading::Said(world.build(Slot::A));
        world.feed(Input::Begin);
        world.feed(Input::Ready);
        world
    }

    pub(super) fn build(&mut self, slot: Slot) -> Named {
        self.builds += 1;
        Named { slot, sha256: Digest([self.builds; 32]), size_bytes: 1 }
    }

    pub(super) fn now(&self) -> Now {
        Now { awake_ms: self.now_ms, boot: Time(self.now_ms + self.slept_ms), wall: Timestamp::default() }
    }

    pub(super) fn facts(&self) -> Facts {
        let mut facts = self.disk.clone();
        if let Reading::Said(trial) = &mut facts.trial {
            trial.left_ms = TRIAL_MS.saturating_sub(self.now_ms - self.trial_since_ms.max(self.began_ms));
        }
        facts
    }

    pub(super) fn feed(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for action in self.machine.handle(self.now(), input) {
                if let Some(left) = &mut self.killed_in {
                    if *left == 0 {
                        self.killed_in = None;
                        return self.kill_supervisor();
                    }
                    *left -= 1;
                }
                self.all.push(action.clone());
                inputs.extend(self.perform(action));
            }
        }
    }

    fn perform(&mut self, action: Action) -> Option<Input> {
        match action {
            Action::Look => return Some(Input::Found(self.facts())),
            Action::Count { trial, boots, stops } => {
                return Some(Input::Written(self.write(Boots { trial, boots, stops, given_up: None })));
            }
            Action::GiveUp { trial, boots, reason } => {
                let written = self.write(Boots { trial: trial.clone(), boots, stops: 0, given_up: Some(reason) });
                if written {
                    self.given_up.insert(trial);
                }
                return Some(Input::Written(written));
            }
            Action::Remember(named) if !self.writes_fail => self.disk.remembered = Reading::Said(named),
            Action::Remember(_) | Action::Say(_) => {}
            Action::Start(build) => return Some(Input::Started(self.start(build))),
            Action::Check(named) => return Some(Input::Checked(!self.damaged.contains(&named.sha256))),
            Action::Terminate => self.dying = self.dying || !self.deaf,
            Action::Kill => self.dying = true,
            Action::Announce(announcement) => self.said.push(announcement),
            Action::End(code) => self.ended = Some(code),
        }
        None
    }

    fn write(&mut self, boots: Boots) -> bool {
        if !self.writes_fail {
            self.disk.boots = Reading::Said(boots);
        }
        !self.writes_fail
    }

    fn start(&mut self, build: Build) -> Result<(), NotStarted> {
        assert!(self.child.is_none(), "two agents at once");
        match &build {
            Build::Trial { trial, boots } => {
                let Reading::Said(counted) = &self.disk.boots else { panic!("a boot is counted before it happens") };
                assert_eq!((&counted.trial, counted.boots), (&trial.name, *boots), "durably");
                assert_eq!(counted.given_up, None);
                assert_ne!(self.disk.confirmed, Reading::Said(trial.build.clone()), "a confirmed build is not on trial");
                assert_ne!(self.disk.confirmed, Reading::Unreadable, "what is torn leads to the last confirmed build");
                assert!(!self.given_up.contains(&trial.name), "what was given up is not started again");
            }
            Build::Confirmed(named) => {
                let (confirmed, remembered) = (&self.disk.confirmed, &self.disk.remembered);
                let known = [confirmed, remembered].into_iter().any(|known| *known == Reading::Said(named.clone()));
                assert!(known, "only what was confirmed is started as confirmed");
                if let Reading::Said(confirmed) = confirmed {
                    let given_up = self.damaged.contains(&confirmed.sha256) || self.refused >= MOST_TRIES;
                    assert!(confirmed == named || given_up, "the last one, not an older one");
                }
            }
            Build::Own => {
                for known in [&self.disk.confirmed, &self.disk.remembered] {
                    if let Reading::Said(named) = known {
                        let given_up = self.damaged.contains(&named.sha256) || self.refused >= MOST_TRIES;
                        assert!(given_up, "a confirmed build that runs is left for none other");
                    }
                }
            }
        }
        if build.named().is_some_and(|named| self.damaged.contains(&named.sha256)) {
            return Err(NotStarted::Damaged("another digest".to_owned()));
        }
        let is_confirmed = matches!(build, Build::Confirmed(_));
        if self.failing > 0 || (self.confirmed_fails && is_confirmed) {
            self.failing = self.failing.saturating_sub(1);
            self.refused += u32::from(is_confirmed);
            return Err(NotStarted::Failed("too many processes".to_owned()));
        }
        if is_confirmed {
            self.refused = 0;
        }
        if let Build::Trial { trial, .. } = &build {
            let refused_by_the_kernel = self.unrunnable.contains(&trial.build.sha256);
            if refused_by_the_kernel {
                return Err(NotStarted::Refused("exec format error".to_owned()));
            }
            let starts = self.starts.entry(trial.name.clone()).or_default();
            *starts += 1;
            assert!(*starts <= trial.most_boots + self.stops, "a trial is started {MOST_BOOTS} times at most");
        }
        self.child = Some(build);
        self.dying = false;
        Ok(())
    }

    pub(super) fn end_child(&mut self, code: u8, asked: bool) {
        if self.child.take().is_some() {
            self.dying = false;
            self.feed(Input::Ended(End { code, asked, said: "it ended".to_owned() }));
        }
    }

    /// Lets time pass in steps that no deadline falls between.
    pub(super) fn pass(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        let mut steps = 0;
        while self.ended.is_none() {
            steps += 1;
            assert!(steps < 20_000, "it goes round in circles");
            let wait = self.machine.wait_ms(self.now()).unwrap_or(u64::MAX);
            if self.now_ms.saturating_add(wait) > until {
                break;
            }
            self.now_ms += wait;
            self.feed(Input::Wake);
            if self.dying {
                self.end_child(137, false);
            }
        }
        self.now_ms = self.now_ms.max(until);
    }

    fn begin(&mut self) {
        self.machine = Supervision::new(TERMS);
        self.began_ms = self.now_ms;
        self.feed(Input::Begin);
    }

    /// kill −9, or the power fails: the child goes too.
    pub(super) fn kill_supervisor(&mut self) {
        self.child = None;
        self.dying = false;
        self.begin();
    }

    /// The machine is restarted in an orderly way.
    pub(super) fn restart(&mut self) {
        self.restart_after(0);
    }

    /// The supervisor is stopped, and started again so much later.
    pub(super) fn restart_after(&mut self, ms: u64) {
        self.feed(Input::Stop);
        self.end_child(0, false);
        assert_eq!(self.ended.take(), Some(0));
        self.now_ms += ms;
        self.begin();
    }

    /// What runs, after as long as it takes to start something.
    pub(super) fn runs(&mut self) -> Build {
        if self.child.is_none() {
            self.pass(TERMS.backoff_longest_ms);
        }
        assert!(self.child.is_some(), "there is always a build to run");
        self.machine.runs().cloned().expect("the machine knows what runs")
    }

    pub(super) fn confirmed(&self) -> Option<Named> {
        match &self.disk.confirmed {
            Reading::Said(named) => Some(named.clone()),
            _ => None,
        }
    }

    /// A confirmed agent puts a new build into the other slot and asks to be replaced.
    pub(super) fn upgrade(&mut self) -> Trial {
        let trial = self.ask();
        self.end_child(85, true);
        trial
    }

    /// It has named the build, and has not ended yet.
    pub(super) fn ask(&mut self) -> Trial {
        let slot = self.confirmed().map_or(Slot::A, |confirmed| confirmed.slot.other());
        let build = self.build(slot);
        let trial = Trial { name: format!("trial {}", self.builds), build, most_boots: MOST_BOOTS, left_ms: TRIAL_MS };
        self.disk.trial = Reading::Said(trial.clone());
        self.trial_since_ms = self.now_ms;
        trial
    }
}

//! The supervisor's state machine: one state at a time, one answer waited for at a time.
//!
//! ```text
//! Looking ─► Counting ─► Starting ─► Running ─► Looking
//!    │  └───────────────────┘            ▲
//!    ├─► GivingUp ─► Looking             │ a look at the files of a trial
//!    └─► Pausing ─► Looking              └──┘
//! ```

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::{Action, Announcement, Build, End, Facts, Input, Named, Notice, Reading, Terms, Trial};
use crate::time::{Now, Time};

/// How often the disk is looked at while a trial runs: whether it was confirmed meanwhile.
const LOOK_EVERY_MS: u64 = 5_000;

/// A running child.
#[derive(Clone, Debug)]
struct Child {
    build: Build,
    since_ms: u64,
    ready: bool,
    alive_ms: u64,
    /// When a trial must be confirmed, and when the disk is looked at next.
    confirm_by: Option<Time>,
    look_at_ms: u64,
    /// Why it has failed, once it has: it is killed for that, or asked to end.
    doomed: Option<String>,
    kill_at_ms: Option<u64>,
}

#[derive(Clone, Debug)]
enum State {
    /// Before the first input.
    New,
    /// Waits for facts, to start what they say. How the last child ended, if one did.
    Looking(Option<(Child, End)>),
    /// Waits until the boot is counted.
    Counting(Build),
    /// Waits until what was given up is written down.
    GivingUp,
    /// Waits for the child.
    Starting(Build),
    Running(Child),
    Pausing(u64),
    Over,
}

/// The supervisor's decisions.
#[derive(Clone, Debug)]
pub struct Supervision {
    terms: Terms,
    state: State,
    backoff_ms: u64,
    /// Trials given up in this run: that holds even where it cannot be written down.
    abandoned: Option<String>,
    /// Builds that could not be started since something was.
    unfit: Vec<Named>,
    stopping: bool,
    announced: bool,
}

impl Supervision {
    /// Nothing runs yet.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        let backoff_ms = terms.backoff_ms;
        Self { terms, state: State::New, backoff_ms, abandoned: None, unfit: Vec::new(), stopping: false, announced: false }
    }

    /// Whether a child runs.
    #[must_use]
    pub fn runs(&self) -> Option<&Build> {
        match &self.state {
            State::Running(child) => Some(&child.build),
            _ => None,
        }
    }

    /// How long nothing happens by itself, in milliseconds; `None` while an answer is waited for.
    #[must_use]
    pub fn wait_ms(&self, now: Now) -> Option<u64> {
        match &self.state {
            State::Pausing(until_ms) => Some(until_ms.saturating_sub(now.awake_ms)),
            State::Running(child) => {
                let left_ms = child.kill_at_ms.unwrap_or_else(|| self.silent_at(child)).saturating_sub(now.awake_ms);
                let look = child.confirm_by.map(|by| child.look_at_ms.saturating_sub(now.awake_ms).min(by.since_ms(now.boot)));
                Some(look.map_or(left_ms, |look_ms| look_ms.min(left_ms)))
            }
            _ => None,
        }
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Now, input: Input) -> Vec<Action> {
        let state = core::mem::replace(&mut self.state, State::Over);
        let (state, actions) = match (state, input) {
            (State::Over, _) => (State::Over, Vec::new()),
            (State::New, Input::Stop) => (State::Over, vec![Action::End(0)]),
            (State::New, _) => (State::Looking(None), vec![Action::Look]),
            (State::Looking(ended), Input::Found(facts)) => self.choose(now, &facts, ended),
            (State::Counting(build), Input::Written(true)) => self.start(build),
            (State::Counting(build), Input::Written(false)) => {
                if let Build::Trial { trial, .. } = &build {
                    self.abandoned = Some(trial.name.clone());
                }
                (State::Looking(None), vec![Action::Say(Notice::CannotCount), Action::Look])
            }
            (State::GivingUp, Input::Written(_)) => (State::Looking(None), vec![Action::Look]),
            (State::Starting(build), Input::Started(Ok(()))) => self.started(now, build),
            (State::Starting(build), Input::Started(Err(why))) => self.not_started(now, build, why),
            (State::Running(child), input) => self.watch(now, child, input),
            (State::Pausing(_), Input::Stop) => self.end(0),
            (State::Pausing(until_ms), Input::Wake) if now.awake_ms >= until_ms => {
                self.unfit.clear();
                (State::Looking(None), vec![Action::Look])
            }
            (state, Input::Stop) => {
                self.stopping = true;
                (state, Vec::new())
            }
            (state, _) => (state, Vec::new()),
        };
        self.state = state;
        actions
    }

    /// What to run, after what the disk says.
    fn choose(&mut self, now: Now, facts: &Facts, ended: Option<(Child, End)>) -> (State, Vec<Action>) {
        if self.stopping {
            return self.end(ended.map_or(0, |(_, end)| end.code));
        }
        let live = self.trial(facts);
        if let Some((Child { build: Build::Trial { trial, boots }, doomed, .. }, end)) = &ended
            && live.is_some_and(|live| live.name == trial.name)
        {
            // It ended, is not confirmed, and is still to be tried.
            let spent = || (*boots >= trial.most_boots).then(|| format!("it ended {boots} times; {}", end.said));
            return match doomed.clone().or_else(spent) {
                Some(reason) => self.give_up(trial.name.clone(), *boots, reason),
                None => self.pause(now, end.said.clone(), self.terms.backoff_ms),
            };
        }
        let build = match self.build(facts, live) {
            Ok(build) => build,
            Err((trial, boots, reason)) => return self.give_up(trial, boots, reason),
        };
        if let Some((child, end)) = ended {
            // Started without a pause only where something else takes its place: it asked for that, or its trial is over.
            let moves = !child.build.same(&build) && (end.asked || matches!(child.build, Build::Trial { .. }));
            if !moves {
                if now.awake_ms.saturating_sub(child.since_ms) >= self.terms.stable_after_ms {
                    self.backoff_ms = self.terms.backoff_ms;
                }
                let pause_ms = self.next_pause();
                return self.pause(now, end.said, pause_ms);
            }
        }
        let mut actions = Vec::new();
        if facts.confirmed == Reading::Unreadable {
            actions.push(Action::Say(Notice::Forgotten));
        }
        match &build {
            Build::Trial { trial, boots } => {
                actions.push(Action::Count { trial: trial.name.clone(), boots: *boots });
                (State::Counting(build), actions)
            }
            Build::Confirmed(named) => {
                if facts.remembered.said() != Some(named) {
                    actions.push(Action::Remember(named.clone()));
                }
                self.start_after(build, actions)
            }
            Build::Own => self.start_after(build, actions),
        }
    }

    /// The trial that is still to be made: named, not confirmed, not given up.
    fn trial<'a>(&self, facts: &'a Facts) -> Option<&'a Trial> {
        let trial = facts.trial.said()?;
        // Where the file that names the confirmed build is damaged nothing tells whether this one was confirmed.
        let confirmed = facts.confirmed.said() == Some(&trial.build) || facts.confirmed == Reading::Unreadable;
        let given_up = match &facts.boots {
            Reading::Said(boots) => boots.trial == trial.name && boots.given_up.is_some(),
            Reading::Absent | Reading::Unreadable => false,
        };
        (!confirmed && !given_up && self.abandoned.as_ref() != Some(&trial.name)).then_some(trial)
    }

    /// What to start; or which trial is over, after how many boots, and why.
    fn build(&self, facts: &Facts, live: Option<&Trial>) -> Result<Build, (String, u32, String)> {
        if let Some(trial) = live {
            let over = |boots, reason: String| Err((trial.name.clone(), boots, reason));
            let boots = match &facts.boots {
                Reading::Said(said) if said.trial == trial.name => said.boots,
                Reading::Said(_) | Reading::Absent => 0,
                Reading::Unreadable => return over(0, "nothing tells how often it was started".to_string()),
            };
            if boots >= trial.most_boots {
                return over(boots, format!("started {boots} times without being confirmed"));
            }
            if trial.left_ms == 0 {
                return over(boots, "not confirmed in time".to_string());
            }
            return Ok(Build::Trial { trial: trial.clone(), boots: boots.saturating_add(1) });
        }
        let fit = |named: &&Named| !self.unfit.contains(named);
        let confirmed = facts.confirmed().filter(fit).or_else(|| facts.remembered.said().filter(fit));
        Ok(confirmed.cloned().map_or(Build::Own, Build::Confirmed))
    }

    fn give_up(&mut self, trial: String, boots: u32, reason: String) -> (State, Vec<Action>) {
        self.abandoned = Some(trial.clone());
        self.backoff_ms = self.terms.backoff_ms;
        let say = Action::Say(Notice::GoesBack(reason.clone()));
        (State::GivingUp, vec![say, Action::GiveUp { trial, boots, reason }])
    }

    fn pause(&self, now: Now, said: String, pause_ms: u64) -> (State, Vec<Action>) {
        let say = Action::Say(Notice::Ended { said, pause_ms });
        (State::Pausing(now.awake_ms.saturating_add(pause_ms)), vec![say])
    }

    /// The pause before what ended is started again; the next one is twice as long.
    fn next_pause(&mut self) -> u64 {
        let pause_ms = self.backoff_ms;
        self.backoff_ms = self.backoff_ms.saturating_mul(2).min(self.terms.backoff_longest_ms);
        pause_ms
    }

    fn start(&mut self, build: Build) -> (State, Vec<Action>) {
        self.start_after(build, Vec::new())
    }

    fn start_after(&mut self, build: Build, mut actions: Vec<Action>) -> (State, Vec<Action>) {
        if self.stopping {
            return self.end(0);
        }
        actions.push(Action::Say(Notice::Starts(build.clone())));
        actions.push(Action::Start(build.clone()));
        (State::Starting(build), actions)
    }

    fn started(&mut self, now: Now, build: Build) -> (State, Vec<Action>) {
        let confirm_by = match &build {
            Build::Trial { trial, .. } => Some(now.boot.after_ms(trial.left_ms)),
            Build::Confirmed(_) | Build::Own => None,
        };
        let mut child = Child {
            build,
            since_ms: now.awake_ms,
            ready: false,
            alive_ms: now.awake_ms,
            confirm_by,
            look_at_ms: now.awake_ms.saturating_add(LOOK_EVERY_MS),
            doomed: None,
            kill_at_ms: None,
        };
        self.unfit.clear();
        let mut actions = vec![Action::Announce(Announcement::Alive)];
        if self.stopping {
            child.kill_at_ms = Some(now.awake_ms.saturating_add(self.terms.stop_within_ms));
            actions.push(Action::Terminate);
        }
        (State::Running(child), actions)
    }

    fn not_started(&mut self, now: Now, build: Build, why: String) -> (State, Vec<Action>) {
        let say = Action::Say(Notice::CannotStart(build.clone(), why.clone()));
        match build {
            Build::Trial { trial, boots } => {
                let (state, mut actions) = self.give_up(trial.name, boots, format!("it cannot be started: {why}"));
                actions.insert(0, say);
                (state, actions)
            }
            Build::Confirmed(named) => {
                self.unfit.push(named);
                (State::Looking(None), vec![say, Action::Look])
            }
            Build::Own if self.stopping => self.end(0),
            Build::Own => {
                let pause_ms = self.next_pause();
                (State::Pausing(now.awake_ms.saturating_add(pause_ms)), vec![say])
            }
        }
    }

    /// When a child that says nothing more counts as hanging.
    fn silent_at(&self, child: &Child) -> u64 {
        if child.ready {
            child.alive_ms.saturating_add(self.terms.silence_ms)
        } else {
            child.since_ms.saturating_add(self.terms.ready_within_ms)
        }
    }

    /// What a running child's doings and time passing lead to.
    fn watch(&mut self, now: Now, mut child: Child, input: Input) -> (State, Vec<Action>) {
        let mut actions = Vec::new();
        match input {
            Input::Ready => {
                child.ready = true;
                child.alive_ms = now.awake_ms;
                if !self.announced {
                    self.announced = true;
                    actions.push(Action::Announce(Announcement::Ready));
                }
            }
            Input::Alive if child.ready => {
                child.alive_ms = now.awake_ms;
                actions.push(Action::Announce(Announcement::Alive));
            }
            Input::Stop if !self.stopping => {
                self.stopping = true;
                child.kill_at_ms = Some(now.awake_ms.saturating_add(self.terms.stop_within_ms));
                child.confirm_by = None;
                actions.push(Action::Announce(Announcement::Stopping));
            }
            Input::Ended(end) if self.stopping => {
                actions.push(Action::End(end.code));
                return (State::Over, actions);
            }
            Input::Ended(end) => return (State::Looking(Some((child, end))), vec![Action::Look]),
            Input::Found(facts) => return self.look_at_trial(now, child, &facts),
            Input::Wake => {
                if child.kill_at_ms.is_some_and(|at| at <= now.awake_ms) {
                    // Once more each time, should it be needed.
                    child.kill_at_ms = Some(now.awake_ms.saturating_add(self.terms.stop_within_ms));
                    actions.push(Action::Kill);
                } else if child.kill_at_ms.is_none() && self.silent_at(&child) <= now.awake_ms {
                    let why = if child.ready {
                        format!("no sign of life for {} s", self.terms.silence_ms / 1000)
                    } else {
                        format!("not up within {} s", self.terms.ready_within_ms / 1000)
                    };
                    child.doomed = Some(why.clone());
                    child.confirm_by = None;
                    child.kill_at_ms = Some(now.awake_ms.saturating_add(self.terms.stop_within_ms));
                    actions.extend([Action::Say(Notice::Kills(why)), Action::Kill]);
                } else if child.confirm_by.is_some_and(|by| by <= now.boot || child.look_at_ms <= now.awake_ms) {
                    child.look_at_ms = now.awake_ms.saturating_add(LOOK_EVERY_MS);
                    actions.push(Action::Look);
                }
            }
            _ => {}
        }
        (State::Running(child), actions)
    }

    fn look_at_trial(&mut self, now: Now, mut child: Child, facts: &Facts) -> (State, Vec<Action>) {
        let Build::Trial { trial, .. } = &child.build else { return (State::Running(child), Vec::new()) };
        if facts.confirmed.said() == Some(&trial.build) {
            let named = trial.build.clone();
            child.build = Build::Confirmed(named.clone());
            child.confirm_by = None;
            self.backoff_ms = self.terms.backoff_ms;
            let say = Action::Say(Notice::Confirmed(named.slot));
            return (State::Running(child), vec![say, Action::Remember(named)]);
        }
        if child.confirm_by.is_some_and(|by| by <= now.boot) {
            let why = "not confirmed in time".to_string();
            child.doomed = Some(why.clone());
            child.confirm_by = None;
            child.kill_at_ms = Some(now.awake_ms.saturating_add(self.terms.stop_within_ms));
            return (State::Running(child), vec![Action::Say(Notice::Kills(why)), Action::Terminate]);
        }
        (State::Running(child), Vec::new())
    }

    fn end(&mut self, code: u8) -> (State, Vec<Action>) {
        (State::Over, vec![Action::Announce(Announcement::Stopping), Action::End(code)])
    }
}

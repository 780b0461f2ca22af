//! The supervisor's state machine: one state at a time, one answer waited for at a time. What it does about a build that
//! runs stands in [`super::running`].
//!
//! ```text
//! Looking ─► Counting ─► Starting ─► Running ─► Looking
//!    │  └───────────────────┘            ▲
//!    ├─► GivingUp ─► Looking             │ a look at the files: of a trial, or for a better build
//!    └─► Pausing ─► Looking              └──┘
//!
//! Starting ─► Uncounting ─► Pausing      Running ─► Ending ─► Over
//!             nothing was executed                  told to stop, and the trial was well
//! ```

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::running::{Child, LOOK_FOR_BETTER_MOST};
use super::{Action, Announcement, Build, End, Facts, Input, Named, NotStarted, Notice, Reading, Terms, Trial};
use crate::limits::TRIAL_STOPS;
use crate::time::Now;

/// How often in a row a confirmed build is tried that cannot be started for a reason that may pass, before the next best
/// one takes its place: about half a minute, by the pauses between. A build on trial is tried as often.
const MOST_TRIES: u32 = 6;

#[derive(Clone, Debug)]
pub(super) enum State {
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
    /// Waits until a boot that did not happen is written back; how long to pause then.
    Uncounting(u64),
    Running(Child),
    /// Waits until the boot that a stop ended is written back; the exit code.
    Ending(u8),
    Pausing(u64),
    Over,
}

/// The supervisor's decisions.
#[derive(Clone, Debug)]
pub struct Supervision {
    pub(super) terms: Terms,
    state: State,
    pub(super) backoff_ms: u64,
    /// Trials given up in this run: that holds even where it cannot be written down.
    abandoned: Option<String>,
    /// Builds that could not be started since something was.
    unfit: Vec<Named>,
    /// How often a confirmed build could not be started since one was, for a reason that may pass.
    pub(super) tries: u32,
    /// The same of the build on trial, since anything was started.
    trial_tries: u32,
    /// How many orderly stops of the trial that is started were not counted.
    stops: u32,
    /// The confirmed build that is written down a second time.
    remembered: Option<Named>,
    /// What is started is not the first choice: looked for again while it runs.
    second_best: bool,
    /// How soon; longer each time that it had to be done without again.
    better_after_ms: u64,
    pub(super) stopping: bool,
    pub(super) announced: bool,
}

impl Supervision {
    /// Nothing runs yet.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        let backoff_ms = terms.backoff_ms;
        Self {
            terms,
            state: State::New,
            backoff_ms,
            abandoned: None,
            unfit: Vec::new(),
            tries: 0,
            trial_tries: 0,
            stops: 0,
            remembered: None,
            second_best: false,
            better_after_ms: terms.backoff_longest_ms,
            stopping: false,
            announced: false,
        }
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
            State::Running(child) => Some(child.wait_ms(&self.terms, now)),
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
            (State::Starting(build), Input::Started(Err(why))) => self.not_started(now, build, &why),
            (State::Uncounting(_), Input::Written(_)) if self.stopping => self.end(0),
            (State::Uncounting(pause_ms), Input::Written(_)) => {
                (State::Pausing(now.awake_ms.saturating_add(pause_ms)), Vec::new())
            }
            (State::Ending(code), Input::Written(_)) => (State::Over, vec![Action::End(code)]),
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
            let ran_well = now.awake_ms.saturating_sub(child.since_ms) >= self.terms.stable_after_ms;
            if ran_well && !self.second_best {
                self.better_after_ms = self.terms.backoff_longest_ms;
            }
            // Started without a pause only where something else takes its place: it asked for that, gives way, or its trial
            // is over.
            let makes_room = end.asked || child.gives_way || matches!(child.build, Build::Trial { .. });
            if child.build.same(&build) || !makes_room {
                if ran_well {
                    self.backoff_ms = self.terms.backoff_ms;
                }
                let pause_ms = self.next_pause();
                return self.pause(now, end.said, pause_ms);
            }
        }
        self.remembered = facts.remembered.said().cloned();
        self.second_best = match &build {
            Build::Trial { .. } => false,
            Build::Confirmed(named) => facts.confirmed.said() != Some(named),
            Build::Own => true,
        };
        let mut actions = Vec::new();
        if facts.confirmed == Reading::Unreadable {
            actions.push(Action::Say(Notice::Forgotten));
        }
        match &build {
            Build::Trial { trial, boots } => {
                self.stops = facts.boots.said().filter(|said| said.trial == trial.name).map_or(0, |said| said.stops);
                actions.push(Action::Count { trial: trial.name.clone(), boots: *boots, stops: self.stops });
                (State::Counting(build), actions)
            }
            Build::Confirmed(_) | Build::Own => self.start_after(build, actions),
        }
    }

    /// The trial that is still to be made: named, not confirmed, not given up.
    fn trial<'a>(&self, facts: &'a Facts) -> Option<&'a Trial> {
        let trial = facts.trial.said()?;
        // Where the file that names the confirmed build is damaged nothing tells whether this one was confirmed; where it was
        // lost, what was seen of it does.
        let confirmed = facts.confirmed() == Some(&trial.build) || facts.confirmed == Reading::Unreadable;
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
        let fit = facts.choices().into_iter().find(|named| !self.unfit.contains(named));
        Ok(fit.cloned().map_or(Build::Own, Build::Confirmed))
    }

    fn give_up(&mut self, trial: String, boots: u32, reason: String) -> (State, Vec<Action>) {
        self.abandoned = Some(trial.clone());
        self.backoff_ms = self.terms.backoff_ms;
        self.trial_tries = 0;
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
            return self.end_before(&build);
        }
        actions.push(Action::Say(Notice::Starts(build.clone())));
        actions.push(Action::Start(build.clone()));
        (State::Starting(build), actions)
    }

    fn started(&mut self, now: Now, build: Build) -> (State, Vec<Action>) {
        let better_every_ms = match &build {
            Build::Trial { .. } => None,
            Build::Confirmed(_) | Build::Own if self.second_best => Some(self.better_after_ms),
            // The first choice, until the file names another: an agent may finish the confirm of a build that it is not.
            Build::Confirmed(_) | Build::Own => Some(self.terms.backoff_longest_ms),
        };
        if self.second_best {
            let most_ms = self.terms.backoff_longest_ms.saturating_mul(LOOK_FOR_BETTER_MOST);
            self.better_after_ms = self.better_after_ms.saturating_mul(2).min(most_ms);
        }
        let mut actions = vec![Action::Announce(Announcement::Alive)];
        self.trial_tries = 0;
        if matches!(build, Build::Trial { .. }) {
            self.backoff_ms = self.terms.backoff_ms;
        }
        if let Build::Confirmed(named) = &build {
            self.tries = 0;
            // Only now: one that cannot be started does not drive out one that could.
            if self.remembered.as_ref() != Some(named) {
                actions.push(Action::Remember(named.clone()));
            }
        }
        self.unfit.clear();
        let mut child = Child::new(now, build, better_every_ms);
        if self.stopping {
            child.kill_at_ms = Some(now.awake_ms.saturating_add(self.terms.stop_within_ms));
            actions.push(Action::Terminate);
        }
        (State::Running(child), actions)
    }

    fn not_started(&mut self, now: Now, build: Build, why: &NotStarted) -> (State, Vec<Action>) {
        if self.stopping {
            return self.end_before(&build);
        }
        let (NotStarted::Damaged(said) | NotStarted::Refused(said) | NotStarted::Failed(said)) = why;
        let say = Action::Say(Notice::CannotStart(build.clone(), said.clone()));
        let again = |pause_ms: u64| Action::Say(Notice::TriesAgain { build: build.clone(), why: said.clone(), pause_ms });
        let after = |pause_ms: u64| State::Pausing(now.awake_ms.saturating_add(pause_ms));
        match &build {
            Build::Trial { trial, boots } => {
                // Nothing was executed: this boot tells nothing of the build, but for a file that the kernel cannot run.
                let executed = boots.saturating_sub(u32::from(!matches!(why, NotStarted::Refused(_))));
                match why {
                    NotStarted::Refused(_) if *boots < trial.most_boots => {
                        return (after(self.terms.backoff_ms), vec![again(self.terms.backoff_ms)]);
                    }
                    NotStarted::Failed(_) if self.trial_tries.saturating_add(1) < MOST_TRIES => {
                        self.trial_tries = self.trial_tries.saturating_add(1);
                        let pause_ms = self.next_pause();
                        let back = Action::Count { trial: trial.name.clone(), boots: executed, stops: self.stops };
                        return (State::Uncounting(pause_ms), vec![again(pause_ms), back]);
                    }
                    _ => {}
                }
                let (state, mut actions) = self.give_up(trial.name.clone(), executed, format!("it cannot be started: {said}"));
                actions.insert(0, say);
                (state, actions)
            }
            Build::Confirmed(named) => {
                let may_pass = !matches!(why, NotStarted::Damaged(_));
                self.tries = self.tries.saturating_add(u32::from(may_pass));
                if may_pass && self.tries < MOST_TRIES {
                    let pause_ms = self.next_pause();
                    return (after(pause_ms), vec![again(pause_ms)]);
                }
                self.unfit.push(named.clone());
                (State::Looking(None), vec![say, Action::Look])
            }
            Build::Own => {
                let pause_ms = self.next_pause();
                (after(pause_ms), vec![again(pause_ms)])
            }
        }
    }

    pub(super) fn end(&mut self, code: u8) -> (State, Vec<Action>) {
        (State::Over, vec![Action::Announce(Announcement::Stopping), Action::End(code)])
    }

    /// Told to stop before a build was started: a boot that was counted did not happen.
    fn end_before(&mut self, build: &Build) -> (State, Vec<Action>) {
        match build {
            Build::Trial { trial, boots } => {
                let back = Action::Count { trial: trial.name.clone(), boots: boots.saturating_sub(1), stops: self.stops };
                (State::Ending(0), vec![Action::Announce(Announcement::Stopping), back])
            }
            Build::Confirmed(_) | Build::Own => self.end(0),
        }
    }

    /// What a child that ends because the supervisor was told to stop leads to. A trial that was up until then has not failed:
    /// machines are restarted in the middle of one.
    pub(super) fn end_after(&mut self, child: &Child, code: u8) -> (State, Vec<Action>) {
        match &child.build {
            Build::Trial { trial, boots } if child.is_well() && self.stops < TRIAL_STOPS => {
                let stops = self.stops.saturating_add(1);
                let back = Action::Count { trial: trial.name.clone(), boots: boots.saturating_sub(1), stops };
                (State::Ending(code), vec![back])
            }
            _ => (State::Over, vec![Action::End(code)]),
        }
    }
}

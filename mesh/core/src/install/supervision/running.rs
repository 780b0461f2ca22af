//! A build that runs: its signs of life, its trial, and whether a better one could take its place.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::decide::{State, Supervision};
use super::{Action, Announcement, Build, Facts, Input, Notice, Terms};
use crate::time::Now;

/// How often the disk is looked at while a trial runs: whether it was confirmed meanwhile.
const LOOK_EVERY_MS: u64 = 5_000;
/// While the first choice cannot be had it is looked for after the longest pause between two starts, and after twice as long
/// each time that it seemed fit and could not be started after all; so many times as long at most.
pub(super) const LOOK_FOR_BETTER_MOST: u64 = 60;

/// A running child.
#[derive(Clone, Debug)]
pub(super) struct Child {
    pub(super) build: Build,
    pub(super) since_ms: u64,
    ready: bool,
    alive_ms: u64,
    /// When a trial must be confirmed, in awake time: it can do nothing while the machine sleeps.
    confirm_by_ms: Option<u64>,
    /// When the files of a trial are looked at next.
    look_at_ms: u64,
    /// When a better build is looked for next, and how often; `None` while a trial runs.
    better_at_ms: Option<u64>,
    better_every_ms: u64,
    /// It was asked to end because a better build can run.
    pub(super) gives_way: bool,
    /// Why it has failed, once it has: it is killed for that, or asked to end.
    pub(super) doomed: Option<String>,
    /// Up once, it fell silent, and is killed for that. A disk that hangs for a minute does that to any build: it costs this
    /// boot, and no more.
    stalled: Option<String>,
    pub(super) kill_at_ms: Option<u64>,
}

impl Child {
    pub(super) fn new(now: Now, build: Build, better_every_ms: Option<u64>) -> Self {
        let confirm_by_ms = match &build {
            Build::Trial { trial, .. } => Some(now.awake_ms.saturating_add(trial.left_ms)),
            Build::Confirmed(_) | Build::Own => None,
        };
        Self {
            build,
            since_ms: now.awake_ms,
            ready: false,
            alive_ms: now.awake_ms,
            confirm_by_ms,
            look_at_ms: now.awake_ms.saturating_add(LOOK_EVERY_MS),
            better_at_ms: better_every_ms.map(|every_ms| now.awake_ms.saturating_add(every_ms)),
            better_every_ms: better_every_ms.unwrap_or_default(),
            gives_way: false,
            doomed: None,
            stalled: None,
            kill_at_ms: None,
        }
    }

    /// Up, and not found to have failed.
    pub(super) fn is_well(&self) -> bool {
        self.ready && self.doomed.is_none() && self.stalled.is_none()
    }

    /// Time in which it could do nothing counts for nothing.
    fn oversleep(&mut self, ms: u64) {
        self.alive_ms = self.alive_ms.saturating_add(ms);
        self.since_ms = self.since_ms.saturating_add(ms);
        self.kill_at_ms = self.kill_at_ms.map(|at_ms| at_ms.saturating_add(ms));
    }

    /// When a child that says nothing more counts as hanging.
    fn silent_at(&self, terms: &Terms) -> u64 {
        if self.ready {
            self.alive_ms.saturating_add(terms.silence_ms)
        } else {
            self.since_ms.saturating_add(terms.ready_within_ms)
        }
    }

    /// How long nothing happens by itself.
    pub(super) fn wait_ms(&self, terms: &Terms, now: Now) -> u64 {
        let left = |at_ms: u64| at_ms.saturating_sub(now.awake_ms);
        let Some(kill_at_ms) = self.kill_at_ms else {
            let silent = left(self.silent_at(terms));
            let trial = self.confirm_by_ms.map(|by_ms| left(self.look_at_ms).min(left(by_ms)));
            let better = self.better_at_ms.map(left);
            return [trial, better].into_iter().flatten().fold(silent, u64::min);
        };
        left(kill_at_ms)
    }
}

impl Supervision {
    /// What a running child's doings and time passing lead to.
    pub(super) fn watch(&mut self, now: Now, mut child: Child, input: Input) -> (State, Vec<Action>) {
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
                self.ask_to_end(now, &mut child);
                actions.push(Action::Announce(Announcement::Stopping));
            }
            Input::Ended(end) if self.stopping => return self.end_after(&child, end.code),
            Input::Overslept(ms) => child.oversleep(ms),
            Input::Ended(mut end) => {
                if let Some(why) = child.stalled.take() {
                    end.said = format!("{why}; {}", end.said);
                }
                return (State::Looking(Some((child, end))), vec![Action::Look]);
            }
            Input::Found(facts) => return self.look_at(now, child, &facts),
            Input::Checked(true) if child.better_at_ms.is_some() && child.kill_at_ms.is_none() => {
                child.gives_way = true;
                self.ask_to_end(now, &mut child);
                actions.extend([Action::Say(Notice::GivesWay(child.build.clone())), Action::Terminate]);
            }
            Input::Wake => actions = self.wake(now, &mut child),
            _ => {}
        }
        (State::Running(child), actions)
    }

    fn wake(&self, now: Now, child: &mut Child) -> Vec<Action> {
        let due = |at_ms: u64| at_ms <= now.awake_ms;
        if let Some(kill_at_ms) = child.kill_at_ms {
            if !due(kill_at_ms) {
                return Vec::new();
            }
            // Once more each time, should it be needed.
            self.ask_to_end(now, child);
            return vec![Action::Kill];
        }
        if due(child.silent_at(&self.terms)) {
            let why = if child.ready {
                format!("no sign of life for {} s", self.terms.silence_ms / 1000)
            } else {
                format!("not up within {} s", self.terms.ready_within_ms / 1000)
            };
            let failing = if child.ready { &mut child.stalled } else { &mut child.doomed };
            *failing = Some(why.clone());
            self.ask_to_end(now, child);
            return vec![Action::Say(Notice::Kills(why)), Action::Kill];
        }
        if child.confirm_by_ms.is_some_and(|by_ms| due(by_ms) || due(child.look_at_ms)) {
            child.look_at_ms = now.awake_ms.saturating_add(LOOK_EVERY_MS);
            return vec![Action::Look];
        }
        if child.better_at_ms.is_some_and(due) {
            child.better_at_ms = Some(now.awake_ms.saturating_add(child.better_every_ms));
            return vec![Action::Look];
        }
        Vec::new()
    }

    fn look_at(&mut self, now: Now, mut child: Child, facts: &Facts) -> (State, Vec<Action>) {
        if child.kill_at_ms.is_some() {
            return (State::Running(child), Vec::new());
        }
        let Build::Trial { trial, .. } = &child.build else {
            // Whatever comes before what runs; the first that is fit is the one that is started.
            let better = facts.choices().into_iter().take_while(|named| Some(*named) != child.build.named());
            let checks = better.map(|named| Action::Check(named.clone())).collect();
            return (State::Running(child), checks);
        };
        if facts.confirmed.said() == Some(&trial.build) {
            let named = trial.build.clone();
            child.build = Build::Confirmed(named.clone());
            child.confirm_by_ms = None;
            child.better_every_ms = self.terms.backoff_longest_ms;
            child.better_at_ms = Some(now.awake_ms.saturating_add(child.better_every_ms));
            self.backoff_ms = self.terms.backoff_ms;
            self.tries = 0;
            let say = Action::Say(Notice::Confirmed(named.slot));
            return (State::Running(child), vec![say, Action::Remember(named)]);
        }
        if child.confirm_by_ms.is_some_and(|by_ms| by_ms <= now.awake_ms) {
            let why = "not confirmed in time".to_string();
            child.doomed = Some(why.clone());
            self.ask_to_end(now, &mut child);
            return (State::Running(child), vec![Action::Say(Notice::Kills(why)), Action::Terminate]);
        }
        (State::Running(child), Vec::new())
    }

    /// From here on nothing is expected of a child but its end.
    fn ask_to_end(&self, now: Now, child: &mut Child) {
        child.confirm_by_ms = None;
        child.kill_at_ms = Some(now.awake_ms.saturating_add(self.terms.stop_within_ms));
    }
}

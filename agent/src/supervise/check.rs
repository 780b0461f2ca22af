//! `swell supervise --check`: which build would be started now, why, and what is wrong. Nothing is written, locked or started.
//!
//! The decision is the supervisor's own: the same machine is asked, and told that all it wants written is written.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use groundswell_core::install::supervision::{Action, Build, Facts, Input, Named, NotStarted, Reading, Supervision, Trial};
use groundswell_core::time::Time;
use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use rustix::io::Errno;

use super::keeper::program;
use super::marks::{Marks, Run};
use super::settings::Settings;
use crate::clock;
use crate::config::ground::check_ground;
use crate::config::{Config, Faults};
use crate::install::activate::leftover::Note;
use crate::install::files::{Files as _, Kind, OnDisk};

/// More decisions than any state of the files leads to.
const MOST_DECISIONS: usize = 100;

/// What a supervisor would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What it would start.
    pub build: Build,
    /// Why that one.
    pub why: String,
    /// What the files say, one line each.
    pub says: Vec<String>,
    /// What is wrong, one line each.
    pub wrong: Vec<String>,
}

/// Looks.
#[must_use]
pub fn check(settings: &Settings) -> Check {
    let marks = Marks::new(Arc::new(OnDisk), &settings.data, settings.product.as_deref());
    let (begins, now) = (Run::begin(), clock::now());
    let facts = marks.facts(&begins, now);
    let mut wrong = Vec::new();
    let build = decide(settings, &facts, &mut wrong);
    let why = why(&build, &facts);
    // What a trial that runs has left, by what its file says: that counts in the supervisor that began it.
    let mut says = says(settings, &marks.facts(&Run { began_ms: 0, ..begins }, now));
    says.push(match Note::RUN.known(marks.folder()) {
        Some(process) => format!("an agent runs as process {}", process.as_raw_nonzero()),
        None => "no agent of a supervisor runs".to_owned(),
    });
    wrong.extend(unreadable(&facts));
    wrong.extend(damaged(settings, &facts, &build, &wrong));
    wrong.extend(ground(settings, marks.folder()));
    configuration(settings, &mut says, &mut wrong);
    Check { build, why, says, wrong }
}

/// What stands in the files' places and says nothing; of confirmed.json the decision tells.
fn unreadable(facts: &Facts) -> Vec<String> {
    let told = [
        ("remembered.json", facts.remembered == Reading::Unreadable),
        ("trial.json", facts.trial == Reading::Unreadable),
        ("boots.json", facts.boots == Reading::Unreadable),
    ];
    told.iter().filter(|(_, is_so)| *is_so).map(|(name, _)| format!("{name} cannot be read")).collect()
}

/// Builds that the files name and that could not be started, beside those that the decision came upon.
fn damaged(settings: &Settings, facts: &Facts, chosen: &Build, told: &[String]) -> Vec<String> {
    let trial = match &facts.trial {
        Reading::Said(trial) => Some(&trial.build),
        Reading::Absent | Reading::Unreadable => None,
    };
    let others = trial.into_iter().chain(facts.choices()).filter(|named| chosen.named() != Some(*named));
    let mut damaged: Vec<String> = Vec::new();
    for named in others {
        if let Err(NotStarted::Damaged(why) | NotStarted::Refused(why) | NotStarted::Failed(why)) = program(settings, named)
            && !told.iter().chain(&damaged).any(|told| told.contains(&why))
        {
            damaged.push(why);
        }
    }
    damaged
}

/// What an agent would say to its configuration.
fn configuration(settings: &Settings, says: &mut Vec<String>, wrong: &mut Vec<String>) {
    let path = settings.config.display();
    wrong.extend(check_ground(&settings.config).err().map(|error| chain(&error)));
    let Faults { wrong: faults, unknown } = match Config::faults(&settings.config) {
        Ok(faults) => faults,
        Err(error) => return wrong.push(chain(&error)),
    };
    wrong.extend(faults.iter().map(|error| chain(error)));
    if unknown.is_empty() {
        return;
    }
    says.extend(unknown.iter().map(|key| format!("{path}: unknown key `{key}` (this build passes over it)")));
    if let Ok((config, _)) = Config::load_leniently(&settings.config) {
        says.extend(config.observed().map(|product| format!("{product} is only observed")));
    }
}

/// Asks the supervisor's machine until it wants something started that can be.
fn decide(settings: &Settings, facts: &Facts, wrong: &mut Vec<String>) -> Build {
    let mut machine = Supervision::new(settings.terms());
    let mut now = clock::now();
    let mut inputs = VecDeque::from([Input::Begin]);
    for _ in 0..MOST_DECISIONS {
        let Some(input) = inputs.pop_front() else {
            let wait_ms = machine.wait_ms(now).unwrap_or_default();
            now.awake_ms = now.awake_ms.saturating_add(wait_ms);
            now.boot = Time(now.boot.0.saturating_add(wait_ms));
            inputs.push_back(Input::Wake);
            continue;
        };
        for action in machine.handle(now, input) {
            match action {
                Action::Look => inputs.push_back(Input::Found(facts.clone())),
                Action::Count { .. } | Action::GiveUp { .. } => inputs.push_back(Input::Written(true)),
                Action::Say(notice) if notice.is_grave() => wrong.push(notice.to_string()),
                Action::Start(build) => match build.named().map(|named| program(settings, named)) {
                    None | Some(Ok(_)) => return build,
                    // What may pass is told as what it is now.
                    Some(Err(NotStarted::Damaged(why) | NotStarted::Refused(why) | NotStarted::Failed(why))) => {
                        inputs.push_back(Input::Started(Err(NotStarted::Damaged(why))));
                    }
                },
                _ => {}
            }
        }
    }
    Build::Own
}

fn why(build: &Build, facts: &Facts) -> String {
    match build {
        Build::Trial { trial, .. } => {
            format!("trial.json asks for it, and it has {} to be confirmed", left(trial.left_ms))
        }
        Build::Confirmed(named) if facts.confirmed == Reading::Said(named.clone()) => "confirmed.json names it".to_owned(),
        Build::Confirmed(_) => "remembered.json names it, and what confirmed.json names cannot be had".to_owned(),
        Build::Own if facts.choices().is_empty() => "no confirmed build is known".to_owned(),
        Build::Own => "no confirmed build can be run".to_owned(),
    }
}

fn says(settings: &Settings, facts: &Facts) -> Vec<String> {
    let line = |name: &str, said: String| format!("{name}: {said}");
    let trial = |trial: &Trial| {
        let (build, left) = (named(&trial.build), left(trial.left_ms));
        format!("trial {} of {build}, {} starts at most, {left} left", trial.name, trial.most_boots)
    };
    let product = match &settings.product {
        Some(product) => format!("the product {product} is the agent itself"),
        None => "no product is the agent itself".to_owned(),
    };
    vec![
        product,
        line("confirmed.json", said(&facts.confirmed, named)),
        line("remembered.json", said(&facts.remembered, named)),
        line("trial.json", said(&facts.trial, trial)),
        line(
            "boots.json",
            said(&facts.boots, |boots| match &boots.given_up {
                Some(why) => format!("trial {} was given up after {} starts: {why}", boots.trial, boots.boots),
                None => format!("trial {} was started {} times", boots.trial, boots.boots),
            }),
        ),
    ]
}

fn said<T>(reading: &Reading<T>, tell: impl FnOnce(&T) -> String) -> String {
    match reading {
        Reading::Absent => "is not there".to_owned(),
        Reading::Unreadable => "cannot be read".to_owned(),
        Reading::Said(said) => tell(said),
    }
}

fn named(named: &Named) -> String {
    format!("slot {}, {} bytes, {}", named.slot.name(), named.size_bytes, named.sha256)
}

fn left(left_ms: u64) -> String {
    format!("{} s", Duration::from_millis(left_ms).as_secs())
}

/// What a supervisor would have to do without.
fn ground(settings: &Settings, folder: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut say = |path: &Path, what: &dyn Display| wrong.push(format!("{}: {what}", path.display()));
    // What is not there yet is made.
    let there = |place: &&Path| !matches!(OnDisk.kind(place), Ok(None));
    let place = folder.ancestors().find(there).unwrap_or(&settings.data);
    match statvfs(place) {
        Err(error) => say(place, &io::Error::from(error)),
        Ok(stat) => {
            let is_read_only = stat.f_flag.contains(StatVfsMountFlags::RDONLY);
            let faults = [
                (is_read_only, "is on a file system that is read-only"),
                (stat.f_bavail == 0, "is on a file system that is full"),
                // Some file systems count none.
                (stat.f_files > 0 && stat.f_favail == 0, "is on a file system that takes no more files"),
            ];
            faults.iter().filter(|(is_so, _)| *is_so).for_each(|(_, what)| say(place, what));
            match access(place, Access::WRITE_OK | Access::EXEC_OK) {
                Err(Errno::ROFS) if is_read_only => {}
                Err(error) => say(place, &io::Error::from(error)),
                Ok(()) => {}
            }
        }
    }
    let expected: [(&Path, Kind, &str); 2] =
        [(folder, Kind::Folder, "is not a folder"), (&folder.join("lock"), Kind::File, "is not a regular file")];
    for (path, kind, otherwise) in expected {
        match OnDisk.kind(path) {
            Ok(found) if found.is_none_or(|found| found == kind) => {}
            Ok(_) => say(path, &otherwise),
            // Told of the folder above it.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
            Err(error) => say(path, &error),
        }
    }
    wrong
}

/// An error with all that it comes from.
fn chain(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        told = format!("{told}: {error}");
        source = error.source();
    }
    told
}

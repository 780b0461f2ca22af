//! Processes that an agent which died left behind: found again and stopped, so that a version never runs twice.
//!
//! `run.json` names the child with its start time, for a process id alone may belong to somebody else by now.
//! Between the start of a child and that file, and for what a child started outside its group, there is a second
//! mark: the product's folder in the environment of everything that was started from it.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::proc::{Run, find, members};
use super::process;
use crate::install::durable::{read_small, remove_file, replace};
use crate::install::files::OnDisk;

/// The environment variable that marks a supervised process and its children.
pub const MARK: &str = "GROUNDSWELL_SUPERVISED";
/// The environment variable that marks a health command and its children. They come too often to be written down.
const HEALTH_MARK: &str = "GROUNDSWELL_HEALTH";
/// How long what is left of health commands may take to end: it is killed.
const HEALTH_ENDS_WITHIN: Duration = Duration::from_secs(5);
/// A longer note is none: it has about a hundred bytes.
const MOST_BYTES: u64 = 4 * 1024;
/// The end of a process that is not a child has no event without a pidfd in the runtime: looked at this often.
const LOOK: Duration = Duration::from_millis(20);

/// A process that cannot be mistaken for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Child {
    spec: u8,
    process: i32,
    /// Clock ticks from boot to its start: field 22 of `/proc/PID/stat`.
    started_ticks: u64,
    /// Of which boot.
    boot: String,
}

/// A file in a folder that names a process, leader of its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note(&'static str);

impl Note {
    /// The supervised process, or the agent of a supervisor.
    pub(crate) const RUN: Self = Self("run.json");
    /// The activator's command or the hook that runs now: one at a time.
    pub(crate) const COMMAND: Self = Self("command.json");

    /// Writes down that `process`, leader of its group, runs for the product in `folder`.
    pub(crate) fn remember(self, folder: &Path, process: Pid) {
        let written = identify(process).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)).and_then(|child| {
            let text = serde_json::to_vec(&child).map_err(io::Error::from)?;
            replace(&OnDisk, folder, self.0, &text)
        });
        if let Err(error) = written {
            tracing::debug!(folder = %folder.display(), %error, "a process is not written down");
        }
    }

    /// Takes that back.
    pub(crate) fn forget(self, folder: &Path) {
        let _ = remove_file(&OnDisk, &folder.join(self.0));
    }

    /// The process that is written down in `folder`, if it still runs.
    pub(crate) fn known(self, folder: &Path) -> Option<Pid> {
        self.run(folder)?.process()
    }

    /// Stops the process that is written down in `folder` with its group, and no other: SIGTERM, and SIGKILL after `grace`.
    /// Takes that back.
    pub(crate) async fn stop(self, folder: &Path, grace: Duration) {
        end(self.run(folder), &[], grace).await;
        self.forget(folder);
    }

    fn run(self, folder: &Path) -> Option<Run> {
        let text = read_small(&OnDisk, &folder.join(self.0), MOST_BYTES).ok()?;
        let child: Child = serde_json::from_slice(&text).ok()?;
        let run = Run::named(child.process, child.started_ticks);
        (child.boot == this_boot() && !run.is_over()).then_some(run)
    }
}

/// Stops whatever an earlier agent left running for the product in `folder`, all at once: SIGTERM, and SIGKILL after `grace`.
pub async fn stop(folder: &Path, grace: Duration) {
    let known = Note::RUN.run(folder);
    let marks = [format!("{MARK}={}", folder.display())];
    let mut strays = find(&marks, folder).await;
    strays.retain(|stray| Some(*stray) != known);
    for stray in &strays {
        tracing::warn!(process = %stray, "a stray process of the product is stopped");
    }
    end(known, &strays, grace).await;
    Note::RUN.forget(folder);
}

/// Ends the leader of a group with its group, and single processes. Who is in the group is known before the leader is told:
/// once it has ended, its number may be another's, and what outlives it is ended all the same.
async fn end(leader: Option<Run>, others: &[Run], grace: Duration) {
    if let Some(leader) = leader {
        tracing::warn!(process = %leader, "a process of an agent that died is stopped");
    }
    let mut all: Vec<Run> = leader.iter().chain(others).copied().collect();
    if let Some((leader, group)) = leader.and_then(|leader| Some((leader, leader.process()?))) {
        let of_the_group = members(group).await;
        if !leader.is_over() {
            all.extend(of_the_group.into_iter().filter(|member| *member != leader));
        }
    }
    for signal in [Signal::TERM, Signal::KILL] {
        if let Some(leader) = leader {
            leader.signal_group(signal);
        }
        // The members of the group have it already.
        let single = if signal == Signal::KILL { all.as_slice() } else { others };
        single.iter().for_each(|one| one.signal(signal));
        if are_over(&all, grace).await {
            return;
        }
    }
}

/// Tells the group of a child that was not waited for yet to end, and waits for all who are in it, for `limit` at most.
pub(super) async fn tell_to_end(leader: Pid, limit: Duration) {
    let all = members(leader).await;
    process::signal(leader, Signal::TERM);
    are_over(&all, limit).await;
}

/// Kills what is left of an agent that has ended: what is `known` of it, and whatever carries one of these variables
/// (`NAME=value`) in its environment and sees the files of this process at `folder`. Looks again until nothing is found, for
/// `limit` at most; what then still runs.
///
/// What an agent starts on purpose has a group of its own and gets none of these variables.
pub(crate) async fn end_strays(known: &[Run], marks: &[String], folder: &Path, limit: Duration) -> Vec<Pid> {
    let end = Instant::now() + limit;
    loop {
        let mut strays = find(marks, folder).await;
        let known: Vec<Run> = known.iter().filter(|run| !run.is_over() && !strays.contains(run)).copied().collect();
        strays.extend(known);
        if strays.is_empty() || Instant::now() >= end {
            return strays.into_iter().filter_map(Run::process).collect();
        }
        for stray in strays {
            tracing::warn!(process = %stray, "a process that an agent left behind is killed");
            stray.signal(Signal::KILL);
        }
        sleep(LOOK).await;
    }
}

/// What marks the health commands of the product in `folder`.
pub(crate) fn health_mark(folder: &Path) -> (String, String) {
    (HEALTH_MARK.to_owned(), folder.display().to_string())
}

/// Ends the health commands that an agent which died left behind for the product in `folder`.
pub(crate) async fn end_health(folder: &Path) {
    let (name, value) = health_mark(folder);
    let left = end_strays(&[], &[format!("{name}={value}")], folder, HEALTH_ENDS_WITHIN).await;
    if !left.is_empty() {
        tracing::warn!(?left, "health commands of an agent that died cannot be ended");
    }
}

async fn are_over(all: &[Run], limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        if all.iter().all(|run| run.is_over()) {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        sleep(LOOK).await;
    }
}

/// Names this one run of a process: no other one, before or after it, has this name.
pub(crate) fn run_of(process: Pid) -> Option<String> {
    let child = identify(process)?;
    Some(format!("{}/{}/{}", child.boot, child.process, child.started_ticks))
}

fn identify(process: Pid) -> Option<Child> {
    let Run { started_ticks, .. } = Run::of(process)?;
    Some(Child { spec: 1, process: process.as_raw_nonzero().get(), started_ticks, boot: this_boot() })
}

fn this_boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[tokio::test]
    async fn what_outlives_the_leader_of_its_group_is_killed_too() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        // The leader ends when it is told to; the other one does not listen.
        command.args(["-c", "(trap '' TERM; echo ready; exec sleep 3600 > /dev/null) & exec sleep 3600 > /dev/null"]);
        command.process_group(0).stdout(Stdio::piped());
        let mut leader = crate::install::forks::starting(|| command.spawn()).unwrap();
        let mut line = String::new();
        BufReader::new(leader.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let group = Pid::from_child(&leader);
        Note::RUN.remember(folder.path(), group);
        let all = members(group).await;
        assert_eq!(all.len(), 2);
        Note::RUN.stop(folder.path(), Duration::from_secs(2)).await;
        assert!(all.iter().all(|run| run.is_over()));
        leader.wait().unwrap();
    }
}

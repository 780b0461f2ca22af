//! Processes that an agent which died left behind: found again and stopped, so that a version never runs twice.
//!
//! `run.json` names the child with its start time, for a process id alone may belong to somebody else by now.
//! Between the start of a child and that file, and for what a child started outside its group, there is a second
//! mark: the product's folder in the environment of everything that was started from it.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::process::signal;
use crate::install::durable::{read_small, remove_file, replace};
use crate::install::files::OnDisk;

/// The environment variable that marks a supervised process and its children.
pub const MARK: &str = "GROUNDSWELL_SUPERVISED";
const NAME: &str = "run.json";
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

/// Writes down that `process`, leader of its group, runs for the product in `folder`.
pub(crate) fn remember(folder: &Path, process: Pid) {
    let written = identify(process).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)).and_then(|child| {
        let text = serde_json::to_vec(&child).map_err(io::Error::from)?;
        replace(&OnDisk, folder, NAME, &text)
    });
    if let Err(error) = written {
        tracing::debug!(folder = %folder.display(), %error, "the process is not written down; its environment marks it all the same");
    }
}

/// Takes that back.
pub(crate) fn forget(folder: &Path) {
    let _ = remove_file(&OnDisk, &folder.join(NAME));
}

/// Stops whatever an earlier agent left running for the product in `folder`: SIGTERM, and SIGKILL after `grace`.
pub async fn stop(folder: &Path, grace: Duration) {
    stop_known(folder, grace).await;
    let marks = [format!("{MARK}={}", folder.display())];
    for process in find(|process, _| is_marked(process, &marks)) {
        tracing::warn!(process = process.as_raw_nonzero(), "a stray process of the product is stopped");
        let _ = kill_process(process, Signal::TERM);
        if !gone(process, grace).await {
            let _ = kill_process(process, Signal::KILL);
            gone(process, grace).await;
        }
    }
}

/// The process that is written down in `folder`, if it still runs.
pub(crate) fn known(folder: &Path) -> Option<Pid> {
    let text = read_small(&OnDisk, &folder.join(NAME), MOST_BYTES).ok()?;
    let child: Child = serde_json::from_slice(&text).ok()?;
    let process = Pid::from_raw(child.process)?;
    (identify(process).as_ref() == Some(&child) && !is_zombie(process)).then_some(process)
}

/// Stops the process that is written down in `folder`, and no other; takes that back.
pub(crate) async fn stop_known(folder: &Path, grace: Duration) {
    if let Some(process) = known(folder) {
        tracing::warn!(process = process.as_raw_nonzero(), "a process of an agent that died is stopped");
        signal(process, Signal::TERM);
        if !gone(process, grace).await {
            signal(process, Signal::KILL);
            gone(process, grace).await;
        }
    }
    forget(folder);
}

/// Kills what is left of an agent that has ended: its process group, and whatever carries one of these variables
/// (`NAME=value`) in its environment. Looks again until nothing is found, for `limit` at most; what then still runs.
///
/// What an agent starts on purpose has a group of its own and gets none of these variables.
pub(crate) async fn end_strays(group: Option<Pid>, marks: &[String], limit: Duration) -> Vec<Pid> {
    let end = Instant::now() + limit;
    loop {
        let strays = find(|process, stat| {
            group.is_some_and(|group| stat.group == group) || (is_marked(process, marks) && shares_files(process))
        });
        if strays.is_empty() || Instant::now() >= end {
            return strays;
        }
        for stray in strays {
            tracing::warn!(process = stray.as_raw_nonzero(), "a process that an agent left behind is killed");
            let _ = kill_process(stray, Signal::KILL);
        }
        sleep(LOOK).await;
    }
}

async fn gone(process: Pid, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        if test_kill_process(process).is_err() || is_zombie(process) {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        sleep(LOOK).await;
    }
}

/// What the kernel says of a process.
struct Stat {
    state: String,
    group: Pid,
    /// Clock ticks from boot to its start.
    started_ticks: u64,
}

/// State, group and start of a process: what follows the name, which may itself have spaces and brackets.
fn stat(process: Pid) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    // These are counted from field 3, the state: the group is field 5, the start field 22.
    let field = |number: usize| fields.get(number - 3).copied();
    Some(Stat {
        state: field(3)?.to_owned(),
        group: Pid::from_raw(field(5)?.parse().ok()?)?,
        started_ticks: field(22)?.parse().ok()?,
    })
}

fn is_zombie(process: Pid) -> bool {
    stat(process).is_none_or(|stat| stat.has_ended())
}

impl Stat {
    fn has_ended(&self) -> bool {
        self.state == "Z" || self.state == "X"
    }
}

/// Names this one run of a process: no other one, before or after it, has this name.
pub(crate) fn run_of(process: Pid) -> Option<String> {
    let child = identify(process)?;
    Some(format!("{}/{}/{}", child.boot, child.process, child.started_ticks))
}

fn identify(process: Pid) -> Option<Child> {
    let Stat { started_ticks, .. } = stat(process)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
    Some(Child { spec: 1, process: process.as_raw_nonzero().get(), started_ticks, boot })
}

/// Running processes, but for this one, that are wanted.
fn find(wanted: impl Fn(Pid, &Stat) -> bool) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let own = std::process::id();
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|process| u32::try_from(*process) != Ok(own))
        .filter_map(Pid::from_raw)
        .filter(|process| stat(*process).is_some_and(|stat| !stat.has_ended() && wanted(*process, &stat)))
        .collect()
}

/// Whether a process sees the same file systems as this one: in another container a path, or a process id, means another thing.
fn shares_files(process: Pid) -> bool {
    let mounts = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    mounts(&process.as_raw_nonzero().to_string()) == mounts("self")
}

/// Whether the environment of a process has one of these variables; that of other users cannot be read and is not ours.
fn is_marked(process: Pid, marks: &[String]) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", process.as_raw_nonzero())).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| marks.iter().any(|mark| mark.as_bytes() == variable))
}

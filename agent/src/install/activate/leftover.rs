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
use crate::install::durable::{remove_file, replace};
use crate::install::files::OnDisk;

/// The environment variable that marks a supervised process and its children.
pub const MARK: &str = "GROUNDSWELL_SUPERVISED";
const NAME: &str = "run.json";
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
    for process in marked(folder) {
        tracing::warn!(process = process.as_raw_nonzero(), "a stray process of the product is stopped");
        let _ = kill_process(process, Signal::TERM);
        if !gone(process, grace).await {
            let _ = kill_process(process, Signal::KILL);
            gone(process, grace).await;
        }
    }
}

/// Stops the process that is written down in `folder`, and no other; takes that back.
pub(crate) async fn stop_known(folder: &Path, grace: Duration) {
    let written: Option<Child> = fs::read(folder.join(NAME)).ok().and_then(|text| serde_json::from_slice(&text).ok());
    if let Some(child) = written
        && let Some(process) = Pid::from_raw(child.process)
        && identify(process).as_ref() == Some(&child)
    {
        tracing::warn!(process = child.process, "a process of an agent that died is stopped");
        signal(process, Signal::TERM);
        if !gone(process, grace).await {
            signal(process, Signal::KILL);
            gone(process, grace).await;
        }
    }
    forget(folder);
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

/// State and start of a process: what follows the name, which may itself have spaces and brackets.
fn stat(process: Pid) -> Option<(String, u64)> {
    let text = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?.to_owned();
    // Field 3 was the state; the start time is field 22.
    let started = fields.nth(18)?.parse().ok()?;
    Some((state, started))
}

fn is_zombie(process: Pid) -> bool {
    stat(process).is_none_or(|(state, _)| state == "Z" || state == "X")
}

/// Names this one run of a process: no other one, before or after it, has this name.
pub(crate) fn run_of(process: Pid) -> Option<String> {
    let child = identify(process)?;
    Some(format!("{}/{}/{}", child.boot, child.process, child.started_ticks))
}

fn identify(process: Pid) -> Option<Child> {
    let (_, started_ticks) = stat(process)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
    Some(Child { spec: 1, process: process.as_raw_nonzero().get(), started_ticks, boot })
}

/// Processes whose environment carries the mark of `folder`; those of other users cannot be read and are not ours.
fn marked(folder: &Path) -> Vec<Pid> {
    let mark = format!("{MARK}={}", folder.display()).into_bytes();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let own = std::process::id();
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|process| u32::try_from(*process) != Ok(own))
        .filter(|process| {
            fs::read(format!("/proc/{process}/environ"))
                .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|variable| variable == mark))
        })
        .filter_map(Pid::from_raw)
        .filter(|process| !is_zombie(*process))
        .collect()
}

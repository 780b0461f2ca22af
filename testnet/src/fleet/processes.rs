//! What `/proc` tells: memory and processor time of one process, and processes that were left behind.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// What one process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Of that, memory of its own that no file stands behind.
    pub anonymous_bytes: u64,
    /// Processor time since its start, user and system.
    pub processor: Duration,
}

/// What a process uses now; `None` when it is gone.
#[must_use]
pub fn usage(pid: u32) -> Option<Usage> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kibibytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything; the numbers come after the last bracket, utime as 12th, stime as 13th.
    let (_, numbers) = stat.rsplit_once(") ")?;
    let mut fields = numbers.split(' ').skip(11).map(|field| field.parse::<u64>().ok());
    let ticks = fields.next()?? + fields.next()??;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Some(Usage {
        resident_bytes: kibibytes("VmRSS:")? * 1024,
        anonymous_bytes: kibibytes("RssAnon:")? * 1024,
        processor: Duration::from_millis(ticks * 1000 / per_second),
    })
}

/// A process whose program, or an argument, lies in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// Its id.
    pub pid: u32,
    /// Its command line.
    pub command: String,
}

/// Processes that run out of `folder`: their program lies there, or an argument names it. Not this process itself.
#[must_use]
pub fn strays(folder: &Path) -> Vec<Stray> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let here = folder.display().to_string();
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id())
        .filter_map(|pid| {
            let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let command = String::from_utf8_lossy(&arguments).replace('\0', " ").trim_end().to_owned();
            let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            (!is_over(pid) && (program.starts_with(folder) || command.contains(&here))).then_some(Stray { pid, command })
        })
        .collect()
}

/// Whether a process has ended, waited for or not.
pub(super) fn is_over(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

/// Kills one process. One that is gone is fine.
pub(crate) fn kill(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

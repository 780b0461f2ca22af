//! What `/proc` says of processes, and signals that reach no other process than the one that was meant.
//!
//! A number belongs to another process, or another group, as soon as its owner was waited for: a process is named by its
//! number and the time of its start. What the kernel says of another process may take as long as a disk that does not
//! answer: all are looked at on a thread of its own, and whoever waits for it gives up on the one that holds it up.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Looking at one process takes microseconds. One that takes longer waits for a disk, and is passed over.
const LOOK_WITHIN: Duration = Duration::from_secs(1);
/// So many are passed over in one look; what is left then is not looked at.
const MOST_STUCK: usize = 8;
/// Of an environment no more is read: the kernel gives a new process no more than 6 MiB of arguments and variables.
const ENVIRONMENT_BYTES: u64 = 8 << 20;

/// Processes that a thread is looking at now: one that is stuck there holds up no second thread.
static LOOKED_AT: Mutex<BTreeSet<Run>> = Mutex::new(BTreeSet::new());

/// One run of a process: no other one, before or after it, is equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    number: i32,
    /// Clock ticks from boot to its start: field 22 of `/proc/PID/stat`.
    pub(crate) started_ticks: u64,
}

/// What the kernel says of a process.
pub(crate) struct Stat {
    state: String,
    /// Its process group.
    pub(crate) group: Pid,
    parent: i32,
    run: Run,
}

impl Stat {
    /// State, group and start of a process: what follows the name, which may itself have spaces and brackets.
    fn of(process: Pid) -> Option<Self> {
        let number = process.as_raw_nonzero().get();
        let text = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        let (_, fields) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        // These are counted from field 3, the state: the parent is field 4, the group
        // field 5, the start field 22.
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            state: field(3)?.to_owned(),
            group: Pid::from_raw(field(5)?.parse().ok()?)?,
            parent: field(4)?.parse().ok()?,
            run: Run { number, started_ticks: field(22)?.parse().ok()? },
        })
    }

    fn has_ended(&self) -> bool {
        self.state == "Z" || self.state == "X"
    }
}

impl Run {
    /// What has this number now.
    pub(crate) fn of(process: Pid) -> Option<Self> {
        Stat::of(process).map(|stat| stat.run)
    }

    /// A run that was written down.
    pub(crate) fn named(process: i32, started_ticks: u64) -> Self {
        Self { number: process, started_ticks }
    }

    /// Its number, which another process may have by now.
    pub(crate) fn process(self) -> Option<Pid> {
        Pid::from_raw(self.number)
    }

    /// Whether it has ended, waited for or not.
    pub(crate) fn is_over(self) -> bool {
        let stat = self.process().and_then(Stat::of);
        stat.is_none_or(|stat| stat.run != self || stat.has_ended())
    }

    /// Sends it a signal, and nobody else.
    pub(crate) fn signal(self, signal: Signal) {
        let Some(process) = self.process() else { return };
        match pidfd_open(process, PidfdFlags::empty()) {
            // Whatever gets the number from here on, the descriptor leads to what has it now.
            Ok(held) if !self.is_over() => {
                let _ = pidfd_send_signal(&held, signal);
            }
            Err(Errno::SRCH) => {}
            // An old kernel, one that is told to refuse this, or no descriptor is left.
            Err(_) if !self.is_over() => {
                let _ = kill_process(process, signal);
            }
            _ => {}
        }
    }

    /// Sends a signal to the group that it leads, as long as it runs: while it does the group's number is its own.
    pub(crate) fn signal_group(self, signal: Signal) {
        if let Some(process) = self.process().filter(|_| !self.is_over()) {
            let _ = kill_process_group(process, signal);
        }
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.number)
    }
}

/// Sends a signal to the process that has this number now, if `may` says so of it, and to nobody who gets the number later:
/// which run of it that was.
///
/// # Errors
/// Why it was not sent; ESRCH where nobody has it.
pub(crate) fn signal_if<E: From<Errno>>(process: Pid, signal: Signal, may: impl FnOnce(Run) -> Result<(), E>) -> Result<Run, E> {
    let held = match pidfd_open(process, PidfdFlags::empty()) {
        Ok(held) => Some(held),
        Err(error @ Errno::SRCH) => return Err(error.into()),
        // An old kernel, or one that is told to refuse this.
        Err(_) => None,
    };
    let stat = Stat::of(process).filter(|stat| !stat.has_ended()).ok_or(Errno::SRCH)?;
    may(stat.run)?;
    let sent = match held {
        // What was looked at is what is held, or that has ended, and then nobody gets it.
        Some(held) => pidfd_send_signal(&held, signal),
        None if Run::of(process) == Some(stat.run) => kill_process(process, signal),
        None => Err(Errno::SRCH),
    };
    sent?;
    Ok(stat.run)
}

/// Running processes of a group, but for this one. The number of a group belongs to another one once nobody is left in it
/// and its leader was waited for: ask while the leader runs, or is not waited for.
pub(crate) async fn members(group: Pid) -> Vec<Run> {
    let wanted = move |process: Pid| {
        let stat = Stat::of(process).filter(|stat| !stat.has_ended())?;
        (stat.group == group).then_some(stat.run)
    };
    look(numbers(), Arc::new(wanted)).await
}

/// Children of this process that have ended and are not waited for.
pub(crate) fn ended_children() -> Vec<Pid> {
    let own = std::process::id();
    let is_ours = |stat: Stat| stat.has_ended() && u32::try_from(stat.parent) == Ok(own);
    numbers().into_iter().filter(|process| Stat::of(*process).is_some_and(is_ours)).collect()
}

/// Running processes, but for this one, that see the files of this process at `folder` and have one of these variables
/// (`NAME=value`) in their environment.
pub(crate) async fn find(marks: &[String], folder: &Path) -> Vec<Run> {
    let (marks, folder) = (marks.to_vec(), folder.to_owned());
    let wanted = move |process: Pid| {
        let stat = Stat::of(process).filter(|stat| !stat.has_ended())?;
        let wanted = is_marked(process, &marks) && shares_files(process, &folder);
        // What was read of the number may be another's by now: it is wanted for what it was at one instant.
        (wanted && Run::of(process) == Some(stat.run)).then_some(stat.run)
    };
    look(numbers(), Arc::new(wanted)).await
}

fn numbers() -> VecDeque<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return VecDeque::new() };
    let own = std::process::id();
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|process| u32::try_from(*process) != Ok(own))
        .filter_map(Pid::from_raw)
        .collect()
}

/// Looks at processes on a thread, and on another one after each that holds it up.
async fn look(mut left: VecDeque<Pid>, wanted: Arc<dyn Fn(Pid) -> Option<Run> + Send + Sync>) -> Vec<Run> {
    let mut found = Vec::new();
    for _ in 0..MOST_STUCK {
        let (tell, mut told) = mpsc::channel(1);
        let (batch, wanted) = (left.clone(), Arc::clone(&wanted));
        let looks = move || {
            for process in batch {
                // Nobody listens to one that was held up.
                if tell.blocking_send(look_at(process, &*wanted)).is_err() {
                    return;
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("processes".to_owned()).spawn(looks) {
            tracing::warn!(%error, "the processes of this machine are not looked through");
            return found;
        }
        loop {
            match timeout(LOOK_WITHIN, told.recv()).await {
                Ok(Some(run)) => {
                    left.pop_front();
                    found.extend(run);
                }
                Ok(None) => return found,
                Err(_) => break,
            }
        }
        let Some(stuck) = left.pop_front() else { return found };
        tracing::warn!(process = stuck.as_raw_nonzero(), "a process cannot be looked at: it waits for a disk");
    }
    tracing::warn!(left = left.len(), "too many processes cannot be looked at: the rest is not");
    found
}

fn look_at(process: Pid, wanted: &dyn Fn(Pid) -> Option<Run>) -> Option<Run> {
    let looked_at = || LOOKED_AT.lock().unwrap_or_else(PoisonError::into_inner);
    let run = Run::of(process).unwrap_or(Run::named(process.as_raw_nonzero().get(), 0));
    if !looked_at().insert(run) {
        return None;
    }
    let found = wanted(process);
    looked_at().remove(&run);
    found
}

/// Whether a path means the same to a process as to this one: in another container it leads elsewhere, and a process id
/// means another process. A service that systemd has started anew has other mounts and the same folder.
fn shares_files(process: Pid, folder: &Path) -> bool {
    let process = process.as_raw_nonzero();
    let mounts = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let there = Path::new(&format!("/proc/{process}/root")).join(folder.strip_prefix("/").unwrap_or(folder));
    mounts(&process.to_string()) == mounts("self") || identity(&there).is_some_and(|there| Some(there) == identity(folder))
}

/// Whether the environment of a process has one of these variables; that of other users cannot be read and is not ours.
fn is_marked(process: Pid, marks: &[String]) -> bool {
    let mut environment = Vec::new();
    let file = File::open(format!("/proc/{}/environ", process.as_raw_nonzero()));
    if file.and_then(|file| file.take(ENVIRONMENT_BYTES).read_to_end(&mut environment)).is_err() {
        return false;
    }
    environment.split(|byte| *byte == 0).any(|variable| marks.iter().any(|mark| mark.as_bytes() == variable))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc as blocking;

    use super::*;

    #[test]
    fn a_signal_reaches_no_process_that_has_the_number_of_the_one_that_was_meant() {
        let mut child = crate::install::forks::starting(|| Command::new("sleep").arg("3600").spawn()).unwrap();
        let process = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let run = Run::of(process).unwrap();
        let earlier = Run { started_ticks: run.started_ticks - 1, ..run };
        assert!(earlier.is_over() && !run.is_over());
        earlier.signal(Signal::KILL);
        earlier.signal_group(Signal::KILL);
        assert!(!run.is_over());
        assert_eq!(child.try_wait().unwrap(), None);
        run.signal(Signal::KILL);
        child.wait().unwrap();
        assert!(run.is_over());
        run.signal(Signal::KILL);
    }

    #[tokio::test]
    async fn a_process_that_cannot_be_looked_at_holds_up_nobody() {
        let numbers = |all: &[i32]| all.iter().filter_map(|number| Pid::from_raw(*number)).collect::<VecDeque<_>>();
        // No process has such numbers.
        let all = numbers(&[i32::MAX - 3, i32::MAX - 2, i32::MAX - 1]);
        let (release, held) = blocking::channel::<()>();
        let (held, stuck) = (Mutex::new(held), all[1]);
        let wanted = Arc::new(move |process: Pid| {
            if process == stuck {
                let _ = held.lock().unwrap().recv();
            }
            Some(Run::named(process.as_raw_nonzero().get(), 7))
        });
        let named = |runs: Vec<Run>| runs.into_iter().filter_map(Run::process).collect::<VecDeque<_>>();
        assert_eq!(named(look(all.clone(), wanted.clone()).await), [all[0], all[2]]);
        // The thread that looks at it is still there, and the only one.
        assert_eq!(named(look(all.clone(), wanted.clone()).await), [all[0], all[2]]);
        drop(release);
        while named(look(all.clone(), wanted.clone()).await) != all {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

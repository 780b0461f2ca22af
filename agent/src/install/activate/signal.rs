//! Telling a process that runs already, by a signal, to take up what `current` leads to now.
//!
//! A file with a number outlives the process that it names, and the number gets another owner. So the number is looked at
//! through a descriptor of the process: it must run from the product's folder, or have been there when the file was written.
//! That a file names nobody who can be told is this device's trouble, never a version's.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{FsWord, fstatfs};
use rustix::process::{Pid, Signal, geteuid};

use super::launch::Launch;
use super::proc::{self, Run};
use crate::clock;
use crate::config::{SignalActivator, TellSignal};
use crate::install::disk::Failure;
use crate::install::durable::read_bounded;
use crate::install::files::{Link, open_regular};

/// A longer file holds no process id.
const MOST_BYTES: u64 = 4 * 1024;
/// Clock ticks of `/proc/PID/stat` in a second: the kernel's USER_HZ, the same on every machine that this is built for.
const TICKS: u64 = 100;
/// The wall clock tells whole seconds, and so may the file's.
const SLACK_SECONDS: u64 = 2;
/// The kernel's number for a file system in memory.
const TMPFS: FsWord = 0x0102_1994;
/// Anybody may write to it.
const WORLD_WRITABLE: u32 = 0o002;

/// Signals the process that the file names.
///
/// # Errors
/// When the file names none, it is gone, or the number is another's by now.
pub(super) fn tell(config: &SignalActivator, launch: &Launch) -> Result<(), Failure> {
    let file = config.pid_file.display();
    let refused = |why: String| Failure::of_the_device(format!("{file} {why}"));
    let unreadable = |error: io::Error| Failure::of_the_device(format!("cannot read the process id in {file}: {error}"));
    let open = open_regular(&config.pid_file, Link::Refused).map_err(unreadable)?;
    let written = Written::of(&open).map_err(unreadable)?;
    let text = String::from_utf8_lossy(&read_bounded(open, MOST_BYTES).map_err(unreadable)?).into_owned();
    // 1 is the machine's own first process; 0 and less are groups of processes.
    let number = text.trim().parse::<i32>().ok().filter(|id| *id > 1).and_then(Pid::from_raw);
    let process = number.ok_or_else(|| refused("does not hold a process id".to_owned()))?;
    let signal = match config.signal {
        TellSignal::Hup => Signal::HUP,
        TellSignal::Usr1 => Signal::USR1,
        TellSignal::Usr2 => Signal::USR2,
        TellSignal::Term => Signal::TERM,
    };
    proc::signal_if(process, signal, |run| written.names(run, launch.folder()))
        .map_err(|why| refused(format!("names process {}, which cannot be signalled: {why}", process.as_raw_nonzero())))
}

/// What the file itself says, beside its text.
struct Written {
    owner: u32,
    mode: u32,
    /// In seconds since 1970.
    at: u64,
    /// It is gone with the machine's run, whatever the wall clock says.
    of_this_boot: bool,
}

impl Written {
    fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            owner: metadata.uid(),
            mode: metadata.mode(),
            at: u64::try_from(metadata.mtime()).unwrap_or(0),
            of_this_boot: fstatfs(file).is_ok_and(|system| system.f_type == TMPFS),
        })
    }

    /// Whether it is about this process, and may be.
    fn names(&self, run: Run, folder: Option<&Path>) -> Result<(), String> {
        let process = fs::metadata(format!("/proc/{run}")).map_err(|error| error.to_string())?;
        if ![0, geteuid().as_raw(), process.uid()].contains(&self.owner) || self.mode & WORLD_WRITABLE != 0 {
            return Err("the file is neither root's, nor this agent's, nor that process's own".to_owned());
        }
        let now = clock::now();
        let booted = now.wall.seconds().saturating_sub(now.boot.0 / 1_000);
        let started = booted.saturating_add(run.started_ticks / TICKS);
        // Written before the machine booted, by a clock that was set since.
        let by_another_clock = self.of_this_boot && self.at < booted;
        if started <= self.at.saturating_add(SLACK_SECONDS) || by_another_clock || runs_from(run, folder) {
            Ok(())
        } else {
            Err("it was started after the file was written".to_owned())
        }
    }
}

/// Whether a process runs a file below `folder`. One that was replaced is still known by where it was.
fn runs_from(run: Run, folder: Option<&Path>) -> bool {
    let executable = fs::read_link(format!("/proc/{run}/exe"));
    let folder = folder.and_then(|folder| fs::canonicalize(folder).ok());
    executable.ok().zip(folder).is_some_and(|(executable, folder)| executable.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> (Child, Run) {
        let child = crate::install::forks::starting(|| Command::new("sleep").arg("3600").spawn()).unwrap();
        let run = Run::of(Pid::from_child(&child)).unwrap();
        (child, run)
    }

    #[test]
    fn a_number_is_another_s_once_its_process_is_younger_than_the_file() {
        let (mut child, run) = sleeper();
        let own = geteuid().as_raw();
        let now = clock::wall().seconds();
        let written = |at| Written { owner: own, mode: 0o644, at, of_this_boot: false };
        assert_eq!(written(now).names(run, None), Ok(()));
        assert!(written(now - 60).names(run, None).is_err_and(|why| why.contains("started after")));
        // `sleep` runs from there.
        let home = fs::canonicalize(fs::read_link(format!("/proc/{run}/exe")).unwrap()).unwrap();
        assert_eq!(written(now - 60).names(run, home.parent()), Ok(()));
        // A machine without a battery for its clock wrote it in 1970, into memory.
        assert_eq!(Written { of_this_boot: true, ..written(7) }.names(run, None), Ok(()));
        assert!(written(7).names(run, None).is_err(), "on a disk it may be of an earlier boot");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_file_that_others_may_write_names_nobody() {
        let (mut child, run) = sleeper();
        let at = clock::wall().seconds();
        let other = geteuid().as_raw() + 1;
        for (owner, mode) in [(other, 0o644), (geteuid().as_raw(), 0o666)] {
            let written = Written { owner, mode, at, of_this_boot: false };
            assert!(written.names(run, None).is_err_and(|why| why.contains("neither root's")), "{owner} {mode:o}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

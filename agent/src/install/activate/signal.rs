//! Telling a process that runs already, by a signal, to take up what `current` leads to now.
//!
//! A file with a number outlives the process that it names, and the number gets another owner. So the number is looked at
//! through a descriptor of the process: it must run from the product's folder, or have been there when the file was written.
//! That a file names nobody who can be told is this device's trouble, never a version's. On the way back it is none: where
//! the process is gone nothing of the left version runs, and whatever starts it starts what `current` leads to.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FsWord, fstatfs};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, geteuid};
use tokio::time::sleep;

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
/// A process that is gone may be on its way up again, with its file not yet written: it is looked for so often, so far apart.
const LOOKS: u32 = 3;
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Tells the process that a file names.
#[derive(Debug)]
pub struct Teller {
    config: SignalActivator,
    /// Who was told of the version on trial.
    told: Told,
    /// What the wall clock said of the machine's boot when this began, in seconds since 1970.
    booted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// An earlier run of the agent may have told somebody.
    Unknown,
    Nobody,
    Process(Run),
}

/// Why nobody was told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Untold {
    /// Whoever wrote the file does not run any more.
    Gone(String),
    /// It may run, and is not to be told.
    Refused(String),
}

impl From<Errno> for Untold {
    fn from(error: Errno) -> Self {
        if error == Errno::SRCH { Self::Gone("it has ended".to_owned()) } else { Self::Refused(error.to_string()) }
    }
}

impl Untold {
    fn because(self, what: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Gone(why) => Self::Gone(what(why)),
            Self::Refused(why) => Self::Refused(what(why)),
        }
    }
}

impl Teller {
    pub(super) fn new(config: SignalActivator) -> Self {
        Self { config, told: Told::Unknown, booted: booted() }
    }

    /// Nobody has been told of the version that is started next.
    pub(super) fn begins(&mut self) {
        self.told = Told::Nobody;
    }

    /// Signals the process that the file names. `Some`: on the way back there was nobody left to be told.
    ///
    /// # Errors
    /// When the file names none, or the number is another's by now; on the way back when that may be the one.
    pub(super) async fn start(&mut self, launch: &Launch) -> Result<Option<Failure>, Failure> {
        let mut told = self.tell(launch);
        for _ in 1..LOOKS {
            if !matches!(&told, Err(Untold::Gone(_))) || launch.trial {
                break;
            }
            sleep(LOOK_AGAIN).await;
            told = self.tell(launch);
        }
        // What fails tells nothing of what went before it.
        if launch.trial
            && let Ok(run) = told
        {
            self.told = Told::Process(run);
        }
        match told {
            Ok(_) => Ok(None),
            Err(Untold::Gone(why)) if !launch.trial => {
                Ok(Some(Failure::of_the_device(format!("nobody is there to be told of {}: {why}", launch.contents.version))))
            }
            // What could not be told of the version that is left has not taken it up.
            Err(Untold::Refused(why)) if !launch.trial && self.told == Told::Nobody => Ok(Some(Failure::of_the_device(why))),
            Err(Untold::Gone(why) | Untold::Refused(why)) => Err(Failure::of_the_device(why)),
        }
    }

    fn tell(&self, launch: &Launch) -> Result<Run, Untold> {
        let file = self.config.pid_file.display();
        let unreadable = |error: io::Error| {
            let why = format!("cannot read the process id in {file}: {error}");
            if error.kind() == io::ErrorKind::NotFound { Untold::Gone(why) } else { Untold::Refused(why) }
        };
        let signal = match self.config.signal {
            TellSignal::Hup => Signal::HUP,
            TellSignal::Usr1 => Signal::USR1,
            TellSignal::Usr2 => Signal::USR2,
            TellSignal::Term => Signal::TERM,
        };
        let open = match open_regular(&self.config.pid_file, Link::Refused).map_err(unreadable) {
            // Its file went; it runs what it was told of.
            Err(gone @ Untold::Gone(_)) => return self.tell_again(signal).unwrap_or(Err(gone)),
            open => open?,
        };
        let stepped_seconds = booted().saturating_sub(self.booted);
        let written = Written { stepped_seconds, ..Written::of(&open).map_err(unreadable)? };
        let text = String::from_utf8_lossy(&read_bounded(open, MOST_BYTES).map_err(unreadable)?).into_owned();
        // 1 is the machine's own first process; 0 and less are groups of processes.
        let number = text.trim().parse::<i32>().ok().filter(|id| *id > 1).and_then(Pid::from_raw);
        let process = number.ok_or_else(|| Untold::Refused(format!("{file} does not hold a process id")))?;
        let may = |run| if self.told == Told::Process(run) { Ok(()) } else { written.names(run, launch.folder()) };
        proc::signal_if(process, signal, may).map_err(|untold: Untold| {
            let number = process.as_raw_nonzero();
            untold.because(|why| format!("{file} names process {number}, which cannot be signalled: {why}"))
        })
    }
}

impl Teller {
    /// Signals the process that was told of the version on trial, if it is still there.
    fn tell_again(&self, signal: Signal) -> Option<Result<Run, Untold>> {
        let Told::Process(run) = self.told else { return None };
        let same = |found| if found == run { Ok(()) } else { Err(Untold::Gone("it has ended".to_owned())) };
        match proc::signal_if(run.process()?, signal, same) {
            Err(Untold::Gone(_)) => None,
            told => Some(told),
        }
    }
}

/// When the machine booted, by the wall clock of now: in seconds since 1970.
fn booted() -> u64 {
    let now = clock::now();
    now.wall.seconds().saturating_sub(now.boot.0 / 1_000)
}

/// What the file itself says, beside its text.
#[derive(Clone, Copy)]
struct Written {
    owner: u32,
    mode: u32,
    /// In seconds since 1970.
    at: u64,
    /// It is gone with the machine's run, whatever the wall clock says.
    of_this_boot: bool,
    /// How far the wall clock was set forward since the agent started: the file may be of before that.
    stepped_seconds: u64,
}

impl Written {
    fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            owner: metadata.uid(),
            mode: metadata.mode(),
            at: u64::try_from(metadata.mtime()).unwrap_or(0),
            of_this_boot: fstatfs(file).is_ok_and(|system| system.f_type == TMPFS),
            stepped_seconds: 0,
        })
    }

    /// Whether it is about this process, and may be.
    fn names(&self, run: Run, folder: Option<&Path>) -> Result<(), Untold> {
        let process = fs::metadata(format!("/proc/{run}")).map_err(|error| Untold::Gone(error.to_string()))?;
        if ![0, geteuid().as_raw(), process.uid()].contains(&self.owner) {
            let why = "the file is neither root's, nor this agent's, nor that process's own";
            return Err(Untold::Refused(why.to_owned()));
        }
        if runs_from(run, folder) {
            return Ok(());
        }
        // Whoever wrote the number could name any process.
        if self.mode & WORLD_WRITABLE != 0 {
            let why = "anybody may write the file, and the process does not run from the product's folder";
            return Err(Untold::Refused(why.to_owned()));
        }
        let booted = booted();
        let started = booted.saturating_add(run.started_ticks / TICKS);
        // Written before the machine booted, by a clock that was set since.
        let by_another_clock = self.of_this_boot && self.at < booted;
        let written = self.at.saturating_add(SLACK_SECONDS).saturating_add(self.stepped_seconds);
        if started <= written || by_another_clock {
            Ok(())
        } else if self.at < booted {
            // Of an earlier run of the machine, or of this one before its clock was set: then the process may be the one.
            Err(Untold::Refused(
                "the file is older than the machine's boot, and the process does not run from the product's folder".to_owned(),
            ))
        } else {
            Err(Untold::Gone("it was started after the file was written".to_owned()))
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

    use groundswell_core::digest::Digest;
    use groundswell_core::install::Contents;
    use groundswell_core::number::Sequence;
    use groundswell_core::text::{Product, Version};

    use super::*;

    fn sleeper() -> (Child, Run) {
        let child = crate::install::forks::starting(|| Command::new("sleep").arg("3600").spawn()).unwrap();
        let run = Run::of(Pid::from_child(&child)).unwrap();
        (child, run)
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// A process that notes each signal in `heard`, once it is up, for as long as that is there.
    fn listener(folder: &Path) -> Child {
        let script = format!(
            "cd {}; trap 'echo told >> heard' USR1; echo up > heard; while test -e heard; do sleep 0.01; done",
            folder.display()
        );
        let child = crate::install::forks::starting(|| Command::new("sh").args(["-c", &script]).spawn()).unwrap();
        has_heard(folder, 0);
        child
    }

    fn has_heard(folder: &Path, times: usize) {
        let began = std::time::Instant::now();
        let heard = || fs::read_to_string(folder.join("heard")).unwrap_or_default();
        while heard().lines().count() != times + 1 {
            assert!(began.elapsed() < Duration::from_secs(60), "told {times} times: {}", heard());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn launch(trial: bool) -> Launch {
        let contents = Contents {
            release: Digest([1; 32]),
            version: Version::new("1.0").unwrap(),
            sequence: Sequence::new(1).unwrap(),
            sha256: Digest([2; 32]),
            size_bytes: 1,
        };
        let slot = Path::new("/nowhere/bcd/slots/a").to_owned();
        let binary = slot.join("bcd");
        Launch { product: Product::new("bcd").unwrap(), contents, slot, binary, claim: None, trial }
    }

    fn teller(folder: &Path) -> Teller {
        Teller::new(SignalActivator { pid_file: folder.join("pid"), signal: TellSignal::Usr1 })
    }

    #[tokio::test]
    async fn a_process_that_was_told_of_the_version_on_trial_is_told_of_the_way_back_although_its_file_went() {
        let folder = tempfile::tempdir().unwrap();
        let child = listener(folder.path());
        fs::write(folder.path().join("pid"), child.id().to_string()).unwrap();
        let mut teller = teller(folder.path());
        assert_eq!(teller.start(&launch(true)).await, Ok(None));
        has_heard(folder.path(), 1);
        fs::remove_file(folder.path().join("pid")).unwrap();
        assert_eq!(teller.start(&launch(false)).await, Ok(None));
        has_heard(folder.path(), 2);
        end(child);
        let met = teller.start(&launch(false)).await.unwrap().expect("nobody is there");
        assert!(met.reason.contains("nobody is there to be told of 1.0"), "{met}");
    }

    #[tokio::test]
    async fn a_file_of_before_the_boot_or_a_step_of_the_clock_may_name_the_one_so_nobody_is_told_and_nothing_ends() {
        let folder = tempfile::tempdir().unwrap();
        let child = listener(folder.path());
        let file = File::create(folder.path().join("pid")).unwrap();
        io::Write::write_all(&mut &file, child.id().to_string().as_bytes()).unwrap();
        let written = |seconds: u64| {
            file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        };
        written(booted() - 60);
        let mut teller = teller(folder.path());
        let refused = teller.start(&launch(false)).await.unwrap_err();
        assert!(refused.reason.contains("older than the machine's boot"), "{refused}");
        assert!(!refused.at_fault);
        // The clock was set forward since the agent started, by more than the file is old: it may be of before that.
        let year = 365 * 86_400;
        teller.booted -= year;
        assert_eq!(teller.start(&launch(false)).await, Ok(None));
        has_heard(folder.path(), 1);
        teller.booted += year;
        // An agent that was told to go on may have told it before it ended, whatever the file says by now.
        assert_eq!(teller.start(&launch(true)).await, Err(refused.clone()));
        assert_eq!(teller.start(&launch(false)).await, Err(refused.clone()));
        // What could not be told of the version on trial has not taken it up.
        teller.begins();
        assert_eq!(teller.start(&launch(true)).await, Err(refused.clone()));
        assert_eq!(teller.start(&launch(false)).await, Ok(Some(refused)));
        has_heard(folder.path(), 1);
        end(child);
    }

    fn written(at: u64) -> Written {
        Written { owner: geteuid().as_raw(), mode: 0o644, at, of_this_boot: false, stepped_seconds: 0 }
    }

    fn is_gone(named: Result<(), Untold>) -> bool {
        matches!(named, Err(Untold::Gone(why)) if why.contains("started after"))
    }

    #[test]
    fn a_number_is_another_s_once_its_process_is_younger_than_the_file() {
        let (child, run) = sleeper();
        let now = clock::wall().seconds();
        assert_eq!(written(now).names(run, None), Ok(()));
        assert!(is_gone(written(now - 60).names(run, None)));
        // `sleep` runs from there.
        let home = fs::canonicalize(fs::read_link(format!("/proc/{run}/exe")).unwrap()).unwrap();
        assert_eq!(written(now - 60).names(run, home.parent()), Ok(()));
        // A machine without a battery for its clock wrote it in 1970, into memory.
        assert_eq!(Written { of_this_boot: true, ..written(7) }.names(run, None), Ok(()));
        assert!(written(7).names(run, None).is_err(), "on a disk it may be of an earlier boot");
        end(child);
    }

    #[test]
    fn a_clock_that_was_set_forward_makes_no_process_younger_than_its_file() {
        let (child, run) = sleeper();
        let now = clock::wall().seconds();
        // Written a moment after the process was started, half a minute before by what the clock says now: no machine is that young.
        let before = Written { stepped_seconds: 30, ..written(now - 30) };
        assert_eq!(before.names(run, None), Ok(()));
        assert!(is_gone(Written { at: now - 60, ..before }.names(run, None)), "no further");
        end(child);
    }

    #[test]
    fn a_file_of_somebody_else_names_nobody_and_one_that_anybody_may_write_only_who_runs_from_the_folder() {
        let (child, run) = sleeper();
        let at = clock::wall().seconds();
        let other = Written { owner: geteuid().as_raw() + 1, ..written(at) };
        let home = fs::canonicalize(fs::read_link(format!("/proc/{run}/exe")).unwrap()).unwrap();
        let refused = |named, said: &str| matches!(named, Err(Untold::Refused(why)) if why.contains(said));
        for folder in [None, home.parent()] {
            assert!(refused(other.names(run, folder), "neither root's"));
        }
        // As `daemon` leaves it where nothing is masked.
        let open = Written { mode: 0o666, ..written(at) };
        assert!(refused(open.names(run, None), "anybody may write"));
        assert_eq!(open.names(run, home.parent()), Ok(()));
        end(child);
    }
}

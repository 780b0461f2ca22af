//! Telling a process that runs already, by a signal, to take up what `current` leads to now.

use rustix::process::{Pid, Signal, kill_process};

use crate::config::{SignalActivator, TellSignal};
use crate::install::disk::Failure;
use crate::install::durable::read_named_text;

/// A longer file holds no process id.
const MOST_BYTES: u64 = 4 * 1024;

/// Signals the process that the file names.
///
/// # Errors
/// When the file names none, or it is gone.
pub(super) fn tell(config: &SignalActivator) -> Result<(), Failure> {
    let file = config.pid_file.display();
    let text = read_named_text(&config.pid_file, MOST_BYTES)
        .map_err(|error| Failure::broken(format!("cannot read the process id in {file}: {error}")))?;
    // 1 is the machine's own first process; 0 and less are groups of processes.
    let process = text
        .trim()
        .parse::<i32>()
        .ok()
        .filter(|id| *id > 1)
        .and_then(Pid::from_raw)
        .ok_or_else(|| Failure::broken(format!("{file} does not hold a process id")))?;
    let signal = match config.signal {
        TellSignal::Hup => Signal::HUP,
        TellSignal::Usr1 => Signal::USR1,
        TellSignal::Usr2 => Signal::USR2,
        TellSignal::Term => Signal::TERM,
    };
    kill_process(process, signal)
        .map_err(|error| Failure::broken(format!("process {} of {file} cannot be signalled: {error}", process.as_raw_nonzero())))
}

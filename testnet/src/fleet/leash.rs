//! A leash: runs a command that dies with whoever started it, however that ends.
//!
//! The kernel sends the signal when the thread that started the command ends; the command is the leash's own process.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Becomes `command`, killed when the parent thread ends. `parent` is the process that is expected as the parent.
/// Returns only when that fails.
#[must_use]
pub fn become_leashed(parent: i32, command: &[OsString]) -> io::Error {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // It may have ended before the line above.
    if getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(parent) {
        return io::Error::other("the process that started this is gone already");
    }
    match command.split_first() {
        Some((program, arguments)) => Command::new(program).args(arguments).exec(),
        None => io::Error::new(io::ErrorKind::InvalidInput, "no command is named"),
    }
}

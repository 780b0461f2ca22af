//! What this agent itself may lack, which says nothing of whomever it asks or starts (case I6); and what is said of a file
//! that does not run.

use std::io;

use rustix::io::Errno;

/// Whether an error says that this agent lacks something: files, processes, memory, ports; or that a program cannot be started
/// now because somebody still has it open for writing.
pub(crate) fn is_scarcity(error: &io::Error) -> bool {
    let own = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::AGAIN, Errno::ADDRNOTAVAIL, Errno::TXTBSY];
    Errno::from_io_error(error).is_some_and(|errno| own.contains(&errno))
}

/// Whether an error of an attempt to run a file says something of the file, or of what it names as its interpreter, and holds
/// for every try. All else is said of the machine.
pub(crate) fn is_of_the_file(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| [Errno::NOEXEC, Errno::NOENT, Errno::LIBBAD].contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i6_what_the_agent_itself_lacks_fails_no_version() {
        for own in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN, Errno::ADDRNOTAVAIL, Errno::TXTBSY] {
            assert!(is_scarcity(&own.into()), "{own}");
        }
        for other in [Errno::CONNREFUSED, Errno::NOENT, Errno::ACCESS, Errno::NOEXEC] {
            assert!(!is_scarcity(&other.into()), "{other}");
        }
    }
}

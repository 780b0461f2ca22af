//! The running agent: started, watched, signalled, waited for.
//!
//! A confirmed build inherits stdout and stderr. Those of a build on trial are read, kept to the last lines for the verdict
//! (case I7), and written on unchanged.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use groundswell_core::install::supervision::End;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, waitid, waitpid};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::task::{JoinSet, spawn_blocking};

use super::notify::{Heard, Listener, SIGNS, STANDARD_INPUT};
use super::program::Program;
use super::{PRIVATE, RESTART};
use crate::install::activate::output::Tail;
use crate::install::activate::proc::ended_children;
use crate::install::activate::process::{finish_output, said, signal};
use crate::install::forks;

/// Read at once.
const CHUNK_BYTES: usize = 8 * 1024;

/// The agent's process, leader of a group of its own: what a terminal sends reaches it by its supervisor alone.
#[derive(Debug)]
pub struct Child {
    process: Pid,
    listener: Listener,
    tail: Tail,
    readers: JoinSet<()>,
    /// Signals that mean nothing to an agent that is up, and end one that is not: it has not said how it takes them yet. `None`
    /// once it is up.
    owed: Option<Vec<Signal>>,
}

impl Child {
    /// Starts `PROGRAM agent --config CONFIG` with these variables, and without what this process got for itself.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(program: &Program, config: &Path, variables: &[(&str, String)], keep_output: bool) -> io::Result<Self> {
        let (listener, end) = Listener::pair()?;
        let mut command = program.command()?;
        // The supervisor's own copy of the agent's end goes with the command.
        command.arg("agent").arg("--config").arg(config).stdin(Stdio::from(end)).process_group(0);
        for name in PRIVATE {
            command.env_remove(name);
        }
        command.env(SIGNS, STANDARD_INPUT).envs(variables.iter().map(|(name, value)| (name, value)));
        if keep_output {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let mut child = forks::started(|| command.spawn()).await?;
        let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let process = process.ok_or_else(|| io::Error::other("the kernel gave a process no number"))?;
        let (tail, mut readers) = (Tail::default(), JoinSet::new());
        if let Some(stdout) = child.stdout.take() {
            readers.spawn(pass_on(OwnedFd::from(stdout), tail.clone(), io::stdout));
        }
        if let Some(stderr) = child.stderr.take() {
            readers.spawn(pass_on(OwnedFd::from(stderr), tail.clone(), io::stderr));
        }
        // Waited for by the keeper, when the kernel says that a child has ended.
        Ok(Self { process, listener, tail, readers, owed: Some(Vec::new()) })
    }

    /// Its process id.
    #[must_use]
    pub fn process(&self) -> Pid {
        self.process
    }

    /// What it says next. Cancel safe.
    pub async fn hear(&self) -> Vec<Heard> {
        self.listener.hear(self.process).await
    }

    /// What it has said already, without waiting.
    #[must_use]
    pub fn heard(&self) -> Vec<Heard> {
        self.listener.heard(self.process)
    }

    /// Passes a signal on to it that means no end, once it is up.
    pub fn pass_on(&mut self, signal: Signal) {
        match &mut self.owed {
            Some(owed) if owed.contains(&signal) => {}
            Some(owed) => owed.push(signal),
            None => self.tell(signal),
        }
    }

    /// It has said that it is up.
    pub fn is_up(&mut self) {
        self.owed.take().into_iter().flatten().for_each(|signal| self.tell(signal));
    }

    /// Sends it a signal.
    pub fn tell(&self, signal: Signal) {
        // One that has just ended needs no signal.
        let _ = kill_process(self.process, signal);
    }

    /// Kills it, wherever it has gone, with all that it left in its group. Call it only before it is waited for.
    pub fn kill(&self) {
        signal(self.process, Signal::KILL);
        self.tell(Signal::KILL);
    }

    /// How it ended, once `status` is known.
    pub async fn ended(self, status: ExitStatus) -> End {
        finish_output(self.readers).await;
        let output = self.tail.text();
        let how = format!("the agent ended with {}", said(status));
        let signalled = status.signal().and_then(|signal| u8::try_from(signal).ok()).map(|signal| signal.saturating_add(128));
        let code = status.code().and_then(|code| u8::try_from(code).ok()).or(signalled).unwrap_or(1);
        let said = if output.is_empty() { how } else { format!("{how}: {output}") };
        End { code, asked: status.code() == Some(i32::from(RESTART)), said }
    }
}

/// Whether a child has ended. It is not waited for: its number stays its own.
#[must_use]
pub fn has_ended(process: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(process), look), Ok(Some(_)))
}

/// How a child ended, which is waited for by that; `None` while it runs.
#[must_use]
pub fn status_of(process: Pid) -> Option<ExitStatus> {
    loop {
        match waitpid(Some(process), WaitOptions::NOHANG) {
            Ok(ended) => return ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw())),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Waits for all children that have ended, but for `agent`: what came to this process as its orphans. The kernel does not
/// say which, so each is waited for by its number: the agent may end while this looks.
pub fn reap_others(agent: Option<Pid>) {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if let Ok(Some(_)) = waitid(WaitId::All, look) {
        ended_children().into_iter().filter(|child| Some(*child) != agent).for_each(|child| {
            let _ = status_of(child);
        });
    }
}

/// Reads a pipe to its end. What cannot be written on is lost: output never stops what it tells of. A reader of this
/// process's own output that does not read holds up the agent, as it would without a supervisor, and nothing else.
async fn pass_on<W: Write + 'static>(pipe: OwnedFd, tail: Tail, out: fn() -> W) {
    let mut pipe = match Receiver::from_owned_fd(pipe) {
        Ok(pipe) => pipe,
        Err(error) => return tracing::warn!(%error, "the agent's output cannot be read"),
    };
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let read = match pipe.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => read,
        };
        let chunk = buffer.get(..read).unwrap_or_default().to_vec();
        tail.push(&chunk);
        let _ = spawn_blocking(move || out().write_all(&chunk).and_then(|()| out().flush())).await;
    }
}

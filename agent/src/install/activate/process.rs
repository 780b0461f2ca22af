//! Running one command to its end: own process group, time limit, last lines of output.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::output::{BoundedLog, Tail, drain};
use crate::install::forks;
use crate::supervise::PRIVATE;

/// How long the pipes of a process that has ended may stay open: what it left behind in the background may hold them.
const PIPES_CLOSE: Duration = Duration::from_millis(500);

/// What became of a command.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How it ended.
    pub ended: Ended,
    /// The last lines of its output.
    pub output: String,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Status(ExitStatus),
    /// It took too long, and its process group was killed.
    TimedOut,
}

/// Kills a process group when it is dropped.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            signal(group, Signal::KILL);
        }
    }
}

/// Sends a signal to a whole process group; one that is gone is fine.
pub(crate) fn signal(group: Pid, signal: Signal) {
    if let Err(error) = kill_process_group(group, signal)
        && error != rustix::io::Errno::SRCH
    {
        tracing::warn!(group = group.as_raw_nonzero(), %error, "a process group cannot be signalled");
    }
}

/// The process group of a child that leads one; `None` once it was waited for.
pub(super) fn group(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

/// Spawns a command as leader of a new process group, without input, its output piped, and without what is between this
/// agent and whoever started it: a service that finds the agent's `NOTIFY_SOCKET` would speak for the agent.
pub(super) async fn spawn(argv: &[String], environment: &[(String, String)]) -> io::Result<Child> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program is named"));
    };
    let mut command = Command::new(program);
    for name in PRIVATE {
        command.env_remove(name);
    }
    command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    forks::started(|| command.spawn()).await
}

/// Reads both outputs of a child until they close.
pub(super) fn read_output(
    child: &mut Child,
    tail: &Tail,
    log: Option<std::sync::Arc<std::sync::Mutex<BoundedLog>>>,
) -> JoinSet<()> {
    let mut readers = JoinSet::new();
    if let Some(stdout) = child.stdout.take() {
        readers.spawn(drain(stdout, tail.clone(), log.clone()));
    }
    if let Some(stderr) = child.stderr.take() {
        readers.spawn(drain(stderr, tail.clone(), log));
    }
    readers
}

/// Waits until the readers have read everything, or gives up on pipes that something holds open.
pub(crate) async fn finish_output(mut readers: JoinSet<()>) {
    let all = async { while readers.join_next().await.is_some() {} };
    // Dropping the set ends readers whose pipe stays open.
    let _ = timeout(PIPES_CLOSE, all).await;
}

/// Runs a command to its end. Dropping the future kills its process group.
///
/// What it leaves running in the background on success goes on: an activator may start a daemon.
///
/// # Errors
/// When it cannot be started.
pub async fn run(argv: &[String], environment: &[(String, String)], limit: Duration) -> io::Result<Finished> {
    let mut child = spawn(argv, environment).await?;
    let mut guard = Group(group(&child));
    let tail = Tail::default();
    let readers = read_output(&mut child, &tail, None);
    let ended = match timeout(limit, child.wait()).await {
        Ok(status) => {
            let status = status?;
            guard.0 = None;
            Ended::Status(status)
        }
        Err(_) => {
            drop(guard);
            child.wait().await?;
            Ended::TimedOut
        }
    };
    finish_output(readers).await;
    Ok(Finished { ended, output: tail.text() })
}

/// An exit status in words.
#[must_use]
pub fn said(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}

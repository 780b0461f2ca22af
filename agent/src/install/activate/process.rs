//! Running one command to its end: own process group, time limit, last lines of output.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::leftover::{self, Note};
use super::output::{BoundedLog, Tail, drain};
use crate::install::forks;
use crate::supervise::PRIVATE;

/// How long the pipes of a process that has ended may stay open: what it left behind in the background may hold them.
const PIPES_CLOSE: Duration = Duration::from_millis(500);
/// In how many parts that is waited for. Where this process itself stood still that counts as one of them: what was printed is read
/// in the next.
const PIPES_LOOKS: u32 = 5;
/// How long what took too long may take to end once it is told to, SIGTERM being the request: no longer than it was given before.
const TOLD_WITHIN: Duration = Duration::from_secs(10);
/// How long a killed process may take to end. One that takes longer waits for a disk, or may not be killed by this agent: it is
/// left to itself.
const KILLED_WITHIN: Duration = Duration::from_secs(3);
/// Of standard output alone so much is kept beside the last lines of both.
const STDOUT_BYTES: usize = 4 * 1024;

/// What became of a command.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How it ended.
    pub ended: Ended,
    /// The last lines of its output.
    pub output: String,
    /// What it said on standard output alone: the last 4 KiB, line by line as it was.
    pub stdout: String,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Status(ExitStatus),
    /// It took too long, or whoever waits for it wants its end: its process group was told to end, and killed where it did not.
    TimedOut,
}

tokio::task_local! {
    /// Of those who wait for commands: whether they want their end, and how long that may take then.
    static TOLD: (watch::Receiver<bool>, Duration);
}

/// Does `work`; once `told` is true, the command that it waits for is told to end, and so is each that follows: `within` this
/// time, and then it is killed.
pub(crate) async fn until_told<T>(told: watch::Receiver<bool>, within: Duration, work: impl Future<Output = T>) -> T {
    TOLD.scope((told, within), work).await
}

/// Done once commands are to end: within which time. Cancel safe.
async fn told() -> Duration {
    if let Ok((mut told, within)) = TOLD.try_with(Clone::clone)
        && told.wait_for(|told| *told).await.is_ok()
    {
        return within;
    }
    std::future::pending().await
}

/// Kills a child that is not waited for, and its process group, when it is dropped.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            signal(leader, Signal::KILL);
            // It may have gone to another group.
            let _ = kill_process(leader, Signal::KILL);
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
    read_both(child, &[tail], tail, log)
}

fn read_both(
    child: &mut Child,
    stdout_tails: &[&Tail],
    tail: &Tail,
    log: Option<std::sync::Arc<std::sync::Mutex<BoundedLog>>>,
) -> JoinSet<()> {
    let mut readers = JoinSet::new();
    if let Some(stdout) = child.stdout.take() {
        readers.spawn(drain(stdout, stdout_tails.iter().copied().cloned().collect(), log.clone()));
    }
    if let Some(stderr) = child.stderr.take() {
        readers.spawn(drain(stderr, vec![tail.clone()], log));
    }
    readers
}

/// Waits until the readers have read everything, or gives up on pipes that something holds open.
pub(crate) async fn finish_output(mut readers: JoinSet<()>) {
    for _ in 0..PIPES_LOOKS {
        let all = async { while readers.join_next().await.is_some() {} };
        if timeout(PIPES_CLOSE / PIPES_LOOKS, all).await.is_ok() {
            return;
        }
    }
    // Dropping the set ends readers whose pipe stays open.
}

/// Runs a command to its end. Dropping the future kills its process group.
///
/// What it leaves running in the background on success goes on: an activator may start a daemon. One that takes longer than
/// `limit` is told to end, then killed; where that does not end it within seconds either, it is left behind, and nobody waits
/// for it.
///
/// # Errors
/// When it cannot be started.
pub async fn run(argv: &[String], environment: &[(String, String)], limit: Duration) -> io::Result<Finished> {
    let child = spawn(argv, environment).await?;
    finish(child, limit, |child| Group(group(child))).await
}

/// The same, for what must not go on when this agent is killed: it is written down in `folder` while it runs, and the next
/// start of the agent ends it.
pub(super) async fn run_noted(
    argv: &[String],
    environment: &[(String, String)],
    limit: Duration,
    folder: &Path,
) -> io::Result<Finished> {
    let child = spawn(argv, environment).await?;
    if let Some(leader) = group(&child) {
        Note::COMMAND.remember(folder, leader);
    }
    let finished = finish(child, limit, |child| Group(group(child))).await;
    Note::COMMAND.forget(folder);
    finished
}

/// Waits for a child. What `killer` makes ends it when it is dropped.
async fn finish(mut child: Child, limit: Duration, killer: impl Fn(&Child) -> Group) -> io::Result<Finished> {
    let mut guard = killer(&child);
    let (tail, stdout) = (Tail::default(), Tail::of(STDOUT_BYTES));
    let readers = read_both(&mut child, &[&tail, &stdout], &tail, None);
    let ended = tokio::select! {
        status = child.wait() => Ok(status?),
        () = sleep(limit) => Err(TOLD_WITHIN.min(limit)),
        within = told() => Err(within),
    };
    let ended = match ended {
        Ok(status) => {
            guard.0 = None;
            Ended::Status(status)
        }
        Err(within) => {
            // Not waited for meanwhile, its number stays its own, and that of its group.
            if let Some(leader) = guard.0 {
                leftover::tell_to_end(leader, within).await;
            }
            drop(guard);
            if timeout(KILLED_WITHIN, child.wait()).await.is_err() {
                tracing::error!(process = child.id(), "a command that took too long cannot be killed and is left behind");
            }
            Ended::TimedOut
        }
    };
    finish_output(readers).await;
    Ok(Finished { ended, output: tail.text(), stdout: stdout.raw() })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[tokio::test]
    async fn nobody_waits_for_a_command_that_cannot_be_killed() {
        let child = spawn(&shell("echo up; exec sleep 3600"), &[]).await.unwrap();
        let process = group(&child).unwrap();
        // As where the kernel does not let this agent signal it, or it waits for a disk for ever.
        let finished = finish(child, Duration::from_secs(3), |_| Group(None)).await.unwrap();
        assert_eq!((finished.ended, finished.output.as_str()), (Ended::TimedOut, "up"));
        kill_process(process, Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn what_does_not_listen_when_its_time_is_over_is_killed_after_as_much_time_again() {
        let began = tokio::time::Instant::now();
        let deaf = shell("trap '' TERM; while :; do sleep 0.05; done");
        let finished = run(&deaf, &[], Duration::from_millis(200)).await.unwrap();
        assert_eq!(finished.ended, Ended::TimedOut);
        assert!(began.elapsed() < TOLD_WITHIN / 2, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn whoever_wants_the_end_of_a_command_says_how_long_that_may_take() {
        for (within, output) in [(Duration::from_secs(36_000), "up\nnoted\n"), (Duration::ZERO, "up\n")] {
            let (folder, (tell, told)) = (tempfile::tempdir().unwrap(), watch::channel(false));
            let up = folder.path().join("up");
            let script = "trap 'sleep 0.5; echo noted; exit' TERM; echo up; touch UP; while :; do sleep 0.02; done";
            let child = spawn(&shell(&script.replace("UP", &up.display().to_string())), &[]).await.unwrap();
            let day = Duration::from_secs(86_400);
            let mut running = std::pin::pin!(until_told(told, within, finish(child, day, |child| Group(group(child)))));
            let listens = async {
                while !up.exists() {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                finished = &mut running => panic!("{within:?}: {finished:?}"),
                () = listens => {}
            }
            tell.send_replace(true);
            assert_eq!(running.await.unwrap().stdout, output, "{within:?}");
        }
    }

    #[tokio::test]
    async fn what_was_printed_is_read_although_this_process_stood_still_for_longer_than_pipes_may_stay_open() {
        let mut child = spawn(&shell("echo up"), &[]).await.unwrap();
        let tail = Tail::default();
        let readers = read_output(&mut child, &tail, None);
        tokio::spawn(async { std::thread::sleep(PIPES_CLOSE * 2) });
        finish_output(readers).await;
        assert_eq!(tail.text(), "up");
        child.wait().await.unwrap();
    }

    #[tokio::test]
    async fn standard_output_is_kept_apart_from_errors() {
        let finished = run(&shell("echo one; echo noise >&2; echo two"), &[], Duration::from_secs(60)).await.unwrap();
        assert_eq!(finished.stdout, "one\ntwo\n");
        assert!(finished.output.contains("noise"));
    }
}

//! Keeps the process of one product running: a task that owns the child.
//!
//! It starts again what ended, with a growing pause; it stops by SIGTERM, then SIGKILL, always the whole process
//! group. Nothing here judges the version: [`ProcessState`] tells the health check how often it ended.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tokio::process::Child;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use super::launch::Launch;
use super::leftover::{self, Note};
use super::output::{BoundedLog, Tail};
use super::process::{finish_output, group, read_output, said, signal, spawn};
use crate::config::Supervise;
use crate::install::disk::Failure;

/// How the supervised process fares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessState {
    /// Since when it runs; `None` while it does not.
    pub since: Option<Instant>,
    /// How often it has ended by itself since the version was started.
    pub ends: u32,
    /// How it last ended, with the last lines of its output.
    pub last_end: String,
}

/// The handle of the task.
#[derive(Debug)]
pub struct Supervisor {
    orders: mpsc::Sender<Order>,
    state: watch::Receiver<ProcessState>,
    tail: Tail,
    task: JoinHandle<()>,
}

#[derive(Debug)]
enum Order {
    Run { launch: Box<Launch>, anew: bool, answer: oneshot::Sender<Result<(), Failure>> },
    Stop { answer: oneshot::Sender<()> },
}

impl Supervisor {
    /// Starts the task; no process yet. `folder` is the product's.
    #[must_use]
    pub fn start(config: Supervise, folder: PathBuf) -> Self {
        // One order at a time: the device waits for each answer.
        let (orders, receiver) = mpsc::channel(1);
        let (state, watched) = watch::channel(ProcessState::default());
        let tail = Tail::default();
        let log = BoundedLog::new(folder.join("log").join("output.log"), config.log_bytes);
        let keeper =
            Keeper { config, folder, log: Arc::new(Mutex::new(log)), tail: tail.clone(), state, launch: None, child: None };
        Self { orders, state: watched, tail, task: tokio::spawn(keeper.live(receiver)) }
    }

    /// Runs a version in place of the one that runs; unless `anew`, one that runs already is left alone.
    ///
    /// # Errors
    /// When it cannot be started. It is then tried again like one that ended, until the next order.
    pub async fn run(&self, launch: Launch, anew: bool) -> Result<(), Failure> {
        let (answer, answered) = oneshot::channel();
        let gone = || Failure::of_the_device("the supervisor's task is gone");
        self.orders.send(Order::Run { launch: Box::new(launch), anew, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    /// Stops the process; nothing takes its place.
    pub async fn stop(&self) {
        let (answer, answered) = oneshot::channel();
        if self.orders.send(Order::Stop { answer }).await.is_ok() {
            let _ = answered.await;
        }
    }

    /// How the process fares.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<ProcessState> {
        self.state.clone()
    }

    /// The last lines of output of the version that was started last.
    #[must_use]
    pub fn output(&self) -> String {
        self.tail.text()
    }

    /// Stops the process and ends the task.
    pub async fn shutdown(self) {
        self.stop().await;
        drop(self.orders);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the supervisor's task failed");
        }
    }
}

struct Keeper {
    config: Supervise,
    folder: PathBuf,
    log: Arc<Mutex<BoundedLog>>,
    tail: Tail,
    state: watch::Sender<ProcessState>,
    launch: Option<Launch>,
    child: Option<Running>,
}

struct Running {
    child: Child,
    group: Option<Pid>,
    readers: JoinSet<()>,
}

impl Running {
    /// Waits until the child has ended. Its number, and that of its group, are still its own then. Cancel safe.
    async fn ends(&mut self) {
        let Some((process, mut ends)) = self.group.zip(unix::signal(SignalKind::child()).ok()) else {
            // Told again by the wait that follows.
            return drop(self.child.wait().await);
        };
        while !has_ended(process) {
            ends.recv().await;
        }
    }

    /// Kills what is left in the group, and takes the child's status.
    async fn finish(&mut self) -> std::io::Result<ExitStatus> {
        if let Some(group) = self.group {
            signal(group, Signal::KILL);
        }
        self.child.wait().await
    }
}

enum Happened {
    Order(Option<Order>),
    Ended(std::io::Result<ExitStatus>),
    Due,
}

impl Keeper {
    async fn live(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut backoff = self.config.restart.backoff;
        let mut due: Option<Instant> = None;
        loop {
            let happened = tokio::select! {
                order = orders.recv() => Happened::Order(order),
                ended = wait(self.child.as_mut()) => Happened::Ended(ended),
                () = until(due) => Happened::Due,
            };
            match happened {
                // The device is gone without a word, as in a crash: the next start finds the process.
                Happened::Order(None) => return,
                Happened::Order(Some(Order::Stop { answer })) => {
                    due = None;
                    self.launch = None;
                    self.stop().await;
                    self.state.send_replace(ProcessState::default());
                    let _ = answer.send(());
                }
                Happened::Order(Some(Order::Run { launch, anew, answer })) => {
                    let same = self.launch.as_ref().is_some_and(|running| running.binary == launch.binary);
                    if same && !anew && (self.child.is_some() || due.is_some()) {
                        let _ = answer.send(Ok(()));
                        continue;
                    }
                    self.stop().await;
                    self.tail.clear();
                    self.launch = Some(*launch);
                    self.state.send_replace(ProcessState::default());
                    backoff = self.config.restart.backoff;
                    let started = self.spawn().await;
                    due = started.is_err().then(|| Instant::now() + backoff);
                    let _ = answer.send(started);
                }
                Happened::Ended(status) => {
                    let ran = self.state.borrow().since.map_or(Duration::ZERO, |since| since.elapsed());
                    if ran >= self.config.restart.stable_after {
                        backoff = self.config.restart.backoff;
                    }
                    let how = match status {
                        Ok(status) => format!("the process ended with {}", said(status)),
                        Err(error) => format!("the process cannot be waited for: {error}"),
                    };
                    self.ended(how).await;
                    due = Some(Instant::now() + backoff);
                    backoff = (backoff * 2).min(self.config.restart.backoff_max);
                }
                Happened::Due => {
                    due = None;
                    if let Err(failure) = self.spawn().await {
                        self.note_end(failure.reason);
                        due = Some(Instant::now() + backoff);
                        backoff = (backoff * 2).min(self.config.restart.backoff_max);
                    }
                }
            }
        }
    }

    async fn spawn(&mut self) -> Result<(), Failure> {
        let Some(launch) = &self.launch else { return Ok(()) };
        let argv = launch.fill_all(&self.config.run);
        // The last one of a name counts: the configuration cannot hide what finds the process again.
        let mut environment: Vec<_> = self.config.env.iter().map(|(name, value)| (name.clone(), launch.fill(value))).collect();
        environment.extend(launch.environment());
        environment.push((leftover::MARK.to_owned(), self.folder.display().to_string()));
        let name = argv.first().cloned().unwrap_or_default();
        let mut child = spawn(&argv, &environment).await.map_err(|error| launch.cannot_run(&name, &error))?;
        let group = group(&child);
        if let Some(process) = group {
            Note::RUN.remember(&self.folder, process);
        }
        let readers = read_output(&mut child, &self.tail, Some(Arc::clone(&self.log)));
        self.child = Some(Running { child, group, readers });
        self.state.send_modify(|state| state.since = Some(Instant::now()));
        tracing::info!(product = %launch.product, version = %launch.contents.version, "started");
        Ok(())
    }

    /// It ended by itself, and what it left in its group went too.
    async fn ended(&mut self, how: String) {
        if let Some(running) = self.child.take() {
            finish_output(running.readers).await;
        }
        Note::RUN.forget(&self.folder);
        self.note_end(how);
    }

    fn note_end(&self, how: String) {
        let output = self.tail.text();
        let last_end = if output.is_empty() { how } else { format!("{how}: {output}") };
        tracing::warn!(folder = %self.folder.display(), "{last_end}");
        self.state.send_modify(|state| {
            state.since = None;
            state.ends = state.ends.saturating_add(1);
            state.last_end = last_end;
        });
    }

    /// SIGTERM, and SIGKILL when it takes too long; the whole group, so nothing stays behind.
    async fn stop(&mut self) {
        let Some(mut running) = self.child.take() else { return };
        if let Some(group) = running.group {
            signal(group, Signal::TERM);
            if timeout(self.config.stop_timeout, running.ends()).await.is_err() {
                tracing::warn!(folder = %self.folder.display(), "did not end on SIGTERM and is killed");
            }
        }
        if let Err(error) = running.finish().await {
            tracing::warn!(%error, "a stopped process cannot be waited for");
        }
        finish_output(running.readers).await;
        Note::RUN.forget(&self.folder);
    }
}

/// Whether a child has ended, without waiting for it: what has its number is still the child.
fn has_ended(child: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(child), look), Ok(None))
}

/// Cancel safe, as `Child::wait` is.
async fn wait(running: Option<&mut Running>) -> std::io::Result<ExitStatus> {
    match running {
        Some(running) => {
            running.ends().await;
            running.finish().await
        }
        None => std::future::pending().await,
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

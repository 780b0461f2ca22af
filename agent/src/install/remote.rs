//! Installs that a helper carries out: the agent's side of `swell helper`, in the place of an executor of its own.
//!
//! Before it asks, it shows the documents that the node itself decided by; with the order to stage it hands over the open
//! artifact. A helper that does not answer is asked again; one that was asked and then broke off may have done it, and
//! doing it twice is doing it once.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use groundswell_core::digest::Digest;
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Fault, Recovered, Report};
use groundswell_core::text::{Product, Reason};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::activate::Launch;
use super::artifact::ArtifactSource;
use super::executor::Outcome;
use crate::effects::blocking;
use crate::helper::channel::{self, ReadError};
use crate::helper::wire::{self, GoingBack, Kind, LastFailure, Order, Reply, State, TakenBack, Why, decode_reply, encode_order};

/// From one try to reach the helper to the next.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a frame may take to be handed over.
const HAND_OVER: Duration = Duration::from_secs(10);
/// A switch that the helper has not even heard of is given up after this: the node's clock runs.
const UNHEARD: Duration = Duration::from_secs(30);

/// What the device's task and its handle both know of a remote.
#[derive(Debug, Default)]
pub struct Shown {
    /// The documents by which the node decided to activate, taken at that very moment.
    papers: Mutex<Vec<Vec<u8>>>,
    /// The helper does not answer.
    silent: AtomicBool,
}

impl Shown {
    /// Takes down what the node decides by now. The mesh may bring other documents before the step is carried out; what
    /// they order, the node orders then.
    pub fn take_down(&self, source: &dyn ArtifactSource, product: &Product) {
        *self.papers.lock().unwrap_or_else(PoisonError::into_inner) = source.papers(product);
    }

    /// Whether the helper does not answer.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }
}

/// The helper, as one product's device sees it.
pub struct Remote {
    product: Product,
    socket: PathBuf,
    source: Arc<dyn ArtifactSource>,
    shown: Arc<Shown>,
    stopping: watch::Receiver<bool>,
    connection: Option<UnixStream>,
    /// What it has taken over this connection: digests of published forms.
    taken: BTreeSet<Digest>,
    starts: u64,
    launch: Option<Launch>,
}

/// Why there is no reply.
enum NoReply {
    /// The order was not handed over.
    Unheard(io::Error),
    /// It was, and then the connection broke.
    Broken(io::Error),
}

impl Remote {
    /// A remote that has not spoken yet; `recover` comes first.
    #[must_use]
    pub fn new(
        product: Product,
        socket: PathBuf,
        source: Arc<dyn ArtifactSource>,
        shown: Arc<Shown>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let (connection, launch) = (None, None);
        Self { product, socket, source, shown, stopping, connection, taken: BTreeSet::new(), starts: 0, launch }
    }

    /// What runs, and the number of its start.
    #[must_use]
    pub fn running(&self) -> (u64, Option<Launch>) {
        (self.starts, self.launch.clone())
    }

    /// What there is, once the helper has finished its own recovery; `None` when the device stops before that.
    pub async fn recover(&mut self) -> Option<Recovered> {
        let order = Order::State { product: self.product.clone() };
        loop {
            let Some(failed) = self.last_failure().await else {
                self.pause().await?;
                continue;
            };
            let told = match self.ask(&order, None).await {
                Ok(Reply::State(state)) => Some((state, None)),
                Ok(Reply::GoesBack(going_back, state)) => Some((state, Some(going_back))),
                Ok(reply) => {
                    tracing::error!(product = %self.product, "the helper does not tell what there is: {}", said(&reply));
                    None
                }
                Err(NoReply::Unheard(error) | NoReply::Broken(error)) => {
                    self.note_silence(&error);
                    None
                }
            };
            if let Some((state, going_back)) = told {
                self.learn(&state);
                return Some(recovered(state, going_back, failed));
            }
            self.pause().await?;
        }
    }

    /// The last upgrade that went back for a fault of its build: this agent may have ended before it could write that down. `None`
    /// where nothing tells at present; a helper that does not know the question has nothing to say.
    async fn last_failure(&mut self) -> Option<Option<LastFailure>> {
        match self.ask(&Order::Failed { product: self.product.clone() }, None).await {
            Ok(Reply::Failed(failed)) => Some(failed),
            Ok(Reply::Refused { why: Why::Frame, .. }) => Some(None),
            Ok(reply) => {
                tracing::error!(product = %self.product, "the helper does not tell what failed: {}", said(&reply));
                None
            }
            // It answers, in words of another build.
            Err(NoReply::Broken(error)) if error.kind() == io::ErrorKind::InvalidData => Some(None),
            Err(NoReply::Unheard(error) | NoReply::Broken(error)) => {
                self.note_silence(&error);
                None
            }
        }
    }

    /// Has a step carried out.
    pub async fn execute(&mut self, step: &Step) -> Outcome {
        let product = self.product.clone();
        match step {
            Step::Stage { install } => {
                let source = Arc::clone(&self.source);
                let papers = blocking(move || source.papers(&product)).await;
                self.stage(install, &papers).await
            }
            Step::Activate { install, claim, .. } => {
                let papers = self.shown.papers.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let order = Order::Activate { product, release: install.release, claim: *claim };
                self.activate(install.release, &order, &papers).await
            }
            Step::Confirm { release } => {
                let order = Order::Confirm { product, release: *release };
                self.insist(*release, &order).await
            }
            Step::Revert { release, reason, at_fault } => {
                let (release, at_fault) = (*release, *at_fault);
                let order = Order::Revert { product, release, reason: reason.clone(), at_fault };
                self.insist(release, &order).await
            }
            Step::Fetch { .. } | Step::CancelFetch { .. } => {
                tracing::warn!(product = %self.product, "a fetch is not for the device");
                Outcome::Nothing
            }
        }
    }

    async fn stage(&mut self, install: &Install, papers: &[Vec<u8>]) -> Outcome {
        let release = install.release;
        let failed = |fault, reason| Outcome::Report(Report::StageFailed { release, fault, reason });
        let sha256 = Digest::from(install.artifact.sha256);
        let order = Order::Stage { product: self.product.clone(), release };
        let source = Arc::clone(&self.source);
        let file = match blocking(move || source.open(&sha256)).await {
            Ok(file) => file,
            Err(error) => {
                let reason = Reason::lossy(&format!("cannot open the artifact {sha256}: {error}"));
                return failed(Fault::Broken, reason);
            }
        };
        match self.show_and_ask(papers, &order, Some(&file)).await {
            Ok(Reply::Done { outcome: wire::Outcome::Staged, .. }) => Outcome::Report(Report::Staged { release }),
            Ok(Reply::Done { outcome: wire::Outcome::StageFailed { disk_full, reason }, .. }) => {
                if !disk_full {
                    let source = Arc::clone(&self.source);
                    blocking(move || source.doubt(&sha256)).await;
                }
                failed(if disk_full { Fault::DiskFull } else { Fault::Broken }, reason)
            }
            // The node sees the same hold by itself, and tells it.
            Ok(Reply::Refused { why: Why::Held | Why::Busy | Why::Stopping, text }) => {
                tracing::warn!(product = %self.product, "the helper does not stage yet: {}", text.as_str());
                Outcome::Again
            }
            Ok(Reply::Refused { why: Why::Disk, text }) => failed(Fault::DiskFull, text),
            Ok(reply @ Reply::Refused { .. }) => failed(Fault::Broken, Reason::lossy(&said(&reply))),
            Ok(_) => Outcome::Again,
            Err(NoReply::Unheard(error) | NoReply::Broken(error)) => {
                self.note_silence(&error);
                Outcome::Again
            }
        }
    }

    async fn activate(&mut self, release: Digest, order: &Order, papers: &[Vec<u8>]) -> Outcome {
        let product = self.product.clone();
        let failed = |reason: &str, at_fault: bool| {
            if !at_fault {
                tracing::error!(%product, "the version cannot be switched to; it is not to blame: {reason}");
            }
            Outcome::Report(Report::ActivateFailed { release, reason: Reason::lossy(reason), at_fault })
        };
        let mut waits_for = "the helper does not answer".to_owned();
        let began = Instant::now();
        let mut heard = false;
        loop {
            match self.show_and_ask(papers, order, None).await {
                Ok(Reply::Done { outcome: wire::Outcome::Activated, .. }) => {
                    return Outcome::Report(Report::Activated { release });
                }
                Ok(Reply::Done { outcome: wire::Outcome::ActivateFailed { reason, at_fault }, .. }) => {
                    return failed(reason.as_str(), at_fault);
                }
                Ok(Reply::Refused { why: Why::Busy | Why::Stopping | Why::Disk, text }) => {
                    tracing::warn!(product = %self.product, "the helper does not switch yet: {}", text.as_str());
                    waits_for = format!("the helper does not switch: {}", text.as_str());
                }
                // Only a build that failed before is to blame for a refusal; what is held or not warranted was not tried.
                Ok(reply @ Reply::Refused { why, .. }) => return failed(&said(&reply), why == Why::Denied),
                Ok(_) => heard = true,
                Err(NoReply::Broken(error)) => {
                    heard = true;
                    self.note_silence(&error);
                }
                Err(NoReply::Unheard(error)) => self.note_silence(&error),
            }
            if !heard && began.elapsed() >= UNHEARD {
                return failed(&waits_for, false);
            }
            if self.pause().await.is_none() {
                return Outcome::Stopping;
            }
        }
    }

    /// A confirm or revert: there is no other way, so it is asked for until it is done.
    async fn insist(&mut self, release: Digest, order: &Order) -> Outcome {
        match self.ask(order, None).await {
            Ok(Reply::Done { outcome: wire::Outcome::Confirmed, .. }) => Outcome::Report(Report::Confirmed { release }),
            Ok(Reply::Done { outcome: wire::Outcome::ConfirmFailed { reason }, .. }) => {
                Outcome::Report(Report::ConfirmFailed { release, reason, at_fault: false })
            }
            Ok(Reply::Done { outcome: wire::Outcome::ConfirmRefused { reason }, .. }) => {
                Outcome::Report(Report::ConfirmFailed { release, reason, at_fault: true })
            }
            Ok(Reply::Done { outcome: wire::Outcome::Reverted { running, output }, .. }) => {
                Outcome::Report(Report::Reverted { release, running, output })
            }
            Ok(reply) => {
                tracing::error!(product = %self.product, "the helper does not finish: {}", said(&reply));
                Outcome::Again
            }
            Err(NoReply::Unheard(error) | NoReply::Broken(error)) => {
                self.note_silence(&error);
                Outcome::Again
            }
        }
    }

    /// Shows documents that this run of the helper has not taken, and then asks.
    async fn show_and_ask(&mut self, papers: &[Vec<u8>], order: &Order, file: Option<&std::fs::File>) -> Result<Reply, NoReply> {
        // Another run of the helper has them on its disk; but its answer may be another.
        self.connect().await.map_err(NoReply::Unheard)?;
        for paper in papers {
            let name = Digest::of(paper);
            if self.taken.contains(&name) {
                continue;
            }
            let reply = match self.exchange(Kind::Document, paper, None).await {
                Ok(reply) => reply,
                Err(NoReply::Unheard(error) | NoReply::Broken(error)) => return Err(NoReply::Unheard(error)),
            };
            match reply {
                Reply::Taken { .. } => {
                    self.taken.insert(name);
                }
                // What the order comes to says whether it mattered.
                reply => tracing::debug!(product = %self.product, "a document is not taken: {}", said(&reply)),
            }
        }
        self.ask(order, file).await
    }

    async fn ask(&mut self, order: &Order, file: Option<&std::fs::File>) -> Result<Reply, NoReply> {
        let reply = self.exchange(Kind::Order, &encode_order(order), file).await?;
        if self.shown.silent.swap(false, Ordering::Relaxed) {
            tracing::info!(product = %self.product, "the helper answers");
        }
        if let Reply::Done { state, .. } = &reply {
            self.learn(state);
        }
        Ok(reply)
    }

    /// A helper ends connections that idle: what it has let go in between is made anew.
    async fn connect(&mut self) -> io::Result<()> {
        if !self.connection.as_ref().is_some_and(is_open) {
            self.connection = Some(UnixStream::connect(&self.socket).await?);
            // It may be another helper by now.
            self.taken.clear();
        }
        Ok(())
    }

    /// One frame there and one back. A connection that fails is let go. An order takes as long as it takes; a device that
    /// stops does not wait for it.
    async fn exchange(&mut self, kind: Kind, body: &[u8], file: Option<&std::fs::File>) -> Result<Reply, NoReply> {
        self.connect().await.map_err(NoReply::Unheard)?;
        let Some(mut stream) = self.connection.take() else { return Err(NoReply::Unheard(io::ErrorKind::NotConnected.into())) };
        match timeout(HAND_OVER, channel::write(&mut stream, kind, body, file)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(NoReply::Unheard(error)),
            Err(_) => return Err(NoReply::Unheard(io::ErrorKind::TimedOut.into())),
        }
        let mut stopping = self.stopping.clone();
        let frame = tokio::select! {
            frame = channel::read(&mut stream, &[Kind::Reply]) => frame,
            _ = stopping.wait_for(|stopping| *stopping) => return Err(NoReply::Broken(io::ErrorKind::Interrupted.into())),
        };
        let broken = |error: ReadError| match error {
            ReadError::Io(error) => NoReply::Broken(error),
            ReadError::Frame(error) => NoReply::Broken(io::Error::new(io::ErrorKind::InvalidData, error)),
        };
        let frame = frame.map_err(broken)?.ok_or_else(|| NoReply::Broken(io::ErrorKind::UnexpectedEof.into()))?;
        let reply = decode_reply(&frame.body).map_err(|error| broken(error.into()))?;
        self.connection = Some(stream);
        Ok(reply)
    }

    fn learn(&mut self, state: &State) {
        self.starts = self.starts.saturating_add(1);
        self.launch = state.launch.clone().map(|launched| Launch {
            product: self.product.clone(),
            contents: launched.contents,
            slot: PathBuf::from(launched.slot),
            binary: PathBuf::from(launched.binary),
            claim: launched.claim,
            trial: launched.trial,
        });
    }

    fn note_silence(&self, error: &io::Error) {
        if !*self.stopping.borrow() && !self.shown.silent.swap(true, Ordering::Relaxed) {
            let (product, socket) = (&self.product, self.socket.display());
            tracing::error!(%product, "the helper at {socket} does not answer ({error}); start `swell helper`: it is asked again");
        }
    }

    /// `None` when the device stops.
    async fn pause(&mut self) -> Option<()> {
        tokio::select! {
            () = sleep(PAUSE) => Some(()),
            _ = self.stopping.wait_for(|stopping| *stopping) => None,
        }
    }
}

/// Whether the other side still has the connection. Nothing is on its way here between two orders, so there is nothing to
/// read but its end.
fn is_open(stream: &UnixStream) -> bool {
    matches!(recv(stream, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT), Err(Errno::AGAIN))
}

/// What the helper says there is, as a device with slots of its own would tell it.
fn recovered(state: State, going_back: Option<GoingBack>, failed: Option<LastFailure>) -> Recovered {
    let State { running, floor, trial, reverted, staged, denied, .. } = state;
    let at_fault = reverted.as_ref().is_none_or(|taken| taken.at_fault);
    let reverted = reverted.map(|TakenBack { release, reason, .. }| (release, reason));
    let claim = going_back.as_ref().and_then(|going_back| going_back.claim);
    let going_back = going_back.map(|GoingBack { release, reason, at_fault, .. }| Box::new((release, reason, at_fault)));
    let failed = failed.map(|failed| Box::new(failed.into()));
    Recovered { running, floor, trial, going_back, reverted, at_fault, claim, failed, staged, denied }
}

fn said(reply: &Reply) -> String {
    match reply {
        Reply::Refused { text, .. } => format!("the helper refuses: {}", text.as_str()),
        Reply::Taken { .. } => "it took a document".to_owned(),
        Reply::State(_) | Reply::GoesBack(..) => "it told what there is".to_owned(),
        Reply::Failed(_) => "it told what failed".to_owned(),
        Reply::Done { outcome, .. } => format!("{outcome:?}"),
    }
}

//! Carries out what the supervisor decides: one loop over signals, datagrams, the child's end, and time.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use groundswell_core::install::supervision::{Action, Announcement, Boots, Build, Input, Named, Supervision};
use rustix::process::Signal;
use tokio::net::UnixDatagram;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};
use tokio::time::sleep;

use super::child::{Child, reap};
use super::marks::Marks;
use super::notify::{ALIVE, Heard, MOST_BYTES, Notifier, READY, SOCKET, STOPPING, WATCHDOG, heard, listen};
use super::settings::Settings;
use super::{SLOT, SUPERVISOR};
use crate::clock;
use crate::install::activate::leftover;
use crate::install::device::{lock, this_boot};
use crate::install::files::OnDisk;
use crate::install::slots::verify_file;

/// Longest without a look at the clock: a suspend may have slept through a deadline.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Why a supervisor does not run.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// Its folder.
    #[error("cannot use the folder {}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another supervisor is at work.
    #[error("another supervisor uses the folder {}: stop it first", .0.display())]
    InUse(PathBuf),
    /// The socket for signs of life.
    #[error("cannot listen at {}: a shorter `data-dir` may help", .path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Signals.
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
}

/// Runs the agent until told to stop; its exit code. Call it on the main thread of a process, within a runtime of one
/// thread: the agent is asked to end when the thread that started it does.
///
/// `own` is this program, `service` whoever started it and wants to be told.
///
/// # Errors
/// [`KeeperError`], before any agent is started.
pub async fn run(settings: &Settings, own: &Path, service: Option<Notifier>) -> Result<u8, KeeperError> {
    let folder = Marks::folder_in(&settings.data);
    let unusable = |source| KeeperError::Folder { path: folder.clone(), source };
    let marks = Marks::open(Arc::new(OnDisk), &settings.data, settings.product.as_deref()).map_err(unusable)?;
    let _lock = lock(&folder).map_err(unusable)?.ok_or_else(|| KeeperError::InUse(folder.clone()))?;
    let path = folder.join("notify");
    let socket = listen(&path).map_err(|source| KeeperError::Socket { path: path.clone(), source })?;
    let mut signals = Signals::listen().map_err(KeeperError::Signals)?;
    // An agent whose supervisor was killed: it was told to end, and may still be at it.
    leftover::stop_known(&folder, settings.terms.stop_timeout).await;
    let mut keeper = Keeper {
        settings,
        own,
        service,
        marks,
        boot: this_boot().0,
        notify: path.display().to_string(),
        child: None,
        folder: folder.clone(),
    };
    let mut machine = Supervision::new(settings.terms());
    let mut inputs = VecDeque::from([Input::Begin]);
    let mut datagram = vec![0; MOST_BYTES];
    loop {
        while let Some(input) = inputs.pop_front() {
            for action in machine.handle(clock::now(), input) {
                match keeper.perform(action).await {
                    Done::Nothing => {}
                    Done::Answer(answer) => inputs.push_back(answer),
                    Done::End(code) => return Ok(code),
                }
            }
        }
        let wait = machine.wait_ms(clock::now()).map_or(LONGEST_WAIT, Duration::from_millis).min(LONGEST_WAIT);
        let happened = tokio::select! {
            received = socket.recv(&mut datagram) => Happened::Said(received.unwrap_or(0)),
            told = signals.next() => Happened::Told(told),
            () = sleep(wait) => Happened::Time,
        };
        match happened {
            Happened::Said(length) => {
                for heard in heard(datagram.get(..length).unwrap_or_default()) {
                    inputs.push_back(match heard {
                        Heard::Ready => Input::Ready,
                        Heard::Alive => Input::Alive,
                    });
                }
            }
            Happened::Told(Told::Child) => {
                if let Some(end) = keeper.reap(&socket).await {
                    inputs.push_back(Input::Ended(end));
                }
            }
            Happened::Told(Told::Pass(signal)) => keeper.tell(signal),
            Happened::Told(Told::Stop(signal)) => {
                keeper.tell(signal);
                inputs.push_back(Input::Stop);
            }
            Happened::Time => inputs.push_back(Input::Wake),
        }
    }
}

enum Happened {
    Said(usize),
    Told(Told),
    Time,
}

enum Told {
    /// Some process ended.
    Child,
    /// Stop, with the signal that said so.
    Stop(Signal),
    /// For the agent alone.
    Pass(Signal),
}

/// The signals that a supervisor hears.
struct Signals {
    child: Stream,
    terminate: Stream,
    interrupt: Stream,
    hangup: Stream,
    user1: Stream,
    user2: Stream,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            child: signal(SignalKind::child())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    /// Cancel safe.
    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.child.recv() => Told::Child,
            _ = self.terminate.recv() => Told::Stop(Signal::TERM),
            _ = self.interrupt.recv() => Told::Stop(Signal::INT),
            _ = self.hangup.recv() => Told::Pass(Signal::HUP),
            _ = self.user1.recv() => Told::Pass(Signal::USR1),
            _ = self.user2.recv() => Told::Pass(Signal::USR2),
        }
    }
}

#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Done {
    Nothing,
    Answer(Input),
    End(u8),
}

struct Keeper<'a> {
    settings: &'a Settings,
    own: &'a Path,
    service: Option<Notifier>,
    marks: Marks,
    boot: String,
    notify: String,
    folder: PathBuf,
    child: Option<Child>,
}

impl Keeper<'_> {
    async fn perform(&mut self, action: Action) -> Done {
        match action {
            Action::Look => return Done::Answer(Input::Found(self.marks.facts(&self.boot, clock::now().boot))),
            Action::Count { trial, boots } => {
                return Done::Answer(Input::Written(self.write(&Boots { trial, boots, given_up: None })));
            }
            Action::GiveUp { trial, boots, reason } => {
                return Done::Answer(Input::Written(self.write(&Boots { trial, boots, given_up: Some(reason) })));
            }
            Action::Remember(named) => {
                if let Err(error) = self.marks.remember(&named) {
                    tracing::warn!(%error, "the confirmed build is not written down a second time");
                }
            }
            Action::Start(build) => return Done::Answer(Input::Started(self.start(&build).await)),
            Action::Terminate => self.tell(Signal::TERM),
            Action::Kill => {
                if let Some(child) = &self.child {
                    child.kill();
                }
            }
            Action::Announce(announcement) => {
                if let Some(service) = &self.service {
                    service.tell(match announcement {
                        Announcement::Ready => READY,
                        Announcement::Alive => ALIVE,
                        Announcement::Stopping => STOPPING,
                    });
                }
            }
            Action::Say(notice) if notice.is_grave() => tracing::error!("{notice}"),
            Action::Say(notice) => {
                tracing::info!("{notice}");
                if let Some(service) = &self.service {
                    service.tell(&format!("STATUS={notice}"));
                }
            }
            Action::End(code) => return Done::End(code),
        }
        Done::Nothing
    }

    fn write(&self, boots: &Boots) -> bool {
        match self.marks.write_boots(boots) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, "cannot write in {}", self.folder.display());
                false
            }
        }
    }

    async fn start(&mut self, build: &Build) -> Result<(), String> {
        let program = match build.named() {
            Some(named) => self.checked(named).map_err(|error| error.to_string())?,
            None => self.own.to_owned(),
        };
        let slot = build.named().map_or("own", |named| named.slot.name());
        let variables = [
            (SUPERVISOR, std::process::id().to_string()),
            (SLOT, slot.to_owned()),
            (SOCKET, self.notify.clone()),
            (WATCHDOG, self.settings.terms.silence.as_micros().to_string()),
        ];
        let trial = matches!(build, Build::Trial { .. });
        let child = Child::start(&program, &self.settings.config, &variables, trial).await;
        let child = child.map_err(|error| format!("cannot run {}: {error}", program.display()))?;
        leftover::remember(&self.folder, child.process());
        self.child = Some(child);
        Ok(())
    }

    /// The binary of a build, once its size and digest are right.
    fn checked(&self, named: &Named) -> io::Result<PathBuf> {
        let product = self.settings.product.as_deref().ok_or_else(|| io::Error::other("no product is the agent itself"))?;
        let folder = self.settings.data.join("products").join(product).join("slots").join(named.slot.name());
        let program = folder.join(product);
        verify_file(&OnDisk, &program, named.size_bytes, named.sha256)?;
        Ok(program)
    }

    fn tell(&self, signal: Signal) {
        if let Some(child) = &self.child {
            child.tell(signal);
        }
    }

    async fn reap(&mut self, socket: &UnixDatagram) -> Option<groundswell_core::install::supervision::End> {
        let status = reap(self.child.as_ref().map(Child::process))?;
        let end = self.child.take()?.ended(status).await;
        leftover::forget(&self.folder);
        // What it said last is not taken for a word of the next one.
        let mut rest = vec![0; MOST_BYTES];
        while socket.try_recv(&mut rest).is_ok() {}
        Some(end)
    }
}

//! Carries out what the supervisor decides: one loop over signals, datagrams, the child's end, and time.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use groundswell_core::install::supervision::{Action, Announcement, Boots, Build, End, Input, Named, NotStarted, Supervision};
use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::child::{Child, has_ended, reap_others, status_of};
use super::ground::Ground;
use super::marks::{self, Marks};
use super::notify::{ALIVE, Heard, Notifier, READY, STOPPING, WATCHDOG};
use super::program::Program;
use super::settings::Settings;
use super::{FOLDER, SLOT, SUPERVISOR};
use crate::clock;
use crate::install::activate::leftover::{self, Note};
use crate::install::activate::proc::{Run, members};
use crate::install::files::OnDisk;
use crate::scarcity::is_of_the_file;

/// Longest without a look at the clock: a suspend may have slept through a deadline.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Awake by so much later than it wanted to be, it was stopped, most likely with its agent.
const OVERSLEPT: Duration = Duration::from_secs(1);
/// Longest without a look at the clock while an agent runs, as a part of the silence that it may keep: no stop that is not
/// noticed as one is longer.
const PART_OF_SILENCE: u32 = 4;
/// The shortest of these waits.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
/// How often a service manager that could not be told of readiness is told again, with each sign of life besides.
const READY_AGAIN: Duration = Duration::from_secs(5);
/// How often what is missing of the ground is looked for.
const SECURED_EVERY: Duration = Duration::from_secs(30);
/// What an agent left behind is killed, which takes milliseconds but for what waits for a disk; nothing waits longer for it.
const STRAYS_END_WITHIN: Duration = Duration::from_secs(5);

/// Why a supervisor does not run.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// Another supervisor is at work.
    #[error("another supervisor uses the folder {}: stop it first", .0.display())]
    InUse(PathBuf),
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
/// [`KeeperError`], before any agent is started; `InUse` also when another supervisor turns out to be at work on a disk that
/// could not be asked before.
pub async fn run(settings: &Settings, own: &Path, service: Option<Notifier>) -> Result<u8, KeeperError> {
    let ground = Ground::find(&settings.data)?;
    let mut signals = Signals::listen().map_err(KeeperError::Signals)?;
    let marks = Marks::new(Arc::new(OnDisk), &settings.data, settings.product.as_deref());
    let mut keeper = Keeper {
        settings,
        own,
        service,
        owes_ready: false,
        marks,
        run: marks::Run::begin(),
        ground,
        in_use: None,
        child: None,
        secured_ms: clock::now().awake_ms,
    };
    keeper.marks.make_reserve();
    // An agent whose supervisor was killed: it was told to end, and may still be at it. Where nothing can be locked it may be
    // that of another supervisor.
    if keeper.ground.is_locked() {
        Note::RUN.stop(keeper.ground.folder(), settings.terms.stop_timeout).await;
    }
    keeper.end_strays(&[]).await;
    let mut machine = Supervision::new(settings.terms());
    // Told to stop meanwhile, it starts nothing.
    let first = if signals.told_to_stop().await { Input::Stop } else { Input::Begin };
    let mut inputs = VecDeque::from([first]);
    loop {
        while let Some(input) = inputs.pop_front() {
            for action in machine.handle(clock::now(), input) {
                match keeper.perform(action).await {
                    Done::Nothing => {}
                    Done::Answer(answer) => inputs.push_back(answer),
                    Done::End(code) => return keeper.in_use.take().map_or(Ok(code), Err),
                }
            }
        }
        keeper.tell_ready();
        let wait = machine.wait_ms(clock::now()).map_or(LONGEST_WAIT, Duration::from_millis).min(keeper.longest_wait());
        let began_ms = clock::now().awake_ms;
        let happened = tokio::select! {
            heard = said(keeper.child.as_ref()) => Happened::Said(heard),
            told = signals.next() => Happened::Told(told),
            () = sleep(wait) => Happened::Time,
        };
        let waited = Duration::from_millis(clock::now().awake_ms.saturating_sub(began_ms));
        if let Some(late) = waited.checked_sub(wait).filter(|late| *late >= OVERSLEPT) {
            inputs.push_back(Input::Overslept(u64::try_from(late.as_millis()).unwrap_or(u64::MAX)));
        }
        match happened {
            Happened::Said(heard) => inputs.extend(keeper.heard(heard)),
            Happened::Told(Told::Child) => {
                if let Some(end) = keeper.reap().await {
                    inputs.push_back(Input::Ended(end));
                }
            }
            Happened::Told(Told::Pass(signal)) => keeper.child.iter_mut().for_each(|child| child.pass_on(signal)),
            Happened::Told(Told::Stop(signal)) => {
                keeper.tell(signal);
                inputs.push_back(Input::Stop);
            }
            Happened::Time => {
                // No agent is silent that has spoken and was not heard yet.
                let heard = keeper.child.as_ref().map(Child::heard).unwrap_or_default();
                inputs.extend(keeper.heard(heard));
                inputs.push_back(Input::Wake);
                keeper.marks.make_reserve();
            }
        }
        // Whatever happened: an agent that says much leaves no time in which nothing does.
        if let Err(error) = keeper.secure() {
            tracing::error!("{error}");
            keeper.in_use = Some(error);
            keeper.tell(Signal::TERM);
            inputs.push_back(Input::Stop);
        }
    }
}

enum Happened {
    Said(Vec<Heard>),
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

    /// The next one. A request to stop comes before the end of the agent: it may have been told too, and then it has not
    /// ended by itself. Cancel safe.
    async fn next(&mut self) -> Told {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Told::Stop(Signal::TERM),
            _ = self.interrupt.recv() => Told::Stop(Signal::INT),
            _ = self.child.recv() => Told::Child,
            _ = self.hangup.recv() => Told::Pass(Signal::HUP),
            _ = self.user1.recv() => Told::Pass(Signal::USR1),
            _ = self.user2.recv() => Told::Pass(Signal::USR2),
        }
    }

    /// Whether a request to stop has come already; what else has come was for an agent that is not there.
    async fn told_to_stop(&mut self) -> bool {
        // The runtime takes in what has come.
        yield_now().await;
        while let Some(told) = self.next().now_or_never() {
            if matches!(told, Told::Stop(_)) {
                return true;
            }
        }
        false
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
    /// It could not be told yet that the agent is up.
    owes_ready: bool,
    marks: Marks,
    run: marks::Run,
    ground: Ground,
    /// Another supervisor turned out to be at work: the files are its own.
    in_use: Option<KeeperError>,
    child: Option<Child>,
    /// When what is missing of the ground was last looked for.
    secured_ms: u64,
}

impl Keeper<'_> {
    async fn perform(&mut self, action: Action) -> Done {
        match action {
            Action::Look => return Done::Answer(Input::Found(self.marks.facts(&self.run, clock::now()))),
            Action::Count { trial, boots, stops } => {
                return Done::Answer(Input::Written(self.write(&Boots { trial, boots, stops, given_up: None })));
            }
            Action::GiveUp { trial, boots, reason } => {
                return Done::Answer(Input::Written(self.write(&Boots { trial, boots, stops: 0, given_up: Some(reason) })));
            }
            Action::Remember(named) => {
                if let Err(error) = self.marks.remember(&named) {
                    tracing::warn!(%error, "the confirmed build is not written down a second time");
                }
            }
            Action::Start(build) => return Done::Answer(Input::Started(self.start(&build).await)),
            Action::Check(named) => return Done::Answer(Input::Checked(program(self.settings, &named).is_ok())),
            Action::Terminate => self.tell(Signal::TERM),
            Action::Kill => {
                if let Some(child) = &self.child {
                    child.kill();
                }
            }
            Action::Announce(announcement) => self.announce(announcement),
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

    /// What the agent has said.
    fn heard(&mut self, heard: Vec<Heard>) -> Vec<Input> {
        if heard.contains(&Heard::Ready) {
            self.child.iter_mut().for_each(Child::is_up);
        }
        let input = |heard| match heard {
            Heard::Ready => Input::Ready,
            Heard::Alive => Input::Alive,
        };
        heard.into_iter().map(input).collect()
    }

    fn announce(&mut self, announcement: Announcement) {
        let Some(service) = &self.service else { return };
        match announcement {
            // Said once by the machine; it must get through, or the service never counts as started.
            Announcement::Ready => self.owes_ready = true,
            Announcement::Alive => {
                service.tell(ALIVE);
            }
            Announcement::Stopping => {
                self.owes_ready = false;
                service.tell(STOPPING);
            }
        }
        self.tell_ready();
    }

    /// Tells the service manager that the agent is up, until that gets through.
    fn tell_ready(&mut self) {
        if let Some(service) = self.service.as_ref().filter(|_| self.owes_ready) {
            self.owes_ready = !service.tell(READY);
        }
    }

    fn write(&self, boots: &Boots) -> bool {
        if self.in_use.is_some() {
            return false;
        }
        match self.marks.write_boots(boots) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, "cannot write in {}", self.ground.folder().display());
                false
            }
        }
    }

    async fn start(&mut self, build: &Build) -> Result<(), NotStarted> {
        let program = match build.named() {
            Some(named) => program(self.settings, named)?,
            None => Program::own(self.own),
        };
        let slot = build.named().map_or("own", |named| named.slot.name());
        let variables = [
            (SUPERVISOR, std::process::id().to_string()),
            (SLOT, slot.to_owned()),
            (FOLDER, self.ground.folder().display().to_string()),
            (WATCHDOG, self.settings.terms.silence.as_micros().to_string()),
        ];
        let trial = matches!(build, Build::Trial { .. });
        let child = Child::start(&program, &self.settings.config, &variables, trial).await;
        let child = child.map_err(|error| not_run(program.path(), &error))?;
        Note::RUN.remember(self.ground.folder(), child.process());
        self.child = Some(child);
        Ok(())
    }

    fn tell(&self, signal: Signal) {
        if let Some(child) = &self.child {
            child.tell(signal);
        }
    }

    async fn reap(&mut self) -> Option<End> {
        let agent = self.child.as_ref().map(Child::process);
        reap_others(agent);
        let agent = agent.filter(|agent| has_ended(*agent))?;
        // Its number, and that of its group, are its own until it is waited for.
        let left_behind = members(agent).await;
        self.child.as_ref()?.kill();
        let status = status_of(agent)?;
        let child = self.child.take()?;
        self.end_strays(&left_behind).await;
        let end = child.ended(status).await;
        if self.in_use.is_none() {
            Note::RUN.forget(self.ground.folder());
        }
        Some(end)
    }

    /// Ends what agents have left behind, before another is started: those of the group of the last one, which are given, and
    /// any with what only an agent of this supervisor, or of one before it, has in its environment. Where another supervisor is
    /// at work, or may be, the folder is in that one's agents too.
    async fn end_strays(&self, known: &[Run]) {
        let folder = self.ground.folder();
        let mut marks = vec![format!("{SUPERVISOR}={}", std::process::id())];
        if self.in_use.is_none() && self.ground.is_locked() {
            marks.push(format!("{FOLDER}={}", folder.display()));
        }
        for stray in leftover::end_strays(known, &marks, folder, STRAYS_END_WITHIN).await {
            tracing::error!(process = stray.as_raw_nonzero(), "a process that an agent left behind does not end");
        }
    }

    fn longest_wait(&self) -> Duration {
        let mut longest = if self.ground.is_whole() { LONGEST_WAIT } else { SECURED_EVERY };
        if self.child.is_some() {
            longest = longest.min((self.settings.terms.silence / PART_OF_SILENCE).max(SHORTEST_WAIT));
        }
        if self.owes_ready { longest.min(READY_AGAIN) } else { longest }
    }

    /// Looks for what is missing of the ground, now and then.
    fn secure(&mut self) -> Result<(), KeeperError> {
        let now_ms = clock::now().awake_ms;
        let since = Duration::from_millis(now_ms.saturating_sub(self.secured_ms));
        if self.in_use.is_some() || self.ground.is_whole() || since < SECURED_EVERY {
            return Ok(());
        }
        self.secured_ms = now_ms;
        self.ground.secure()
    }
}

/// Cancel safe. Without an agent nobody says anything.
async fn said(child: Option<&Child>) -> Vec<Heard> {
    match child {
        Some(child) => child.hear().await,
        None => std::future::pending().await,
    }
}

/// The file of a build, once its size and digest are right.
pub(super) fn program(settings: &Settings, named: &Named) -> Result<Program, NotStarted> {
    let product = settings.product.as_deref();
    let product = product.ok_or_else(|| NotStarted::Damaged("no product is the agent itself".to_owned()))?;
    let folder = settings.data.join("products").join(product).join("slots").join(named.slot.name());
    let path = folder.join(product);
    Program::checked(&path, named.size_bytes, named.sha256).map_err(|error| not_started(&path, &error))
}

fn not_started(path: &Path, error: &io::Error) -> NotStarted {
    let said = format!("cannot run {}: {error}", path.display());
    if error.kind() == io::ErrorKind::InvalidData { NotStarted::Damaged(said) } else { NotStarted::Failed(said) }
}

/// Why a file that is whole was not run. What the kernel says of the file, or of what the file names as its interpreter,
/// holds for every try; what it says of itself may pass.
fn not_run(path: &Path, error: &io::Error) -> NotStarted {
    if is_of_the_file(error) {
        return NotStarted::Refused(format!("cannot run {}: {error}", path.display()));
    }
    not_started(path, error)
}

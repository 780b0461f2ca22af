//! The device of one product: one task that takes steps, executes them and reports facts.
//!
//! It decides nothing. One step at a time per product (case I4); health and local blocks go on while a step runs.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use groundswell_core::install::Boot;
use groundswell_core::node::effect::Step;
use groundswell_core::node::input::{LocalPolicy, Report};
use groundswell_core::record::status::{HoldCode, HoldNotice};
use groundswell_core::text::Product;
use rustix::process::Pid;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::activate::Starter;
use super::activate::leftover::run_of;
use super::again::{Unfinished, stages};
use super::artifact::ArtifactSource;
use super::asked::Asked;
use super::blocks;
use super::disk::Place;
use super::ending::Grace;
use super::executor::{Executor, Outcome};
use super::files::OnDisk;
use super::ground::{Ground, Installer, open};
use super::remote::{Remote, Shown};
use super::slots::Room;
use crate::config::{Activator, Config, HelperActivator, ProductConfig};
use crate::health::{Changed, Monitor, Target};
use crate::supervise::own::Own;

/// Steps that may wait: the core asks for one at a time, and for a revert while one runs.
const STEPS: usize = 8;
/// Changes of health that may wait for the device's task.
const CHANGES: usize = 4;
/// How often local blocks are looked at.
const BLOCK_INTERVAL: Duration = Duration::from_secs(5);

/// What one device needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The product.
    pub product: Product,
    /// Its folder: slots, journal, logs. Where a helper installs it: the agent's own data folder, for its free space.
    pub folder: PathBuf,
    /// How it is installed and judged.
    pub config: ProductConfig,
    /// How much its slots may take, and what must stay free on the folder's file system.
    pub room: Room,
    /// The present run of the machine; where the product is this agent itself, of its process.
    pub boot: Boot,
    /// This agent, where the product is itself.
    pub own: Option<Own>,
    /// How often inhibit files and free space are looked at, and how soon what the disk refused is tried again.
    pub block_interval: Duration,
    /// How long what is under way may take once the device is to stop.
    pub grace: Grace,
}

impl Settings {
    /// The settings of a product of `config`; `None` when it is not configured.
    #[must_use]
    pub fn from_config(config: &Config, product: &Product, own: Option<Own>) -> Option<Self> {
        let how = config.products.get(product)?.clone();
        let helper = matches!(how.activator, Activator::Helper(_));
        // An agent that asked to be replaced is silent while it ends, and its last sign of life may be a third of that old.
        let grace = Grace::within(config.supervise.stop_timeout.min(config.supervise.silence * 2 / 3));
        let own = own.filter(|_| config.own_product() == Some(product));
        let boot = if config.own_product() == Some(product) { this_process() } else { this_boot() };
        Some(Self {
            product: product.clone(),
            folder: if helper { config.data_dir.clone() } else { config.product_dir(product) },
            config: how,
            room: Room { keep_free_bytes: config.limits.keep_free_bytes, slot_bytes: config.limits.slot_bytes },
            boot,
            own,
            block_interval: BLOCK_INTERVAL,
            grace,
        })
    }
}

/// Why a device cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Its folder cannot be made or read.
    #[error("product {product}: cannot use the folder {}", folder.display())]
    Folder {
        /// The product.
        product: Product,
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another agent uses its folder.
    #[error("product {product}: another agent uses the folder {}", folder.display())]
    InUse {
        /// The product.
        product: Product,
        /// The folder.
        folder: PathBuf,
    },
}

/// Why a step was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepRefused {
    /// The product is not configured here.
    #[error("the product is not configured on this node")]
    UnknownProduct,
    /// The device has more steps waiting than the core ever asks for at once.
    #[error("the device is busy with earlier steps")]
    Busy,
    /// The device has stopped.
    #[error("the device has stopped")]
    Stopped,
}

/// One product's device: a running task.
pub struct Device {
    steps: mpsc::Sender<Step>,
    asked: Arc<Asked>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    /// Where a helper installs the product: what it is shown.
    helper: Option<(Product, Arc<dyn ArtifactSource>, Arc<Shown>)>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("task", &self.task).finish_non_exhaustive()
    }
}

impl Device {
    /// Starts the task. Its first reports are `Recovered`, `Policy` and `Blocked`, in this order.
    /// It waits when `reports` is full, so its reader must never wait for the device. Where the disk does not let the folder be
    /// used, or does not tell what is in it, the task waits for that, and reports `Blocked` with `device-fault` before all else.
    ///
    /// # Errors
    /// When another agent uses the product's folder.
    pub fn start(
        settings: Settings,
        artifacts: Arc<dyn ArtifactSource>,
        reports: mpsc::Sender<(Product, Report)>,
    ) -> Result<Self, DeviceError> {
        if let Activator::Helper(HelperActivator { socket }) = settings.config.activator.clone() {
            return Ok(Self::beside_helper(settings, socket, artifacts, reports));
        }
        let Settings { product, folder, room, boot, .. } = settings.clone();
        let place = Place { files: Arc::new(OnDisk), folder, product, boot, room };
        let opened = match open(place.clone(), Arc::clone(&artifacts)) {
            Ok(opened) => Some(opened),
            Err(error @ DeviceError::InUse { .. }) => return Err(error),
            // No other product has to wait for this one's disk.
            Err(error @ DeviceError::Folder { .. }) => {
                tracing::error!(error = &error as &dyn std::error::Error, "tried again");
                None
            }
        };
        let (steps, receiver) = mpsc::channel(STEPS);
        let (stop, stopping) = watch::channel(false);
        let place = Ground::Own { place, artifacts, opened };
        let asked = Arc::<Asked>::default();
        let task = Task { settings, place, reports, stopping, asked: Arc::clone(&asked), held_up: Arc::default() };
        Ok(Self { steps, asked, stop, task: tokio::spawn(task.live(receiver)), helper: None })
    }

    fn beside_helper(
        settings: Settings,
        socket: PathBuf,
        source: Arc<dyn ArtifactSource>,
        reports: mpsc::Sender<(Product, Report)>,
    ) -> Self {
        let (steps, receiver) = mpsc::channel(STEPS);
        let (stop, stopping) = watch::channel(false);
        let shown = Arc::new(Shown::default());
        let product = settings.product.clone();
        let place = Ground::Helper { socket, source: Arc::clone(&source), shown: Arc::clone(&shown) };
        let asked = Arc::<Asked>::default();
        let task = Task { settings, place, reports, stopping, asked: Arc::clone(&asked), held_up: Arc::default() };
        Self { steps, asked, stop, task: tokio::spawn(task.live(receiver)), helper: Some((product, source, shown)) }
    }

    /// Hands over a step; never waits. Steps run one after the other, in order; a confirm or revert that waits or runs already
    /// answers for its repetition.
    /// `Fetch` and `CancelFetch` belong to the driver: here they are ignored with a warning.
    ///
    /// # Errors
    /// When the device is busy or has stopped.
    pub fn step(&self, step: Step) -> Result<(), StepRefused> {
        if let (Some((product, source, shown)), Step::Activate { .. }) = (&self.helper, &step) {
            shown.take_down(&**source, product);
        }
        if !self.asked.note(&step) {
            return Ok(());
        }
        self.steps.try_send(step).map_err(|error| match error {
            mpsc::error::TrySendError::Full(step) => {
                self.asked.end(&step);
                StepRefused::Busy
            }
            mpsc::error::TrySendError::Closed(_) => StepRefused::Stopped,
        })
    }

    /// Stops a supervised process and the task; what is in the middle of something is finished by the next start.
    /// Dropping a device does the same without waiting for it.
    pub async fn shutdown(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "a device's task failed");
        }
    }
}

/// The devices of all configured products.
#[derive(Debug)]
pub struct Devices {
    devices: BTreeMap<Product, Device>,
}

impl Devices {
    /// Starts a device for each product of `config`. `own` is this agent, where one of them is itself.
    ///
    /// # Errors
    /// When another agent uses a product's folder; those started before it are stopped by their drop.
    pub fn start(
        config: &Config,
        artifacts: &Arc<dyn ArtifactSource>,
        reports: &mpsc::Sender<(Product, Report)>,
        own: Option<&Own>,
    ) -> Result<Self, DeviceError> {
        let mut devices = BTreeMap::new();
        for settings in config.products.keys().filter_map(|product| Settings::from_config(config, product, own.cloned())) {
            let product = settings.product.clone();
            devices.insert(product, Device::start(settings, Arc::clone(artifacts), reports.clone())?);
        }
        Ok(Self { devices })
    }

    /// Hands a step to a product's device; never waits.
    ///
    /// # Errors
    /// When there is no such device, or it does not take the step.
    pub fn step(&self, product: &Product, step: Step) -> Result<(), StepRefused> {
        self.devices.get(product).ok_or(StepRefused::UnknownProduct)?.step(step)
    }

    /// Stops all devices, side by side.
    pub async fn shutdown(self) {
        for device in self.devices.values() {
            device.stop.send_replace(true);
        }
        for device in self.devices.into_values() {
            device.shutdown().await;
        }
    }
}

struct Task {
    settings: Settings,
    place: Ground,
    reports: mpsc::Sender<(Product, Report)>,
    stopping: watch::Receiver<bool>,
    asked: Arc<Asked>,
    /// A way back cannot be finished for now.
    held_up: Arc<AtomicBool>,
}

/// The installer is with the step that runs, or at rest.
enum Work {
    Rest(Box<Installer>),
    Running(Pin<Box<dyn Future<Output = Box<Finished>> + Send>>),
}

/// A step that was executed.
struct Finished {
    executor: Box<Installer>,
    step: Step,
    outcome: Outcome,
}

enum Happened {
    Stop,
    Step(Box<Step>),
    Done(Box<Finished>),
    Health(Changed),
    Tick,
}

impl Task {
    async fn live(mut self, mut steps: mpsc::Receiver<Step>) {
        if !self.open().await {
            return;
        }
        let Settings { product, folder, config, block_interval, own, .. } = &self.settings;
        let (changes, mut changed) = mpsc::channel(CHANGES);
        let stopping = self.stopping.clone();
        let (mut executor, process) = match &self.place {
            Ground::Own { opened, .. } => {
                let Some((disk, _)) = opened else { return };
                let starter = Starter::open(&config.activator, folder, own.clone()).await;
                let process = starter.process();
                let executor = Executor::new(Arc::clone(disk), starter, config.hooks.clone(), config.manner(), stopping)
                    .telling(Arc::clone(&self.held_up))
                    .ending_within(self.settings.grace);
                (Installer::Own(Box::new(executor)), process)
            }
            Ground::Helper { socket, source, shown } => {
                let (source, shown) = (Arc::clone(source), Arc::clone(shown));
                (Installer::Helper(Box::new(Remote::new(product.clone(), socket.clone(), source, shown, stopping))), None)
            }
        };
        let monitor = Monitor::start(config.health.clone(), stable_after(&config.activator), process, changes);
        let Some(recovered) = self.telling(executor.recover()).await else {
            monitor.shutdown().await;
            return executor.shutdown().await;
        };
        self.report(Report::Recovered(recovered)).await;
        self.report(Report::Policy(policy(config))).await;
        let mut blocked = self.blocks().await;
        self.report(Report::Blocked(blocked.clone())).await;
        let (mut watched, launch) = executor.running();
        monitor.watch(Target { start: watched, launch });

        let mut ticks = interval(*block_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopping = self.stopping.clone();
        let mut work = Work::Rest(Box::new(executor));
        let mut unfinished = Unfinished::default();
        loop {
            let at_rest = matches!(work, Work::Rest(_));
            let happened = tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => Happened::Stop,
                done = finished(&mut work) => Happened::Done(done),
                step = steps.recv(), if at_rest => step.map_or(Happened::Stop, |step| Happened::Step(Box::new(step))),
                Some(change) = changed.recv() => Happened::Health(change),
                _ = ticks.tick() => Happened::Tick,
            };
            match happened {
                Happened::Stop => break,
                Happened::Step(step) => {
                    unfinished.order(&step);
                    if disturbs(&step) {
                        // Whatever the probes see from here on until the step is done tells of neither version.
                        watched = watched.saturating_add(1);
                        monitor.watch(Target { start: watched, launch: None });
                    }
                    work = begin(work, *step);
                }
                Happened::Done(done) => {
                    let Finished { executor, step, outcome } = *done;
                    self.asked.end(&step);
                    match outcome {
                        Outcome::Report(report) => {
                            unfinished.end(&step);
                            if !stages(&step) {
                                self.held_up.store(false, Ordering::Relaxed);
                            }
                            self.report(report).await;
                        }
                        Outcome::Again => {
                            // A helper's executor tells of it by this alone.
                            self.held_up.fetch_or(matches!(step, Step::Revert { .. }), Ordering::Relaxed);
                            unfinished.keep(step.clone());
                        }
                        Outcome::Stopping | Outcome::Nothing => unfinished.end(&step),
                    }
                    if disturbs(&step) {
                        watched = watched.saturating_add(1);
                        let (_, launch) = executor.running();
                        monitor.watch(Target { start: watched, launch });
                    }
                    work = Work::Rest(executor);
                }
                Happened::Health(Changed { start, health }) if start == watched => self.report(Report::Health(health)).await,
                Happened::Health(_) => {}
                Happened::Tick => {
                    if let Work::Rest(executor) = &mut work {
                        executor.settle().await;
                    }
                    let now = self.blocks().await;
                    let full = now.iter().any(|hold| hold.code == HoldCode::DiskFull);
                    if let Work::Rest(executor) = &mut work
                        && (full || self.holds_too_much().await)
                        && executor.reclaim().await
                    {
                        // The next look tells whether that was enough.
                        ticks.reset_immediately();
                    }
                    if !full {
                        self.hold_reserve().await;
                    }
                    if now != blocked {
                        blocked = now;
                        self.report(Report::Blocked(blocked.clone())).await;
                    }
                    if at_rest && let Some(step) = unfinished.due() {
                        self.asked.note(&step);
                        work = begin(work, step);
                    }
                }
            }
        }
        drop(changed);
        monitor.shutdown().await;
        let executor = match work {
            Work::Rest(executor) => executor,
            // It stops at the end of its present operation, for which it has its grace.
            Work::Running(running) => running.await.executor,
        };
        executor.shutdown().await;
    }

    /// Opens the product's folder, as soon as the disk lets it be used. `false`: the device stops.
    async fn open(&mut self) -> bool {
        let fault = vec![HoldNotice { code: HoldCode::DeviceFault, until: None }];
        let mut told = false;
        loop {
            let Ground::Own { place, artifacts, opened: opened @ None } = &mut self.place else { return true };
            let (place, artifacts) = (place.clone(), Arc::clone(artifacts));
            // The first look has just been taken.
            if told {
                let looked = spawn_blocking(move || open(place, artifacts)).await;
                match looked.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())) {
                    Ok(now) => {
                        *opened = Some(now);
                        return true;
                    }
                    Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "tried again"),
                }
            } else {
                told = true;
                self.report(Report::Blocked(fault.clone())).await;
            }
            tokio::select! {
                () = sleep(self.settings.block_interval) => {}
                _ = self.stopping.wait_for(|stopping| *stopping) => return false,
            }
        }
    }

    /// Waits for `recovering`; a disk or a helper on which it waits is told meanwhile.
    async fn telling<T>(&self, recovering: impl Future<Output = T>) -> T {
        let mut recovering = std::pin::pin!(recovering);
        let mut told = Vec::new();
        loop {
            tokio::select! {
                recovered = &mut recovering => return recovered,
                () = sleep(self.settings.block_interval) => {}
            }
            let now = self.blocks().await;
            if now != told && now.iter().any(|hold| hold.code == HoldCode::DeviceFault) {
                told.clone_from(&now);
                self.report(Report::Blocked(now)).await;
            }
        }
    }

    /// Waits for room, or gives up when the device stops or nobody listens any more.
    async fn report(&self, report: Report) {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            _ = self.reports.send((self.settings.product.clone(), report)) => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    }

    /// Where the reserve was used up and there is space again.
    async fn hold_reserve(&self) {
        let Some(disk) = self.place.disk() else { return };
        if let Err(error) = spawn_blocking(move || disk.make_reserve()).await {
            std::panic::resume_unwind(error.into_panic());
        }
    }

    async fn holds_too_much(&self) -> bool {
        let Some(disk) = self.place.disk() else { return false };
        let looked = spawn_blocking(move || disk.holds_too_much()).await;
        looked.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    async fn blocks(&self) -> Vec<HoldNotice> {
        let Settings { folder, config, room, .. } = self.settings.clone();
        let disk = self.place.disk();
        let look = move || {
            let blocks = blocks::look(&config.inhibit, &folder, room.keep_free_bytes);
            (blocks, disk.is_some_and(|disk| disk.found().is_err()))
        };
        let looked = spawn_blocking(look).await;
        let (mut blocks, is_mute) = looked.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        let is_silent = matches!(&self.place, Ground::Helper { shown, .. } if shown.is_silent());
        let is_held_up = self.held_up.load(Ordering::Relaxed);
        let known = blocks.iter().any(|hold| hold.code == HoldCode::DeviceFault);
        if (is_mute || is_silent || is_held_up) && !known {
            blocks.push(HoldNotice { code: HoldCode::DeviceFault, until: None });
        }
        blocks
    }
}

/// Names the present run of the machine; empty where the kernel does not say, and then all runs look like one.
pub(crate) fn this_boot() -> Boot {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Boot(text.trim().to_owned())
}

/// Names the present run of this process; as [`this_boot`].
fn this_process() -> Boot {
    let process = i32::try_from(std::process::id()).ok().and_then(Pid::from_raw);
    Boot(process.and_then(run_of).unwrap_or_default())
}

fn begin(work: Work, step: Step) -> Work {
    match work {
        Work::Rest(mut executor) => Work::Running(Box::pin(async move {
            let outcome = executor.execute(&step).await;
            Box::new(Finished { executor, step, outcome })
        })),
        running @ Work::Running(_) => running,
    }
}

/// Cancel safe: the running step goes on at the next call.
async fn finished(work: &mut Work) -> Box<Finished> {
    match work {
        Work::Running(running) => running.await,
        Work::Rest(_) => std::future::pending().await,
    }
}

fn disturbs(step: &Step) -> bool {
    matches!(step, Step::Activate { .. } | Step::Revert { .. })
}

fn stable_after(activator: &Activator) -> Duration {
    match activator {
        Activator::Supervise(supervise) => supervise.restart.stable_after,
        Activator::Command(_) | Activator::Systemd(_) | Activator::Signal(_) | Activator::Helper(_) | Activator::Agent => {
            Duration::ZERO
        }
    }
}

fn policy(config: &ProductConfig) -> LocalPolicy {
    LocalPolicy { version_lock: config.version_lock.as_ref().map(ToString::to_string), observe_only: config.observe_only }
}

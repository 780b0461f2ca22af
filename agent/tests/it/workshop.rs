//! What the tests of the device share: releases made of small scripts, a source of artifacts, and patience.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use groundswell_agent::config::{
    Activator, CommandActivator, HealthCheck, HealthConfig, HooksConfig, ProductConfig, RestartPolicy, Supervise,
};
use groundswell_agent::install::activate::Starter;
use groundswell_agent::install::disk::{Disk, Place};
use groundswell_agent::install::ending::Grace;
use groundswell_agent::install::executor::Executor;
use groundswell_agent::install::files::{Files, OnDisk};
use groundswell_agent::install::slots::Room;
use groundswell_agent::install::{ArtifactSource, Device, Settings};
use groundswell_core::digest::{Digest, Hex32};
use groundswell_core::documents::release::Artifact;
use groundswell_core::install::Boot;
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Health, Recovered, Report};
use groundswell_core::number::Sequence;
use groundswell_core::record::{ClaimName, Stamp};
use groundswell_core::text::{ArtifactName, Product, Reason, Version};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// Longer than anything may take on a busy machine, and than twice the longest pause after which anything here is tried again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// How long a command may take that goes on for ever: a busy machine gets its shell to the first lines meanwhile.
pub(crate) const TOO_LONG: Duration = Duration::from_secs(3);

/// Artifacts in a folder, by digest.
pub(crate) struct Shelf(PathBuf);

impl ArtifactSource for Shelf {
    fn open(&self, sha256: &Digest) -> io::Result<File> {
        File::open(self.0.join(sha256.hex().to_string()))
    }

    fn doubt(&self, sha256: &Digest) {
        fs::write(self.0.join("doubted"), sha256.hex().to_string()).unwrap();
    }
}

/// A folder with a product, and releases to install.
pub(crate) struct Workshop {
    home: PathBuf,
    /// Removes the folder at the end; none for a second workshop in the folder of another.
    _folder: Option<tempfile::TempDir>,
    pub(crate) config: ProductConfig,
    pub(crate) room: Room,
    /// The present run of the machine: another text is a machine that was restarted.
    pub(crate) boot: Boot,
}

pub(crate) fn product() -> Product {
    Product::new("bcd").unwrap()
}

pub(crate) fn claim() -> ClaimName {
    ClaimName(Stamp { incarnation: 1, counter: 7 })
}

impl Workshop {
    /// With an activator that runs `script` in a shell, and health that is a file named `healthy`.
    pub(crate) fn with_command(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("artifacts")).unwrap();
        let workshop = Self::commanding(folder.path(), script);
        Self { _folder: Some(folder), ..workshop }
    }

    /// The same in the folder of another workshop, which stays its own.
    pub(crate) fn commanding(home: &Path, script: &str) -> Self {
        let shell = |script: &str| shell_in(home, script);
        let command = CommandActivator {
            run: shell(script),
            back: None,
            stop: Some(shell("echo stop $GROUNDSWELL_VERSION >> started")),
            timeout: Duration::from_secs(20),
            reboot: None,
        };
        let config = product_config(Activator::Command(command), HealthCheck::Command(shell("test -e healthy")));
        Self::new(home, config)
    }

    /// With an activator that writes down what it starts.
    pub(crate) fn noting_starts() -> Self {
        Self::with_command("echo start $GROUNDSWELL_VERSION >> started; $GROUNDSWELL_BINARY")
    }

    /// With supervised processes.
    pub(crate) fn supervising() -> Self {
        let supervise = Supervise {
            run: vec!["{binary}".to_owned()],
            env: BTreeMap::new(),
            restart: RestartPolicy {
                backoff: Duration::from_millis(10),
                backoff_max: Duration::from_millis(50),
                stable_after: Duration::from_secs(5),
            },
            stop_timeout: Duration::from_millis(500),
            log_bytes: 1 << 16,
        };
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("artifacts")).unwrap();
        let config = product_config(Activator::Supervise(supervise), HealthCheck::Process);
        let workshop = Self::new(folder.path(), config);
        Self { _folder: Some(folder), ..workshop }
    }

    fn new(home: &Path, config: ProductConfig) -> Self {
        Self { home: home.to_owned(), _folder: None, config, room: Room::ENDLESS, boot: Boot("first".to_owned()) }
    }

    /// The folder of everything here.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// A command that runs `script` in this folder.
    pub(crate) fn shell(&self, script: &str) -> Vec<String> {
        shell_in(&self.home, script)
    }

    /// The files of the product, on this machine's own file system.
    pub(crate) fn disk(&self) -> Disk {
        self.disk_on(Arc::new(OnDisk))
    }

    /// The files of the product, over other calls.
    pub(crate) fn disk_on(&self, files: Arc<dyn Files>) -> Disk {
        let (folder, boot, room) = (self.product_folder(), self.boot.clone(), self.room);
        Disk::open(Place { files, folder, product: product(), boot, room }, self.shelf()).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    pub(crate) fn product_folder(&self) -> PathBuf {
        self.path("bcd")
    }

    /// Release number `sequence`, whose binary is a shell script.
    pub(crate) fn release(&self, sequence: u64, script: &str) -> Install {
        self.release_of(sequence, format!("#!/bin/sh\n# release {sequence}\n{script}\n").as_bytes())
    }

    /// Release number `sequence`, whose binary has these bytes.
    pub(crate) fn release_of(&self, sequence: u64, bytes: &[u8]) -> Install {
        let sha256 = Digest::of(bytes);
        fs::write(self.path("artifacts").join(sha256.hex().to_string()), bytes).unwrap();
        Install {
            release: Digest::of(format!("release {sequence}").as_bytes()),
            version: Version::new(format!("{sequence}.0")).unwrap(),
            sequence: Sequence::new(sequence).unwrap(),
            artifact: Artifact {
                name: ArtifactName::new("bcd-linux-amd64").unwrap(),
                platform: None,
                sha256: sha256.hex(),
                size: bytes.len() as u64,
                blake3: Hex32(*blake3::hash(bytes).as_bytes()),
            },
        }
    }

    pub(crate) fn shelf(&self) -> Arc<dyn ArtifactSource> {
        Arc::new(Shelf(self.path("artifacts")))
    }

    /// A device on this folder, and its first report.
    pub(crate) async fn device(&self) -> (Bench, Recovered) {
        let mut bench = self.begun_device();
        let Report::Recovered(recovered) = bench.next().await else { panic!("the first report is Recovered") };
        (bench, recovered)
    }

    /// A device on this folder that may not come to an end of what it finds.
    pub(crate) fn begun_device(&self) -> Bench {
        let settings = Settings {
            product: product(),
            folder: self.product_folder(),
            config: self.config.clone(),
            room: self.room,
            boot: self.boot.clone(),
            own: None,
            block_interval: Duration::from_millis(20),
            grace: Grace { by_itself: Duration::ZERO, told: Duration::from_secs(10) },
        };
        let (sender, reports) = mpsc::channel(16);
        let device = Device::start(settings, self.shelf(), sender).unwrap();
        Bench { device, reports, seen: Vec::new(), health: None }
    }

    /// An executor without a task around it, as after a start of the agent; recovery has not run.
    pub(crate) async fn executor(&self) -> Executor {
        self.executor_on(self.disk()).await
    }

    /// The same over these files.
    pub(crate) async fn executor_on(&self, disk: Disk) -> Executor {
        let (stop, stopping) = watch::channel(false);
        // A sender that is gone means "stop": this one lives as long as the test.
        std::mem::forget(stop);
        self.executor_until(disk, stopping).await
    }

    /// The same, to be stopped.
    pub(crate) async fn executor_until(&self, disk: Disk, stopping: watch::Receiver<bool>) -> Executor {
        let starter = Starter::open(&self.config.activator, &self.product_folder(), None).await;
        Executor::new(Arc::new(disk), starter, self.config.hooks.clone(), self.config.manner(), stopping)
    }

    /// The lines of a file that scripts write.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        fs::read_to_string(self.path(name)).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// The script that `current` leads to.
    pub(crate) fn current_script(&self) -> Option<String> {
        fs::read_to_string(self.product_folder().join("current").join("bcd")).ok()
    }

    pub(crate) fn touch(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }
}

fn shell_in(home: &Path, script: &str) -> Vec<String> {
    ["sh", "-c", &format!("cd {} && {{ {script}\n}}", home.display())].map(str::to_owned).to_vec()
}

fn product_config(activator: Activator, check: HealthCheck) -> ProductConfig {
    ProductConfig {
        activator,
        health: HealthConfig {
            check,
            interval: Duration::from_millis(30),
            timeout: Duration::from_secs(10),
            healthy_after: 1,
            unhealthy_after: 3,
        },
        hooks: HooksConfig::default(),
        inhibit: Vec::new(),
        version_lock: None,
        observe_only: false,
        trial_starts: 3,
    }
}

/// A running device and what it reported.
pub(crate) struct Bench {
    pub(crate) device: Device,
    reports: mpsc::Receiver<(Product, Report)>,
    seen: Vec<Report>,
    /// The last health since something was activated or reverted.
    health: Option<Health>,
}

impl Bench {
    /// The next report.
    pub(crate) async fn next(&mut self) -> Report {
        let (_, report) = timeout(PATIENCE, self.reports.recv())
            .await
            .unwrap_or_else(|_| panic!("no further report; so far: {:#?}", self.seen))
            .expect("the device runs");
        self.seen.push(report.clone());
        match &report {
            Report::Health(health) => self.health = Some(health.clone()),
            Report::Activated { .. } | Report::Reverted { .. } => self.health = None,
            _ => {}
        }
        report
    }

    /// Reads reports until one is wanted.
    pub(crate) async fn until<T>(&mut self, want: impl Fn(Report) -> Option<T>) -> T {
        loop {
            if let Some(wanted) = want(self.next().await) {
                return wanted;
            }
        }
    }

    /// Waits until the health of what was started last is wanted.
    pub(crate) async fn until_health(&mut self, want: impl Fn(&Health) -> bool) -> Health {
        loop {
            match &self.health {
                Some(health) if want(health) => return health.clone(),
                _ => self.next().await,
            };
        }
    }

    pub(crate) async fn stage(&mut self, install: &Install) -> Report {
        self.device.step(Step::Stage { install: install.clone() }).unwrap();
        self.until(|report| matches!(report, Report::Staged { .. } | Report::StageFailed { .. }).then_some(report)).await
    }

    pub(crate) async fn activate(&mut self, install: &Install) -> Report {
        self.device.step(Step::Activate { install: install.clone(), claim: claim(), within_ms: 900_000 }).unwrap();
        self.until(|report| matches!(report, Report::Activated { .. } | Report::ActivateFailed { .. }).then_some(report)).await
    }

    pub(crate) async fn confirm(&mut self, install: &Install) -> Report {
        self.device.step(Step::Confirm { release: install.release }).unwrap();
        self.until(|report| matches!(report, Report::Confirmed { .. } | Report::ConfirmFailed { .. }).then_some(report)).await
    }

    pub(crate) async fn revert(&mut self, install: &Install) -> Report {
        self.leave(install, "unhealthy", true).await
    }

    /// An abort with rollback: the release is not to blame.
    pub(crate) async fn abort(&mut self, install: &Install) -> Report {
        self.leave(install, "aborted with rollback", false).await
    }

    async fn leave(&mut self, install: &Install, reason: &str, at_fault: bool) -> Report {
        let reason = Reason::lossy(reason);
        self.device.step(Step::Revert { release: install.release, reason, at_fault }).unwrap();
        self.until(|report| matches!(report, Report::Reverted { .. } | Report::Confirmed { .. }).then_some(report)).await
    }

    /// Installs and confirms a release.
    pub(crate) async fn install(&mut self, install: &Install) {
        assert_eq!(self.stage(install).await, Report::Staged { release: install.release });
        assert_eq!(self.activate(install).await, Report::Activated { release: install.release });
        assert_eq!(self.confirm(install).await, Report::Confirmed { release: install.release });
    }

    /// Installs `one`, and puts `two` in its place: what became of that, unconfirmed.
    pub(crate) async fn upgrade(&mut self, one: &Install, two: &Install) -> Report {
        self.install(one).await;
        self.stage(two).await;
        self.activate(two).await
    }

    pub(crate) async fn shutdown(self) {
        drop(self.reports);
        timeout(PATIENCE, self.device.shutdown()).await.expect("a device stops soon");
    }
}

/// Says that a test shows nothing on this machine, past the harness that keeps what passing tests print.
pub(crate) fn not_tested(why: &str) {
    let thread = std::thread::current();
    let _ = writeln!(io::stderr(), "NOT TESTED: {}: {why}", thread.name().unwrap_or_default());
}

/// Whether a process has not ended.
pub(crate) fn runs(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Waits until `path` has content: the only sign that a script has come so far.
pub(crate) async fn content(path: &Path) -> String {
    let look = async {
        loop {
            match fs::read_to_string(path) {
                Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("{} does not appear", path.display()))
}

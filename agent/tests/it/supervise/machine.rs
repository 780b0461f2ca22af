//! A machine with a supervisor: its files, its builds, and what became of them.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use groundswell_agent::install::files::OnDisk;
use groundswell_agent::install::forks;
use groundswell_agent::supervise::marks::{Marks, TrialMark};
use groundswell_core::digest::Digest;
use groundswell_core::install::Slot;
use groundswell_core::install::supervision::{Boots, Named, Reading};
use rustix::process::{Pid, Signal, kill_process};
use sha2::Digest as _;

use crate::workshop::PATIENCE;

pub(super) const CONFIG: &str = "GROUNDSWELL_TEST_SUPERVISE";
pub(super) const OWN: &str = "GROUNDSWELL_TEST_OWN";
pub(super) const SERVICE: &str = "GROUNDSWELL_TEST_SERVICE";
pub(super) const KIND: &str = "GROUNDSWELL_TEST_AGENT";
pub(super) const DATA: &str = "GROUNDSWELL_TEST_DATA";
/// A supervisor that adopts orphans, as process 1 does.
pub(super) const ADOPTS: &str = "GROUNDSWELL_TEST_ADOPTS";
pub(super) const PRODUCT: &str = "swell";

/// Marks a build as on trial since the machine's start, for ten minutes.
pub(super) fn trial_of(named: Named) -> TrialMark {
    let Named { slot, sha256, size_bytes } = named;
    TrialMark {
        trial: "1.1".to_owned(),
        slot,
        sha256,
        size_bytes,
        most_boots: 3,
        confirm_within_seconds: 600,
        boot: String::new(),
        since_ms: 0,
        since_awake_ms: Some(0),
    }
}

pub(super) fn note(data: &Path, line: &str) {
    // Beside the data folder, which may take no writes.
    let mut file = fs::File::options().create(true).append(true).open(data.with_file_name("noted")).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

pub(super) fn confirm(data: &Path, named: &Named) {
    let Named { slot, sha256, size_bytes } = named;
    let text = format!(
        "{{\"spec\":1,\"slot\":\"{}\",\"sha256\":\"{sha256}\",\"sizeBytes\":{size_bytes},\"version\":\"more\"}}",
        slot.name()
    );
    let folder = data.join("products").join(PRODUCT);
    fs::write(folder.join("confirmed.new"), text).unwrap();
    fs::rename(folder.join("confirmed.new"), folder.join("confirmed.json")).unwrap();
}

/// A machine with a supervisor.
pub(super) struct Machine {
    pub(super) folder: tempfile::TempDir,
    pub(super) supervisor: Option<Child>,
    pub(super) trials: u32,
    /// What a service manager hears.
    pub(super) service: UnixDatagram,
}

impl Machine {
    /// `times` are further lines of the table `supervise`.
    pub(super) fn new(times: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "data-dir = \"data\"\na-key-of-years-to-come = 1\n[product.{PRODUCT}.activator]\ntype = \"agent\"\n\
             [supervise]\nbackoff = \"50ms\"\nstop-timeout = \"20s\"\n{times}"
        );
        fs::write(folder.path().join("agent.toml"), config).unwrap();
        let service = UnixDatagram::bind(folder.path().join("service")).unwrap();
        let machine = Self { folder, supervisor: None, trials: 0, service };
        fs::create_dir_all(machine.data()).unwrap();
        machine.service.set_read_timeout(Some(PATIENCE)).unwrap();
        machine.script(&machine.folder.path().join("own"), "fine");
        machine
    }

    /// The same, with a confirmed build in slot a that runs.
    pub(super) fn confirmed(times: &str) -> Self {
        let mut machine = Self::new(times);
        let named = machine.fill(Slot::A, "fine");
        confirm(&machine.data(), &named);
        machine.start();
        machine.sees("the confirmed build is up", |noted| noted.ends_with("up\n"));
        machine
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(super) fn marks(&self) -> Marks {
        Marks::new(Arc::new(OnDisk), &self.data(), Some(PRODUCT))
    }

    pub(super) fn script(&self, path: &Path, kind: &str) {
        let program = std::env::current_exe().unwrap();
        let text = format!(
            "#!/bin/sh\nexport {KIND}={kind} {DATA}={}\nexec {} --exact supervise::agent_process --nocapture\n",
            self.data().display(),
            program.display()
        );
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        // Another program runs it: to that it is busy as long as a child of another test has it open.
        forks::wait();
    }

    /// Puts a build into a slot.
    pub(super) fn fill(&self, slot: Slot, kind: &str) -> Named {
        let folder = self.data().join("products").join(PRODUCT).join("slots").join(slot.name());
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(PRODUCT);
        self.script(&path, kind);
        let bytes = fs::read(&path).unwrap();
        Named { slot, sha256: Digest(sha2::Sha256::digest(&bytes).into()), size_bytes: bytes.len() as u64 }
    }

    pub(super) fn start(&mut self) {
        self.start_as(Command::new(std::env::current_exe().unwrap()));
    }

    /// The same by a command that runs what follows it.
    pub(super) fn start_as(&mut self, mut command: Command) {
        let log = fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        command.args(["--exact", "supervise::supervisor_process", "--nocapture"]);
        command.env(CONFIG, self.folder.path().join("agent.toml")).env(OWN, self.folder.path().join("own"));
        command.env(SERVICE, self.folder.path().join("service"));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.supervisor = Some(forks::starting(|| command.spawn()).unwrap());
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = self.supervisor.as_ref().map(Child::id).and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        kill_process(pid.expect("it runs"), signal).unwrap();
    }

    /// The newest agent's process.
    pub(super) fn agent(&self) -> Pid {
        let noted = self.noted();
        let last = noted.lines().rfind(|line| line.starts_with("start ")).unwrap();
        Pid::from_raw(last.rsplit(' ').next().unwrap().parse().unwrap()).unwrap()
    }

    pub(super) fn ends(&mut self) -> ExitStatus {
        let mut supervisor = self.supervisor.take().unwrap();
        let began = Instant::now();
        loop {
            if let Some(status) = supervisor.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end: {}", self.told());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The running agent fills slot b with a build, and asks for its trial.
    pub(super) fn tries(&mut self, kind: &str, confirm_within_seconds: u64) {
        let named = self.fill(Slot::B, kind);
        self.trials += 1;
        let now = groundswell_agent::clock::now();
        let mark = TrialMark {
            trial: format!("1.{}", self.trials),
            confirm_within_seconds,
            boot: fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned(),
            since_ms: now.boot.0,
            since_awake_ms: Some(now.awake_ms),
            ..trial_of(named)
        };
        self.marks().write_trial(&mark).unwrap();
        self.signal(Signal::USR2);
    }

    pub(super) fn boots(&self) -> Boots {
        match self.marks().boots() {
            Reading::Said(boots) => boots,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn noted(&self) -> String {
        fs::read_to_string(self.data().with_file_name("noted")).unwrap_or_default()
    }

    pub(super) fn starts(&self, what: &str) -> usize {
        self.noted().lines().filter(|line| line.starts_with(&format!("start {what} "))).count()
    }

    pub(super) fn told(&self) -> String {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        format!("noted:\n{}log:\n{log}", self.noted())
    }

    pub(super) fn sees(&self, what: &str, done: impl Fn(&str) -> bool) {
        let began = Instant::now();
        while !done(&self.noted()) {
            assert!(began.elapsed() < PATIENCE, "not seen: {what}\n{}", self.told());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the supervisor has written down which process its first agent is: that may come after the agent's own word.
    pub(super) fn is_written_down(&self) {
        self.sees("its process is written down", |_| self.data().join("supervise/run.json").exists());
    }

    /// Waits until the confirmed build is back and up, after the trial was given up.
    pub(super) fn is_back(&self) {
        self.sees("the confirmed build is back", |noted| {
            let last = noted.lines().rfind(|line| line.starts_with("start "));
            last.is_some_and(|line| line.starts_with("start a fine")) && noted.ends_with("up\n") && noted.contains("start b")
        });
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut supervisor) = self.supervisor.take() {
            // The agent is asked to end by the kernel.
            let _ = supervisor.kill();
            let _ = supervisor.wait();
        }
        let names_a_process = |line: &&str| ["start ", "stray ", "daemon "].iter().any(|what| line.starts_with(what));
        for line in self.noted().lines().filter(names_a_process) {
            let pid = line.rsplit(' ').next().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
            let named = |pid: Pid| fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
            let is_ours = |pid: Pid| {
                let named = String::from_utf8_lossy(&named(pid)).into_owned();
                named.contains("supervise::agent_process") || named.starts_with("sleep")
            };
            if let Some(pid) = pid.filter(|pid| is_ours(*pid)) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

//! The contract of signs of life, which a supervisor keeps for ever: a build that knows nothing of this program but these words
//! is kept alive by it, and one that does not keep them is not.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest as _, Sha256};

use crate::helper::PATIENCE;

/// A build of any age, in full: names and words stand here as they have stood in version 0.1.0. Never change them.
const STUB: &str = r#"#!/bin/sh
trap 'exit 7' TERM
echo "start $$ $GROUNDSWELL_SUPERVISOR_SIGNS" >> NOTED
printf 'READY=1' >&"$GROUNDSWELL_SUPERVISOR_SIGNS"
while :; do
    printf 'WATCHDOG=1' >&"$GROUNDSWELL_SUPERVISOR_SIGNS"
    sleep 0.1
done
"#;

struct Machine {
    folder: tempfile::TempDir,
    service: UnixDatagram,
    supervisor: Option<Child>,
}

impl Machine {
    /// With `build` as its confirmed build, and a silence of so many seconds that is allowed: more than a build that lives needs on
    /// a busy machine.
    fn new(build: &str, silence_seconds: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let config = format!(
            "data-dir = \"data\"\n[product.swell.activator]\ntype = \"agent\"\n[supervise]\nready-within = \"60s\"\n\
             silence = \"{silence_seconds}s\"\nbackoff = \"50ms\"\nstop-timeout = \"20s\"\n"
        );
        fs::write(at("agent.toml"), config).unwrap();
        let slot = at("data/products/swell/slots/a");
        fs::create_dir_all(&slot).unwrap();
        let text = build.replace("NOTED", &at("noted").display().to_string());
        fs::write(slot.join("swell"), &text).unwrap();
        fs::set_permissions(slot.join("swell"), fs::Permissions::from_mode(0o755)).unwrap();
        let sha256: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        let confirmed = format!("{{\"spec\":1,\"slot\":\"a\",\"sha256\":\"sha256/{sha256}\",\"sizeBytes\":{}}}", text.len());
        fs::write(at("data/products/swell/confirmed.json"), confirmed).unwrap();
        let service = UnixDatagram::bind(at("service")).unwrap();
        service.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { folder, service, supervisor: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&mut self, stderr: Stdio) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_swell"));
        command.arg("supervise").arg("--config").arg(self.path("agent.toml")).env("NOTIFY_SOCKET", self.path("service"));
        self.supervisor = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().unwrap());
    }

    fn log(&self) -> fs::File {
        fs::File::options().create(true).append(true).open(self.path("log")).unwrap()
    }

    /// What a service manager hears next.
    fn hears(&self) -> String {
        let mut datagram = [0; 4096];
        loop {
            match self.service.recv(&mut datagram) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => {
                    let length = received.unwrap_or_else(|error| panic!("nothing is told: {error}\n{}", self.told()));
                    return String::from_utf8_lossy(&datagram[..length]).into_owned();
                }
            }
        }
    }

    fn hears_life(&self, times: usize) {
        let mut signs = 0;
        while signs < times {
            signs += usize::from(self.hears() == "WATCHDOG=1");
        }
    }

    fn told(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.path(name)).unwrap_or_default();
        format!("noted:\n{}log:\n{}", read("noted"), read("log"))
    }

    fn starts(&self) -> Vec<Pid> {
        let noted = fs::read_to_string(self.path("noted")).unwrap_or_default();
        noted.lines().filter_map(|line| Pid::from_raw(line.split(' ').nth(1)?.parse().ok()?)).collect()
    }

    fn waits_for(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !done(self) {
            assert!(began.elapsed() < PATIENCE, "not seen: {what}\n{}", self.told());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_told_to_end(&mut self) -> ExitStatus {
        let mut supervisor = self.supervisor.take().unwrap();
        kill_process(Pid::from_child(&supervisor), Signal::TERM).unwrap();
        let began = Instant::now();
        loop {
            if let Some(status) = supervisor.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end\n{}", self.told());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut supervisor) = self.supervisor.take() {
            let _ = supervisor.kill();
            let _ = supervisor.wait();
        }
    }
}

fn is_documented(words: &[&str]) {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/INSTALL.md")).unwrap();
    words.iter().for_each(|word| assert!(page.contains(word), "docs/INSTALL.md does not tell of {word}"));
}

#[test]
fn a_build_that_knows_only_the_contract_of_signs_of_life_is_kept_alive() {
    is_documented(&["GROUNDSWELL_SUPERVISOR_SIGNS", "READY=1", "WATCHDOG=1"]);
    let mut machine = Machine::new(STUB, 5);
    machine.start(machine.log().into());
    while machine.hears() != "READY=1" {}
    // Several times the silence that is allowed.
    machine.hears_life(150);
    assert_eq!(machine.starts().len(), 1, "{}", machine.told());
    assert!(machine.told().contains(" 0\n"), "it speaks by the file with the number 0");
    assert_eq!(machine.is_told_to_end().code(), Some(7), "{}", machine.told());
}

#[test]
fn a_build_that_gives_no_signs_of_life_is_killed_and_started_again() {
    let mut machine = Machine::new(&STUB.replace("WATCHDOG=1", "WATCHDOG=0"), 2);
    machine.start(machine.log().into());
    machine.waits_for("a second start", |machine| machine.starts().len() > 1);
    assert!(machine.told().contains("no sign of life for 2 s"), "{}", machine.told());
}

#[test]
fn a_log_that_nobody_reads_holds_up_no_supervisor() {
    let mut machine = Machine::new(STUB, 20);
    let (unread, mut full) = io::pipe().unwrap();
    let flags = fcntl_getfl(&full).unwrap();
    fcntl_setfl(&full, flags | OFlags::NONBLOCK).unwrap();
    while full.write(&[b'x'; 4096]).is_ok() {}
    while full.write(b"x").is_ok() {}
    fcntl_setfl(&full, flags).unwrap();
    machine.start(full.into());
    machine.hears_life(20);
    for start in 1..=3 {
        kill_process(*machine.starts().last().unwrap(), Signal::KILL).unwrap();
        machine.waits_for("it is started again", |machine| machine.starts().len() > start);
        machine.hears_life(20);
    }
    assert_eq!(machine.is_told_to_end().code(), Some(7), "{}", machine.told());
    drop(unread);
}

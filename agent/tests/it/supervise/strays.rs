//! What a build leaves running when it ends, and who may speak for it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use groundswell_agent::install::forks;
use rustix::process::{Pid, Signal, test_kill_process};

use super::faults;
use super::machine::{ADOPTS, KIND, Machine, note};
use crate::workshop::PATIENCE;

/// Of what is private between a supervisor and its agent nothing reaches what an agent starts on purpose.
const PRIVATE: [&str; 5] = [
    "WATCHDOG_USEC",
    "GROUNDSWELL_SUPERVISOR",
    "GROUNDSWELL_SUPERVISOR_FOLDER",
    "GROUNDSWELL_SUPERVISOR_SIGNS",
    "GROUNDSWELL_SUPERVISOR_SLOT",
];

/// A build that leaves processes behind: in its group, out of it, and a service that it started on purpose.
#[expect(clippy::zombie_processes, reason = "it ends before they do")]
pub(super) fn litter(data: &Path) {
    let sleeper = || {
        let mut command = Command::new("sleep");
        command.arg("3600").stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let in_its_group = sleeper().spawn().unwrap();
    let in_one_of_its_own = sleeper().process_group(0).spawn().unwrap();
    let mut service = sleeper();
    for name in PRIVATE {
        service.env_remove(name);
    }
    let service = service.process_group(0).spawn().unwrap();
    note(data, &format!("stray {}", in_its_group.id()));
    note(data, &format!("stray {}", in_one_of_its_own.id()));
    note(data, &format!("daemon {}", service.id()));
}

/// A process beside the build that has its end of the pair, and gives signs of life in its place.
pub(super) fn other_voice() -> Child {
    let mut voice = Command::new(std::env::current_exe().unwrap());
    voice.args(["--exact", "supervise::agent_process", "--nocapture"]).env(KIND, "voice");
    voice.stdin(Stdio::inherit()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// A process whose parent ends before it does, and which then ends too.
pub(super) fn orphan(data: &Path) {
    let mut shell = Command::new("sh");
    let told = shell.args(["-c", "sleep 0.05 > /dev/null & echo $!"]).output().unwrap();
    note(data, &format!("stray {}", String::from_utf8(told.stdout).unwrap().trim()));
}

fn noted(machine: &Machine, what: &str) -> Vec<Pid> {
    let noted = machine.noted();
    let lines = noted.lines().filter_map(|line| line.strip_prefix(what)?.trim().parse().ok());
    lines.filter_map(Pid::from_raw).collect()
}

/// The sockets that a process has open.
fn sockets(process: Pid) -> Vec<PathBuf> {
    let files = fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero())).unwrap();
    let files = files.map(|file| fs::read_link(file.unwrap().path()).unwrap());
    files.filter(|file| file.to_string_lossy().starts_with("socket:")).collect()
}

/// Whether a process still does anything.
fn runs(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
    test_kill_process(process).is_ok() && !stat.contains(") Z ")
}

#[test]
fn what_a_build_leaves_running_is_ended_before_the_next_one_starts() {
    let mut machine = Machine::confirmed("");
    machine.tries("litters", 600);
    machine.is_back();
    let (strays, services) = (noted(&machine, "stray "), noted(&machine, "daemon "));
    assert_eq!((strays.len(), services.len()), (6, 3), "{}", machine.told());
    assert!(strays.iter().all(|stray| !runs(*stray)), "{}", machine.told());
    assert!(services.iter().all(|service| runs(*service)), "what was started on purpose goes on: {}", machine.told());
    assert!(services.iter().all(|service| sockets(*service).is_empty()), "nothing is inherited by which it could speak");
    // The second boot of the trial came after the strays of the first one: its group was empty by then.
    let log = machine.told();
    assert!(log.contains("a process that an agent left behind is killed"), "{log}");
}

#[test]
fn what_an_agent_of_a_killed_supervisor_leaves_running_is_ended_by_the_next_one() {
    let mut machine = Machine::confirmed("");
    machine.tries("ventriloquist", 600);
    machine.sees("the other process runs", |noted| noted.contains("stray "));
    let stray = noted(&machine, "stray ")[0];
    machine.signal(Signal::KILL);
    machine.ends();
    // It is told to end by the kernel; what it started is not.
    let agent = machine.agent();
    until(&machine, || !runs(agent));
    assert!(runs(stray));
    machine.start();
    until(&machine, || !runs(stray));
}

fn until(machine: &Machine, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "{}", machine.told());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn signs_of_life_come_by_a_pair_that_nobody_else_can_find() {
    let mut machine = Machine::confirmed("silence = \"5s\"\n");
    machine.sees("it is up", |noted| noted.ends_with("up\n"));
    assert!(!sockets(machine.agent()).is_empty());
    let folder = machine.data().display().to_string();
    let named = fs::read_to_string("/proc/net/unix").unwrap();
    let found: Vec<&str> =
        named.lines().filter(|line| line.contains(&folder) || line.contains("@groundswell-supervise")).collect();
    assert!(found.is_empty(), "{found:?}");
    machine.signal(Signal::TERM);
    assert_eq!(machine.ends().code(), Some(7), "{}", machine.told());
}

#[test]
fn no_other_process_gives_signs_of_life_in_the_place_of_a_build_that_hangs() {
    let mut machine = Machine::confirmed("ready-within = \"6s\"\nsilence = \"6s\"\n");
    machine.tries("ventriloquist", 600);
    machine.is_back();
    let boots = machine.boots();
    assert!(boots.given_up.is_some_and(|why| why.contains("not up within 6 s")), "{}", machine.told());
    assert_eq!(machine.starts("b ventriloquist"), 1);
}

#[test]
fn an_agent_that_has_left_its_process_group_is_killed_too() {
    let mut machine = Machine::new("");
    let config = machine.folder.path().join("agent.toml");
    fs::write(&config, fs::read_to_string(&config).unwrap().replace("20s", "200ms")).unwrap();
    machine.script(&machine.folder.path().join("own"), "deserts");
    machine.start();
    machine.sees("it is up", |noted| noted.ends_with("up\n"));
    machine.signal(Signal::TERM);
    assert_eq!(machine.ends().code(), Some(137), "{}", machine.told());
}

#[test]
fn orphans_are_waited_for_and_their_agent_is_not_taken_for_one() {
    let mut machine = Machine::new("");
    machine.script(&machine.folder.path().join("own"), "orphans");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(ADOPTS, "1");
    machine.start_as(command);
    machine.sees("it is up", |noted| noted.ends_with("up\n"));
    let orphan = noted(&machine, "stray ")[0];
    until(&machine, || test_kill_process(orphan).is_err());
    machine.signal(Signal::TERM);
    assert_eq!(machine.ends().code(), Some(7), "{}", machine.told());
    assert_eq!(machine.starts("own orphans"), 1);
}

#[test]
fn a_supervisor_that_finds_another_at_work_leaves_what_is_that_ones() {
    let mut machine = faults::confirmed("");
    fs::set_permissions(machine.data(), fs::Permissions::from_mode(0o755)).unwrap();
    // Another supervisor, as far as that can be told: others can read the folder.
    let held = fs::File::open(machine.data()).unwrap();
    held.lock().unwrap();
    machine.start();
    machine.sees("it is up", |noted| noted.ends_with("up\n"));
    let folder = machine.data().join("supervise");
    // Later it would take the place of what the other one has written.
    machine.is_written_down();
    let mut its_agent = Command::new("sleep");
    its_agent.arg("3600").env("GROUNDSWELL_SUPERVISOR_FOLDER", &folder).process_group(0);
    let mut its_agent = forks::starting(|| its_agent.spawn()).unwrap();
    let its_note = "{\"spec\":1,\"process\":1,\"startedTicks\":1,\"boot\":\"another\"}";
    fs::write(folder.join("run.json"), its_note).unwrap();
    // Now it can: nobody else can have locked it.
    fs::set_permissions(machine.data(), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(machine.ends().code(), Some(1), "{}", machine.told());
    assert!(machine.told().contains("another supervisor uses the folder"), "{}", machine.told());
    assert!(!runs(machine.agent()), "its own agent has ended");
    assert_eq!(its_agent.try_wait().unwrap(), None, "the other one's goes on");
    assert_eq!(fs::read_to_string(folder.join("run.json")).unwrap(), its_note);
    its_agent.kill().unwrap();
    its_agent.wait().unwrap();
}

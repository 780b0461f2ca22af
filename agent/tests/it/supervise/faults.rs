//! A disk that does not do what a supervisor wants of it: the confirmed build runs all the same (S6).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use groundswell_agent::install::forks;
use groundswell_core::install::Slot;
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Signal, kill_process};

use super::machine::{Machine, PRODUCT, confirm};
use crate::workshop::{PATIENCE, not_tested};

/// A machine with a confirmed build, before its supervisor is started for the first time.
pub(super) fn confirmed(times: &str) -> Machine {
    let machine = Machine::new(times);
    let named = machine.fill(Slot::A, "fine");
    confirm(&machine.data(), &named);
    machine
}

fn is_up(machine: &Machine) {
    machine.sees("the confirmed build is up", |noted| noted.starts_with("start a fine") && noted.ends_with("up\n"));
    assert_eq!(machine.starts("own fine"), 0, "{}", machine.told());
}

pub(super) fn logs(machine: &Machine, what: &str) {
    let began = Instant::now();
    while !machine.told().contains(what) {
        assert!(began.elapsed() < PATIENCE, "not logged: {what}\n{}", machine.told());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn fifo(path: &Path) {
    mkfifoat(CWD, path, Mode::from_raw_mode(0o600)).unwrap();
}

#[test]
fn s6_whatever_is_in_the_place_of_the_supervisors_own_files_the_confirmed_build_runs() {
    let folder = |path: &Path| fs::create_dir_all(path.join("full")).unwrap();
    let file = |path: &Path| fs::write(path, "no folder").unwrap();
    type Put<'a> = &'a dyn Fn(&Path);
    let places: [(&str, Put<'_>, &str); 5] = [
        ("supervise/lock", &folder, "not holding"),
        ("supervise/lock", &fifo, "not holding"),
        ("supervise", &file, "not able to use the folder"),
        // Nobody writes into it, and nobody is waited for.
        ("supervise/run.json", &fifo, "starting the confirmed build"),
        ("supervise/trial.json", &fifo, "starting the confirmed build"),
    ];
    for (name, put, said) in places {
        let mut machine = confirmed("silence = \"5s\"\n");
        let path = machine.data().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        put(&path);
        machine.start();
        is_up(&machine);
        logs(&machine, said);
        // Its signs of life arrive: it is told to end, and not killed for silence.
        machine.signal(Signal::TERM);
        assert_eq!(machine.ends().code(), Some(7), "{name}: {}", machine.told());
    }
}

#[test]
fn two_supervisors_do_not_share_a_folder_in_which_nothing_can_be_locked() {
    let mut machine = confirmed("");
    fs::create_dir_all(machine.data().join("supervise/lock")).unwrap();
    machine.start();
    is_up(&machine);
    let first = machine.supervisor.take();
    machine.start();
    assert_eq!(machine.ends().code(), Some(1));
    assert!(machine.told().contains("another supervisor uses the folder"), "{}", machine.told());
    machine.supervisor = first;
    assert_eq!(machine.starts("a fine"), 1);
}

/// A shell in a mount namespace of its own, where this machine allows that: `DATA` of what it runs is mounted so.
fn mounting(mount: &str) -> Option<Command> {
    let allowed = forks::starting(|| Command::new("unshare").args(["--mount", "true"]).status());
    if !allowed.is_ok_and(|status| status.success()) {
        not_tested("only root can mount");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{mount} && exec \"$0\" \"$@\"")]);
    command.arg(std::env::current_exe().unwrap());
    Some(command)
}

#[test]
fn s6_the_confirmed_build_runs_from_a_read_only_data_folder_and_no_build_is_tried() {
    let mut machine = confirmed("");
    let data = machine.data().display().to_string();
    let Some(command) = mounting(&format!("mount --bind {data} {data} && mount -o remount,bind,ro {data}")) else { return };
    machine.start_as(command);
    is_up(&machine);
    logs(&machine, "not holding");
    machine.fill(Slot::B, "fine");
    machine.tries("fine", 600);
    machine.sees("the confirmed build is back", |noted| noted.matches("start a fine").count() == 2 && noted.ends_with("up\n"));
    assert_eq!(machine.starts("b fine"), 0);
    logs(&machine, "cannot be written down");
}

#[test]
fn s6_the_confirmed_build_runs_where_no_file_can_be_made() {
    let mut machine = confirmed("");
    let data = machine.data().display().to_string();
    // As many files as there are, and none more.
    let mount = format!(
        "cp -a {data} {data}.kept && mount -t tmpfs -o nr_inodes=8 none {data} && cp -a {data}.kept/. {data} && \
         {{ touch {data}/1 {data}/2 {data}/3 {data}/4 {data}/5 {data}/6 || true; }} 2>/dev/null"
    );
    let Some(command) = mounting(&mount) else { return };
    machine.start_as(command);
    is_up(&machine);
    logs(&machine, "not able to use the folder");
    let told = machine.told();
    assert!(told.contains("No space left") && !told.contains("shorter"), "{told}");
}

#[test]
fn s5_a_confirmed_build_that_is_gone_for_a_moment_is_waited_for() {
    let mut machine = confirmed("");
    let config = machine.folder.path().join("agent.toml");
    fs::write(&config, fs::read_to_string(&config).unwrap().replace("50ms", "2s")).unwrap();
    machine.start();
    is_up(&machine);
    let slot = machine.data().join("products").join(PRODUCT).join("slots/a");
    fs::rename(&slot, slot.with_extension("away")).unwrap();
    kill_process(machine.agent(), Signal::KILL).unwrap();
    logs(&machine, "tried again in");
    fs::rename(slot.with_extension("away"), &slot).unwrap();
    machine.sees("it is up again", |noted| noted.matches("start a fine").count() == 2 && noted.ends_with("up\n"));
    assert_eq!(machine.starts("own fine"), 0);
}

#[test]
fn s5_the_confirmed_build_takes_its_place_back_when_its_file_is_whole_again() {
    let mut machine = confirmed("backoff-max = \"200ms\"\n");
    let binary = machine.data().join("products").join(PRODUCT).join("slots/a").join(PRODUCT);
    let whole = fs::read(&binary).unwrap();
    fs::write(&binary, "damaged").unwrap();
    machine.start();
    machine.sees("its own build is up", |noted| noted.starts_with("start own fine") && noted.ends_with("up\n"));
    fs::write(binary.with_extension("new"), whole).unwrap();
    fs::set_permissions(binary.with_extension("new"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(binary.with_extension("new"), &binary).unwrap();
    machine.sees("the confirmed build is back", |noted| noted.contains("end\nstart a fine") && noted.ends_with("up\n"));
    assert_eq!(machine.starts("own fine"), 1);
}

#[test]
fn s6_an_agent_gives_signs_of_life_where_nothing_empty_can_be_its_standard_input() {
    let mut machine = confirmed("silence = \"5s\"\n");
    let Some(command) = mounting("mount -t tmpfs none /dev") else { return };
    machine.start_as(command);
    is_up(&machine);
    machine.signal(Signal::TERM);
    assert_eq!(machine.ends().code(), Some(7), "{}", machine.told());
}

#[test]
fn s6_a_lock_that_another_user_may_have_had_taken_keeps_no_supervisor_from_starting() {
    let mut machine = confirmed("");
    fs::set_permissions(machine.data(), fs::Permissions::from_mode(0o755)).unwrap();
    // As a program would that is setuid, and has inherited the file from whoever has run it.
    let held = fs::File::open(machine.data()).unwrap();
    held.lock().unwrap();
    machine.start();
    is_up(&machine);
    logs(&machine, "other users can read the folder");
    // The file that nobody else can open decides.
    let first = machine.supervisor.take();
    machine.start();
    assert_eq!(machine.ends().code(), Some(1));
    machine.supervisor = first;
    assert_eq!(machine.starts("a fine"), 1);

    let mut machine = confirmed("");
    fs::set_permissions(machine.data(), fs::Permissions::from_mode(0o700)).unwrap();
    let held = fs::File::open(machine.data()).unwrap();
    held.lock().unwrap();
    machine.start();
    assert_eq!(machine.ends().code(), Some(1), "nobody else can have it: {}", machine.told());
}

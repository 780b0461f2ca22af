//! The adapters in docs/updaters, as they are handed out, with stand-ins for the updaters on a machine made of files.
//!
//! The machine: `a` and `b` hold the version of a system, `runs` and `next` name one of them. A stand-in takes only
//! the commands that the real program has, and writes what it was told into `told`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use groundswell_agent::config::{Activator, Config};
use groundswell_agent::health::{Monitor, Target};
use groundswell_agent::install::activate::Launch;
use groundswell_agent::install::activate::process::{Ended, run};
use groundswell_agent::install::executor::{Executor, Outcome};
use groundswell_agent::install::forks;
use groundswell_agent::install::way_back::Pauses;
use groundswell_core::digest::{Digest, Hex32};
use groundswell_core::install::{Boot, Contents, Slot};
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Health, Recovered, Report};
use groundswell_core::record::status::HoldCode;
use groundswell_core::text::{Product, Reason};
use tokio::sync::mpsc;

use crate::workshop::{PATIENCE, Workshop, claim};

mod boot_loaders;

const ADAPTERS: [&str; 3] = ["rauc", "swupdate", "ostree"];

struct Board {
    workshop: Workshop,
    adapter: &'static str,
    one: Install,
    two: Install,
    boots: u32,
}

impl Board {
    /// A machine on which nothing was installed yet: `b` holds the system that it was delivered with.
    fn delivered(adapter: &'static str) -> Self {
        let mut workshop = Workshop::noting_starts();
        for folder in ["machine", "programs", "scripts"] {
            fs::create_dir(workshop.path(folder)).unwrap();
        }
        for file in ["runs", "next"] {
            fs::write(workshop.path("machine").join(file), "b\n").unwrap();
        }
        fs::write(workshop.path("machine/b"), "0.9\n").unwrap();
        fs::write(workshop.path("machine/os-release"), "ID=stand-in\nVERSION_ID=0.9\n").unwrap();
        fs::write(workshop.path("machine/uptime"), "20.51 33.05\n").unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
        let header = format!(
            "#!/bin/sh\nexport MACHINE={0}/machine OS_RELEASE={0}/machine/os-release UPTIME={0}/machine/uptime \
             PATH={0}/programs:$PATH\necho \"${{0##*/}}\" >> {0}/machine/ran\n",
            workshop.home().display()
        );
        copy_programs(&sources.join("tests/it/updaters"), &workshop.path("programs"), &header);
        copy_programs(&sources.join("../docs/updaters"), &workshop.path("scripts"), &header);
        let mut config = product(&sources.join("../docs/updaters").join(format!("{adapter}.toml")), workshop.home());
        let Activator::Command(command) = &mut config.activator else { panic!("an updater is a command") };
        command.reboot.as_mut().expect("an updater restarts the machine").timeout = Duration::from_millis(200);
        workshop.config = config;
        let (one, two) = (system(&workshop, adapter, 1), system(&workshop, adapter, 2));
        Self { workshop, adapter, one, two, boots: 0 }
    }

    /// System 1.0 runs and is confirmed.
    async fn on_one(adapter: &'static str) -> Self {
        let mut board = Self::delivered(adapter);
        let one = board.one.clone();
        let executor = board.hand_over(&one).await;
        drop(executor);
        let (mut executor, recovered) = board.restarted().await;
        assert_eq!(recovered.trial, Some(one.release), "{adapter}");
        board.confirm(&mut executor, &one).await;
        fs::remove_file(board.workshop.path("machine/told")).unwrap();
        board
    }

    /// Stages and activates, up to the restart of the machine. The stand-in restarts nothing, so the agent gives up.
    async fn hand_over(&self, install: &Install) -> Executor {
        let mut executor = self.workshop.executor().await;
        executor.recover().await.unwrap();
        executor.execute(&Step::Stage { install: install.clone() }).await;
        let outcome = executor.execute(&Step::Activate { install: install.clone(), claim: claim(), within_ms: 900_000 }).await;
        assert!(
            matches!(&outcome, Outcome::Report(Report::ActivateFailed { reason, .. }) if reason.contains("did not go down")),
            "{}: {outcome:?}",
            self.adapter
        );
        executor
    }

    /// The machine comes up with what the boot loader has next, and the agent starts.
    async fn restarted(&mut self) -> (Executor, Recovered) {
        self.boot();
        let mut executor = self.workshop.executor().await;
        let recovered = executor.recover().await.expect("nothing stops it");
        (executor, recovered)
    }

    /// The machine comes up with what the boot loader has next.
    fn boot(&mut self) {
        let machine = self.workshop.path("machine");
        fs::copy(machine.join("next"), machine.join("runs")).unwrap();
        let version = fs::read_to_string(machine.join(self.next().trim())).unwrap();
        fs::write(machine.join("os-release"), format!("ID=stand-in\nVERSION_ID={}\n", version.trim())).unwrap();
        self.boots += 1;
        self.workshop.boot = Boot(format!("boot {}", self.boots));
    }

    /// The agent starts, and restarts the machine once more; it comes up, and the agent starts again.
    async fn restarted_twice(&mut self) -> (Executor, Recovered) {
        self.boot();
        let before = self.restarts();
        self.recovers_until(|board| board.restarts() > before).await;
        self.restarted().await
    }

    /// The agent starts, and ends before it has recovered, once this is so.
    async fn recovers_until(&self, enough: impl Fn(&Self) -> bool) {
        let mut executor = self.hasty().await;
        let looks = async {
            let mut recovering = std::pin::pin!(executor.recover());
            while !enough(self) {
                tokio::select! {
                    recovered = &mut recovering => panic!("{}: it is not over: {recovered:?}", self.adapter),
                    () = tokio::time::sleep(Duration::from_millis(10)) => {}
                }
            }
        };
        tokio::time::timeout(PATIENCE, looks).await.expect("it comes to that");
    }

    /// An executor that waits for nothing.
    async fn hasty(&self) -> Executor {
        let pause = Duration::from_millis(10);
        self.workshop.executor().await.pausing(Pauses { start: pause, first: pause, longest: pause })
    }

    /// How often the machine was restarted since system 1.0 was confirmed.
    fn restarts(&self) -> usize {
        self.told().iter().filter(|told| *told == "reboot").count()
    }

    /// How often the machine was asked which version it runs.
    fn asked(&self) -> usize {
        self.workshop.lines("machine/ran").iter().filter(|ran| *ran == "booted-version").count()
    }

    /// System 2.0 runs on trial and is left, and nothing that it can do leads back.
    async fn on_two_without_a_way_back(adapter: &'static str) -> Self {
        let mut board = Self::on_one(adapter).await;
        let two = board.two.clone();
        drop(board.hand_over(&two).await);
        let (executor, _) = board.restarted().await;
        drop(executor);
        fs::copy(board.workshop.path("machine/runs"), board.workshop.path("machine/broken")).unwrap();
        let mut executor = board.hasty().await;
        executor.recover().await.unwrap();
        assert_eq!(board.revert(&mut executor, &two).await, Outcome::Again, "{adapter}");
        assert_eq!((board.restarts(), board.next_version().as_str()), (1, "2.0"), "{adapter}: not at once");
        board
    }

    fn note(&self, name: &str, text: &str) {
        fs::write(self.workshop.path("machine").join(name), format!("{text}\n")).unwrap();
    }

    async fn confirm(&self, executor: &mut Executor, install: &Install) {
        let outcome = executor.execute(&Step::Confirm { release: install.release }).await;
        assert_eq!(outcome, Outcome::Report(Report::Confirmed { release: install.release }), "{}", self.adapter);
    }

    async fn revert(&self, executor: &mut Executor, install: &Install) -> Outcome {
        let reason = Reason::lossy("unhealthy");
        executor.execute(&Step::Revert { release: install.release, reason, at_fault: true }).await
    }

    fn next(&self) -> String {
        fs::read_to_string(self.workshop.path("machine/next")).unwrap().trim().to_owned()
    }

    /// The version of the system that the boot loader starts next.
    fn next_version(&self) -> String {
        fs::read_to_string(self.workshop.path("machine").join(self.next())).unwrap().trim().to_owned()
    }

    /// What the updater was told since system 1.0 was confirmed.
    fn told(&self) -> Vec<String> {
        self.workshop.lines("machine/told")
    }
}

/// Copies programs, each with `header` in front in place of its first line if that names a shell.
fn copy_programs(from: &Path, to: &Path, header: &str) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some() {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let copy = to.join(path.file_name().unwrap());
        fs::write(&copy, format!("{header}{}", text.trim_start_matches("#!/bin/sh\n"))).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// The product of an adapter's file, with the places of the programs on this machine.
fn product(file: &Path, home: &Path) -> groundswell_agent::config::ProductConfig {
    let text = fs::read_to_string(file).unwrap();
    let home = home.display();
    let text =
        text.replace("/usr/lib/groundswell/", &format!("{home}/scripts/")).replace("/usr/bin/", &format!("{home}/programs/"));
    let fleet = Digest::of(b"a fleet");
    let text = format!("data-dir = \"data\"\nfleet = \"{fleet}\"\nkey-file = \"node.key\"\n{text}");
    let mut config = Config::parse(file, &text).unwrap();
    config.products.remove(&Product::new("os").unwrap()).expect("the product is called os")
}

/// A release whose artifact is what the adapter asks for.
fn system(workshop: &Workshop, adapter: &str, sequence: u64) -> Install {
    let mut install = workshop.release(sequence, "a system");
    if adapter != "ostree" {
        return install;
    }
    let repository = workshop.path(&format!("repository-{sequence}"));
    fs::create_dir_all(repository.join("refs/heads")).unwrap();
    fs::write(repository.join("refs/heads/groundswell"), format!("{sequence}.0\n")).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&repository).args(["-cf", "-", "."]).stdout(Stdio::piped());
    let tar = forks::starting(|| tar.spawn()).unwrap().wait_with_output().unwrap();
    assert!(tar.status.success());
    let sha256 = Digest::of(&tar.stdout);
    fs::write(workshop.path("artifacts").join(sha256.hex().to_string()), &tar.stdout).unwrap();
    install.artifact.sha256 = sha256.hex();
    install.artifact.size = tar.stdout.len() as u64;
    install.artifact.blake3 = Hex32(*blake3::hash(&tar.stdout).as_bytes());
    install
}

fn handed_over(adapter: &str) -> Vec<&'static str> {
    match adapter {
        "rauc" => vec!["rauc install", "reboot"],
        "swupdate" => vec!["swupdate-client", "fw_setenv bootpart 2", "fw_setenv ustate 1", "reboot"],
        _ => vec!["ostree pull-local", "ostree admin deploy groundswell", "reboot"],
    }
}

#[tokio::test]
async fn each_updater_takes_a_system_that_is_confirmed_after_the_restart() {
    for adapter in ADAPTERS {
        let mut board = Board::on_one(adapter).await;
        let two = board.two.clone();
        drop(board.hand_over(&two).await);
        let mut expected = handed_over(adapter);
        // System 1.0 went into a, so 2.0 goes into b.
        expected.iter_mut().filter(|told| **told == "fw_setenv bootpart 2").for_each(|told| *told = "fw_setenv bootpart 3");
        assert_eq!(board.told(), expected, "{adapter}");
        let (mut executor, recovered) = board.restarted().await;
        assert_eq!((recovered.trial, recovered.floor.get()), (Some(two.release), 1), "{adapter}");
        board.confirm(&mut executor, &two).await;
        match adapter {
            "rauc" => expected.push("rauc status mark-good booted"),
            "swupdate" => expected.push("fw_setenv ustate 0"),
            _ => {}
        }
        assert_eq!(board.told(), expected, "{adapter}");
        assert_eq!(board.next_version(), "2.0", "{adapter}");
        drop(executor);
        let (_, recovered) = board.restarted().await;
        assert_eq!((recovered.trial, recovered.floor.get()), (None, 2), "{adapter}");
    }
}

#[tokio::test]
async fn with_each_updater_a_boot_loader_that_went_back_is_a_rolled_back_verdict() {
    for adapter in ADAPTERS {
        let mut board = Board::on_one(adapter).await;
        let two = board.two.clone();
        let was = board.next();
        drop(board.hand_over(&two).await);
        assert_eq!(board.next_version(), "2.0", "{adapter}");
        // The new system did not come up. RAUC and SWUpdate leave the old one as the next; with ostree only this start was the old one's.
        fs::write(board.workshop.path("machine/next"), format!("{was}\n")).unwrap();
        let (_, recovered) = board.restarted().await;
        let (release, reason) = recovered.reverted.expect("the trial is over");
        assert_eq!(release, two.release, "{adapter}");
        assert!(reason.contains("did not start from 2.0"), "{adapter}: {reason}");
        assert_eq!(recovered.running.map(|running| running.release), Some(board.one.release), "{adapter}");
        assert_eq!(
            (recovered.denied, board.next_version()),
            (vec![two.release, Contents::of(&two).build()], "1.0".to_owned()),
            "{adapter}"
        );
    }
}

#[tokio::test]
async fn with_each_updater_an_unhealthy_system_goes_back_by_another_restart() {
    for adapter in ADAPTERS {
        let mut board = Board::on_one(adapter).await;
        let two = board.two.clone();
        drop(board.hand_over(&two).await);
        let (mut executor, _) = board.restarted().await;
        assert_eq!(board.revert(&mut executor, &two).await, Outcome::Again, "{adapter}: not before the old system runs");
        assert_eq!(board.next_version(), "1.0", "{adapter}: made the next one from the system that is left");
        assert_eq!(board.told().last().map(String::as_str), Some("reboot"), "{adapter}");
        drop(executor);
        let (_, recovered) = board.restarted().await;
        assert_eq!(recovered.reverted, Some((two.release, Reason::lossy("unhealthy"))), "{adapter}");
        assert_eq!(recovered.running.map(|running| running.release), Some(board.one.release), "{adapter}");
        assert_eq!(board.next_version(), "1.0", "{adapter}");
    }
}

#[tokio::test]
async fn with_each_updater_a_machine_that_does_not_restart_keeps_its_old_system_as_the_next_one() {
    for adapter in ADAPTERS {
        let board = Board::on_one(adapter).await;
        let two = board.two.clone();
        let mut executor = board.hand_over(&two).await;
        assert_eq!(board.next_version(), "2.0", "{adapter}");
        let outcome = board.revert(&mut executor, &two).await;
        assert!(
            matches!(&outcome, Outcome::Report(Report::Reverted { running: Some(running), .. }) if running.release == board.one.release),
            "{adapter}: {outcome:?}"
        );
        assert_eq!(board.next_version(), "1.0", "{adapter}: made the next one from the system that stays");
    }
}

#[tokio::test]
async fn with_each_updater_a_first_system_that_is_unhealthy_gives_way_to_the_one_that_was_delivered() {
    for adapter in ADAPTERS {
        for restarts in [true, false] {
            let mut board = Board::delivered(adapter);
            let one = board.one.clone();
            let mut executor = board.hand_over(&one).await;
            assert_eq!(board.next_version(), "1.0", "{adapter}");
            if !restarts {
                let outcome = board.revert(&mut executor, &one).await;
                assert!(matches!(&outcome, Outcome::Report(Report::Reverted { running: None, .. })), "{adapter}: {outcome:?}");
                assert_eq!(board.next_version(), "0.9", "{adapter}: made the next one from the system that stays");
                continue;
            }
            drop(executor);
            let (mut executor, recovered) = board.restarted().await;
            assert_eq!(recovered.trial, Some(one.release), "{adapter}");
            assert_eq!(board.revert(&mut executor, &one).await, Outcome::Again, "{adapter}: not before the old system runs");
            assert_eq!(board.next_version(), "0.9", "{adapter}: made the next one from the system that is left");
            drop(executor);
            let (_, recovered) = board.restarted().await;
            assert_eq!(recovered.reverted, Some((one.release, Reason::lossy("unhealthy"))), "{adapter}");
            assert_eq!((recovered.running, board.next_version().as_str()), (None, "0.9"), "{adapter}");
        }
    }
}

#[tokio::test]
async fn ostree_cut_between_the_pull_and_the_deployment_stays_on_the_old_system_and_blames_nothing() {
    let mut board = Board::on_one("ostree").await;
    let two = board.two.clone();
    board.note("cut", "deploy");
    let mut executor = board.workshop.executor().await;
    executor.recover().await.unwrap();
    executor.execute(&Step::Stage { install: two.clone() }).await;
    // The power fails with it: nobody reads what it says.
    executor.execute(&Step::Activate { install: two.clone(), claim: claim(), within_ms: 900_000 }).await;
    drop(executor);
    fs::remove_file(board.workshop.path("machine/cut")).unwrap();
    let (mut executor, recovered) = board.restarted().await;
    assert_eq!(recovered.reverted.map(|(release, _)| release), Some(two.release));
    assert_eq!(recovered.running.map(|running| running.release), Some(board.one.release));
    assert_eq!((recovered.at_fault, recovered.denied), (false, Vec::new()), "it was never handed over");
    assert_eq!(board.next_version(), "1.0");
    // The next time it works.
    executor.execute(&Step::Stage { install: two.clone() }).await;
    drop(executor);
    drop(board.hand_over(&two).await);
    let (mut executor, recovered) = board.restarted().await;
    assert_eq!(recovered.trial, Some(two.release));
    board.confirm(&mut executor, &two).await;
}

#[tokio::test]
async fn swupdate_cut_between_the_partition_and_its_state_ends_on_the_old_system_whichever_the_loader_takes() {
    for loader_goes_back in [false, true] {
        let mut board = Board::on_one("swupdate").await;
        let two = board.two.clone();
        drop(board.hand_over(&two).await);
        let (mut executor, _) = board.restarted().await;
        board.note("cut", "ustate");
        assert_eq!(board.revert(&mut executor, &two).await, Outcome::Again);
        drop(executor);
        fs::remove_file(board.workshop.path("machine/cut")).unwrap();
        assert_eq!(board.workshop.lines("machine/ustate"), ["1"], "the state was not written");
        assert_eq!(board.next_version(), "1.0");
        if loader_goes_back {
            // It takes the 1 for a failed update of the partition that it was just told, and starts the other one.
            let other = if board.next() == "a" { "b" } else { "a" };
            board.note("next", other);
        }
        let (_, recovered) = board.restarted_twice().await;
        assert_eq!(recovered.reverted.map(|(release, _)| release), Some(two.release), "loader goes back: {loader_goes_back}");
        assert_eq!(recovered.running.map(|running| running.release), Some(board.one.release));
        assert_eq!((board.next_version().as_str(), board.workshop.lines("machine/ustate").concat().as_str()), ("1.0", "0"));
    }
}

#[tokio::test]
async fn with_each_updater_a_system_that_still_starts_is_not_judged_and_one_that_is_ill_is() {
    for adapter in ADAPTERS {
        let board = Board::delivered(adapter);
        board.note("state", "starting");
        board.note("target", "inactive");
        let mut health = board.workshop.config.health.clone();
        health.interval = Duration::from_millis(20);
        let slots = board.workshop.disk();
        let contents = Contents::of(&board.one);
        let launch = Launch::new(slots.slots(), Slot::A, contents, None);
        let (changes, mut changed) = mpsc::channel(1);
        let monitor = Monitor::start(health, Duration::ZERO, None, changes);
        monitor.watch(Target { start: 1, launch: Some(launch) });
        let mut next = async || {
            let change = tokio::time::timeout(PATIENCE, changed.recv()).await;
            change.expect("it is told").expect("the monitor runs").health
        };
        let health = next().await;
        assert!(matches!(&health, Health::Unknown(why) if why.contains("the system is starting")), "{adapter}: {health:?}");
        board.note("target", "active");
        board.note("state", "degraded");
        assert_eq!(next().await, Health::Healthy, "{adapter}");
        board.note("state", "maintenance");
        board.note("target", "inactive");
        let health = next().await;
        assert!(matches!(&health, Health::Failing(why) if why.contains("the system is maintenance")), "{adapter}: {health:?}");
        // One that never ends starting is not up.
        board.note("target", "active");
        board.note("state", "running");
        assert_eq!(next().await, Health::Healthy, "{adapter}");
        board.note("uptime", "901.20 1.00");
        board.note("state", "starting");
        board.note("target", "inactive");
        let health = next().await;
        assert!(matches!(&health, Health::Failing(why) if why.contains("the system is starting")), "{adapter}: {health:?}");
        monitor.shutdown().await;
    }
}

#[tokio::test]
async fn a_system_of_which_systemd_says_nothing_is_judged_once_it_had_its_time() {
    let board = Board::delivered("rauc");
    let health = async || {
        let command = [board.workshop.path("scripts/system-health").display().to_string()];
        let finished = run(&command, &[], PATIENCE).await.unwrap();
        let Ended::Status(status) = finished.ended else { panic!("it ends") };
        (status.code().unwrap(), finished.output)
    };
    for (state, said) in [("", "systemd says nothing of the system: no answer"), ("offline", "offline"), ("unknown", "unknown")] {
        board.note("state", state);
        board.note("uptime", "899.90 1.00");
        board.note("target", "active");
        let (status, output) = health().await;
        assert!(status == 75 && output.contains(said), "{state}: {status}: {output}");
        board.note("uptime", "900.00 1.00");
        assert_eq!(health().await.0, 0, "{state}: it has come up");
        board.note("target", "inactive");
        let (status, output) = health().await;
        assert!(status == 1 && output.contains(said) && output.contains("multi-user.target"), "{state}: {status}: {output}");
    }
    // However long it was up.
    board.note("state", "stopping");
    assert_eq!(health().await.0, 75);
}

#[test]
fn swupdate_cut_at_either_variable_leaves_the_boot_loader_its_own_way_back() {
    for (script, version) in [("swupdate-back", "0.9"), ("swupdate-stop", "1.0")] {
        for cut in ["bootpart", "ustate"] {
            let board = Board::delivered("swupdate");
            // The loader went back from what does not come up, and would start that again.
            board.note("a", "1.0");
            board.note("next", "a");
            board.note("ustate", "1");
            board.note("cut", cut);
            let mut command = Command::new(board.workshop.path("scripts").join(script));
            command.env("GROUNDSWELL_VERSION", version);
            assert!(!forks::starting(|| command.spawn()).unwrap().wait().unwrap().success(), "{script}: {cut}");
            assert_eq!(board.workshop.lines("machine/ustate"), ["1"], "{script}: {cut}");
        }
    }
}

#[tokio::test]
async fn without_stop_a_first_system_is_not_staged_and_a_later_one_is() {
    for adapter in ADAPTERS {
        for first in [true, false] {
            let mut board = if first { Board::delivered(adapter) } else { Board::on_one(adapter).await };
            let Activator::Command(command) = &mut board.workshop.config.activator else { panic!("an updater is a command") };
            command.stop = None;
            let install = if first { &board.one } else { &board.two };
            let mut executor = board.workshop.executor().await;
            executor.recover().await.unwrap();
            match executor.execute(&Step::Stage { install: install.clone() }).await {
                Outcome::Report(Report::StageFailed { reason, .. }) if first => {
                    assert!(reason.contains("activator.stop is missing"), "{adapter}: {reason}");
                }
                outcome => assert_eq!(outcome, Outcome::Report(Report::Staged { release: install.release }), "{adapter}"),
            }
        }
    }
}

#[test]
fn ostree_deployments_are_told_apart_by_every_digit_of_their_versions() {
    for (script, version) in [("ostree-back", "1.1"), ("ostree-stop", "1.10")] {
        let board = Board::delivered("ostree");
        board.note("a", "1.1");
        board.note("b", "1.10");
        let mut command = Command::new(board.workshop.path("scripts").join(script));
        command.env("GROUNDSWELL_VERSION", version);
        let ended = forks::starting(|| command.spawn()).unwrap().wait().unwrap();
        assert!(ended.success(), "{script}");
        assert_eq!(board.next_version(), "1.1", "{script}");
    }
}

//! Installs on a disk that is full, read-only, or gone: a small tmpfs, filled, remounted and taken away for real.
//!
//! `groundswell-testnet full-disk` runs it. It needs the right to mount: where this process has none it takes mount and user
//! namespaces of its own (`unshare`). Where it may not do that either it says so and fails.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a proof talks to people and may panic")]

#[path = "../tests/it/fleet.rs"]
#[expect(dead_code, reason = "the tests of agents use the rest")]
mod fleet;
#[path = "full_disk/whole_agent.rs"]
mod whole_agent;
#[path = "../tests/it/workshop.rs"]
#[expect(dead_code, reason = "the tests of the device use the rest")]
mod workshop;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use groundswell_agent::install::blocks;
use groundswell_agent::install::executor::{Executor, Outcome};
use groundswell_core::install::Slot;
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Fault, Report};
use groundswell_core::record::status::HoldCode;
use groundswell_core::text::Reason;
use workshop::{PATIENCE, Workshop, claim};

/// Large enough for two versions and the reserve, small enough to be filled at once.
const SIZE: &str = "size=2m";
/// A version: a quarter of the disk.
const VERSION_BYTES: usize = 512 * 1024;

/// A mounted tmpfs in place of a product's folder.
struct Mounted(PathBuf);

impl Mounted {
    fn over(folder: &Path) -> Result<Self, String> {
        Self::over_with(folder, SIZE)
    }

    fn over_with(folder: &Path, size: &str) -> Result<Self, String> {
        fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        mount(&["-t", "tmpfs", "-o", size, "groundswell-full-disk"], folder)?;
        Ok(Self(folder.to_owned()))
    }

    fn remount(&self, option: &str) {
        mount(&["-o", &format!("remount,{option}")], &self.0).unwrap();
    }

    /// Writes until nothing more fits.
    fn fill(&self) {
        let mut ballast = File::options().create(true).append(true).open(self.0.join("ballast")).unwrap();
        for chunk in [64 * 1024, 4096, 512, 1] {
            while ballast.write_all(&vec![1; chunk]).is_ok() {}
        }
    }

    /// Writes until so many bytes are free.
    fn fill_up_to(&self, free_bytes: u64) {
        let stat = rustix::fs::statvfs(&self.0).unwrap();
        let ballast = (stat.f_bavail * stat.f_frsize).saturating_sub(free_bytes);
        fs::write(self.0.join("ballast"), vec![1; usize::try_from(ballast).unwrap()]).unwrap();
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn mount(options: &[&str], folder: &Path) -> Result<(), String> {
    let output = Command::new("mount").args(options).arg(folder).output().map_err(|error| format!("mount: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

/// A device with version 1 confirmed on its own small disk.
struct Scene {
    executor: Executor,
    one: Install,
    two: Install,
    disk: Mounted,
    workshop: Workshop,
}

impl Scene {
    async fn new() -> Result<Self, String> {
        let workshop = Workshop::noting_starts();
        let disk = Mounted::over(&workshop.product_folder())?;
        let padded = |text: &str| format!("{text}\nexit 0\n#{}", "x".repeat(VERSION_BYTES));
        let (one, two) = (workshop.release(1, &padded("echo one")), workshop.release(2, &padded("echo two")));
        let mut executor = workshop.executor().await;
        executor.recover().await.unwrap();
        let mut scene = Self { executor, one, two, disk, workshop };
        let one = scene.one.clone();
        assert!(matches!(scene.stage(&one).await, Report::Staged { .. }));
        assert!(matches!(scene.activate(&one).await, Outcome::Report(Report::Activated { .. })));
        assert!(matches!(scene.confirm(&one).await, Outcome::Report(Report::Confirmed { .. })));
        Ok(scene)
    }

    async fn stage(&mut self, install: &Install) -> Report {
        match self.executor.execute(&Step::Stage { install: install.clone() }).await {
            Outcome::Report(report) => report,
            other => panic!("staging ends with a report, not with {other:?}"),
        }
    }

    async fn activate(&mut self, install: &Install) -> Outcome {
        self.executor.execute(&Step::Activate { install: install.clone(), claim: claim(), within_ms: 900_000 }).await
    }

    async fn confirm(&mut self, install: &Install) -> Outcome {
        self.executor.execute(&Step::Confirm { release: install.release }).await
    }

    async fn revert(&mut self, install: &Install) -> Outcome {
        let reason = Reason::lossy("unhealthy");
        self.executor.execute(&Step::Revert { release: install.release, reason, at_fault: true }).await
    }

    /// As after a restart of the agent.
    async fn start_anew(&mut self) {
        self.executor = self.workshop.executor().await;
        self.executor.recover().await.unwrap();
    }

    fn runs(&self, sequence: u64) -> bool {
        self.workshop.current_script().is_some_and(|script| script.contains(&format!("release {sequence}\n")))
    }

    fn holds(&self) -> Vec<HoldCode> {
        blocks::look(&[], &self.workshop.product_folder(), 64 * 1024).iter().map(|hold| hold.code).collect()
    }
}

async fn staging_on_a_full_disk() -> Result<(), String> {
    let mut scene = Scene::new().await?;
    let two = scene.two.clone();
    scene.disk.fill();
    let report = scene.stage(&two).await;
    assert!(
        matches!(&report, Report::StageFailed { fault: Fault::DiskFull, reason, .. } if reason.starts_with("disk-full")),
        "{report:?}"
    );
    assert!(scene.runs(1) && scene.executor.found().await.unwrap().described(Slot::B).is_none());
    assert_eq!(scene.holds(), [HoldCode::DiskFull]);
    scene.disk.make_room();
    assert_eq!(scene.stage(&two).await, Report::Staged { release: two.release });
    assert_eq!(scene.holds(), []);
    Ok(())
}

async fn an_upgrade_that_meets_a_full_disk(confirm: bool) -> Result<(), String> {
    let mut scene = Scene::new().await?;
    let (one, two) = (scene.one.clone(), scene.two.clone());
    scene.stage(&two).await;
    scene.disk.fill();
    assert_eq!(scene.activate(&two).await, Outcome::Report(Report::Activated { release: two.release }));
    let outcome = if confirm { scene.confirm(&two).await } else { scene.revert(&two).await };
    if confirm {
        assert_eq!(outcome, Outcome::Report(Report::Confirmed { release: two.release }));
        assert!(scene.runs(2));
    } else {
        let back = matches!(&outcome, Outcome::Report(Report::Reverted { running: Some(running), .. }) if running.release == one.release);
        assert!(back && scene.runs(1), "{outcome:?}");
    }
    Ok(())
}

async fn a_read_only_disk() -> Result<(), String> {
    let mut scene = Scene::new().await?;
    let two = scene.two.clone();
    scene.stage(&two).await;
    // A file that is open for writing keeps a disk from being remounted: the agent starts anew, so the journal is closed.
    scene.start_anew().await;
    scene.disk.remount("ro");
    assert_eq!(scene.holds(), [HoldCode::DeviceFault]);
    let outcome = scene.activate(&two).await;
    assert!(matches!(&outcome, Outcome::Report(Report::ActivateFailed { .. })) && scene.runs(1), "{outcome:?}");
    scene.disk.remount("rw");
    assert!(matches!(scene.revert(&two).await, Outcome::Report(Report::Reverted { .. })) && scene.runs(1));

    // The disk fails in the middle of a trial, and the agent starts on it.
    assert_eq!(scene.stage(&two).await, Report::Staged { release: two.release });
    assert!(matches!(scene.activate(&two).await, Outcome::Report(Report::Activated { .. })));
    scene.executor = scene.workshop.executor().await;
    scene.disk.remount("ro");
    // Nothing has to be started again, so nothing has to be counted: it tells that the trial goes on.
    let told = tokio::time::timeout(PATIENCE, scene.executor.recover()).await.unwrap().unwrap();
    assert_eq!((told.trial, told.reverted), (Some(two.release), None));
    scene.executor = scene.workshop.executor().await;
    scene.disk.remount("rw");
    let recovered = scene.executor.recover().await.unwrap();
    assert_eq!(recovered.trial, Some(two.release));
    assert!(matches!(scene.confirm(&two).await, Outcome::Report(Report::Confirmed { .. })) && scene.runs(2));
    Ok(())
}

async fn a_folder_that_vanished() -> Result<(), String> {
    let mut scene = Scene::new().await?;
    let two = scene.two.clone();
    let away = scene.workshop.path("away");
    fs::create_dir(&away).unwrap();
    mount_move(&scene.workshop.product_folder(), &away)?;
    fs::remove_dir(scene.workshop.product_folder()).unwrap();
    assert_eq!(scene.holds(), [HoldCode::DeviceFault]);
    let report = scene.stage(&two).await;
    assert!(matches!(&report, Report::StageFailed { fault: Fault::Broken, .. }), "{report:?}");
    assert!(matches!(scene.activate(&two).await, Outcome::Report(Report::ActivateFailed { .. })));
    // It is back: the next start finds everything as it was.
    fs::create_dir(scene.workshop.product_folder()).unwrap();
    mount_move(&away, &scene.workshop.product_folder())?;
    scene.executor = scene.workshop.executor().await;
    let recovered = scene.executor.recover().await.unwrap();
    assert_eq!((recovered.floor.get(), scene.runs(1)), (1, true));
    assert_eq!(scene.stage(&two).await, Report::Staged { release: two.release });
    Ok(())
}

/// A mount can be moved only where it does not lie in a shared one; a bind in its place is as good.
fn mount_move(from: &Path, to: &Path) -> Result<(), String> {
    mount(&["--bind", &from.display().to_string()], to)?;
    let gone = Command::new("umount").arg("--lazy").arg(from).output().map_err(|error: io::Error| error.to_string())?;
    if gone.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&gone.stderr).trim().to_owned()) }
}

/// Err: why no small disk could be mounted. What is not as it must be panics.
type Telling = std::pin::Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// Set for the process in namespaces of its own.
const INSIDE: &str = "GROUNDSWELL_FULL_DISK_INSIDE";

/// Whether this process may mount.
fn may_mount() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let mounted = mount(&["-t", "tmpfs", "groundswell-full-disk"], folder.path()).is_ok();
    if mounted {
        let _ = Command::new("umount").arg(folder.path()).status();
    }
    mounted
}

/// Runs this program once more where it may mount; its end, where that could be done.
fn inside() -> Option<ExitCode> {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]).arg(program).env(INSIDE, "1");
    let status = command.status().ok()?;
    Some(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn main() -> ExitCode {
    if std::env::var_os(INSIDE).is_none() && !may_mount() {
        return inside().unwrap_or_else(|| {
            println!("this proof needs the right to mount, or `unshare`");
            ExitCode::FAILURE
        });
    }
    prove()
}

#[tokio::main(worker_threads = 2)]
async fn prove() -> ExitCode {
    let scenes: [(&str, Telling); 10] = [
        ("staging on a full disk", Box::pin(staging_on_a_full_disk())),
        ("activate and confirm on a full disk", Box::pin(an_upgrade_that_meets_a_full_disk(true))),
        ("activate and revert on a full disk", Box::pin(an_upgrade_that_meets_a_full_disk(false))),
        ("a read-only disk", Box::pin(a_read_only_disk())),
        ("a folder that vanished", Box::pin(a_folder_that_vanished())),
        ("an agent whose disk runs full during a download", Box::pin(whole_agent::full_in_the_middle_of_a_download())),
        ("an agent whose slot finds no room for its copy", Box::pin(whole_agent::no_room_for_the_copy_in_a_slot())),
        ("an agent whose disk is full at a commit of its store", Box::pin(whole_agent::full_at_a_commit_of_the_store())),
        ("an agent that cannot write artifacts", Box::pin(whole_agent::blobs_that_cannot_be_written())),
        ("an agent whose data folder vanished", Box::pin(whole_agent::a_data_folder_that_vanished())),
    ];
    for (name, scene) in scenes {
        if let Err(why) = scene.await {
            println!("{name}: cannot mount a small disk: {why}; this proof needs the right to mount");
            return ExitCode::FAILURE;
        }
        println!("{name}: as it must be");
    }
    ExitCode::SUCCESS
}

//! Each step of an install on a disk without space: said as `disk-full`, or finished from what is held in reserve.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use groundswell_agent::install::executor::{Executor, Outcome};
use groundswell_agent::install::files::{Files, Kind, OnDisk, Reading, Writing};
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Fault, Report};
use groundswell_core::text::Reason;

use crate::workshop::{Workshop, claim};

/// The machine's own files with so many bytes of space left; what a reserve held comes back when it is removed.
#[derive(Clone, Debug)]
struct Scarce(Arc<AtomicU64>);

struct ScarceFile(Box<dyn Writing>, Scarce);

const PLENTY: u64 = 1 << 40;

impl Scarce {
    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(PLENTY)))
    }

    fn leave(&self, bytes: u64) {
        self.0.store(bytes, Ordering::SeqCst);
    }

    fn take(&self, bytes: u64) -> io::Result<()> {
        let take = |left: u64| left.checked_sub(bytes);
        let taken = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        taken.map(drop).map_err(|_| io::ErrorKind::StorageFull.into())
    }
}

impl io::Write for ScarceFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.take(bytes.len() as u64)?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Writing for ScarceFile {
    fn reserve(&mut self, size_bytes: u64) -> io::Result<()> {
        if self.1.0.load(Ordering::SeqCst) < size_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.reserve(size_bytes)
    }

    fn set_length(&mut self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }

    fn set_mode(&mut self, mode: u32) -> io::Result<()> {
        self.0.set_mode(mode)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }
}

impl Files for Scarce {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.take(1)?;
        OnDisk.make_folder(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        OnDisk.sync_folder(path)
    }

    fn entries(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        OnDisk.entries(path)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<Kind>> {
        OnDisk.kind(path)
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Writing>> {
        self.take(1)?;
        Ok(Box::new(ScarceFile(OnDisk.create(path, mode)?, self.clone())))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Writing>> {
        Ok(Box::new(ScarceFile(OnDisk.append(path)?, self.clone())))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Reading>> {
        OnDisk.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OnDisk.rename(from, to)
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.take(1)?;
        OnDisk.symlink(target, link)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        OnDisk.read_link(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let length = std::fs::symlink_metadata(path)?.len();
        OnDisk.remove_file(path)?;
        self.0.fetch_add(length, Ordering::SeqCst);
        Ok(())
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        OnDisk.remove_folder(path)
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(self.0.load(Ordering::SeqCst))
    }
}

/// Version 1 confirmed, version 2 not yet staged.
async fn on_one() -> (Workshop, Scarce, Executor, Install, Install) {
    let workshop = Workshop::noting_starts();
    let scarce = Scarce::new();
    let mut executor = workshop.executor_on(workshop.disk_on(Arc::new(scarce.clone()))).await;
    executor.recover().await.unwrap();
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    executor.execute(&Step::Stage { install: one.clone() }).await;
    executor.execute(&Step::Activate { install: one.clone(), claim: claim(), within_ms: 900_000 }).await;
    executor.execute(&Step::Confirm { release: one.release }).await;
    (workshop, scarce, executor, one, two)
}

#[tokio::test]
async fn b2_staging_at_any_lack_of_space_says_disk_full_gives_back_what_it_took_and_goes_on_later() {
    let (workshop, scarce, mut executor, _, two) = on_one().await;
    let mut refused = 0;
    for left in (0..).step_by(61) {
        scarce.leave(left);
        let outcome = executor.execute(&Step::Stage { install: two.clone() }).await;
        assert!(workshop.current_script().unwrap().contains("release 1\n"), "the old version is untouched");
        assert!(workshop.product_folder().join("reserve").exists(), "staging does not live on the reserve");
        let Outcome::Report(Report::StageFailed { fault, reason, .. }) = &outcome else {
            assert_eq!(outcome, Outcome::Report(Report::Staged { release: two.release }), "{left} bytes");
            break;
        };
        assert_eq!(*fault, Fault::DiskFull, "{left} bytes: {reason}");
        assert!(reason.starts_with("disk-full: "), "{reason}");
        assert!(!workshop.product_folder().join("slots/b").exists(), "{left} bytes: what it took is given back");
        refused += 1;
    }
    assert!(refused >= 10, "{refused} were refused");
    scarce.leave(PLENTY);
    let outcome = executor.execute(&Step::Stage { install: two.clone() }).await;
    assert_eq!(outcome, Outcome::Report(Report::Staged { release: two.release }));
}

#[tokio::test]
async fn b2_an_upgrade_under_way_is_finished_from_the_reserve_when_the_disk_runs_full() {
    for confirm in [true, false] {
        let (workshop, scarce, mut executor, one, two) = on_one().await;
        executor.execute(&Step::Stage { install: two.clone() }).await;
        scarce.leave(0);
        let outcome = executor.execute(&Step::Activate { install: two.clone(), claim: claim(), within_ms: 900_000 }).await;
        assert_eq!(outcome, Outcome::Report(Report::Activated { release: two.release }));
        scarce.leave(scarce.0.load(Ordering::SeqCst).min(80 * 1024));
        let last = if confirm {
            Step::Confirm { release: two.release }
        } else {
            Step::Revert { release: two.release, reason: Reason::lossy("unhealthy"), at_fault: true }
        };
        let outcome = executor.execute(&last).await;
        let script = workshop.current_script().unwrap();
        if confirm {
            assert_eq!(outcome, Outcome::Report(Report::Confirmed { release: two.release }));
            assert!(script.contains("release 2\n"));
        } else {
            assert!(
                matches!(&outcome, Outcome::Report(Report::Reverted { running: Some(running), .. }) if running.release == one.release)
            );
            assert!(script.contains("release 1\n"));
        }
        assert!(!workshop.product_folder().join("reserve").exists(), "it was used");
        scarce.leave(PLENTY);
        drop(executor);
        let mut executor = workshop.executor().await;
        executor.recover().await.unwrap();
        assert!(workshop.product_folder().join("reserve").exists(), "and is taken again");
    }
}

#[tokio::test]
async fn b2_without_any_space_a_confirm_is_never_given_up_and_a_revert_starts_the_old_version() {
    let (workshop, scarce, mut executor, _, two) = on_one().await;
    executor.execute(&Step::Stage { install: two.clone() }).await;
    executor.execute(&Step::Activate { install: two.clone(), claim: claim(), within_ms: 900_000 }).await;
    std::fs::remove_file(workshop.product_folder().join("reserve")).unwrap();
    scarce.leave(0);
    assert_eq!(executor.execute(&Step::Confirm { release: two.release }).await, Outcome::Again);
    scarce.leave(PLENTY);
    let outcome = executor.execute(&Step::Confirm { release: two.release }).await;
    assert_eq!(outcome, Outcome::Report(Report::Confirmed { release: two.release }));

    let three = workshop.release(3, "echo three");
    executor.execute(&Step::Stage { install: three.clone() }).await;
    executor.execute(&Step::Activate { install: three.clone(), claim: claim(), within_ms: 900_000 }).await;
    scarce.leave(2);
    let revert = Step::Revert { release: three.release, reason: Reason::lossy("unhealthy"), at_fault: true };
    let outcome = executor.execute(&revert).await;
    assert!(matches!(outcome, Outcome::Report(Report::Reverted { .. })), "two names are enough to swap a symlink: {outcome:?}");
    assert_eq!(workshop.lines("started").last().map(String::as_str), Some("start 2.0"));
    drop(executor);
    scarce.leave(PLENTY);
    let recovered = workshop.executor().await.recover().await.unwrap();
    assert_eq!(recovered.running.map(|running| running.release), Some(two.release));
}

#[tokio::test]
async fn what_can_never_run_again_is_given_back_and_nothing_else() {
    let (workshop, _, mut executor, _, two) = on_one().await;
    executor.execute(&Step::Stage { install: two.clone() }).await;
    assert!(!executor.reclaim().await, "what is staged stays");
    executor.execute(&Step::Activate { install: two.clone(), claim: claim(), within_ms: 900_000 }).await;
    assert!(!executor.reclaim().await, "the way back stays as long as the trial lasts");
    executor.execute(&Step::Confirm { release: two.release }).await;
    assert!(executor.reclaim().await, "below the floor nothing runs again");
    assert!(!workshop.product_folder().join("slots/a").exists());
    assert!(workshop.current_script().unwrap().contains("release 2\n"));
    assert!(!executor.reclaim().await);
}

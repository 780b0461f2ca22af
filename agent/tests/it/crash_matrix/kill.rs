//! kill −9 of a real process that installs, at every call that it makes to a real disk, and inside what starts a version.
//!
//! The process is this very program, started again: it carries one order out with the real executor, and ends itself by
//! SIGKILL where it is told to. Then the real recovery must end well.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use groundswell_agent::install::executor::{Executor, Outcome};
use groundswell_agent::install::files::{Files, Kind, OnDisk, Reading, Writing};
use groundswell_agent::install::forks;
use groundswell_core::install::Manner;
use groundswell_core::install::machine::{self, Plan};
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::Recovered;

use super::Report;
use super::device::{Order, emptied, reason};
use super::fate::{Fate, Phase};
use crate::workshop::{Workshop, claim};

/// In the environment of the process that is killed: order, call, phase, folder.
pub(crate) const ORDERS: &str = "GROUNDSWELL_CRASH_MATRIX";
/// A binary that was just written is busy (126) while a child of another test, between its fork and its exec, still has it.
const SCRIPT: &str = "echo start $GROUNDSWELL_VERSION >> started; \
                      $GROUNDSWELL_BINARY || { test $? = 126 && sleep 1 && $GROUNDSWELL_BINARY; }";
const SIGKILL: i32 = 9;

/// The machine's own files, ended by fate.
#[derive(Debug)]
struct Ended {
    disk: OnDisk,
    fate: Fate,
}

struct EndedFile {
    file: Box<dyn Writing>,
    fate: Fate,
}

impl io::Write for EndedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fate = self.fate.clone();
        let file = std::cell::RefCell::new(&mut self.file);
        let half = || drop(file.borrow_mut().write_all(&bytes[..bytes.len() / 2]));
        fate.call(half, || file.borrow_mut().write_all(bytes).map(|()| bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Writing for EndedFile {
    fn reserve(&mut self, size_bytes: u64) -> io::Result<()> {
        self.fate.call(|| {}, || self.file.reserve(size_bytes))
    }

    fn set_length(&mut self, length: u64) -> io::Result<()> {
        self.fate.call(|| {}, || self.file.set_length(length))
    }

    fn set_mode(&mut self, mode: u32) -> io::Result<()> {
        self.fate.call(|| {}, || self.file.set_mode(mode))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.fate.call(|| {}, || self.file.sync())
    }
}

impl Files for Ended {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.fate.call(|| {}, || self.disk.make_folder(path))
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.fate.call(|| {}, || self.disk.sync_folder(path))
    }

    fn entries(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.disk.entries(path)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<Kind>> {
        self.disk.kind(path)
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Writing>> {
        let file = self.fate.call(|| {}, || self.disk.create(path, mode))?;
        Ok(Box::new(EndedFile { file, fate: self.fate.clone() }))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Writing>> {
        Ok(Box::new(EndedFile { file: self.disk.append(path)?, fate: self.fate.clone() }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Reading>> {
        self.disk.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fate.call(|| {}, || self.disk.rename(from, to))
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.fate.call(|| {}, || self.disk.symlink(target, link))
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.disk.read_link(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.fate.call(|| {}, || self.disk.remove_file(path))
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.fate.call(|| {}, || self.disk.remove_folder(path))
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        self.disk.free_bytes(folder)
    }
}

fn old(workshop: &Workshop) -> Install {
    workshop.release(1, "echo one")
}

fn new(workshop: &Workshop) -> Install {
    workshop.release(2, "echo two")
}

/// The step of the core that it is; none for what the device does by itself.
pub(crate) fn step(order: Order, install: &Install) -> Option<Step> {
    Some(match order {
        Order::Stage => Step::Stage { install: install.clone() },
        Order::Activate => Step::Activate { install: install.clone(), claim: claim(), within_ms: 900_000 },
        Order::Confirm | Order::Forgiven => Step::Confirm { release: install.release },
        Order::Revert | Order::Abort => Step::Revert { release: install.release, reason: reason(), at_fault: order.blames() },
        Order::Unstage | Order::Leave | Order::Reclaim => return None,
    })
}

async fn perform(executor: &mut Executor, order: Order, install: &Install, manner: Manner) {
    match step(order, install) {
        Some(step) => drop(executor.execute(&step).await),
        None if order == Order::Reclaim => assert!(executor.reclaim().await, "there is something to give back"),
        None if order == Order::Leave => {
            let note = machine::stop(&executor.found().await.expect("the disk tells"), manner);
            executor.perform_one(&note.expect("a trial runs")).await.expect("the disk takes it");
        }
        None => {
            for operation in machine::unstage(&executor.found().await.expect("the disk tells")) {
                executor.perform_one(&operation).await.expect("the disk takes it");
            }
        }
    }
}

/// A stage that fails while it copies.
async fn fail_to_stage(executor: &mut Executor, install: &Install) {
    let Ok(Plan::Do(stage)) = machine::stage(&executor.found().await.expect("the disk tells"), install) else {
        panic!("it can be staged")
    };
    for operation in emptied(&stage) {
        executor.perform_one(operation).await.expect("the disk takes it");
    }
}

/// Where the process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At this call to the disk.
    Call(u64, Phase),
    /// While the command that starts a version runs.
    InsideStart,
}

impl Place {
    fn encode(self, order: Order, home: &Path) -> String {
        match self {
            Self::Call(at, phase) => format!("{order:?} {at} {phase:?} {}", home.display()),
            Self::InsideStart => format!("{order:?} start - {}", home.display()),
        }
    }
}

/// What the process does that is killed; it returns when it was not.
pub(crate) async fn be_killed(orders: &str) {
    let parts: Vec<&str> = orders.splitn(4, ' ').collect();
    let order = Order::ALL.into_iter().find(|order| format!("{order:?}") == parts[0]).expect("an order");
    let inside_start = parts[1] == "start";
    let script = if inside_start { format!("{SCRIPT}; kill -9 $PPID; sleep 5") } else { SCRIPT.to_owned() };
    let workshop = Workshop::commanding(Path::new(parts[3]), &script);
    let install = new(&workshop);
    let fate = Fate::kind(true);
    let mut executor = workshop.executor_on(workshop.disk_on(Arc::new(Ended { disk: OnDisk, fate: fate.clone() }))).await;
    executor.recover().await.expect("nothing stops it");
    if order == Order::Unstage {
        fail_to_stage(&mut executor, &install).await;
    }
    if !inside_start {
        let phase = [Phase::Before, Phase::Inside, Phase::After].into_iter().find(|phase| format!("{phase:?}") == parts[2]);
        fate.set(parts[1].parse().expect("a number"), phase.expect("a phase"));
    }
    perform(&mut executor, order, &install, workshop.config.manner()).await;
}

/// Kills at every `stride`-th call; `child` starts this program as the process that is killed.
pub(crate) async fn matrix(stride: usize, child: impl Fn() -> Command) -> Report {
    let mut report = Report::default();
    for first in [false, true] {
        for order in Order::ALL {
            let (cells, failures) = (report.cells, report.failures.len());
            kill_everywhere(order, first, stride, &child, &mut report).await;
            report.lines.push(format!(
                "{}, {order:?}: {} cells, {} failed",
                if first { "first install" } else { "upgrade" },
                report.cells - cells,
                report.failures.len() - failures
            ));
        }
    }
    report
}

async fn kill_everywhere(order: Order, first: bool, stride: usize, child: &impl Fn() -> Command, report: &mut Report) {
    let workshop = Workshop::noting_starts();
    prepare(&workshop, order, first).await;
    let template = workshop.path("template");
    fs::rename(workshop.product_folder(), &template).unwrap();
    let starts = matches!((order, first), (Order::Activate, _) | (Order::Revert | Order::Abort, false));
    let places = starts
        .then_some(Place::InsideStart)
        .into_iter()
        .chain((0..).flat_map(|at| Phase::of(at).iter().map(move |phase| Place::Call(at, *phase))).step_by(stride));
    for place in places {
        if workshop.product_folder().exists() {
            fs::remove_dir_all(workshop.product_folder()).unwrap();
        }
        let copied = ended(Command::new("cp").arg("-a").arg(&template).arg(workshop.product_folder()));
        assert!(copied.success(), "cp copies the prepared folder");
        let mut child = child();
        child.env(ORDERS, place.encode(order, workshop.home())).stdout(Stdio::null()).stderr(Stdio::null());
        let status = ended(&mut child);
        if status.success() {
            // The order has no further calls.
            return;
        }
        report.cells += 1;
        let judged = match status.signal() {
            Some(SIGKILL) => judge(&workshop, order, first).await,
            _ => Err(format!("the process was not killed but ended with {status}")),
        };
        if let Err(why) = judged {
            report.failures.push(format!("{order:?}, {place:?}: {why}"));
        }
    }
}

/// Runs a program to its end.
fn ended(command: &mut Command) -> ExitStatus {
    forks::starting(|| command.spawn()).unwrap().wait().unwrap()
}

async fn carry_out(executor: &mut Executor, order: Order, install: &Install) -> Result<(), String> {
    let step = step(order, install).expect("a step of the core");
    match executor.execute(&step).await {
        Outcome::Report(report) if !format!("{report:?}").contains("Failed") => Ok(()),
        outcome => Err(format!("{order:?} of {}: {outcome:?}", install.version)),
    }
}

async fn prepare(workshop: &Workshop, order: Order, first: bool) {
    let mut executor = workshop.executor().await;
    executor.recover().await.expect("nothing stops it");
    if !first {
        for order in [Order::Stage, Order::Activate, Order::Confirm] {
            carry_out(&mut executor, order, &old(workshop)).await.unwrap();
        }
    }
    for order in order.earlier() {
        carry_out(&mut executor, *order, &new(workshop)).await.unwrap();
    }
}

async fn judge(workshop: &Workshop, order: Order, first: bool) -> Result<(), String> {
    let (old, new) = (old(workshop), new(workshop));
    let ours = |script: &str| script.contains("release 1\n") || script.contains("release 2\n");
    match workshop.current_script() {
        Some(script) if ours(&script) => {}
        None if first => {}
        other => return Err(format!("current leads to {other:?}")),
    }
    let mut executor = workshop.executor().await;
    let Some(recovered) = executor.recover().await else { return Err("it does not recover".to_owned()) };
    let Recovered { running, floor, trial, reverted, at_fault, denied, .. } = &recovered;
    let running = running.as_ref().map(|running| running.release);
    let before = (!first).then_some(old.release);
    let on_old = running == before && trial.is_none() && floor.get() == u64::from(!first);
    let on_trial = running == Some(new.release) && *trial == Some(new.release) && floor.get() == u64::from(!first);
    let on_new = running == Some(new.release) && trial.is_none() && floor.get() == 2;
    let was_denied = denied.contains(&new.release);
    let left = on_old && was_denied == order.blames();
    let fine = match order {
        Order::Stage | Order::Unstage => on_old && reverted.is_none() && !was_denied,
        Order::Activate => (on_old && reverted.is_none()) || on_trial,
        Order::Leave => on_trial,
        Order::Confirm => on_trial || on_new,
        Order::Forgiven => on_trial || (on_new && !was_denied),
        Order::Revert | Order::Abort => {
            let told = reverted.as_ref();
            let rightly = |(release, why): &(_, _)| *release == new.release && *why == reason() && *at_fault == order.blames();
            on_trial || (left && told.is_none_or(rightly))
        }
        Order::Reclaim => left && reverted.is_none(),
    };
    if !fine {
        return Err(format!("{recovered:?}"));
    }
    if trial.is_some() {
        carry_out(&mut executor, Order::Confirm, &new).await?;
    }
    let next = workshop.release(3, "echo three");
    for order in [Order::Stage, Order::Activate, Order::Confirm] {
        carry_out(&mut executor, order, &next).await?;
    }
    match workshop.current_script() {
        Some(script) if script.contains("release 3\n") => Ok(()),
        other => Err(format!("the next upgrade leads to {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not a test of its own: the process that the next test kills.
    #[tokio::test]
    #[ignore = "run by s6_kill_9_at_calls_of_every_step_ends_on_a_version_that_runs as a child process"]
    async fn child_that_is_killed() {
        if let Ok(orders) = std::env::var(ORDERS) {
            be_killed(&orders).await;
        }
    }

    #[tokio::test]
    async fn s6_kill_9_at_calls_of_every_step_ends_on_a_version_that_runs() {
        let child = || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "crash_matrix::kill::tests::child_that_is_killed", "--ignored"]);
            command
        };
        let report = matrix(5, child).await;
        assert!(report.cells > 40, "{report:#?}");
        assert!(report.failures.is_empty(), "{} of {} cells: {:#?}", report.failures.len(), report.cells, report.failures);
    }
}

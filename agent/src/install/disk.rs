//! The operations that only touch files, and what a failure of one means.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use groundswell_core::digest::Digest;
use groundswell_core::node::input::Fault;
use groundswell_core::text::{Product, Reason};

use super::artifact::ArtifactSource;
use super::durable::is_disk_full;
use super::journal::Journal;
use super::machine::{Contents, Described, Found, Operation, Slot, SlotState};
use super::slots::{FillError, Slots};

/// The files of one product, and where its bytes come from.
pub struct Disk {
    slots: Slots,
    journal: Mutex<Journal>,
    artifacts: Arc<dyn ArtifactSource>,
    keep_free_bytes: u64,
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    /// What kind of failure.
    pub fault: Fault,
    /// Why, for people.
    pub reason: String,
    /// The last lines of output, where a process had any.
    pub output: String,
}

impl Failure {
    /// A failure of anything but space.
    #[must_use]
    pub fn broken(reason: impl Into<String>) -> Self {
        Self { fault: Fault::Broken, reason: reason.into(), output: String::new() }
    }

    fn io(operation: &Operation, error: &io::Error) -> Self {
        if is_disk_full(error) {
            return Self { fault: Fault::DiskFull, ..Self::broken(format!("disk-full: cannot {operation}: {error}")) };
        }
        Self::broken(format!("cannot {operation}: {error}"))
    }

    fn fill(operation: &Operation, error: &FillError) -> Self {
        match error {
            FillError::Slot { source, .. } if is_disk_full(source) => {}
            FillError::Space { .. } => {}
            _ => return Self::broken(format!("cannot {operation}: {error}")),
        }
        Self { fault: Fault::DiskFull, ..Self::broken(format!("disk-full: cannot {operation}: {error}")) }
    }

    /// Reason and output in one text of a record's length: the reason first, then the end of the output.
    #[must_use]
    pub fn with_output(&self) -> Reason {
        if self.output.is_empty() {
            Reason::lossy(&self.reason)
        } else {
            Reason::lossy(&format!("{}: {}", self.reason, self.output))
        }
    }
}

impl Disk {
    /// Opens a product's folder, which is made when it is not there.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(folder: &Path, product: Product, artifacts: Arc<dyn ArtifactSource>, keep_free_bytes: u64) -> io::Result<Self> {
        let slots = Slots::open(folder, product)?;
        let journal = Mutex::new(Journal::open(folder)?);
        Ok(Self { slots, journal, artifacts, keep_free_bytes })
    }

    /// The slots.
    #[must_use]
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// What the disk says now.
    #[must_use]
    pub fn found(&self) -> Found {
        let journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        Found {
            entry: journal.last().cloned(),
            current: self.slots.current(),
            a: self.slots.described(Slot::A),
            b: self.slots.described(Slot::B),
            confirmed: self.slots.confirmed(),
        }
    }

    /// Does an operation on files, blocking; `Start`, `Keep` and `Stop` are not for here.
    ///
    /// # Errors
    /// Why it failed.
    pub fn perform(&self, operation: &Operation) -> Result<(), Failure> {
        let done = match operation {
            Operation::Note(entry) => self.journal.lock().unwrap_or_else(PoisonError::into_inner).note(entry),
            Operation::Empty(slot) => self.slots.empty(*slot),
            Operation::Fill(slot, contents) => return self.fill(operation, *slot, contents),
            Operation::Verify(slot, contents) => self.slots.verify(*slot, contents),
            Operation::Point(slot) => self.slots.point(*slot),
            Operation::Describe(slot, described) => self.slots.describe(*slot, described),
            Operation::Bless(confirmed) => self.slots.bless(confirmed),
            Operation::Start(..) | Operation::Keep(..) | Operation::Stop(..) => {
                return Err(Failure::broken("starting and stopping is not done by files"));
            }
        };
        done.map_err(|error| Failure::io(operation, &error))
    }

    fn fill(&self, operation: &Operation, slot: Slot, contents: &Contents) -> Result<(), Failure> {
        let source = self.open_artifact(&contents.sha256)?;
        let described = Described { contents: contents.clone(), state: SlotState::Staged };
        self.slots.fill(slot, &described, source, self.keep_free_bytes).map_err(|error| Failure::fill(operation, &error))
    }

    fn open_artifact(&self, sha256: &Digest) -> Result<std::fs::File, Failure> {
        self.artifacts.open(sha256).map_err(|error| Failure::broken(format!("cannot open the artifact {sha256}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b2_every_way_in_which_a_disk_is_full_is_said_as_disk_full() {
        let operation = Operation::Empty(Slot::A);
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            let slot = FillError::Slot { path: "slots/a".into(), source: kind.into() };
            for failure in [Failure::io(&operation, &kind.into()), Failure::fill(&operation, &slot)] {
                assert_eq!(failure.fault, Fault::DiskFull);
                assert!(failure.reason.starts_with("disk-full: "), "{failure}");
            }
        }
        let other = Failure::io(&operation, &io::ErrorKind::PermissionDenied.into());
        assert_eq!(other.fault, Fault::Broken);
        let source = FillError::Source(io::ErrorKind::StorageFull.into());
        assert_eq!(Failure::fill(&operation, &source).fault, Fault::Broken, "reading takes no space");
    }
}

//! The operations that only touch files, and what a failure of one means.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use groundswell_core::digest::Digest;
use groundswell_core::install::machine::Refusal;
use groundswell_core::install::{Boot, Contents, Described, Entry, Found, Mark, Operation, Part, Slot, SlotState};
use groundswell_core::node::input::Fault;
use groundswell_core::text::{Product, Reason};

use super::artifact::ArtifactSource;
use super::durable::is_disk_full;
use super::files::Files;
use super::journal::Journal;
use super::reserve::Reserve;
use super::slots::{FillError, Kept, Room, Slots};

/// The journal at its longest, and each small file of ours once more beside itself, on blocks of 4 KiB.
const RESERVE: Reserve = Reserve { name: "reserve", size_bytes: 96 * 1024 };

/// Where one product lives.
#[derive(Clone, Debug)]
pub struct Place {
    /// The file system.
    pub files: Arc<dyn Files>,
    /// Its folder.
    pub folder: PathBuf,
    /// The product.
    pub product: Product,
    /// The present run of the machine.
    pub boot: Boot,
    /// How much its slots may take.
    pub room: Room,
}

/// The files of one product, and where its bytes come from.
pub struct Disk {
    place: Place,
    slots: Slots,
    journal: Mutex<Journal>,
    artifacts: Arc<dyn ArtifactSource>,
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
    /// What was installed is to blame, or may be. A disk that takes no writes says nothing of it.
    pub at_fault: bool,
    /// What was asked gave an answer, and this is it: it was not merely unable to say anything.
    pub answered: bool,
}

impl Failure {
    /// A failure of anything but space.
    #[must_use]
    pub fn broken(reason: impl Into<String>) -> Self {
        Self { fault: Fault::Broken, reason: reason.into(), output: String::new(), at_fault: true, answered: false }
    }

    /// A failure of this device, which says nothing of what is installed.
    #[must_use]
    pub fn of_the_device(reason: impl Into<String>) -> Self {
        Self { at_fault: false, ..Self::broken(reason) }
    }

    /// An order that the machine refuses.
    pub(super) fn refused(refusal: &Refusal) -> Self {
        Self { at_fault: !refusal.is_of_the_device(), ..Self::broken(refusal.to_string()) }
    }

    /// Whatever a disk does, also to a slot that was whole when it was filled, tells nothing of what is installed.
    fn io(operation: &Operation, error: &io::Error) -> Self {
        if is_disk_full(error) {
            return Self { fault: Fault::DiskFull, ..Self::of_the_device(format!("disk-full: cannot {operation}: {error}")) };
        }
        Self::of_the_device(format!("cannot {operation}: {error}"))
    }

    fn fill(operation: &Operation, error: &FillError) -> Self {
        match error {
            FillError::Slot { source, .. } if is_disk_full(source) => {}
            FillError::Space { .. } | FillError::Quota { .. } => {}
            _ => return Self::broken(format!("cannot {operation}: {error}")),
        }
        Self { fault: Fault::DiskFull, ..Self::of_the_device(format!("disk-full: cannot {operation}: {error}")) }
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
    pub fn open(place: Place, artifacts: Arc<dyn ArtifactSource>) -> io::Result<Self> {
        let slots = Slots::open(Arc::clone(&place.files), &place.folder, place.product.clone())?;
        let journal = Mutex::new(Journal::open(Arc::clone(&place.files), &place.folder)?);
        let disk = Self { place, slots, journal, artifacts };
        disk.make_reserve();
        Ok(disk)
    }

    /// Takes the reserve again, where it was used up and there is space.
    pub fn make_reserve(&self) {
        RESERVE.make(&*self.place.files, &self.place.folder);
    }

    /// Whether the slots hold more than they may, as after the bound was lowered.
    #[must_use]
    pub fn holds_too_much(&self) -> bool {
        let held = |slot| self.slots.held_bytes(slot).unwrap_or_default();
        held(Slot::A).saturating_add(held(Slot::B)) > self.place.room.slot_bytes
    }

    /// Whether the slots hold more than they may, or less is free than must be. A disk that does not tell is not short.
    #[must_use]
    pub fn is_short_of_space(&self) -> bool {
        let free = self.place.files.free_bytes(&self.place.folder);
        free.is_ok_and(|free| free < self.place.room.keep_free_bytes) || self.holds_too_much()
    }

    /// The slots.
    #[must_use]
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// What the disk says now.
    ///
    /// # Errors
    /// Where it does not tell all of it.
    pub fn found(&self) -> Result<Found, Failure> {
        let (found, unread) = self.examine();
        match unread.into_iter().next() {
            None => Ok(found),
            Some((part, error)) => {
                Err(Failure::of_the_device(format!("cannot read what is installed: cannot read {part}: {error}")))
            }
        }
    }

    /// What the disk says now, with what it does not tell named in [`Found::unread`].
    #[must_use]
    pub fn look(&self) -> Found {
        self.examine().0
    }

    fn examine(&self) -> (Found, BTreeMap<Part, io::Error>) {
        fn told<T>(part: Part, said: io::Result<T>, unread: &mut BTreeMap<Part, io::Error>) -> Option<T> {
            said.map_err(|error| unread.insert(part, error)).ok()
        }
        let entry = self.journal.lock().unwrap_or_else(PoisonError::into_inner).last().cloned();
        let mut unread = BTreeMap::new();
        let confirmed = told(Part::Confirmed, self.slots.confirmed(), &mut unread).unwrap_or(Kept::Absent);
        let mut found = Found {
            entry,
            current: told(Part::Current, self.slots.current(), &mut unread).flatten(),
            a: told(Part::Slot(Slot::A), self.slots.described(Slot::A), &mut unread).flatten(),
            b: told(Part::Slot(Slot::B), self.slots.described(Slot::B), &mut unread).flatten(),
            damaged: confirmed == Kept::Damaged,
            confirmed: match confirmed {
                Kept::Said(confirmed) => Some(confirmed),
                Kept::Absent | Kept::Damaged => None,
            },
            denied: told(Part::Denied, self.slots.denied(), &mut unread).unwrap_or_default(),
            boot: self.place.boot.clone(),
            ..Found::default()
        };
        found.unread = unread.keys().copied().collect();
        (found, unread)
    }

    /// Does an operation on files, blocking; what concerns processes is not for here.
    ///
    /// # Errors
    /// Why it failed.
    pub fn perform(&self, operation: &Operation) -> Result<(), Failure> {
        if let Operation::Fill(slot, contents) = operation {
            return self.fill(operation, *slot, contents);
        }
        let done = match self.try_perform(operation) {
            Err(error)
                if is_disk_full(&error) && may_spend(operation) && RESERVE.spend(&*self.place.files, &self.place.folder) =>
            {
                self.try_perform(operation)
            }
            done => done,
        };
        done.map_err(|error| Failure::io(operation, &error))
    }

    fn try_perform(&self, operation: &Operation) -> io::Result<()> {
        match operation {
            Operation::Note(entry) => self.journal.lock().unwrap_or_else(PoisonError::into_inner).note(entry),
            Operation::Empty(slot) => self.slots.empty(*slot),
            Operation::Verify(slot, contents) => self.slots.verify(*slot, contents),
            Operation::Point(slot) => self.slots.point(*slot),
            Operation::Describe(slot, described) => self.slots.describe(*slot, described),
            Operation::Bless(confirmed) => self.slots.bless(confirmed),
            Operation::Deny(denied) => self.slots.deny(&denied.clone().joining(self.slots.denied()?)),
            Operation::Forgive(contents) => {
                let mut list = self.slots.denied()?;
                list.retain(|denied| !denied.names(contents));
                self.slots.deny(&list)
            }
            Operation::Fill(..)
            | Operation::Hook(..)
            | Operation::Start(..)
            | Operation::Keep(..)
            | Operation::Stop(..)
            | Operation::Restart(..)
            | Operation::Booted(..)
            | Operation::Left(..) => Err(io::Error::new(io::ErrorKind::InvalidInput, "this is not done by small files")),
        }
    }

    fn fill(&self, operation: &Operation, slot: Slot, contents: &Contents) -> Result<(), Failure> {
        let source = self.open_artifact(&contents.sha256)?;
        let described = Described { contents: contents.clone(), state: SlotState::Staged };
        let filled = self.slots.fill(slot, &described, &source, self.place.room);
        if let Err(FillError::Content(_) | FillError::Source(_)) = &filled {
            self.artifacts.doubt(&contents.sha256);
        }
        filled.map_err(|error| Failure::fill(operation, &error))
    }

    fn open_artifact(&self, sha256: &Digest) -> Result<std::fs::File, Failure> {
        self.artifacts.open(sha256).map_err(|error| Failure::broken(format!("cannot open the artifact {sha256}: {error}")))
    }
}

/// Staging can wait for space; an upgrade under way cannot, down to the entry that ends it: while it is open nothing else begins.
fn may_spend(operation: &Operation) -> bool {
    match operation {
        Operation::Note(Entry { mark: Mark::Stage, .. }) => false,
        // Only what was activated has a claim.
        Operation::Note(Entry { mark: Mark::Closed, transaction }) => transaction.claim.is_some(),
        _ => true,
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

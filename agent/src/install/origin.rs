//! What follows from where the version that runs was started from: it may not be what `current` leads to.

use groundswell_core::install::{Contents, Found, Slot};
use groundswell_core::record::status::Running;

use super::activate::Origin;

impl Origin {
    /// Which version runs.
    pub(super) fn running(self, found: &Found) -> Option<Running> {
        match self {
            Self::Current => found.running(),
            Self::Slot(slot) => found.running_from(slot),
            Self::Elsewhere => None,
        }
    }

    /// The slot that this agent runs from, where it is the product.
    pub(super) fn slot(self) -> Option<Slot> {
        match self {
            Self::Slot(slot) => Some(slot),
            Self::Current | Self::Elsewhere => None,
        }
    }

    /// What is to run in this agent's place once it has finished the confirm of another build: it is not that one, and lies
    /// below its floor.
    pub(super) fn gives_way_to(self, found: &Found) -> Option<(Slot, Contents)> {
        let slot = found.current.filter(|slot| self != Self::Current && self.slot() != Some(*slot))?;
        Some((slot, found.contents(slot)?.clone()))
    }
}

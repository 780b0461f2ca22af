//! How a version is put in place of another on one device, as decisions: which operations, in which order, after what.
//!
//! Pure, like all of this crate: no file, no process, no clock. The device looks ([`Found`]), asks ([`machine`] for an
//! order of the node, [`recovery`] for a start), and carries out the list of [`Operation`]s it gets. The lists are data,
//! so the crash matrix is made from them and no step can be forgotten. Drawn in `docs/INSTALL.md`.

pub mod machine;
mod operation;
pub mod recovery;
mod state;
pub mod supervision;

pub use operation::{Hook, Operation};
pub use state::{
    Boot, Confirmed, Contents, Counted, Denied, Described, Entry, Found, Manner, Mark, Part, Slot, SlotState, Starts,
    Transaction, Way,
};

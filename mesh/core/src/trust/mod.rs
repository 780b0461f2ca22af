//! Whether a document may have an effect: keys, pins, thresholds, verification, and the shelf of documents in force.
//!
//! The steps of verification are numbered here, in [`verify`] and in `docs/TRUST.md` alike.
//! [`threshold`] is the one place that counts signatures, [`shelf`] the one place that knows what is in force.

pub mod brake;
pub mod guard_rails;
pub mod key;
pub mod local;
pub mod shelf;
pub mod signature;
pub mod signing;
pub mod threshold;
pub mod verify;

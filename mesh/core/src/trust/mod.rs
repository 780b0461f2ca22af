//! Whether a document may have an effect: keys, pins, thresholds, verification, and the shelf of documents in force.
//!
//! The steps of verification are numbered here, in [`verify`] and in `docs/TRUST.md` alike.

pub mod key;

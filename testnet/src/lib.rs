//! Proof of Groundswell: a virtual world that drives the agents' own core, and fleets of real processes.
//!
//! [`sim`] is the virtual world; [`fleet`] starts the real `swell` binary. The demo stands on [`fleet`] and lives in the
//! binary.

pub mod fleet;
pub mod sim;

//! Proof of Groundswell: a virtual world that drives the agents' own core, and fleets of real processes.
//!
//! [`sim`] is the virtual world; [`bytes`] a swarm of bytes in virtual time; [`model`] a world so small that all of it can be
//! visited; [`fleet`] starts the real `swell` binary; [`lab`] does so on hosts with thin uplinks; [`self_upgrade`] is what they tell of agents that replace themselves. The
//! demo stands on [`fleet`] and lives in the binary.

pub mod bytes;
pub mod fleet;
pub mod lab;
pub mod loopback;
pub mod model;
pub mod mutants;
pub mod self_upgrade;
pub mod serving;
pub mod sim;

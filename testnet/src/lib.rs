//! Proof of Groundswell: a virtual world that drives the agents' own core, and the demo on real processes.
//!
//! [`sim`] is the virtual world. What starts real processes lives in the binary.

pub mod sim;

//! The agent: drives the core with real disks, processes and peers.

pub mod config;
pub mod install;

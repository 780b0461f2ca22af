//! The agent of Groundswell: drives the core with real disks, processes and peers.
//!
//! Read [`agent`] for how the parts are wired, [`driver`] for the one loop, [`store`] for what survives a power cut,
//! [`config`] for what an administrator says, [`install`] for slots, journal and health, [`api`] for the local surface,
//! [`helper`] for the process with rights beside an agent without, [`supervise`] for the parent that outlives every build.
//! Decisions are the core's: nothing here judges a document, a record or a gate.

mod admission;
pub mod agent;
pub mod api;
pub mod blobs;
pub mod clock;
pub mod config;
pub mod driver;
pub mod effects;
pub mod events;
pub mod handle;
pub mod health;
pub mod helper;
pub mod identity;
pub mod install;
mod let_go;
pub mod observer;
mod outer;
mod scarcity;
pub mod spread;
pub mod store;
pub mod supervise;

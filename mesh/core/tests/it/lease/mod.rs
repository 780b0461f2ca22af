//! Leases: the cases of the design and a random walk over a small world of holders and wardens.

mod board;
mod ending;
mod fleet;
mod granting;
mod handover;
mod lasting;
mod liars;
mod mesh;
mod seeing;
mod stage;
mod starting;
mod walk;

//! The decisions of Groundswell, and nothing else.
//!
//! This crate knows documents, trust, waves, gates, leases, records and a node's life.
//! It is `no_std` + `alloc`: it cannot name a clock, a file, a socket, a thread or a hash map.
//! Time is a value ([`time::Now`]), randomness a seeded generator given to the constructor,
//! and everything it iterates is ordered, so the same inputs give the same effects.
//!
//! The agent and the simulator drive it through one door: [`node::Node`].
//! Read `documents` for what operators sign, `record` for what nodes say, `rollout` for when
//! a node may start, `lease` for the disruption budget, `install` for how a version is put in place of another,
//! `node` for how they meet.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod blob;
pub mod crypto;
pub mod digest;
pub mod documents;
pub mod install;
pub mod lease;
pub mod limits;
pub mod node;
pub mod node_id;
pub mod number;
mod once;
pub mod record;
pub mod rollout;
pub mod spread;
pub mod text;
pub mod time;
pub mod trust;

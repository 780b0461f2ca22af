//! A swarm of bytes in virtual time: the core's exchange on links of given rates.
//!
//! [`setting`] says what is tried and what its limit is, [`world`] plays it, `uplink` is a link. Everything is counted,
//! nothing is measured by a clock, and the same setting gives the same outcome.

pub mod setting;
mod uplink;
pub mod world;

pub use setting::{Outcome, Setting, Trial};
pub use world::run;

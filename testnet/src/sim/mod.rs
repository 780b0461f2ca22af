//! A virtual world for the agents' own core: time, links, disks and devices without IO, from one seed.
//!
//! [`operator`] signs documents with real keys, [`world`] moves time (`abreast` on several threads), [`network`] messages, [`machine`] is one node with
//! its disk, [`device`] is what runs on it, [`checks`] holds the guarantees by name. A run is data: a [`script`] of
//! [`act`]s, which [`draw`] draws from a seed and [`director`] plays. S1 is judged by what the virtual devices do, never by what records say.

mod abreast;
pub mod act;
mod acting;
pub mod campaign;
pub mod checks;
pub mod device;
pub mod director;
pub mod draw;
mod effects;
pub mod expect;
mod faults;
pub mod liar;
pub mod machine;
pub mod margin;
pub mod measure;
pub mod memo;
pub mod merges;
pub mod network;
pub mod operator;
mod queue;
pub mod report;
pub mod script;
pub mod shrink;
pub mod span;
pub mod swarm;
pub mod world;

//! A virtual world for the agents' own core: time, links, disks and devices without IO, from one seed.
//!
//! [`operator`] signs documents with real keys, [`world`] moves time, [`network`] messages, [`machine`] is one node with
//! its disk, [`device`] is what runs on it, [`checks`] holds the guarantees by name, [`swarm`] draws worlds and faults
//! from seeds. S1 is judged by what the virtual devices do, never by what records say.

pub mod campaign;
pub mod checks;
pub mod device;
pub mod machine;
pub mod measure;
pub mod memo;
pub mod network;
pub mod operator;
pub mod swarm;
pub mod world;

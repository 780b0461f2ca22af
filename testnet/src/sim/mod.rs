//! A virtual world for the agents' own core: time, links, disks and devices without IO, from one seed.
//!
//! [`operator`] signs documents with real keys, [`world`] moves time and messages, [`machine`] is one node with its disk,
//! [`device`] is what runs on it. S1 is judged by what the virtual devices do, never by what records say.

pub mod device;
pub mod machine;
pub mod operator;
pub mod world;

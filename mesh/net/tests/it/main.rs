//! The mesh from outside. Real nodes on loopback: the door, links, gossip and dials as the agent meets them.
//! Blobs in a world of peers in memory ([`blob_world`]), where time is virtual, and between real nodes.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that fails may panic")]

mod admission;
mod blob_fetch;
mod blob_mesh;
mod blob_wire;
mod blob_world;
mod crowds;
mod dials;
mod door_for_ever;
mod gossip;
mod hostile;
mod links;
mod node;
mod outer_door;
mod outer_mesh;
mod outer_wire;
mod outer_world;
mod stranger;
mod swarm;
mod swarm_hostile;
mod swarm_memory;
mod swarm_world;

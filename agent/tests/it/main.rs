//! Integration tests of the agent: one binary, one module per subject.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that fails may panic")]

mod activators;
mod agents;
mod agents_swarm;
mod blob_kill;
mod blob_mesh;
mod blob_room;
mod blobs;
mod config;
mod crash;
mod crash_matrix;
mod denied;
mod device;
mod device_faults;
mod effects;
mod fleet;
mod full_disk;
mod health;
mod helper_frames;
mod helper_patience;
mod helper_remote;
mod hooks;
mod identity;
mod leftovers;
mod local_api;
mod outer_door;
mod outer_liars;
mod outer_upgrade;
mod own_full_disk;
mod own_upgrade;
mod reboot;
mod scarce;
mod store;
mod supervise;
mod updaters;
mod workshop;

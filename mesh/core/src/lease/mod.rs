//! The disruption budget: numbered slots, their wardens, quorums, grants and claims (design, section 7).
//!
//! Plain data in, decisions out. [`budget`] says how many slots a pool has, [`wardens`] who keeps the promise of each,
//! [`governing`] which roster that is read from, [`handover`] when a slot may be granted under a newer one. [`warden`] is
//! the side that promises, [`queue`] and [`start`] the side that claims and starts; all read the mesh through
//! [`sight::Sight`]. [`presence`] counts silence, [`synced`] and [`amnesia`] say when a node must not take part. The
//! argument in words: `docs/LEASES.md`.
//! The node's life, persistence and publishing are not here: see `node`.

pub mod amnesia;
pub mod board;
pub mod budget;
pub mod claim;
pub mod claims;
pub mod governing;
pub mod handover;
pub mod presence;
pub mod queue;
pub mod sight;
pub mod start;
pub mod synced;
pub mod view;
pub mod warden;
pub mod wardens;

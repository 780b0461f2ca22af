//! The mesh of Groundswell on libp2p: admission, neighbour links, gossip, streams for blobs.
//!
//! IO only: nothing here decides about documents or records. libp2p types stop in this crate; its public
//! API speaks [`NodeId`](groundswell_core::node_id::NodeId), multiaddresses as text, and bytes.
//!
//! Read [`network`] for the handle that the agent holds, [`event`] for what it hears, [`admission`] for who is let in,
//! [`outer`] for what those get that are not, `streams` for how blobs travel. `docs/PROTOCOL.md` has the bytes on the wire.

pub mod admission;
mod behaviour;
pub mod blobs;
pub mod config;
mod counters;
mod crowd;
mod door;
mod driver;
pub mod event;
mod held;
mod link;
pub mod network;
pub mod origin;
pub mod outer;
pub mod pieces;
mod rate;
mod start;
mod streams;

pub use admission::Admission;
pub use config::Config;
pub use counters::Counters;
pub use event::{Forward, NetworkEvent};
pub use network::{Busy, Network, StartError};

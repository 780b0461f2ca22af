//! Real nodes on loopback: the door, links, gossip and dials as the agent meets them.

mod admission;
mod dials;
mod gossip;
mod links;
mod node;
mod stranger;

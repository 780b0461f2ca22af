//! Whether the running version works: probes by command, HTTP or TCP, of a systemd unit, or of the supervised process.
//!
//! `probe` asks once, [`judge`] decides from several in a row, [`Monitor`] is the task that does both and tells
//! changes. Nothing here reverts anything: the core decides what a change means. What the network alone can cause
//! is [`groundswell_core::node::input::Health::Unknown`], and that reverts nothing (case I6).

pub mod http;
pub mod judge;
pub mod monitor;
pub mod names;
pub mod probe;
pub mod tcp;
pub mod unit;

pub use judge::{Judge, Verdict};
pub use monitor::{Changed, Monitor, Target};
pub use names::Names;

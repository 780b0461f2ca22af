//! Neighbour links: frames between two admitted peers over one long-lived stream in each direction.
//!
//! One direction per stream and always a reader, because yamux can deadlock when both ends of a stream write more than
//! its window without reading. [`frame`] has the bytes, [`writer`] one peer's outbound queue, [`reader`] one inbound stream.

pub(crate) mod frame;
pub(crate) mod reader;
pub(crate) mod writer;

//! Blobs over the mesh: fetching verified pieces from several peers at once, and serving them.
//!
//! Which piece to ask of whom is decided by the core's planner; files are the agent's ([`BlobSource`], [`PieceSink`]).
//! Here is what lies between: the wire ([`wire`]), one conversation per peer (`supplier`), the download that joins
//! them ([`fetch`]), the serving side ([`serve`]), and who lost its standing ([`standing`]).
//! The bytes on the wire are described in `docs/PROTOCOL.md`.

mod connect;
mod document;
pub(crate) mod download;
pub mod fetch;
pub mod limits;
mod mesh;
pub mod serve;
pub mod source;
pub mod standing;
mod supplier;
pub mod wire;

pub use connect::{Connect, ConnectError, Duplex};
pub use document::DocumentError;
pub use fetch::{FetchError, Fetcher, Progress};
pub use serve::{Server, ServerCounters};
pub use source::{BlobSource, Described, DocumentSource, PieceSink, ReadError, SinkError};
pub use standing::Charge;

//! Blobs over the mesh: fetching verified pieces from several peers at once, and serving them.
//!
//! Nodes that fetch the same blob exchange its pieces: see [`crate::pieces`]. Files are the agent's ([`BlobSource`],
//! [`PieceSink`]). Here is what is asked and answered one by one ([`wire`], [`serve`]): rosters as whole documents, and
//! pieces for those that have no stream of pieces; and who lost its standing ([`standing`]).
//! The bytes on the wire are described in `docs/PROTOCOL.md`.

mod connect;
mod document;
pub mod fetch;
pub mod limits;
mod mesh;
pub mod serve;
pub mod source;
pub mod standing;
pub mod wire;

pub use connect::{Connect, ConnectError, Duplex};
pub use document::DocumentError;
pub use fetch::{FetchError, Fetcher, Progress};
pub use serve::{Server, ServerCounters};
pub use source::{BlobSource, Described, DocumentSource, PieceSink, ReadError, SinkError};
pub use standing::Charge;

/// Runs what may wait for a disk where that is allowed. A panic there goes on here.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is shutting down: whoever waits is being dropped as well.
        Err(_) => std::future::pending().await,
    }
}

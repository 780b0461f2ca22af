//! Blobs on disk: files named by their sha256, downloads that survive kill −9, local publishing.
//!
//! One folder. `HEX` is a whole blob: it gets that name by a rename after its sha256 was checked, and in no other way.
//! `HEX.hashes` has its size, root and hash list; `HEX.part` and `HEX.have` are a download under way: the data, and
//! the pieces that are durably in it. The bitmap is written after the data it speaks of was flushed, so it never
//! claims more than is on disk. Files of any other name are not this store's. Names of artifacts never appear (K6).
//!
//! [`store`] is the folder, [`partial`] a download (the mesh's `PieceSink`) and `running_hash` its sha256, [`put`] local
//! publishing, `serve` the mesh's `BlobSource`. Everything here may block on the disk: call it from blocking threads. Design, section 9.

mod eviction;
mod files;
mod folder;
pub mod partial;
pub mod put;
mod running_hash;
mod serve;
mod sidecar;
pub mod store;

pub use eviction::Needed;
pub use partial::Partial;
pub use put::{Put, PutError};
pub use store::{Begun, BlobStore, DownloadError, Held, LookupError, OpenError, Settings};

//! Integration tests of the agent: one binary, one module per subject.

mod blobs;
mod store;

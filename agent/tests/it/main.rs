//! Integration tests of the agent: one binary, one module per subject.
#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test, like the test itself")]

mod effects;
mod identity;
mod local_api;
mod store;

//! The real binary on real files: what is typed, what is printed, what is written, how it exits.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

mod desk;
mod offline_fleet;
mod offline_release;
mod offline_rollout;
mod online;
mod pages;
mod tidy;

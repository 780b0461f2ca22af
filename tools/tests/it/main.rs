//! The real binary on real files: what is typed, what is printed, what is written, how it exits.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that fails may panic")]

mod desk;
mod helper;
mod offline_fleet;
mod offline_release;
mod offline_rollout;
mod online;
mod pages;
mod supervise_check;
mod supervise_signs;
mod tidy;
mod units;

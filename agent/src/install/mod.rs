//! Installs on this device: two slots per product, a journal, activators (design, section 10).
//!
//! The core decides and asks by [`groundswell_core::node::effect::Step`]; the device executes and reports facts. Which
//! operations that takes, in which order, is decided in [`groundswell_core::install`]; [`executor`] carries them out.
//! [`slots`] and [`journal`] are the files, over the few calls of [`files`]; [`activate`] starts versions, [`device`] is
//! the task that ties them together. Where the agent has no rights, [`remote`] asks `swell helper` for all of it.

pub mod activate;
mod again;
pub mod artifact;
mod asked;
pub mod blocks;
pub mod device;
pub mod disk;
pub(crate) mod durable;
pub mod ending;
pub mod executor;
pub mod files;
pub mod forks;
mod ground;
pub mod journal;
pub(crate) mod lock;
mod origin;
pub mod remote;
pub(crate) mod reserve;
pub mod slots;
mod told;
pub mod way_back;

pub use artifact::ArtifactSource;
pub use device::{Device, DeviceError, Devices, Settings, StepRefused};

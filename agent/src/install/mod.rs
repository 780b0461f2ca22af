//! Installs on this device: two slots per product, a journal, activators (design, section 10).
//!
//! The core decides and asks by [`groundswell_core::node::effect::Step`]; the device executes and reports facts.
//! `machine` and `recovery` are pure: which operations, in which order, after what. `executor` does them.
//! `slots` and `journal` are the files, `activate` starts versions, [`device`] is the task that ties them together.

pub mod activate;
pub mod artifact;
pub mod device;

pub use artifact::ArtifactSource;
pub use device::{Device, DeviceError, Devices, Settings, StepRefused};

//! The device of one product: one task that takes steps, executes them and reports facts.
//!
//! It decides nothing. One step at a time per product (case I4); health and local blocks go on while a step runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use groundswell_core::node::effect::Step;
use groundswell_core::node::input::Report;
use groundswell_core::text::Product;
use tokio::sync::mpsc;

use super::artifact::ArtifactSource;
use crate::config::{Config, ProductConfig};

/// What one device needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The product.
    pub product: Product,
    /// Its folder: slots, journal, logs.
    pub folder: PathBuf,
    /// How it is installed and judged.
    pub config: ProductConfig,
    /// Least bytes left free on the folder's file system.
    pub keep_free_bytes: u64,
    /// How often inhibit files and free space are looked at; 5 s in [`Settings::from_config`].
    pub block_interval: Duration,
}

/// Why a device cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Its folder cannot be made, read or locked.
    #[error("product {product}: cannot use the folder {}", folder.display())]
    Folder {
        /// The product.
        product: Product,
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Why a step was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepRefused {
    /// The product is not configured here.
    #[error("the product is not configured on this node")]
    UnknownProduct,
    /// The device has more steps waiting than the core ever asks for at once.
    #[error("the device is busy with earlier steps")]
    Busy,
    /// The device has stopped.
    #[error("the device has stopped")]
    Stopped,
}

/// One product's device: a running task.
pub struct Device {
    steps: mpsc::Sender<Step>,
}

impl Device {
    /// Starts the task. Its first reports are `Recovered`, `Policy` and `Blocked`, in this order.
    /// It waits when `reports` is full, so its reader must never wait for the device.
    ///
    /// # Errors
    /// When the product's folder cannot be used.
    pub fn start(
        settings: Settings,
        artifacts: Arc<dyn ArtifactSource>,
        reports: mpsc::Sender<(Product, Report)>,
    ) -> Result<Self, DeviceError> {
        todo!("{settings:?} {} {}", Arc::strong_count(&artifacts), reports.capacity())
    }

    /// Hands over a step; never waits. Steps run one after the other, in order.
    /// `Fetch` and `CancelFetch` belong to the driver: here they are ignored with a warning.
    ///
    /// # Errors
    /// When the device is busy or has stopped.
    pub fn step(&self, step: Step) -> Result<(), StepRefused> {
        self.steps.try_send(step).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StepRefused::Busy,
            mpsc::error::TrySendError::Closed(_) => StepRefused::Stopped,
        })
    }

    /// Stops a supervised process and the task; what is in the middle of something is finished by the next start.
    /// Keep on reading reports, or drop their receiver, until it returns.
    pub async fn shutdown(self) {
        todo!()
    }
}

/// The devices of all configured products.
pub struct Devices {
    devices: BTreeMap<Product, Device>,
}

impl Devices {
    /// Starts a device for each product of `config`.
    ///
    /// # Errors
    /// When a product's folder cannot be used; those started before it are stopped by their drop.
    pub fn start(
        config: &Config,
        artifacts: &Arc<dyn ArtifactSource>,
        reports: &mpsc::Sender<(Product, Report)>,
    ) -> Result<Self, DeviceError> {
        todo!("{config:?} {} {}", Arc::strong_count(artifacts), reports.capacity())
    }

    /// Hands a step to a product's device; never waits.
    ///
    /// # Errors
    /// When there is no such device, or it does not take the step.
    pub fn step(&self, product: &Product, step: Step) -> Result<(), StepRefused> {
        self.devices.get(product).ok_or(StepRefused::UnknownProduct)?.step(step)
    }

    /// Stops all devices, at once.
    pub async fn shutdown(self) {
        todo!()
    }
}

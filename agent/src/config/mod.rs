//! The agent's configuration: one TOML file, read once at start.
//!
//! What is typed (`file.rs`, `product.rs`) and what to do ([`Config`], [`ProductConfig`]) are two sets of types:
//! after [`Config::load`] nobody checks again. Unknown keys are errors that name file, line and the nearest known
//! key (case M5), but for an agent under a supervisor (`lenient.rs`). The documented default is `docs/agent.toml`; [`Config::documented_default`] is what the binary prints.
//! Commands come only from here, never from a document or a peer; what root runs on them, only from where [`ground`] is root's.

mod activator;
mod error;
mod faults;
mod file;
pub mod ground;
mod health;
mod helper;
mod hooks;
mod lenient;
mod period;
mod product;
mod supervise;
mod trust;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use groundswell_core::digest::Digest;
use groundswell_core::text::Product;

use crate::install::durable::read_named_text;

pub use activator::{
    Activator, CommandActivator, HelperActivator, Reboot, RestartPolicy, SignalActivator, Supervise, SystemdActivator,
    TellSignal, UnitAction,
};
pub use error::ConfigError;
pub use faults::Faults;
pub use health::{HealthCheck, HealthConfig, HttpTarget, TcpTarget, UnitTarget};
pub use helper::{HelperConfig, HelperProduct};
pub use hooks::HooksConfig;
pub(crate) use period::length_of_time;
pub use product::ProductConfig;
pub use supervise::SuperviseConfig;
pub use trust::{TrustRaise, TrustRaises};

/// No longer configuration is read, in bytes: the documented one has about 15 KiB.
pub(crate) const FILE_BYTES: u64 = 1024 * 1024;

/// The agent's configuration, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The folder of everything that the agent writes.
    pub data_dir: PathBuf,
    /// The fleet's id: the digest of its document's version 1, given out of band.
    pub fleet: Digest,
    /// Published documents read at every start (the fleet document at least once), in this order.
    pub documents: Vec<PathBuf>,
    /// The node's Ed25519 key file.
    pub key_file: PathBuf,
    /// The node's certificate, a published document; `None` when it will come from a peer.
    pub certificate_file: Option<PathBuf>,
    /// Multiaddresses to listen on. Checked by the net crate.
    pub listen: Vec<String>,
    /// Multiaddresses dialled first.
    pub bootstrap: Vec<String>,
    /// Whether peers on the same link are looked for by mDNS.
    pub mdns: bool,
    /// Metered: syncs rarely, serves nobody.
    pub lean: bool,
    /// The unix socket of the local API.
    pub socket: PathBuf,
    /// The form of log lines.
    pub log_format: LogFormat,
    /// The filter of log lines, in the form of tracing's `EnvFilter`, e.g. `info,groundswell_net=debug`.
    pub log_filter: String,
    /// Disk bounds.
    pub limits: DiskLimits,
    /// What it gives to swarms and takes from them.
    pub swarm: groundswell_net::pieces::Terms,
    /// Trust beyond the fleet document; only ever raises.
    pub trust: TrustRaises,
    /// How `swell supervise` judges and restarts the agent; the agent itself only checks it.
    pub supervise: SuperviseConfig,
    /// The products that this node installs, at most [`groundswell_core::limits::PRODUCTS`].
    pub products: BTreeMap<Product, ProductConfig>,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// One line of prose each.
    #[default]
    Text,
    /// One JSON object each.
    Json,
}

/// Disk bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskLimits {
    /// Most bytes of blobs kept.
    pub blob_bytes: u64,
    /// Least bytes left free on the data folder's file system: below it nothing new starts (`disk-full`).
    pub keep_free_bytes: u64,
    /// Most bytes in the two slots of one product: beyond it nothing is staged (`disk-full`).
    pub slot_bytes: u64,
}

impl Config {
    /// Reads and checks the file at `path`. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// [`ConfigError`], which names the file, and line and key where there are any.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = read_named_text(path, FILE_BYTES).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Checks `text`, the content of the file at `path`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        file::parse(path, text)
    }

    /// Reads the file as a build must that is all there is to go back to: keys of newer builds are passed over, and returned
    /// with their tables. A product is only observed when such a key stands in its table or in `trust`, or is a whole table,
    /// for it may have held the node back.
    ///
    /// # Errors
    /// As [`Config::load`], but for unknown keys.
    pub fn load_leniently(path: &Path) -> Result<(Self, Vec<String>), ConfigError> {
        let text = read_named_text(path, FILE_BYTES).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse_leniently(path, &text)
    }

    /// The same for `text`, the content of the file at `path`.
    ///
    /// # Errors
    /// As [`Config::load_leniently`].
    pub fn parse_leniently(path: &Path, text: &str) -> Result<(Self, Vec<String>), ConfigError> {
        lenient::parse(path, text)
    }

    /// All that is wrong with the file, as far as each thing can be told by itself.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn faults(path: &Path) -> Result<Faults, ConfigError> {
        let text = read_named_text(path, FILE_BYTES).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Ok(faults::faults(path, &text))
    }

    /// The documented default configuration: `docs/agent.toml`, with every key and its default.
    #[must_use]
    pub fn documented_default() -> &'static str {
        include_str!("../../../docs/agent.toml")
    }

    /// The product that is this agent itself, where one is configured.
    #[must_use]
    pub fn own_product(&self) -> Option<&Product> {
        self.products.iter().find(|(_, product)| product.activator == Activator::Agent).map(|(name, _)| name)
    }

    /// The products that are only observed.
    pub fn observed(&self) -> impl Iterator<Item = &Product> {
        self.products.iter().filter(|(_, product)| product.observe_only).map(|(name, _)| name)
    }

    /// From here on all products are only observed.
    pub fn only_observe(&mut self) {
        self.products.values_mut().for_each(|product| product.observe_only = true);
    }

    /// The folder that holds the slots of `product`.
    #[must_use]
    pub fn product_dir(&self, product: &Product) -> PathBuf {
        self.data_dir.join("products").join(product.as_str())
    }
}

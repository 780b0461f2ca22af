//! The helper's own configuration: one TOML file of root's, read once at start. The documented one is `docs/helper.toml`.
//!
//! It says again what the agent's says of trust and products, because the helper takes nothing from the agent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use groundswell_core::digest::Digest;
use groundswell_core::install::Manner;
use groundswell_core::limits::{BLOB_BYTES, PRODUCTS};
use groundswell_core::node_id::NodeId;
use groundswell_core::text::{Product, Version};
use serde::Deserialize;

use super::activator::{Activator, ActivatorFile};
use super::error::ConfigError;
use super::file::{LogFile, RESERVED};
use super::hooks::{HooksConfig, HooksFile};
use super::period::Size;
use super::product::{Wrong, manner, trial_starts, trial_starts_in_range};
use super::trust::TrustRaises;
use super::{FILE_BYTES, LogFormat};
use crate::install::durable::read_named_text;

/// The helper's configuration, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperConfig {
    /// The folder of everything that the helper writes.
    pub data_dir: PathBuf,
    /// The fleet's id, given out of band.
    pub fleet: Digest,
    /// The node that it installs for.
    pub node: NodeId,
    /// Its unix socket.
    pub socket: PathBuf,
    /// The user that the agent runs as: a name or a number.
    pub agent_user: String,
    /// The group that the agent runs as: a name or a number; `None`: the user's own.
    pub agent_group: Option<String>,
    /// The form of log lines.
    pub log_format: LogFormat,
    /// The filter of log lines, in the form of tracing's `EnvFilter`.
    pub log_filter: String,
    /// Least bytes left free on the data folder's file system.
    pub keep_free_bytes: u64,
    /// Most bytes in the two slots of one product.
    pub slot_bytes: u64,
    /// Largest artifact that is installed, in bytes.
    pub artifact_bytes: u64,
    /// Trust beyond the fleet document; only ever raises.
    pub trust: TrustRaises,
    /// The products that it installs.
    pub products: BTreeMap<Product, HelperProduct>,
}

/// How the helper installs one product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperProduct {
    /// What starts a version; never a supervised process, never another helper.
    pub activator: Activator,
    /// Commands around the steps.
    pub hooks: HooksConfig,
    /// Only this version may be installed.
    pub version_lock: Option<Version>,
    /// How often a trial may be started before recovery reverts it, 1 to 16.
    pub trial_starts: u32,
}

impl HelperProduct {
    /// What the install machine needs to know of it.
    #[must_use]
    pub fn manner(&self) -> Manner {
        manner(&self.activator, self.trial_starts)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    data_dir: PathBuf,
    fleet: Digest,
    node: NodeId,
    socket: Option<PathBuf>,
    agent: AgentFile,
    #[serde(default)]
    log: LogFile,
    #[serde(default)]
    limits: LimitsFile,
    #[serde(default)]
    trust: TrustRaises,
    #[serde(default)]
    product: BTreeMap<Product, ProductFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct AgentFile {
    user: String,
    group: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct LimitsFile {
    keep_free: Size,
    slots: Size,
    artifact: Size,
}

impl Default for LimitsFile {
    fn default() -> Self {
        Self { keep_free: Size(64 << 20), slots: Size(4 << 30), artifact: Size(4 << 30) }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ProductFile {
    activator: ActivatorFile,
    #[serde(default)]
    hooks: HooksFile,
    version_lock: Option<Version>,
    #[serde(default = "trial_starts")]
    trial_starts: u32,
}

impl ProductFile {
    fn check(self, folder: &Path) -> Result<HelperProduct, Wrong> {
        let activator = self.activator.check(folder)?;
        if matches!(activator, Activator::Supervise(_)) {
            let told = "a process that the helper keeps running would have its rights and its missing network: \
                        use \"systemd\", \"command\" or \"signal\"";
            return Err(("activator.type", told.to_owned()));
        }
        if activator == Activator::Agent {
            let told = "an agent is replaced by `swell supervise`, and a helper starts no agent";
            return Err(("activator.type", told.to_owned()));
        }
        if matches!(activator, Activator::Helper(_)) {
            return Err(("activator.type", "this is the helper's own file: say here what starts a version".to_owned()));
        }
        trial_starts_in_range(self.trial_starts)?;
        Ok(HelperProduct {
            activator,
            hooks: self.hooks.check()?,
            version_lock: self.version_lock,
            trial_starts: self.trial_starts,
        })
    }
}

impl HelperConfig {
    /// Reads and checks the file at `path`. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// [`ConfigError`], which names the file, and line and key where there are any.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            read_named_text(path, FILE_BYTES).map_err(|source| ConfigError::ReadHelper { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Checks `text`, the content of the file at `path`.
    ///
    /// # Errors
    /// As [`HelperConfig::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let file: File = toml::from_str(text).map_err(|error| ConfigError::from_toml(path, text, &error))?;
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        let here = |given: PathBuf| folder.join(given);
        let wrong = |key: &str, message: String| ConfigError::Value { path: path.to_owned(), key: key.to_owned(), message };
        if file.product.is_empty() || file.product.len() > PRODUCTS {
            return Err(wrong("product", format!("between 1 and {PRODUCTS} products, here are {}", file.product.len())));
        }
        if file.limits.artifact.0 == 0 || file.limits.artifact.0 > BLOB_BYTES {
            return Err(wrong("limits.artifact", format!("between 1 byte and {} GiB", BLOB_BYTES >> 30)));
        }
        let data_dir = here(file.data_dir);
        let mut products = BTreeMap::new();
        for (name, product) in file.product {
            if name.as_str() == RESERVED {
                return Err(wrong("product", format!("`{RESERVED}` is the name of a file beside the binary: use another")));
            }
            let product = product.check(folder).map_err(|(key, message)| wrong(&format!("product.{name}.{key}"), message))?;
            products.insert(name, product);
        }
        Ok(Self {
            socket: file.socket.map_or_else(|| data_dir.join("helper.sock"), here),
            data_dir,
            fleet: file.fleet,
            node: file.node,
            agent_user: file.agent.user,
            agent_group: file.agent.group,
            log_format: file.log.format,
            log_filter: file.log.filter,
            keep_free_bytes: file.limits.keep_free.0,
            slot_bytes: file.limits.slots.0,
            artifact_bytes: file.limits.artifact.0,
            trust: file.trust,
            products,
        })
    }

    /// The documented configuration: `docs/helper.toml`, with every key and its default.
    #[must_use]
    pub fn documented_default() -> &'static str {
        include_str!("../../../docs/helper.toml")
    }

    /// The folder that holds the slots of `product`.
    #[must_use]
    pub fn product_dir(&self, product: &Product) -> PathBuf {
        self.data_dir.join("products").join(product.as_str())
    }
}

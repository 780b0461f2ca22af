//! The top level of the file as it is typed, and its defaults.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use groundswell_core::digest::Digest;
use groundswell_core::limits::{BLOB_NEIGHBOURS, PRODUCTS};
use groundswell_core::text::Product;
use groundswell_net::pieces::{Rate, Rates, Terms};
use serde::Deserialize;

use super::error::ConfigError;
use super::period::Size;
use super::product::ProductFile;
use super::supervise::SuperviseFile;
use super::trust::TrustRaises;
use super::{Activator, Config, DiskLimits, LogFormat};

/// A slot holds the binary under the product's name, and this file. All else of ours in it begins with a dot.
pub(super) const RESERVED: &str = "slot.json";

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    data_dir: PathBuf,
    fleet: Digest,
    #[serde(default)]
    documents: Vec<PathBuf>,
    key_file: PathBuf,
    certificate_file: Option<PathBuf>,
    #[serde(default = "listen")]
    listen: Vec<String>,
    #[serde(default)]
    bootstrap: Vec<String>,
    #[serde(default)]
    mdns: bool,
    #[serde(default)]
    lean: bool,
    socket: Option<PathBuf>,
    #[serde(default)]
    log: LogFile,
    #[serde(default)]
    limits: LimitsFile,
    #[serde(default)]
    trust: TrustRaises,
    #[serde(default)]
    supervise: SuperviseFile,
    #[serde(default)]
    product: BTreeMap<Product, ProductFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct LogFile {
    pub(super) format: LogFormat,
    pub(super) filter: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct LimitsFile {
    blobs: Size,
    keep_free: Size,
    slots: Size,
    upload: Size,
    download: Size,
    uploads: usize,
    neighbours: usize,
}

impl Default for LogFile {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "info".to_owned() }
    }
}

impl Default for LimitsFile {
    fn default() -> Self {
        Self {
            blobs: Size(4 << 30),
            keep_free: Size(64 << 20),
            slots: Size(4 << 30),
            upload: Size(0),
            download: Size(0),
            uploads: 8,
            neighbours: BLOB_NEIGHBOURS,
        }
    }
}

fn listen() -> Vec<String> {
    ["/ip4/0.0.0.0/tcp/7490", "/ip4/0.0.0.0/udp/7490/quic-v1"].map(str::to_owned).to_vec()
}

pub(super) fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
    check(path, toml::from_str(text).map_err(|error| ConfigError::from_toml(path, text, &error))?)
}

/// Makes what was typed into what to do.
pub(super) fn check(path: &Path, file: File) -> Result<Config, ConfigError> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    // An absolute path replaces the folder: that is how `join` works.
    let here = |given: PathBuf| folder.join(given);
    let wrong = |key: &str, message: String| ConfigError::Value { path: path.to_owned(), key: key.to_owned(), message };

    if file.product.len() > PRODUCTS {
        return Err(wrong("product", format!("at most {PRODUCTS} products on one node, here are {}", file.product.len())));
    }
    if file.listen.is_empty() {
        return Err(wrong("listen", "at least one address, e.g. \"/ip4/0.0.0.0/tcp/7490\"".to_owned()));
    }
    let limits = &file.limits;
    for (key, value) in [("limits.uploads", limits.uploads), ("limits.neighbours", limits.neighbours)] {
        if !(1..=BLOB_NEIGHBOURS).contains(&value) {
            return Err(wrong(key, format!("1 to {BLOB_NEIGHBOURS} peers, not {value}")));
        }
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
    if let [one, other, ..] = products.iter().filter(|(_, it)| it.activator == Activator::Agent).collect::<Vec<_>>()[..] {
        return Err(wrong("product", format!("`{}` and `{}` cannot both be the agent itself", one.0, other.0)));
    }
    let supervise = file.supervise.check().map_err(|(key, message)| wrong(key, message))?;
    Ok(Config {
        socket: file.socket.map_or_else(|| data_dir.join("agent.sock"), here),
        data_dir,
        fleet: file.fleet,
        documents: file.documents.into_iter().map(here).collect(),
        key_file: here(file.key_file),
        certificate_file: file.certificate_file.map(here),
        listen: file.listen,
        bootstrap: file.bootstrap,
        mdns: file.mdns,
        lean: file.lean,
        log_format: file.log.format,
        log_filter: file.log.filter,
        limits: DiskLimits {
            blob_bytes: file.limits.blobs.0,
            keep_free_bytes: file.limits.keep_free.0,
            slot_bytes: file.limits.slots.0,
        },
        swarm: Terms {
            serves: !file.lean,
            uploads: file.limits.uploads,
            neighbours: file.limits.neighbours,
            rates: Rates::new(Rate::bytes_per_second(file.limits.upload.0), Rate::bytes_per_second(file.limits.download.0)),
        },
        trust: file.trust,
        supervise,
        products,
    })
}

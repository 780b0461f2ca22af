//! What a supervisor takes from the agent's configuration, as leniently as it can be read.
//!
//! A supervisor is older than the agents that it starts, and the file is theirs: a key that it does not know is none of its
//! business, and what it cannot read of its own table has the default. Only the data folder must be named.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use groundswell_core::install::supervision::Terms;
use toml::{Table, Value};

use crate::config::{FILE_BYTES, LogFormat, SuperviseConfig, length_of_time};
use crate::install::durable::read_named_text;

/// What a supervisor needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The configuration file, handed on to the agent.
    pub config: PathBuf,
    /// The agent's data folder.
    pub data: PathBuf,
    /// The product that is the agent itself, where it is one.
    pub product: Option<String>,
    /// The form of log lines.
    pub log_format: LogFormat,
    /// How long things may take.
    pub terms: SuperviseConfig,
}

/// Why the configuration is of no use.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// It cannot be read.
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// It is no TOML.
    #[error("{} is not in TOML", .0.display())]
    Form(PathBuf, #[source] Box<toml::de::Error>),
    /// It names no data folder.
    #[error("{}: `data-dir` is missing", .0.display())]
    NoData(PathBuf),
}

impl Settings {
    /// Reads the file.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub fn load(path: &Path) -> Result<Self, SettingsError> {
        let path = &std::path::absolute(path).map_err(|source| SettingsError::Read(path.to_owned(), source))?;
        let text = read_named_text(path, FILE_BYTES).map_err(|source| SettingsError::Read(path.to_owned(), source))?;
        Self::parse(path, &text)
    }

    /// Reads `text`, the content of the file at `path`.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, SettingsError> {
        let table: Table = text.parse().map_err(|error| SettingsError::Form(path.to_owned(), Box::new(error)))?;
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        let data = table.get("data-dir").and_then(Value::as_str).ok_or_else(|| SettingsError::NoData(path.to_owned()))?;
        let products = table.get("product").and_then(Value::as_table);
        let product = products.into_iter().flatten().find(|(_, product)| {
            let kind = product.get("activator").and_then(|activator| activator.get("type"));
            kind.and_then(Value::as_str) == Some("agent")
        });
        let json = table.get("log").and_then(|log| log.get("format")).and_then(Value::as_str) == Some("json");
        let own = table.get("supervise").and_then(Value::as_table);
        let read = |key: &str, default: Duration| {
            let given = own.and_then(|own| own.get(key)).and_then(Value::as_str);
            given.and_then(length_of_time).unwrap_or(default)
        };
        let default = SuperviseConfig::default();
        let terms = SuperviseConfig {
            ready_within: read("ready-within", default.ready_within),
            silence: read("silence", default.silence),
            stop_timeout: read("stop-timeout", default.stop_timeout),
            backoff: read("backoff", default.backoff),
            backoff_max: read("backoff-max", default.backoff_max),
            stable_after: read("stable-after", default.stable_after),
        };
        Ok(Self {
            config: path.to_owned(),
            data: folder.join(data),
            // A name that leads elsewhere is no product.
            product: product.map(|(name, _)| name.clone()).filter(|name| is_plain(name)),
            log_format: if json { LogFormat::Json } else { LogFormat::Text },
            terms,
        })
    }

    /// The terms, in milliseconds.
    #[must_use]
    pub fn terms(&self) -> Terms {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let terms = &self.terms;
        Terms {
            ready_within_ms: ms(terms.ready_within),
            silence_ms: ms(terms.silence),
            stop_within_ms: ms(terms.stop_timeout),
            backoff_ms: ms(terms.backoff),
            backoff_longest_ms: ms(terms.backoff_max.max(terms.backoff)),
            stable_after_ms: ms(terms.stable_after),
        }
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

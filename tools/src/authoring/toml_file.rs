//! TOML that people write under review: unknown keys are errors with file, line and the nearest known key (case M5).

use std::path::Path;

use groundswell_agent::config::ConfigError;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// Reads the file at `path`.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let text = std::fs::read_to_string(path).map_err(|source| Failure::unreadable(path, source))?;
    parse(path, &text)
}

/// Reads `text`, the content of the file at `path`.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Failure> {
    toml::from_str(text).map_err(|error| Failure::invalid(ConfigError::from_toml(path, text, &error).to_string()))
}

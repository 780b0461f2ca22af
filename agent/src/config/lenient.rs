//! A file that a newer build wrote its keys into, read by an older one that is all there is to go back to.
//!
//! What is not known is passed over and told. An unknown key may be one that holds the node back: so where it stands in a
//! product's table that product is only observed, and in the table `trust` all of them are. So are they for a whole table
//! that is not known: it may be `trust`, or a product's, under a mistyped name.

use std::path::Path;

use serde_path_to_error::{Path as Place, Segment};
use toml::{Table, Value};

use super::Config;
use super::error::{ConfigError, unknown_field};
use super::file::{File, check};

/// No file has more unknown keys that are passed over.
const MOST_UNKNOWN: usize = 64;

/// The configuration, and the keys that were passed over, with their tables: `product.bcd.colour`.
pub(super) fn parse(path: &Path, text: &str) -> Result<(Config, Vec<String>), ConfigError> {
    let mut table: Table = toml::from_str(text).map_err(|error| ConfigError::from_toml(path, text, &error))?;
    let mut unknown = Vec::new();
    let file: File = loop {
        let error = match serde_path_to_error::deserialize(Value::Table(table.clone())) {
            Ok(file) => break file,
            Err(error) => error,
        };
        let key = unknown_field(error.inner().message()).map(|(key, _)| key);
        let removed = key.filter(|_| unknown.len() < MOST_UNKNOWN).and_then(|key| remove(&mut table, error.path(), &key));
        let Some(removed) = removed else {
            // The reader of text names the line.
            return Err(match toml::from_str::<File>(text) {
                Err(told) if unknown.is_empty() => ConfigError::from_toml(path, text, &told),
                _ => ConfigError::Value {
                    path: path.to_owned(),
                    key: error.path().to_string(),
                    message: error.inner().message().to_owned(),
                },
            });
        };
        unknown.push(removed);
    };
    let mut config = check(path, file)?;
    for (names, value) in &unknown {
        hold_back(&mut config, names, value);
    }
    Ok((config, unknown.into_iter().map(|(names, _)| names.join(".")).collect()))
}

/// Only looks at what an unknown key could have restrained.
fn hold_back(config: &mut Config, names: &[String], value: &Value) {
    let is_table = value.is_table() || value.as_array().is_some_and(|array| array.iter().any(Value::is_table));
    match names {
        [_] if is_table => config.only_observe(),
        [table, _, ..] if table == "trust" => config.only_observe(),
        [table, name, _, ..] if table == "product" => {
            let named = config.products.iter_mut().filter(|(product, _)| product.as_str() == name);
            named.for_each(|(_, product)| product.observe_only = true);
        }
        _ => {}
    }
}

/// Takes `key` out of the table at `place`, or of one below it, where the reader lost its way; its names, and what it had.
pub(super) fn remove(table: &mut Table, place: &Place, key: &str) -> Option<(Vec<String>, Value)> {
    let mut at = table;
    let mut names: Vec<String> = Vec::new();
    let mut segments = place.iter().peekable();
    while let Some(Segment::Map { key: name }) = segments.next() {
        // The last one may be the key itself.
        let is_key = segments.peek().is_none() && name == key;
        if is_key || !at.get(name).is_some_and(Value::is_table) {
            break;
        }
        at = at.get_mut(name)?.as_table_mut()?;
        names.push(name.clone());
    }
    let (below, value) = remove_below(at, key)?;
    names.extend(below);
    Some((names, value))
}

fn remove_below(table: &mut Table, key: &str) -> Option<(Vec<String>, Value)> {
    if let Some(value) = table.remove(key) {
        return Some((vec![key.to_owned()], value));
    }
    table.iter_mut().find_map(|(name, value)| {
        let (mut below, value) = remove_below(value.as_table_mut()?, key)?;
        below.insert(0, name.clone());
        Some((below, value))
    })
}

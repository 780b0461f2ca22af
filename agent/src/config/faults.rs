//! All that is wrong with a file, for whoever mends it: a reader stops at the first thing.
//!
//! Each table of the file is read by itself, beside the few keys that every file has; what is wrong in it is told, taken out,
//! and the rest read again.

use std::path::Path;

use groundswell_core::digest::Digest;
use serde_path_to_error::{Path as Place, Segment};
use toml::{Table, Value};

use super::error::{ConfigError, unknown_field};
use super::file::{File, check};
use super::lenient::remove;

/// No more is told of one table.
const MOST_OF_A_TABLE: usize = 16;
/// Keys without which there is no configuration.
const REQUIRED: [&str; 3] = ["data-dir", "fleet", "key-file"];

/// What is wrong with a file.
#[derive(Debug, Default)]
pub struct Faults {
    /// What no build accepts, or this one does not.
    pub wrong: Vec<ConfigError>,
    /// Keys that this build does not know, with their tables: `product.bcd.colour`.
    pub unknown: Vec<String>,
}

/// A reader's complaint.
struct Complaint {
    error: ConfigError,
    is_missing: bool,
}

pub(super) fn faults(path: &Path, text: &str) -> Faults {
    let table: Table = match toml::from_str(text) {
        Ok(table) => table,
        Err(error) => return Faults { wrong: vec![ConfigError::from_toml(path, text, &error)], unknown: Vec::new() },
    };
    let mut faults = Faults::default();
    for key in REQUIRED {
        if !table.contains_key(key) {
            let (path, key, message) = (path.to_owned(), key.to_owned(), "it is missing".to_owned());
            faults.wrong.push(ConfigError::Value { path, key, message });
        }
    }
    for part in parts(&table) {
        faults.of_a_part(path, part);
    }
    // What is right by itself may contradict something else.
    if faults.wrong.is_empty()
        && let Err(error) = super::lenient::parse(path, text)
    {
        faults.wrong.push(error);
    }
    faults
}

/// The file, cut up: each product, and each other key of the top level.
fn parts(table: &Table) -> Vec<Table> {
    let one = |key: &str, value: &Value| Table::from_iter([(key.to_owned(), value.clone())]);
    let mut parts = Vec::new();
    for (key, value) in table {
        match value.as_table().filter(|_| key == "product") {
            Some(products) => parts.extend(products.iter().map(|(name, product)| one(key, &Value::Table(one(name, product))))),
            None => parts.push(one(key, value)),
        }
    }
    parts
}

impl Faults {
    fn of_a_part(&mut self, path: &Path, mut part: Table) {
        let mut took_out = false;
        for _ in 0..MOST_OF_A_TABLE {
            let Err((complaint, removed)) = read(path, &mut part) else { return };
            match complaint {
                None => self.unknown.extend(removed.clone()),
                // It was there.
                Some(Complaint { is_missing: true, .. }) if took_out => return,
                Some(Complaint { error, .. }) => {
                    self.wrong.push(error);
                    took_out = true;
                }
            }
            if removed.is_none() {
                return;
            }
        }
    }
}

/// Reads a part as a file. Where that fails: why, unless it is an unknown key, and what was taken out of the part for it.
fn read(path: &Path, part: &mut Table) -> Result<(), (Option<Complaint>, Option<String>)> {
    let mut whole = part.clone();
    for (key, value) in [("data-dir", "data"), ("fleet", &Digest([0; 32]).to_string()), ("key-file", "key")] {
        whole.entry(key).or_insert_with(|| Value::String(value.to_owned()));
    }
    let file: File = match serde_path_to_error::deserialize(Value::Table(whole)) {
        Ok(file) => file,
        Err(error) => {
            let message = error.inner().message().to_owned();
            if let Some((key, _)) = unknown_field(&message)
                && let Some((names, _)) = remove(part, error.path(), &key)
            {
                return Err((None, Some(names.join("."))));
            }
            let is_missing = message.starts_with("missing field");
            let names: Vec<&str> = error.path().iter().filter_map(name).collect();
            let removed = Some(names).filter(|names| !is_missing && names.len() == error.path().iter().count());
            let removed = removed.and_then(|names| take_out(part, &names));
            let complaint = ConfigError::Value { path: path.to_owned(), key: told(error.path()), message };
            return Err((Some(Complaint { error: complaint, is_missing }), removed));
        }
    };
    let Err(error) = check(path, file) else { return Ok(()) };
    let key = match &error {
        ConfigError::Value { key, .. } => key.clone(),
        _ => String::new(),
    };
    let removed = take_out(part, &key.split('.').collect::<Vec<_>>());
    Err((Some(Complaint { error, is_missing: false }), removed))
}

fn name(segment: &Segment) -> Option<&str> {
    match segment {
        Segment::Map { key } => Some(key),
        _ => None,
    }
}

fn told(place: &Place) -> String {
    let told = place.to_string();
    if told == "." { "the file".to_owned() } else { told }
}

/// Takes out what has this name; `None` when there is no such thing.
fn take_out(table: &mut Table, names: &[&str]) -> Option<String> {
    let (last, way) = names.split_last()?;
    let mut at = table;
    for name in way {
        at = at.get_mut(*name)?.as_table_mut()?;
    }
    at.remove(*last).map(|_| names.join("."))
}

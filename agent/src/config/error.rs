//! What is wrong with a configuration file, and how an unknown key is told (case M5).
//!
//! The texts name the file, the line and the key, and the way out where there is one.

use std::path::{Path, PathBuf};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: create it from the output of `swell agent --print-config`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The helper's file cannot be read.
    #[error("cannot read the configuration {}: create it from the output of `swell helper --print-config`", path.display())]
    ReadHelper {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A key that no part of the agent knows.
    #[error("{}:{line}: unknown key `{key}`{}", path.display(), hint(nearest.as_deref()))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key as it stands there.
        key: String,
        /// The known key that is spelt most alike.
        nearest: Option<String>,
    },
    /// Not TOML, a missing key, or a value of the wrong form.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A value that breaks a rule, or keys that contradict each other.
    #[error("{}: {key}: {message}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key, with its tables: `product.bcd.health.url`.
        key: String,
        /// What is wrong and what would be right.
        message: String,
    },
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"))
}

impl ConfigError {
    /// The error of the TOML reader on `text`, the content of `path`, in the words of this module. The tools tell theirs so too.
    pub fn from_toml(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let start = error.span().map_or(0, |span| span.start);
        let before = text.get(..start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let path = path.to_owned();
        let message = error.message();
        match unknown_field(message) {
            Some((key, known)) => {
                let nearest = nearest(&key, &known);
                Self::UnknownKey { path, line, key, nearest }
            }
            None => Self::Syntax { path, line, message: message.to_owned() },
        }
    }
}

/// Takes serde's own sentence apart: "unknown field `a`, expected one of `b`, `c`".
pub(super) fn unknown_field(message: &str) -> Option<(String, Vec<String>)> {
    let rest = message.strip_prefix("unknown field `")?;
    let (key, rest) = rest.split_once('`')?;
    let known = rest.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    Some((key.to_owned(), known))
}

/// The known key that is spelt most alike, however far off: a list of one is a better hint than none.
fn nearest(key: &str, known: &[String]) -> Option<String> {
    known.iter().min_by_key(|candidate| strsim::damerau_levenshtein(key, candidate)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serde_s_sentence_is_taken_apart() {
        let (key, known) = unknown_field("unknown field `mdsn`, expected one of `mdns`, `listen`").unwrap();
        assert_eq!((key.as_str(), known.len()), ("mdsn", 2));
        assert_eq!(nearest(&key, &known).as_deref(), Some("mdns"));
        assert!(unknown_field("missing field `fleet`").is_none());
    }
}

//! How a command can fail: four kinds, told apart by what the caller can do, each with its exit code.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use groundswell_core::documents::rejection::Rejection;

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Exit 1: the input is fine, the world is not (a full disk, a missing right). Try again when that is mended.
    #[error("{what}")]
    Failed {
        /// What was attempted, on which object, and the way out.
        what: String,
        /// Why it did not work.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// Exit 2: the input is at fault; nothing was written.
    #[error("{what}")]
    Invalid {
        /// File, field and way out.
        what: String,
        /// The reader's own words.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// Exit 3: the agent or a peer cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// Exit 4: refused by trust, with the reason code.
    #[error("{what} is refused")]
    Refused {
        /// The file or document.
        what: String,
        /// Code, field and detail.
        #[source]
        rejection: Rejection,
    },
}

impl Failure {
    /// Exit 1.
    pub(crate) fn failed(what: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Failed { what: what.into(), source: Some(source.into()) }
    }

    /// Exit 2.
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), source: None }
    }

    /// Exit 2, with what the reader of the input said.
    pub(crate) fn invalid_by(what: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Invalid { what: what.into(), source: Some(source.into()) }
    }

    /// Exit 2: a structural rule is broken by what is about to be signed.
    pub(crate) fn not_signable(what: impl Into<String>, rejection: Rejection) -> Self {
        Self::invalid_by(format!("{}: nothing was signed", what.into()), rejection)
    }

    /// Exit 4.
    pub(crate) fn refused(path: &Path, rejection: Rejection) -> Self {
        Self::Refused { what: path.display().to_string(), rejection }
    }

    /// Exit 2: a file that was named cannot be read.
    pub(crate) fn unreadable(path: &Path, source: std::io::Error) -> Self {
        Self::invalid_by(format!("cannot read {}", path.display()), source)
    }

    /// Exit 1: a file cannot be written.
    pub(crate) fn unwritable(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::failed(format!("cannot write {}", path.into().display()), source)
    }

    /// The process's exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Failed { .. } => 1,
            Self::Invalid { .. } => 2,
            Self::Unreachable(_) => 3,
            Self::Refused { .. } => 4,
        })
    }
}

/// The error and what caused it, on one line.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

//! Why the harness could not do what was asked.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// An error of the harness; it names the node, file or command.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The operating system refused.
    #[error("{what}")]
    Io {
        /// What was attempted, on which object.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// `swell` did not succeed.
    #[error("`swell {arguments}` ended with {code:?}: {stderr}")]
    Swell {
        /// Its arguments.
        arguments: String,
        /// Its exit code; none when a signal ended it.
        code: Option<i32>,
        /// What it said.
        stderr: String,
    },
    /// `swell` printed something else than the JSON expected.
    #[error("`swell {arguments}` printed what is not understood: {detail}")]
    Answer {
        /// Its arguments.
        arguments: String,
        /// What is wrong, and what it printed.
        detail: String,
    },
    /// The `swell` binary is not there.
    #[error("the swell binary is not at {}: run `cargo build --release -p swell`, or set SWELL", .0.display())]
    NoSwell(PathBuf),
    /// An agent does not answer.
    #[error("{node} does not answer on its socket: {detail}")]
    Silent {
        /// The node.
        node: String,
        /// Why.
        detail: String,
    },
    /// An agent has ended by itself.
    #[error("the agent of {node} ended by itself ({status}); its last lines:\n{log}")]
    Ended {
        /// The node.
        node: String,
        /// Its exit status.
        status: String,
        /// The end of its log.
        log: String,
    },
    /// There is no such node.
    #[error("there is no node {0} in this fleet")]
    NoNode(String),
    /// Something did not come about in time.
    #[error("not within {within:?}: {what}; last seen: {seen}")]
    Late {
        /// What was waited for.
        what: String,
        /// How long.
        within: Duration,
        /// What was seen last.
        seen: String,
    },
    /// No free ports.
    #[error("no {0} free ports between 20000 and 32000 on 127.0.0.1")]
    NoPorts(usize),
}

impl FleetError {
    /// An error of the operating system.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

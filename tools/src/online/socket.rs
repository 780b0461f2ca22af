//! The local agent, reached by its socket.

use std::path::PathBuf;

use clap::Args;
use groundswell_agent::api::client::{Client, ClientError};
use serde::de::DeserializeOwned;

use super::{block_on, rejection};
use crate::failure::{Failure, with_causes};

/// Where packages put the socket.
const DEFAULT: &str = "/run/groundswell/agent.sock";

/// Arguments of every command that asks the local agent.
#[derive(Clone, Debug, Args)]
pub(crate) struct SocketArgs {
    /// The agent's socket. Default: $SWELL_SOCKET, else /run/groundswell/agent.sock.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

impl SocketArgs {
    /// A client of that agent.
    pub(crate) fn client(&self) -> Client {
        let given = self.socket.clone().or_else(|| std::env::var_os("SWELL_SOCKET").map(PathBuf::from));
        Client::new(&given.unwrap_or_else(|| PathBuf::from(DEFAULT)))
    }

    /// Reads one view.
    pub(crate) fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        block_on(async { self.client().get(path).await.map_err(|error| failure("the request", error)) })
    }
}

/// The exit code of what a client says about `what`.
pub(crate) fn failure(what: &str, error: ClientError) -> Failure {
    match error {
        ClientError::Unreachable { .. } => Failure::Unreachable(with_causes(&error)),
        ClientError::Refused { ref body, .. } => match rejection(&body.reason, &body.field, &body.detail) {
            Some(rejection) => Failure::Refused { what: what.to_owned(), rejection },
            None if matches!(body.reason.as_str(), "bad-request" | "not-found") => Failure::invalid_by(what, error),
            None => Failure::failed(what, error),
        },
        ClientError::Answer(_) => Failure::failed(what, error),
        ClientError::File { ref path, .. } => Failure::invalid_by(format!("cannot read {}", path.display()), error),
    }
}

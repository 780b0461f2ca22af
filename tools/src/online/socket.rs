//! The local agent, reached by its socket.

use std::path::PathBuf;

use clap::Args;
use groundswell_agent::api::client::{Client, ClientError};
use serde::de::DeserializeOwned;
use tokio::time::{Duration, Instant, sleep};

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

/// How soon an agent that does not answer is asked again.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Asks an agent that may be replaced meanwhile: once it has answered, it is waited for when it does not.
pub(crate) struct Patient {
    client: Client,
    deadline: Instant,
    has_answered: bool,
}

impl Patient {
    /// Waits until then, in all.
    pub(crate) fn until(client: Client, deadline: Instant) -> Self {
        Self { client, deadline, has_answered: false }
    }

    /// Asks until there is an answer; with each but the first time, `waits` is told.
    pub(crate) async fn ask<T>(
        &mut self,
        mut waits: impl FnMut(),
        ask: impl AsyncFn(&Client) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        loop {
            match ask(&self.client).await {
                Err(ClientError::Unreachable { .. }) if self.has_answered && Instant::now() < self.deadline => {
                    waits();
                    sleep(ASK_EVERY).await;
                }
                unreachable @ Err(ClientError::Unreachable { .. }) => return unreachable,
                answer => {
                    self.has_answered = true;
                    return answer;
                }
            }
        }
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

//! The other side of the local API, for the tools: one connection per call, over the unix socket.
//!
//! Errors say whether the agent could not be reached, refused by trust, or failed: the tools' exit codes hang on it.

use std::path::{Path, PathBuf};

use futures::StreamExt as _;
use futures::future::{Fuse, FutureExt as _};
use groundswell_core::digest::Digest;
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio::net::UnixStream;

use super::failure::FailureBody;
pub use super::writes::{BlobHere, PublishOutcome, Published};
use crate::events::Entry;

/// Longest answer that is read, in bytes: the rollouts of 10,000 nodes, several times over.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// Longest line of the event stream, in bytes: an event's texts are bounded by the core.
const LINE_BYTES: usize = 64 * 1024;
/// Bytes of a file read at once.
const READ_BYTES: usize = 256 * 1024;

/// A client of one agent.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers there, or the connection broke.
    #[error("cannot reach an agent at {}: start it, or name its socket by --socket", .socket.display())]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The agent refused: see the reason code.
    #[error("{}: {}: {}", .body.reason, .body.field, .body.detail)]
    Refused {
        /// HTTP status.
        status: StatusCode,
        /// What it said.
        body: FailureBody,
    },
    /// The answer is not one of this API.
    #[error("the agent's answer is not understood ({0}): is it of the same version?")]
    Answer(String),
    /// A file cannot be read.
    #[error("cannot read {}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

type Outgoing = Either<Full<Bytes>, StreamBody<futures::stream::BoxStream<'static, std::io::Result<Frame<Bytes>>>>>;

impl Client {
    /// A client of the agent whose socket is at `socket`. Connects with each call.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_path_buf() }
    }

    /// Reads what is at `path`, such as `/v1/status`, as `T`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let bytes = self.get_bytes(path).await?;
        serde_json::from_slice(&bytes).map_err(|error| ClientError::Answer(error.to_string()))
    }

    /// Reads what is at `path` as it is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get_bytes(&self, path: &str) -> Result<Vec<u8>, ClientError> {
        let (_, bytes) = self.call(request(Method::GET, path, None, Either::Left(Full::default()))?).await?;
        Ok(bytes)
    }

    /// Hands in a published document.
    ///
    /// # Errors
    /// [`ClientError`]; a document refused by trust is `Refused` with its reason code.
    pub async fn publish(&self, document: Vec<u8>) -> Result<Published, ClientError> {
        let (_, bytes) =
            self.call(request(Method::POST, "/v1/documents", None, Either::Left(Full::new(document.into())))?).await?;
        serde_json::from_slice(&bytes).map_err(|error| ClientError::Answer(error.to_string()))
    }

    /// Hands in the file at `path` as the blob `sha256`; the agent checks that it is. Bytes that it has are not sent again.
    /// Returns how many were: `None` when it had it whole.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn put_blob(&self, sha256: Digest, path: &Path) -> Result<Option<u64>, ClientError> {
        let failed = |source| ClientError::File { path: path.to_path_buf(), source };
        let mut file = tokio::fs::File::open(path).await.map_err(failed)?;
        let size = file.metadata().await.map_err(failed)?.len();
        let place = format!("/v1/blobs/{}", sha256.hex());
        let here: BlobHere = self.get(&place).await?;
        if here.whole {
            return Ok(None);
        }
        let offset = Some(here.put_bytes).filter(|offset| *offset < size).unwrap_or(0);
        file.seek(std::io::SeekFrom::Start(offset)).await.map_err(failed)?;
        let chunks = futures::stream::unfold(Some(file), async |file| {
            let mut file = file?;
            let mut chunk = vec![0; READ_BYTES];
            match file.read(&mut chunk).await {
                Ok(0) => None,
                Ok(read) => {
                    chunk.truncate(read);
                    Some((Ok(Frame::data(Bytes::from(chunk))), Some(file)))
                }
                Err(error) => Some((Err(error), None)),
            }
        });
        let body = Either::Right(StreamBody::new(chunks.boxed()));
        let length = size - offset;
        let mut request = request(Method::PUT, &place, Some(length), body)?;
        if offset > 0 {
            let range = format!("bytes {offset}-{}/{size}", size - 1);
            let range = range.parse().map_err(|_| ClientError::Answer("a range that is no header".to_owned()))?;
            request.headers_mut().insert(header::CONTENT_RANGE, range);
        }
        let (status, _) = self.call(request).await?;
        Ok((status == StatusCode::CREATED).then_some(length))
    }

    /// Follows events after number `after` until `seen` says stop (returns false), or the agent ends.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn follow(&self, after: u64, mut seen: impl FnMut(Entry) -> bool) -> Result<(), ClientError> {
        let path = format!("/v1/events?follow=true&after={after}");
        let mut connection = self.connect().await?;
        let response = connection.send(request(Method::GET, &path, None, Either::Left(Full::default()))?).await?;
        let mut response = self.checked(response).await?;
        let mut pending = Vec::new();
        loop {
            let frame = tokio::select! {
                frame = response.frame() => frame,
                ended = &mut connection.driver => {
                    ended.map_err(|error| self.unreachable(error))?;
                    continue;
                }
            };
            let Some(frame) = frame else { return Ok(()) };
            let Ok(data) = frame.map_err(|error| self.unreachable(error))?.into_data() else { continue };
            pending.extend_from_slice(&data);
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                let Some(data) = line.strip_prefix(b"data: ").or_else(|| line.strip_prefix(b"data:")) else { continue };
                // A gap is told as a bare number, which is no entry.
                let Ok(entry) = serde_json::from_slice::<Entry>(data) else { continue };
                if !seen(entry) {
                    return Ok(());
                }
            }
            if pending.len() > LINE_BYTES {
                return Err(ClientError::Answer("an event that is too long".to_owned()));
            }
        }
    }

    async fn call(&self, request: Request<Outgoing>) -> Result<(StatusCode, Vec<u8>), ClientError> {
        let mut connection = self.connect().await?;
        let response = connection.send(request).await?;
        let response = connection.drive(self.checked(response)).await?;
        let status = response.status();
        let bytes = connection.drive(self.read(response)).await?;
        Ok((status, bytes))
    }

    async fn checked(&self, response: Response<Incoming>) -> Result<Response<Incoming>, ClientError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let bytes = self.read(response).await?;
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| FailureBody {
            reason: status.as_u16().to_string(),
            field: "answer".to_owned(),
            detail: String::from_utf8_lossy(&bytes).chars().take(200).collect(),
        });
        Err(ClientError::Refused { status, body })
    }

    async fn read(&self, response: Response<Incoming>) -> Result<Vec<u8>, ClientError> {
        let body = http_body_util::Limited::new(response.into_body(), ANSWER_BYTES);
        let collected =
            body.collect().await.map_err(|source| ClientError::Unreachable { socket: self.socket.clone(), source })?;
        Ok(collected.to_bytes().into())
    }

    async fn connect(&self) -> Result<Connection<'_>, ClientError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| self.unreachable(error))?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.unreachable(error))?;
        Ok(Connection { client: self, sender, driver: driver.fuse() })
    }

    fn unreachable(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
        ClientError::Unreachable { socket: self.socket.clone(), source: error.into() }
    }
}

/// One connection. Its driver is polled beside whatever is waited for, so that no task of its own is needed.
struct Connection<'a> {
    client: &'a Client,
    sender: http1::SendRequest<Outgoing>,
    driver: Fuse<http1::Connection<TokioIo<UnixStream>, Outgoing>>,
}

impl Connection<'_> {
    async fn send(&mut self, request: Request<Outgoing>) -> Result<Response<Incoming>, ClientError> {
        let answer = self.sender.send_request(request);
        tokio::pin!(answer);
        let outcome = tokio::select! {
            response = &mut answer => response,
            ended = &mut self.driver => match ended {
                // The answer may stand in the buffer already.
                Ok(()) => answer.await,
                Err(error) => Err(error),
            },
        };
        outcome.map_err(|error| self.client.unreachable(error))
    }

    async fn drive<T>(&mut self, work: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
        tokio::pin!(work);
        tokio::select! {
            outcome = &mut work => outcome,
            ended = &mut self.driver => match ended {
                Ok(()) => work.await,
                Err(error) => Err(self.client.unreachable(error)),
            },
        }
    }
}

fn request(method: Method, path: &str, length: Option<u64>, body: Outgoing) -> Result<Request<Outgoing>, ClientError> {
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
    if let Some(length) = length {
        request = request.header(header::CONTENT_LENGTH, length);
    }
    request.body(body).map_err(|error| ClientError::Answer(error.to_string()))
}

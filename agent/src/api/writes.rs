//! What can be handed in: a published document, or a blob under its sha256. Contents only, never paths, URLs or commands.

use axum::Json;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use futures::StreamExt as _;
use groundswell_core::digest::Digest;
use groundswell_core::node::effect::Accepted;
use groundswell_net::blobs::limits::PUBLISHED_ROSTER_BYTES;
use serde::{Deserialize, Serialize};

use super::Surface;
use super::failure::Failure;
use super::routes::digest;
use crate::blobs::{DownloadError, Put, PutError};
use crate::effects::blocking;

/// What became of a document that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// New here, or known already.
    pub outcome: PublishOutcome,
    /// The document's body digest.
    pub digest: Digest,
}

/// Whether a document was new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PublishOutcome {
    /// It was new here.
    Accepted,
    /// It was here already; signatures may have been added.
    Known,
}

/// The largest document is a roster in its published form.
pub(super) fn document_limit() -> DefaultBodyLimit {
    DefaultBodyLimit::max(PUBLISHED_ROSTER_BYTES)
}

/// A blob is streamed to disk and bounded by its announced length there.
pub(super) fn blob_limit() -> DefaultBodyLimit {
    DefaultBodyLimit::disable()
}

/// 201 when it is new, 200 when it was known; answered once it is durable.
pub(super) async fn publish(State(surface): State<Surface>, body: Bytes) -> Result<(StatusCode, Json<Published>), Failure> {
    Ok(match surface.handle.publish(body.into()).await? {
        Accepted::New(digest) => (StatusCode::CREATED, Json(Published { outcome: PublishOutcome::Accepted, digest })),
        Accepted::Known(digest) => (StatusCode::OK, Json(Published { outcome: PublishOutcome::Known, digest })),
    })
}

/// Takes a blob of exactly `Content-Length` bytes whose sha256 is the one in the path; with `Content-Range: bytes 700-999/1000`
/// the rest of one of which the first 700 bytes came before. 201 once it is durable, 200 when it was here. What came stays
/// when the rest does not; nothing of a blob stays that turns out to be another one.
pub(super) async fn put_blob(
    State(surface): State<Surface>,
    Path(hex): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Failure> {
    let sha256 = digest(&hex)?;
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let length = length.ok_or_else(|| Failure::bad_request("content-length", "say how many bytes the blob has"))?;
    let offset = match headers.get(header::CONTENT_RANGE) {
        Some(range) => range_start(range.to_str().unwrap_or_default(), length)?,
        None => 0,
    };
    let mut body = body.into_data_stream();
    let outcome = take_blob(&surface, sha256, offset, length, &mut body).await;
    // A sender that is still sending would see a broken connection instead of the answer: hear it out.
    while let Some(Ok(_)) = body.next().await {}
    outcome
}

/// Where the rest of `length` bytes begins.
fn range_start(range: &str, length: u64) -> Result<u64, Failure> {
    let wrong = || {
        let detail = format!(
            "`{range}` is not the rest of a blob: write `bytes FIRST-LAST/SIZE` where SIZE is LAST + 1, and send just these"
        );
        Failure::bad_request("content-range", detail)
    };
    let numbers = range.strip_prefix("bytes ").and_then(|range| range.split_once('/')).ok_or_else(wrong)?;
    let (first, last) = numbers.0.split_once('-').ok_or_else(wrong)?;
    let number =
        |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit())).ok_or_else(wrong);
    let (first, last, size) = (number(first)?, number(last)?, number(numbers.1)?);
    let adds_up = first.checked_add(length) == Some(size) && last.checked_add(1) == Some(size);
    if adds_up && length > 0 { Ok(first) } else { Err(wrong()) }
}

/// What is here of a blob, for whoever is about to put it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlobHere {
    /// Whether it is here whole.
    pub whole: bool,
    /// Bytes that an interrupted `PUT` has left here: the next may go on behind them.
    pub put_bytes: u64,
}

pub(super) async fn blob_here(State(surface): State<Surface>, Path(hex): Path<String>) -> Result<Json<BlobHere>, Failure> {
    let (sha256, blobs) = (digest(&hex)?, surface.blobs.clone());
    Ok(Json(blocking(move || BlobHere { whole: blobs.holds(&sha256), put_bytes: blobs.put_bytes_here(&sha256) }).await))
}

async fn take_blob(
    surface: &Surface,
    sha256: Digest,
    offset: u64,
    length: u64,
    body: &mut BodyDataStream,
) -> Result<StatusCode, Failure> {
    if surface.blobs.holds(&sha256) {
        return Ok(StatusCode::OK);
    }
    let blobs = surface.blobs.clone();
    let mut put: Put =
        blocking(move || blobs.put_from(sha256, offset.saturating_add(length), offset)).await.map_err(put_failure)?;
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|error| Failure::bad_request("body", format!("the blob did not arrive whole: {error}")))?;
        put = blocking(move || put.write(&chunk).map(|()| put)).await.map_err(put_failure)?;
    }
    blocking(move || put.commit()).await.map_err(put_failure)?;
    Ok(StatusCode::CREATED)
}

fn put_failure(error: PutError) -> Failure {
    let (status, reason) = match &error {
        PutError::Size(..) | PutError::Length { .. } => (StatusCode::BAD_REQUEST, "bad-request"),
        PutError::Digest { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "digest"),
        PutError::Offset { .. } => (StatusCode::RANGE_NOT_SATISFIABLE, "range"),
        PutError::Underway(_) => (StatusCode::CONFLICT, "busy"),
        PutError::Room(DownloadError::DiskFull { .. } | DownloadError::Quota { .. } | DownloadError::TooMany) => {
            (StatusCode::INSUFFICIENT_STORAGE, "disk-full")
        }
        PutError::Room(_) | PutError::Io(..) => (StatusCode::INTERNAL_SERVER_ERROR, "fault"),
    };
    let mut detail = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        detail.push_str(": ");
        detail.push_str(&cause.to_string());
        source = cause.source();
    }
    Failure::new(status, reason, "blob", detail)
}

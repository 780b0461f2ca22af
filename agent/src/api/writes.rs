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

/// Takes a blob of exactly `Content-Length` bytes whose sha256 is the one in the path. 201 once it is durable, 200 when
/// it was here. Nothing of a blob stays that does not arrive whole or is another one.
pub(super) async fn put_blob(
    State(surface): State<Surface>,
    Path(hex): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Failure> {
    let sha256 = digest(&hex)?;
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let length = length.ok_or_else(|| Failure::bad_request("content-length", "say how many bytes the blob has"))?;
    let mut body = body.into_data_stream();
    let outcome = take_blob(&surface, sha256, length, &mut body).await;
    // A sender that is still sending would see a broken connection instead of the answer: hear it out.
    while let Some(Ok(_)) = body.next().await {}
    outcome
}

async fn take_blob(surface: &Surface, sha256: Digest, length: u64, body: &mut BodyDataStream) -> Result<StatusCode, Failure> {
    if surface.blobs.holds(&sha256) {
        return Ok(StatusCode::OK);
    }
    let blobs = surface.blobs.clone();
    let mut put: Put = blocking(move || blobs.put(sha256, length)).await.map_err(put_failure)?;
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

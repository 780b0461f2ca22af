//! What can be read: the core's views as they are.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{Uri, header};
use axum::response::IntoResponse;
use groundswell_core::digest::{Digest, Hex32};
use groundswell_core::node::view::{Explanation, LeaseView, PeerView, RolloutView, RosterView};
use groundswell_core::text::Product;
use serde::Deserialize;

use super::Surface;
use super::failure::Failure;
use crate::handle::{BlobView, DocumentView, StatusView};

type Answer<T> = Result<Json<T>, Failure>;

pub(super) async fn status(State(surface): State<Surface>) -> Answer<StatusView> {
    Ok(Json(surface.handle.status().await?))
}

pub(super) async fn rollouts(State(surface): State<Surface>) -> Answer<Vec<RolloutView>> {
    Ok(Json(surface.handle.rollouts().await?))
}

pub(super) async fn leases(State(surface): State<Surface>) -> Answer<Vec<LeaseView>> {
    Ok(Json(surface.handle.leases().await?))
}

/// `null` before any roster is here.
pub(super) async fn roster(State(surface): State<Surface>) -> Answer<Option<RosterView>> {
    Ok(Json(surface.handle.roster().await?))
}

pub(super) async fn peers(State(surface): State<Surface>) -> Answer<Vec<PeerView>> {
    Ok(Json(surface.handle.peers().await?))
}

pub(super) async fn blobs(State(surface): State<Surface>) -> Answer<Vec<BlobView>> {
    Ok(Json(surface.handle.blobs().await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExplainQuery {
    product: Option<String>,
}

/// One explanation per product; of one product only with `?product=`.
pub(super) async fn explain(State(surface): State<Surface>, Query(query): Query<ExplainQuery>) -> Answer<Vec<Explanation>> {
    let product =
        query.product.map(Product::new).transpose().map_err(|error| Failure::bad_request("product", error.to_string()))?;
    let explanations = surface.handle.explain(product.clone()).await?;
    match product {
        Some(product) if explanations.is_empty() => {
            Err(Failure::not_found("product", format!("{product} is not configured on this node")))
        }
        _ => Ok(Json(explanations)),
    }
}

pub(super) async fn documents(State(surface): State<Surface>) -> Answer<Vec<DocumentView>> {
    Ok(Json(surface.handle.documents().await?))
}

/// The published form, as it was signed.
pub(super) async fn document(State(surface): State<Surface>, Path(hex): Path<String>) -> Result<impl IntoResponse, Failure> {
    let digest = digest(&hex)?;
    let bytes = surface.handle.document(digest).await?;
    let bytes = bytes.ok_or_else(|| Failure::not_found("digest", format!("no document {digest} is known here")))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], bytes))
}

pub(super) async fn nothing_here(uri: Uri) -> Failure {
    Failure::not_found("path", format!("nothing is served at {}", uri.path()))
}

/// The digest of a path: 64 lower-case hex digits.
pub(super) fn digest(hex: &str) -> Result<Digest, Failure> {
    hex.parse::<Hex32>().map(Digest::from).map_err(|error| Failure::bad_request("digest", error.to_string()))
}

//! The local API: HTTP over a unix socket, for `swell`, for scripts (`curl --unix-socket`), for the console.
//!
//! Reads show the core's views as JSON ([`routes`]), and numbers for Prometheus ([`metrics`]); writes take contents, never paths, URLs or commands ([`writes`]);
//! changes are Server-Sent Events ([`stream`]). [`socket`] is the file, [`caller`] one connection, [`client`] the other side.
//! Whoever may open the socket may use it: its mode is 0660, so its group decides.

mod caller;
pub mod client;
pub mod failure;
mod metrics;
mod routes;
mod socket;
mod stream;
mod writes;

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post, put};
use tokio::sync::{Semaphore, watch};

use self::caller::Callers;
use crate::blobs::BlobStore;
use crate::handle::Handle;

pub(crate) use socket::SocketFile;
pub use socket::{Socket, SocketError};

/// Followers of events at once; more are told to come again. Each holds one connection for as long as it likes.
const FOLLOWERS: usize = 32;

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Surface {
    handle: Handle,
    blobs: BlobStore,
    followers: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
}

/// Binds the socket at `path`.
///
/// # Errors
/// When an agent answers there already, or the file system refuses.
pub fn bind(path: &Path) -> Result<Socket, SocketError> {
    Socket::bind(path, None)
}

/// Serves the API until `stop` turns true, then ends open streams, lets requests under way finish, and removes the
/// socket. Cancel-safe: dropping it ends the listener; the socket is removed with it.
pub async fn serve(socket: Socket, handle: Handle, blobs: BlobStore, mut stop: watch::Receiver<bool>) {
    let surface = Surface { handle, blobs, followers: Arc::new(Semaphore::new(FOLLOWERS)), stop: stop.clone() };
    let (listener, _file) = socket.into_parts();
    let stopped = async move {
        // An error means that the owner is gone: the same as a stop.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    if let Err(error) = axum::serve(Callers::new(listener), router(surface)).with_graceful_shutdown(stopped).await {
        tracing::error!("the local API ended: {error}");
    }
}

fn router(surface: Surface) -> Router {
    Router::new()
        .route("/v1/status", get(routes::status))
        .route("/v1/rollouts", get(routes::rollouts))
        .route("/v1/leases", get(routes::leases))
        .route("/v1/roster", get(routes::roster))
        .route("/v1/peers", get(routes::peers))
        .route("/v1/explain", get(routes::explain))
        .route("/v1/events", get(stream::events))
        .route("/v1/documents", get(routes::documents))
        .route("/v1/documents", post(writes::publish).layer(writes::document_limit()))
        .route("/v1/documents/{digest}", get(routes::document))
        .route("/v1/documents/sha256/{digest}", get(routes::document))
        .route("/v1/metrics", get(metrics::metrics))
        .route("/v1/blobs", get(routes::blobs))
        .route("/v1/blobs/{sha256}", get(writes::blob_here))
        .route("/v1/blobs/{sha256}", put(writes::put_blob).layer(writes::blob_limit()))
        .fallback(routes::nothing_here)
        .with_state(surface)
}

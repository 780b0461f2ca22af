//! Blobs and rosters through outer doors by the ordinary download: a stream to a keeper looks like one to a member.
//!
//! So pieces are verified, kept, resumed and charged exactly as in the mesh. The stream is one end of a pipe; a task
//! of the guide reads blob requests at the other end and asks the keeper in the door's own words.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use groundswell_core::blob::{HashList, Layout, PieceSet};
use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use tokio::task::JoinSet;
use tokio_util::compat::TokioAsyncReadCompatExt;

use super::visit::{Visit, VisitFailed};
use super::wire::Refused;
use crate::blobs::wire::{self, Answer, Refusal, Request};
use crate::blobs::{Connect, ConnectError, Duplex, limits};
use crate::{Admission, Network};

/// Bytes between a keeper and a download: one chunk of a visit.
const PIPE_BYTES: usize = super::limits::CHUNK_BYTES;

/// Opens streams to admitted peers, and through outer doors to those that can only be visited.
pub struct Guide {
    network: Network,
    admission: Arc<dyn Admission>,
    keepers: Mutex<BTreeMap<NodeId, Vec<String>>>,
    /// The tasks between pipes and keepers: one for each stream, ended with it.
    bridges: Arc<Mutex<JoinSet<()>>>,
}

impl Guide {
    /// A guide that knows no keeper yet.
    #[must_use]
    pub fn new(network: Network, admission: Arc<dyn Admission>) -> Self {
        Self { network, admission, keepers: Mutex::default(), bridges: Arc::default() }
    }

    /// Who can be visited, and where; replaces those known before.
    pub fn set_keepers(&self, keepers: BTreeMap<NodeId, Vec<String>>) {
        *self.keepers.lock().unwrap_or_else(PoisonError::into_inner) = keepers;
    }
}

impl Connect for Guide {
    fn connect(&self, peer: NodeId) -> BoxFuture<'static, Result<Box<dyn Duplex>, ConnectError>> {
        let known = self.keepers.lock().unwrap_or_else(PoisonError::into_inner).get(&peer).cloned();
        let Some(addresses) = known else { return self.network.connect(peer) };
        let (network, bridges) = (self.network.clone(), Arc::clone(&self.bridges));
        let (fleet, certificate) = (self.admission.fleet(), self.admission.own_proof());
        async move {
            let failed = |error: VisitFailed| ConnectError(format!("through its outer door: {error}"));
            let (_, stream) = network.visit(Some(peer), addresses).await.map_err(failed)?;
            let visit = Visit::begin(stream, fleet, certificate).await.map_err(failed)?;
            let (near, far) = tokio::io::duplex(PIPE_BYTES);
            let mut bridges = bridges.lock().unwrap_or_else(PoisonError::into_inner);
            while bridges.try_join_next().is_some() {}
            bridges.spawn(async move {
                if let Err(error) = bridge(visit, far.compat()).await {
                    tracing::debug!(%peer, %error, "a visit for a blob ended");
                }
            });
            Ok(Box::new(near.compat()) as Box<dyn Duplex>)
        }
        .boxed()
    }
}

/// Answers blob requests with what the keeper gives, until the download closes its end.
async fn bridge(mut visit: Visit, mut pipe: impl Duplex) -> Result<(), VisitFailed> {
    let mut sizes: BTreeMap<Digest, u64> = BTreeMap::new();
    let broken = |error: wire::WireError| VisitFailed::Unreachable(error.to_string());
    while let Some((number, request)) = wire::read_request(&mut pipe, limits::SERVED_IDLE).await.map_err(broken)? {
        let answer = match ask(&mut visit, &mut sizes, request).await {
            Ok(answer) => answer,
            Err(VisitFailed::Refused(Refused::NotHere | Refused::Standing)) => Answer::Refused(Refusal::NotHere),
            Err(error) => return Err(error),
        };
        wire::write_answer(&mut pipe, number, &answer).await.map_err(broken)?;
    }
    Ok(())
}

async fn ask(visit: &mut Visit, sizes: &mut BTreeMap<Digest, u64>, request: Request) -> Result<Answer, VisitFailed> {
    let (Request::Describe { blob } | Request::HashList { blob } | Request::Have { blob } | Request::Piece { blob, .. }) =
        request
    else {
        let Request::Document { digest, most_bytes } = request else { return Ok(Answer::Refused(Refusal::NotHere)) };
        let most = usize::try_from(most_bytes).unwrap_or(usize::MAX).min(limits::PUBLISHED_ROSTER_BYTES);
        return Ok(Answer::Document(visit.document(digest, most).await?));
    };
    let size_bytes = match sizes.get(&blob) {
        Some(size_bytes) => *size_bytes,
        None => {
            let size_bytes = visit.blob_size(blob).await?;
            // A stream is opened for one blob; more than a few are none of this build's.
            if sizes.len() < limits::SERVED_STREAMS {
                sizes.insert(blob, size_bytes);
            }
            size_bytes
        }
    };
    let layout = Layout::of(size_bytes).map_err(|_| VisitFailed::Breach("a size that no blob has"))?;
    Ok(match request {
        Request::Describe { .. } => Answer::Description { size_bytes, held: layout.count() },
        Request::Have { .. } => Answer::Have(PieceSet::full(layout).as_bytes().to_vec()),
        Request::HashList { .. } => Answer::HashList(visit.hashes(blob, HashList::bytes_for(layout)).await?),
        Request::Piece { piece, .. } => match (layout.range(piece), layout.length(piece)) {
            (Some(range), Some(length)) => Answer::Piece(visit.blob(blob, range.start, length).await?),
            _ => Answer::Refused(Refusal::Beyond),
        },
        Request::Document { .. } => Answer::Refused(Refusal::NotHere),
    })
}

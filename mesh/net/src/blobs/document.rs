//! Fetching one document: peers in turn, the next one early when those before are slow.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::stream::{FuturesUnordered, StreamExt};
use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use tokio::time::sleep;

use super::connect::Connect;
use super::limits::{DOCUMENT_HEDGE, DOCUMENT_PEERS};
use super::standing::{Charge, Standings};
use super::wire::{self, Answer, Expected, Request};

/// None of the peers gave the document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{digest} came from none of {} peers{}", tried.len(), reasons(tried))]
pub struct DocumentError {
    /// The document's body digest.
    pub digest: Digest,
    /// Who was asked, and why that did not help.
    pub tried: Vec<(NodeId, String)>,
}

fn reasons(tried: &[(NodeId, String)]) -> String {
    tried.iter().map(|(peer, reason)| format!("; {}: {reason}", peer.short())).collect()
}

pub(super) async fn fetch(
    connect: &Arc<dyn Connect>,
    standings: &Standings,
    digest: Digest,
    most_bytes: usize,
    peers: &[NodeId],
    accept: impl Fn(&[u8]) -> bool,
) -> Result<Vec<u8>, DocumentError> {
    let mut waiting: VecDeque<NodeId> = peers.iter().copied().collect();
    let mut asked = FuturesUnordered::new();
    let mut tried = Vec::new();
    loop {
        if asked.is_empty() {
            let Some(peer) = waiting.pop_front() else { return Err(DocumentError { digest, tried }) };
            asked.push(ask(connect, peer, digest, most_bytes));
        }
        let may_hedge = asked.len() < DOCUMENT_PEERS && !waiting.is_empty();
        tokio::select! {
            Some((peer, outcome)) = asked.next() => match outcome {
                Ok(bytes) if accept(&bytes) => return Ok(bytes),
                Ok(_) => {
                    standings.charge(peer, Charge::BadDocument);
                    tried.push((peer, Charge::BadDocument.to_string()));
                }
                Err((charge, reason)) => {
                    charge.inspect(|charge| standings.charge(peer, *charge));
                    tried.push((peer, reason));
                }
            },
            () = sleep(DOCUMENT_HEDGE), if may_hedge => {
                let next = waiting.pop_front();
                asked.extend(next.map(|peer| ask(connect, peer, digest, most_bytes)));
            }
        }
    }
}

type Outcome = Result<Vec<u8>, (Option<Charge>, String)>;

async fn ask(connect: &Arc<dyn Connect>, peer: NodeId, digest: Digest, most_bytes: usize) -> (NodeId, Outcome) {
    (peer, ask_one(connect, peer, digest, most_bytes).await)
}

async fn ask_one(connect: &Arc<dyn Connect>, peer: NodeId, digest: Digest, most_bytes: usize) -> Outcome {
    let blame = |error: wire::WireError| (error.is_breach().then_some(Charge::Breach), error.to_string());
    let mut stream = connect.connect(peer).await.map_err(|error| (None, error.to_string()))?;
    let most = u32::try_from(most_bytes).unwrap_or(u32::MAX);
    wire::write_request(&mut stream, 1, &Request::Document { digest, most_bytes: most }).await.map_err(blame)?;
    wire::flush(&mut stream).await.map_err(blame)?;
    match wire::read_answer(&mut stream, 1, Expected::Document(most_bytes)).await.map_err(blame)? {
        Answer::Document(bytes) => Ok(bytes),
        Answer::Refused(refusal) => Err((None, refusal.to_string())),
        _ => Err((Some(Charge::Breach), Charge::Breach.to_string())),
    }
}

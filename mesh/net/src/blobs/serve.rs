//! The serving side: answers requests on streams of admitted peers, a bounded number at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::io::AsyncWriteExt;
use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use tokio::sync::mpsc::Receiver;

use super::blocking;
use super::connect::Duplex;
use super::limits::{SERVED_IDLE, SERVED_STREAMS, SERVED_STREAMS_PER_PEER};
use super::source::{BlobSource, DocumentSource, ReadError};
use super::wire::{self, Answer, Refusal, Request, WireError};
use crate::crowd::Crowd;
use crate::pieces::Rates;

/// Serves what its sources hold. Clones share counters.
#[derive(Clone)]
pub struct Server {
    blobs: Arc<dyn BlobSource>,
    documents: Arc<dyn DocumentSource>,
    rates: Rates,
    tally: Arc<Tally>,
}

#[derive(Default)]
struct Tally {
    pieces: AtomicU64,
    piece_bytes: AtomicU64,
    refused: AtomicU64,
    streams_dropped: AtomicU64,
    breaches: AtomicU64,
}

/// What was served since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Pieces sent.
    pub pieces: u64,
    /// Their bytes, without framing.
    pub piece_bytes: u64,
    /// Requests answered with a refusal.
    pub refused: u64,
    /// Streams dropped because too many were open.
    pub streams_dropped: u64,
    /// Streams closed because the peer broke the protocol.
    pub breaches: u64,
}

impl Server {
    /// A server over these sources.
    #[must_use]
    pub fn new(blobs: Arc<dyn BlobSource>, documents: Arc<dyn DocumentSource>) -> Self {
        Self { blobs, documents, rates: Rates::default(), tally: Arc::default() }
    }

    /// The same, sending no faster than these rates leave to it.
    #[must_use]
    pub fn within(self, rates: Rates) -> Self {
        Self { rates, ..self }
    }

    /// The counters as they stand.
    #[must_use]
    pub fn counters(&self) -> ServerCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerCounters {
            pieces: read(&self.tally.pieces),
            piece_bytes: read(&self.tally.piece_bytes),
            refused: read(&self.tally.refused),
            streams_dropped: read(&self.tally.streams_dropped),
            breaches: read(&self.tally.breaches),
        }
    }

    /// Serves incoming streams until their sender is gone. At most [`SERVED_STREAMS`] at once, and
    /// [`SERVED_STREAMS_PER_PEER`] of one peer; more are dropped, counted, and tried again later by the peer.
    /// Cancel-safe: drop the future to stop serving.
    pub async fn serve<S: Duplex + 'static>(&self, mut incoming: Receiver<(NodeId, S)>) {
        let mut served = Crowd::new(SERVED_STREAMS, SERVED_STREAMS_PER_PEER);
        loop {
            tokio::select! {
                next = incoming.recv() => {
                    let Some((peer, stream)) = next else { return };
                    let server = self.clone();
                    if !served.admit(peer, async move { server.serve_stream(peer, stream).await }) {
                        self.tally.streams_dropped.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Some(()) = served.one_left() => {}
            }
        }
    }

    /// Serves one stream until the peer ends it, asks nothing for long, or breaks the protocol.
    pub async fn serve_stream(&self, peer: NodeId, mut stream: impl Duplex) {
        match self.answer_requests(&mut stream).await {
            Ok(()) => {
                let _ = stream.close().await;
            }
            Err(error) if error.is_breach() => {
                self.tally.breaches.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%peer, %error, "a peer broke the blob protocol");
            }
            Err(error) => tracing::debug!(%peer, %error, "a blob stream ended"),
        }
    }

    async fn answer_requests(&self, stream: &mut impl Duplex) -> Result<(), WireError> {
        while let Some((number, request)) = wire::read_request(stream, SERVED_IDLE).await? {
            let server = self.clone();
            let answer = blocking(move || server.answer(&request)).await;
            if let Answer::Piece(bytes) | Answer::HashList(bytes) | Answer::Document(bytes) = &answer {
                self.rates.up.pay(bytes.len()).await;
            }
            wire::write_answer(stream, number, &answer).await?;
            if let Answer::Piece(bytes) = &answer {
                self.tally.pieces.fetch_add(1, Ordering::Relaxed);
                self.tally.piece_bytes.fetch_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn answer(&self, request: &Request) -> Answer {
        let answer = match request {
            Request::Describe { blob } => self
                .blobs
                .describe(blob)
                .map(|described| Answer::Description { size_bytes: described.size_bytes, held: described.held.held() }),
            Request::HashList { blob } => self.blobs.hash_list(blob).map(|list| Answer::HashList(list.to_bytes())),
            Request::Have { blob } => self.blobs.describe(blob).map(|it| Answer::Have(it.held.as_bytes().to_vec())),
            Request::Piece { blob, piece } => Some(self.piece(blob, *piece)),
            Request::Document { digest, most_bytes } => self.documents.document(digest).map(|bytes| {
                if u32::try_from(bytes.len()).is_ok_and(|length| length <= *most_bytes) {
                    Answer::Document(bytes)
                } else {
                    Answer::Refused(Refusal::TooLarge)
                }
            }),
        };
        let answer = answer.unwrap_or(Answer::Refused(Refusal::NotHere));
        if let Answer::Refused(_) = answer {
            self.tally.refused.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    fn piece(&self, blob: &Digest, piece: u32) -> Answer {
        match self.blobs.read_piece(blob, piece) {
            Ok(bytes) => Answer::Piece(bytes),
            Err(ReadError::NoBlob) => Answer::Refused(Refusal::NotHere),
            Err(ReadError::Beyond(_)) => Answer::Refused(Refusal::Beyond),
            Err(ReadError::NotHeld(_)) => Answer::Refused(Refusal::NotHeld),
            Err(ReadError::Io(error)) => {
                tracing::error!(%blob, piece, %error, "a piece cannot be read");
                Answer::Refused(Refusal::Failed)
            }
        }
    }
}

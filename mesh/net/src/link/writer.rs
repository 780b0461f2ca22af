//! One peer's outbound link: a bounded queue of frames, and the task that keeps a stream open for it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::AsyncWriteExt;
use futures::io::BufWriter;
use groundswell_core::limits::FRAME_BYTES;
use groundswell_core::node_id::NodeId;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use super::frame;
use crate::config::{FRAMES_PER_PEER, QUEUED_BYTES_PER_PEER};
use crate::counters::Tally;
use crate::streams::{LINK, OpenError, PeerStream, Streams};

/// Small frames travel together.
const BUFFER_BYTES: usize = 8 * 1024;
/// A peer that takes nothing for this long has its link opened anew.
const STALL: Duration = Duration::from_secs(30);
/// Pauses between attempts to open a link: doubled from the first to the last.
const RETRY: Duration = Duration::from_millis(50);
const RETRY_AT_MOST: Duration = Duration::from_secs(5);

/// A frame in the queue, with its share of the byte limits.
#[derive(Debug)]
pub(crate) struct Queued {
    bytes: Vec<u8>,
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

/// The near end of a peer's queue.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    frames: mpsc::Sender<Queued>,
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

impl Queue {
    /// A queue, and the far end for [`run`]. `all` has the bytes that all queues share.
    pub(crate) fn new(all: Arc<Semaphore>) -> (Self, mpsc::Receiver<Queued>) {
        let (frames, queued) = mpsc::channel(FRAMES_PER_PEER);
        (Self { frames, own: Arc::new(Semaphore::new(QUEUED_BYTES_PER_PEER)), all }, queued)
    }

    /// Queues a frame unless a limit is reached. Returns whether it was queued.
    pub(crate) fn push(&self, bytes: Vec<u8>) -> bool {
        if bytes.len() > FRAME_BYTES {
            return false;
        }
        let Ok(weight) = u32::try_from(bytes.len()) else { return false };
        let (Ok(own), Ok(all)) =
            (Arc::clone(&self.own).try_acquire_many_owned(weight), Arc::clone(&self.all).try_acquire_many_owned(weight))
        else {
            return false;
        };
        self.frames.try_send(Queued { bytes, _own: own, _all: all }).is_ok()
    }
}

/// Why a link is opened anew.
enum Ended {
    /// A newer connection is there: the old one may be dead without knowing.
    Moved,
    /// It broke.
    Broke(io::Error),
    /// The peer is down.
    Done,
}

/// Keeps a link to `peer` open and writes the queue to it, until the near end is dropped.
/// `moved` says that a newer connection was admitted.
pub(crate) async fn run(
    peer: NodeId,
    streams: Streams,
    mut queue: mpsc::Receiver<Queued>,
    moved: Arc<Notify>,
    tally: Arc<Tally>,
) {
    let mut pause = RETRY;
    loop {
        match streams.open(peer, LINK).await {
            Ok(stream) => {
                pause = RETRY;
                match pump(stream, &mut queue, &moved, &tally).await {
                    Ended::Moved => continue,
                    Ended::Broke(error) => tracing::debug!(%peer, %error, "an outbound link broke"),
                    Ended::Done => return,
                }
            }
            Err(error @ OpenError::Unsupported(..)) => tracing::warn!(%peer, %error, "no neighbour link"),
            Err(error) => tracing::debug!(%peer, %error, "no neighbour link yet"),
        }
        tokio::select! {
            () = sleep(pause) => pause = (pause * 2).min(RETRY_AT_MOST),
            () = moved.notified() => pause = RETRY,
        }
    }
}

/// Writes frames until something ends the link.
async fn pump(stream: PeerStream, queue: &mut mpsc::Receiver<Queued>, moved: &Notify, tally: &Tally) -> Ended {
    let mut stream = BufWriter::with_capacity(BUFFER_BYTES, stream);
    loop {
        let frame = tokio::select! {
            frame = queue.recv() => frame,
            () = moved.notified() => {
                let closed = timeout(STALL, stream.close()).await;
                tracing::trace!(?closed, "the link moves to a newer connection");
                return Ended::Moved;
            }
        };
        let Some(frame) = frame else { return Ended::Done };
        let mut frame = Some(frame);
        while let Some(next) = frame {
            if let Err(error) = in_time(frame::write(&mut stream, &next.bytes)).await {
                return Ended::Broke(error);
            }
            Tally::add(&tally.frames_sent, 1);
            Tally::add(&tally.frame_bytes_sent, u64::try_from(next.bytes.len()).unwrap_or(u64::MAX));
            frame = queue.try_recv().ok();
        }
        if let Err(error) = in_time(stream.flush()).await {
            return Ended::Broke(error);
        }
    }
}

/// Runs one write, which a peer that takes nothing cannot hold up for ever.
async fn in_time(write: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    timeout(STALL, write).await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))
}

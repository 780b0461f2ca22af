//! Reads one inbound link until it ends, and hands its frames to the driver.

use std::sync::Arc;

use futures::io::BufReader;
use groundswell_core::node_id::NodeId;
use tokio::sync::mpsc;

use super::frame::{self, FrameError};
use crate::counters::Tally;
use crate::streams::PeerStream;

/// Small frames are read many at a time.
const BUFFER_BYTES: usize = 8 * 1024;

/// What came of a link.
#[derive(Debug)]
pub(crate) enum FromLink {
    /// A frame.
    Frame(NodeId, Vec<u8>),
    /// The peer broke the rules; it is to be hung up on.
    Violation(NodeId, String),
}

/// Runs until the stream ends or the driver does. When the driver is slow the stream is not read, and the peer's writes
/// wait: that is the back-pressure of the link.
pub(crate) async fn run(peer: NodeId, stream: PeerStream, driver: mpsc::Sender<FromLink>, tally: Arc<Tally>) {
    let mut stream = BufReader::with_capacity(BUFFER_BYTES, stream);
    loop {
        let heard = match frame::read(&mut stream).await {
            Ok(Some(bytes)) => {
                Tally::add(&tally.frames_received, 1);
                Tally::add(&tally.frame_bytes_received, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                FromLink::Frame(peer, bytes)
            }
            Err(error @ FrameError::TooLarge(_)) => {
                Tally::add(&tally.frames_oversize, 1);
                FromLink::Violation(peer, error.to_string())
            }
            Ok(None) => return,
            Err(FrameError::Io(error)) => {
                tracing::debug!(%peer, %error, "an inbound link broke");
                return;
            }
        };
        let last = matches!(heard, FromLink::Violation(..));
        if driver.send(heard).await.is_err() || last {
            return;
        }
    }
}

//! One neighbour of one swarm: what it says goes to the swarm's task, what the task says goes to it.

use std::sync::Arc;

use futures::io::{AsyncReadExt as _, AsyncWrite, BufWriter};
use groundswell_core::blob::Layout;
use groundswell_core::blob::exchange::Message;
use groundswell_core::blob::exchange::message::Part;
use groundswell_core::node_id::NodeId;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::frames;
use super::throttle::{Rate, Throttle};
use crate::blobs::wire::{WireError, flush, write_all};
use crate::blobs::{Charge, Duplex};

/// Words and parts that wait to be written to one neighbour. The exchange sends no more parts than a window has room
/// for; a neighbour that lets so many words pile up is choked.
pub(super) const OUTBOX: usize = 4_096;
/// Messages between all readers and the task: 64 KiB each at most.
pub(super) const INBOX: usize = 32;

/// Words and parts that are ready together leave together, so many bytes at a time: as much as one frame below carries.
const WRITTEN_BYTES: usize = 16 * 1024;

/// What the words of one neighbour may cost in a second: 2,000 of them, many times what a busy one says beside its parts.
const WORDS_PER_SECOND: u64 = 128 * 1024;
/// What a word costs beside its own bytes: it wakes the task of its blob.
const WORD_COST: usize = 64;
/// What a part, either way, adds to that: its receipt, and what is said about a piece.
const PART_EARNS: usize = 4 * WORD_COST;

/// What goes to a neighbour.
#[derive(Debug)]
pub(super) enum Out {
    /// A word.
    Word(Message),
    /// Bytes of a piece.
    Bytes {
        /// Which piece.
        piece: u32,
        /// From which byte on.
        offset: usize,
        /// How many.
        length: usize,
        /// All of the piece.
        of: Arc<Vec<u8>>,
    },
    /// The answer to its opening, before anything else.
    Accepted(Vec<u8>),
}

/// What comes from a neighbour.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) peer: NodeId,
    /// Which of its streams, should one have taken the place of another.
    pub(super) number: u64,
    pub(super) what: Result<Message, Gone>,
}

/// Why a neighbour is gone.
#[derive(Debug)]
pub(super) enum Gone {
    /// The stream ended, broke or stalled, or nothing useful is there.
    Broken(String),
    /// It lost its standing.
    Charged(Charge),
}

impl From<WireError> for Gone {
    fn from(error: WireError) -> Self {
        if error.is_breach() { Self::Charged(Charge::Breach) } else { Self::Broken(error.to_string()) }
    }
}

/// The task's end. Dropping it ends the stream.
#[derive(Debug)]
pub(super) struct Strand {
    pub(super) number: u64,
    /// Which side opened it.
    pub(super) opened_by: NodeId,
    outbox: mpsc::Sender<Out>,
    task: AbortHandle,
}

impl Strand {
    pub(super) fn new(number: u64, opened_by: NodeId, outbox: mpsc::Sender<Out>, task: AbortHandle) -> Self {
        Self { number, opened_by, outbox, task }
    }

    /// Whether there was room. A stream that has ended takes everything: why it ended is about to be heard.
    pub(super) fn send(&self, out: Out) -> bool {
        !matches!(self.outbox.try_send(out), Err(mpsc::error::TrySendError::Full(_)))
    }
}

impl Drop for Strand {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Where a strand's messages go, with its name on each.
#[derive(Clone, Debug)]
pub(super) struct Voice {
    pub(super) peer: NodeId,
    pub(super) number: u64,
    pub(super) inbox: mpsc::Sender<Heard>,
}

impl Voice {
    /// Waits while the task is busy, which is how slowness travels back to the peer.
    pub(super) async fn say(&self, what: Result<Message, Gone>) {
        // Nobody hears it any more: the task has ended, and this one is about to be.
        let _ = self.inbox.send(Heard { peer: self.peer, number: self.number, what }).await;
    }
}

/// Reads and writes one stream until it ends.
pub(super) async fn run(
    stream: Box<dyn Duplex>,
    layout: Layout,
    voice: Voice,
    mut outbox: mpsc::Receiver<Out>,
    down: Arc<Throttle>,
) {
    let (mut reader, writer) = stream.split();
    let mut writer = BufWriter::with_capacity(WRITTEN_BYTES, writer);
    let words = Throttle::new(Rate::bytes_per_second(WORDS_PER_SECOND));
    let reads = async {
        loop {
            match frames::read_message(&mut reader, layout).await {
                Ok(Some(message)) => {
                    match &message {
                        Message::Part(part) => {
                            words.earn(PART_EARNS);
                            down.pay(part.bytes.len()).await;
                        }
                        // Whoever says more is not wrong, it is heard later.
                        word => words.pay(WORD_COST + word.frame_bytes()).await,
                    }
                    voice.say(Ok(message)).await;
                }
                Ok(None) => return Gone::Broken("the peer closed the stream".to_owned()),
                Err(error) => return error.into(),
            }
        }
    };
    let writes = async {
        while let Some(out) = outbox.recv().await {
            let mut next = Some(out);
            while let Some(out) = next {
                if let Out::Bytes { .. } = out {
                    words.earn(PART_EARNS);
                }
                if let Err(error) = write(&mut writer, out).await {
                    return error.into();
                }
                next = outbox.try_recv().ok();
            }
            if let Err(error) = flush(&mut writer).await {
                return error.into();
            }
        }
        Gone::Broken("the exchange ended".to_owned())
    };
    let gone = tokio::select! {
        gone = reads => gone,
        gone = writes => gone,
    };
    voice.say(Err(gone)).await;
}

async fn write(writer: &mut BufWriter<impl AsyncWrite + Unpin>, out: Out) -> Result<(), WireError> {
    match out {
        Out::Word(message) => write_all(writer, &message.to_frame()).await,
        Out::Accepted(bytes) => write_all(writer, &bytes).await,
        Out::Bytes { piece, offset, length, of } => {
            let bytes = offset.checked_add(length).and_then(|end| of.get(offset..end)).unwrap_or_default();
            write_all(writer, &Part::header(piece, offset, bytes.len())).await?;
            // The header leaves with the first of them.
            let (first, rest) = bytes.split_at(bytes.len().min(WRITTEN_BYTES.saturating_sub(writer.buffer().len())));
            write_all(writer, first).await?;
            write_all(writer, rest).await
        }
    }
}

//! One neighbour of one swarm: what it says goes to the swarm's task, what the task says goes to it.

use std::sync::{Arc, Weak};

use futures::io::{AsyncReadExt as _, AsyncWrite, BufWriter};
use groundswell_core::blob::Layout;
use groundswell_core::blob::exchange::message::Part;
use groundswell_core::blob::exchange::{Message, Outgoing};
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
        /// The bytes.
        bytes: PartBytes,
    },
    /// The answer to its opening, before anything else.
    Accepted(Vec<u8>),
}

/// Bytes of a part, as they wait.
#[derive(Debug)]
pub(super) struct PartBytes {
    /// All of the piece, or a copy of the part alone.
    of: Arc<Vec<u8>>,
    /// Where they are in that.
    begin: usize,
    length: usize,
    /// While it lives, so does all of the piece.
    _whole: Option<Arc<()>>,
}

impl PartBytes {
    fn bytes(&self) -> &[u8] {
        self.begin.checked_add(self.length).and_then(|end| self.of.get(self.begin..end)).unwrap_or_default()
    }
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
    /// The piece of which all is kept for what waits here.
    whole: Option<(u32, Weak<()>)>,
}

impl Strand {
    pub(super) fn new(number: u64, opened_by: NodeId, outbox: mpsc::Sender<Out>, task: AbortHandle) -> Self {
        Self { number, opened_by, outbox, task, whole: None }
    }

    /// Hands on a part of a piece. For what waits here one piece at a time is kept as a whole; of others the parts are copied:
    /// a neighbour that takes a piece, calls it off after its first bytes and reads nothing would have many kept otherwise.
    /// Returns whether there was room.
    pub(super) fn send_part(&mut self, out: &Outgoing, of: Arc<Vec<u8>>) -> bool {
        let Outgoing { piece, offset, length, .. } = *out;
        let bytes = if length * 2 >= of.len() {
            PartBytes { of, begin: offset, length, _whole: None }
        } else if let Some(whole) = self.keep_whole(piece) {
            PartBytes { of, begin: offset, length, _whole: Some(whole) }
        } else {
            let copy = offset.checked_add(length).and_then(|end| of.get(offset..end)).unwrap_or_default().to_vec();
            PartBytes { of: Arc::new(copy), begin: 0, length, _whole: None }
        };
        self.send(Out::Bytes { piece, offset, bytes })
    }

    /// Whether all of a piece may be kept: it is already, or no other is.
    fn keep_whole(&mut self, piece: u32) -> Option<Arc<()>> {
        if let Some((kept, whole)) = &self.whole
            && let Some(whole) = whole.upgrade()
        {
            return (*kept == piece).then_some(whole);
        }
        let whole = Arc::new(());
        self.whole = Some((piece, Arc::downgrade(&whole)));
        Some(whole)
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
        Out::Bytes { piece, offset, bytes } => {
            let bytes = bytes.bytes();
            write_all(writer, &Part::header(piece, offset, bytes.len())).await?;
            // The header leaves with the first of them.
            let (first, rest) = bytes.split_at(bytes.len().min(WRITTEN_BYTES.saturating_sub(writer.buffer().len())));
            write_all(writer, first).await?;
            write_all(writer, rest).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn b3_one_that_reads_nothing_keeps_one_whole_piece_in_memory_however_many_it_takes_a_little_of() {
        const MIB: usize = 1024 * 1024;
        let (outbox, mut waiting) = mpsc::channel(OUTBOX);
        let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
        let mut strand = Strand::new(1, NodeId([1; 32]), outbox, task);
        let part = |piece, length, last| Outgoing { peer: NodeId([1; 32]), piece, offset: 4, length, last };
        let pieces: Vec<Arc<Vec<u8>>> = (0..64).map(|piece| Arc::new(vec![piece; MIB])).collect();
        for (number, piece) in (0..).zip(&pieces) {
            assert!(strand.send_part(&part(number, 64 * 1024, false), Arc::clone(piece)));
            assert!(strand.send_part(&part(number, 64 * 1024, false), Arc::clone(piece)));
        }
        assert_eq!(pieces.iter().filter(|piece| Arc::strong_count(piece) > 1).count(), 1);
        let read = |out: Option<Out>| match out {
            Some(Out::Bytes { piece, offset: 4, bytes }) => (piece, bytes.bytes().to_vec()),
            other => panic!("{other:?}"),
        };
        for number in 0..64 {
            for _ in 0..2 {
                assert_eq!(read(waiting.recv().await), (u32::from(number), vec![number; 64 * 1024]));
            }
        }
        // What was read is kept no longer, and the next one is kept as a whole again.
        assert!(strand.send_part(&part(9, 64 * 1024, false), Arc::clone(&pieces[9])));
        assert_eq!(pieces.iter().filter(|piece| Arc::strong_count(piece) > 1).count(), 1);
        // What is a part as a whole is not copied.
        let small = Arc::new(vec![7; 64 * 1024]);
        assert!(strand.send_part(&part(10, 64 * 1024 - 4, true), Arc::clone(&small)));
        assert_eq!(Arc::strong_count(&small), 2);
    }
}

//! One conversation with one peer in one download: asks for what the plan says, takes what comes.

use std::collections::VecDeque;
use std::sync::Arc;

use groundswell_core::blob::{Fault, PieceSet, Standing};
use groundswell_core::node_id::NodeId;
use tokio::time::{Instant, sleep};

use super::connect::{Connect, Duplex};
use super::download::{Download, Stored};
use super::limits::{HAVE_EVERY, USELESS_AFTER};
use super::source::SinkError;
use super::standing::Charge;
use super::wire::{self, Answer, Expected, Refusal, Request, WireError};

/// How a conversation ended. The caller takes the peer out of the plan.
#[derive(Debug)]
pub(super) enum Parting {
    /// The download is complete.
    Complete,
    /// It has nothing that is needed now, or no place was free.
    Useless,
    /// No stream, or it broke, stalled, or kept refusing: perhaps another time.
    Broken(String),
    /// It lost its standing.
    Charged(Charge),
    /// This node's own disk failed.
    Sink(SinkError),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pending {
    Describe,
    HashList,
    Have,
    Piece(u32),
}

struct Conversation {
    download: Arc<Download>,
    peer: NodeId,
    stream: Box<dyn Duplex>,
    number: u32,
    pending: VecDeque<(u32, Pending, Expected)>,
    /// What the peer has, once it said so.
    has: Option<PieceSet>,
    asked_have: Instant,
    useful: Instant,
}

/// Talks with `peer` until the download is complete or it cannot help. Dropping it drops the stream.
pub(super) async fn converse(download: Arc<Download>, peer: NodeId, connect: Arc<dyn Connect>) -> Parting {
    let stream = match connect.connect(peer).await {
        Ok(stream) => stream,
        Err(error) => return Parting::Broken(error.to_string()),
    };
    let now = Instant::now();
    let pending = VecDeque::new();
    Conversation { download, peer, stream, number: 0, pending, has: None, asked_have: now, useful: now }.run().await
}

impl Conversation {
    async fn run(mut self) -> Parting {
        match self.talk().await {
            Ok(parting) | Err(parting) => parting,
        }
    }

    async fn talk(&mut self) -> Result<Parting, Parting> {
        let mut changes = self.download.changes();
        self.ask(Pending::Describe).await?;
        self.ask(Pending::Have).await?;
        if self.download.hashes().is_none() {
            self.ask(Pending::HashList).await?;
        }
        loop {
            changes.mark_unchanged();
            if self.download.is_complete() {
                return Ok(Parting::Complete);
            }
            self.ask_for_pieces().await?;
            wire::flush(&mut self.stream).await.map_err(parting)?;
            if self.pending.is_empty() {
                if self.useful.elapsed() >= USELESS_AFTER {
                    return Ok(Parting::Useless);
                }
                tokio::select! {
                    _ = changes.changed() => {}
                    () = sleep(HAVE_EVERY) => {}
                }
            } else {
                self.take_answer().await?;
            }
        }
    }

    /// Fills the window, and asks a partial holder for news when it is time.
    async fn ask_for_pieces(&mut self) -> Result<(), Parting> {
        let Some(is_full) = self.has.as_ref().map(PieceSet::is_full) else { return Ok(()) };
        let has_list = self.download.hashes().is_some();
        if self.asked_have.elapsed() >= HAVE_EVERY && !(is_full && has_list) {
            self.ask_again(Pending::Have).await?;
            if !has_list {
                self.ask_again(Pending::HashList).await?;
            }
        }
        if !has_list {
            return Ok(());
        }
        loop {
            let next = self.download.plan().next(self.peer);
            let Some(piece) = next else { return Ok(()) };
            self.useful = Instant::now();
            self.ask(Pending::Piece(piece)).await?;
        }
    }

    /// Asks unless the same is being waited for.
    async fn ask_again(&mut self, what: Pending) -> Result<(), Parting> {
        if self.pending.iter().any(|(_, pending, _)| *pending == what) { Ok(()) } else { self.ask(what).await }
    }

    async fn ask(&mut self, pending: Pending) -> Result<(), Parting> {
        let layout = self.download.layout;
        let blob = self.download.blob.sha256;
        let (request, expected) = match pending {
            Pending::Describe => (Request::Describe { blob }, Expected::Description),
            Pending::HashList => (Request::HashList { blob }, Expected::HashList(layout)),
            Pending::Have => {
                self.asked_have = Instant::now();
                (Request::Have { blob }, Expected::Have(layout))
            }
            Pending::Piece(piece) => {
                let length = layout.length(piece).expect("the plan names only pieces that the blob has");
                (Request::Piece { blob, piece }, Expected::Piece(length))
            }
        };
        self.number = self.number.wrapping_add(1);
        wire::write_request(&mut self.stream, self.number, &request).await.map_err(parting)?;
        self.pending.push_back((self.number, pending, expected));
        Ok(())
    }

    async fn take_answer(&mut self) -> Result<(), Parting> {
        let Some((number, pending, expected)) = self.pending.pop_front() else { return Ok(()) };
        let answer = wire::read_answer(&mut self.stream, number, expected).await.map_err(parting)?;
        match (pending, answer) {
            (Pending::Piece(piece), Answer::Refused(refusal)) => self.piece_refused(piece, refusal),
            // Whoever holds pieces and no list cannot be helped by it; another peer may bring the list.
            (Pending::HashList, Answer::Refused(_)) => Ok(()),
            (Pending::Describe | Pending::Have, Answer::Refused(_)) => Err(Parting::Useless),
            (Pending::Describe, Answer::Description { size_bytes, .. }) => {
                if size_bytes == self.download.blob.size_bytes {
                    Ok(())
                } else {
                    Err(Parting::Charged(Charge::BadDescription))
                }
            }
            (Pending::HashList, Answer::HashList(bytes)) => settle(self.download.take_hash_list(bytes).await),
            (Pending::Have, Answer::Have(bytes)) => self.take_have(&bytes),
            (Pending::Piece(piece), Answer::Piece(bytes)) => self.take_piece(piece, bytes).await,
            (_, _) => Err(Parting::Charged(Charge::Breach)),
        }
    }

    fn take_have(&mut self, bytes: &[u8]) -> Result<(), Parting> {
        let layout = self.download.layout;
        let has = PieceSet::from_bytes(layout, bytes).map_err(|_| Parting::Charged(Charge::BadDescription))?;
        self.has = Some(has.clone());
        self.download.plan().offer(self.peer, has).map_err(|_| Parting::Useless)
    }

    fn piece_refused(&mut self, piece: u32, refusal: Refusal) -> Result<(), Parting> {
        if refusal == Refusal::Beyond {
            return Err(Parting::Charged(Charge::BadDescription));
        }
        let standing = self.download.plan().fault(self.peer, Fault::Refused { piece });
        self.download.note_change();
        match standing {
            Standing::Kept => Ok(()),
            Standing::Lost => Err(Parting::Broken("it refused too many pieces that it said it has".into())),
        }
    }

    async fn take_piece(&mut self, piece: u32, bytes: Vec<u8>) -> Result<(), Parting> {
        let hashes = self.download.hashes().expect("no piece is asked for before the list is known");
        let stored = self.download.take_piece(self.peer, piece, bytes, hashes).await;
        if let Stored::Bad(_) = stored {
            self.download.plan().fault(self.peer, Fault::Bad { piece });
        }
        settle(stored)
    }
}

fn settle(stored: Stored) -> Result<(), Parting> {
    match stored {
        Stored::Kept => Ok(()),
        Stored::Bad(charge) => Err(Parting::Charged(charge)),
        Stored::Failed(error) => Err(Parting::Sink(error)),
    }
}

fn parting(error: WireError) -> Parting {
    if error.is_breach() { Parting::Charged(Charge::Breach) } else { Parting::Broken(error.to_string()) }
}

//! A neighbour that is asked by requests of `/groundswell/blob/1`: a member of an older build, or the keeper of an outer
//! door. To the exchange it looks like any other: it offers what it has, and sends what is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::io::{AsyncReadExt as _, AsyncWrite, ReadHalf, WriteHalf};
use groundswell_core::blob::exchange::Message;
use groundswell_core::blob::exchange::message::Part;
use groundswell_core::blob::{Layout, PieceSet};
use groundswell_core::digest::Digest;
use groundswell_core::limits::{BLOB_OFFERED, BLOB_REFUSALS, BLOB_WINDOW_BYTES, BLOB_WINDOW_PIECES};
use groundswell_core::node_id::NodeId;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};

use super::opening::NotOpened;
use super::strand::{Gone, Out, Voice};
use super::throttle::Throttle;
use crate::blobs::limits::{HAVE_EVERY, USELESS_AFTER};
use crate::blobs::wire::{self, Answer, Expected, Refusal, Request};
use crate::blobs::{Charge, Duplex};

/// What was asked for is to be here within this time, or a window's worth of it is with another peer sooner: requests
/// cannot be taken back.
const ASKED_FOR: Duration = Duration::from_secs(1);
/// A piece is handed on in parts of this size: at 2 KB/s it still moves.
const PASSED_ON_BYTES: usize = 16 * 1024;
/// A piece that was passed over is not offered again for so long.
const PASSED_FOR: Duration = Duration::from_millis(200);

/// A peer that described the blob.
pub(super) struct Bridge {
    stream: Box<dyn Duplex>,
    blob: Digest,
    layout: Layout,
    number: u32,
    has: PieceSet,
    /// Where its offers begin, so that not all peers offer the same.
    first: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Have,
    Piece { piece: u32, length: usize },
}

struct Ledger {
    has: PieceSet,
    /// What is held here.
    here: PieceSet,
    asked: BTreeSet<u32>,
    /// What the open offer names; empty when none is open.
    offered: Vec<u32>,
    passed: BTreeMap<u32, Instant>,
    refused: u32,
    first: u32,
    /// When something was offered last.
    useful: Instant,
    /// How long a piece usually takes.
    usual: Duration,
}

impl Bridge {
    /// Asks what the peer has, and for its hash list when that is wanted.
    pub(super) async fn begin(
        mut stream: Box<dyn Duplex>,
        peer: NodeId,
        blob: Digest,
        layout: Layout,
        wants_list: bool,
    ) -> Result<(Self, Option<Vec<u8>>), NotOpened> {
        wire::write_request(&mut stream, 1, &Request::Describe { blob }).await?;
        wire::write_request(&mut stream, 2, &Request::Have { blob }).await?;
        if wants_list {
            wire::write_request(&mut stream, 3, &Request::HashList { blob }).await?;
        }
        wire::flush(&mut stream).await?;
        let nothing = || NotOpened::Refused(super::frames::Refusal::NotHere);
        match wire::read_answer(&mut stream, 1, Expected::Description).await? {
            Answer::Description { size_bytes, .. } if size_bytes == layout.size_bytes() => {}
            Answer::Description { .. } => return Err(NotOpened::Charged(Charge::BadDescription)),
            _ => return Err(nothing()),
        }
        let Answer::Have(bytes) = wire::read_answer(&mut stream, 2, Expected::Have(layout)).await? else { return Err(nothing()) };
        let has = PieceSet::from_bytes(layout, &bytes).map_err(|_| NotOpened::Charged(Charge::BadDescription))?;
        let mut list = None;
        if wants_list {
            match wire::read_answer(&mut stream, 3, Expected::HashList(layout)).await? {
                Answer::HashList(bytes) => list = Some(bytes),
                _ => return Err(NotOpened::Refused(super::frames::Refusal::NoList)),
            }
        }
        let [a, b, c, d, ..] = peer.0;
        let first = u32::from_be_bytes([a, b, c, d]) % layout.count().max(1);
        Ok((Self { stream, blob, layout, number: 3, has, first }, list))
    }

    /// Speaks for the peer until it is of no more use.
    pub(super) async fn run(self, voice: Voice, outbox: mpsc::Receiver<Out>, down: Arc<Throttle>) {
        let Self { stream, blob, layout, number, has, first } = self;
        voice.say(Ok(Message::Holding(has.clone()))).await;
        let ledger = Mutex::new(Ledger {
            has,
            here: PieceSet::empty(layout),
            asked: BTreeSet::new(),
            offered: Vec::new(),
            passed: BTreeMap::new(),
            refused: 0,
            first,
            useful: Instant::now(),
            usual: Duration::from_millis(500),
        });
        let moved = Notify::new();
        let (reader, writer) = stream.split();
        let (asked, answers) = mpsc::unbounded_channel();
        let talk = Talk { blob, layout, ledger: &ledger, moved: &moved, voice: &voice, down: &down };
        let gone = tokio::select! {
            gone = talk.ask(writer, number, asked, outbox) => gone,
            gone = talk.listen(reader, answers) => gone,
        };
        voice.say(Err(gone)).await;
    }
}

struct Talk<'a> {
    blob: Digest,
    layout: Layout,
    ledger: &'a Mutex<Ledger>,
    moved: &'a Notify,
    voice: &'a Voice,
    down: &'a Throttle,
}

type Pending = (u32, Asked);

impl Talk<'_> {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no holder of this lock panics")
    }

    /// Offers, and asks for what is taken. What is asked for and not answered is bounded by the window.
    async fn ask(
        &self,
        mut writer: WriteHalf<Box<dyn Duplex>>,
        mut number: u32,
        asked: mpsc::UnboundedSender<Pending>,
        mut outbox: mpsc::Receiver<Out>,
    ) -> Gone {
        let mut have_at = Instant::now() + HAVE_EVERY;
        loop {
            let (offer, wait_ms) = {
                let mut ledger = self.ledger();
                (ledger.offer(self.layout), ledger.wait_ms())
            };
            if let Some(pieces) = offer {
                self.voice.say(Ok(Message::Offer { wait_ms, pieces })).await;
            } else if self.ledger().is_useless() {
                return Gone::Broken("it has nothing that is needed".to_owned());
            }
            tokio::select! {
                out = outbox.recv() => {
                    let Some(out) = out else { return Gone::Broken("the exchange ended".to_owned()) };
                    let piece = match out {
                        Out::Word(Message::Take(piece)) => piece,
                        Out::Word(word) => {
                            self.ledger().hear(&word);
                            continue;
                        }
                        Out::Bytes { .. } | Out::Accepted(_) => continue,
                    };
                    let Some(length) = self.layout.length(piece) else { continue };
                    self.ledger().take(piece);
                    let request = Request::Piece { blob: self.blob, piece };
                    number = number.wrapping_add(1);
                    if let Err(error) = send(&mut writer, number, &request).await {
                        return error.into();
                    }
                    let _ = asked.send((number, Asked::Piece { piece, length }));
                }
                () = self.moved.notified() => {}
                () = sleep_until(have_at) => {
                    have_at = Instant::now() + HAVE_EVERY;
                    if self.ledger().has.is_full() {
                        continue;
                    }
                    number = number.wrapping_add(1);
                    if let Err(error) = send(&mut writer, number, &Request::Have { blob: self.blob }).await {
                        return error.into();
                    }
                    let _ = asked.send((number, Asked::Have));
                }
            }
        }
    }

    /// Takes the answers, in the order of the requests.
    async fn listen(&self, mut reader: ReadHalf<Box<dyn Duplex>>, mut answers: mpsc::UnboundedReceiver<Pending>) -> Gone {
        while let Some((number, asked)) = answers.recv().await {
            let answered = match asked {
                Asked::Have => self.take_have(&mut reader, number).await,
                Asked::Piece { piece, length } => self.pass_on(&mut reader, number, piece, length).await,
            };
            if let Err(gone) = answered {
                return gone;
            }
            self.moved.notify_one();
        }
        Gone::Broken("the exchange ended".to_owned())
    }

    async fn take_have(&self, reader: &mut ReadHalf<Box<dyn Duplex>>, number: u32) -> Result<(), Gone> {
        let Answer::Have(bytes) = wire::read_answer(reader, number, Expected::Have(self.layout)).await? else {
            return Err(Gone::Broken("the blob is not there any more".to_owned()));
        };
        let has = PieceSet::from_bytes(self.layout, &bytes).map_err(|_| Gone::Charged(Charge::BadDescription))?;
        let news = std::mem::replace(&mut self.ledger().has, has.clone()) != has;
        if news {
            self.voice.say(Ok(Message::Holding(has))).await;
        }
        Ok(())
    }

    /// Hands on a piece as it comes, so that it can be seen to come. A refusal is no end yet.
    async fn pass_on(&self, reader: &mut ReadHalf<Box<dyn Duplex>>, number: u32, piece: u32, length: usize) -> Result<(), Gone> {
        let began = Instant::now();
        match wire::begin_piece(reader, number, length).await? {
            None => {}
            Some(Refusal::Beyond) => return Err(Gone::Charged(Charge::BadDescription)),
            Some(_) => {
                self.voice.say(Ok(Message::Withdraw(piece))).await;
                let too_often = self.ledger().refuse(piece);
                let gone = || Gone::Broken("it refused too many pieces that it said it has".to_owned());
                return if too_often { Err(gone()) } else { Ok(()) };
            }
        }
        for begins in (0..length).step_by(PASSED_ON_BYTES) {
            let bytes = wire::read_part(reader, PASSED_ON_BYTES.min(length - begins)).await?;
            self.down.pay(bytes.len()).await;
            let offset = u32::try_from(begins).expect("a piece has 1 MiB at most");
            self.voice.say(Ok(Message::Part(Part { piece, offset, bytes }))).await;
        }
        self.ledger().arrived(piece, began.elapsed());
        Ok(())
    }
}

async fn send(writer: &mut (impl AsyncWrite + Unpin), number: u32, request: &Request) -> Result<(), wire::WireError> {
    wire::write_request(writer, number, request).await?;
    wire::flush(writer).await
}

impl Ledger {
    /// What is offered next, while the window has room and no offer is open.
    fn offer(&mut self, layout: Layout) -> Option<Vec<u32>> {
        let window = usize::try_from(BLOB_WINDOW_BYTES / layout.piece_bytes()).unwrap_or(1).clamp(1, BLOB_WINDOW_PIECES);
        let timely = ASKED_FOR.as_nanos() / self.usual.as_nanos().max(1);
        let window = window.min(usize::try_from(timely).unwrap_or(usize::MAX).max(2));
        if !self.offered.is_empty() || self.asked.len() >= window {
            return None;
        }
        let now = Instant::now();
        self.passed.retain(|_, until| *until > now);
        let is_open = |piece: &u32| {
            self.has.contains(*piece)
                && !self.here.contains(*piece)
                && !self.asked.contains(piece)
                && !self.passed.contains_key(piece)
        };
        let all = (self.first..layout.count()).chain(0..self.first);
        let pieces: Vec<u32> = all.filter(is_open).take(BLOB_OFFERED).collect();
        let last = *pieces.last()?;
        self.first = (last + 1) % layout.count();
        self.useful = now;
        self.offered.clone_from(&pieces);
        Some(pieces)
    }

    /// Nothing is asked for, nothing could be offered for long.
    fn is_useless(&self) -> bool {
        self.offered.is_empty() && self.asked.is_empty() && self.useful.elapsed() >= USELESS_AFTER
    }

    fn wait_ms(&self) -> u32 {
        let ahead = u32::try_from(self.asked.len()).unwrap_or(u32::MAX).saturating_add(1);
        let wait = self.usual.saturating_mul(ahead).max(ASKED_FOR);
        u32::try_from(wait.as_millis()).unwrap_or(u32::MAX)
    }

    fn hear(&mut self, word: &Message) {
        match word {
            Message::Holding(here) => self.here = here.clone(),
            Message::Have(pieces) => pieces.iter().for_each(|piece| {
                self.here.insert(*piece);
            }),
            Message::Pass => {
                let until = Instant::now() + PASSED_FOR.max(self.usual);
                self.passed.extend(self.offered.drain(..).map(|piece| (piece, until)));
            }
            _ => {}
        }
    }

    fn take(&mut self, piece: u32) {
        self.offered.clear();
        self.asked.insert(piece);
    }

    fn arrived(&mut self, piece: u32, took: Duration) {
        self.asked.remove(&piece);
        self.usual = (self.usual * 7 + took) / 8;
    }

    /// Whether it refused too often.
    fn refuse(&mut self, piece: u32) -> bool {
        self.asked.remove(&piece);
        self.has.remove(piece);
        self.refused += 1;
        self.refused >= BLOB_REFUSALS
    }
}

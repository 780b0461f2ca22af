//! The task of one blob: drives the core's exchange with everything that happens.
//!
//! It waits for nothing but events. Disks are read and written in threads of their own, and each neighbour's stream by a
//! `strand`; both answer with an event. A task that fetches goes on giving when it is done, and ends when nobody takes
//! part for a while.

mod glimpse;
mod neighbours;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use groundswell_core::blob::exchange::{self, Exchange, Message, PartFate};
use groundswell_core::blob::{HashList, Layout, PieceSet};
use groundswell_core::digest::{Digest, Hex32};
use groundswell_core::limits::BLOB_EXPECTED_BYTES;
use groundswell_core::node_id::NodeId;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::glimpse::{Moved, Seen};
use self::neighbours::{Opening, Pause};
use super::strand::{Gone, Heard, INBOX, Out, Strand};
use super::{Shared, Terms};
use crate::blobs::limits::{DAMAGED_TIMES, SERVED_IDLE};
use crate::blobs::{Charge, Described, Duplex, PieceSink, Progress, ReadError, SinkError};

/// How often a source that has only part is looked at, while its part is given.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pieces of one blob that are read at once: the disk works on the next while one is sent, whoever asks for how many.
const READ_AT_ONCE: usize = 2;
/// Where this node bounds what it takes, no more is asked for than comes in this time: a neighbour gives up whoever
/// acknowledges nothing for several times as long.
const TAKEN_WITHIN: Duration = Duration::from_secs(4);
/// How often progress is told at most.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// What a task fetches, for whom.
pub(super) struct Fetch {
    pub(super) blake3: Hex32,
    pub(super) sink: Arc<dyn PieceSink>,
    pub(super) peers: watch::Receiver<Vec<NodeId>>,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) done: oneshot::Sender<Result<(), SinkError>>,
}

/// A stream that a member opened about this blob.
pub(super) struct Inbound {
    pub(super) peer: NodeId,
    pub(super) stream: Box<dyn Duplex>,
    pub(super) wants_list: bool,
    pub(super) size_bytes: u64,
}

/// How a task ended: what is left to tell whoever waits for it.
pub(super) struct Ended(Option<(oneshot::Sender<Result<(), SinkError>>, SinkError)>);

impl Ended {
    pub(super) fn tell(self) {
        if let Some((done, error)) = self.0 {
            // Nobody may wait any more.
            let _ = done.send(Err(error));
        }
    }
}

enum Work {
    /// A piece was verified and stored, or not.
    Stored { peer: NodeId, piece: u32, length: usize, outcome: Result<Arc<Vec<u8>>, NotStored> },
    /// A piece was read for a neighbour.
    Read { piece: u32, outcome: Result<Vec<u8>, ReadError> },
    /// The sink has done what stored pieces left to be done.
    KeptUp(Result<(), SinkError>),
    /// What the source holds of a blob that is not being fetched.
    Described(Option<Described>),
    /// Everything is here, and the whole was checked.
    Finished(Result<(), SinkError>),
}

enum NotStored {
    Bad,
    Sink(SinkError),
}

/// See the module.
pub(super) struct Swarm {
    shared: Arc<Shared>,
    blob: Digest,
    layout: Layout,
    list: Option<Arc<HashList>>,
    exchange: Exchange,
    epoch: Instant,
    fetch: Option<Fetch>,
    strands: BTreeMap<NodeId, Strand>,
    numbers: u64,
    tasks: JoinSet<()>,
    openings: JoinSet<Opening>,
    being_opened: BTreeSet<NodeId>,
    pauses: BTreeMap<NodeId, Pause>,
    /// Who was given the hash list of late, and when.
    lists_given: BTreeMap<NodeId, Instant>,
    inbound: mpsc::Receiver<Inbound>,
    inbox: mpsc::Receiver<Heard>,
    voices: mpsc::Sender<Heard>,
    work: JoinSet<Work>,
    /// Pieces of which some parts are here; one for each that the exchange expects.
    partly: BTreeMap<u32, Vec<u8>>,
    /// Bytes of whole pieces that wait to be verified and stored: those that are expected, and those of neighbours that have
    /// left since. While they are more than may be expected, nobody is heard.
    storing_bytes: u64,
    /// Pieces that are being read, at most [`READ_AT_ONCE`].
    reading: BTreeSet<u32>,
    keeping_up: bool,
    finishing: bool,
    damaged: u32,
    charged: BTreeMap<NodeId, Charge>,
    told: Option<Instant>,
    seen: Seen,
    /// Of those that take part, and of some that did.
    moved: BTreeMap<NodeId, Moved>,
    /// Since when nobody takes part.
    alone: Option<Instant>,
    /// Whether there is nothing to give any more.
    over: bool,
    looking: bool,
    looked: Instant,
}

impl Swarm {
    pub(super) fn new(
        shared: Arc<Shared>,
        blob: Digest,
        layout: Layout,
        held: PieceSet,
        list: Option<HashList>,
        fetch: Option<Fetch>,
        inbound: mpsc::Receiver<Inbound>,
    ) -> Self {
        let room_bytes = shared.terms.rates.down.bytes_in(TAKEN_WITHIN).unwrap_or(BLOB_EXPECTED_BYTES);
        let Terms { serves, uploads, .. } = shared.terms;
        let terms = exchange::Terms { serves, takes: fetch.is_some(), uploads, room_bytes };
        let exchange = Exchange::new(layout, held, terms, seed(&shared.local, &blob), Duration::ZERO);
        let (voices, inbox) = mpsc::channel(INBOX);
        Self {
            shared,
            blob,
            layout,
            list: list.map(Arc::new),
            exchange,
            epoch: Instant::now(),
            fetch,
            strands: BTreeMap::new(),
            numbers: 0,
            tasks: JoinSet::new(),
            openings: JoinSet::new(),
            being_opened: BTreeSet::new(),
            pauses: BTreeMap::new(),
            lists_given: BTreeMap::new(),
            inbound,
            inbox,
            voices,
            work: JoinSet::new(),
            partly: BTreeMap::new(),
            storing_bytes: 0,
            reading: BTreeSet::new(),
            keeping_up: false,
            finishing: false,
            damaged: 0,
            charged: BTreeMap::new(),
            told: None,
            seen: Seen::default(),
            moved: BTreeMap::new(),
            alone: None,
            over: false,
            looking: false,
            looked: Instant::now(),
        }
    }

    /// Takes part until the fetch is given up, or this node's disk fails, or nobody has taken part for long.
    pub(super) async fn run(mut self) -> Ended {
        let mut peers_known = true;
        loop {
            let next_try = self.open_strands();
            self.finish_if_whole();
            self.look_at_source();
            let wake = self.settle().into_iter().chain(next_try).min();
            if self.is_over() {
                // Whoever comes now finds nobody and begins anew.
                self.inbound.close();
                return Ended(None);
            }
            let event = tokio::select! {
                Some(heard) = self.inbox.recv(), if self.hears() => { self.on_all_heard(heard); Ok(()) }
                Some(worked) = self.work.join_next() => settled(worked).map_or(Ok(()), |worked| self.on_work(worked)),
                Some(opened) = self.openings.join_next() => match settled(opened) {
                    Some(opened) => self.on_opened(opened).await,
                    None => Ok(()),
                },
                Some(inbound) = self.inbound.recv() => { self.on_inbound(inbound).await; Ok(()) }
                wanted = wanted(&mut self.fetch, peers_known) => match wanted {
                    Wanted::Peers => Ok(()),
                    Wanted::NoPeers => { peers_known = false; Ok(()) }
                    Wanted::GivenUp => return Ended(None),
                },
                Some(_) = self.tasks.join_next() => Ok(()),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => Ok(()),
            };
            if let Err(error) = event {
                return Ended(self.fetch.take().map(|fetch| (fetch.done, error)));
            }
        }
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    fn is_over(&mut self) -> bool {
        if self.fetch.is_some() || !self.strands.is_empty() {
            self.alone = None;
            return self.over;
        }
        self.over || self.alone.get_or_insert_with(Instant::now).elapsed() >= SERVED_IDLE
    }

    /// Whether the disk keeps up with what comes. A neighbour that leaves and comes back is promised room anew, while what it
    /// brought before still waits.
    fn hears(&self) -> bool {
        self.storing_bytes <= BLOB_EXPECTED_BYTES
    }

    /// Takes what is there at once: what follows from it is decided once.
    fn on_all_heard(&mut self, first: Heard) {
        self.on_heard(first);
        for _ in 1..INBOX {
            if !self.hears() {
                return;
            }
            let Ok(heard) = self.inbox.try_recv() else { return };
            self.on_heard(heard);
        }
    }

    fn on_heard(&mut self, heard: Heard) {
        let Heard { peer, number, what } = heard;
        if let Ok(Message::Part(part)) = &what {
            self.shared.tally.received(part.bytes.len());
            self.moved.entry(peer).or_default().received.add(part.bytes.len());
        }
        if self.strands.get(&peer).is_none_or(|strand| strand.number != number) {
            return;
        }
        match what {
            Ok(Message::Part(part)) => self.on_part(peer, part),
            Ok(message) => {
                if let Err(breach) = self.exchange.heard(self.now(), peer, &message) {
                    tracing::warn!(%peer, blob = %self.blob, %breach, "a peer broke the protocol of pieces");
                    self.charge(peer, Charge::Breach);
                }
            }
            Err(Gone::Charged(charge)) => self.charge(peer, charge),
            Err(Gone::Broken(reason)) => {
                tracing::debug!(%peer, blob = %self.blob, reason, "a neighbour of a swarm is gone");
                self.part_with(peer);
            }
        }
    }

    fn on_part(&mut self, peer: NodeId, part: exchange::Part) {
        let exchange::Part { piece, offset, bytes } = part;
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let fate = self.exchange.part(self.now(), peer, piece, offset, bytes.len());
        let is_whole = match fate {
            Ok(PartFate::Keep) => false,
            Ok(PartFate::Whole) => true,
            Ok(PartFate::Drop) => return self.shared.tally.wasted(bytes.len()),
            Err(breach) => {
                tracing::warn!(%peer, blob = %self.blob, %breach, "a peer broke the protocol of pieces");
                return self.charge(peer, Charge::Breach);
            }
        };
        let whole = self.layout.length(piece).unwrap_or(0);
        let buffer = self.partly.entry(piece).or_default();
        if offset == 0 {
            // Another may have sent some of it before.
            buffer.clear();
            buffer.reserve_exact(whole);
        }
        buffer.extend_from_slice(&bytes);
        if is_whole {
            self.store(peer, piece);
        }
    }

    /// Verifies and stores a piece that is whole.
    fn store(&mut self, peer: NodeId, piece: u32) {
        let (Some(bytes), Some(list), Some(fetch)) = (self.partly.remove(&piece), &self.list, &self.fetch) else { return };
        let (list, sink, length) = (Arc::clone(list), Arc::clone(&fetch.sink), bytes.len());
        self.storing_bytes += u64::try_from(length).unwrap_or(u64::MAX);
        self.work.spawn_blocking(move || {
            let outcome = match list.verify_piece(piece, &bytes) {
                Err(_) => Err(NotStored::Bad),
                Ok(()) => sink.write_piece(piece, &bytes).map(|()| Arc::new(bytes)).map_err(NotStored::Sink),
            };
            Work::Stored { peer, piece, length, outcome }
        });
    }

    fn on_work(&mut self, work: Work) -> Result<(), SinkError> {
        match work {
            Work::Stored { peer, piece, length, outcome } => {
                self.storing_bytes -= u64::try_from(length).unwrap_or(u64::MAX);
                return self.on_stored(peer, piece, outcome);
            }
            Work::KeptUp(outcome) => {
                self.keeping_up = false;
                return outcome;
            }
            Work::Read { piece, outcome: Ok(bytes) } => {
                self.reading.remove(&piece);
                self.shared.cache.put(self.blob, piece, Arc::new(bytes));
            }
            Work::Read { piece, outcome: Err(error) } => {
                self.reading.remove(&piece);
                tracing::warn!(blob = %self.blob, piece, %error, "a piece cannot be given");
                // The file may be another by now, or gone: what is not here is neither sent nor offered again.
                self.exchange.unreadable(piece);
                // What is not fetched is not there any more.
                self.over |= self.fetch.is_none();
            }
            Work::Described(described) => {
                self.looking = false;
                let held = described.map_or_else(|| PieceSet::empty(self.layout), |described| described.held);
                self.over |= held.held() == 0;
                let news: Vec<u32> = self.exchange.held().missing().filter(|piece| held.contains(*piece)).collect();
                let now = self.now();
                news.into_iter().for_each(|piece| self.exchange.stored(now, piece));
            }
            Work::Finished(outcome) => return self.on_finished(outcome),
        }
        Ok(())
    }

    fn on_stored(&mut self, peer: NodeId, piece: u32, outcome: Result<Arc<Vec<u8>>, NotStored>) -> Result<(), SinkError> {
        match outcome {
            Ok(bytes) => {
                self.exchange.stored(self.now(), piece);
                if self.exchange.may_be_taken(piece) {
                    self.shared.cache.put(self.blob, piece, bytes);
                }
                self.keep_up();
            }
            // Whoever sent it, over this stream or one before.
            Err(NotStored::Bad) => self.charge(peer, Charge::BadPiece),
            Err(NotStored::Sink(error)) => return Err(error),
        }
        Ok(())
    }

    /// Others may bring what is given here without being fetched here: looks for it.
    fn look_at_source(&mut self) {
        let due = self.looked.elapsed() >= LOOK_EVERY;
        if self.fetch.is_some() || self.strands.is_empty() || self.looking || self.exchange.is_complete() || !due {
            return;
        }
        (self.looking, self.looked) = (true, Instant::now());
        let (source, blob) = (Arc::clone(&self.shared.source), self.blob);
        self.work.spawn_blocking(move || Work::Described(source.describe(&blob)));
    }

    /// Lets the sink do what a stored piece leaves to be done; whoever waits for the piece has it by then.
    fn keep_up(&mut self) {
        let Some(fetch) = self.fetch.as_ref().filter(|_| !self.keeping_up && !self.finishing) else { return };
        self.keeping_up = true;
        let sink = Arc::clone(&fetch.sink);
        self.work.spawn_blocking(move || Work::KeptUp(sink.keep_up()));
    }

    fn finish_if_whole(&mut self) {
        if self.finishing || !self.exchange.is_complete() {
            return;
        }
        let Some(fetch) = &self.fetch else { return };
        self.finishing = true;
        let sink = Arc::clone(&fetch.sink);
        self.work.spawn_blocking(move || Work::Finished(sink.finish()));
    }

    fn on_finished(&mut self, outcome: Result<(), SinkError>) -> Result<(), SinkError> {
        match outcome {
            Ok(()) => {
                self.told = None;
                self.tell();
                if let Some(fetch) = self.fetch.take() {
                    // Nobody may wait any more; the blob is here all the same.
                    let _ = fetch.done.send(Ok(()));
                }
                self.partly.clear();
                Ok(())
            }
            Err(SinkError::Damaged { pieces }) if self.damaged < DAMAGED_TIMES => {
                self.damaged += 1;
                self.finishing = false;
                tracing::warn!(blob = %self.blob, pieces = pieces.len(), "fetching again what this disk damaged");
                self.shared.cache.clear(&self.blob);
                pieces.iter().for_each(|piece| self.exchange.forget(*piece));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Says and sends what is due. Returns when to come back though nothing happens.
    fn settle(&mut self) -> Option<Instant> {
        let now = self.now();
        self.exchange.tick(now);
        for silent in self.exchange.take_silent() {
            tracing::debug!(peer = %silent, blob = %self.blob, "a neighbour of a swarm keeps no promise");
            self.give_up(silent);
        }
        self.partly.retain(|piece, _| self.exchange.expects(*piece));
        self.let_complete_go();
        let mut choked = Vec::new();
        for (peer, message) in self.exchange.take_messages(now) {
            if self.strands.get(&peer).is_some_and(|strand| !strand.send(Out::Word(message))) {
                choked.push(peer);
            }
        }
        let closed_until = self.send_parts(&mut choked);
        choked.into_iter().for_each(|peer| self.part_with(peer));
        self.tell();
        if self.picture() {
            self.shared.cache.keep(&self.blob, |piece| self.exchange.may_be_taken(piece));
        }
        if self.fetch.is_none() && self.strands.is_empty() {
            return Some(self.alone.unwrap_or_else(Instant::now) + SERVED_IDLE);
        }
        let wake = self.epoch + self.exchange.next_wakeup();
        Some(closed_until.map_or(wake, |until| until.min(wake)))
    }

    /// Who has everything and gets nothing here makes room for others.
    fn let_complete_go(&mut self) {
        if !self.exchange.is_complete() {
            return;
        }
        let complete = self.exchange.neighbours().filter(|(_, pieces)| *pieces == self.layout.count());
        let complete: Vec<NodeId> = complete.map(|(peer, _)| peer).collect();
        for peer in complete {
            self.note_complete(peer);
            self.part_with(peer);
        }
    }

    /// Sends what the windows and the rate have room for. Returns until when the rate has none.
    fn send_parts(&mut self, choked: &mut Vec<NodeId>) -> Option<Instant> {
        let (shared, blob) = (Arc::clone(&self.shared), self.blob);
        loop {
            if let Some(until) = shared.terms.rates.up.closed_until() {
                return Some(until);
            }
            let now = self.now();
            // Had before it is counted as sent: what cannot be read is withdrawn, and nothing of it was sent. Other swarms
            // may drop it from memory meanwhile.
            let mut at_hand = BTreeMap::new();
            let out = self.exchange.next_part_of(now, |piece| {
                let found = shared.cache.get(&blob, piece);
                at_hand.extend(found.map(|of| (piece, of)));
                at_hand.contains_key(&piece)
            });
            let Some(out) = out else { break };
            let of = at_hand.remove(&out.piece).expect("only what is at hand is sent");
            shared.terms.rates.up.spend(out.length);
            shared.tally.sent(out.length);
            self.moved.entry(out.peer).or_default().sent.add(out.length);
            if self.strands.get_mut(&out.peer).is_some_and(|strand| !strand.send_part(&out, of)) {
                choked.push(out.peer);
            }
        }
        while self.reading.len() < READ_AT_ONCE {
            let at_hand = |piece: u32| self.reading.contains(&piece) || shared.cache.get(&blob, piece).is_some();
            let Some(piece) = self.exchange.next_to_read(self.now(), at_hand) else { break };
            self.reading.insert(piece);
            let source = Arc::clone(&shared.source);
            self.work.spawn_blocking(move || Work::Read { piece, outcome: source.read_piece(&blob, piece) });
        }
        None
    }

    fn tell(&mut self) {
        let Some(fetch) = &self.fetch else { return };
        if self.told.is_some_and(|told| told.elapsed() < TOLD_EVERY) {
            return;
        }
        self.told = Some(Instant::now());
        let standing = self.exchange.standing(self.now());
        let progress = Progress {
            held: self.exchange.held().held(),
            pieces: self.layout.count(),
            peers: standing.peers,
            has_source: standing.has_source,
            copies_ppm: standing.copies_ppm,
            peers_complete: standing.peers_complete,
            charged: self.charged.clone(),
        };
        fetch.progress.send_if_modified(|last| {
            let news = *last != progress;
            *last = progress;
            news
        });
    }
}

/// Another order among equally rare pieces for every node and blob, without a source of chance.
fn seed(local: &NodeId, blob: &Digest) -> u64 {
    let [b0, b1, b2, b3, b4, b5, b6, b7, ..] = Digest::of(&[local.0, blob.0].concat()).0;
    u64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7])
}

/// What can happen to a fetch from outside.
enum Wanted {
    /// Its peers changed.
    Peers,
    /// They never will again.
    NoPeers,
    /// Nobody waits for the blob any more.
    GivenUp,
}

async fn wanted(fetch: &mut Option<Fetch>, peers_known: bool) -> Wanted {
    let Some(Fetch { peers, done, .. }) = fetch else { return std::future::pending().await };
    tokio::select! {
        changed = peers.changed(), if peers_known => if changed.is_ok() { Wanted::Peers } else { Wanted::NoPeers },
        () = done.closed() => Wanted::GivenUp,
    }
}

/// What a task came to; `None` when the runtime ended it. A panic there goes on here.
fn settled<T>(joined: Result<T, tokio::task::JoinError>) -> Option<T> {
    match joined {
        Ok(value) => Some(value),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}

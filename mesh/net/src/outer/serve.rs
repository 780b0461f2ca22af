//! The keeper's side of the outer door: who gets what, how fast, and how many at once.
//!
//! | | stranger | once a member | member |
//! |---|---|---|---|
//! | fleet documents, its own newest certificate | yes | yes | yes |
//! | documents, records of its rollouts and pool, blobs | | yes | yes |
//! | its own status record, pushed | | | yes |
//!
//! A visit is one stream, one request at a time, on a task of the connection: when the connection goes, so does the visit.
//! Each standing has its own places and rates. A request is paid for before anything is looked up: with the most that its
//! answer can be, and what neither the answer was nor looking it up cost is given back. What goes out counts for the node's
//! upload rate beside.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use futures::AsyncWriteExt;
use groundswell_core::blob::Layout;
use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::node_id::NodeId;
use tokio::time::{Instant, sleep, timeout};

use super::OuterSource;
use super::bucket::Buckets;
use super::limits::{
    ALL_FORMERS, ALL_MEMBERS, ALL_STRANGERS, CHUNK_BYTES, FORMER, FORMERS, FRAME_BYTES, IDLE, LIST_ENTRIES, MEMBER, MEMBERS,
    PUSH_COST, RECORD_BYTES, REQUEST_BYTES, REQUEST_COST, Rate, STAMP_ENTRIES, STRANGER, STRANGERS, TAKEN_WITHIN, VISIT,
    VISITS_PER_PEER,
};
use super::wire::{self, Answer, Ask, Refused, Standing, WireError};
use crate::blobs::{BlobSource, Duplex, blocking};
use crate::counters::Tally;
use crate::door::Turns;
use crate::origin::{Origin, has_room};
use crate::pieces::Rates;

/// Whoever asks more than its share is answered this late, so that asking in a loop costs the keeper nothing.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(250);

/// The keeper of one node's outer door.
pub struct OuterDoor {
    fleet: Digest,
    source: Arc<dyn OuterSource>,
    rates: Rates,
    tally: Arc<Tally>,
    house: Mutex<House>,
}

/// Who is here, and how much each had.
struct House {
    strangers: Room,
    formers: Room,
    members: Room,
}

impl House {
    fn room(&mut self, standing: Standing) -> &mut Room {
        match standing {
            Standing::Stranger => &mut self.strangers,
            Standing::Former => &mut self.formers,
            Standing::Member => &mut self.members,
        }
    }
}

/// The places and rates of one standing.
struct Room {
    most: usize,
    taken: Vec<(NodeId, Origin)>,
    rates: Buckets,
    /// Of looking at the certificates of those who have this standing by the documents here.
    turns: Arc<Turns>,
}

impl Room {
    fn new(most: usize, each: Rate, all: Rate) -> Self {
        Self { most, taken: Vec::new(), rates: Buckets::new(each, all), turns: Arc::new(Turns::new()) }
    }
}

/// A visitor that was let in. Dropping it frees its place.
pub struct Visitor {
    door: Arc<OuterDoor>,
    peer: NodeId,
    origin: Origin,
    standing: Standing,
    piece: Arc<Mutex<Option<Piece>>>,
}

/// The piece of a blob that a visitor takes chunk by chunk: read and checked once.
struct Piece {
    sha256: Digest,
    number: u32,
    bytes: Vec<u8>,
}

/// Why a visit ended before the visitor closed it.
#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    /// The stream broke, or the visitor broke the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The visitor asked nothing, or took no answer, for too long.
    #[error("it {0} for too long")]
    Slow(&'static str),
    /// It was not let in.
    #[error("it was not let in: {0}")]
    NotLetIn(Refused),
}

impl OuterDoor {
    /// A keeper that gives what `source` has.
    #[must_use]
    pub(crate) fn new(fleet: Digest, source: Arc<dyn OuterSource>, rates: &Rates, tally: Arc<Tally>) -> Arc<Self> {
        let house = House {
            strangers: Room::new(STRANGERS, STRANGER, ALL_STRANGERS),
            formers: Room::new(FORMERS, FORMER, ALL_FORMERS),
            members: Room::new(MEMBERS, MEMBER, ALL_MEMBERS),
        };
        Arc::new(Self { fleet, source, rates: rates.clone(), tally, house: Mutex::new(house) })
    }

    /// A keeper beside no mesh, for tests of the protocol.
    #[must_use]
    pub fn alone(fleet: Digest, source: Arc<dyn OuterSource>, rates: &Rates) -> Arc<Self> {
        Self::new(fleet, source, rates, Arc::default())
    }

    /// Reads the hello of a visitor from `origin` and gives it a place. The caller bounds the time. Not cancel-safe: drop the stream with it.
    ///
    /// # Errors
    /// When it is not let in; it was told why.
    pub async fn greet(self: &Arc<Self>, peer: NodeId, origin: Origin, stream: &mut impl Duplex) -> Result<Visitor, VisitError> {
        let refused = match wire::read_frame(stream, FRAME_BYTES).await {
            Ok(Some(frame)) => match Ask::decode(&frame) {
                Ok(Ask::Hello { fleet, .. }) if fleet != self.fleet => Refused::Fleet,
                Ok(Ask::Hello { certificate, .. }) => match self.let_in(peer, origin, certificate).await {
                    Ok(visitor) => {
                        Tally::add(&self.tally.door_visits, 1);
                        answer(stream, &Answer::Welcome(visitor.standing).encode()).await?;
                        return Ok(visitor);
                    }
                    Err(refused) => refused,
                },
                Ok(_) | Err(_) => Refused::Malformed,
            },
            Ok(None) => return Err(WireError::Io(io::ErrorKind::UnexpectedEof.into()).into()),
            Err(WireError::Io(error)) => return Err(WireError::Io(error).into()),
            Err(_) => Refused::Malformed,
        };
        Tally::add(&self.tally.door_refused, 1);
        answer(stream, &Answer::Refused(refused).encode()).await?;
        // That it could not be told any more changes nothing.
        drop(stream.close().await);
        Err(VisitError::NotLetIn(refused))
    }

    async fn let_in(self: &Arc<Self>, peer: NodeId, origin: Origin, certificate: Vec<u8>) -> Result<Visitor, Refused> {
        let source = Arc::clone(&self.source);
        let mut standing = blocking(move || source.standing(peer)).await;
        if standing < Standing::Member && !certificate.is_empty() {
            let turns = Arc::clone(&self.house().room(standing).turns);
            turns.place(peer, origin).map_err(Refused::Later)?.turn().await.map_err(Refused::Later)?;
            let source = Arc::clone(&self.source);
            standing = standing.max(blocking(move || source.prove(peer, &certificate)).await);
        }
        let mut house = self.house();
        let Room { most, taken, .. } = house.room(standing);
        // A few visits of one peer at a time, so that nobody takes every place alone; and strangers have as many names as they
        // like.
        let of_peer = taken.iter().filter(|(known, _)| *known == peer).count();
        let leaves_room = standing > Standing::Stranger || has_room(taken.iter().map(|(_, origin)| *origin), origin, *most);
        if taken.len() >= *most || of_peer >= VISITS_PER_PEER || !leaves_room {
            return Err(Refused::Later(1_000));
        }
        taken.push((peer, origin));
        drop(house);
        Ok(Visitor { door: Arc::clone(self), peer, origin, standing, piece: Arc::default() })
    }

    fn house(&self) -> std::sync::MutexGuard<'_, House> {
        self.house.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visitor {
    /// Answers its requests until it closes the stream. Cancel-safe in that dropping it with the stream ends the visit.
    ///
    /// # Errors
    /// Why it was shown out.
    pub async fn serve(self, mut stream: impl Duplex) -> Result<(), VisitError> {
        let ended = timeout(VISIT, self.requests(&mut stream)).await.unwrap_or(Err(VisitError::Slow("stayed")));
        if let Err(VisitError::Wire(WireError::TooLong(..) | WireError::Malformed)) = &ended {
            Tally::add(&self.door.tally.door_breaches, 1);
            // It is told when it can be; that it broke the protocol stands either way.
            drop(answer(&mut stream, &Answer::Refused(Refused::Malformed).encode()).await);
        }
        drop(timeout(TAKEN_WITHIN, stream.close()).await);
        ended
    }

    async fn requests(&self, stream: &mut impl Duplex) -> Result<(), VisitError> {
        loop {
            let frame =
                timeout(IDLE, wire::read_frame(stream, REQUEST_BYTES)).await.map_err(|_| VisitError::Slow("asked nothing"))?;
            let Some(frame) = frame? else { return Ok(()) };
            let ask = Ask::decode(&frame)?;
            if matches!(ask, Ask::Hello { .. }) {
                return Err(WireError::Malformed.into());
            }
            let given = self.give(ask).await;
            if let Err(Refused::Later(_)) = given {
                Tally::add(&self.door.tally.door_postponed, 1);
                sleep(PATIENCE).await;
            }
            let given = given.unwrap_or_else(|refused| Answer::Refused(refused).encode());
            self.door.rates.up.pay(given.len()).await;
            answer(stream, &given).await?;
        }
    }

    /// The encoded answer, paid for before it is looked up.
    async fn give(&self, ask: Ask) -> Result<Vec<u8>, Refused> {
        let allowed = self.standing >= needs(&ask);
        let most = if allowed { price(&ask) } else { 0 };
        self.pay(REQUEST_COST + most)?;
        if !allowed {
            return Err(Refused::Standing);
        }
        let (source, peer, standing) = (Arc::clone(&self.door.source), self.peer, self.standing);
        let (pushes, piece) = (matches!(ask, Ask::Push { .. }), Arc::clone(&self.piece));
        let looked_up = blocking(move || look_up(source.as_ref(), peer, standing, &piece, ask)).await;
        let (given, cost) = (looked_up.answer.map(|given| given.encode()), looked_up.cost);
        let length = given.as_ref().map_or(0, |given| u64::try_from(given.len()).unwrap_or(u64::MAX));
        self.door.house().room(self.standing).rates.give_back(self.peer, most.saturating_sub(length.max(cost)));
        let given = given?;
        if pushes {
            Tally::add(&self.door.tally.door_pushes, 1);
        }
        Tally::add(&self.door.tally.door_bytes_sent, length);
        Ok(given)
    }

    /// Takes `bytes` from what may be served to it.
    fn pay(&self, bytes: u64) -> Result<(), Refused> {
        let now = Instant::now();
        self.door.house().room(self.standing).rates.take(self.peer, bytes, now).map_err(Refused::Later)
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        let mut house = self.door.house();
        let places = &mut house.room(self.standing).taken;
        if let Some(at) = places.iter().position(|known| *known == (self.peer, self.origin)) {
            places.swap_remove(at);
        }
    }
}

/// The least standing for which a request is answered; of documents [`look_up`] looks closer.
fn needs(ask: &Ask) -> Standing {
    match ask {
        Ask::Hello { .. } | Ask::Fleets { .. } | Ask::Certificate | Ask::Document { .. } => Standing::Stranger,
        Ask::Documents { .. } | Ask::Blob { .. } | Ask::Hashes { .. } | Ask::Stamps { .. } | Ask::Record { .. } => {
            Standing::Former
        }
        Ask::Push { .. } => Standing::Member,
    }
}

/// What the answer to a request costs at most: in bytes, beside [`REQUEST_COST`].
fn price(ask: &Ask) -> u64 {
    // With the answer's tag.
    let most = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(1);
    match ask {
        Ask::Hello { .. } => 0,
        Ask::Fleets { .. } | Ask::Documents { .. } => most(LIST_ENTRIES * 65),
        Ask::Certificate => most(2 * 65),
        Ask::Document { .. } | Ask::Blob { .. } | Ask::Hashes { .. } => most(8 + CHUNK_BYTES),
        Ask::Stamps { .. } => most(STAMP_ENTRIES * 48),
        Ask::Record { .. } => most(2 * (2 + RECORD_BYTES)),
        Ask::Push { .. } => PUSH_COST,
    }
}

/// What came of a request.
struct LookedUp {
    answer: Result<Answer, Refused>,
    /// What it cost to look it up, in bytes, however short the answer is. It is never more than the request's price.
    cost: u64,
}

/// Something was read from disk and checked for it: as much as a whole chunk. Whoever takes all of it, chunk after chunk,
/// pays no more for that; whoever asks for its last byte again and again pays each time.
const READ_COST: u64 = CHUNK_BYTES as u64;

fn look_up(source: &dyn OuterSource, peer: NodeId, standing: Standing, piece: &Mutex<Option<Piece>>, ask: Ask) -> LookedUp {
    let mut cost = match &ask {
        // For a page that is empty every record of the fleet is looked at.
        Ask::Stamps { .. } | Ask::Push { .. } => price(&ask),
        Ask::Hashes { .. } => READ_COST,
        _ => 0,
    };
    let answer = find(source, peer, standing, piece, ask, &mut cost);
    LookedUp { answer, cost }
}

fn find(
    source: &dyn OuterSource,
    peer: NodeId,
    standing: Standing,
    piece: &Mutex<Option<Piece>>,
    ask: Ask,
    cost: &mut u64,
) -> Result<Answer, Refused> {
    match ask {
        Ask::Hello { .. } => Err(Refused::Malformed),
        Ask::Fleets { after } => Ok(Answer::List(source.fleets(after))),
        Ask::Certificate => Ok(Answer::List(source.certificate(peer))),
        Ask::Documents { after } => Ok(Answer::List(source.documents(after))),
        Ask::Document { digest, offset } => {
            let (kind, total, bytes) = source.document(&digest, offset, CHUNK_BYTES).ok_or(Refused::NotHere)?;
            let own = || source.certificate(peer).iter().any(|listed| listed.digest == digest);
            let public = kind == Kind::Fleet || (kind == Kind::Node && own());
            if public || (standing >= Standing::Former && kind != Kind::Token) {
                Ok(Answer::Chunk { total, bytes })
            } else {
                // As if it were not here: a stranger learns nothing of what there is.
                Err(Refused::NotHere)
            }
        }
        Ask::Blob { sha256, offset } => blob_chunk(source.blobs().as_ref(), piece, &sha256, offset, cost),
        Ask::Hashes { sha256, offset } => {
            let list = source.blobs().hash_list(&sha256).ok_or(Refused::NotHere)?.to_bytes();
            let total = u64::try_from(list.len()).unwrap_or(u64::MAX);
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(list.len());
            let bytes = list.get(from..list.len().min(from.saturating_add(CHUNK_BYTES))).unwrap_or_default();
            Ok(Answer::Chunk { total, bytes: bytes.to_vec() })
        }
        Ask::Stamps { kind, after } => Ok(Answer::Stamps(source.stamps(peer, kind, after))),
        Ask::Record { kind, node } => {
            let records = source.record(peer, kind, node);
            if records.is_empty() { Err(Refused::NotHere) } else { Ok(Answer::Records(records)) }
        }
        Ask::Push { record } => source.push(peer, record).map(|()| Answer::Taken),
    }
}

/// Only whole blobs are given: a visitor has nobody else to ask for the rest.
fn blob_chunk(
    blobs: &dyn BlobSource,
    kept: &Mutex<Option<Piece>>,
    sha256: &Digest,
    offset: u64,
    cost: &mut u64,
) -> Result<Answer, Refused> {
    let described = blobs.describe(sha256).filter(|described| described.held.is_full()).ok_or(Refused::NotHere)?;
    let total = described.size_bytes;
    if offset >= total {
        return Ok(Answer::Chunk { total, bytes: Vec::new() });
    }
    let layout = Layout::of(total).map_err(|_| Refused::NotHere)?;
    let number = u32::try_from(offset / layout.piece_bytes()).map_err(|_| Refused::NotHere)?;
    let within = usize::try_from(offset % layout.piece_bytes()).unwrap_or(usize::MAX);
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let piece = match kept.take().filter(|piece| piece.sha256 == *sha256 && piece.number == number) {
        Some(piece) => piece,
        None => {
            *cost = READ_COST;
            let bytes = blobs.read_piece(sha256, number).map_err(|error| {
                tracing::debug!(%sha256, number, %error, "a piece cannot be given at the outer door");
                Refused::NotHere
            })?;
            Piece { sha256: *sha256, number, bytes }
        }
    };
    let end = piece.bytes.len().min(within.saturating_add(CHUNK_BYTES));
    let bytes = piece.bytes.get(within.min(end)..end).unwrap_or_default().to_vec();
    // Until its last chunk has gone.
    *kept = (end < piece.bytes.len()).then_some(piece);
    Ok(Answer::Chunk { total, bytes })
}

async fn answer(stream: &mut impl Duplex, message: &[u8]) -> Result<(), VisitError> {
    Ok(timeout(TAKEN_WITHIN, wire::write_frame(stream, message)).await.map_err(|_| VisitError::Slow("took no answer"))??)
}

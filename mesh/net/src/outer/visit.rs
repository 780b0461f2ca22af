//! The visitor's side of the outer door: asks on one stream, waits where it is told to, believes nothing.
//!
//! What comes back is bytes: documents and records are verified by whoever takes them in. A keeper that gives what was not
//! asked for, or more than that, is a liar and the visit ends; so does one that takes longer than its bounds.

use std::io;

use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::{RecordKind, Stamp};
use tokio::time::{Instant, sleep, timeout_at};

use super::limits::{ANSWER_WITHIN, FLEETS, FRAME_BYTES, LATER_LEAST, LEAST_PER_SECOND, LISTED, VISIT, WINDOW};
use super::wire::{self, Answer, Ask, Listed, Refused, Standing, WireError};
use crate::blobs::Duplex;

/// Why a visit cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum VisitFailed {
    /// The keeper cannot be reached, or the connection broke.
    #[error("{0}")]
    Unreachable(String),
    /// The keeper does not let this node in, or does not give what was asked for.
    #[error("refused: {0}")]
    Refused(Refused),
    /// It takes too long.
    #[error("no answer in time")]
    Late,
    /// The keeper answers what was not asked.
    #[error("it breaks the protocol: {0}")]
    Breach(&'static str),
}

impl From<WireError> for VisitFailed {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Io(error) => Self::Unreachable(format!("the stream broke: {error}")),
            WireError::TooLong(..) => Self::Breach("a frame beyond every limit"),
            WireError::Malformed => Self::Breach("a frame that is no answer"),
        }
    }
}

/// A visit at a keeper's door: over after [`VISIT`], whatever the keeper does. Its methods are not cancel-safe: drop the
/// visit with them.
pub struct Visit {
    stream: Box<dyn Duplex>,
    standing: Standing,
    until: Instant,
}

/// Something that comes in chunks: how much of it has come, and whether it comes fast enough.
#[derive(Debug)]
pub(super) struct Course {
    most: u64,
    total: Option<u64>,
    came: u64,
    begun: Instant,
}

impl Course {
    /// Of something that has at most `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { most: u64::try_from(most).unwrap_or(u64::MAX), total: None, came: 0, begun: Instant::now() }
    }

    /// How many bytes came: where the next chunk begins.
    pub(super) fn came(&self) -> u64 {
        self.came
    }

    /// Takes note of a chunk of `length` bytes, the whole having `total`. Whether that is all.
    ///
    /// # Errors
    /// `Breach` when the sizes do not add up, `Late` when it comes too slowly: a byte a minute keeps no visitor.
    pub(super) fn note(&mut self, total: u64, length: usize) -> Result<bool, VisitFailed> {
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        let came = self.came.saturating_add(length);
        let of_another = *self.total.get_or_insert(total) != total;
        if of_another || total > self.most || came > total || (length == 0 && came < total) {
            return Err(VisitFailed::Breach("a size that is not what was asked for"));
        }
        self.came = came;
        let earned = std::time::Duration::from_millis(came.saturating_mul(1_000) / LEAST_PER_SECOND);
        if came < total && self.begun.elapsed() > ANSWER_WITHIN.saturating_add(earned) {
            return Err(VisitFailed::Late);
        }
        Ok(came == total)
    }
}

impl Visit {
    /// Says hello. `certificate` is this node's own in its published form; empty without one.
    ///
    /// # Errors
    /// [`VisitFailed`].
    pub async fn begin(stream: Box<dyn Duplex>, fleet: Digest, certificate: Vec<u8>) -> Result<Self, VisitFailed> {
        let mut visit = Self { stream, standing: Standing::Stranger, until: Instant::now() + VISIT };
        visit.send(&Ask::Hello { fleet, certificate }).await?;
        match visit.receive().await? {
            Answer::Welcome(standing) => visit.standing = standing,
            // It closes: whoever is told "later" comes again.
            Answer::Refused(refused) => return Err(VisitFailed::Refused(refused)),
            _ => return Err(VisitFailed::Breach("no welcome")),
        }
        Ok(visit)
    }

    /// What this node is to the keeper, as the keeper says.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Fleet documents above version `after`, lowest first.
    ///
    /// # Errors
    /// [`VisitFailed`].
    pub async fn fleets(&mut self, after: u64) -> Result<Vec<Listed>, VisitFailed> {
        let listed = self.list(Ask::Fleets { after }).await?;
        if listed.len() > FLEETS { Err(VisitFailed::Breach("more fleet versions than there can be")) } else { Ok(listed) }
    }

    /// This node's own newest certificate.
    ///
    /// # Errors
    /// [`VisitFailed`].
    pub async fn certificate(&mut self) -> Result<Vec<Listed>, VisitFailed> {
        self.list(Ask::Certificate).await
    }

    /// Every document that the keeper lists, rosters excepted, in order of digests.
    ///
    /// # Errors
    /// [`VisitFailed`].
    pub async fn documents(&mut self) -> Result<Vec<Listed>, VisitFailed> {
        let mut all: Vec<Listed> = Vec::new();
        let mut after = Digest([0; 32]);
        loop {
            let page = self.list(Ask::Documents { after }).await?;
            let Some(last) = page.last() else { return Ok(all) };
            let ascends = page.iter().try_fold(after, |before, listed| (listed.digest > before).then_some(listed.digest));
            if ascends.is_none() || all.len() + page.len() > LISTED {
                return Err(VisitFailed::Breach("a list that does not end"));
            }
            after = last.digest;
            all.extend(page);
        }
    }

    /// The published form of a document, at most `most` bytes. What it says is for the caller to verify.
    ///
    /// # Errors
    /// [`VisitFailed`]; `Refused(NotHere)` when the keeper has it no more.
    pub async fn document(&mut self, digest: Digest, most: usize) -> Result<Vec<u8>, VisitFailed> {
        self.whole(most, |offset| Ask::Document { digest, offset }).await
    }

    /// Small documents, several at a time: the published form of each, or why it is not given.
    ///
    /// # Errors
    /// [`VisitFailed`] when the visit cannot go on.
    pub async fn small_documents(&mut self, listed: &[Listed], most: usize) -> Result<Vec<Option<Vec<u8>>>, VisitFailed> {
        let asks = listed.iter().map(|listed| Ask::Document { digest: listed.digest, offset: 0 }).collect();
        let mut documents = Vec::new();
        for (answer, listed) in self.ask_all(asks).await?.into_iter().zip(listed) {
            let published = match answer {
                Answer::Chunk { total, bytes } if u64::try_from(bytes.len()).is_ok_and(|length| length == total) => Some(bytes),
                Answer::Chunk { .. } => Some(self.document(listed.digest, most).await?),
                Answer::Refused(Refused::NotHere) => None,
                _ => return Err(VisitFailed::Breach("no chunk")),
            };
            if published.as_ref().is_some_and(|published| Digest::of(published) != listed.published) {
                return Err(VisitFailed::Breach("another document than it listed"));
            }
            documents.push(published);
        }
        Ok(documents)
    }

    /// Whose records of `kind` there are for this node.
    ///
    /// # Errors
    /// [`VisitFailed`].
    pub async fn stamps(&mut self, kind: RecordKind) -> Result<Vec<(NodeId, Stamp)>, VisitFailed> {
        let mut all: Vec<(NodeId, Stamp)> = Vec::new();
        let mut after = NodeId([0; 32]);
        loop {
            let Answer::Stamps(page) = self.ask(Ask::Stamps { kind, after }).await? else {
                return Err(VisitFailed::Breach("no stamps"));
            };
            let Some((last, _)) = page.last() else { return Ok(all) };
            let ascends = page.iter().try_fold(after, |before, (node, _)| (*node > before).then_some(*node));
            if ascends.is_none() || all.len() + page.len() > groundswell_core::limits::NODES {
                return Err(VisitFailed::Breach("a list that does not end"));
            }
            after = *last;
            all.extend(page);
        }
    }

    /// The records of these nodes, several at a time, in their order; empty where the keeper has none any more.
    ///
    /// # Errors
    /// [`VisitFailed`].
    pub async fn records(&mut self, kind: RecordKind, nodes: &[NodeId]) -> Result<Vec<Vec<Vec<u8>>>, VisitFailed> {
        let asks = nodes.iter().map(|node| Ask::Record { kind, node: *node }).collect();
        let answers = self.ask_all(asks).await?.into_iter().map(|answer| match answer {
            Answer::Records(records) => Ok(records),
            Answer::Refused(Refused::NotHere) => Ok(Vec::new()),
            _ => Err(VisitFailed::Breach("no records")),
        });
        answers.collect()
    }

    /// Hands over this node's own status record.
    ///
    /// # Errors
    /// [`VisitFailed`]; `Refused(Standing)` from a keeper to whom this node is no member.
    pub async fn push(&mut self, record: Vec<u8>) -> Result<(), VisitFailed> {
        match self.ask(Ask::Push { record }).await? {
            Answer::Taken => Ok(()),
            _ => Err(VisitFailed::Breach("no word about the record")),
        }
    }

    /// Size of a blob in bytes.
    ///
    /// # Errors
    /// [`VisitFailed`]; `Refused(NotHere)` when the keeper does not have all of it.
    pub async fn blob_size(&mut self, sha256: Digest) -> Result<u64, VisitFailed> {
        match self.ask(Ask::Blob { sha256, offset: u64::MAX }).await? {
            Answer::Chunk { total, bytes } if bytes.is_empty() => Ok(total),
            _ => Err(VisitFailed::Breach("no size of the blob")),
        }
    }

    /// `length` bytes of a blob from `offset` on.
    ///
    /// # Errors
    /// [`VisitFailed`].
    pub async fn blob(&mut self, sha256: Digest, offset: u64, length: usize) -> Result<Vec<u8>, VisitFailed> {
        let (mut part, mut course) = (Vec::new(), Course::new(length));
        let total = u64::try_from(length).unwrap_or(u64::MAX);
        loop {
            let (_, mut bytes) = self.chunk(Ask::Blob { sha256, offset: offset.saturating_add(course.came()) }).await?;
            bytes.truncate(length.saturating_sub(part.len()));
            let all = course.note(total, bytes.len())?;
            part.extend_from_slice(&bytes);
            if all {
                return Ok(part);
            }
        }
    }

    /// The hash list of a blob, at most `most` bytes.
    ///
    /// # Errors
    /// [`VisitFailed`].
    pub async fn hashes(&mut self, sha256: Digest, most: usize) -> Result<Vec<u8>, VisitFailed> {
        self.whole(most, |offset| Ask::Hashes { sha256, offset }).await
    }

    /// One chunk of something: the size of the whole, and the bytes.
    pub(super) async fn chunk(&mut self, ask: Ask) -> Result<(u64, Vec<u8>), VisitFailed> {
        match self.ask(ask).await? {
            Answer::Chunk { total, bytes } => Ok((total, bytes)),
            _ => Err(VisitFailed::Breach("no chunk")),
        }
    }

    /// All chunks of one thing.
    async fn whole(&mut self, most: usize, ask: impl Fn(u64) -> Ask) -> Result<Vec<u8>, VisitFailed> {
        let (mut whole, mut course) = (Vec::new(), Course::new(most));
        loop {
            let (total, bytes) = self.chunk(ask(course.came())).await?;
            let all = course.note(total, bytes.len())?;
            whole.extend_from_slice(&bytes);
            if all {
                return Ok(whole);
            }
        }
    }

    async fn list(&mut self, ask: Ask) -> Result<Vec<Listed>, VisitFailed> {
        match self.ask(ask).await? {
            Answer::List(listed) => Ok(listed),
            _ => Err(VisitFailed::Breach("no list")),
        }
    }

    /// One request and its answer; a refusal is an error.
    async fn ask(&mut self, ask: Ask) -> Result<Answer, VisitFailed> {
        match self.ask_all(vec![ask]).await?.pop() {
            Some(Answer::Refused(refused)) => Err(VisitFailed::Refused(refused)),
            Some(answer) => Ok(answer),
            None => Err(VisitFailed::Breach("no answer")),
        }
    }

    /// The answers to `asks`, in their order. Where the keeper says "later" it asks again then.
    async fn ask_all(&mut self, asks: Vec<Ask>) -> Result<Vec<Answer>, VisitFailed> {
        let mut answers: Vec<Option<Answer>> = asks.iter().map(|_| None).collect();
        let mut open: Vec<usize> = (0..asks.len()).collect();
        let mut patience = Instant::now() + ANSWER_WITHIN;
        while !open.is_empty() {
            let now: Vec<usize> = open.iter().copied().take(WINDOW).collect();
            for at in &now {
                if let Some(ask) = asks.get(*at) {
                    self.send(ask).await?;
                }
            }
            let mut later = None;
            for at in now {
                match self.receive().await? {
                    Answer::Refused(Refused::Later(wait_ms)) => later = later.max(Some(wait_ms)),
                    answer => {
                        if let Some(place) = answers.get_mut(at) {
                            *place = Some(answer);
                        }
                        open.retain(|open| *open != at);
                        patience = Instant::now() + ANSWER_WITHIN;
                    }
                }
            }
            if let Some(wait_ms) = later {
                let pause = std::time::Duration::from_millis(u64::from(wait_ms)).max(LATER_LEAST);
                if Instant::now() + pause > patience.min(self.until) {
                    return Err(VisitFailed::Refused(Refused::Later(wait_ms)));
                }
                sleep(pause).await;
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    async fn send(&mut self, ask: &Ask) -> Result<(), VisitFailed> {
        let sent = timeout_at(self.by(), wire::write_frame(&mut self.stream, &ask.encode())).await;
        Ok(sent.map_err(|_| VisitFailed::Late)??)
    }

    async fn receive(&mut self) -> Result<Answer, VisitFailed> {
        let frame = timeout_at(self.by(), wire::read_frame(&mut self.stream, FRAME_BYTES)).await;
        let frame = frame.map_err(|_| VisitFailed::Late)??;
        let frame = frame.ok_or_else(|| WireError::Io(io::ErrorKind::UnexpectedEof.into()))?;
        Ok(Answer::decode(&frame)?)
    }

    /// By when the next frame must have gone or come.
    fn by(&self) -> Instant {
        self.until.min(Instant::now() + ANSWER_WITHIN)
    }
}

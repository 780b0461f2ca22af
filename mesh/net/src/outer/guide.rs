//! Blobs and rosters through outer doors by the ordinary download: a stream to a keeper looks like one to a member.
//!
//! So pieces are verified, kept, resumed and charged exactly as in the mesh. The stream is one end of a pipe; a task
//! of the guide reads blob requests at the other end, asks the keeper in the door's own words, and passes on what comes as it
//! comes. The task ends with the download's end of the pipe, with the visit, and after the longest that a visit may take.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use groundswell_core::blob::{HashList, Layout, PieceSet};
use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::compat::TokioAsyncReadCompatExt;

use super::limits::{ANSWER_WITHIN, CHUNK_BYTES, VISIT};
use super::visit::{Course, Visit, VisitFailed};
use super::wire::{Ask, Refused};
use crate::blobs::wire::{self, Answer, Long, Refusal, Request};
use crate::blobs::{Connect, ConnectError, Duplex, limits};
use crate::config::VISITS;
use crate::held::Held;
use crate::{Admission, Network};

/// Bytes between a keeper and a download: one chunk of a visit.
const PIPE_BYTES: usize = CHUNK_BYTES;

/// Opens streams to admitted peers, and through outer doors to those that can only be visited.
pub struct Guide {
    network: Network,
    admission: Arc<dyn Admission>,
    keepers: Mutex<BTreeMap<NodeId, Vec<String>>>,
    /// Visits that may be under way; one more is kept for documents.
    places: Arc<Semaphore>,
    /// The tasks between pipes and keepers: one for each stream, ended with it.
    bridges: Arc<Mutex<JoinSet<()>>>,
}

impl Guide {
    /// A guide that knows no keeper yet.
    #[must_use]
    pub fn new(network: Network, admission: Arc<dyn Admission>) -> Self {
        let places = Arc::new(Semaphore::new(VISITS - 1));
        Self { network, admission, keepers: Mutex::default(), places, bridges: Arc::default() }
    }

    /// Who can be visited, and where; replaces those known before.
    pub fn set_keepers(&self, keepers: BTreeMap<NodeId, Vec<String>>) {
        *self.keepers.lock().unwrap_or_else(PoisonError::into_inner) = keepers;
    }
}

impl Connect for Guide {
    fn pieces(&self, peer: NodeId) -> BoxFuture<'static, Result<Option<Box<dyn Duplex>>, ConnectError>> {
        let visited = self.keepers.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&peer);
        // A door knows only requests.
        if visited { Box::pin(std::future::ready(Ok(None))) } else { self.network.pieces(peer) }
    }

    fn connect(&self, peer: NodeId) -> BoxFuture<'static, Result<Box<dyn Duplex>, ConnectError>> {
        let known = self.keepers.lock().unwrap_or_else(PoisonError::into_inner).get(&peer).cloned();
        let Some(addresses) = known else { return self.network.connect(peer) };
        let (network, bridges, places) = (self.network.clone(), Arc::clone(&self.bridges), Arc::clone(&self.places));
        let (fleet, certificate) = (self.admission.fleet(), self.admission.own_proof());
        async move {
            let failed = |error: VisitFailed| ConnectError(format!("through its outer door: {error}"));
            let busy = |_| ConnectError(format!("{VISITS} visits at outer doors are under way"));
            let place = places.try_acquire_owned().map_err(busy)?;
            let begin = async {
                let (_, stream) = network.visit(Some(peer), addresses).await?;
                Visit::begin(stream, fleet, certificate).await
            };
            let visit = timeout(ANSWER_WITHIN, begin).await.unwrap_or(Err(VisitFailed::Late)).map_err(failed)?;
            let (near, far) = tokio::io::duplex(PIPE_BYTES);
            let (near, gone) = Held::new(near.compat());
            let mut bridges = bridges.lock().unwrap_or_else(PoisonError::into_inner);
            while bridges.try_join_next().is_some() {}
            bridges.spawn(async move {
                if let Err(error) = until_gone(gone, bridge(visit, far.compat())).await {
                    tracing::debug!(%peer, %error, "a visit for a blob ended");
                }
                drop(place);
            });
            Ok(Box::new(near) as Box<dyn Duplex>)
        }
        .boxed()
    }
}

/// A bridge for as long as its download has the other end, and no longer than a visit lasts.
async fn until_gone(
    gone: oneshot::Receiver<()>,
    bridge: impl Future<Output = Result<(), VisitFailed>>,
) -> Result<(), VisitFailed> {
    tokio::select! {
        // Its sender sends nothing: it is dropped with the pipe's other end.
        _ = gone => Ok(()),
        ended = timeout(VISIT, bridge) => ended.unwrap_or(Err(VisitFailed::Late)),
    }
}

/// Answers blob requests with what the keeper gives, until the download closes its end.
async fn bridge(mut visit: Visit, mut pipe: impl Duplex) -> Result<(), VisitFailed> {
    let mut sizes: BTreeMap<Digest, u64> = BTreeMap::new();
    while let Some((number, request)) = wire::read_request(&mut pipe, limits::SERVED_IDLE).await.map_err(broken)? {
        let answer = match ask(&mut visit, &mut sizes, request).await {
            Ok(Given::Short(answer)) => answer,
            Ok(Given::Long(beginning)) => {
                pass_on(&mut visit, &mut pipe, number, beginning).await?;
                continue;
            }
            Err(VisitFailed::Refused(Refused::NotHere | Refused::Standing)) => Answer::Refused(Refusal::NotHere),
            Err(error) => return Err(error),
        };
        wire::write_answer(&mut pipe, number, &answer).await.map_err(broken)?;
    }
    Ok(())
}

fn broken(error: wire::WireError) -> VisitFailed {
    VisitFailed::Unreachable(error.to_string())
}

/// What is answered.
enum Given {
    Short(Answer),
    Long(Beginning),
}

/// The first chunk of something long, and where the others come from.
struct Beginning {
    kind: Long,
    total: u64,
    first: Vec<u8>,
    course: Course,
    next: Box<dyn Fn(u64) -> Ask + Send + Sync>,
}

/// Writes something long chunk by chunk, as it comes.
async fn pass_on(visit: &mut Visit, pipe: &mut impl Duplex, number: u32, beginning: Beginning) -> Result<(), VisitFailed> {
    let Beginning { kind, total, first, mut course, next } = beginning;
    let length = u32::try_from(total).map_err(|_| VisitFailed::Breach("a size that is not what was asked for"))?;
    wire::begin_answer(pipe, number, kind, length).await.map_err(broken)?;
    wire::write_part(pipe, &first).await.map_err(broken)?;
    while course.came() < total {
        let (_, mut bytes) = visit.chunk(next(course.came())).await?;
        bytes.truncate(usize::try_from(total - course.came()).unwrap_or(usize::MAX));
        course.note(total, bytes.len())?;
        wire::write_part(pipe, &bytes).await.map_err(broken)?;
    }
    Ok(())
}

/// The beginning of something long of at most `most` bytes; of exactly `exactly`, where that is known beforehand.
async fn begin(
    visit: &mut Visit,
    kind: Long,
    most: usize,
    exactly: Option<usize>,
    next: impl Fn(u64) -> Ask + Send + Sync + 'static,
) -> Result<Given, VisitFailed> {
    let mut course = Course::new(most);
    let (said, mut first) = visit.chunk(next(0)).await?;
    let total = exactly.map_or(said, |exactly| u64::try_from(exactly).unwrap_or(u64::MAX));
    if total == 0 {
        return Err(VisitFailed::Breach("a size that nothing has"));
    }
    first.truncate(usize::try_from(total).unwrap_or(usize::MAX));
    course.note(total, first.len())?;
    Ok(Given::Long(Beginning { kind, total, first, course, next: Box::new(next) }))
}

async fn ask(visit: &mut Visit, sizes: &mut BTreeMap<Digest, u64>, request: Request) -> Result<Given, VisitFailed> {
    let (Request::Describe { blob } | Request::HashList { blob } | Request::Have { blob } | Request::Piece { blob, .. }) =
        request
    else {
        let Request::Document { digest, most_bytes } = request else { return Ok(refused(Refusal::NotHere)) };
        let most = usize::try_from(most_bytes).unwrap_or(usize::MAX).min(limits::PUBLISHED_ROSTER_BYTES);
        return begin(visit, Long::Document, most, None, move |offset| Ask::Document { digest, offset }).await;
    };
    let size_bytes = match sizes.get(&blob) {
        Some(size_bytes) => *size_bytes,
        None => {
            let size_bytes = visit.blob_size(blob).await?;
            // A stream is opened for one blob; more than a few are none of this build's.
            if sizes.len() < limits::SERVED_STREAMS {
                sizes.insert(blob, size_bytes);
            }
            size_bytes
        }
    };
    let layout = Layout::of(size_bytes).map_err(|_| VisitFailed::Breach("a size that no blob has"))?;
    match request {
        Request::Describe { .. } => Ok(Given::Short(Answer::Description { size_bytes, held: layout.count() })),
        Request::Have { .. } => Ok(Given::Short(Answer::Have(PieceSet::full(layout).as_bytes().to_vec()))),
        Request::HashList { .. } => {
            let length = HashList::bytes_for(layout);
            begin(visit, Long::HashList, length, Some(length), move |offset| Ask::Hashes { sha256: blob, offset }).await
        }
        Request::Piece { piece, .. } => {
            let (Some(range), Some(length)) = (layout.range(piece), layout.length(piece)) else {
                return Ok(refused(Refusal::Beyond));
            };
            let next = move |came: u64| Ask::Blob { sha256: blob, offset: range.start.saturating_add(came) };
            begin(visit, Long::Piece, length, Some(length), next).await
        }
        Request::Document { .. } => Ok(refused(Refusal::NotHere)),
    }
}

fn refused(refusal: Refusal) -> Given {
    Given::Short(Answer::Refused(refusal))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::blobs::wire::Expected;
    use crate::outer::wire as door;

    const PIECE: usize = 1 << 20;
    const SIZE: u64 = 300 << 20;

    /// A visit at a keeper that gives every chunk after a while, and then no more.
    async fn visit(every: Duration, chunks: usize) -> Visit {
        let (near, far) = tokio::io::duplex(1 << 20);
        tokio::spawn(async move {
            let mut far = far.compat();
            door::read_frame(&mut far, 70_000).await.unwrap();
            door::write_frame(&mut far, &door::Answer::Welcome(door::Standing::Member).encode()).await.unwrap();
            let mut given = 0;
            while let Ok(Some(frame)) = door::read_frame(&mut far, 70_000).await {
                let bytes = match Ask::decode(&frame).unwrap() {
                    Ask::Blob { offset: u64::MAX, .. } => Vec::new(),
                    _ if given >= chunks => std::future::pending().await,
                    _ => vec![7; CHUNK_BYTES],
                };
                sleep(if bytes.is_empty() { Duration::ZERO } else { every }).await;
                given += usize::from(!bytes.is_empty());
                if door::write_frame(&mut far, &door::Answer::Chunk { total: SIZE, bytes }.encode()).await.is_err() {
                    return;
                }
            }
        });
        Visit::begin(Box::new(near.compat()), Digest([1; 32]), Vec::new()).await.unwrap()
    }

    /// A download's end of a bridge to that keeper, and when the bridge has ended.
    fn bridged(visit: Visit) -> (impl Duplex, tokio::task::JoinHandle<Result<(), VisitFailed>>) {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let (near, gone) = Held::new(near.compat());
        (near, tokio::spawn(until_gone(gone, bridge(visit, far.compat()))))
    }

    async fn piece(stream: &mut impl Duplex) -> Result<Answer, wire::WireError> {
        wire::write_request(stream, 1, &Request::Piece { blob: Digest([2; 32]), piece: 3 }).await.unwrap();
        wire::flush(stream).await.unwrap();
        wire::read_answer(stream, 1, Expected::Piece(PIECE)).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_keeper_gives_a_piece_because_its_bytes_move() {
        // Longer than any download waits for a byte, were the piece passed on as a whole.
        let (mut near, _bridge) = bridged(visit(Duration::from_secs(5), usize::MAX).await);
        assert_eq!(piece(&mut near).await.unwrap(), Answer::Piece(vec![7; PIECE]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_bridge_ends_with_its_download_also_while_it_waits_for_the_keeper() {
        let (mut near, bridge) = bridged(visit(Duration::ZERO, 3).await);
        assert!(matches!(piece(&mut near).await, Err(wire::WireError::Stalled)));
        let start = Instant::now();
        drop(near);
        assert!(bridge.await.unwrap().is_ok());
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bridge_ends_with_the_longest_visit_whatever_its_download_does() {
        let (mut near, bridge) = bridged(visit(Duration::ZERO, usize::MAX).await);
        let start = Instant::now();
        while wire::write_request(&mut near, 1, &Request::Describe { blob: Digest([2; 32]) }).await.is_ok()
            && wire::read_answer(&mut near, 1, Expected::Description).await.is_ok()
        {
            sleep(Duration::from_secs(20)).await;
        }
        assert!(bridge.await.unwrap().is_err());
        assert!(start.elapsed() <= VISIT + Duration::from_secs(30), "{:?}", start.elapsed());
    }
}

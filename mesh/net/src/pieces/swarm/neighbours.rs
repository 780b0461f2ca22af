//! Who takes part: streams opened to peers, streams that came in, and who is gone for now or for its lies.

use std::sync::Arc;
use std::time::Duration;

use groundswell_core::blob::HashList;
use groundswell_core::node_id::NodeId;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::{Inbound, Swarm};
use crate::blobs::limits::{ANSWER_WITHIN, RETRY_FIRST, RETRY_MOST};
use crate::blobs::{Charge, SinkError, blocking};
use crate::pieces::frames::{self, Refusal};
use crate::pieces::opening::{NotOpened, Opened, Via, open};
use crate::pieces::strand::{self, OUTBOX, Out, Strand, Voice};

/// First pause before a neighbour is asked for its hash list again; it gets it in a moment itself.
const LIST_FIRST: Duration = Duration::from_millis(50);
/// Longest such pause.
const LIST_MOST: Duration = Duration::from_secs(1);
/// Longest pause before a peer is asked again that had nothing of the blob: it may be a publisher that is about to have it all.
const NOT_HERE_MOST: Duration = Duration::from_secs(5);
/// Streams that are being opened at once while the hash list is not known: more would bring it several times. As many more
/// for each [`LIST_WITHIN`] in which it did not come: who is slow holds up nobody.
const OPENED_FOR_LIST: usize = 4;
const LIST_WITHIN: Duration = Duration::from_secs(2);
/// The hash list is given again to the same peer after this: it does not change, and counts as what is sent.
const LIST_AGAIN: Duration = Duration::from_secs(10);
/// A neighbour that was of no use for this long makes room, where all places are taken and somebody waits for one.
const USELESS: Duration = Duration::from_secs(10);
/// A pause is remembered for this long after its end: whoever comes back and is of no use again waits longer.
const REMEMBERED: Duration = Duration::from_secs(5 * 60);

/// When a peer may be tried again, and how often it failed before.
#[derive(Clone, Copy)]
pub(super) struct Pause {
    until: Instant,
    length: Duration,
    /// It broke its promises: it is not let in either meanwhile.
    faulty: bool,
}

/// What came of opening a stream to a peer.
pub(super) type Opening = (NodeId, Result<Opened, NotOpened>);

impl Swarm {
    /// Opens streams while there is room. Returns when the next paused peer may be tried.
    pub(super) fn open_strands(&mut self) -> Option<Instant> {
        let fetch = self.fetch.as_mut().filter(|_| !self.exchange.is_complete())?;
        let wanted = fetch.peers.borrow_and_update().clone();
        let now = Instant::now();
        self.pauses.retain(|_, pause| pause.until + REMEMBERED > now);
        let mut next_try: Option<Instant> = None;
        let most = self.opened_at_once();
        for peer in wanted {
            if self.strands.contains_key(&peer) || self.being_opened.contains(&peer) || peer == self.shared.local {
                continue;
            }
            let paused = self.pauses.get(&peer).map(|pause| pause.until);
            let until = paused.max(self.shared.standings.charged_until(&peer)).filter(|until| *until > now);
            if let Some(until) = until {
                next_try = Some(next_try.map_or(until, |sooner| sooner.min(until)));
                continue;
            }
            if self.strands.len() + self.being_opened.len() >= most {
                let waits = if self.list.is_none() { LIST_WITHIN } else { USELESS };
                if self.list.is_none() || !self.being_opened.is_empty() || !self.make_room() {
                    let soonest = now + waits;
                    return Some(next_try.map_or(soonest, |sooner| sooner.min(soonest)));
                }
            }
            self.being_opened.insert(peer);
            let (connect, blob, layout) = (Arc::clone(&self.shared.connect), self.blob, self.layout);
            let wants_list = self.list.is_none();
            self.openings.spawn(async move {
                let opened = timeout(ANSWER_WITHIN, open(&*connect, peer, blob, layout, wants_list)).await;
                (peer, opened.unwrap_or_else(|_| Err(NotOpened::Broken("it took too long".to_owned()))))
            });
        }
        next_try
    }

    /// How many streams are open or being opened at once, at most.
    fn opened_at_once(&self) -> usize {
        if self.list.is_some() {
            return self.shared.terms.neighbours;
        }
        let waited = self.epoch.elapsed().as_secs() / LIST_WITHIN.as_secs();
        let times = usize::try_from(waited).unwrap_or(usize::MAX).saturating_add(1);
        OPENED_FOR_LIST.saturating_mul(times).min(self.shared.terms.neighbours)
    }

    /// Whether there is a place for one more, or somebody makes room for it.
    fn has_room(&mut self) -> bool {
        self.strands.len() < self.shared.terms.neighbours || self.make_room()
    }

    /// Parts with the neighbour that has been of no use for longest, if one has been for long.
    fn make_room(&mut self) -> bool {
        let Some(peer) = self.exchange.least_useful(self.now(), USELESS) else { return false };
        tracing::debug!(%peer, blob = %self.blob, "a neighbour of a swarm that is of no use makes room");
        self.part_with(peer);
        true
    }

    pub(super) async fn on_opened(&mut self, (peer, opened): Opening) -> Result<(), SinkError> {
        self.being_opened.remove(&peer);
        let opened = match opened {
            Ok(opened) => opened,
            Err(NotOpened::Charged(charge)) => {
                self.charge(peer, charge);
                return Ok(());
            }
            Err(NotOpened::Refused(Refusal::NoList)) => {
                self.pause(peer, LIST_FIRST, LIST_MOST);
                return Ok(());
            }
            Err(NotOpened::Refused(refusal)) => {
                tracing::debug!(%peer, blob = %self.blob, %refusal, "a peer takes no part in a swarm now");
                self.pause(peer, RETRY_FIRST, if refusal == Refusal::NotHere { NOT_HERE_MOST } else { RETRY_MOST });
                return Ok(());
            }
            Err(NotOpened::Broken(reason)) => {
                tracing::debug!(%peer, blob = %self.blob, reason, "a peer takes no part in a swarm now");
                self.pause(peer, RETRY_FIRST, RETRY_MOST);
                return Ok(());
            }
        };
        if let Some(bytes) = opened.list
            && self.list.is_none()
            && let Some(fetch) = &self.fetch
        {
            let (layout, root, sink) = (self.layout, fetch.blake3, Arc::clone(&fetch.sink));
            let kept = blocking(move || match HashList::verify(layout, root, &bytes) {
                Ok(list) => sink.keep_hash_list(&list).map(|()| Some(list)),
                Err(_) => Ok(None),
            });
            match kept.await? {
                Some(list) => {
                    self.list = Some(Arc::new(list));
                    self.pauses.clear();
                }
                None => {
                    self.charge(peer, Charge::BadHashList);
                    return Ok(());
                }
            }
        }
        // It may have lost its standing while its answer was on its way.
        if self.shared.standings.charged_until(&peer).is_some() || self.is_faulty(&peer) {
            return Ok(());
        }
        // Two nodes that open to each other keep the stream of the smaller id.
        let local = self.shared.local;
        if self.strands.get(&peer).is_some_and(|strand| strand.opened_by <= local) {
            return Ok(());
        }
        // Others may have come in while this one was being opened.
        if !self.strands.contains_key(&peer) && !self.has_room() {
            self.pause(peer, RETRY_FIRST, RETRY_MOST);
            return Ok(());
        }
        self.join(peer, local, opened.via, None);
        Ok(())
    }

    pub(super) async fn on_inbound(&mut self, inbound: Inbound) {
        let Inbound { peer, mut stream, wants_list, size_bytes } = inbound;
        let standing = self.strands.get(&peer).map(|strand| strand.opened_by);
        let refusal = if size_bytes != self.layout.size_bytes() {
            Some(Refusal::Size)
        } else if self.shared.standings.charged_until(&peer).is_some() || self.is_faulty(&peer) {
            Some(Refusal::Busy)
        } else if standing.is_some_and(|opened_by| opened_by == self.shared.local && opened_by < peer) {
            Some(Refusal::Twice)
        } else if wants_list && !self.shared.terms.serves {
            Some(Refusal::NotHere)
        } else if self.list.is_none() {
            Some(Refusal::NoList)
        } else if (wants_list && !self.may_have_list(&peer)) || (standing.is_none() && !self.has_room()) {
            Some(Refusal::Busy)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            self.tasks.spawn(async move {
                let _ = frames::write_refusal(&mut stream, refusal).await;
            });
            return;
        }
        let list = self.list.clone().filter(|_| wants_list);
        let accepted = frames::accepted(list.as_deref());
        if wants_list {
            self.lists_given.insert(peer, Instant::now());
            self.shared.terms.rates.up.spend(accepted.len());
        }
        self.join(peer, peer, Via::Stream(stream), Some(accepted));
    }

    /// Whether the hash list may be given to a peer, which counts as sent and is not bounded by windows.
    fn may_have_list(&mut self, peer: &NodeId) -> bool {
        self.lists_given.retain(|_, given| given.elapsed() < LIST_AGAIN);
        !self.lists_given.contains_key(peer)
    }

    fn join(&mut self, peer: NodeId, opened_by: NodeId, via: Via, first: Option<Vec<u8>>) {
        self.strands.remove(&peer);
        let joined = match via {
            Via::Stream(_) => self.exchange.join(self.now(), peer),
            Via::Bridge(_) => self.exchange.join_giver(self.now(), peer),
        };
        if joined.is_err() {
            return self.pause(peer, RETRY_FIRST, RETRY_MOST);
        }
        self.numbers += 1;
        let number = self.numbers;
        let voice = Voice { peer, number, inbox: self.voices.clone() };
        let (outbox, said) = mpsc::channel(OUTBOX);
        let down = Arc::clone(&self.shared.terms.rates.down);
        let task = match via {
            Via::Stream(stream) => self.tasks.spawn(strand::run(stream, self.layout, voice, said, down)),
            Via::Bridge(bridge) => self.tasks.spawn(bridge.run(voice, said, down)),
        };
        let strand = Strand::new(number, opened_by, outbox, task);
        if let Some(first) = first {
            strand.send(Out::Accepted(first));
        }
        self.strands.insert(peer, strand);
        self.told = None;
    }

    /// A neighbour is gone, and may be tried again after a while.
    pub(super) fn part_with(&mut self, peer: NodeId) {
        self.strands.remove(&peer);
        // Whoever was of use is tried again soon; others the later, the more often they were of none.
        if self.exchange.was_useful(&peer) {
            self.pauses.remove(&peer);
        }
        self.exchange.leave(peer);
        self.pause(peer, RETRY_FIRST, RETRY_MOST);
        self.told = None;
    }

    fn is_faulty(&self, peer: &NodeId) -> bool {
        self.pauses.get(peer).is_some_and(|pause| pause.faulty && pause.until > Instant::now())
    }

    /// The same, for one that kept no promise.
    pub(super) fn give_up(&mut self, peer: NodeId) {
        self.part_with(peer);
        if let Some(pause) = self.pauses.get_mut(&peer) {
            pause.faulty = true;
        }
    }

    pub(super) fn charge(&mut self, peer: NodeId, charge: Charge) {
        self.part_with(peer);
        self.note_charge(peer, charge);
    }

    /// The same of one that is gone already.
    pub(super) fn note_charge(&mut self, peer: NodeId, charge: Charge) {
        self.shared.standings.charge(peer, charge);
        self.charged.insert(peer, charge);
    }

    fn pause(&mut self, peer: NodeId, first: Duration, most: Duration) {
        let before = self.pauses.get(&peer);
        let length = before.map_or(first, |pause| (pause.length * 2).min(most));
        let faulty = before.is_some_and(|pause| pause.faulty);
        self.pauses.insert(peer, Pause { until: Instant::now() + length, length, faulty });
    }
}

//! What is new here and who has been told. A piece is announced to a neighbour with whatever else is said to it, and by
//! itself only when nothing is for a while: a message more costs every layer below more than the words in it.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::Exchange;
use super::message::Message;
use crate::limits::BLOB_NEWS;
use crate::node_id::NodeId;

/// Pieces are announced this long after the first that is new, or when a message is full; with many neighbours that many
/// times [`NEWS_EACH`] after it, so that announcing costs the same.
const NEWS_AFTER: Duration = Duration::from_millis(40);
const NEWS_EACH: Duration = Duration::from_millis(6);

/// Pieces in the order in which they came, as far back as somebody has not heard of them.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    pieces: VecDeque<u32>,
    /// How many were dropped before the first.
    dropped: u64,
    /// When everybody is told.
    pub(super) due: Option<Duration>,
}

impl News {
    /// Where the next piece will stand: who begins here has heard all.
    pub(super) fn end(&self) -> u64 {
        self.dropped + u64::try_from(self.pieces.len()).unwrap_or(u64::MAX)
    }

    fn since(&self, cursor: u64) -> Vec<u32> {
        let skipped = usize::try_from(cursor.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        self.pieces.iter().skip(skipped).copied().collect()
    }
}

impl Exchange {
    /// A piece is held from now on.
    pub(super) fn note_news(&mut self, now: Duration, piece: u32) {
        self.news.pieces.push_back(piece);
        let after = NEWS_AFTER.max(NEWS_EACH * u32::try_from(self.neighbours.len()).unwrap_or(0));
        self.news.due.get_or_insert(now + after);
        if self.held.is_full() || self.news.pieces.len() >= BLOB_NEWS {
            self.news.due = Some(now);
        }
    }

    /// Everybody is about to hear all that is held.
    pub(super) fn forget_news(&mut self) {
        self.news.dropped = self.news.end();
        self.news.pieces.clear();
        self.news.due = None;
        let end = self.news.end();
        self.neighbours.values_mut().for_each(|neighbour| neighbour.heard_of = end);
    }

    /// Adds what is new for whoever is told something anyhow, and for all when it is time.
    pub(super) fn tell_news(&mut self, now: Duration) {
        if self.news.pieces.is_empty() {
            return;
        }
        let all = self.news.due.is_some_and(|due| due <= now);
        let to: BTreeSet<NodeId> =
            if all { self.neighbours.keys().copied().collect() } else { self.messages.iter().map(|(to, _)| *to).collect() };
        let end = self.news.end();
        for peer in to {
            let Some(neighbour) = self.neighbours.get_mut(&peer) else { continue };
            let news = self.news.since(core::mem::replace(&mut neighbour.heard_of, end));
            self.messages.extend(news.chunks(BLOB_NEWS).map(|pieces| (peer, Message::Have(pieces.to_vec()))));
        }
        if all {
            self.news.due = None;
        }
        let heard = self.neighbours.values().map(|neighbour| neighbour.heard_of).min().unwrap_or(end);
        let known = usize::try_from(heard.saturating_sub(self.news.dropped)).unwrap_or(usize::MAX).min(self.news.pieces.len());
        self.news.pieces.drain(..known);
        self.news.dropped = self.news.dropped.max(heard);
        if self.news.pieces.is_empty() {
            self.news.due = None;
        }
    }
}

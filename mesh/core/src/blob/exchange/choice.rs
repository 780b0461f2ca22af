//! The sending side: to whom the next piece goes, and which.
//!
//! The rarest piece among the neighbours first, be it here or about to arrive: it is the one that the fewest uplinks can carry on. Among those who lack
//! a piece of that rarity: whoever has fewest pieces that it alone has from here (it passes on what it gets), then who
//! has least on its way, then who holds least. Whoever gives nothing of what it could comes after all others.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use rand_chacha::rand_core::Rng;

use super::Exchange;
use super::message::Message;
use super::neighbour::{Neighbour, Open};
use super::soon::Soon;
use crate::limits::BLOB_OFFERED;
use crate::node_id::NodeId;

/// Most neighbours that are looked at for one offer, drawn by chance: enough to find a good one.
const LOOKED_AT: usize = 12;

impl Exchange {
    /// Makes offers until enough is agreed on to keep the uplink busy.
    pub(super) fn offer(&mut self, now: Duration) {
        self.end_marks(now);
        if !self.terms.serves || (self.held.held() == 0 && self.expected.is_empty()) {
            return;
        }
        let open = self.neighbours.values().filter(|it| it.is_open(now) || !it.offers.is_empty());
        let Some(soonest) = open.map(|it| it.answer).min() else { return };
        let ahead = self.pace.ahead_bytes(soonest, self.layout.piece_bytes());
        let time = self.pace.ahead(soonest, self.layout.piece_bytes());
        loop {
            let count = |it: &Neighbour| {
                let offered = u64::try_from(it.offers.len()).unwrap_or(u64::MAX).saturating_mul(self.layout.piece_bytes());
                self.pace.counted_bytes(offered, it.answer, soonest)
            };
            let offered: u64 = self.neighbours.values().filter(|it| !it.is_late(now)).map(count).sum();
            let waiting: u64 = self.neighbours.values().map(|it| it.waiting_bytes(now, time)).sum();
            if waiting.saturating_add(offered) >= ahead {
                return;
            }
            let Some((peer, pieces)) = self.choose(now) else { return };
            let early: Vec<u32> = pieces.iter().filter(|piece| !self.held.contains(**piece)).copied().collect();
            let arrives = pieces.first().and_then(|first| self.left_of(now, *first));
            let Some(neighbour) = self.neighbours.get_mut(&peer) else { return };
            pieces.iter().for_each(|piece| {
                neighbour.marked.insert(*piece);
            });
            neighbour.early.extend(early);
            neighbour.offers.push_back(Open { pieces: pieces.clone(), at: now, withdrawn: BTreeSet::new() });
            // Most take the first: it counts as theirs already, or two neighbours would be offered the same rare piece.
            if let Some(first) = pieces.first() {
                self.count_given(peer, *first);
            }
            let before = waiting + offered + self.layout.piece_bytes();
            let wire = self.wire_bytes(now);
            let wait = self.pace.uplink.time_for(before.saturating_add(wire));
            // What is not here yet goes before all that is common, once it is.
            let own = self.pace.uplink.time_for(self.layout.piece_bytes().saturating_add(wire));
            let wait = arrives.map_or(wait, |left| wait.max(left + own));
            let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
            self.messages.push((peer, Message::Offer { wait_ms, pieces }));
        }
    }

    /// Whom to offer what now.
    fn choose(&mut self, now: Duration) -> Option<(NodeId, Vec<u32>)> {
        let busy = |it: &Neighbour| it.is_busy(now);
        let slots = self.terms.uploads.saturating_sub(self.neighbours.values().filter(|it| busy(it)).count());
        // Where all that are sent to have enough, the uplink is not to wait for them.
        let is_free = slots > 0 || !self.neighbours.values().any(|it| busy(it) && it.is_open(now));
        let mut open: Vec<NodeId> = Vec::new();
        for (peer, neighbour) in &self.neighbours {
            if neighbour.is_open(now) && (is_free || busy(neighbour)) {
                open.push(*peer);
            }
        }
        let soon = self.soon(now);
        let looked_at = open.len().min(LOOKED_AT);
        let mut best: Option<(Score, NodeId, Vec<u32>)> = None;
        for nth in 0..open.len() {
            if nth >= looked_at && best.is_some() {
                break;
            }
            let left = u32::try_from(open.len() - nth).unwrap_or(1).max(1);
            let drawn = nth + usize::try_from(self.random.next_u32() % left).unwrap_or(0);
            open.swap(nth, drawn);
            let Some(peer) = open.get(nth).copied() else { break };
            let drawn = self.random.next_u32() % self.layout.count();
            // Where there is nobody to spread pieces among they go nearly in order: what comes so is hashed as it comes.
            let start = if self.neighbours.len() == 1 { 0 } else { drawn };
            let Some(neighbour) = self.neighbours.get(&peer) else { continue };
            // Many offers at once need no choice in each: what is in one is in no other.
            let most = if neighbour.offers.len() < 3 { BLOB_OFFERED } else { 2 };
            let Some((rarity, pieces)) = self.rarest(neighbour, start, most, &soon) else { continue };
            let score = (neighbour.withholds, rarity, neighbour.sole, neighbour.queued + neighbour.offers.len());
            if best.as_ref().is_none_or(|(least, _, _)| score < *least) {
                best = Some((score, peer, pieces));
            }
        }
        best.map(|(_, peer, pieces)| (peer, pieces))
    }

    /// The rarest pieces that a neighbour lacks, rarest first, at most `most`, and how rare the first is. In front of those that
    /// are here stands one that will be by the time it answers, if it is rarer than all of them. Looks at pieces from `start`
    /// on, so that ties fall differently each time.
    fn rarest(&self, neighbour: &Neighbour, start: u32, most: usize, soon: &[Soon]) -> Option<(u16, Vec<u32>)> {
        let mut found: Vec<(u16, u32)> = Vec::with_capacity(most + 1);
        for piece in self.held.without(&neighbour.marked, start) {
            let owners = self.owners_of(piece);
            if found.len() == most && found.last().is_some_and(|(last, _)| owners >= *last) {
                continue;
            }
            let at = found.partition_point(|(other, _)| *other <= owners);
            found.insert(at, (owners, piece));
            found.truncate(most);
        }
        let timely = soon.iter().filter(|it| it.left <= neighbour.answer && !neighbour.marked.contains(it.piece));
        if let Some(it) = timely.min_by_key(|it| it.owners)
            && found.first().is_none_or(|(least, _)| it.owners < *least)
        {
            found.insert(0, (it.owners, it.piece));
            found.truncate(most);
        }
        let (rarity, _) = found.first()?;
        Some((*rarity, found.iter().map(|(_, piece)| *piece).collect()))
    }
}

/// Lower is better: whether it withholds, owners of the rarest piece, pieces only it has from here, pieces on their way to it.
type Score = (bool, u16, usize, usize);

//! One sync session: two peers compare what they have and move the difference, in turns.
//!
//! Exactly one frame is under way at a time, so a session holds no more than one frame of items per side, and a lost
//! frame ends it: it never says that two peers are in sync when something went missing. Both sides run the same code.
//!
//! 1. The initiator sends the fingerprint of everything. When it is the other's too, that is all.
//! 2. Else ranges go to and fro: the fingerprints of 16 children, or, for a handful, all ids. Equal children are done.
//! 3. Against a list of all ids a side sees what it lacks and what the other lacks. It asks for the former and gives the
//!    latter. Of two states of one record it asks with its own stamp, and the older side gets the newer record.
//! 4. When no range is open, items flow, documents first. A side that has nothing to ask and to give says `end`;
//!    the session is over when both have said so one after the other.
//!
//! Meyer, *Range-Based Set Reconciliation* (2023). The crate `negentropy` does the same with free bounds; this trie costs
//! a third of its bytes, lets stamps travel, and needs no second SHA-256. Scheduling is in [`super`].

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Documents;
use super::frame::{Frame, FrameError, Items, PACKED_BYTES};
use super::inventory::{self, Inventory, Item, Paper};
use super::push::{Sifted, sift};
use crate::limits::{FRAME_ITEMS, SYNC_RANGES, SYNC_TURNS};
use crate::record::ledger::{Entry, Ledger};
use crate::record::sync_set::{DEEPEST, Fingerprint, SyncId, half};
use crate::record::{RecordKey, Stamp};
use crate::time::Time;

/// Ranges of at most this many ids are listed rather than split: below it, ids cost less than 16 fingerprints.
const LISTED: u64 = 8;
/// Most entries of one list in a turn.
const LIST: usize = FRAME_ITEMS / 8;
/// Most ranges in a turn: 256 fingerprint bytes each keep far within a frame.
const TURN_RANGES: usize = 512;

/// One turn, as it travels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Turn {
    /// Which session of its initiator.
    pub(super) session: u64,
    /// Sent by the side that began the session.
    pub(super) by_initiator: bool,
    /// From 0, counted over both sides.
    pub(super) number: u32,
    /// The fingerprint of everything; in turn 0 only.
    whole: Option<Fingerprint>,
    /// Ranges to compare, ascending and disjoint.
    ranges: Vec<Range>,
    /// What the sender lacks.
    wanted: Vec<Wanted>,
    /// Records of which the sender holds an older one.
    pull: Vec<RecordKey>,
    /// What the receiver lacks.
    items: Items,
    /// The sender has nothing to ask or to give.
    end: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Range {
    prefix: Vec<u8>,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Content {
    /// Fingerprints of its 16 children.
    Children(Box<[Fingerprint; 16]>),
    /// All ids in it.
    All(Vec<SyncId>),
}

/// An id that the sender lacks, and the rank of what it holds instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Wanted {
    id: SyncId,
    holds: Option<Stamp>,
}

impl Turn {
    pub(super) fn longest_list(&self) -> usize {
        let ids = |range: &Range| if let Content::All(ids) = &range.content { ids.len() } else { 0 };
        let lists = [self.ranges.len(), self.wanted.len(), self.pull.len(), self.items.len()];
        lists.into_iter().chain(self.ranges.iter().map(ids)).max().unwrap_or(0)
    }

    /// Ascending and disjoint: then all of them together cost one pass over the inventory.
    fn check_ranges(&self) -> Result<(), FrameError> {
        let deep = self.ranges.iter().any(|range| {
            let most = if matches!(range.content, Content::All(_)) { DEEPEST } else { DEEPEST - 1 };
            range.prefix.len() > most || range.prefix.iter().any(|nibble| *nibble > 15)
        });
        let pairs = self.ranges.iter().zip(self.ranges.iter().skip(1));
        let disordered = |(one, next): (&Range, &Range)| one.prefix >= next.prefix || next.prefix.starts_with(&one.prefix);
        if deep || pairs.into_iter().any(disordered) { Err(FrameError::Ranges) } else { Ok(()) }
    }
}

/// One side of a session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: u64,
    /// When the last turn was taken or sent.
    pub(super) active_at: Time,
    initiator: bool,
    /// The number of the next turn, whoever takes it.
    number: u32,
    ranges: BTreeMap<Vec<u8>, Content>,
    wanted: BTreeSet<Wanted>,
    pull: BTreeSet<RecordKey>,
    give: BTreeSet<Item>,
    /// Whether the last turn sent said `end`.
    said_end: bool,
}

/// What a turn led to.
pub(super) struct Taken {
    /// What it brought.
    pub(super) sifted: Sifted,
    /// The answer to send.
    pub(super) answer: Option<Frame>,
    /// Both sides have all that the other had: the session is over.
    pub(super) done: bool,
}

impl Session {
    /// Begins a session: its state, and its first frame.
    pub(super) fn begin(now: Time, id: u64, inventory: &Inventory<'_>) -> (Self, Frame) {
        let turn = Turn { session: id, by_initiator: true, whole: Some(inventory.whole()), end: true, ..Turn::default() };
        (Self { number: 1, said_end: true, ..Self::new(now, id, true) }, Frame::Sync(turn))
    }

    /// The other side of a session that a peer begins.
    pub(super) fn accept(now: Time, id: u64) -> Self {
        Self::new(now, id, false)
    }

    fn new(now: Time, id: u64, initiator: bool) -> Self {
        Self {
            id,
            active_at: now,
            initiator,
            number: 0,
            ranges: BTreeMap::new(),
            wanted: BTreeSet::new(),
            pull: BTreeSet::new(),
            give: BTreeSet::new(),
            said_end: false,
        }
    }

    /// Takes the peer's turn and answers it. `None`: the turn is not the next one, the session has lost its thread.
    pub(super) fn take(
        &mut self,
        now: Time,
        turn: Turn,
        ledger: &Ledger,
        documents: &dyn Documents,
    ) -> Result<Option<Taken>, FrameError> {
        turn.check_ranges()?;
        if turn.number != self.number || self.number >= SYNC_TURNS {
            return Ok(None);
        }
        let sifted = sift(turn.items, ledger)?;
        self.number += 1;
        self.active_at = now;
        if turn.end && self.said_end {
            return Ok(Some(Taken { sifted, answer: None, done: true }));
        }
        let inventory = Inventory::of(ledger, documents);
        let comparing = !turn.ranges.is_empty() || turn.whole.is_some();
        if turn.whole.is_some_and(|whole| whole != inventory.whole()) {
            self.open(Vec::new(), &inventory);
        }
        for range in turn.ranges {
            self.compare(range, &inventory, ledger);
        }
        for wanted in turn.wanted {
            self.serve(&wanted, &inventory, ledger);
        }
        self.give.extend(turn.pull.into_iter().map(Item::Record));
        if self.ranges.len() > SYNC_RANGES {
            return Err(FrameError::Ranges);
        }
        let answer = self.answer(comparing, ledger, documents);
        let done = turn.end && answer.end;
        Ok(Some(Taken { sifted, answer: Some(Frame::Sync(answer)), done }))
    }

    /// Opens a range whose fingerprint differs: its ids if they are few, else its children.
    fn open(&mut self, prefix: Vec<u8>, inventory: &Inventory<'_>) {
        let content = if inventory.count(&prefix) <= LISTED || prefix.len() >= DEEPEST {
            Content::All(inventory.range(&prefix).into_iter().map(|(id, _)| id).collect())
        } else {
            let mut prints = Box::new([Fingerprint::default(); 16]);
            for (print, child) in prints.iter_mut().zip(inventory::children(&prefix)) {
                *print = inventory.fingerprint(&child);
            }
            Content::Children(prints)
        };
        self.ranges.insert(prefix, content);
    }

    fn compare(&mut self, range: Range, inventory: &Inventory<'_>, ledger: &Ledger) {
        match range.content {
            Content::Children(prints) => {
                for (child, print) in inventory::children(&range.prefix).zip(*prints) {
                    if inventory.fingerprint(&child) != print {
                        self.open(child, inventory);
                    }
                }
            }
            Content::All(theirs) => {
                let theirs: BTreeSet<SyncId> = theirs.into_iter().collect();
                for id in &theirs {
                    match inventory.thing(id) {
                        Some((mine, _)) if mine == *id => {}
                        Some((_, item)) => {
                            self.wanted.insert(Wanted { id: *id, holds: inventory::rank(&item, ledger) });
                            if matches!(item, Item::Document(_)) {
                                self.give.insert(item);
                            }
                        }
                        None => {
                            self.wanted.insert(Wanted { id: *id, holds: None });
                        }
                    }
                }
                let halves: BTreeSet<&[u8]> = theirs.iter().map(half).collect();
                let lacking = inventory.range(&range.prefix).into_iter().filter(|(id, _)| !halves.contains(half(id)));
                self.give.extend(lacking.map(|(_, item)| item));
            }
        }
    }

    /// The peer wants an id: gives it, or pulls what the peer holds where that is newer; both under one stamp.
    fn serve(&mut self, wanted: &Wanted, inventory: &Inventory<'_>, ledger: &Ledger) {
        let Some((_, item)) = inventory.thing(&wanted.id) else { return };
        let mine = inventory::rank(&item, ledger);
        if let (Item::Record(key), Some(theirs)) = (item, wanted.holds)
            && Some(theirs) >= mine
        {
            self.pull.insert(key);
        }
        if mine >= wanted.holds || mine.is_none() {
            self.give.insert(item);
        }
    }

    /// Packs the next turn. No items while ranges are open: their order is not known before.
    fn answer(&mut self, comparing: bool, ledger: &Ledger, documents: &dyn Documents) -> Turn {
        let ranges: Vec<Range> = core::iter::from_fn(|| self.ranges.pop_first())
            .take(TURN_RANGES)
            .map(|(prefix, content)| Range { prefix, content })
            .collect();
        let items = if comparing || !ranges.is_empty() { Items::default() } else { self.pack(ledger, documents) };
        let wanted: Vec<Wanted> = core::iter::from_fn(|| self.wanted.pop_first()).take(LIST).collect();
        let pull: Vec<RecordKey> = core::iter::from_fn(|| self.pull.pop_first()).take(LIST).collect();
        let end = ranges.is_empty() && wanted.is_empty() && pull.is_empty() && self.give.is_empty();
        let turn = Turn {
            session: self.id,
            by_initiator: self.initiator,
            number: self.number,
            whole: None,
            ranges,
            wanted,
            pull,
            items,
            end,
        };
        self.number += 1;
        self.said_end = end;
        turn
    }

    fn pack(&mut self, ledger: &Ledger, documents: &dyn Documents) -> Items {
        let mut items = Items::default();
        let mut bytes = 0;
        while items.len() < FRAME_ITEMS / 2
            && let Some(item) = self.give.first().copied()
        {
            let size = match item {
                Item::Document(Paper { digest, .. }) => documents.envelope(&digest).map_or(0, <[u8]>::len),
                Item::Record(key) => ledger.entry(&key).map_or(0, Entry::size),
            };
            if bytes > 0 && bytes + size > PACKED_BYTES {
                break;
            }
            self.give.remove(&item);
            bytes += size;
            match item {
                Item::Document(Paper { digest, .. }) => items.documents.extend(documents.envelope(&digest).map(<[u8]>::to_vec)),
                Item::Record(key) => ledger.entry(&key).into_iter().for_each(|entry| items.put(entry)),
            }
        }
        items
    }
}

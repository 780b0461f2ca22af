//! When a slot may be granted under a newer roster (rule 8): a pure function of rosters, records and silence.
//!
//! **The rule.** Under roster *r* a warden grants slot *t* only when, for every roster *u* on *r*'s chain from *r*'s signed
//! `settled` on, the slot is *sealed* under *u*: a quorum of *u*'s wardens of the slot has declared *r*, or a roster on *r*'s
//! chain that is neither *u* nor before it, and lists no promise of that slot for a claim under *u* or older that has not
//! ended. The same holds for every slot of the pool, urgent ones included, that *u* had and *r* has not. Where *u* did
//! not have *t*, a quorum of *u*'s wardens of slot 0 must have declared so. Only for *t* itself, and only where *u* and *r*
//! give it the same wardens, is there nothing to wait for: each of them remembers its own promise.
//!
//! **Why it is enough.** Suppose A starts under *u* and B under a later *r*, on one slot. A has grants of a quorum of *u*'s
//! wardens, and whoever granted B saw the seal of *u* by a quorum of the same wardens. The two quorums share more wardens
//! than may lie, so an honest one did both. Either it promised A before it declared: then it listed the promise when the
//! seal was read, and the seal waited until the promise had ended. Or it promised A afterwards: but who has declared a
//! roster beyond *u* grants nothing under *u* any more. Rivals *u* and *v* of one version have a common forerunner; to open
//! a slot each needs that forerunner's seal by wardens that declared *it*, and no honest warden declares both. That is why
//! a declaration counts by the chain of *r*, never by its number (case D32), and why every roster of the chain is asked,
//! not only the last (D2, D27, D29), for lost slots too (D3, D28, D30), and for new ones by slot 0 (D31).
//!
//! `settled` cuts the chain short: the tools raise it to *v* only when [`Handover::settled`] says that every slot of every
//! roster before *v* is sealed. A seal never opens again, so nobody needs to look there again.
//!
//! A warden that is gone for good cannot declare. It counts as having declared once the reader has known that for
//! `presumeLostAfter` (24 h where that is 0): by then what it may have promised unseen is over (D22, D33).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::lease::amnesia::DEFAULT_WAIT_MS;
use crate::lease::budget::{PoolMap, PoolSeats, Slot};
use crate::lease::claim::end_of;
use crate::lease::governing::Rosters;
use crate::lease::sight::{Gone, Sight};
use crate::lease::synced::Synced;
use crate::node_id::NodeId;
use crate::record::grants::{Grants, Promise};
use crate::text::Pool;

/// Who looks, and what it goes by.
#[derive(Debug)]
pub struct Reader<'a, S> {
    /// The node that looks.
    pub me: NodeId,
    /// Its own word as a warden: it counts before any record carries it.
    pub own: &'a Grants,
    /// Every roster that is here.
    pub rosters: &'a Rosters<'a>,
    /// Records, documents, silence.
    pub sight: &'a S,
    /// With whom it has synced since its start.
    pub synced: &'a Synced,
}

/// What a slot still waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Waiting {
    /// A roster on the chain is not here with all its certificates.
    #[error("roster {version}, which lies before it, is not here with all its certificates")]
    Roster {
        /// Its version.
        version: u64,
    },
    /// Too few of the old wardens have gone on.
    #[error("{have} of {need} wardens of slot {slot} under roster {version} have declared a later one")]
    Wardens {
        /// The older roster's version.
        version: u64,
        /// The slot's number there.
        slot: u16,
        /// Wardens that have.
        have: usize,
        /// Wardens needed.
        need: usize,
    },
    /// They have, and still list a promise that has not ended.
    #[error("slot {slot} is promised under roster {version} or older to {}", .holder.short())]
    Holder {
        /// The older roster's version.
        version: u64,
        /// The slot's number there.
        slot: u16,
        /// Whose promise stands.
        holder: NodeId,
    },
}

/// One change of rosters as one reader sees it: from everything before `under` to `under`.
#[derive(Debug)]
pub struct Handover<'a, S> {
    reader: Reader<'a, S>,
    under: &'a PoolMap,
    /// What lies before `under`, settled or not.
    chain: BTreeSet<Digest>,
    /// From the settled one on, oldest first.
    older: Vec<Older<'a>>,
    /// The oldest version from the settled one on that is not here.
    gap: Option<u64>,
}

#[derive(Debug)]
struct Older<'a> {
    map: &'a PoolMap,
    before: BTreeSet<Digest>,
}

impl<S> Clone for Reader<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Reader<'_, S> {}

impl<'a, S: Sight> Handover<'a, S> {
    /// The change to `under`, whose `settled` says how far back it looks.
    #[must_use]
    pub fn to(under: &'a PoolMap, reader: Reader<'a, S>) -> Self {
        let chain = reader.rosters.before(&under.roster());
        let mut older = Vec::new();
        let mut absent: Vec<u64> = chain.missing.values().copied().collect();
        for roster in &chain.known {
            match reader.rosters.get(roster) {
                Some(map) if map.version() < under.settled() => {}
                Some(map) => older.push(Older { map, before: reader.rosters.before(roster).known }),
                None => absent.extend(reader.rosters.version(roster)),
            }
        }
        let gap = absent.into_iter().filter(|version| *version >= under.settled()).min();
        older.sort_by_key(|one| (one.map.version(), one.map.roster()));
        Self { reader, under, chain: chain.known, older, gap }
    }

    /// Whether `slot` may be granted under the newer roster.
    ///
    /// # Errors
    /// The first thing that it waits for.
    pub fn opens(&self, slot: &Slot) -> Result<(), Waiting> {
        if let Some(version) = self.gap {
            return Err(Waiting::Roster { version });
        }
        let slots = self.under.pool(&slot.pool).map_or(0, |seats| seats.slots(true));
        for older in &self.older {
            // A pool that it did not list has no old wardens (the tools refuse to begin a pool twice).
            let Some(seats) = older.map.pool(&slot.pool) else { continue };
            if slot.number < seats.slots(true) {
                if older.map.wardens(slot) != self.under.wardens(slot) {
                    self.sealed(older, slot)?;
                }
            } else {
                self.declared(older, &Slot { number: 0, ..slot.clone() })?;
            }
            for number in slots..seats.slots(true) {
                self.sealed(older, &Slot { number, ..slot.clone() })?;
            }
        }
        Ok(())
    }

    /// The highest version up to which all that is older is sealed in every slot of every pool: what the next roster may
    /// call `settled`; and what keeps it from being the newer roster's own version.
    #[must_use]
    pub fn settled(&self) -> (u64, Option<Waiting>) {
        for older in &self.older {
            let version = older.map.version();
            if let Some(gap) = self.gap.filter(|gap| *gap <= version) {
                return (gap, Some(Waiting::Roster { version: gap }));
            }
            let mut slots = older.map.pools().flat_map(|(pool, seats)| slots_of(pool, seats));
            if let Some(waiting) = slots.find_map(|slot| self.sealed(older, &slot).err()) {
                return (version, Some(waiting));
            }
        }
        match self.gap {
            Some(gap) => (gap, Some(Waiting::Roster { version: gap })),
            None => (self.under.version(), None),
        }
    }

    /// A quorum of the slot's wardens under `older` has gone on, and lists nothing on it that has not ended.
    fn sealed(&self, older: &Older<'_>, slot: &Slot) -> Result<(), Waiting> {
        self.quorum(older, slot, |warden| self.standing(older, slot, warden))
    }

    /// A quorum of the slot's wardens under `older` has gone on.
    fn declared(&self, older: &Older<'_>, slot: &Slot) -> Result<(), Waiting> {
        self.quorum(older, slot, |_| None)
    }

    fn quorum(&self, older: &Older<'_>, slot: &Slot, standing: impl Fn(&NodeId) -> Option<NodeId>) -> Result<(), Waiting> {
        let version = older.map.version();
        let Some(wardens) = older.map.wardens(slot) else { return Ok(()) };
        let (mut have, mut free, mut holder) = (0, 0, None);
        for warden in wardens.nodes.iter().filter(|warden| self.gone_on(older, &slot.pool, warden)) {
            have += 1;
            match standing(warden) {
                Some(taken) => holder = holder.or(Some(taken)),
                None => free += 1,
            }
        }
        match holder {
            _ if free >= wardens.quorum => Ok(()),
            Some(holder) if have >= wardens.quorum => Err(Waiting::Holder { version, slot: slot.number, holder }),
            _ => Err(Waiting::Wardens { version, slot: slot.number, have, need: wardens.quorum }),
        }
    }

    /// Whether `warden` grants nothing under `older` any more: by its word, or because it has been gone for long.
    fn gone_on(&self, older: &Older<'_>, pool: &Pool, warden: &NodeId) -> bool {
        let sight = self.reader.sight;
        let believed = !sight.is_convicted(warden) && sight.gone(warden) != Some(Gone::Revoked);
        let declared = if *warden == self.reader.me {
            self.reader.own.declared
        } else {
            sight.grants(warden).and_then(|grants| grants.declared)
        };
        if believed && declared.is_some_and(|declared| self.is_beyond(&declared, older)) {
            return true;
        }
        let wait = |map: &PoolMap| map.pool(pool).map(|seats| seats.presume_lost_after_ms().unwrap_or(DEFAULT_WAIT_MS));
        let wait = wait(older.map).max(wait(self.under)).unwrap_or(DEFAULT_WAIT_MS);
        sight.gone_for_ms(warden).is_some_and(|known_for| known_for >= wait)
    }

    /// The newer roster, or one on its chain that is neither `older` nor before it.
    fn is_beyond(&self, roster: &Digest, older: &Older<'_>) -> bool {
        let on_chain = self.chain.contains(roster) && *roster != older.map.roster() && !older.before.contains(roster);
        *roster == self.under.roster() || on_chain
    }

    /// The holder of a promise of `slot` that `warden` lists for a claim under `older` or before it, and that stands.
    /// A promise under a roster that is not on the chain counts as one: it cannot be told from one.
    fn standing(&self, older: &Older<'_>, slot: &Slot, warden: &NodeId) -> Option<NodeId> {
        let stands = |promise: &Promise| {
            promise.pool == slot.pool
                && promise.slot == slot.number
                && !self.is_beyond(&promise.roster, older)
                && !self.reader.has_ended(promise, *warden == self.reader.me, self.under)
        };
        let own = self.reader.own.promises.iter().filter(|_| *warden == self.reader.me);
        let listed = self.reader.sight.promises(warden).filter(|_| *warden != self.reader.me);
        own.chain(listed).find(|promise| stands(promise)).map(|promise| promise.holder)
    }
}

impl<S: Sight> Reader<'_, S> {
    /// Whether a promise, its `own` or another's, has ended, as far as this reader can tell: by record, by document, or by
    /// silence.
    ///
    /// Of a claim that this reader never heard, silence says nothing: it may be from long before the claim was made.
    fn has_ended(&self, promise: &Promise, own: bool, governing: &PoolMap) -> bool {
        let heard = || own || self.sight.status(&promise.holder).is_some_and(|(stamp, _)| stamp >= promise.claim.0);
        end_of(promise, self.sight).is_some() || self.lost_in_ms(promise, Some(governing)) == Some(0) && heard()
    }

    /// This reader's up time until the holder of `promise` is presumed lost; `None`: never, or it cannot say.
    ///
    /// By the longer of what the claim's own roster and the one that governs now ask for, so that a policy that is
    /// tightened cuts no upgrade short that began under the old one.
    pub(crate) fn lost_in_ms(&self, promise: &Promise, governing: Option<&PoolMap>) -> Option<u64> {
        // This node hears itself; a convict's slot stays taken until it is written off.
        if promise.holder == self.me || self.sight.is_convicted(&promise.holder) {
            return None;
        }
        let under = self.rosters.get(&promise.roster);
        let mut after = None;
        for seats in [governing, under].into_iter().flatten().filter_map(|map| map.pool(&promise.pool)) {
            after = after.max(Some(seats.presume_lost_after_ms()?));
        }
        // What it missed while it was down may be news of the holder: first sync, then presume. A slot that is no more
        // has the first one's wardens for that: its own may all be gone.
        let slot = |number: u16| Slot { pool: promise.pool.clone(), number };
        let wardens = governing.and_then(|map| map.wardens(&slot(promise.slot)).or_else(|| map.wardens(&slot(0))));
        let synced = wardens.map_or_else(|| self.synced.any(), |wardens| self.synced.enough(&self.me, wardens).is_ok());
        let unheard = self.sight.unheard_ms(&promise.holder).filter(|_| synced)?;
        after.map(|after| after.saturating_sub(unheard))
    }
}

fn slots_of(pool: &Pool, seats: &PoolSeats) -> impl Iterator<Item = Slot> {
    let pool = pool.clone();
    (0..seats.slots(true)).map(move |number| Slot { pool: pool.clone(), number })
}

//! How a pool's slots look from here: who holds or claims each, with how many grants, and which look free.
//!
//! Feeds `swell leases` and the holder's choice of a slot. A view is never evidence: only [`super::start`] lets a node start.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::lease::budget::{PoolMap, PoolSeats, Slot};
use crate::lease::claim::{SeenClaim, end_of};
use crate::lease::sight::Sight;
use crate::lease::wardens::Wardens;
use crate::node_id::NodeId;
use crate::record::ClaimName;
use crate::record::grants::Promise;
use crate::text::Pool;

/// One slot as seen from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotView {
    /// The slot.
    pub slot: Slot,
    /// Its wardens.
    pub wardens: usize,
    /// Grants needed.
    pub quorum: usize,
    /// Who has it or has the best claim to it; `None`: it looks free.
    pub occupant: Option<Occupant>,
    /// Whether a claim on it could win now.
    pub free: bool,
}

/// Who stands on a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// The holder or claimant.
    pub holder: NodeId,
    /// Its claim.
    pub claim: ClaimName,
    /// Grants seen for it.
    pub grants: usize,
    /// Whether it says that it is activating.
    pub active: bool,
    /// Up time since it was heard, in milliseconds.
    pub unheard_ms: Option<u64>,
    /// Up time until it is presumed lost if it stays silent, in milliseconds; `None`: never.
    pub presumed_lost_in_ms: Option<u64>,
}

/// All slots of a pool, urgent ones included. `claims` are the standing claims of the pool in records known here.
#[must_use]
pub fn slots_of(map: &PoolMap, pool: &Pool, claims: &[SeenClaim], sight: &impl Sight) -> Vec<SlotView> {
    let Some(seats) = map.pool(pool) else { return Vec::new() };
    (0..seats.slots(true))
        .filter_map(|number| {
            let slot = Slot { pool: pool.clone(), number };
            let wardens = map.wardens(&slot)?;
            let on: Vec<&SeenClaim> = claims.iter().filter(|claim| claim.slot == slot).collect();
            Some(slot_of(slot, seats, wardens, on.into_iter(), sight))
        })
        .collect()
}

/// The numbers of the slots that look free, ascending: of all slots for urgent rollouts, else of the ordinary ones.
#[must_use]
pub fn free_slots(views: &[SlotView], seats: &PoolSeats, urgent: bool) -> Vec<u16> {
    let end = seats.slots(urgent);
    views.iter().filter(|view| view.free && view.slot.number < end).map(|view| view.slot.number).collect()
}

/// One claim on a slot with its support.
#[derive(Default)]
struct Support {
    grants: usize,
    active: bool,
    standing: bool,
}

/// One slot with the standing claims `on` it.
pub(crate) fn slot_of<'a>(
    slot: Slot,
    seats: &PoolSeats,
    wardens: &Wardens,
    on: impl Iterator<Item = &'a SeenClaim>,
    sight: &impl Sight,
) -> SlotView {
    let lost_after = seats.presume_lost_after_ms();
    // Nine wardens list one and the same promise: whether it has ended is looked up once.
    let mut known: Vec<(NodeId, ClaimName, bool)> = Vec::new();
    let mut has_ended = |promise: &Promise| {
        let same = known.iter().find(|(holder, claim, _)| *holder == promise.holder && *claim == promise.claim);
        same.map(|(.., over)| *over).unwrap_or_else(|| {
            let over = ended(promise, lost_after, sight);
            known.push((promise.holder, promise.claim, over));
            over
        })
    };
    let mut support: BTreeMap<(NodeId, ClaimName), Support> = BTreeMap::new();
    // Wardens that cannot grant the slot to anybody new.
    let mut bound = 0;
    for warden in &wardens.nodes {
        let listed = sight.grants(warden).map(|grants| grants.promises.as_slice()).unwrap_or_default();
        let mut binds = sight.is_convicted(warden) || sight.gone(warden).is_some();
        for promise in listed.iter().filter(|promise| promise.pool == slot.pool && promise.slot == slot.number) {
            if has_ended(promise) {
                continue;
            }
            binds = true;
            support.entry((promise.holder, promise.claim)).or_default().grants += 1;
        }
        bound += usize::from(binds);
    }
    for claim in on {
        if has_ended(&claim.promise()) {
            continue;
        }
        let entry = support.entry((claim.holder, claim.name)).or_default();
        entry.active = claim.active;
        entry.standing = true;
    }
    // A claim that nobody granted, and whose holder has been silent for longer than it may take to start, blocks nothing.
    let alive = |holder: &NodeId| sight.unheard_ms(holder).is_none_or(|unheard| unheard <= seats.start_within_ms());
    let contested = support
        .iter()
        .any(|((holder, _), support)| support.standing && (alive(holder) || (support.active && support.grants > 0)));
    let free = !contested && wardens.nodes.len().saturating_sub(bound) >= wardens.quorum;
    let best =
        support.into_iter().max_by_key(|(_, support)| (support.active && support.grants > 0, support.grants, support.active));
    let occupant = best.map(|((holder, claim), support)| {
        let unheard_ms = sight.unheard_ms(&holder);
        let presumed_lost_in_ms = lost_after.zip(unheard_ms).map(|(after, unheard)| after.saturating_sub(unheard));
        Occupant { holder, claim, grants: support.grants, active: support.active, unheard_ms, presumed_lost_in_ms }
    });
    SlotView { slot, wardens: wardens.nodes.len(), quorum: wardens.quorum, occupant, free }
}

/// How much more silence of `holder` changes how a slot looks that it stands on, in milliseconds; `None`: none does.
pub(crate) fn changes_in_ms(holder: &NodeId, seats: &PoolSeats, sight: &impl Sight) -> Option<u64> {
    let unheard = sight.unheard_ms(holder)?;
    let dead = seats.start_within_ms().saturating_add(1);
    [Some(dead), seats.presume_lost_after_ms()]
        .into_iter()
        .flatten()
        .filter_map(|at| at.checked_sub(unheard))
        .filter(|left| *left > 0)
        .min()
}

fn ended(promise: &Promise, lost_after_ms: Option<u64>, sight: &impl Sight) -> bool {
    let lost = || {
        let unheard = sight.unheard_ms(&promise.holder);
        !sight.is_convicted(&promise.holder) && lost_after_ms.zip(unheard).is_some_and(|(after, unheard)| unheard >= after)
    };
    end_of(promise, sight).is_some() || lost()
}

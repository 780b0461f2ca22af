//! Claims as records show them, and when a promise for one has ended (rules 4 and 5).
//!
//! A claim stands while its holder's newest record carries it and shows neither `confirmed` nor any end. What a
//! record older than the claim says counts for nothing: it cannot know of it.

use core::fmt;

use crate::digest::Digest;
use crate::lease::budget::Slot;
use crate::lease::sight::{Gone, Sight};
use crate::node_id::NodeId;
use crate::record::grants::Promise;
use crate::record::status::{Claim, Phase, Purpose, Section, Status};
use crate::record::{ClaimName, Stamp};

/// A claim on a slot, standing in its holder's newest record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenClaim {
    /// Who claims.
    pub holder: NodeId,
    /// The slot.
    pub slot: Slot,
    /// The claim's name.
    pub name: ClaimName,
    /// Its nonce.
    pub nonce: u64,
    /// Body digest of its roster.
    pub roster: Digest,
    /// What for.
    pub purpose: Purpose,
    /// Whether the holder says that it is activating: disrupted now.
    pub active: bool,
}

impl SeenClaim {
    /// Every claim on a slot that stands in `status`, the newest record of `holder`.
    pub fn standing(holder: NodeId, status: &Status) -> impl Iterator<Item = Self> + '_ {
        status.products.values().filter_map(move |section| {
            let claim = section.claim.as_ref()?;
            stands(section, claim).then(|| Self::of(holder, claim, section.phase == Phase::Activating))?
        })
    }

    /// `claim` of `holder`; `None` when it has no slot.
    #[must_use]
    pub fn of(holder: NodeId, claim: &Claim, active: bool) -> Option<Self> {
        let slot = Slot { pool: claim.pool.clone(), number: claim.slot? };
        let purpose = claim.purpose.clone();
        Some(Self { holder, slot, name: claim.name, nonce: claim.nonce, roster: claim.roster, purpose, active })
    }

    /// The promise for this claim.
    #[must_use]
    pub fn promise(&self) -> Promise {
        Promise {
            pool: self.slot.pool.clone(),
            slot: self.slot.number,
            holder: self.holder,
            claim: self.name,
            nonce: self.nonce,
            roster: self.roster,
        }
    }
}

/// Why a promise has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The holder's own record shows it confirmed, reverted or withdrawn (rule 4).
    GivenBack,
    /// Its claim, or a later one of that node, is forgiven or written off (rule 5).
    WrittenOff,
    /// The holder is gone for good (rule 5).
    Gone(Gone),
    /// Nothing was heard of the holder for `presumeLostAfter` of up time (rule 5).
    PresumedLost,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GivenBack => f.write_str("the holder gave it back"),
            Self::WrittenOff => f.write_str("the claim was written off"),
            Self::Gone(gone) => write!(f, "the holder is {gone}"),
            Self::PresumedLost => f.write_str("the holder is presumed lost"),
        }
    }
}

/// Whether `promise` has ended by what records and documents say; silence is not among it.
///
/// A convict's records count for nothing, so its promise ends only when it is written off or gone.
#[must_use]
pub fn end_of(promise: &Promise, sight: &impl Sight) -> Option<End> {
    if let Some(gone) = sight.gone(&promise.holder) {
        return Some(End::Gone(gone));
    }
    // To name a claim is to name every earlier one of that node, and never a later one (case D1).
    if sight.written_off(&promise.holder).is_some_and(|named| named >= promise.claim) {
        return Some(End::WrittenOff);
    }
    if sight.is_convicted(&promise.holder) {
        return None;
    }
    let (stamp, status) = sight.status(&promise.holder)?;
    given_back(promise, stamp, status).then_some(End::GivenBack)
}

fn given_back(promise: &Promise, stamp: Stamp, status: &Status) -> bool {
    // An older record than the claim's first one says nothing about it.
    if stamp < promise.claim.0 {
        return false;
    }
    // Compared by name alone: a record of the same name with another nonce comes from a set-back store and frees nothing.
    let mut carrying = status.products.values().filter_map(|section| {
        let claim = section.claim.as_ref()?;
        (claim.name == promise.claim).then_some((section, claim))
    });
    !carrying.any(|(section, claim)| stands(section, claim))
}

/// Whether a claim in a section still stands: no phase and no verdict shows its end.
pub(crate) fn stands(section: &Section, claim: &Claim) -> bool {
    let over = match section.phase {
        Phase::Confirmed | Phase::Soaked | Phase::RolledBack | Phase::Failed | Phase::Skipped => true,
        Phase::Idle | Phase::Waiting | Phase::Fetching | Phase::Staged | Phase::Claiming | Phase::Activating => false,
    };
    !over && !section.verdicts.iter().any(|verdict| verdict.claim == Some(claim.name))
}

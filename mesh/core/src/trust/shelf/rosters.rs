//! Rosters: large, named by digest, fetched when a document in force names them.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Placed, Shelf, add_rival};
use crate::digest::Digest;
use crate::documents::Body;
use crate::documents::certificate::Certificate;
use crate::documents::rejection::Rejection;
use crate::documents::rollout::{Rollout, RosterRef};
use crate::documents::roster::{Listed, Roster};
use crate::lease::budget::PoolMap;
use crate::lease::sight::Gone;
use crate::limits::ROSTER_BYTES;
use crate::node_id::NodeId;
use crate::trust::guard_rails;

impl Shelf {
    /// A roster by its body digest.
    #[must_use]
    pub fn roster(&self, digest: &Digest) -> Option<&Roster> {
        match self.body(digest) {
            Some(Body::Roster(roster)) => Some(roster),
            _ => None,
        }
    }

    /// The listed nodes with the certificates that the roster names, in order of ids.
    /// `None` until the roster and every one of those certificates are here.
    #[must_use]
    pub fn roster_members(&self, digest: &Digest) -> Option<Vec<(&Listed, &Certificate)>> {
        let nodes = &self.roster(digest)?.nodes;
        nodes.iter().map(|listed| Some((listed, self.certificate_by_digest(&listed.certificate)?))).collect()
    }

    /// What leases read of a roster: a pure function of it and of the certificates that it names, so it is worked out once and
    /// shared. `None` until all of these are here.
    #[must_use]
    pub fn pool_map(&self, digest: &Digest) -> Option<Arc<PoolMap>> {
        let held = self.held.get(digest)?;
        if let Some(map) = held.map.get() {
            return Some(map.clone());
        }
        let map = PoolMap::of(*digest, self.roster(digest)?, &self.roster_members(digest)?);
        Some(held.map.get_or_init(|| Arc::new(map)).clone())
    }

    /// Certificates that a roster names and that are not here, at most `most`.
    #[must_use]
    pub fn missing_certificates(&self, digest: &Digest, most: usize) -> Vec<Digest> {
        let nodes = self.roster(digest).into_iter().flat_map(|roster| &roster.nodes);
        nodes.map(|listed| listed.certificate).filter(|digest| !self.held.contains_key(digest)).take(most).collect()
    }

    /// All rosters here, by version; of two rivals the lower digest first.
    pub fn rosters(&self) -> impl DoubleEndedIterator<Item = (Digest, &Roster)> + '_ {
        self.rosters.values().flatten().filter_map(|digest| self.roster(digest).map(|roster| (*digest, roster)))
    }

    /// Whether more than one roster is here.
    #[must_use]
    pub fn has_several_rosters(&self) -> bool {
        self.rosters.values().map(|rivals| rivals.len()).sum::<usize>() > 1
    }

    /// Another body of this roster's version is known, and no later version: it is not newly declared.
    #[must_use]
    pub fn roster_conflicted(&self, digest: &Digest) -> bool {
        self.rosters.last_key_value().is_some_and(|(_, rivals)| rivals.len() > 1 && rivals.contains(digest))
    }

    /// The rosters of the highest version: one, or two rivals.
    pub fn newest_rosters(&self) -> impl Iterator<Item = (Digest, &Roster)> + '_ {
        let newest = self.rosters.last_key_value().into_iter().flat_map(|(_, rivals)| rivals);
        newest.filter_map(|digest| self.roster(digest).map(|roster| (*digest, roster)))
    }

    /// Whether the newest roster says that the node left; of two rivals both must.
    #[must_use]
    pub fn is_removed(&self, node: &NodeId) -> bool {
        let mut newest = self.newest_rosters().peekable();
        newest.peek().is_some() && newest.all(|(_, roster)| roster.removed.binary_search(node).is_ok())
    }

    /// Every node that was retired or revoked, or that the newest roster lists as removed.
    #[must_use]
    pub fn departed(&self) -> BTreeSet<NodeId> {
        let revoked = self.fleet().into_iter().flat_map(|fleet| &fleet.revoked);
        let removed = self.newest_rosters().flat_map(|(_, roster)| &roster.removed).filter(|node| self.is_removed(node));
        self.retired.iter().chain(revoked).chain(removed).copied().collect()
    }

    /// Whether documents say that the node is gone for good, and how: root's word before the roster's. It is asked of many
    /// nodes for each record that comes, and hardly anybody is gone.
    #[must_use]
    pub fn gone(&self, node: &NodeId) -> Option<Gone> {
        let gone = self.gone.get_or_init(|| {
            let departed = self.departed().into_iter();
            departed.filter_map(|node| Some((node, self.departed_as(&node)?))).collect()
        });
        gone.get(node).copied()
    }

    fn departed_as(&self, node: &NodeId) -> Option<Gone> {
        if self.fleet().is_some_and(|fleet| fleet.revoked.contains(node)) {
            return Some(Gone::Revoked);
        }
        if self.is_retired(node) {
            return Some(Gone::Retired);
        }
        self.is_removed(node).then_some(Gone::Removed)
    }

    /// Whether a roster that is here lists the node.
    #[must_use]
    pub fn is_listed(&self, node: &NodeId) -> bool {
        self.rosters().any(|(_, roster)| roster.listed(node).is_some())
    }

    /// Rosters that this node's own promises need: they never leave.
    pub fn pin_rosters(&mut self, pinned: BTreeSet<Digest>) {
        self.pinned_rosters = pinned;
    }

    /// The newest rosters; and while these are rivals, of which none is newly declared, those before them, down to one that
    /// has no rival: it goes on to govern, also at nodes that have not declared it yet.
    fn heads(&self) -> impl Iterator<Item = (Digest, &Roster)> {
        let rivals = self.rosters.values().rev().take_while(|bodies| bodies.len() > 1).count();
        let heads = self.rosters.values().rev().take(rivals + 1).flatten();
        heads.filter_map(|digest| self.roster(digest).map(|roster| (*digest, roster)))
    }

    /// The chain that leases look at (section 7, rule 8): of the newest rosters and of the pinned ones, each back to the
    /// version that it calls settled. First what is here, then what is not.
    fn lease_chain(&self) -> (BTreeSet<Digest>, BTreeSet<(u64, Digest)>) {
        let pinned = self.pinned_rosters.iter().filter_map(|digest| Some((*digest, self.roster(digest)?)));
        let (mut here, mut absent) = (BTreeSet::new(), BTreeSet::new());
        for (digest, head) in self.heads().chain(pinned) {
            let (mut mine, mut open) = (BTreeSet::from([digest]), alloc::vec![head]);
            while let Some(roster) = open.pop() {
                let version = roster.version.saturating_sub(1);
                for previous in roster.previous.iter().filter(|_| version >= head.settled) {
                    match self.roster(previous) {
                        Some(found) if mine.insert(*previous) => open.push(found),
                        Some(_) => {}
                        None => {
                            absent.insert((version, *previous));
                        }
                    }
                }
            }
            here.extend(mine);
        }
        (here, absent)
    }

    /// Rosters on the chain that leases look at and that are not here.
    #[must_use]
    pub fn missing_forerunners(&self) -> Vec<RosterRef> {
        let (_, absent) = self.lease_chain();
        // A roster names those before it by digest alone; the limit bounds the fetch.
        let size = u64::try_from(ROSTER_BYTES).unwrap_or(u64::MAX);
        absent.into_iter().map(|(version, digest)| RosterRef { version, digest, size }).collect()
    }

    /// Rosters that two later versions supersede and that neither a rollout in force, nor leases, nor the fleet document
    /// need, oldest first.
    pub(super) fn superseded_rosters(&self) -> Vec<Digest> {
        let superseded: BTreeSet<u64> = self.rosters.keys().rev().skip(2).copied().collect();
        let (chain, absent) = self.lease_chain();
        // What lies below a gap in the chain may be on it, for rosters come in any order: nothing leaves before it is closed.
        if !absent.is_empty() {
            return Vec::new();
        }
        let old = self.rosters().filter(|(_, roster)| superseded.contains(&roster.version)).map(|(digest, _)| digest);
        old.filter(|digest| !chain.contains(digest) && !self.needs_roster(digest)).collect()
    }

    /// Drops them, and returns what left.
    pub fn drop_superseded_rosters(&mut self) -> Vec<Digest> {
        let old = self.superseded_rosters();
        for digest in &old {
            self.forget(digest);
        }
        old
    }

    /// The same for a shelf that has no part in leases, and so needs no chain: what is superseded and neither a rollout in
    /// force nor the fleet document names leaves, but for `new`. Returns what left.
    pub fn drop_rosters_but_for_rollouts(&mut self, new: &Digest) -> Vec<Digest> {
        let superseded: BTreeSet<u64> = self.rosters.keys().rev().skip(1).copied().collect();
        let old = self.rosters().filter(|(_, roster)| superseded.contains(&roster.version)).map(|(digest, _)| digest);
        let old: Vec<Digest> = old.filter(|digest| digest != new && !self.needs_roster(digest)).collect();
        for digest in &old {
            self.forget(digest);
        }
        old
    }

    /// Rosters that a rollout in force or the fleet document names and that are not here.
    #[must_use]
    pub fn wanted_rosters(&self) -> Vec<RosterRef> {
        let anchor = self.fleet().and_then(|fleet| fleet.anchor).map(|digest| {
            // The fleet document names its anchor by digest alone; the limit bounds the fetch.
            RosterRef { version: 1, digest, size: u64::try_from(ROSTER_BYTES).unwrap_or(u64::MAX) }
        });
        let named = self.rollouts().flat_map(|stands| stands.bodies().map(|rollout| rollout.roster.clone()));
        let mut wanted: Vec<RosterRef> = Vec::new();
        for roster in named.chain(anchor) {
            if !self.held.contains_key(&roster.digest) && !wanted.iter().any(|have| have.digest == roster.digest) {
                wanted.push(roster);
            }
        }
        wanted
    }

    pub(super) fn place_roster(&mut self, digest: Digest, roster: &Roster) -> Result<Placed, Rejection> {
        let rivals = self.rosters.entry(roster.version).or_default();
        let (rivals_now, conflict) = add_rival(rivals, digest, "this roster version")?;
        *rivals = rivals_now;
        Ok(Placed { conflict, ..Placed::default() })
    }

    /// With a roster here, rollouts that name it can be judged in full; and an anchor decides about certificates.
    pub(super) fn settle_roster(&mut self, digest: &Digest, dropped: &mut Vec<Digest>) {
        let wrong =
            self.generations_where(|rollout| rollout.roster.digest == *digest && self.check_named_roster(rollout).is_err());
        let mut gone = wrong;
        if self.fleet().is_some_and(|fleet| fleet.anchor == Some(*digest)) {
            let certificates = self.certificates.values().flat_map(|serials| serials.values().flatten());
            gone.extend(certificates.filter(|certificate| !self.still_stands(certificate)));
        }
        for digest in &gone {
            self.forget(digest);
        }
        dropped.extend(gone);
    }

    /// What a rollout says of its roster, and what the roster's policy demands of it, if the roster is here.
    pub(super) fn check_named_roster(&self, rollout: &Rollout) -> Result<(), Rejection> {
        let named = &rollout.roster;
        let (Some(roster), Some(held)) = (self.roster(&named.digest), self.held.get(&named.digest)) else { return Ok(()) };
        let size = u64::try_from(held.body_bytes).unwrap_or(u64::MAX);
        if roster.version != named.version || size != named.size {
            let detail = format!("{} is version {} of {size} bytes", named.digest, roster.version);
            return Err(Rejection::malformed("roster", detail));
        }
        guard_rails::check_presumed_lost(rollout, roster)
    }
}
